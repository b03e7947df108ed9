"""Reports and plans on random graphs against plain counts, edge by edge, and against all numberings of the parts."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import livegnn as lg
from livegnn import _native
from livegnn.distributed import PartitionReport, VertexParts, hashed, repartition


@st.composite
def worlds(draw):
    """A graph with free slots, self-loops and parallel edges, perhaps typed or undirected; and a random source."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    slots, undirected, typed = draw(st.integers(1, 14)), draw(st.booleans()), draw(st.booleans())
    src, dst = rng.integers(0, slots, (2, draw(st.integers(0, 40))))
    kinds = {"vertex_type": rng.choice(["a", "b", "c"], slots)} if typed and not undirected else {}
    graph = lg.Graph(np.zeros((slots, 3), np.float32), src, dst, undirected=undirected, **kinds)
    updates = lg.Updates()
    gone = rng.permutation(slots)[: draw(st.integers(0, slots // 2))]
    for slot in gone.tolist():
        kind = graph.vertex_types[int(graph.slot_types([slot])[0])] if typed and not undirected else None
        updates.remove_vertex(int(graph.to_external([slot], vertex_type=kind)[0]), vertex_type=kind)
    graph.apply(updates)
    return graph, rng


def edges_by_slots(graph):
    ends = _native.edge_ends(graph.host.store)
    return list(zip(ends["src"].tolist(), ends["dst"].tolist(), strict=True))


@given(worlds(), st.integers(1, 5))
def test_a_report_counts_what_there_is(world, count):
    graph, rng = world
    of = rng.integers(0, count, graph.slot_count)
    report = PartitionReport.of(graph, VertexParts(count, of))
    edges = edges_by_slots(graph)
    flows = edges + [(v, u) for u, v in edges if u != v] if graph.undirected else edges
    assert report.edges == len(edges)
    assert report.cut == sum(of[u] != of[v] for u, v in edges)
    live = graph.host.store.live()
    assert report.vertices.tolist() == [int((live & (of == part)).sum()) for part in range(count)]
    assert report.in_edges.tolist() == [sum(of[v] == part for _, v in flows) for part in range(count)]
    for p in range(count):
        for q in range(count):
            across = {(u, v) for u, v in flows if (of[u], of[v]) == (p, q)}
            assert report.between[p, q] == sum((of[u], of[v]) == (p, q) for u, v in flows)
            assert report.sources[p, q] == (len({u for u, _ in across}) if p != q else 0)
            assert report.targets[p, q] == (len({v for _, v in across}) if p != q else 0)
    halo = [{u for u, v in flows if of[v] == part != of[u]} for part in range(count)]
    assert report.halo.tolist() == [len(each) for each in halo]
    assert report.halo_sum == sum(len(each) for each in halo)
    assert report.pairs == len({(of[u], of[v]) for u, v in flows if of[u] != of[v]})
    types = graph.host.store.vertex_types() if graph.vertex_types else None
    assert list(report.by_type) == list(graph.vertex_types or ())
    for code, share in enumerate(report.by_type.values()):
        assert share.vertices.tolist() == [int((live & (types == code) & (of == p)).sum()) for p in range(count)]
        assert share.halo.tolist() == [sum(types[u] == code for u in each) for each in halo]


@given(worlds(), st.integers(1, 4), st.integers(1, 4))
def test_a_plan_moves_no_more_than_it_must(world, before, after):
    graph, rng = world
    slots, live = graph.slot_count, graph.host.store.live()
    now = VertexParts(before, rng.integers(0, before, slots))
    wanted = VertexParts(after, rng.integers(0, after, slots))
    plan = repartition(graph, now, wanted)
    moved = now.of.copy()
    seen = np.zeros(slots, int)
    for move in plan.moves:
        assert move.source != move.target
        assert len(move.slots)
        assert (moved[move.slots] == move.source).all()
        seen[move.slots] += 1
        moved[move.slots] = move.target
    assert seen.max(initial=0) <= 1
    assert not seen[~live].any()
    assert (moved[live] == plan.after.of[live]).all()
    same = wanted.of[:, None] == wanted.of[None, :]
    assert ((plan.after.of[:, None] == plan.after.of[None, :]) == same).all()  # other numbers, the same parts
    beyond = np.arange(slots, slots + 50)
    assert (
        (plan.after.lookup(beyond)[:, None] == plan.after.of) == (wanted.lookup(beyond)[:, None] == wanted.of)
    ).all()
    fewest = min(int(((np.array(numbers)[wanted.of] != now.of) & live).sum()) for numbers in permutations(range(after)))
    assert plan.vertices == fewest
    edges = edges_by_slots(graph)
    flows = edges + [(v, u) for u, v in edges if u != v] if graph.undirected else edges
    kept = sum(bool(seen[v]) for _, v in flows)
    columns = 4 * graph.has_type
    assert plan.bytes == 3 * 4 * plan.vertices + (16 + columns) * kept
    assert repartition(graph, now, wanted, row_bytes=0).bytes == (16 + columns) * kept


def test_a_report_prints_its_sums():
    graph = lg.Graph(np.zeros((4, 1), np.float32), [0, 1, 2, 3], [1, 2, 3, 0], vertex_type=["a", "a", "b", "b"])
    printed = str(PartitionReport.of(graph, VertexParts(2, [0, 0, 1, 1])))
    assert printed.splitlines()[1].split() == ["0", "2", "2", "1", "1"]
    assert "cut 2 of 4 edges (50.0%); max/mean 1.00 of vertices, 1.00 of edges; halo 2; pairs 2 of 2" in printed
    assert "b: 2 vertices, max/mean 2.00, halo 1" in printed
    many = str(PartitionReport.of(graph, hashed(40)))
    assert "8 more parts" in many


def test_a_plan_prints_its_moves():
    graph = lg.Graph(np.zeros((3, 2), np.float32), [0, 1], [1, 2])
    plan = repartition(graph, VertexParts(2, [0, 0, 1]), VertexParts(2, [1, 0, 0]))
    assert [(move.source, move.target, move.slots.tolist(), move.bytes) for move in plan.moves] == [(0, 1, [1], 24)]
    assert str(plan).splitlines()[-1] == "1 vertices, 24 bytes"
    with pytest.raises(lg.errors.UsageError, match="bytes of a vertex"):
        repartition(graph, hashed(2), hashed(2), row_bytes=-1)
