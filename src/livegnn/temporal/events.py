"""Events: added edges as columns in order of edge id; what a graph's batches bring, and the table of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from livegnn import _native
from livegnn.graph import Graph
from livegnn.graph.consumers import Consumer
from livegnn.types import BoolArray, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Edges as events: (n,) int64 each; src and dst are slots, edge_types codes, 0 where edges have no types."""

    src: Int64Array
    dst: Int64Array
    time: Int64Array
    edge_ids: Int64Array
    edge_types: Int64Array

    def __len__(self) -> int:
        return len(self.src)

    def at(self, places: Int64Array | BoolArray | slice) -> Events:
        """The events at these places, in this order."""
        return Events(*(column[places] for column in self.columns()))

    def columns(self) -> tuple[Int64Array, ...]:
        """src, dst, time, edge_ids, edge_types."""
        return self.src, self.dst, self.time, self.edge_ids, self.edge_types

    def parted(self, count: int) -> tuple[Events, Events]:
        """The first `count` events, and the rest."""
        return self.at(slice(0, count)), self.at(slice(count, None))

    def in_time_order(self) -> Events:
        """By (time, edge id)."""
        return self.at(np.lexsort((self.edge_ids, self.time)))

    @classmethod
    def of(cls, graph: Graph, edge_types: Sequence[int] = ()) -> Events:
        """Every edge of a graph that is in memory, by id, or those of some types; an undirected one once, its smaller
        slot as the source; without times at 0.
        """
        edges = graph.host.store.edges()
        ids = edges["id"].astype(np.int64, copy=False)
        time, types = (edges.get(name, np.zeros(len(ids), np.int64)) for name in ("time", "type"))
        found = cls(*(column.astype(np.int64) for column in (edges["src"], edges["dst"], time, ids, types)))
        return found.at(np.isin(found.edge_types, edge_types)) if len(edge_types) else found


def joined(first: Events, second: Events) -> Events:
    """The events of both."""
    return Events(*(np.concatenate(pair) for pair in zip(first.columns(), second.columns(), strict=True)))


def smaller_first(graph: Graph, events: Events) -> Events:
    """Events of an undirected graph with the smaller slot as the source; those of a directed graph as they are.

    An undirected edge has no direction, and a model that learns roles is to see its ends in one order.
    """
    if not graph.undirected:
        return events
    return replace(events, src=np.minimum(events.src, events.dst), dst=np.maximum(events.src, events.dst))


class Arrived(NamedTuple):
    """What some batches brought: events, ids of older edges that were removed, slots that lost their vertex."""

    events: Events
    removed: Int64Array
    vertices: Int64Array


def arrived(graph: Graph, follower: _native.Arrivals) -> Arrived:
    """What a follower has kept, in order of edge id; it begins anew. The caller holds the graph's lock."""
    *columns, removed, vertices = follower.take()
    return Arrived(smaller_first(graph, Events(*columns)), removed, vertices)


class EventFeed(Consumer):
    """Follows a graph and keeps what its batches bring until it is taken; 40 bytes an event.

    In an undirected graph an event's source is its smaller slot. Thread-safe by the graph's lock.

    Args:    edge_types: codes of the types whose edges are events; all unless given.
    """

    needs_all_edges = False  # it reads the edges that come

    def __init__(self, graph: Graph, edge_types: Sequence[int] = ()) -> None:
        self.graph = graph
        with graph.host.writing("EventFeed"):
            self.follower = _native.Arrivals(graph.host.store, list(edge_types))
            graph.host.attach(self)

    def published(self, change: Any, version: int) -> None:
        """Nothing: the native half keeps what came."""

    @property
    def waiting(self) -> int:
        """Events that were not taken yet."""
        with self.graph.host.lock:
            return int(self.follower.count())

    def take(self) -> Arrived:
        """What came since the last call, in order of edge id."""
        with self.graph.host.lock:
            return arrived(self.graph, self.follower)

    def close(self) -> None:
        """Follows no more."""
        self.graph.host.detach(self)


class Mark(NamedTuple):
    """A boundary between events that stays right when events are removed, and when the table is made anew."""

    later: int  # 0: in the history, by (time, edge id); 1: after it, by edge id
    time: int
    edge_id: int


class EventTable:
    """All events so far, and which of them are still edges. Grows at the end, amortised; places are stable.

    The history, events whose ids are below history_end, stands in order of (time, edge id), what came later in order of
    edge id. Args:  events: in order of edge id.
    """

    def __init__(self, events: Events, history_end: int) -> None:
        first = int(np.searchsorted(events.edge_ids, history_end))
        history, later = events.parted(first)
        self._columns = list(joined(history.in_time_order(), later).columns())
        self._there = np.ones(len(events), np.bool_)
        self._count = len(events)
        self._history, self.history_end = first, history_end
        self._by_id = np.argsort(self._columns[3][:first], kind="stable")

    def __len__(self) -> int:
        """Events, those of removed edges included."""
        return self._count

    def append(self, events: Events) -> None:
        """Events that came later; those that were appended already are ignored."""
        if self._count > self._history:
            events = events.at(events.edge_ids > self._columns[3][self._count - 1])
        end = self._count + len(events)
        if end > len(self._there):
            room = max(end, 2 * len(self._there), 1024)
            self._columns = [np.concatenate([c, np.zeros(room - len(c), np.int64)]) for c in self._columns]
            self._there = np.concatenate([self._there, np.zeros(room - len(self._there), np.bool_)])
        for column, new in zip(self._columns, events.columns(), strict=True):
            column[self._count : end] = new
        self._there[self._count : end] = True
        self._count = end

    def remove(self, edge_ids: Int64Array) -> None:
        """These edges are gone; ids that are not here are ignored."""
        ids, history = self._columns[3], self._history
        self._there[_places(ids[:history], edge_ids, self._by_id)] = False
        self._there[history + _places(ids[history : self._count], edge_ids)] = False

    def between(self, first: int, last: int) -> Events:
        """The events at places [first, last) whose edges are still there."""
        return self._at(first + np.flatnonzero(self._there[first : min(last, self._count)]))

    def draw(self, count: int, last: int, rng: np.random.Generator) -> Events:
        """So many events from places [0, last), or all, each at most once, in order of place; removed ones never."""
        places = np.flatnonzero(self._there[: last if count else 0])
        if count < len(places):
            places = places[np.sort(rng.choice(len(places), count, replace=False))]
        return self._at(places)

    def _at(self, places: Int64Array) -> Events:
        return Events(*(column[places] for column in self._columns))

    def mark(self, place: int) -> Mark:
        """What stands for the boundary before this place; of the end of the table, what comes next is after it."""
        if place < self._history:
            return Mark(0, int(self._columns[2][place]), int(self._columns[3][place]))
        if place < self._count:
            return Mark(1, 0, int(self._columns[3][place]))
        last = int(self._columns[3][self._count - 1]) + 1 if self._count > self._history else self.history_end
        return Mark(1, 0, last)

    def place(self, mark: Mark) -> int:
        """The place of a boundary."""
        if mark.later:
            rest = self._columns[3][self._history : self._count]
            return self._history + int(np.searchsorted(rest, mark.edge_id))
        times, ids = self._columns[2][: self._history], self._columns[3][: self._history]
        return int(np.sum((times < mark.time) | ((times == mark.time) & (ids < mark.edge_id))))


def _places(ids: Int64Array, wanted: Int64Array, order: Int64Array | None = None) -> Int64Array:
    """Where the wanted ids stand among ids, which ascend when read in this order; those that are not there are ignored.

    Cost: O(wanted · log ids).
    """
    at = np.searchsorted(ids, wanted, sorter=order)
    inside = at < len(ids)
    places = at[inside] if order is None else order[at[inside]]
    found: Int64Array = places[ids[places] == wanted[inside]]
    return found
