"""The state of sampling workers between two steps, as arrays; joined into one and cut by another map.

Maps: owners[b] is the sampling worker of bucket b; serving[b] has a bit for each serving worker whose seeds are in b.
Invariants: a vertex's features and counts are in the state of its owner and no other; an edge is in the states that the
policy says, with its global id; everything else is the same in all states of a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn._native import EdgePolicy
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.graph.balance import UnitOwners, dealt_buckets
from livegnn.graph.ids import NamedIds
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.queries.schema import Schema
from livegnn.types import AnyArray, BoolArray, Float32Array

Int32Array: TypeAlias = npt.NDArray[np.int32]
Owners: TypeAlias = UnitOwners
Serving: TypeAlias = npt.NDArray[np.uint64]
ReasonArrays: TypeAlias = tuple[Int32Array, Int32Array, Int32Array, Int32Array]  # table, vertex, serving worker, count

COLUMNS: tuple[str, ...] = ("src", "dst", "id", "weight", "time", "type", "attr")
NO_TIME = -(2**63)


@dataclass(frozen=True)
class PartitionState:
    """One sampling worker's state, or that of all joined.

    live: (V,) uint8.  vertex_types: (V,) int32 codes, (0,) in a graph without.  edges: columns src, dst, id and, where
    the graph has them, weight, time, type, and attr where the spec keeps data of edges, by ascending id.
    features: ids (n,) int32 ascending and rows (n, F) float32.  counts: of reasons, sorted.  now: the largest time of
    any edge ever added.  step: the next one.  offset: the next entry of the history, which is also the version.
    inbox: the place in the worker's inbox from which messages are still needed.  ids: as NamedIds.to_arrays() has them,
    the same in every part; none where ids are slots.
    """

    live: npt.NDArray[np.uint8]
    vertex_types: Int32Array
    edges: dict[str, AnyArray]
    feature_vertices: Int32Array
    features: Float32Array
    counts: ReasonArrays
    owners: Owners
    serving: Serving
    next_edge_id: int
    now: int
    step: int
    offset: int
    inbox: int = 0
    ids: Mapping[str, AnyArray] = field(default_factory=dict)

    def named(self, schema: Schema) -> NamedIds | None:
        """The ids of the graph, None where they are slots. Raises: StoredStateInvalid."""
        if not self.ids:
            return None
        types = self.vertex_types if len(self.vertex_types) else np.where(self.live, 0, -1).astype(np.int32)
        return NamedIds.from_arrays(schema.of_ids(), self.ids, types)

    def fill(self, store: _native.GraphStore) -> None:
        """Puts live vertices and edges into an empty store of the spec's kind."""
        arrays = dict(self.edges)
        arrays["live"] = self.live
        arrays["features"] = np.empty((len(self.live), 0), np.float32)
        arrays["counters"] = np.array([self.offset, self.next_edge_id], np.int64)
        if len(self.vertex_types):
            arrays["vertex_type"] = self.vertex_types
        store.from_arrays(arrays)


def even_owners(workers: int) -> Owners:
    """The map that deals buckets out to sampling workers in turn. Raises: UsageError."""
    if type(workers) is not int or not 1 <= workers <= _native.BUCKETS:
        raise UsageError(f"[cluster] expected 1 to {_native.BUCKETS} sampling workers, got {workers!r}; choose another")
    return dealt_buckets(workers)


def even_serving(workers: int, replicas: int = 1) -> Serving:
    """The map that deals buckets out to `workers` partitions in turn, each served by `replicas` workers.

    Worker p + workers * r is replica r of partition p. Raises: UsageError for more than 64 in all.
    """
    numbers = (workers, replicas)
    if any(type(number) is not int or number < 1 for number in numbers) or workers * replicas > _native.SERVING_MAX:
        got = f"{workers!r} times {replicas!r}"
        raise UsageError(f"[cluster] expected 1 to {_native.SERVING_MAX} serving workers, got {got}; choose fewer")
    partition = np.arange(_native.BUCKETS, dtype=np.uint64) % np.uint64(workers)
    serving = np.zeros(_native.BUCKETS, np.uint64)
    for replica in range(replicas):
        serving |= np.uint64(1) << (partition + np.uint64(workers * replica))
    return serving


def check_serving(where: str, serving: Serving) -> None:
    """Refuses what is no map of all buckets to serving workers. Raises: UsageError."""
    if serving.shape != (_native.BUCKETS,) or serving.dtype != np.uint64 or not serving.all():
        raise UsageError(f"[{where}] expected 1024 uint64 masks with a bit each, got others; see even_serving")


def check_owners(where: str, owners: Owners) -> None:
    """Refuses what is no map of all buckets to sampling workers. Raises: UsageError for numbers with gaps."""
    good = owners.shape == (_native.BUCKETS,) and owners.dtype == np.uint16
    if not good or len(np.unique(owners)) != int(owners.max()) + 1:
        raise UsageError(f"[{where}] expected 1024 uint16 from 0 without gaps, got others; see even_owners")


def workers_in(serving: Serving) -> list[int]:
    """Numbers of the serving workers that own a bucket."""
    present = int(np.bitwise_or.reduce(serving))
    return [worker for worker in range(_native.SERVING_MAX) if present >> worker & 1]


def start_state(spec: ClusterSpec, graph: Graph) -> PartitionState:
    """The whole of a graph, with no subscriptions: what split() cuts into the first states of the workers."""
    with graph.host.lock:
        graph.host.need_all_edges("cluster")
        arrays = graph.host.store.to_arrays()
        ids = graph.host.ids.to_arrays()
        vertices = np.flatnonzero(arrays["live"])
        rows = graph.host.store.features(vertices, spec.feature_width)
    live = arrays["live"]
    offset, next_edge_id = (int(number) for number in arrays["counters"])
    edges = {name: arrays[name] for name in COLUMNS if name in arrays}
    if not spec.edge_columns.attr_width:
        edges.pop("attr", None)
    now = int(edges["time"].max()) if spec.schema.has_time and len(edges["id"]) else NO_TIME
    none, unserved = np.empty(0, np.int32), np.zeros(_native.BUCKETS, np.uint64)
    types, features = arrays.get("vertex_type", none), (vertices.astype(np.int32), rows)
    maps, numbers = (even_owners(1), unserved), (next_edge_id, now, 0, offset)
    return PartitionState(live, types, edges, *features, (none, none, none, none), *maps, *numbers, ids=ids)


def split(spec: ClusterSpec, whole: PartitionState, owners: Owners) -> list[PartitionState]:
    """The states of the sampling workers 0 to max(owners)."""
    edge_owner = [owners[_native.buckets(whole.edges[end])] for end in ("src", "dst")]
    feature_owner = owners[_native.buckets(whole.feature_vertices.astype(np.int64))]
    count_owner = owners[_native.buckets(whole.counts[1].astype(np.int64))]
    by_end = {EdgePolicy.BySource: edge_owner[:1], EdgePolicy.ByDestination: edge_owner[1:]}
    ends = by_end.get(spec.policy, edge_owner)
    parts = []
    for worker in range(int(owners.max()) + 1):
        kept: BoolArray = np.logical_or.reduce([end == worker for end in ends])
        mine, counted = feature_owner == worker, count_owner == worker
        parts.append(
            replace(
                whole,
                edges={name: column[kept] for name, column in whole.edges.items()},
                feature_vertices=whole.feature_vertices[mine],
                features=whole.features[mine],
                counts=cast(ReasonArrays, tuple(column[counted] for column in whole.counts)),
                owners=owners,
            )
        )
    return parts


def join(parts: Sequence[PartitionState]) -> PartitionState:
    """The whole that the states of all workers, of one step, are parts of. Raises: UsageError if they are not."""
    first = parts[0]
    for part in parts:
        if (part.step, part.offset) != (first.step, first.offset):
            got = f"{part.step} and {first.step}"
            raise UsageError(f"[join] expected states of one step, got {got}; take all of them at one step")
    ids = np.concatenate([part.edges["id"] for part in parts])
    _, places = np.unique(ids, return_index=True)  # an edge may be in two partitions; ids ascending
    edges = {name: np.concatenate([part.edges[name] for part in parts])[places] for name in first.edges}
    vertices = np.concatenate([part.feature_vertices for part in parts])
    order = np.argsort(vertices, kind="stable")
    counts = tuple(np.concatenate(columns) for columns in zip(*(part.counts for part in parts), strict=True))
    return replace(
        first,
        edges=edges,
        feature_vertices=vertices[order],
        features=np.concatenate([part.features for part in parts])[order],
        counts=cast(ReasonArrays, counts),
        next_edge_id=max(part.next_edge_id for part in parts),
        now=max(part.now for part in parts),
        inbox=0,
    )


def serving_flags(serving: Serving, worker: int) -> npt.NDArray[np.uint8]:
    """Which buckets' seeds are a serving worker's."""
    flags: npt.NDArray[np.uint8] = (serving >> np.uint64(worker) & np.uint64(1)).astype(np.uint8)
    return flags
