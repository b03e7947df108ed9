"""Events: added edges as columns in order of edge id; what a graph's batches bring, and the table of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from livegnn import _native
from livegnn.graph import Graph
from livegnn.types import BoolArray, Int64Array

__all__ = ["Arrived", "EventFeed", "EventTable", "Events"]


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Edges as events: (n,) int64 each; src and dst are slots."""

    src: Int64Array
    dst: Int64Array
    time: Int64Array
    edge_ids: Int64Array

    def __len__(self) -> int:
        return len(self.src)

    def at(self, places: Int64Array | BoolArray | slice) -> Events:
        """The events at these places, in this order."""
        return Events(self.src[places], self.dst[places], self.time[places], self.edge_ids[places])

    def columns(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """src, dst, time, edge_ids."""
        return self.src, self.dst, self.time, self.edge_ids

    def in_time_order(self) -> Events:
        """By (time, edge id)."""
        return self.at(np.lexsort((self.edge_ids, self.time)))

    @classmethod
    def none(cls) -> Events:
        """No events."""
        return cls(*(np.zeros(0, np.int64) for _ in range(4)))

    @classmethod
    def of(cls, graph: Graph) -> Events:
        """Every edge of a graph that is in memory, by id; an undirected one once, its smaller slot as the source;
        without times at 0.
        """
        edges = graph._store.edges()
        ids = edges["id"].astype(np.int64, copy=False)
        time = edges["time"] if graph.has_time else np.zeros(len(ids), np.int64)
        return cls(edges["src"].astype(np.int64), edges["dst"].astype(np.int64), time, ids)


class Arrived(NamedTuple):
    """What some batches brought: events, ids of older edges that were removed, slots that lost their vertex."""

    events: Events
    removed: Int64Array
    vertices: Int64Array


class EventFeed:
    """Follows a graph and keeps what its batches bring until somebody takes it; 32 bytes an event.

    Thread-safe by the graph's lock.
    """

    native = None
    needs_all_edges = False  # hears of those that come

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        with graph._writing("EventFeed"):
            self.follower = _native.Arrivals(graph._store)
            graph._attach(self)

    def _published(self, change: Any, version: int) -> None:
        return None

    @property
    def waiting(self) -> int:
        """Events that nobody took yet."""
        with self.graph._lock:
            return int(self.follower.count())

    def take(self) -> Arrived:
        """What came since the last call, in order of edge id."""
        with self.graph._lock:
            src, dst, time, ids, removed, vertices = self.follower.take()
        return Arrived(Events(src, dst, time, ids), removed, vertices)

    def close(self) -> None:
        """Follows no more."""
        self.graph._detach(self)


class EventTable:
    """All events so far, in order of edge id, and which of them are still edges. Grows at the end, amortised."""

    def __init__(self, events: Events) -> None:
        self._columns = [np.array(column) for column in events.columns()]
        self._there = np.ones(len(events), np.bool_)
        self._count = len(events)

    def __len__(self) -> int:
        """Events, those of removed edges included: places are stable."""
        return self._count

    def append(self, events: Events) -> None:
        """Events with ids above all that are here."""
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
        ids = self._columns[3][: self._count]
        places = np.searchsorted(ids, edge_ids)
        inside = places < self._count
        places = places[inside]
        self._there[places[ids[places] == edge_ids[inside]]] = False

    def between(self, first: int, last: int) -> Events:
        """The events at places [first, last) whose edges are still there."""
        there = self._there[first : min(last, self._count)]
        return Events(*(column[first : min(last, self._count)][there] for column in self._columns))

    def destinations(self, first: int, last: int) -> Int64Array:
        """Destinations of the events at places [first, last), those of removed edges included."""
        return self._columns[1][first : min(last, self._count)]

    def edge_id(self, place: int) -> int:
        """The edge id of the event at a place."""
        return int(self._columns[3][place])

    def place_of_id(self, edge_id: int) -> int:
        """The first place whose edge id is edge_id or more."""
        return int(np.searchsorted(self._columns[3][: self._count], edge_id))

    def draw(self, count: int, last: int, rng: np.random.Generator) -> Events:
        """So many events from places [0, last), or all, each at most once, in order of place; removed ones never."""
        places = np.flatnonzero(self._there[:last])
        if count < len(places):
            places = np.sort(rng.choice(places, count, replace=False))
        return Events(*(column[places] for column in self._columns))
