"""lg.pyg's loaders against brute force on the mirrored graph: the Data of Graph.to_pyg."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.sampler import NegativeSampling

import livegnn as lg
from livegnn.errors import ColumnMissing, UsageError, VertexUnknown
from tests.unit.pyg import graphs

KINDS = graphs.kinds()
COLUMNS = ("edge_weight", "edge_attr", "edge_time", "edge_type")
each_kind = pytest.mark.parametrize(("name", "graph"), KINDS, ids=[name for name, _ in KINDS])


class Mirror:
    """Edges by their target, of a Data or HeteroData: (source, edge id) -> columns, all by index."""

    def __init__(self, data: Any) -> None:
        self.typed = hasattr(data, "edge_types")
        self.types = data.node_types if self.typed else [None]
        self.triples = data.edge_types if self.typed else [None]
        self.part = lambda key: data if key is None else data[key]
        self.into: dict[Any, dict[int, dict[tuple[int, int], dict[str, Any]]]] = {}
        for triple in self.triples:
            part, found = self.part(triple), self.into.setdefault(triple, {})
            for row, (u, v, e) in enumerate(self.edges(part, triple, data)):
                found.setdefault(v, {})[u, e] = {name: part[name][row].tolist() for name in COLUMNS if name in part}

    def edges(self, part: Any, triple: Any, data: Any) -> list[tuple[int, int, int]]:
        src, dst = (None, None) if triple is None else (triple[0], triple[2])
        sources = (data if src is None else data[src]).n_id[part.edge_index[0]]
        targets = (data if dst is None else data[dst]).n_id[part.edge_index[1]]
        return list(zip(sources.tolist(), targets.tolist(), part.e_id.tolist(), strict=True))

    def vertices(self, name: Any) -> list[int]:
        found: list[int] = self.part(name).n_id.tolist()
        return found


def seeds_of(mirror: Mirror) -> Any:
    """Every third vertex, of the first type where there are types."""
    name = mirror.types[0]
    ids = torch.tensor(mirror.vertices(name)[::3])
    return ids if name is None else (name, ids)


def check_batch(mirror: Mirror, batch: Any, fanouts: list[int], *, most: Any = min) -> None:
    """Each row that a hop expands has min(fan-out, in-degree) edges of the mirror, by type; and no others."""
    levels = {}
    for name in mirror.types:
        sizes = (batch if name is None else batch[name]).num_sampled_nodes
        levels[name] = np.repeat(np.arange(len(sizes)), sizes)
    drawn = {
        triple: mirror.edges(batch if triple is None else batch[triple], triple, batch) for triple in mirror.triples
    }
    for triple, edges in drawn.items():
        part, target = (batch, None) if triple is None else (batch[triple], triple[2])
        known = mirror.into[triple]
        for row, (u, v, e) in enumerate(edges):
            assert {name: part[name][row].tolist() for name in COLUMNS if name in part} == known[v][u, e]
        assert len(set(edges)) == len(edges)
        per_row = np.bincount(part.edge_index[1], minlength=len(levels[target]))
        names = (batch if target is None else batch[target]).n_id.tolist()
        for row, level in enumerate(levels[target].tolist()):
            degree = len(known.get(names[row], {}))
            fanout = fanouts[level] if level < len(fanouts) else 0
            assert per_row[row] == (degree if fanout < 0 else min(fanout, degree))
        hop_of_edge = levels[target][part.edge_index[1].numpy()]
        assert part.num_sampled_edges == np.bincount(hop_of_edge, minlength=len(fanouts)).tolist()
        assert (np.diff(hop_of_edge) >= 0).all()  # as trim_to_layer takes them
    for name in mirror.types:
        part = batch if name is None else batch[name]
        assert len(set(part.n_id.tolist())) == part.num_nodes
        mine = mirror.vertices(name)
        np.testing.assert_array_equal(part.x, mirror.part(name).x[[mine.index(v) for v in part.n_id.tolist()]])


@each_kind
@pytest.mark.parametrize("fanouts", [[-1, -1], [2, 3], [1, 0, 2]])
def test_a_batch_holds_what_its_hops_draw(name: str, graph: lg.Graph, fanouts: list[int]) -> None:
    mirror = Mirror(graph.to_pyg())
    seeds = seeds_of(mirror)
    loader = lg.pyg.neighbor_loader(graph, fanouts, seeds, batch_size=3, seed=5)
    found = []
    for batch in loader:
        check_batch(mirror, batch, fanouts)
        part = batch if mirror.types[0] is None else batch[mirror.types[0]]
        found += part.n_id[: part.batch_size].tolist()
        assert batch.version == graph.version
    assert found == (seeds if mirror.types[0] is None else seeds[1]).tolist()


@each_kind
def test_draws_are_a_function_of_version_seed_and_call(name: str, graph: lg.Graph) -> None:
    seeds = seeds_of(Mirror(graph.to_pyg()))

    def edges(seed: int, threads: int = 1) -> list[list[int]]:
        torch.rand(1)  # torch's own generator is of no meaning
        loader = lg.pyg.neighbor_loader(graph, [2, 2], seeds, batch_size=4, seed=seed, threads=threads)
        return [torch.cat([part.e_id for part in batch.edge_stores]).tolist() for batch in (*loader, *loader)]

    first = edges(1)
    assert first == edges(1, threads=2)
    assert first != edges(2)
    assert first[: len(first) // 2] != first[len(first) // 2 :]  # an epoch draws anew


@each_kind
def test_a_pin_gives_the_batches_of_a_copy(name: str, graph: lg.Graph) -> None:
    graph = lg.Graph.from_arrays(graph.to_arrays())
    copied = lg.Graph.from_arrays(graph.to_arrays())
    seeds = seeds_of(Mirror(graph.to_pyg()))
    with lg.pyg.pin(graph) as pinned:
        version = graph.version
        loader = iter(lg.pyg.neighbor_loader(pinned, [2, -1], seeds, batch_size=2, seed=3))
        others = lg.pyg.neighbor_loader(copied, [2, -1], seeds, batch_size=2, seed=3)
        for number, expected in enumerate(others):
            graphs.change(graph, 100 + number)
            got = next(loader)
            assert got.version == pinned.version == version
            for mine, other in zip(got.stores, expected.stores, strict=True):
                assert set(mine.keys()) == set(other.keys())
                for key in set(mine.keys()) - {"version"}:
                    assert same(mine[key], other[key]), key
        for triple in graph.edge_types or (None,):
            edges = [lg.pyg.graph_store(each).get_edge_index(triple, "coo") for each in (pinned, copied)]
            assert torch.equal(torch.stack(edges[0]), torch.stack(edges[1]))
    assert graph.version > version
    with pytest.raises(UsageError, match="inside its with block"):
        lg.pyg.sampler(pinned, [1])


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@each_kind
def test_induced_batches_hold_all_edges_between_their_vertices(name: str, graph: lg.Graph) -> None:
    mirror = Mirror(graph.to_pyg())
    loader = lg.pyg.neighbor_loader(graph, [2], seeds_of(mirror), batch_size=4, subgraph_type="induced")
    for batch in loader:
        inside = {kind: set((batch if kind is None else batch[kind]).n_id.tolist()) for kind in mirror.types}
        for triple, known in mirror.into.items():
            src, dst = (None, None) if triple is None else (triple[0], triple[2])
            expected = [
                (u, v, e) for v, edges in known.items() for u, e in edges if v in inside[dst] and u in inside[src]
            ]
            assert sorted(mirror.edges(batch if triple is None else batch[triple], triple, batch)) == sorted(expected)


@each_kind
def test_disjoint_batches_hold_a_subgraph_for_each_seed(name: str, graph: lg.Graph) -> None:
    mirror = Mirror(graph.to_pyg())
    seeds = seeds_of(mirror)
    kind = mirror.types[0]
    batch = next(iter(lg.pyg.neighbor_loader(graph, [-1, -1], seeds, batch_size=3, disjoint=True)))
    for number in range(3):
        one = seeds[number : number + 1] if kind is None else (kind, seeds[1][number : number + 1])
        alone = next(iter(lg.pyg.neighbor_loader(graph, [-1, -1], one)))
        for name_of in mirror.types:
            part = batch if name_of is None else batch[name_of]
            expected = (alone if name_of is None else alone[name_of]).n_id
            assert sorted(part.n_id[part.batch == number].tolist()) == sorted(expected.tolist())
        for triple in mirror.triples:
            part, src = (batch, batch) if triple is None else (batch[triple], batch[triple[0]])
            mine = part.e_id[src.batch[part.edge_index[0]] == number]
            expected = (alone if triple is None else alone[triple]).e_id
            assert sorted(mine.tolist()) == sorted(expected.tolist())


@pytest.mark.parametrize(("strategy", "fanout"), [("uniform", -1), ("uniform", 2), ("last", 2)])
@pytest.mark.parametrize("kind", ["columns", "typed columns", "names"])
def test_seeds_with_times_see_their_past_alone(kind: str, strategy: Any, fanout: int) -> None:
    graph = dict(KINDS)[kind]
    mirror = Mirror(graph.to_pyg())
    seeds = seeds_of(mirror)
    ids = seeds if mirror.types[0] is None else seeds[1]
    times = torch.arange(len(ids)) * 7
    loader = lg.pyg.neighbor_loader(
        graph, [fanout, fanout], seeds, input_time=times, batch_size=len(ids), temporal_strategy=strategy
    )
    batch = next(iter(loader))
    for triple in mirror.triples:
        part, target = (batch, batch) if triple is None else (batch[triple], batch[triple[2]])
        limits = times[target.batch[part.edge_index[1]]]
        assert (part.edge_time <= limits).all()
        for row in range(min(len(target.n_id), (target.batch_size if "batch_size" in target else 0))):
            known = mirror.into[triple].get(int(target.n_id[row]), {})
            past = sorted((each["edge_time"], e) for (_, e), each in known.items() if each["edge_time"] <= times[row])
            mine = part.e_id[part.edge_index[1] == row].tolist()
            assert len(mine) == (len(past) if fanout < 0 else min(fanout, len(past)))
            if strategy == "last" or fanout < 0:
                assert sorted(mine) == sorted(e for _, e in (past if fanout < 0 else past[-fanout:]))


class Hetero(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [(graphs.TYPES, 5), (dict.fromkeys(graphs.TYPES, 5), 2)]
        triples = (graphs.BUYS, graphs.OF, graphs.FOLLOWS)
        self.convs = torch.nn.ModuleList(
            HeteroConv({key: SAGEConv((width[key[0]], width[key[2]]), out) for key in triples}) for width, out in layers
        )

    def forward(self, x: Any, edge_index: Any) -> Any:
        for conv in self.convs:
            x = {name: rows.tanh() for name, rows in conv(x, edge_index).items()}
        return x


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(4, 5), SAGEConv(5, 2)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


@each_kind
def test_whole_neighbourhoods_give_the_rows_of_the_whole_graph(name: str, graph: lg.Graph) -> None:
    torch.manual_seed(0)
    data, typed = graph.to_pyg(), graph.vertex_types is not None
    module = (Hetero() if typed else Plain()).double().eval()
    mirror = Mirror(data)
    loader = lg.pyg.neighbor_loader(graph, [-1, -1], seeds_of(mirror), batch_size=5)
    with torch.no_grad():
        whole = run(module, data, typed)
        for batch in loader:
            part = batch[mirror.types[0]] if typed else batch
            rows = [mirror.vertices(mirror.types[0]).index(v) for v in part.n_id[: part.batch_size].tolist()]
            torch.testing.assert_close(run(module, batch, typed)[: part.batch_size], whole[rows])


def run(module: Any, data: Any, typed: bool) -> torch.Tensor:
    if not typed:
        return module(data.x.double(), data.edge_index)
    return module({name: x.double() for name, x in data.x_dict.items()}, data.edge_index_dict)["user"]


# ---- links


@each_kind
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_links_and_negative_ones_stand_in_their_batch(name: str, graph: lg.Graph, mode: str | None) -> None:
    mirror = Mirror(graph.to_pyg())
    triple = mirror.triples[0]
    part = mirror.part(triple)
    src, dst = (None, None) if triple is None else (triple[0], triple[2])
    neg = None if mode is None else NegativeSampling(mode, 2)
    loader = lg.pyg.link_neighbor_loader(graph, [2, 2], triple, batch_size=16, neg_sampling=neg, seed=4)
    links, again = [], iter(loader)
    for batch in loader:
        check_batch(mirror, batch, [2, 2])
        ends = [(batch if kind is None else batch[kind]).n_id for kind in (src, dst)]
        if mode == "triplet":
            first, last = (batch, batch) if triple is None else (batch[src], batch[dst])
            links += list(zip(ends[0][first.src_index].tolist(), ends[1][last.dst_pos_index].tolist(), strict=True))
            assert last.dst_neg_index.shape == (len(first.src_index), 2)
            continue
        mine = batch if triple is None else batch[triple]
        pairs = torch.stack([ends[0][mine.edge_label_index[0]], ends[1][mine.edge_label_index[1]]]).T.tolist()
        count = len(mine.input_id)
        links += [tuple(pair) for pair in pairs[:count]]
        assert len(pairs) == (count if mode is None else 3 * count)
        if mode is not None:
            assert mine.edge_label.tolist() == [1.0] * count + [0.0] * 2 * count
    expected = {(u, v, e) for u, v, e in mirror.edges(part, triple, mirror_data(mirror))}
    assert sorted(links) == sorted((u, v) for u, v, _ in expected)
    batch = next(again)  # another call draws anew, a new loader draws again
    if mode is not None:
        repeated = lg.pyg.link_neighbor_loader(graph, [2, 2], triple, batch_size=16, neg_sampling=neg, seed=4)
        torch.manual_seed(99)
        got = next(iter(repeated))
        restarted = lg.pyg.link_neighbor_loader(graph, [2, 2], triple, batch_size=16, neg_sampling=neg, seed=4)
        for mine, other in zip(got.stores, next(iter(restarted)).stores, strict=True):
            assert all(same(mine[key], other[key]) for key in set(mine.keys()))


def mirror_data(mirror: Mirror) -> Any:
    class Parts:
        n_id = mirror.part(None).n_id if not mirror.typed else None

        def __getitem__(self, key: Any) -> Any:
            return mirror.part(key)

    return Parts()


def test_links_with_times_are_disjoint() -> None:
    graph = dict(KINDS)["columns"]
    edges = graph.edges()
    pairs, times = np.stack([edges["src"], edges["dst"]])[:, :8], edges["time"][:8]
    loader = lg.pyg.link_neighbor_loader(graph, [-1], pairs, edge_label_time=times, batch_size=8, neg_sampling="binary")
    batch = next(iter(loader))
    assert (batch.edge_time <= torch.from_numpy(times)[batch.batch[batch.edge_index[1]]]).all()
    assert (batch.batch[batch.edge_index[0]] == batch.batch[batch.edge_index[1]]).all()


# ---- PyG's own loaders over the stores


def test_pygs_loaders_take_stores_and_sampler() -> None:
    graph = dict(KINDS)["numbers"]
    mirror = Mirror(graph.to_pyg())
    stores = lg.pyg.feature_store(graph), lg.pyg.graph_store(graph)
    seeds = seeds_of(mirror)
    ours = lg.pyg.neighbor_loader(graph, [2, 2], seeds, batch_size=4, seed=2)
    theirs = NodeLoader(stores, lg.pyg.sampler(graph, [2, 2], seed=2), seeds, batch_size=4)
    for mine, other in zip(ours, theirs, strict=True):
        for key in ("x", "n_id", "e_id", "edge_index"):
            assert torch.equal(mine[key], other[key])
    pairs = torch.stack(stores[1].get_edge_index(None, "coo"))
    links = LinkLoader(stores, lg.pyg.sampler(graph, [2]), (None, pairs), batch_size=8, neg_sampling="binary")
    assert sum(len(batch.input_id) for batch in links) == pairs.shape[1]


def test_pygs_loaders_take_stores_of_types() -> None:
    graph = graphs.typed(9)
    stores = lg.pyg.feature_store(graph), lg.pyg.graph_store(graph)
    batches = list(
        NodeLoader(stores, lg.pyg.sampler(graph, {graphs.BUYS: [2], graphs.OF: [1], graphs.FOLLOWS: [0]}), "user")
    )
    assert [int(batch["user"].n_id[0]) for batch in batches] == list(range(12))
    assert all(batch[graphs.FOLLOWS].edge_index.shape == (2, 0) for batch in batches)
    links = LinkLoader(stores, lg.pyg.sampler(graph, [1]), graphs.BUYS, batch_size=40)
    assert next(iter(links))[graphs.BUYS].edge_label_index.shape == (2, 40)


def test_stores_give_rows_and_edges_of_now() -> None:
    graph = graphs.typed(3, ids="names")
    features, edges = lg.pyg.feature_store(graph), lg.pyg.graph_store(graph)
    graphs.change(graph, 4)
    slots = graph.to_slots(graph.vertices("user")[:2], vertex_type="user")
    assert torch.equal(
        features["user", "x", torch.from_numpy(slots)], torch.from_numpy(graph.features(vertex_type="user")[:2])
    )
    assert torch.equal(features["user", "x", None], torch.from_numpy(graph.features(vertex_type="user")))
    row, column, _ = edges.csc()
    assert int(column[graphs.BUYS][-1]) == len(row[graphs.BUYS]) == int((graph.edges()["type"] == 0).sum())
    for write in (
        lambda: features.put_tensor(torch.ones(1, 3), group_name="user", attr_name="x", index=None),
        lambda: features.remove_tensor(group_name="user", attr_name="x", index=None),
        lambda: edges.put_edge_index((row, column), graphs.BUYS, "coo"),
        lambda: edges.remove_edge_index(graphs.BUYS, "coo"),
    ):
        with pytest.raises(UsageError, match=r"apply updates: updates\."):
            write()
    with pytest.raises(KeyError):
        edges.get_edge_index(("user", "no", "item"), "coo")


def test_refusals() -> None:
    graph, typed = graphs.plain(1), graphs.typed(1)
    with pytest.raises(UsageError, match="num_workers=0"):
        lg.pyg.neighbor_loader(graph, [1], num_workers=2)
    with pytest.raises(VertexUnknown):
        next(iter(lg.pyg.neighbor_loader(graph, [1], [99])))
    with pytest.raises(ColumnMissing, match="whose edges have times"):
        next(iter(lg.pyg.neighbor_loader(graph, [1], [0], input_time=[3])))
    with pytest.raises(ColumnMissing, match="name a vertex type"):
        lg.pyg.neighbor_loader(typed, [1], [0])
    with pytest.raises(ColumnMissing, match="name an edge type"):
        lg.pyg.link_neighbor_loader(typed, [1], ([0], [0]))
    with pytest.raises(lg.errors.ValueInvalid, match="num_neighbors"):
        lg.pyg.sampler(typed, {graphs.BUYS: [1]})
    with pytest.raises(lg.errors.ValueInvalid, match="fan-outs from 0"):
        lg.pyg.sampler(graph, [-2])
    with pytest.raises(lg.errors.ValueInvalid, match="subgraph_type"):
        lg.pyg.sampler(graph, [1], subgraph_type="bidirectional")
    with pytest.raises(UsageError, match=r"livegnn\.Graph"):
        lg.pyg.sampler(graph.to_pyg(), [1])
    with pytest.raises(UsageError, match="mask of the 24"):
        lg.pyg.neighbor_loader(graph, [1], torch.ones(3, dtype=torch.bool))
    stores = lg.pyg.feature_store(graph), lg.pyg.graph_store(graph)
    with pytest.raises(UsageError, match="num_workers=0"):
        list(NodeLoader(stores, lg.pyg.sampler(graph, [1]), torch.arange(4), num_workers=1))


def test_a_mask_and_strings_name_vertices() -> None:
    graph = dict(KINDS)["names"]
    mask = torch.zeros(graph.vertex_count, dtype=torch.bool)
    mask[2:5] = True
    batch = next(iter(lg.pyg.neighbor_loader(graph, [1], mask, batch_size=3)))
    assert graph.to_external(batch.n_id[:3].numpy()).tolist() == graph.vertices()[2:5].tolist()
    batch = next(iter(lg.pyg.neighbor_loader(graph, [1], graph.vertices()[2:5].tolist(), batch_size=3)))
    assert graph.to_external(batch.n_id[:3].numpy()).tolist() == graph.vertices()[2:5].tolist()


def test_a_transform_sees_the_whole_batch() -> None:
    graph = dict(KINDS)["columns"]
    seen = []
    loader = lg.pyg.neighbor_loader(
        graph, [2], batch_size=30, transform=lambda batch: seen.append(batch.edge_attr) or 7
    )
    assert list(loader) == [7]
    assert seen[0].shape[1] == 2


def test_batches_are_of_one_version_while_another_thread_writes() -> None:
    """Each batch that is applied writes its version into every feature and into every edge attribute that it adds."""
    graph = lg.Graph(np.zeros((20, 1), np.float32), [0], [1], edge_attr=np.zeros((1, 1), np.float32))
    ends, stop = np.arange(20), threading.Event()

    def write() -> None:
        while not stop.is_set():
            version, updates = graph.version + 1, lg.Updates()
            updates.set_features(ends, np.full((20, 1), version, np.float32))
            updates.remove_edges(*(graph.edges()[end] for end in ("src", "dst")))
            updates.add_edges(ends, np.roll(ends, version), edge_attr=np.full((20, 1), version, np.float32))
            graph.apply(updates)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while graph.version < 2:
            pass
        for _ in range(20):
            for batch in lg.pyg.neighbor_loader(graph, [-1, -1], batch_size=7):
                assert set(batch.x.flatten().tolist()) == {batch.version}
                assert set(batch.edge_attr.flatten().tolist()) == {batch.version}
    finally:
        stop.set()
        thread.join()


def test_edges_in_files_are_refused(tmp_path: Any) -> None:
    graph = graphs.plain(1, columns=("time",))
    graph.offload(25, tmp_path / "old.parquet")
    with pytest.raises(lg.errors.EdgeOffloaded):
        list(lg.pyg.neighbor_loader(graph, [2]))
    with pytest.raises(lg.errors.EdgeOffloaded):
        lg.pyg.graph_store(graph).get_edge_index(None, "coo")


def test_a_transform_of_the_sample_may_drop_and_move_edges() -> None:
    graph = dict(KINDS)["columns"]

    def half(out: Any) -> Any:
        chosen = torch.arange(len(out.row)).flip(0)[::2]
        out = copy.copy(out)
        out.row, out.col, out.edge = out.row[chosen], out.col[chosen], out.edge[chosen]
        return out

    batch = next(iter(lg.pyg.neighbor_loader(graph, [-1], batch_size=30, transform_sampler_output=half)))
    known = {edge: row for row, edge in enumerate(graph.edges()["id"].tolist())}
    rows = [known[edge] for edge in batch.e_id.tolist()]
    assert len(rows) == (graph.edge_count + 1) // 2
    for name, mine in (("edge_weight", "weight"), ("edge_time", "time"), ("edge_type", "type"), ("edge_attr", "attr")):
        np.testing.assert_array_equal(batch[name], graph.edges()[mine][rows])


def test_negative_links_leave_torchs_generator_as_it_was() -> None:
    graph = graphs.plain(2)
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    loader = lg.pyg.link_neighbor_loader(graph, [2], np.array([[0, 1], [2, 3]]), neg_sampling="binary", batch_size=2)
    loader([0, 1])
    assert torch.equal(torch.rand(4), expected)
