"""FrontEnd: a query over seeds of several serving workers, sent to their owners and put together in the order asked."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, VertexUnknown
from livegnn.graph import checks
from livegnn.sampling.messages import Answer, Reading
from livegnn.sampling.partition import Serving
from livegnn.sampling.sample import Sample
from livegnn.sampling.spec import ClusterSpec
from livegnn.types import AnyArray, Int64Array

__all__ = ["Answering", "FrontEnd"]


class Answering(Protocol):
    """A serving worker, here or behind a connection."""

    def answer(self, seeds: Int64Array, reading: Reading) -> Answer:
        """As ServingWorker.answer."""


class FrontEnd:
    """Routes seeds to the serving workers that own them; of several replicas each takes its turn.

    Args:    workers: by number; may be changed from outside.  serving: which workers own each bucket; set_serving()
             changes it.
    """

    def __init__(self, spec: ClusterSpec, workers: Mapping[int, Answering], serving: Serving) -> None:
        self.spec, self._workers = spec, workers
        self._turn = itertools.count()
        self.set_serving(serving)

    def set_serving(self, serving: Serving) -> None:
        """From now on serving[b], a bit a serving worker, own the seeds of bucket b."""
        self._serving = serving

    def sample(
        self,
        seeds: object,
        *,
        query: int | None = None,
        features: bool = True,
        edge_ids: bool = True,
        at_least: int | None = None,
        timeout: float | None = 10.0,
    ) -> Sample:
        """As ServingWorker.sample, for any seeds; the version is the smallest that an owner answered from.

        Raises:  DtypeInvalid; VertexUnknown; VersionPending; UsageError for a bucket that nobody serves.
        """
        slots, planned = checks.id_array("sample", "seeds", seeds), self.spec.query(query)
        answer = self.answer(slots, Reading.checked(planned.number, features, edge_ids, at_least, timeout))
        return Sample(planned, self.spec.plan, slots, *answer)

    def answer(self, seeds: Int64Array, reading: Reading) -> Answer:
        """As ServingWorker.answer, for any seeds; reading.timeout holds for all owners together."""
        deadline = None if reading.timeout is None else time.monotonic() + reading.timeout
        while True:
            serving = self._serving
            try:
                return self._answer(seeds, reading, deadline)
            except KeyError:  # an owner that is one no longer: the map may have changed meanwhile
                if serving is self._serving:
                    raise

    def _answer(self, seeds: Int64Array, reading: Reading, deadline: float | None) -> Answer:
        if not len(seeds):
            return self._empty(reading)
        owners = self._owners(seeds)
        places = [np.flatnonzero(owners == owner) for owner in np.unique(owners)]
        parts = []
        for place in places:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            worker = self._workers[int(owners[place[0]])]
            parts.append(worker.answer(np.ascontiguousarray(seeds[place]), reading._replace(timeout=left)))
        return Answer(
            min(part.version for part in parts),
            _put_together([part.vertices for part in parts], places, len(seeds)),
            _put_together([part.edge_ids for part in parts], places, len(seeds)),
            _put_together([part.features for part in parts], places, len(seeds)),
        )

    def _owners(self, seeds: Int64Array) -> Int64Array:
        buckets = _native.buckets(seeds)
        if (buckets < 0).any():
            row = int(np.argmax(buckets < 0))
            raise VertexUnknown(
                f"[sample] expected seeds that are live vertices, got {seeds[row]} at row {row}; add the vertex first"
            )
        masks, turn = self._serving[buckets], next(self._turn)
        owners = np.full(len(seeds), -1, np.int64)
        for mask in np.unique(masks):
            replicas = [worker for worker in range(_native.SERVING_MAX) if int(mask) >> worker & 1]
            if not replicas:
                raise UsageError("[sample] expected every bucket to be served, got one without; add a serving worker")
            owners[masks == mask] = replicas[turn % len(replicas)]
        return owners

    def _empty(self, reading: Reading) -> Answer:
        fan_outs = [self.spec.fan_outs[place] for place in self.spec.tables_of(reading.query)]
        shapes = [(0, *fan_outs[:hop]) for hop in range(len(fan_outs) + 1)]
        vertices, ids = (tuple(np.empty(shape, np.int64) for shape in shapes[1:]) for _ in range(2))
        widths = self.spec.widths_of(reading.query) if reading.features else []
        rows = [np.empty((*shape, width), np.float32) for shape, width in zip(shapes, widths, strict=False)]
        return Answer(-1, vertices, ids if reading.edge_ids else (), tuple(rows))


def _put_together(parts: Sequence[tuple[AnyArray, ...]], places: list[Int64Array], count: int) -> tuple[AnyArray, ...]:
    """Arrays of the parts, level by level, with row i of a part at its place among all seeds."""
    if len(parts) == 1:  # all seeds, in their order
        return parts[0]
    levels = []
    for arrays in zip(*parts, strict=True):
        whole = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
        for array, place in zip(arrays, places, strict=True):
            whole[place] = array
        levels.append(whole)
    return tuple(levels)
