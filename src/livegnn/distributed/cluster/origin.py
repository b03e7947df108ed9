"""What another crew of workers starts from while the present one goes on: a snapshot, and the batches since."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from livegnn.distributed.cluster.notes import GivenBatch
from livegnn.distributed.cluster.recipe import Recipe


@dataclass
class History:
    """What comes after a snapshot. batches: in order, each of which stands.  is_whole: whether that is all: no other
    model came.
    """

    snapshots: list[Any]
    batches: list[GivenBatch] = field(default_factory=list)
    is_whole: bool = True


class Origin(NamedTuple):
    """What another crew starts from. scales: exponents of the fixed-point units."""

    version: int
    recipe: Recipe
    scales: list[list[int]]
    history: History
