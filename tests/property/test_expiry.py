"""What expires is a function of the history: not of how it is cut into batches, of who follows it, or of its replay."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import UpdateError
from livegnn.log import UpdateLog, open_log, replay
from tests.oracle.expiring import History, Kind, batch_of, check_edges, cut

KINDS = {
    "plain": Kind(),
    "simple": Kind(simple=True),
    "undirected": Kind(undirected=True),
    "simple and undirected": Kind(simple=True, undirected=True),
    "typed": Kind(typed=True),
    "typed and simple": Kind(typed=True, simple=True),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", KINDS)
def test_any_cut_gives_the_same_graph(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    history = History(KINDS[name], np.random.default_rng([seed, 0]))
    graphs = [history.graph(ttl=True) for _ in range(4)]
    for _ in range(6):
        ops = [history.op() for _ in range(60)]
        for graph, longest in zip(graphs, (1, 4, 25, 60), strict=True):
            for part in cut(rng, ops, longest):
                graph.apply(batch_of(part))
            check_edges(graph, history)
        assert len({graph.digest() for graph in graphs}) == 1
        graphs[1] = lg.Graph.from_arrays(graphs[1].to_arrays())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["plain", "undirected", "typed"])
def test_a_long_run_of_additions_expires_as_one_by_one(name: str, seed: int) -> None:
    history = History(KINDS[name], np.random.default_rng(seed))
    ops = [op for op in (history.op() for _ in range(2500)) if op.name == "add_edge"]
    bulk, single = history.graph(ttl=True), history.graph(ttl=True)
    bulk.apply(batch_of(ops))
    for op in ops:
        single.apply(batch_of([op]))
    assert bulk.digest() == single.digest()
    np.testing.assert_array_equal(bulk.edges()["id"], single.edges()["id"])
    bulk.host.store.check_invariants()


@pytest.mark.parametrize("name", KINDS)
def test_a_log_replays_with_and_without_the_ttl(name: str, tmp_path) -> None:
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    history = History(KINDS[name], np.random.default_rng(7))
    graph = history.graph(ttl=True)
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db")) as log:
        with log.attach(graph):
            for part in cut(rng, [history.op() for _ in range(300)], 12):
                graph.apply(batch_of(part))
        for ttl in (True, False):
            rebuilt = history.graph(ttl=ttl)
            replay(log, rebuilt)
            check_edges(rebuilt, history)
            assert (rebuilt.digest(), rebuilt.version) == (graph.digest(), graph.version)
        with log.attach(rebuilt, at=graph.version) as attached:  # a log goes on from a graph that was saved on the way
            assert attached.offset == graph.version


@pytest.mark.parametrize("name", KINDS)
def test_a_refused_batch_leaves_clock_and_edges(name: str) -> None:
    history = History(KINDS[name], np.random.default_rng(11))
    graph = history.graph(ttl=True)
    vertex = history.ids("User")[0]
    kind = {"edge_type": "follows"} if history.kind.typed else {}
    for _ in range(20):
        ops = [history.op() for _ in range(8)]
        graph.apply(batch_of(ops))
        before, now, digest = graph.edges(), graph.now, graph.digest()
        bad = lg.Updates()
        bad.add_edge(vertex, vertex, time=10_000, weight=1.0, **kind)
        bad.remove_edge(vertex, vertex, edge_id=history.next_edge, **kind)
        bad.remove_edge(vertex, vertex, edge_id=history.next_edge, **kind)
        with pytest.raises(UpdateError, match=r"\[apply\] update (0|2) "):
            graph.apply(bad)
        assert (graph.now, graph.digest()) == (now, digest)
        np.testing.assert_array_equal(graph.edges()["id"], before["id"])
        check_edges(graph, history)
