"""Recorders agree to a batch before anyone sees it: all prepare, then all append; or the batch is taken back."""

from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LogConflict, UsageError, VertexUnknown
from livegnn.graph.consumers import Consumer
from livegnn.log import UpdateLog, open_log
from tests.unit.graph.recorders import Noted, no_room


@pytest.fixture
def log(tmp_path):
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db", synchronous="NORMAL")) as log:
        yield log


class Follows(Consumer):
    """Notes the versions that are published."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def published(self, change: Any, version: int) -> None:
        self.notes.append(version)


def ring(ids=None):
    names = ids or [0, 1, 2]
    return lg.Graph(np.eye(3, dtype=np.float32), names[:2], names[1:], ids=ids)


def edge(u, v):
    updates = lg.Updates()
    updates.add_edge(u, v)
    return updates


@pytest.mark.parametrize("ids", [None, ["a", "b", "c"]])
def test_all_prepare_before_any_appends_and_consumers_come_last(ids):
    graph, notes = ring(ids), []
    graph.host.attach(Follows(notes))
    for name in ("first", "second"):
        graph.host.add_recorder(Noted(notes, name))
    graph.apply(edge(*(ids or [0, 1, 2])[:2]))
    steps = [(name, step) for step in ("prepare", "append") for name in ("first", "second")]
    assert notes == [*steps, 1]


@pytest.mark.parametrize("ids", [None, ["a", "b", "c"]])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("prepare", ["first prepare", "second prepare", "first abort"]),
        ("append", ["first prepare", "second prepare", "first append", "second append", "second abort", "first abort"]),
    ],
)
def test_where_the_second_fails_nothing_is_applied_and_the_first_aborts(ids, step, expected):
    graph, notes = ring(ids), []
    engine = lg.Engine(lg.Model([lg.layers.GCN(np.eye(3, dtype=np.float32))]), graph)
    before = graph.digest(), engine.state_digest()
    graph.host.attach(Follows(notes))
    graph.host.add_recorder(Noted(notes, "first"))
    graph.host.add_recorder(full := Noted(notes, "second", **{step: no_room}))
    batch = edge(*(ids or [0, 1, 2])[:2])
    batch.remove_vertex((ids or [0, 1, 2])[2])
    with pytest.raises(OSError, match="no room"):
        graph.apply(batch)
    assert [" ".join(each) for each in notes] == expected
    assert (graph.version, engine.version, graph.digest(), engine.state_digest()) == (0, 0, *before)
    graph.host.drop_recorder(full)
    assert engine.apply(batch).version == 1
    engine.verify()


def test_every_recorder_that_has_prepared_aborts_even_where_one_fails_at_it():
    graph, notes = ring(), []
    for name in ("first", "second"):
        graph.host.add_recorder(Noted(notes, name, abort=no_room))
    graph.host.add_recorder(Noted(notes, "third", prepare=lambda: graph.apply(edge(0, 0))))
    with pytest.raises(OSError, match="no room"):
        graph.apply(edge(0, 1))
    assert [name for name, step in notes if step == "abort"] == ["second", "first"]
    assert graph.version == 0


def test_a_batch_that_the_store_refuses_reaches_no_recorder():
    graph, notes = ring(), []
    graph.host.add_recorder(Noted(notes, "first"))
    with pytest.raises(VertexUnknown):
        graph.apply(edge(0, 9))
    assert notes == []


def test_a_log_a_vote_and_a_follower_stand_together(log):
    graph, notes, votes = ring(), [], iter([True, False, True])

    def vote():
        if not next(votes):
            raise UsageError("another worker has refused the batch")

    sampler = lg.PreSampler(graph, lg.query().out().sample(2))
    with log.attach(graph) as attachment:
        graph.host.attach(Follows(notes))
        graph.host.add_recorder(Noted([], "vote", prepare=vote))
        graph.apply(edge(2, 0))
        before = graph.version, graph.digest(), sampler.digest(), log.tail, attachment.offset, list(notes)
        with pytest.raises(UsageError, match="another worker"):
            graph.apply(edge(2, 1))
        assert before == (graph.version, graph.digest(), sampler.digest(), log.tail, attachment.offset, notes)
        graph.apply(edge(1, 0))
        sampler.verify()
    assert (log.tail, attachment.offset, notes) == (2, 2, [1, 2])


def test_an_entry_of_a_batch_that_is_taken_back_later_refuses_the_next_one(log):
    """The log cannot erase: it says that it is one entry ahead before anyone else is asked, until catch_up()."""
    graph, notes = ring(), []
    with log.attach(graph) as attachment:
        graph.host.add_recorder(last := Noted(notes, "last", append=no_room))
        with pytest.raises(OSError, match="no room"):
            graph.apply(edge(2, 0))
        assert (graph.version, attachment.offset, log.tail) == (0, 0, 1)
        notes.clear()
        with pytest.raises(LogConflict, match="one more, of a batch that was taken back"):
            graph.apply(edge(2, 1))
        assert notes == []
        with pytest.raises(OSError, match="no room"):
            attachment.catch_up()
        assert (graph.version, attachment.offset, log.tail) == (0, 0, 1)
        graph.host.drop_recorder(last)
        assert (attachment.catch_up(), attachment.offset, log.tail) == (1, 1, 1)
        assert graph.apply(edge(2, 1)) == 2
    assert graph.out_neighbours(2)["dst"].tolist() == [0, 1]


def test_recorders_come_and_go_in_the_writers_place():
    graph, notes = ring(), []
    recorder = Noted(notes, "only")
    graph.host.add_recorder(recorder)
    graph.host.drop_recorder(recorder)
    graph.host.drop_recorder(recorder)
    graph.apply(edge(0, 1))
    assert notes == []
