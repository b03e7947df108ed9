"""Training and serving over vertex types: a typed graph learns and answers as the same graph without types, whose rows
say which type they are.
"""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import livegnn as lg
from livegnn.errors import ColumnMissing, ModelMismatch, UsageError, ValueInvalid, WidthMismatch
from livegnn.temporal import FeatureCache, InputLoader
from livegnn.temporal.link import Negatives
from livegnn.temporal.models import TGAT, TGN, DySAT, StaticLinks, TemporalGAT, TemporalSAGE, build
from tests.unit.temporal.training import same_numbers, same_tensors, weights

BUYS, SEES, OF = ("User", "buys", "Item"), ("User", "sees", "Item"), ("Item", "of", "User")
USERS, ITEMS, EVENTS = 12, 6, 300
WIDTHS = {"User": 3, "Item": 2}


def stream(seed=0):
    """(place of the type, src, dst) and time, weight and attribute of each event."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, EVENTS)
    src, dst = rng.integers(0, USERS, EVENTS), rng.integers(0, ITEMS, EVENTS)
    src, dst = np.where(kind == 2, dst, src), np.where(kind == 2, src, dst)
    rows = rng.standard_normal((EVENTS, 1)).astype(np.float32)
    return kind, src, dst, np.cumsum(rng.integers(0, 3, EVENTS)), rng.uniform(0.1, 2, EVENTS).astype(np.float32), rows


def typed_graph(count, **options):
    kind, src, dst, time, weight, rows = (column[:count] for column in stream())
    rng = np.random.default_rng(1)
    x = {"User": rng.standard_normal((USERS, 3)), "Item": rng.standard_normal((ITEMS, 2))}
    names = {"User": [f"u{i}" for i in range(USERS)], "Item": [f"i{i}" for i in range(ITEMS)]}
    ends = {"src": {}, "dst": {}, "time": {}, "weight": {}, "edge_attr": {}}
    for code, triple in enumerate((BUYS, SEES, OF)):
        mine = kind == code
        ends["src"][triple] = [names[triple[0]][u] for u in src[mine]]
        ends["dst"][triple] = [names[triple[2]][v] for v in dst[mine]]
        ends["time"][triple], ends["weight"][triple], ends["edge_attr"][triple] = time[mine], weight[mine], rows[mine]
    return lg.Graph({name: each.astype(np.float32) for name, each in x.items()}, **ends, ids=names, **options)


def batches(first, size):
    kind, src, dst, time, weight, rows = stream()
    for begin in range(first, EVENTS, size):
        updates = lg.Updates()
        for i in range(begin, min(begin + size, EVENTS)):
            name = ("buys", "sees", "of")[kind[i]]
            of, to = "iu" if kind[i] == 2 else "ui"
            ends = f"{of}{src[i]}", f"{to}{dst[i]}"
            updates.add_edge(*ends, edge_type=name, time=time[i], weight=weight[i], edge_attr=rows[i])
        yield updates


def flat_graph(typed):
    """The graph without types and ids: rows are [user's x | item's x | which type], edges have integer types."""
    edges, count = typed.host.store.edges(), typed.slot_count
    x = np.zeros((count, 7), np.float32)
    for code, (name, width) in enumerate(WIDTHS.items()):
        slots = np.flatnonzero(typed.slot_types(np.arange(count)) == code)
        first = 3 * code
        x[slots, first : first + width] = typed.features(typed.to_external(slots), vertex_type=name)
        x[slots, 5 + code] = 1
    types, one_hot = edges["type"], np.eye(3, dtype=np.float32)[edges["type"]]
    rows = np.concatenate([edges["attr"], edges["weight"][:, None], one_hot], 1)
    return lg.Graph(x, edges["src"], edges["dst"], time=edges["time"], edge_type=types, edge_attr=rows)


COLUMNS = ("attr", "weight", "type")
SMALL = {"edge_width": 5, "embed_width": 8, "heads": 2, "dropout": 0.0}
MODELS = {
    "tgn": (TGN, {"memory_width": 6, "time_width": 4}, {}),
    "tgat": (TGAT, {"time_width": 4, "hop_count": 2}, {}),
    "sage": (TemporalSAGE, {"time_width": 4, "heads": None}, {}),
    "gat": (TemporalGAT, {"time_width": 4}, {}),
    "dysat": (DySAT, {"snapshot_count": 2}, {"window": 100, "snapshots": 2, "prop_time": True}),
}


def pair(name):
    """A typed model, and the same model without types."""
    kind, more, _ = MODELS[name]
    options = {key: value for key, value in {**SMALL, **more}.items() if value is not None}
    torch.manual_seed(3)
    typed = kind(x_width=WIDTHS, **options)
    flat = kind(x_width=7, **options)
    state = typed.state_dict()
    prefix = "features" if name == "tgn" else "rows.project"
    parts = [state.pop(f"{prefix}.weights.{code}.weight") for code in range(2)]
    state[f"{prefix}.weight"] = torch.cat([*parts, state.pop(f"{prefix}.bias.weight").T], 1)
    state[f"{prefix}.bias"] = torch.zeros(len(parts[0]))
    flat.load_state_dict(state)
    return typed, flat


def sampler_of(graph, model, **options):
    return lg.TemporalSampler(graph, [4] * model.hop_count, threads=1, **options)


@pytest.mark.parametrize("edge_types", [None, ["buys"], ["buys", "of"]], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_typed_engine_answers_as_one_without_types(name, edge_types):
    typed, flat = pair(name)
    graph = typed_graph(200)
    plain = flat_graph(graph)
    codes = edge_types and [["buys", "sees", "of"].index(each) for each in edge_types]
    options = MODELS[name][2]
    engine = lg.TemporalEngine(
        typed, graph, sampler_of(graph, typed, **options), edge_types=edge_types, edge_columns=COLUMNS
    )
    other = lg.TemporalEngine(flat, plain, sampler_of(plain, flat, **options), edge_types=codes)
    users, items = ["u1", "u5", "u7"], ["i0", "i3", "i0"]
    u, v = graph.to_slots(users, vertex_type="User"), graph.to_slots(items, vertex_type="Item")
    for now in (10**6, [50, 100, 300]):
        close = {"rtol": 2e-5, "atol": 2e-6}  # float32 sums of the same terms, in another order
        got, expected = engine.predict(users, items, now, edge_type="buys"), other.predict(u, v, now)
        np.testing.assert_allclose(got, expected, **close)
        got = engine.embeddings(items, now, vertex_type="Item")
        np.testing.assert_allclose(got, other.embeddings(v, now), **close)
        best = engine.next(users, now, k=3, edge_type=BUYS)
        everything = graph.to_slots(graph.vertices("Item"), vertex_type="Item")
        wanted = other.next(u, now, k=3, candidates=everything)
        np.testing.assert_allclose(best.probability, wanted.probability, **close)
        assert graph.to_slots(best.dst.reshape(-1), vertex_type="Item").tolist() == wanted.dst.reshape(-1).tolist()


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_live_answers_are_those_of_a_replay_from_scratch(name):
    model, _ = pair(name)
    live, again = typed_graph(100), typed_graph(100)
    options = {"edge_types": ["buys"], "edge_columns": COLUMNS, "memory_step": 7}
    engine = lg.TemporalEngine(model, live, sampler_of(live, model), **options)
    for updates in batches(100, 30):
        engine.apply(updates)
    replayed = lg.TemporalEngine(model, again, sampler_of(again, model), **options)
    for updates in batches(100, 30):
        replayed.apply(updates)
    asked = (["u1", "u2"], ["i1", "i2"], 10**6)
    assert engine.state_digest() == replayed.state_digest()
    assert engine.predict(*asked).tolist() == replayed.predict(*asked).tolist()  # "buys" is the only type of events


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_a_typed_training_scores_the_events_of_one_without_types(name):
    """Events of one type, so that both draw the same negatives. Weights stay, so that losses are equal to rounding."""
    typed, flat = pair(name)
    graph = typed_graph(200)
    plain = flat_graph(graph)
    options = {"batch_size": 20, "epochs": 2, "learning_rate": 0.0}
    with (
        lg.ContinuousTrainer(
            typed, graph, sampler_of(graph, typed), edge_types=["buys"], edge_columns=COLUMNS, **options
        ) as one,
        lg.ContinuousTrainer(flat, plain, sampler_of(plain, flat), edge_types=[0], **options) as other,
    ):
        one.fit(validation=0.2)
        other.fit(validation=0.2)
    for got, expected in zip(one.report.epochs, other.report.epochs, strict=True):
        assert got.events == expected.events > 0
        assert got.loss == pytest.approx(expected.loss, rel=1e-5)


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_a_killed_typed_training_goes_on_with_the_same_numbers(name, tmp_path):
    def trainer(graph, folder):
        model, _ = pair(name)
        options = {"edge_types": ["buys", "of"], "edge_columns": COLUMNS, "replay": 0.5, "batch_size": 20}
        caches = {kind: FeatureCache(graph, vertex_type=kind, capacity=5) for kind in WIDTHS}
        sampler = sampler_of(graph, model, strategy="uniform")
        return lg.ContinuousTrainer(model, graph, sampler, vertex_features=caches, epochs=1, folder=folder, **options)

    whole = trainer(typed_graph(150), tmp_path / "whole")
    whole.fit()
    list(whole.run(batches(150, 50)))
    first = trainer(typed_graph(150), tmp_path / "cut")
    first.fit()
    next(first.run(batches(150, 50)))
    first.close()
    second = trainer(typed_graph(150), tmp_path / "cut")
    list(second.run(batches(150, 50)))
    same_numbers(second.report, whole.report)
    same_tensors(weights(second.model), weights(whole.model))
    if second.model.memory is not None:
        same_tensors(second.model.memory.state(), whole.model.memory.state())


def test_negatives_are_of_the_destinations_type():
    negatives = Negatives()
    negatives.add(np.array([3, 4, 5]), np.array([0, 0, 1]))
    negatives.add(np.array([9, 5]), np.array([1, 1]))
    types = np.array([0, 1] * 200)
    drawn = negatives.draw(400, np.random.default_rng(0), types)
    assert set(drawn[types == 0].tolist()) == {3, 4}
    assert set(drawn[types == 1].tolist()) == {5, 9}
    negatives.drop(np.array([4, 9]))
    drawn = negatives.draw(400, np.random.default_rng(0), types)
    assert (set(drawn[types == 0].tolist()), set(drawn[types == 1].tolist())) == ({3}, {5})


def test_inputs_with_one_cache_a_type_are_the_graphs():
    graph = typed_graph(250)
    caches = {name: FeatureCache(graph, vertex_type=name, capacity=3) for name in WIDTHS}
    sampler = lg.TemporalSampler(graph, [5, 5])
    slots, times = np.array([1, 13, 2]), np.array([100, 10**6, 150])
    plain = InputLoader(graph, sampler, edge_columns=COLUMNS)
    (expected,) = plain.load(slots, times)
    for _ in range(3):
        (got,) = InputLoader(graph, sampler, edge_columns=COLUMNS, vertex_features=caches).load(slots, times)
        assert torch.equal(got.x, expected.x)
        assert torch.equal(got.types, expected.types)
    assert expected.hops[0].edge_x.shape[1] == 5


def test_what_does_not_fit_a_typed_graph_is_refused():
    graph = typed_graph(50)
    sampler = lg.TemporalSampler(graph, [4])
    with pytest.raises(WidthMismatch, match=r"x_width= that of graph\.feature_widths"):
        lg.TemporalEngine(TGN(x_width=3, edge_width=1), graph, sampler)
    with pytest.raises(WidthMismatch, match=r"got .* and 5"):
        lg.TemporalEngine(TGN(x_width=WIDTHS, edge_width=1), graph, sampler, edge_columns=COLUMNS)
    with pytest.raises(ValueInvalid, match="edge_columns among attr, weight, type"):
        InputLoader(graph, sampler, edge_columns="attr")
    with pytest.raises(UsageError, match="for each of the types"):
        InputLoader(graph, sampler, vertex_features={"User": FeatureCache(graph, vertex_type="User")})
    with pytest.raises(ColumnMissing, match="weights"):
        InputLoader(
            plain := lg.Graph(np.eye(2), [0], [1], time=[1]), lg.TemporalSampler(plain, [1]), edge_columns=["weight"]
        )
    model, _ = pair("tgat")
    engine = lg.TemporalEngine(model, graph, sampler_of(graph, model), edge_columns=COLUMNS)
    with pytest.raises(ColumnMissing, match="edge_type="):
        engine.predict(["u1"], ["i1"], 10)
    flat = flat_graph(graph)
    inputs = InputLoader(flat, lg.TemporalSampler(flat, [4, 4])).load(np.array([0]), np.array([5]))
    with pytest.raises(ModelMismatch, match="with vertex types"):
        model.embed(inputs)
    trainer = lg.ContinuousTrainer(
        model, graph, sampler_of(graph, model), edge_columns=COLUMNS, edge_types=["buys"], epochs=1
    )
    with pytest.raises(UsageError, match="trainer's edge_types"):
        trainer.publish_to(engine)


def test_a_typed_model_is_built_from_its_config():
    model, _ = pair("tgn")
    assert model.config["x_width"] == WIDTHS
    assert build(model.config).state_dict().keys() == model.state_dict().keys()
    with pytest.raises(ValueInvalid, match=r"x_width\['User'\] of 0 or more"):
        TGN(x_width={"User": -1})


class Hetero(torch.nn.Module):
    def __init__(self, edge_dim=None):
        super().__init__()
        widths = {triple: (WIDTHS[triple[0]], WIDTHS[triple[2]]) for triple in (BUYS, SEES, OF)}
        layer = (lambda w: pyg.GATConv(w, 4, edge_dim=edge_dim, add_self_loops=False)) if edge_dim else None
        make = layer or (lambda w: pyg.SAGEConv(w, 4))
        self.conv = pyg.HeteroConv({triple: make(w) for triple, w in widths.items()})

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)


class HeteroColumns(Hetero):
    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        return self.conv(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)


@pytest.mark.parametrize("columns", [(), ("attr", "weight")])
def test_a_hetero_module_reads_the_whole_past(columns):
    """All edges before a moment, so that the module's rows are those of PyG on the graph as it was then."""
    torch.manual_seed(0)
    graph, module = typed_graph(250), (HeteroColumns(2) if columns else Hetero()).eval()
    given = {"x_width": graph.feature_widths, "edge_types": graph.edge_types}
    model = StaticLinks(module, hop_count=1, out_width=4, edge_width=len(columns), **given)
    engine = lg.TemporalEngine(model, graph, lg.TemporalSampler(graph, [-1]), edge_columns=columns)
    edges, slots = graph.host.store.edges(), np.arange(graph.slot_count)
    moment = int(np.quantile(edges["time"], 0.7))
    types = graph.slot_types(slots)
    place = np.where(types == 0, slots, slots - USERS)
    arguments = [{name: torch.from_numpy(graph.features(vertex_type=name)) for name in WIDTHS}, {}, {}]
    for code, triple in enumerate((BUYS, SEES, OF)):
        mine = (edges["type"] == code) & (edges["time"] < moment)
        arguments[1][triple] = torch.from_numpy(np.stack([place[edges["src"][mine]], place[edges["dst"][mine]]]))
        rows = np.concatenate([edges["attr"][mine], edges["weight"][mine][:, None]], 1)
        arguments[2][triple] = torch.from_numpy(rows)
    with torch.no_grad():
        expected = module(*arguments[: 3 if columns else 2])
    for name in WIDTHS:
        got = engine.embeddings(graph.vertices(name), moment, vertex_type=name)
        np.testing.assert_allclose(got, expected[name].numpy(), rtol=1e-5, atol=1e-6)


def test_a_trained_hetero_module_goes_to_the_exact_engine():
    torch.manual_seed(0)
    graph = typed_graph(250)
    widths = {"x_width": graph.feature_widths, "edge_types": graph.edge_types}
    model = StaticLinks(Hetero(), hop_count=1, out_width=4, **widths)
    engine = lg.Engine(lg.from_pyg(Hetero()), graph)
    sampler = lg.TemporalSampler(graph, [5])
    with lg.ContinuousTrainer(model, graph, sampler, edge_types=["buys"], edge_columns=(), epochs=1) as trainer:
        trainer.fit()
        trainer.publish_to(engine)
        assert engine.state_digest() == lg.Engine(lg.from_pyg(model.module.eval()), graph).state_digest()
    with pytest.raises(UsageError, match="edge_types= together"):
        StaticLinks(Hetero(), hop_count=1, out_width=4, x_width=WIDTHS)
