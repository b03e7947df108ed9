"""A graph that writes its history before anyone sees it."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LogConflict, LogUnavailable, RangeOverflow, UsageError, VertexUnknown
from livegnn.log import UpdateLog, open_log, replay
from livegnn.testing import random_batch, random_graph, random_model
from tests.unit.graph.recorders import Noted, no_room


@pytest.fixture
def log(tmp_path):
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db", synchronous="NORMAL")) as log:
        yield log


def edge(u, v):
    updates = lg.Updates()
    updates.add_edge(u, v)
    return updates


def ring():
    return lg.Graph(np.eye(3, dtype=np.float32), [0, 1], [1, 2])


def test_accepted_batches_are_in_the_log_and_others_are_not(log):
    graph = ring()
    with log.attach(graph) as attachment:
        graph.apply(edge(2, 0))
        with pytest.raises(VertexUnknown):
            graph.apply(edge(2, 99))
        graph.apply(lg.Updates())
        assert (log.tail, attachment.offset, graph.version) == (2, 2, 2)
    graph.apply(edge(0, 2))
    assert log.tail == 2  # detached
    assert [len(entry.updates) for entry in log.read()] == [1, 0]


def test_named_vertices(log):
    graphs = [lg.Graph(np.eye(2, dtype=np.float32), ["a"], ["b"], ids=["a", "b"]) for _ in range(2)]
    with log.attach(graphs[0]):
        updates = lg.Updates()
        updates.add_vertex("c", [1, 1])
        updates.remove_vertex("a")
        updates.add_edge("c", "b")
        graphs[0].apply(updates)
    assert replay(log, graphs[1]) == 1
    assert graphs[0].digest() == graphs[1].digest()
    assert graphs[1].vertices().tolist() == graphs[0].vertices().tolist()


@pytest.mark.parametrize("mode", ["eager", "on_demand"])
@pytest.mark.parametrize("seed", range(4))
def test_a_failed_append_takes_the_batch_back(log, monkeypatch, mode, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, depth=2)
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights)
    engine = lg.Engine(model, graph, mode=mode)
    heard = []
    engine.on_change(lambda changes: heard.append(changes.version))
    with log.attach(graph) as attachment:
        engine.apply(random_batch(rng, mirror, 5))
        before = graph.version, graph.digest(), engine.state_digest(), log.tail, attachment.offset, list(heard)
        ids = graph.vertices()
        rows = engine.embeddings(ids)
        seen = []

        def fail(*args, **options):
            seen.append(mode == "on_demand" or engine.embeddings(ids).tobytes() == rows.tobytes())
            raise LogUnavailable("[append] expected a disk, got none; mount it")

        batch = random_batch(rng, mirror, 5)
        with monkeypatch.context() as patch:
            patch.setattr(log.log, "append", fail)
            with pytest.raises(LogUnavailable):
                engine.apply(batch)
        assert before == (graph.version, graph.digest(), engine.state_digest(), log.tail, attachment.offset, heard)
        assert seen == [True]  # readers of an eager engine had the old rows; on demand, other threads wait
        graph.host.store.check_invariants()
        engine.apply(batch)
        engine.verify()
        assert log.tail == graph.version == 2


def test_what_a_layer_refuses_is_not_logged(log):
    graph = lg.Graph(np.full((2, 1), 1e-3, np.float32), [0], [1])
    engine = lg.Engine(lg.Model([lg.layers.SAGE(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32))]), graph)
    updates = lg.Updates()
    updates.set_features(0, [3e38])
    with log.attach(graph):
        with pytest.raises(RangeOverflow):
            engine.apply(updates)
        assert log.tail == 0


def test_an_append_that_succeeded_and_said_it_failed(log, monkeypatch):
    """The log is one entry ahead; the next batch is told so, and catching up brings the lost one."""
    graph = ring()
    append = log.log.append
    with log.attach(graph) as attachment:

        def lose_the_answer(*args, **options):
            append(*args, **options)
            raise LogUnavailable("[append] expected an answer, got none; try again")

        with monkeypatch.context() as patch:
            patch.setattr(log.log, "append", lose_the_answer)
            with pytest.raises(LogUnavailable):
                graph.apply(edge(2, 0))
        assert graph.version == 0
        with pytest.raises(LogConflict):
            graph.apply(edge(0, 2))
        assert attachment.catch_up() == 1
        assert graph.apply(edge(0, 2)) == 2
        assert [sorted(graph.out_neighbours(v)["dst"].tolist()) for v in (0, 2)] == [[1, 2], [0]]
        assert log.tail == 2


def test_a_batch_taken_back_is_remembered_while_catching_up_fails(log):
    graph, notes = ring(), []
    with log.attach(graph) as attachment:
        graph.host.add_recorder(refusing := Noted(notes, "last", append=no_room))
        for fails in (lambda: graph.apply(edge(2, 0)), attachment.catch_up):
            with pytest.raises(OSError, match="no room"):
                fails()
            assert (graph.version, attachment.offset, log.tail) == (0, 0, 1)
            notes.clear()
            with pytest.raises(LogConflict, match="taken back"):
                graph.apply(edge(0, 2))
            assert notes == []  # refused while recorders prepare: no other one has been asked
        graph.host.drop_recorder(refusing)
        assert attachment.catch_up() == 1
        assert graph.apply(edge(0, 2)) == log.tail == 2


def test_where_a_graph_stands(log):
    graph = ring()
    for v in (0, 1, 2):
        log.append(edge(v, v))
    with log.attach(graph) as attachment:
        assert attachment.offset == 0
        assert attachment.catch_up() == 3
        assert attachment.offset == 3
        with pytest.raises(UsageError, match="expected a graph without a log"):
            log.attach(graph)
        with pytest.raises(UsageError, match="call its catch_up"):
            replay(log, graph)
        attachment.detach()
        attachment.detach()
    with pytest.raises(LogConflict, match="expected at least 4 entries"):
        log.attach(graph, at=4)
    with log.attach(ring(), at=2) as attachment:
        assert attachment.catch_up() == 1


def test_recovery_of_a_saved_engine(log, tmp_path):
    rng = np.random.default_rng(1)
    model = random_model(rng, depth=2)
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights)
    engine = lg.Engine(model, graph)
    with log.attach(graph):
        for step in range(6):
            engine.apply(random_batch(rng, mirror, 4))
            if step == 2:
                engine.save(tmp_path / "engine.lg")
    recovered = lg.Engine.load(tmp_path / "engine.lg")
    with log.attach(recovered.graph) as attachment:
        assert attachment.offset == 3
        attachment.catch_up()
        assert recovered.state_digest() == engine.state_digest()


def test_replay_refuses_what_cannot_be(log):
    log.append(edge(0, 1))
    log.append(edge(0, 77))
    graph = ring()
    with pytest.raises(UsageError, match=r"^\[replay, offset 1\] expected a batch that the graph accepts, got .*77"):
        replay(log, graph)
    assert graph.version == 1
    for first, last in [(0, 3), (2, 1), (3, None)]:
        with pytest.raises(UsageError, match="expected offsets up to its 2 entries"):
            replay(log, graph, first, last)
    assert replay(log, graph, 2) == 1


def test_from_inside_a_callback(log):
    graph = ring()
    engine = lg.Engine(lg.Model([lg.layers.GCN(np.eye(3, dtype=np.float32))]), graph)
    heard = []

    def callback(changes):
        for call in (lambda: log.attach(graph), attachment.detach, attachment.catch_up):
            with pytest.raises(UsageError):
                call()
            heard.append(changes.version)

    with log.attach(graph) as attachment:
        log.append(edge(1, 0))
        attachment.catch_up()
        log.append(edge(1, 1))
        engine.on_change(callback)
        attachment.catch_up()
    assert heard == [2, 2, 2]
