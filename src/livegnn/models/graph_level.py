"""A model with one row per graph: a model of the vertices, pools of its rows, and what comes after the pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from livegnn.models.model import Model

PoolKind: TypeAlias = Literal["add", "mean", "max"]
PoolPart: TypeAlias = tuple[PoolKind, int, int]


@dataclass(frozen=True)
class GraphLevel:
    """The parts of a model with one row per graph.

    r[g] = head(concat of pool_i over v in g of model(graph)[v, start_i:stop_i])

    Args:    model: of the vertices; its output holds every row that is pooled, side by side.
             pools: (kind, start, stop) in the order in which the head reads them; kind is "add", "mean" or "max", and
             the columns are those of the model's output.
             head: row-local, from the width of all pools together; None where nothing follows them.

    lg.Readout(lg.Engine(parts.model, graph), parts.pools, groups, head=parts.head) keeps it live.
    """

    model: Model
    pools: tuple[PoolPart, ...]
    head: Model | None
