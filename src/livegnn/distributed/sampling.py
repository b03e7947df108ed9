"""RemoteSampler: hops of the whole graph, sampled where its parts are. A HopSource like TemporalSampler.

One hop: each target goes to the worker that serves its part -> that worker samples one hop of its part -> counts
and edges come back and are put in the order of the targets. Two exchanges a hop, whatever the targets, and every worker
takes part in each, with no targets too. The next hop's targets are made here, as the native sampler makes them.

Exactness: equal, array by array, to TemporalSampler of the whole graph with the same arguments and number of the call:
a target is sampled under its row's number in the whole hop, wherever that is done.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.distributed.exchange import Exchange, Route
from livegnn.distributed.graph_part import Partition
from livegnn.errors import VertexUnknown, WidthMismatch
from livegnn.graph.checks import id_array, time_array, time_unit
from livegnn.graph.updates import VertexType
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.sampler import TemporalSampler
from livegnn.types import AnyArray, Float32Array, Int64Array


class RemoteSampler:
    """Samples of the whole graph; every worker makes the same calls, each with targets of its own, perhaps none.

    Args:    partition: this worker's.  exchange: to the others.  options: of TemporalSampler, the same everywhere.
    Raises:  as TemporalSampler.
    Cost:    of a hop: two exchanges, 24 + 8 bytes a target; 24 for each edge found, 8 more where it has a type, and 8
             where it has a weight.  Source: GNNFlow 4.4.
    """

    def __init__(self, partition: Partition, exchange: Exchange, fanouts: object, **options: Any) -> None:
        options = {"threads": 1, **options}
        whole = TemporalSampler(partition.graph, fanouts, **options)  # type: ignore[arg-type]
        self.graph, self.fanouts, self.snapshots = partition.graph, whole.fanouts, whole.snapshots
        self.calls = 0
        self.seconds, self.targets_served = 0.0, 0  # at work, waiting for others left out; targets sampled for anybody
        self._partition, self._exchange = partition, exchange
        self._prop_time, self._unique = whole.prop_time, whole.unique
        self._sampler = TemporalSampler(partition.graph, self.fanouts, **{**options, "unique": False})
        schema = partition.graph.host.schema
        self._columns = [  # of the edges that another worker answers with, as int64
            *("src", "edge_ids", "times"),
            *(["edge_types"] if partition.graph.has_type or schema.has_types else []),
            *(["weights"] if partition.graph.has_weight else []),
        ]
        self.held_edges: list[tuple[Int64Array, Int64Array]] = []  # of the last call: edge ids, and who holds them

    def sample(self, vertices: object, times: object, *, vertex_type: VertexType | None = None) -> list[TemporalHop]:
        """The hops of targets as TemporalSampler.sample() takes them. Raises: as sample_slots(); DtypeInvalid."""
        with self.graph.host.lock:
            slots = self.graph.host.ids.slots("sample", vertices, vertex_type, name="vertices")
        return self._of_slots("sample", slots, times, 1)[0]

    def sample_slots(self, slots: object, times: object) -> list[TemporalHop]:
        """The hops from these targets outward: (B,) slots and times, in the unit of the graph's times.

        Raises:  VertexUnknown, WidthMismatch, DtypeInvalid, ValueInvalid.
        """
        return self._of_slots("sample_slots", slots, times, 1)[0]

    def sample_snapshot_slots(self, slots: object, times: object) -> list[list[TemporalHop]]:
        """The hops of each snapshot, newest first; one call. Raises: as sample_slots()."""
        return self._of_slots("sample_snapshot_slots", slots, times, self.snapshots)

    def event_weights(self, dst: Int64Array, times: Int64Array, edge_ids: Int64Array) -> Float32Array:
        """(n,) weights of edges into these slots, from the owners. Raises: EdgeMissing, in the owner."""
        exchange, store = self._exchange, self.graph.host.store
        route = Route(self._partition.servers_of(dst), exchange.size)
        answers = []
        for request in exchange.swap(route.split(np.stack([dst, times, edge_ids], axis=1))):
            into, at, ids = np.ascontiguousarray(request.T)
            with self.graph.host.lock:
                answers.append(_native.event_weights(store, into, at, ids))
        return route.joined(exchange.swap(answers))

    def _of_slots(self, where: str, slots: object, times: object, snapshots: int) -> list[list[TemporalHop]]:
        numbers, at = id_array(where, "slots", slots), time_array(where, "times", times)
        self.graph.host.same_unit(where, time_unit(times))
        if numbers.shape != at.shape:
            raise WidthMismatch(
                f"[{where}] expected a time for each target, got {len(at)} for {len(numbers)}; pass one each"
            )
        live = self._partition.is_live(numbers)
        if not live.all():
            row = int(np.argmin(live))
            raise VertexUnknown(
                f"[{where}] expected live vertices as targets, got {numbers[row]} at row {row}; add the vertex first"
            )
        self.held_edges = []
        found: list[list[TemporalHop]] = [[] for _ in range(snapshots)]
        for snapshot, hops in enumerate(found):
            targets = numbers, at
            for depth in range(len(self.fanouts)):
                hops.append(self._hop(depth, *targets, snapshot))
                targets = hops[-1].next_targets, hops[-1].next_times
        self.calls = (self.calls + 1) % 2**64
        return found

    # ---- a hop

    def _hop(self, depth: int, targets: Int64Array, times: Int64Array, snapshot: int) -> TemporalHop:
        exchange, began = self._exchange, time.thread_time()
        route = Route(self._partition.servers_of(targets), exchange.size)
        asked = route.split(np.stack([np.arange(len(targets)), targets, times], axis=1))
        head = np.array([[len(targets), self.calls, 0]], np.uint64).view(np.int64)
        requests = [np.concatenate([head, rows]) for rows in asked]
        self.seconds += time.thread_time() - began
        requests = exchange.swap(requests)
        began = time.thread_time()
        answers = [self._serve(depth, request, snapshot) for request in requests]
        self.seconds += time.thread_time() - began
        answers = exchange.swap(answers)
        began = time.thread_time()
        hop = self._merged(targets, times, route, answers)
        self.seconds += time.thread_time() - began
        return hop

    def _serve(self, depth: int, request: AnyArray, snapshot: int) -> Int64Array:
        """One hop of this part for a worker: how many edges each of its targets has, then their columns."""
        (_, call, _), rows = request[0], np.ascontiguousarray(request[1:].T)
        places, slots, times = rows
        if not len(places):
            return np.zeros(0, np.int64)
        self.targets_served += len(places)
        hop = self._sampler.sample_rows(slots, times, places, depth, int(call) % 2**64, snapshot)
        columns = [getattr(hop, name) for name in self._columns]
        if hop.weights is not None:
            columns[-1] = hop.weights.view(np.int32)  # the bits travel as a number
        return np.concatenate([np.diff(hop.ptr), *columns]).astype(np.int64, copy=False)

    def _merged(self, targets: Int64Array, times: Int64Array, route: Route, answers: list[AnyArray]) -> TemporalHop:
        """The answers as one hop, in the order of the targets."""
        places = route.places
        counts = np.zeros(len(targets), np.int64)
        for rows, answer in zip(places, answers, strict=True):
            counts[rows] = answer[: len(rows)]
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        edges = np.empty((len(self._columns), ptr[-1]), np.int64)
        holders = np.empty(ptr[-1], np.int64)
        for server, (rows, answer) in enumerate(zip(places, answers, strict=True)):
            of_row = counts[rows]
            ends = np.cumsum(of_row)
            at = np.arange(of_row.sum()) + np.repeat(ptr[rows] - (ends - of_row), of_row)
            edges[:, at] = answer[len(rows) :].reshape(len(self._columns), -1)
            holders[at] = server
        found = dict(zip(self._columns, edges, strict=True))
        src, edge_ids, edge_times = (found.pop(name) for name in ("src", "edge_ids", "times"))
        self.held_edges.append((edge_ids, holders))
        dst = np.repeat(np.arange(len(targets)), counts)
        next_edge_times = times[dst] if self._prop_time else edge_times
        next_targets, next_times = np.concatenate([targets, src]), np.concatenate([times, next_edge_times])
        src_rows = np.arange(len(targets), len(next_targets))
        if self._unique:
            src_rows, next_targets, next_times = _once(len(targets), next_targets, next_times)
        return TemporalHop(
            *(targets, times, ptr, src, edge_ids, edge_times, np.stack([src_rows, dst]), next_targets, next_times),
            next_types=self._types(next_targets),
            edge_types=found.get("edge_types"),
            weights=found["weights"].astype(np.int32).view(np.float32) if "weights" in found else None,
        )

    def _types(self, slots: Int64Array) -> Int64Array | None:
        """Codes of vertices' types; None where they have none."""
        host = self.graph.host
        if not host.schema.has_types:
            return None
        with host.lock:
            return host.store.slot_types(slots).astype(np.int64)


def _once(count: int, slots: Int64Array, times: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Rows of the sources where each pair after the first `count` stands once, in order of first sight."""
    _, first, group = np.unique(np.stack([slots, times]), axis=1, return_index=True, return_inverse=True)
    seen_at = first[group.reshape(-1)]  # the first row of the same pair
    fresh = seen_at == np.arange(len(slots))
    fresh[:count] = True
    rows = (np.cumsum(fresh) - 1)[seen_at]
    return rows[count:], slots[fresh], times[fresh]
