"""Events: what a graph's batches bring, in order of edge id, and the table of all of them."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.temporal.events import EventFeed, Events, EventTable


def dated(vertices=6, undirected=False):
    return lg.Graph(np.zeros((vertices, 0), np.float32), [0, 1], [1, 2], time=[10, 20], undirected=undirected)


def added(*edges):
    updates = lg.Updates()
    for u, v, time in edges:
        updates.add_edge(u, v, time=time)
    return updates


def rows(events):
    return list(zip(*(column.tolist() for column in events.columns()[:4]), strict=True))


def test_an_undirected_feed_names_the_smaller_slot_first():
    graph = dated(undirected=True)
    feed = EventFeed(graph)
    graph.apply(added((4, 3, 30), (2, 5, 25)))
    assert rows(feed.take().events) == [(3, 4, 30, 2), (2, 5, 25, 3)]
    assert rows(Events.of(graph))[2:] == [(3, 4, 30, 2), (2, 5, 25, 3)]


def test_a_feed_gives_added_edges_as_they_were_named():
    graph = dated()
    feed = EventFeed(graph)
    graph.apply(added((4, 3, 30), (2, 5, 25)))
    graph.apply(added((3, 3, 26)))
    assert feed.waiting == 3
    assert rows(feed.take().events) == [(4, 3, 30, 2), (2, 5, 25, 3), (3, 3, 26, 4)]
    assert feed.waiting == 0
    assert len(feed.take().events) == 0


def test_edges_that_come_and_go_within_a_batch_are_no_events_but_have_ids():
    graph = dated()
    feed = EventFeed(graph)
    updates = added((4, 3, 30), (4, 5, 31))
    updates.remove_edge(4, 3)
    updates.add_edge(5, 0, time=32)
    graph.apply(updates)
    assert rows(feed.take().events) == [(4, 5, 31, 3), (5, 0, 32, 4)]


def test_removed_edges_leave_what_waits_and_older_ones_are_named():
    graph = dated()
    feed = EventFeed(graph)
    graph.apply(added((4, 3, 30), (4, 5, 31)))
    updates = lg.Updates()
    updates.remove_edge(4, 3)
    updates.remove_edge(0, 1)
    graph.apply(updates)
    arrived = feed.take()
    assert rows(arrived.events) == [(4, 5, 31, 3)]
    assert arrived.removed.tolist() == [0]


def test_a_removed_vertex_is_named_even_when_it_comes_back_at_once():
    graph = dated()
    feed = EventFeed(graph)
    updates = lg.Updates()
    updates.remove_vertex(1)
    updates.add_vertex(1, np.zeros(0, np.float32))
    updates.remove_vertex(5)
    graph.apply(updates)
    arrived = feed.take()
    assert arrived.vertices.tolist() == [1, 5]
    assert arrived.removed.tolist() == [0, 1]


def test_a_refused_batch_brings_nothing():
    graph = dated()
    feed = EventFeed(graph)
    updates = added((4, 3, 30))
    updates.remove_edge(0, 5)
    with pytest.raises(lg.errors.EdgeMissing):
        graph.apply(updates)
    graph.apply(added((0, 5, 40)))
    assert rows(feed.take().events) == [(0, 5, 40, 2)]


def test_a_closed_feed_hears_no_more():
    graph = dated()
    feed = EventFeed(graph)
    feed.close()
    graph.apply(added((4, 3, 30)))
    assert feed.waiting == 0


def test_string_ids_are_slots_in_events():
    graph = lg.Graph(np.zeros((2, 0), np.float32), ["a"], ["b"], time=[1], ids=["a", "b"])
    feed = EventFeed(graph)
    updates = lg.Updates()
    updates.add_vertex("c", np.zeros(0, np.float32))
    updates.add_edge("c", "a", time=2)
    graph.apply(updates)
    assert rows(feed.take().events) == [(2, 0, 2, 1)]


def test_events_of_a_graph_and_their_order():
    graph = dated()
    graph.apply(added((3, 4, 5)))
    events = Events.of(graph)
    assert rows(events) == [(0, 1, 10, 0), (1, 2, 20, 1), (3, 4, 5, 2)]
    assert events.in_time_order().edge_ids.tolist() == [2, 0, 1]


def table_of(count, history=0):
    ids = np.arange(count, dtype=np.int64) * 2
    return EventTable(Events(ids + 100, ids + 200, 1000 - ids, ids, 0 * ids), history)


def test_a_table_grows_and_forgets_removed_edges():
    table = table_of(3)
    for first in range(3, 3000, 7):
        ids = np.arange(first, first + 7, dtype=np.int64) * 2
        table.append(Events(ids + 100, ids + 200, ids + 300, ids, 0 * ids))
    assert len(table) == 3 + 7 * len(range(3, 3000, 7))
    table.remove(np.array([4, 5, 10_000_000], np.int64))  # 5 and the last were never here
    assert table.between(0, 4).edge_ids.tolist() == [0, 2, 6]


def test_the_history_of_a_table_stands_in_order_of_time():
    table = table_of(10, history=12)  # six of history, by time, which falls with the id
    assert table.between(0, 10).edge_ids.tolist() == [10, 8, 6, 4, 2, 0, 12, 14, 16, 18]
    table.remove(np.array([8, 14], np.int64))
    assert table.between(0, 10).edge_ids.tolist() == [10, 6, 4, 2, 0, 12, 16, 18]


def test_marks_outlive_removals_and_growth():
    table = table_of(10, history=12)
    marks = [table.mark(place) for place in range(11)]
    assert [table.place(mark) for mark in marks] == list(range(11))
    ids = np.array([0, 2, 4, 10, 12, 16, 18], np.int64)  # 6, 8 and 14 have gone
    again = EventTable(Events(ids + 100, ids + 200, 1000 - ids, ids, 0 * ids), 12)
    assert [again.place(mark) for mark in marks] == [0, 1, 1, 1, 2, 3, 4, 5, 5, 6, 7]
    more = np.array([20, 22], np.int64)
    again.append(Events(more, more, more, more, 0 * more))
    assert again.place(marks[10]) == 7


def test_drawing_from_a_table():
    table = table_of(50)
    table.remove(np.array([20], np.int64))
    drawn = table.draw(15, 30, np.random.default_rng(0)).edge_ids
    assert len(drawn) == 15
    assert (np.diff(drawn) > 0).all()
    assert drawn.max() < 60
    assert 20 not in drawn
    assert len(table.draw(100, 30, np.random.default_rng(0))) == 29
    assert len(table.draw(5, 0, np.random.default_rng(0))) == 0
