"""The shares of in-neighbours in one aggregation of one vertex, from the engine's own integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from livegnn.errors import StateMismatch
from livegnn.inference.explain.layout import DEGREE_FINISHED, EXTREMES, Aggregation
from livegnn.inference.explain.moments import InEdges, Moment
from livegnn.types import AnyArray, BoolArray, Float32Array, Float64Array, Int64Array

_Operands: TypeAlias = tuple[Float32Array, Float32Array, Float32Array]  # rows, factors, weights
_HEAD = np.dtype(  # core/inference/operators/split_sums.h, AttentionHead
    [("above", "<i8"), ("below", "<i8"), ("top", "<i4"), ("low", "<i4"), ("holders", "<i4"), ("shift", "<f4")]
)
_BIN = 4.0  # of scores, kBinWidth
_NO_ROWS = np.zeros((0, 1), np.float32)
_NO_ROW = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Shares:
    """What the in-edges of a vertex, and the vertex itself, add to one of its aggregates. One row for each edge.

    terms: parts of `aggregate` in units of 2^-exponents, int64; None for extremes. With `own`, the vertex's own term,
    they sum to it. Of attention both sides of zero, one after the other (docs/attention.md).
    messages: rows that were sent.  weights: of edges.  factors: of the sources' degrees.
    finish: what the sum is multiplied by when it is read; of attention for each side and head.
    values: float64, what each adds to the value that is read.  held: of extremes, the columns whose value it is.
    attention: float64, the weight of each head.  scores: one number each, see Contributions.is_linear.
    predictions: of the sources, None where there is none.
    """

    name: str
    family: str
    exponents: tuple[int, ...]
    slots: Int64Array
    edge_ids: Int64Array
    weights: Float32Array
    factors: Float32Array
    messages: Float32Array
    values: Float64Array
    aggregate: AnyArray
    terms: Int64Array | None = None
    own: Int64Array | None = None
    own_value: Float64Array | None = None
    finish: Any = 1.0
    held: BoolArray | None = None
    own_held: BoolArray | None = None
    attention: Float64Array | None = None
    own_attention: Float64Array | None = None
    operands: AnyArray = field(default_factory=lambda: _NO_ROWS, repr=False)  # what a message is made of, to compare
    vertices: AnyArray = field(default_factory=lambda: _NO_ROW)
    types: tuple[str, ...] | None = None
    predictions: tuple[Any, ...] = ()
    scores: Float64Array = field(default_factory=lambda: np.zeros(0))
    own_score: float | None = None

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def value(self) -> Float64Array:
        """What is read of the aggregate."""
        total: Float64Array = self.values.sum(axis=0)
        return total if self.own_value is None else total + self.own_value

    def mapped(self, part: Callable[[Float64Array], Float64Array]) -> tuple[Float64Array, float | None]:
        """One number for each edge, and for the own term, of their values."""
        return part(self.values), None if self.own_value is None else float(part(self.own_value[None])[0])


def shares_of(made: Aggregation, moment: Moment, slot: int, scales: list[list[int]]) -> Shares:
    """The shares in aggregation `made` of a slot at a moment.

    Raises: StateMismatch where they are not what the engine keeps; that is a fault of livegnn or of the memory.
    """
    find = _gathered if made.on_edges else _attended if made.family == "attention" else _summed
    found = find(made, moment, slot, scales)
    if moment.is_now:
        _compare(made, moment, slot, found, scales)
    return found


def _counted(made: Aggregation, moment: Moment, slot: int) -> InEdges:
    found = moment.edges_into(slot, made.reversed)
    keep = np.ones(len(found.ids), np.bool_)
    if made.skips_loops:
        keep &= found.src != slot
    if made.relations is not None:
        keep &= np.isin(found.types, list(made.relations))
    return found if keep.all() else found.chosen(keep)


def _ones(count: int) -> Float32Array:
    return np.ones(count, np.float32)


def _terms(
    made: Aggregation, moment: Moment, messages: Float32Array, factors: Float32Array, weights: Float32Array
) -> Int64Array:
    found: Int64Array = moment.native.terms(made.number, messages, factors, weights, _NO_ROWS, _NO_ROW)
    return found[:, : made.width]


def _own_operands(made: Aggregation, moment: Moment, slot: int) -> _Operands | None:
    """Row, factor and weight of the vertex's own term."""
    here = np.array([slot], np.int64)
    if made.own_table >= 0:
        return moment.rows(made.own_table, here, made.width), _ones(1), _ones(1)
    if not made.own_message:
        return None
    row = moment.rows(made.message_table, here, made.width)
    if not made.scaled:
        return row, _ones(1), np.array([made.own_coefficient], np.float32)
    factors = moment.factors(made.context, here)
    return row, factors[:, 0].copy(), factors[:, 1].copy()


def _summed(made: Aggregation, moment: Moment, slot: int, scales: list[list[int]]) -> Shares:
    edges = _counted(made, moment, slot)
    count = len(edges.ids)
    messages = moment.rows(made.message_table, edges.src, made.width)
    factors = moment.factors(made.context, edges.src)[:, 0].copy() if made.scaled else _ones(count)
    weights = edges.weights if made.weighted else _ones(count)
    own = _own_operands(made, moment, slot)
    finish = _finish(made, moment, slot, count)
    common = (made, scales, edges, messages, factors, finish)
    if made.family in EXTREMES:
        with np.errstate(over="ignore"):
            terms = weights[:, None] * (factors[:, None] * messages) + np.float32(0)
            own_term = None if own is None else own[2][:, None] * (own[1][:, None] * own[0]) + np.float32(0)
        return _chosen(*common, terms, own_term)
    own_terms = None if own is None else _terms(made, moment, *own)[0]
    return _added(*common, _terms(made, moment, messages, factors, weights), own_terms)


def _finish(made: Aggregation, moment: Moment, slot: int, count: int) -> float:
    if made.family == "mean":
        return 1.0 / max(count, 1)
    if _norm(made) in DEGREE_FINISHED:
        return float(moment.factors(made.context, np.array([slot], np.int64))[0, 0])
    return 1.0


def _norm(made: Aggregation) -> str:
    return str(getattr(made.value, "norm", ""))


def _added(
    made: Aggregation,
    scales: list[list[int]],
    edges: InEdges,
    messages: Float32Array,
    factors: Float32Array,
    finish: float,
    terms: Int64Array,
    own: Int64Array | None,
) -> Shares:
    unit = np.exp2(-np.array(scales[made.number], np.float64)) * finish
    return Shares(
        name=made.name,
        family=made.family,
        exponents=tuple(scales[made.number]),
        slots=edges.src,
        edge_ids=edges.ids,
        weights=edges.weights,
        factors=factors,
        messages=messages,
        values=terms * unit,
        aggregate=terms.sum(axis=0) + (0 if own is None else own),
        terms=terms,
        own=own,
        own_value=None if own is None else own * unit,
        finish=finish,
        operands=messages,
    )


def _chosen(
    made: Aggregation,
    scales: list[list[int]],
    edges: InEdges,
    messages: Float32Array,
    factors: Float32Array,
    finish: float,
    terms: Float32Array,
    own: Float32Array | None,
) -> Shares:
    """Extremes: equal holders of a column have equal parts of it."""
    rows = terms if own is None else np.concatenate([terms, own])
    best = _choice(made.family, rows)
    held = rows == best
    parts = held / np.maximum(held.sum(axis=0), 1) * best.astype(np.float64) * finish
    count = len(terms)
    return Shares(
        name=made.name,
        family=made.family,
        exponents=(),
        slots=edges.src,
        edge_ids=edges.ids,
        weights=edges.weights,
        factors=factors,
        messages=messages,
        values=parts[:count],
        aggregate=best,
        own_value=None if own is None else parts[count],
        finish=finish,
        held=held[:count],
        own_held=None if own is None else held[count],
        operands=messages,
    )


def _choice(family: str, rows: Float32Array) -> Float32Array:
    if not len(rows):
        return np.zeros(rows.shape[1], np.float32)
    ordered: Float32Array = np.sort(rows, axis=0)
    chosen: Float32Array = ordered[{"min": 0, "max": -1, "median": (len(rows) - 1) // 2}[family]]
    return chosen  # median: of two the smaller one


def _gathered(made: Aggregation, moment: Moment, slot: int, scales: list[list[int]]) -> Shares:
    edges, messages = moment.edge_terms(made.number, slot, made.width)
    count = len(edges.ids)
    finish = 1.0 / max(count, 1) if made.family == "mean" else 1.0
    common = (made, scales, edges, messages, _ones(count), finish)
    if made.family in EXTREMES:
        return _chosen(*common, messages + np.float32(0), None)
    return _added(*common, _terms(made, moment, messages, _ones(count), _ones(count)), None)


# ---- attention by split sums


def _attended(made: Aggregation, moment: Moment, slot: int, scales: list[list[int]]) -> Shares:
    edges = _counted(made, moment, slot)
    here = np.array([slot], np.int64)
    heads, width, count = made.heads, made.width, len(edges.ids)
    messages = moment.rows(made.message_table, edges.src, width)
    scores = moment.rows(made.scores_table, edges.src, heads)
    shift = moment.rows(made.shifts_table, here, heads)[0]
    raw = moment.native.terms(made.number, messages, _NO_ROW, _NO_ROW, scores, shift)
    above, below, parts = _sides(raw, width, heads)
    own_scores = moment.rows(made.scores_table, here, heads)[0] if made.own_loop else None
    finish, own_share = _softmax(made, shift, parts, own_scores, scales)
    unit = np.exp2(-np.array(scales[made.number], np.float64))
    by_column = np.repeat(finish, width // heads, axis=1)
    values = (above * by_column[0] + below * by_column[1]) * unit
    of_totals = 2.0 ** -_total_bits(scales)
    own_value = None
    if made.own_loop:
        own_row = moment.rows(made.message_table, here, width)[0].astype(np.float64)
        own_value = np.repeat(own_share, width // heads) * own_row
    terms = np.concatenate([above, below], axis=1)
    return Shares(
        name=made.name,
        family=made.family,
        exponents=tuple(scales[made.number]),
        slots=edges.src,
        edge_ids=edges.ids,
        weights=edges.weights,
        factors=_ones(count),
        messages=messages,
        values=values,
        aggregate=terms.sum(axis=0),
        terms=terms,
        own_value=own_value,
        finish=finish,
        attention=(parts["above"] * finish[0] + parts["below"] * finish[1]) * of_totals,
        own_attention=own_share if made.own_loop else None,
        operands=np.concatenate([messages, scores], axis=1),
    )


def _sides(raw: Int64Array, width: int, heads: int) -> tuple[Int64Array, Int64Array, AnyArray]:
    """Sums above and below zero, and what each head keeps, of rows of split sums."""
    wide = -(-width // 8) * 8
    kept = np.ascontiguousarray(raw[:, 2 * wide : 2 * wide + 4 * heads]).view(_HEAD)
    return raw[:, :width], raw[:, wide : wide + width], kept


def _total_bits(scales: list[list[int]]) -> int:
    return 62 - scales[-1][0] - 3 - 1  # SplitAttention::total_bits


def _softmax(
    made: Aggregation, shift: Float32Array, parts: AnyArray, own: Float32Array | None, scales: list[list[int]]
) -> tuple[Float64Array, Float64Array]:
    """What both sides' sums are multiplied by, (2, heads), and the weight of the vertex's own loop, (heads,)."""
    s, slope = shift.astype(np.float64), float(np.float32(made.slope))
    totals = np.stack([parts["above"].sum(axis=0), parts["below"].sum(axis=0)]) * 2.0 ** -_total_bits(scales)
    top, low = (parts["top"][0], parts["low"][0]) if len(parts) else (0 * s, 0 * s)
    raw = np.zeros(made.heads) if own is None else own.astype(np.float64) + s
    loop = np.where(raw > 0, raw, slope * raw)
    logs = np.stack([s + _BIN * top, slope * (s + _BIN * low), loop])
    present = np.stack([totals[0] > 0, totals[1] > 0, np.full(made.heads, own is not None)])
    logs = np.where(present, logs, -np.inf)
    largest = logs.max(axis=0)
    powers = np.exp(logs - np.where(np.isfinite(largest), largest, 0.0))
    total = powers[0] * totals[0] + powers[1] * totals[1] + powers[2]
    unit = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    return powers[:2] * unit, powers[2] * unit


# ---- the engine's own row


def _compare(made: Aggregation, moment: Moment, slot: int, found: Shares, scales: list[list[int]]) -> None:
    row: Int64Array = moment.native.aggregate_rows(made.number, np.array([slot], np.int64))
    if made.family in EXTREMES or (made.on_edges and found.terms is None):
        kept: AnyArray = row.view(np.float32)[0, : made.width]
    elif made.family == "attention":
        above, below, _ = _sides(row, made.width, made.heads)
        kept = np.concatenate([above, below], axis=1)[0]
    else:
        kept = row[0, : made.width]
    if not np.array_equal(kept, found.aggregate):
        raise StateMismatch(
            f"[contributions] expected shares that sum to the row of {made.name}, got another sum in "
            f"{int((kept != found.aggregate).sum())} columns; call engine.verify()"
        )
