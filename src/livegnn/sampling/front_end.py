"""FrontEnd: a query over seeds of several serving workers, sent to their owners and put together in the order asked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from livegnn import _native
from livegnn.errors import DtypeInvalid, UsageError, VertexUnknown
from livegnn.graph import checks
from livegnn.sampling.messages import Answer
from livegnn.sampling.partition import Serving
from livegnn.sampling.spec import ClusterSpec
from livegnn.types import AnyArray, Int64Array

__all__ = ["Answering", "FrontEnd"]


class Answering(Protocol):
    """A serving worker, here or behind a connection."""

    def sample(
        self, seeds: Int64Array, query: int = 1, *, at_least: int | None, timeout: float, features: bool
    ) -> Answer:
        """As ServingWorker.sample."""


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
        query: int = 1,
        *,
        at_least: int | None = None,
        timeout: float = 10.0,
        features: bool = True,
    ) -> Answer:
        """As ServingWorker.sample, for any seeds; the version is the smallest that an owner answered from.

        Raises:  DtypeInvalid; VertexUnknown; LagExceeded; UsageError for a bucket that nobody serves.
        """
        wanted = self._checked(seeds)
        while True:
            serving = self._serving
            try:
                return self._sample(wanted, query, at_least, timeout, features)
            except KeyError:  # an owner that is one no longer: the map may have changed meanwhile
                if serving is self._serving:
                    raise

    def _sample(self, wanted: Int64Array, query: int, at_least: int | None, timeout: float, features: bool) -> Answer:
        owners = self._owners(wanted)
        options = {"at_least": at_least, "timeout": timeout, "features": features}
        present = np.unique(owners)
        if len(present) == 1:
            return self._workers[int(present[0])].sample(wanted, query, **options)  # type: ignore[arg-type]
        places = [np.flatnonzero(owners == owner) for owner in present]
        parts = [
            self._workers[int(owner)].sample(wanted[place], query, **options)  # type: ignore[arg-type]
            for owner, place in zip(present, places, strict=True)
        ]
        if not parts:
            return self._empty(query, features)
        return Answer(
            min(part.version for part in parts),
            _put_together([part.vertices for part in parts], places, len(wanted)),
            _put_together([part.edge_ids for part in parts], places, len(wanted)),
            _put_together([part.features for part in parts], places, len(wanted)),
        )

    def _checked(self, seeds: object) -> Int64Array:
        wanted = checks.id_array("sample", "seeds", seeds)
        if wanted.ndim != 1:
            raise DtypeInvalid(f"[sample] expected seeds of shape (B,), got {wanted.shape}; pass one row of ids")
        return np.ascontiguousarray(wanted)

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

    def _empty(self, query: int, features: bool) -> Answer:
        shape, vertices, rows = [0], [], [np.empty((0, self.spec.feature_width), np.float32)]
        for place in self.spec.tables_of(query):
            shape.append(self.spec.fan_outs[place])
            vertices.append(np.empty(shape, np.int64))
            rows.append(np.empty([*shape, self.spec.feature_width], np.float32))
        ids = tuple(each.copy() for each in vertices)
        return Answer(-1, tuple(vertices), ids, tuple(rows) if features else ())


def _put_together(parts: Sequence[tuple[AnyArray, ...]], places: list[Int64Array], count: int) -> tuple[AnyArray, ...]:
    """Arrays of the parts, level by level, with row i of a part at its place among all seeds."""
    levels = []
    for arrays in zip(*parts, strict=True):
        whole = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
        for array, place in zip(arrays, places, strict=True):
            whole[place] = array
        levels.append(whole)
    return tuple(levels)
