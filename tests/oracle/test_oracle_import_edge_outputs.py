"""Modules whose result is one row per edge: equal to the module in float64, and live over random streams."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.testing import check_edges, graph_columns, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.edge_results import CASES, Scored, Several, Updating, gat, gine
from tests.oracle.pyg_oracle import liven


def imported(make, **options):
    torch.manual_seed(0)
    module = liven(make(), 1)
    return module, lg.from_pyg(module, **options)


def by_module(module, mirror, model, weighted, dtype=torch.float64):
    """The module's own rows of the mirror's edges, in order of ids."""
    features, src, dst, weight, _ = mirror.arrays()
    attributes, types = mirror.columns()
    twin = copy.deepcopy(module).to(dtype).eval()
    given = [torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))]
    given += [torch.tensor(weight, dtype=dtype)] if weighted else []
    given += [] if attributes is None else [torch.tensor(attributes, dtype=dtype)]
    given += [] if types is None else [torch.tensor(types).long()]
    with torch.no_grad():
        return twin(*given)


def followed(module, model, seed, weighted=False, **options):
    """An engine over a random stream, compared with the module after each batch by rows of edges."""
    rng = np.random.default_rng(seed)
    graph, mirror = random_graph(rng, model.input_width, weighted, vertices=16, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1, **options)
    for batch, size in enumerate((0, 1, 4, 12, 30)):
        listed = engine.apply(random_batch(rng, mirror, size)).edges["id"]
        assert {*listed.tolist()} <= {*mirror.edges}
        check_edges(engine, mirror, f"version {batch + 1}")
        truth, plain = (by_module(module, mirror, model, weighted, d) for d in (torch.float64, torch.float32))
        got = engine.edge_outputs(sorted(mirror.edges))
        rows = [each.reshape(len(got), -1).numpy() for each in (truth, plain)]
        check_rows(got, *rows, f"version {batch + 1}", on_edges=True)
    return engine


@pytest.mark.parametrize("name", CASES)
def test_follows_a_stream(name):
    module, model = imported(CASES[name])
    assert model.edge_output is not None
    variants = {"none": [False], "optional": [False, True], "required": [True]}[model.weights]
    assert (model.weights == "none") != name.startswith("weights")
    for weighted in variants:
        followed(module, model, len(name), weighted)


@pytest.mark.parametrize("mode", [{"mode": "on_demand"}, {"state": "compact"}, {"strategy": "khop"}])
def test_other_engines(mode):
    module, model = imported(CASES["gine"])
    followed(module, model, 3, **mode)


def test_one_row_is_kept_where_both_ends_and_all_updates_read_it():
    _, model = imported(CASES["gine"])
    assert model.output_width == 16  # 8 of each layer, which classifier and update share; not 8 or 6 for each reader


def test_several_results():
    module, model = imported(Several, outputs=["kinds", "amount"])
    assert dict(model.outputs) == {"kinds": (0, 2), "amount": (2, 3)}
    rng = np.random.default_rng(0)
    graph, mirror = random_graph(rng, 4, False, vertices=12)
    engine = lg.Engine(model, graph)
    engine.apply(random_batch(rng, mirror, 5))
    want = by_module(module, mirror, model, False)
    for name in ("kinds", "amount"):
        got = engine.edge_outputs(engine.graph.edges(), output=name)
        np.testing.assert_allclose(got, want[name].numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(lg.errors.ModelMismatch, match="one of kinds, amount, got 'rows'"):
        engine.edge_outputs([(0, 1)], output="rows")
    again = lg.Model.from_arrays(*model.to_arrays())
    assert dict(again.outputs) == dict(model.outputs)


def test_which_of_several_results():
    assert imported(Several, outputs="amount")[1].edge_output.width == 1
    assert imported(Several, outputs="rows")[1].edge_output is None
    assert dict(imported(Several, outputs="all")[1].outputs) == {"rows": (0, 5)}  # of vertices, where there are any
    with pytest.raises(
        lg.errors.ModelUnsupported, match=r"'kinds': one row per edge of 2 columns.*; pass outputs='rows' or"
    ):
        imported(Several)
    with pytest.raises(lg.errors.ModelUnsupported, match="a model keeps one kind; import it twice"):
        imported(Several, outputs=["rows", "kinds"])


class Attributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.lin = pyg.GINEConv(nn.Linear(4, 4), edge_dim=3), nn.Linear(3, 2)

    def forward(self, x, edge_index, edge_attr):
        self.conv(x, edge_index, edge_attr)
        return self.lin(edge_attr)


def test_what_is_no_function_of_the_graph():
    with pytest.raises(
        lg.errors.ModelUnsupported, match="it returns rows of edges that are computed from edge_attr alone"
    ):
        imported(Attributes)


def picked(net, z, u, v, edge_index):
    return z[edge_index[:, :3].T].flatten(1)


def mixed(net, z, u, v, edge_index):
    return u + z


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (picked, "it picks single edges"),
        (mixed, "it joins rows of vertices and of edges; bring the rows of vertices to the edges first"),
        (lambda net, z, u, v, e: u - u.mean(0), "it reduces over all"),
    ],
)
def test_refused(score, reason):
    with pytest.raises((lg.errors.ModelUnsupported, lg.errors.ModelError), match=reason):
        imported(lambda: Scored(score))


TO = ("a", "to", "a")


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.HeteroConv({TO: pyg.SAGEConv(4, 6)})

    def forward(self, x_dict, edge_index_dict):
        ends = edge_index_dict[TO]
        return self.conv(x_dict, edge_index_dict)["a"][ends[0]]


def test_vertices_that_have_types():
    with pytest.raises(lg.errors.ModelUnsupported, match="not supported where vertices have types; import the part"):
        imported(Typed)


def test_a_wrong_reading_of_edges_is_found(monkeypatch):
    from livegnn.models.pyg.functions import ends

    monkeypatch.setattr(ends, "Source", ends.Target)
    with pytest.raises(lg.errors.ModelMismatch, match=r"at edge \d+, column"):
        imported(lambda: Scored(lambda net, z, u, v, e: u - 2 * v))


def test_loops_of_attention_take_the_mean_of_computed_attributes():
    class Rows(Updating):
        def forward(self, x, edge_index, edge_attr):
            return self.layers[0](self.vertex(x), edge_index, self.edge(edge_attr))

    for fill in ("mean", "add", 0.5):
        module, model = imported(lambda fill=fill: Rows(lambda width: gat(width, fill_value=fill)))
        assert model.edge_output is None
        rng = np.random.default_rng(1)
        graph, mirror = random_graph(rng, 4, False, vertices=12, **graph_columns(model))
        engine = lg.Engine(model, graph)
        for _ in range(3):
            engine.apply(random_batch(rng, mirror, 6))
            live = mirror.arrays()[-1]
            want = by_module(module, mirror, model, False).numpy()[live]
            np.testing.assert_allclose(engine.embeddings(live), want, rtol=1e-4, atol=1e-5)
        engine.verify()


def test_saved(tmp_path):
    module, model = imported(lambda: Updating(gine))
    engine = followed(module, model, 5)
    engine.save(tmp_path / "engine.lg")
    again = lg.Engine.load(tmp_path / "engine.lg")
    edges = engine.graph.edges()
    assert again.edge_outputs(edges).tobytes() == engine.edge_outputs(edges).tobytes()
