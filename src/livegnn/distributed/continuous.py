"""ContinuousClusterTrainer: a ContinuousTrainer whose passes over events are done by Ray workers.

The driver has the graph, the weights between passes and every decision: events, negatives, replay, checkpoints and
publication are the code of one process. Workers have a part of the graph each, sample and compute (cluster_pass.py),
and follow the graph's batches between rounds (parts.py). A round in which a worker dies or hangs is taken back whole;
the worker is replaced, and the round is done again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from livegnn.distributed.features import WorkerCache, check_worker_caches
from livegnn.distributed.graph_part import check_dated
from livegnn.distributed.partition import NewcomerRule, VertexParts
from livegnn.distributed.partition.by_name import Partitioner, parts_for
from livegnn.distributed.parts import ClusterParts
from livegnn.distributed.ray_group import FOR_TRAINING, RayGroup
from livegnn.errors import WorkerUnavailable
from livegnn.graph import Graph
from livegnn.temporal.caches.stats import HitCounts
from livegnn.temporal.checks import check_whole, checked_parts
from livegnn.temporal.link import LinkPass
from livegnn.temporal.loading import HopSource
from livegnn.temporal.report import RoundReport
from livegnn.temporal.sampler import TemporalSampler
from livegnn.temporal.trainer import ContinuousTrainer

if TYPE_CHECKING:
    import torch

    from livegnn.distributed.cluster_pass import ClusterMemory, ClusterPass
    from livegnn.temporal.models.interface import EventMemory, TemporalModel


class ContinuousClusterTrainer(ContinuousTrainer):
    """Trains a model on the events of a graph, and again on what comes, by Ray workers; verbs of ContinuousTrainer.

    Args:    model, graph, sampler: as ContinuousTrainer; the graph has times.  workers: one at least.
             address: of a Ray cluster; unless given, where the process is connected already, or this machine.
             backend: "gloo", or "nccl" with a GPU for each worker.  device: of the model in the workers.
             partition: which worker owns which vertex at the start: "hash", "metis" (pymetis), "ldg", "fennel", or
             VertexParts.  newcomers: "hash", "ldg" or "fennel", for vertices that come later.
             timeout_s: for which a worker waits for another, before the other counts as hung.
             restarts: times that one round is begun anew after workers were lost, before it raises.
             vertex_features, edge_features: WorkerCache, or None to ask the owners of rows each time.
             options: of ContinuousTrainer.
    Raises:  as ContinuousTrainer; UsageError for a Ray cluster with too few GPUs; ColumnMissing for a graph without
             times; ModelUnsupported for a memory that cannot be parted; DataMissing without ray.
    Source:  GNNFlow, sections 3, 4.4 and 6.1.
    """

    def __init__(
        self,
        model: TemporalModel,
        graph: Graph,
        sampler: TemporalSampler,
        *,
        workers: int = 2,
        address: str | None = None,
        backend: str = "gloo",
        device: torch.device | str = "cpu",
        partition: Partitioner | VertexParts = "hash",
        newcomers: NewcomerRule = "hash",
        vertex_features: WorkerCache | None = None,
        edge_features: WorkerCache | None = None,
        timeout_s: float = 300.0,
        restarts: int = 3,
        **options: Any,
    ) -> None:
        where = "ContinuousClusterTrainer"
        check_worker_caches(where, vertex_features, edge_features)
        check_dated(where, graph)
        checked_parts(where, model, graph, sampler, "cpu", live=True)
        check_whole(where, 0, restarts=restarts)
        self._restarts = restarts
        caches = {"vertex_features": vertex_features, "edge_features": edge_features}
        self._worker_options = {"device": device, **caches}
        self._group = RayGroup(
            where, workers, address=address, backend=backend, timeout_s=timeout_s, loads=FOR_TRAINING
        )
        owners = parts_for(where, graph, workers, partition)
        with ExitStack() as undo:
            self._parts = ClusterParts(graph, self._group, owners, newcomers)
            undo.callback(self._parts.close)
            super().__init__(model, graph, sampler, **options)
            undo.callback(super().close)
            self._cluster_pass.optimizer = self._optimizer
            self._group.connect()
            undo.pop_all()

    @property
    def worker_pids(self) -> list[int]:
        """Process numbers of the workers, on their machines."""
        return list(self._group.pids)

    @property
    def workers_replaced(self) -> int:
        """How often a worker was started in place of one that was lost."""
        return sum(self._group.starts) - self._group.size

    def fit(self, epochs: int | None = None, *, validation: float = 0.0, patience: int | None = None) -> RoundReport:
        """As ContinuousTrainer. Raises: WorkerUnavailable where workers are lost again and again."""
        call = super().fit
        return self._again(lambda: call(epochs, validation=validation, patience=patience))

    def take_as_trained(self) -> RoundReport:
        """As ContinuousTrainer. Raises: WorkerUnavailable where workers are lost again and again."""
        return self._again(super().take_as_trained)

    def round(self) -> RoundReport:
        """As ContinuousTrainer. Raises: WorkerUnavailable where workers are lost again and again."""
        return self._again(super().round)

    def close(self) -> None:
        """Ends the workers, too."""
        try:
            super().close()
        finally:
            self._parts.close()
            self._group.close()

    def _again(self, call: Callable[[], RoundReport]) -> RoundReport:
        """What the call returns; it is begun anew where it was taken back because a worker was lost."""
        for _ in range(self._restarts):
            try:
                return call()
            except WorkerUnavailable as error:
                if error is not self._group.lost:
                    raise
        return call()

    # ---- what ContinuousTrainer asks

    def _worked_by(self, model: TemporalModel, batch_size: int, candidates: int) -> tuple[LinkPass, EventMemory | None]:
        from livegnn.distributed.cluster_pass import ClusterMemory, ClusterPass

        memory = None if model.memory is None else ClusterMemory(model, self._group, self._parts)
        self._cluster_pass: ClusterPass = ClusterPass(
            model,
            self._loader,
            self._group,
            memory,
            self._parts,
            sampler=self.sampler.options,
            options={"edge_columns": self.edge_columns, **self._worker_options},
            batch_size=batch_size,
            mrr_candidates=candidates,
        )
        self._cluster_memory: ClusterMemory | None = memory
        found: Any = memory
        return self._cluster_pass, found

    @contextmanager
    def _reading(self) -> Iterator[tuple[HopSource, int]]:
        self._group.form()
        with super()._reading() as read:
            self._parts.deliver()
            yield read

    def _held(self) -> AbstractContextManager[HopSource]:
        self._parts.plan()
        return nullcontext(self.sampler)

    def _begin_epoch(self, number: int, epoch: int) -> None:
        self._cluster_pass.begin(zlib.crc32(repr((self.seed, number, epoch)).encode()), again=self._marked)
        self._marked = True

    def _hit_counts(self) -> HitCounts:
        return dict(self._cluster_pass.hit_counts)

    def _save(self) -> None:
        if self._cluster_memory is not None:
            self._cluster_memory.come_home()
        super()._save()
