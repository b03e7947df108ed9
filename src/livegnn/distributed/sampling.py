"""RemoteSampler: hops of the whole graph, sampled where its parts are. A HopSource like TemporalSampler.

One hop: each target goes to the worker that Layout names for it -> that worker samples one hop of its part -> counts
and edges come back and are put in the order of the targets. Two exchanges a hop, whatever the targets, and every worker
takes part in each, with no targets too. The next hop's targets are made here, as the native sampler makes them.

Exactness: equal, array by array, to TemporalSampler of the whole graph with the same arguments and number of the call;
drawn samples keep their rows' numbers (draws.py).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from livegnn.distributed.draws import call_of_hop, rows_apart
from livegnn.distributed.exchange import Exchange, Route
from livegnn.distributed.graph_part import Partition
from livegnn.errors import VertexUnknown, WidthMismatch
from livegnn.graph.checks import id_array, time_array, time_unit
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.sampler import TemporalSampler
from livegnn.types import AnyArray, Int64Array

__all__ = ["RemoteSampler"]


class RemoteSampler:
    """Samples of the whole graph; every worker makes the same calls, each with targets of its own, perhaps none.

    Args:    partition: this worker's.  exchange: to the others.  options: of TemporalSampler, the same everywhere.
    Raises:  as TemporalSampler.
    Cost:    of a hop: two exchanges, 24 + 8 bytes a target and 24 for each edge found.  Source: GNNFlow 4.4.
    """

    def __init__(self, partition: Partition, exchange: Exchange, fanouts: object, **options: Any) -> None:
        options = {"threads": 1, **options}
        whole = TemporalSampler(partition.graph, fanouts, **options)  # type: ignore[arg-type]
        self.graph, self.fanouts, self.snapshots = partition.graph, whole.fanouts, whole.snapshots
        self.calls = 0
        self.seconds, self.targets_served = 0.0, 0  # at work, waiting for others left out; targets sampled for anybody
        self._partition, self._exchange = partition, exchange
        self._seed, self._drawn = whole.seed, whole.strategy == "uniform"
        self._prop_time, self._unique = whole.prop_time, whole.unique
        one_hop = {**options, "unique": False}
        self._samplers = [TemporalSampler(partition.graph, [fanout], **one_hop) for fanout in self.fanouts]
        self.held_edges: list[tuple[Int64Array, Int64Array]] = []  # of the last call: edge ids, and who holds them

    def sample(self, vertices: object, times: object) -> list[TemporalHop]:
        """sample_slots() of arrays as TemporalSampler.sample() takes them. Raises: DtypeInvalid, ValueInvalid too."""
        return self._sample("sample", vertices, times, 1)[0]

    def sample_slots(self, slots: object, times: object) -> list[TemporalHop]:
        """The hops from these targets outward: (B,) slots and times, in the unit of the graph's times.

        Raises:  VertexUnknown, WidthMismatch, DtypeInvalid, ValueInvalid.
        """
        return self._sample("sample_slots", slots, times, 1)[0]

    def sample_snapshot_slots(self, slots: object, times: object) -> list[list[TemporalHop]]:
        """The hops of each snapshot, newest first; one call. Raises: as sample_slots()."""
        return self._sample("sample_snapshot_slots", slots, times, self.snapshots)

    def _sample(self, where: str, vertices: object, moments: object, snapshots: int) -> list[list[TemporalHop]]:
        slots, times = id_array(where, "vertices", vertices), time_array(where, "times", moments)
        self.graph.host.same_unit(where, time_unit(moments))
        self._check(where, slots, times)
        self.held_edges = []
        found = []
        for snapshot in range(snapshots):
            hops: list[TemporalHop] = []
            targets, at = slots, times
            for depth in range(len(self.fanouts)):
                hops.append(self._hop(depth, targets, at, snapshot))
                targets, at = hops[-1].next_targets, hops[-1].next_times
            found.append(hops)
        self.calls = (self.calls + 1) % 2**64
        return found

    def _check(self, where: str, slots: Int64Array, times: Int64Array) -> None:
        if slots.shape != times.shape:
            raise WidthMismatch(
                f"[{where}] expected a time for each target, got {len(times)} for {len(slots)}; pass one each"
            )
        live = self.graph.is_live(slots)
        if not live.all():
            row = int(np.argmin(live))
            raise VertexUnknown(
                f"[{where}] expected live vertices as targets, got {slots[row]} at row {row}; add the vertex first"
            )

    # ---- a hop

    def _hop(self, depth: int, targets: Int64Array, times: Int64Array, snapshot: int) -> TemporalHop:
        exchange, began = self._exchange, time.thread_time()
        servers = self._partition.layout.servers_of(targets, exchange.rank)
        route = Route(servers, exchange.size)
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
        """One hop of this part for a worker: how many edges each of its targets has, then src, edge_ids, times."""
        (count, call, _), rows = request[0], np.ascontiguousarray(request[1:].T)
        places, slots, times = rows
        if not len(places):
            return np.zeros(0, np.int64)
        self.targets_served += len(places)
        sampler, number = self._samplers[depth], call_of_hop(self._seed, int(call) % 2**64, depth)
        if self._drawn:
            slots, times = rows_apart(slots, times, places, int(count))
        with self.graph.host.lock:
            (arrays,) = sampler._native.sample(slots, times, number, snapshot, None)
        hop = TemporalHop(*arrays)
        counts = np.diff(hop.ptr)
        return np.concatenate([counts[places] if self._drawn else counts, hop.src, hop.edge_ids, hop.times])

    def _merged(self, targets: Int64Array, times: Int64Array, route: Route, answers: list[AnyArray]) -> TemporalHop:
        """The answers as one hop, in the order of the targets."""
        places = route.places
        counts = np.zeros(len(targets), np.int64)
        for rows, answer in zip(places, answers, strict=True):
            counts[rows] = answer[: len(rows)]
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        edges = np.empty((3, ptr[-1]), np.int64)
        holders = np.empty(ptr[-1], np.int64)
        for server, (rows, answer) in enumerate(zip(places, answers, strict=True)):
            of_row = counts[rows]
            ends = np.cumsum(of_row)
            at = np.arange(of_row.sum()) + np.repeat(ptr[rows] - (ends - of_row), of_row)
            edges[:, at] = answer[len(rows) :].reshape(3, -1)
            holders[at] = server
        src, edge_ids, edge_times = edges
        self.held_edges.append((edge_ids, holders))
        dst = np.repeat(np.arange(len(targets)), counts)
        next_edge_times = times[dst] if self._prop_time else edge_times
        next_targets, next_times = np.concatenate([targets, src]), np.concatenate([times, next_edge_times])
        src_rows = np.arange(len(targets), len(next_targets))
        if self._unique:
            src_rows, next_targets, next_times = _once(len(targets), next_targets, next_times)
        edge_index = np.stack([src_rows, dst])
        return TemporalHop(targets, times, ptr, src, edge_ids, edge_times, edge_index, next_targets, next_times)


def _once(count: int, slots: Int64Array, times: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Rows of the sources where each pair after the first `count` stands once, in order of first sight."""
    _, first, group = np.unique(np.stack([slots, times]), axis=1, return_index=True, return_inverse=True)
    seen_at = first[group.reshape(-1)]  # the first row of the same pair
    fresh = seen_at == np.arange(len(slots))
    fresh[:count] = True
    rows = (np.cumsum(fresh) - 1)[seen_at]
    return rows[count:], slots[fresh], times[fresh]
