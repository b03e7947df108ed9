"""Version and counts are of what is published: in every thread, while a batch or a what_if block is under way."""

import threading

import numpy as np
import pytest

import livegnn as lg
from tests.unit.graph.recorders import Noted, no_room
from tests.unit.inference.samples import INT_IDS, STR_IDS, engine, graph, model, row, updates
from tests.unit.inference.test_threads import run_readers

N = 400


def in_a_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(60)
    return found[0]


def facts(e):
    g = e.graph
    return g.version, e.version, g.vertex_count, g.slot_count, g.edge_count


GROWS = (("add_vertex", 6, row()), ("add_edge", 6, 0), ("add_edge", 0, 3))


def test_what_is_supposed_moves_no_version_and_no_count():
    e = engine()
    with e.what_if(updates(*GROWS)) as view:
        assert view.embeddings([6]).shape == (1, 3)
        assert facts(e) == in_a_thread(lambda: facts(e)) == (0, 0, 6, 6, 6)
        assert repr(e.graph) == "Graph(vertices=6, edges=6, features=4, version=0)"
        assert e.recompute().shape == (7, 3)  # audits are of the supposed graph
    assert facts(e) == (0, 0, 6, 6, 6)
    e.apply(updates(*GROWS))
    assert facts(e) == (1, 1, 7, 7, 8)


@pytest.mark.parametrize("ids", [None, INT_IDS])
def test_version_and_counts_move_when_the_batch_is_published(ids):
    e = lg.Engine(model(), graph(ids), threads=1)
    seen = []
    note = Noted([], "last", append=lambda: seen.append((facts(e), in_a_thread(lambda: facts(e)))))
    e.graph.host.add_recorder(note)  # nothing can refuse it any more
    e.on_change(lambda _: seen.append((facts(e), in_a_thread(lambda: facts(e)))))
    before, after = (0, 0, 6, 6, 6), (1, 1, 7, 7, 6)
    e.apply(updates(("add_vertex", 6, row())))
    assert seen == [(before, before), (after, after)]


def test_a_batch_that_is_taken_back_moves_nothing():
    e = engine()
    e.graph.host.add_recorder(Noted([], "full", append=no_room))
    with pytest.raises(OSError, match="no room"):
        e.apply(updates(*GROWS))
    assert facts(e) == (0, 0, 6, 6, 6)


def test_a_graph_without_engines_and_one_that_is_loaded(tmp_path):
    g = graph()
    g.apply(updates(*GROWS))
    assert (g.version, g.vertex_count, g.slot_count, g.edge_count) == (1, 7, 7, 8)
    e = lg.Engine(model(), g, threads=1)
    e.save(tmp_path / "engine.lg")
    assert facts(lg.Engine.load(tmp_path / "engine.lg")) == facts(e) == (1, 1, 7, 7, 8)


def test_counts_follow_edges_into_files_and_back(tmp_path):
    g = lg.Graph(np.eye(3, dtype=np.float32), [0, 1, 2], [1, 2, 0], time=[1, 2, 3])
    g.offload(3, tmp_path / "old.parquet")
    assert g.edge_count == 1
    g.reload()
    assert g.edge_count == 3


@pytest.mark.parametrize("ids", [list(range(N)), [f"v{i}" for i in range(N)]])
def test_rows_lie_between_the_versions_read_around_them(ids):
    """Batch k sets every feature to k + 1, the version that it makes, and every output is its vertex's feature, or that
    of its one in-neighbour.
    """
    one = np.ones((1, 1), np.float32)
    g = lg.Graph(np.zeros((N, 1), np.float32), ids, [*ids[1:], ids[0]], ids=None if ids[0] == 0 else ids)
    first = lg.Engine(lg.Model([lg.layers.SAGE(one, aggregate="sum")]), g, threads=1)
    second = lg.Engine(lg.Model([lg.layers.Dense(one)], input_width=1), g, threads=1)

    def read():
        graph_version, v1 = g.version, first.version
        of_first = int(first.embeddings(ids[:1])[0, 0])
        v2, of_second, v3 = first.version, int(second.embeddings(ids[:1])[0, 0]), second.version
        return np.array([graph_version, v1, of_first, v2, of_second, v3], np.int64)

    def write():
        for k in range(150):
            if k % 3 == 0:
                with (first, second)[k % 2].what_if(updates(("set_features", ids, np.full((N, 1), -7, np.float32)))):
                    pass
            g.apply(updates(("set_features", ids, np.full((N, 1), k + 1, np.float32))))

    for seen in run_readers(read, write, count=2):
        order = np.array([np.frombuffer(each, np.int64) for each in seen])
        graph_version, v1, of_first, v2, of_second, v3 = order.T
        for earlier, later in [(v1, of_first), (of_first, v2), (of_second, v3), (graph_version, v1)]:
            assert (earlier <= later).all()
        assert (graph_version <= of_second).all()  # whatever is attached serves what the graph says
        assert (np.diff(order, axis=0) >= 0).all()  # nothing falls, of all that was read
        assert order[-1].tolist() == [150] * 6


def test_in_a_callback_everything_is_at_the_new_version():
    g = graph()
    engines = [lg.Engine(model(seed=k), g, threads=1) for k in range(3)]
    seen = []
    for e in engines:
        e.on_change(lambda _: seen.append([g.version, *(each.version for each in engines)]))
    g.apply(updates(*GROWS))
    assert seen == [[1, 1, 1, 1]] * 3


def test_on_demand_the_version_is_that_of_the_graph():
    e = engine(mode="on_demand")
    e.apply(updates(*GROWS))
    assert facts(e)[:2] == (1, 1)  # rows that are read now are computed of it
    with e.what_if(updates(("add_edge", 0, 2))):
        assert facts(e)[:2] == (1, 1)


def test_closed_the_version_is_that_of_the_last_rows():
    e = engine()
    e.apply(updates(*GROWS))
    e.close()
    e.graph.apply(updates(("add_edge", 0, 2)))
    assert (e.version, e.graph.version) == (1, 2)


def test_a_readout_has_the_version_of_its_rows_during_what_if():
    e = engine()
    readout = lg.Readout(e, "add")
    rows = readout.rows()
    with e.what_if(updates(*GROWS)):
        assert in_a_thread(lambda: (readout.version, readout.rows().tolist())) == (0, rows.tolist())
    assert readout.version == 0


def test_a_batch_that_stands_though_a_consumer_fails_leaves_ids_readable():
    e = lg.Engine(model(), graph(STR_IDS), threads=1)

    def fail(_):
        raise KeyboardInterrupt

    e.on_change(fail)
    with pytest.raises(KeyboardInterrupt):
        e.apply(updates(("remove_vertex", "cyd")))
    assert e.embeddings(["ann"]).shape == (1, 3)


@pytest.mark.parametrize("mode", ["eager", "on_demand"])
def test_a_callback_that_waits_for_a_reader_blocks_on_demand_only(mode):
    e, ended = engine(mode=mode), []

    def wait(_):
        reader = threading.Thread(target=lambda: e.embeddings([0]))
        reader.start()
        reader.join(0.2 if mode == "on_demand" else 60)
        ended.append(not reader.is_alive())

    e.on_change(wait)
    e.apply(updates(("add_edge", 0, 3)))
    assert ended == [mode == "eager"]
