"""Contributions: which in-neighbours' messages a vertex's output is made of, and which of them moved it last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from livegnn.inference.explain.layout import Aggregation
from livegnn.inference.explain.shares import Shares
from livegnn.types import AnyArray, BoolArray, Float64Array, Int64Array


@dataclass(frozen=True)
class ShareChange:
    """What a version did to the shares in one aggregation, one row for each edge that it moved.

    why: "added", "removed", "weight", "message" (the source's row moved), "factor" (its degree moved), "held" (of
    extremes: another column is its own).  before, after: terms, zeros where there is none; None for extremes, and for
    attention, whose units are chosen anew with each sum.  difference: of the whole aggregate, own term included.
    values: float64, what the value that is read gained by each.  rest: by all others, whose own messages stayed (a
    degree, a softmax's sum or a mean's count moved), of `rest_count` edges.
    """

    name: str
    family: str
    exponents: tuple[int, ...]
    slots: Int64Array
    edge_ids: Int64Array
    why: tuple[tuple[str, ...], ...]
    values: Float64Array
    rest: Float64Array
    rest_count: int
    before: Int64Array | None
    after: Int64Array | None
    own_before: Int64Array | None
    own_after: Int64Array | None
    own_value: Float64Array | None
    difference: Int64Array | None
    finish_before: Any
    finish: Any
    vertices: AnyArray
    types: tuple[str, ...] | None
    scores: Float64Array
    rest_score: float
    own_score: float | None

    def __len__(self) -> int:
        return len(self.slots)


@dataclass(frozen=True)
class ContributionChange:
    """The last version that changed a vertex's output. sources: with hops=2, of moved in-neighbours, their own."""

    version: int
    aggregations: tuple[ShareChange, ...]
    sources: tuple[SourceChange, ...] = ()


@dataclass(frozen=True)
class SourceChange:
    """What the same version did one layer before, at an in-neighbour."""

    vertex: Any
    vertex_type: str | None
    aggregations: tuple[ShareChange, ...]


@dataclass(frozen=True)
class SourceContributions:
    """The shares one layer before, at an in-neighbour."""

    vertex: Any
    vertex_type: str | None
    aggregations: tuple[Shares, ...]


@dataclass(frozen=True)
class Contributions:
    """The shares in the aggregates of a vertex's last layer.

    is_linear: whether the output (a softmax or sigmoid at its end aside) is linear in them. Then scores are what each
    adds to `column`, with its sign; else they are norms of what each adds to the aggregate.
    change: the vertex's latest change, None where it is not known: `change_missing` is then "off" (keep_messages() was
    not called), "older" (than `recorded_since`), or "edges" (messages computed edge by edge are not recorded).
    """

    version: int
    vertex: Any
    vertex_type: str | None
    column: int
    is_linear: bool
    aggregations: tuple[Shares, ...]
    sources: tuple[SourceContributions, ...] = ()
    change: ContributionChange | None = None
    change_missing: str | None = None
    recorded_since: int | None = None


def moved(made: Aggregation, before: Shares, after: Shares) -> ShareChange:
    """The difference of two moments."""
    was, now = _places(before), _places(after)
    keys = [*was, *(key for key in now if key not in was)]
    why = [_why(made, before, after, was.get(key), now.get(key)) for key in keys]
    chosen = [place for place, reasons in enumerate(why) if reasons]
    left = np.array([was.get(keys[place], -1) for place in chosen], np.int64)
    right = np.array([now.get(keys[place], -1) for place in chosen], np.int64)
    values = _at(after.values, right) - _at(before.values, left)
    own_value = None
    if after.own_value is not None and before.own_value is not None:
        own_value = after.own_value - before.own_value
    total = after.value - before.value
    rest = total - values.sum(axis=0) - (0 if own_value is None else own_value)
    integers = after.terms is not None and made.family != "attention"
    return ShareChange(
        name=after.name,
        family=after.family,
        exponents=after.exponents,
        slots=np.array([keys[place][1] for place in chosen], np.int64),
        edge_ids=np.array([keys[place][0] for place in chosen], np.int64),
        why=tuple(why[place] for place in chosen),
        values=values,
        rest=rest if len(chosen) < len(keys) else np.zeros_like(rest),
        rest_count=len(keys) - len(chosen),
        before=_at(before.terms, left) if integers and before.terms is not None else None,
        after=_at(after.terms, right) if integers and after.terms is not None else None,
        own_before=before.own,
        own_after=after.own,
        own_value=own_value,
        difference=after.aggregate - before.aggregate if integers else None,
        finish_before=before.finish,
        finish=after.finish,
        vertices=np.zeros(0),
        types=None,
        scores=np.zeros(0),
        rest_score=0.0,
        own_score=None,
    )


def _places(shares: Shares) -> dict[tuple[int, int], int]:
    keys = zip(shares.edge_ids.tolist(), shares.slots.tolist(), strict=True)
    return {key: place for place, key in enumerate(keys)}


def _at(rows: AnyArray, places: Int64Array) -> AnyArray:
    """Rows at places, zeros where a place is -1."""
    found = np.zeros((len(places), rows.shape[1]), rows.dtype)
    found[places >= 0] = rows[places[places >= 0]]
    return found


def _why(made: Aggregation, before: Shares, after: Shares, was: int | None, now: int | None) -> tuple[str, ...]:
    if was is None:
        return ("added",)
    if now is None:
        return ("removed",)
    reasons = []
    if made.weighted and before.weights[was] != after.weights[now]:
        reasons.append("weight")
    if not np.array_equal(before.operands[was], after.operands[now]):
        reasons.append("message")
    if before.factors[was] != after.factors[now]:
        reasons.append("factor")
    if before.held is not None and after.held is not None and not np.array_equal(before.held[was], after.held[now]):
        reasons.append("held")
    return tuple(reasons)


def holders(held: BoolArray | None) -> list[list[int]] | None:
    """The columns of each row that are held."""
    return None if held is None else [np.flatnonzero(row).tolist() for row in held]


def scored(shares: Shares, scores: Float64Array, own: float | None) -> Shares:
    """The same with a number for each edge."""
    return replace(shares, scores=scores, own_score=own)
