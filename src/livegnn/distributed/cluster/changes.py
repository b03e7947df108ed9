"""The changes of all parts, as one engine's."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.distributed.cluster.batch import PartChanges
from livegnn.distributed.cluster.moves import Moves, merged_moves
from livegnn.types import Int64Array


class MergedChanges:
    """The changes of all parts, as a native engine has them."""

    def __init__(self, parts: list[PartChanges]) -> None:
        self._parts = parts

    def vertices(self) -> Int64Array:
        slots: Int64Array = np.sort(np.concatenate([part.slots for part in self._parts])).astype(np.int64, copy=False)
        return slots

    def count(self) -> int:
        return sum(part.vertex_count for part in self._parts)

    @cached_property
    def _natives(self) -> list[_native.NativeChanges]:
        return [part.to_native() for part in self._parts]

    def stages(self) -> list[dict[str, Any]]:
        """Counts are sums; seconds those of the slowest part, as the parts wait for each other."""
        merged, *others = (part.stages() for part in self._natives)
        for stages in others:
            for sums, stage in zip(merged, stages, strict=True):
                for name in ("affected", "edges", "scanned", "reread"):
                    sums[name] += stage[name]
                for name in ("transform_seconds", "aggregate_seconds"):
                    sums[name] = max(sums[name], stage[name])
                if stage["path"] != "none":
                    sums["path"] = stage["path"]
                _add_extremes(sums, stage)
        return merged

    def seconds(self) -> tuple[float, float, float]:
        seconds = (part.seconds() for part in self._natives)
        topology, publish, total = (max(times) for times in zip(*seconds, strict=True))
        return topology, publish, total

    def take_moves(self) -> Moves | None:
        """What moved on all parts; None where a part has not kept it."""
        kept = [part.moves for part in self._parts if part.moves is not None]
        return merged_moves(kept) if len(kept) == len(self._parts) else None


def _add_extremes(sums: dict[str, Any], stage: dict[str, Any]) -> None:
    if stage["extremes"] is None:
        return
    before = sums["extremes"] or {}
    sums["extremes"] = {name: count + before.get(name, 0) for name, count in stage["extremes"].items()}
