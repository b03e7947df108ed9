"""ClusterParts: the parts of a live graph that workers hold, kept at one version; what the driver of a training knows
of them.

The driver has the whole graph, and accepts each batch first. A recorder keeps what came, as pickled Updates. Before a
round (plan, under the graph's lock) each worker is due either the batches since its version or, where it has no part
yet, a part cut from the graph of now; deliver() sends them. Workers apply without a vote, as the graph has agreed, and
send each other the ids of edges that changed. (A worker that got a new part has none: then all caches are new.) The
driver follows newcomers as they do, so a part that is cut later has the vertices that it would have by then.

Invariant: after deliver() every worker's part is at the planned version, and stays there until the next one.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.distributed.exchange import check_parts
from livegnn.distributed.graph_part import BatchEffect, Partition
from livegnn.distributed.layout import Layout
from livegnn.distributed.partition import NewcomerRule, Newcomers, VertexParts
from livegnn.distributed.ray_group import RayGroup
from livegnn.distributed.ray_worker import RayWorker
from livegnn.errors import InvariantBroken
from livegnn.graph import Graph, Updates
from livegnn.graph.consumers import Consumer, Recorded, Recorder
from livegnn.types import AnyArray

_NOWHERE = -1


class ClusterParts:
    """Which version each worker's part is at, and what it is due.

    Args:    graph: the whole one.  parts: who owns each vertex.  rule: for those that come.
    slot_count: of the graph at the planned version.
    """

    def __init__(self, graph: Graph, group: RayGroup, parts: VertexParts, rule: NewcomerRule) -> None:
        self._graph, self._group = graph, group
        self._layout = Layout(hosts=1, workers_per_host=group.size)
        self._starts, self._versions = [0] * group.size, [_NOWHERE] * group.size
        self._due: list[tuple[Any, ...]] = []
        with graph.host.writing("ClusterParts"):
            self._kept = _BatchLog(graph)
            self._followed = _FollowedNewcomers(Newcomers.of(graph, parts, rule=rule))
            self.slot_count = graph.slot_count
            graph.host.add_recorder(self._kept)
            graph.host.attach(self._followed)

    def owners(self, slot_count: int) -> AnyArray:
        """The worker that owns each of the first slots, (slot_count,); at most as many as at the planned version."""
        return self._followed.newcomers.parts.of_first(slot_count)

    def plan(self) -> None:
        """Finds out what workers are due. The caller holds the graph's lock."""
        version, graph = self._graph.version, self._graph
        for rank, starts in enumerate(self._group.starts):
            if starts != self._starts[rank]:
                self._starts[rank], self._versions[rank] = starts, _NOWHERE
        self.slot_count = graph.slot_count
        self._kept.drop(min([v for v in self._versions if v != _NOWHERE], default=version))
        self._due = []
        for rank, at in enumerate(self._versions):
            cut = None
            if at == _NOWHERE:
                cut = Partition.arrays(graph, self._layout, rank, self._followed.newcomers)
            self._due.append((cut, [] if cut is not None else self._kept.since(at), self._layout, version))

    def deliver(self) -> None:
        """Brings every worker's part to the planned version. Raises: WorkerUnavailable, as RayGroup.call()."""
        due, self._due = self._due, []
        before, self._versions = self._versions, [_NOWHERE] * len(due)
        if all(cut is None and not batches for cut, batches, *_ in due):
            self._versions = before
            return
        self._versions = self._group.call(follow, each=due)

    def close(self) -> None:
        """Follows the graph no more."""
        with self._graph.host.lock:
            self._graph.host.drop_recorder(self._kept)
            self._graph.host.detach(self._followed)


def follow(
    worker: RayWorker, cut: dict[str, AnyArray] | None, batches: list[bytes], layout: Layout, version: int
) -> int:
    """In a worker: takes its part, or what came since. The version that the part is at."""
    if cut is not None:
        writable = {name: array.copy() for name, array in cut.items()}  # Ray's arrays are shared and cannot be written
        worker.kept["part"] = Partition.from_arrays(writable, layout, worker.rank)
    part: Partition = worker.kept["part"]
    edges = _ChangedEdges()
    part.listen(edges)
    for batch in batches:
        part.apply(pickle.loads(batch), _Alone())
    if part.graph.attr_width:
        part.inform(edges.of_all(worker))
    if part.graph.version != version:
        raise InvariantBroken(
            f"[follow] expected part {worker.rank} at version {version}, got {part.graph.version}; make a new trainer"
        )
    return version


class _ChangedEdges:
    """The edges of this part that batches change or remove. Listens to a part; of_all() joins those of all parts."""

    def __init__(self) -> None:
        self._found = [np.zeros((0, 2), np.int64)]  # id, and whether the edge is gone

    def changed(self, changes: BatchEffect) -> None:
        """After a batch."""
        for ids, gone in ((changes.edge_ids, 0), (changes.edge_ids_gone, 1)):
            self._found.append(np.stack([ids, np.full(len(ids), gone)], axis=1))

    def of_all(self, worker: RayWorker) -> BatchEffect:
        """Those of every worker's part, on every worker."""
        sent = np.concatenate(worker.exchange.gather(np.concatenate(self._found)))
        return BatchEffect.of_edges(sent[:, 0], sent[:, 1] != 0)


class _FollowedNewcomers(Consumer):
    """Newcomers with every batch of a graph that stands."""

    needs_all_edges = False

    def __init__(self, newcomers: Newcomers) -> None:
        self.newcomers, self.follower = newcomers, _native.BatchTap([])

    def published(self, change: Any, version: int) -> None:
        """Takes the batch, in slots, from the follower."""
        self.newcomers.follow(self.follower.latest())


class _BatchLog(Recorder):
    """The batches of a graph since some version."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._first, self._batches = graph, graph.version, list[bytes]()
        self._appended = False

    def since(self, version: int) -> list[bytes]:
        """Those that lead on from a version."""
        return self._batches[version - self._first :]

    def drop(self, version: int) -> None:
        """Those up to a version are needed no more."""
        del self._batches[: version - self._first]
        self._first = version

    def prepare(self, recorded: Recorded) -> None:
        """Agrees."""
        self._appended = False

    def append(self, recorded: Recorded) -> None:
        """A switch is a version without updates."""
        self._batches.append(pickle.dumps(recorded if isinstance(recorded, Updates) else Updates()))
        self._appended = True

    def abort(self) -> None:
        """Forgets the batch."""
        if self._appended:
            self._batches.pop()
        self._appended = False


class _Alone:
    """The exchange of a worker that asks no other."""

    rank, size = 0, 1

    def swap(self, parts: Any) -> list[AnyArray]:
        check_parts(parts, 1)
        return list(parts)

    def gather(self, part: AnyArray) -> list[AnyArray]:
        return [part]

    def sum(self, values: Any) -> Any:
        return values
