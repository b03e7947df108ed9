"""Swaps and rescales of engines on a graph with a log."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ColumnMissing, LogConflict, LogUnavailable, ModelMismatch, UsageError, ValueInvalid
from livegnn.log import UpdateLog, open_log, replay
from tests.unit.graph.recorders import Noted, no_room


@pytest.fixture
def log(tmp_path):
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db", synchronous="NORMAL")) as log:
        yield log


def edge(u, v):
    updates = lg.Updates()
    updates.add_edge(u, v)
    return updates


def ring(**options):
    return lg.Graph(np.eye(3, dtype=np.float32), [0, 1], [1, 2], **options)


def model(factor=1.0, width=3, **options):
    return lg.Model([lg.layers.GCN(factor * np.eye(width, dtype=np.float32), **options)])


def test_switches_are_versions_of_a_graph_with_a_log(log):
    engine = lg.Engine(model(), ring())
    engine.swap(model(2.0))
    assert engine.graph.version == 0
    heard = []
    engine.on_change(lambda changes: heard.append((changes.version, changes.vertices.tolist())))
    with log.attach(engine.graph) as attachment:
        engine.apply(edge(2, 0))
        engine.swap(model(3.0))
        engine.rescale()
        assert log.tail == attachment.offset == engine.version == engine.graph.version == 3
    assert heard == [(1, [0, 1]), (2, []), (3, [])]
    entries = list(log.read())
    assert [None if entry.switch is None else entry.switch.kind for entry in entries] == [None, "swap", "rescale"]
    assert [len(entry.updates) for entry in entries] == [1, 0, 0]
    engine.verify()
    engine.swap(model())
    assert (log.tail, engine.version) == (3, 3)  # detached


def test_a_swap_that_fails_is_not_in_the_log(log, monkeypatch):
    engine = lg.Engine(model(), ring())
    readout = lg.Readout(engine, "mean")
    with log.attach(engine.graph):
        engine.apply(edge(2, 0))
        before = engine.state_digest(), engine.version, engine.model, readout.rows().tobytes()
        with pytest.raises(ModelMismatch):
            engine.swap(model(width=4))

        def fail(*args, **options):
            raise LogUnavailable("[append] expected a disk, got none; mount it")

        with monkeypatch.context() as patch:
            patch.setattr(log.log, "append", fail)
            for switch in (lambda: engine.swap(model(2.0)), engine.rescale):
                with pytest.raises(LogUnavailable):
                    switch()
        engine.graph.host.add_recorder(full := Noted([], "full", prepare=no_room))
        with pytest.raises(OSError, match="no room"):
            engine.swap(model(2.0))
        engine.graph.host.drop_recorder(full)
        assert (engine.state_digest(), engine.version, engine.model, readout.rows().tobytes()) == before
        assert log.tail == 1
        engine.verify()
        engine.swap(model(2.0))
        assert log.tail == engine.version == 2
        readout.verify()


def test_a_swap_that_is_in_the_log_although_it_failed(log):
    engine = lg.Engine(model(), ring())
    with log.attach(engine.graph) as attachment:
        engine.graph.host.add_recorder(full := Noted([], "full", append=no_room))
        with pytest.raises(OSError, match="no room"):
            engine.swap(model(2.0))
        engine.graph.host.drop_recorder(full)
        assert (engine.version, log.tail) == (0, 1)
        for write in (engine.rescale, lambda: engine.apply(edge(0, 2))):
            with pytest.raises(LogConflict, match="call catch_up"):
                write()
        assert attachment.catch_up() == 1
        twin = lg.Engine(model(2.0), ring())
        assert engine.state_digest() == twin.state_digest()


def test_engines_have_names(log, tmp_path):
    graph = ring()
    first, second = lg.Engine(model(), graph, name="first"), lg.Engine(model(), graph, name="second")
    with log.attach(graph):
        first.swap(model(2.0))
        graph.apply(edge(2, 0))
        second.save(tmp_path / "second.lg")
        second.rescale(headroom=2.0)
        second.swap(model(3.0))
    alone = lg.Engine.load(tmp_path / "second.lg")
    assert (alone.name, alone.version) == ("second", 2)
    replay(log, alone.graph, alone.version)
    assert alone.state_digest() == second.state_digest()
    both = ring()
    engines = [lg.Engine(model(), both, name=name) for name in ("second", "first")]
    assert replay(log, both) == 4
    assert [each.state_digest() for each in engines] == [second.state_digest(), first.state_digest()]
    with pytest.raises(ValueInvalid, match="name as a string, got 3"):
        lg.Engine(model(), ring(), name=3)


def test_two_engines_of_one_name(log):
    graph = ring()
    engines = [lg.Engine(model(), graph) for _ in range(2)]
    with log.attach(graph):
        engines[0].apply(edge(2, 0))
        for switch in (lambda: engines[1].swap(model(2.0)), engines[0].rescale):
            with pytest.raises(
                UsageError, match=r"one Engine named '' on a graph with a log, got 2; give each a name="
            ):
                switch()
        engines[0].close()
        engines[1].swap(model(2.0))
        assert log.tail == 2
    twice = ring()
    kept = [lg.Engine(model(), twice) for _ in range(2)]
    with pytest.raises(UsageError, match=r"^\[replay, offset 1\] expected a swap that engine '' can make, got .*named"):
        replay(log, twice)
    assert twice.version == kept[0].version == 1


def test_a_graph_without_the_engine_goes_on(log):
    graph, without = ring(), ring()
    engine = lg.Engine(model(), graph)
    with log.attach(graph):
        engine.apply(edge(2, 0))
        engine.swap(model(2.0))
        engine.apply(edge(0, 2))
    other = lg.Engine(model(), without, name="other")
    query = lg.query().out().sample(2)
    sampler = lg.PreSampler(without, query)
    assert replay(log, without) == 3
    assert (without.digest(), other.model.to_arrays()[0]) == (graph.digest(), model().to_arrays()[0])
    other.verify()
    sampler.verify()
    plain = ring()
    for entry in log.read():  # a reader that knows batches alone
        plain.apply(entry.updates)
    assert (plain.version, plain.digest()) == (3, graph.digest())


def test_a_swap_that_cannot_be_repeated(log):
    engine = lg.Engine(model(), ring(weight=[0.5, 2.0]))
    with log.attach(engine.graph):
        engine.swap(model(2.0, weighted=True))
    behind = lg.Engine(model(), ring())
    before = behind.state_digest()
    with pytest.raises(
        UsageError, match=r"^\[replay, offset 0\] expected a swap that engine '' can make, got "
    ) as caught:
        replay(log, behind.graph)
    assert isinstance(caught.value.__cause__, ColumnMissing)
    assert (behind.version, behind.state_digest()) == (0, before)


def test_a_snapshot_keeps_the_rows_from_before_a_swap(log):
    engine = lg.Engine(model(), ring())
    with log.attach(engine.graph), engine.snapshot() as view:
        before = view.embeddings([0, 1, 2])
        engine.swap(model(2.0))
        engine.apply(edge(2, 0))
        assert (view.version, engine.version) == (0, 2)
        assert view.embeddings([0, 1, 2]).tobytes() == before.tobytes()
