"""What the benchmarks of the cluster share: a graph, its stream of updates, a model and parts by METIS.

Slots are the ids of the generated graph. Parts are of the snapshot and kept in the cache of generated graphs: METIS
takes minutes where the measurement takes seconds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.engine.generate import FORMAT, SHAPES, cache_directory
from benchmarks.engine.networks import model
from benchmarks.engine.stream import Batch, Workload, to_updates, workload
from livegnn.distributed.cluster.batch import SlotBatch
from livegnn.distributed.cluster.cut import PartArrays, cut
from livegnn.distributed.partition import Topology, metis
from livegnn.models.compile import compile_model
from livegnn.models.joining import GraphColumns, joined

SEED, SLACK = 1, 0.01  # the latter is METIS's default; files of another one may be in the cache
Owners = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class ClusterWorld:
    """name: of the generated graph.  kind: of the network.  updates: length of the stream."""

    name: str
    kind: str
    hidden: int
    updates: int

    @property
    def widths(self) -> list[int]:
        """Of the input, the hidden layer and the output."""
        shape = SHAPES[self.name]
        return [shape.feature_width, self.hidden, shape.classes]

    def work(self) -> Workload:
        """The snapshot and its stream; the last one asked for is kept."""
        return _work(self.name, self.updates)

    def model(self) -> lg.Model:
        """Two layers of the kind."""
        return model(self.kind, self.widths)

    def program(self) -> Any:
        """The compiled model, as every part runs it."""
        fitted = joined(self.model(), GraphColumns(None, 0))
        return compile_model(fitted.output, closed=False, split=True, codes=None)

    def graph(self) -> lg.Graph:
        """The snapshot."""
        work = self.work()
        return lg.Graph(work.features, work.src.astype(np.int64), work.dst.astype(np.int64))

    def owners(self, parts: int) -> Owners:
        """METIS's part of each vertex."""
        return owners_of(self.name, parts)

    def cut(self, parts: int) -> list[PartArrays]:
        """All parts of the snapshot."""
        return cut(self.graph(), self.owners(parts), parts)


@lru_cache(maxsize=1)
def _work(name: str, updates: int) -> Workload:
    return workload(name, updates, seed=SEED)


@lru_cache(maxsize=4)
def owners_of(name: str, parts: int) -> Owners:
    """From the cache where it is, else found by METIS and kept there."""
    count = SHAPES[name].vertices
    if parts == 1:
        return np.zeros(count, np.uint16)
    path = cache_directory() / f"{name}-{FORMAT}-{SEED}-metis-{parts}-{SLACK}.npy"
    if not path.exists():
        work = workload(name, 3, seed=SEED)
        found = metis(Topology.of_edges(work.src, work.dst, count), parts, slack=SLACK).of_first(count)
        temporary = path.with_suffix(f".{os.getpid()}.npy")
        np.save(temporary, found)
        temporary.rename(path)
    owners: Owners = np.load(path)
    return owners


def batch_of(batch: Batch) -> SlotBatch:
    """A batch as every part takes it."""
    return SlotBatch.of(to_updates(lg, batch).buffer)


def digest_of(engine: lg.Engine) -> int:
    """What the digests of all parts add up to."""
    return int(engine.native.digest())
