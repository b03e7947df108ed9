"""Which changed vertices a subscriber wants, and what it gets: filters over the rows of several versions at once.

    was(v) = v was there and value(v) >= threshold, before      now(v): the same, after
    above: not was, now       below: was, not now       flip: class before != class after, or v came or went

A vertex that is not there is at no threshold: one that comes may cross `above`, one that goes may cross `below`. The
rows of all versions of a round lie in one table, so that a filter costs a few array operations a round, and what
filters share (classes, probabilities, differences) is worked out once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from livegnn.deployment.live import LiveModel
from livegnn.errors import ModelMismatch, UsageError, ValueInvalid
from livegnn.inference.predict import predictions
from livegnn.models.model import Model
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

Pair: TypeAlias = tuple[AnyArray, AnyArray]  # before, after


class MovedRows(NamedTuple):
    """Vertices of one type whose output rows a version changed.

    ids: (k,).  before, after: (k, d).  is_new, is_gone: (k,), where there is no row before, or none after.
    """

    ids: AnyArray
    before: Float32Array
    after: Float32Array
    is_new: BoolArray
    is_gone: BoolArray

    @property
    def bytes(self) -> int:
        """Of the arrays."""
        return sum(each.nbytes for each in self)


@dataclass(frozen=True)
class ChangedVersion:
    """What a version changed for one engine. parts: by vertex type, None without types.  model, reference: then."""

    version: int
    model: Model
    reference: str
    parts: Mapping[str | None, MovedRows]

    @property
    def bytes(self) -> int:
        """About what it takes."""
        return 512 + sum(part.bytes for part in self.parts.values())

    @property
    def count(self) -> int:
        """Vertices in it."""
        return sum(len(part.ids) for part in self.parts.values())


@dataclass(frozen=True)
class ChangeFilter:
    """What a subscriber wants of an engine's changes; conditions that are given must all hold.

    vertex_type: needed where vertices have types.  output: of a model with several results.  ids: these vertices only.
    flips: the class changed.  above, below: a value reached it from below, or fell below it from there; of both, one
    is enough. The value is column `column` of the row, else the probability of class `of_class`, else the prediction.
    min_change: of the largest absolute change of a column.  row_change: whether it is sent along.
    """

    engine: str
    vertex_type: str | None = None
    output: str | None = None
    ids: tuple[Hashable, ...] | None = None
    flips: bool = False
    above: float | None = None
    below: float | None = None
    of_class: int | None = None
    column: int | None = None
    min_change: float | None = None
    row_change: bool = False

    def check(self, engine: LiveModel) -> None:
        """Raises: UsageError for an engine that computes on demand; ValueInvalid, ColumnMissing for what its model
        does not have.
        """
        if not engine.is_eager:
            raise UsageError(
                f"[changes] expected an eager engine, got mode {engine.mode} of {self.engine!r}, which computes what "
                "is asked for; follow another engine"
            )
        empty = np.zeros(0, dtype=np.int64)
        if self.output is None and len(engine.model.outputs) > 1:
            engine.predict(empty, vertex_type=self.vertex_type)  # names the outputs
        try:
            width = engine.embeddings(empty, vertex_type=self.vertex_type, output=self.output).shape[1]
        except ModelMismatch as cause:
            raise ValueInvalid(str(cause)) from cause  # the request's fault, not the model's
        if self.column is not None and self.of_class is not None:
            raise ValueInvalid("[changes] expected column or class, got both; leave one out")
        for name, place in (("column", self.column), ("class", self.of_class)):
            if place is not None and not 0 <= place < width:
                raise ValueInvalid(f"[changes] expected {name} from 0 to {width - 1}, got {place}; choose another")
        thresholds = self.above is not None or self.below is not None
        if thresholds and width > 1 and self.column is None and self.of_class is None:
            raise ValueInvalid(
                f"[changes] expected column or class with a threshold over {width} columns, got neither; name one"
            )
        for name, number in (("above", self.above), ("below", self.below), ("min_change", self.min_change)):
            if number is not None and not np.isfinite(number):
                raise ValueInvalid(f"[changes] expected {name} as a finite number, got {number}; correct it")


class ChangeTable:
    """Rows of several versions, one vertex type and one output, in the order of the versions."""

    def __init__(self, versions: Sequence[ChangedVersion], vertex_type: str | None, output: str | None) -> None:
        self.versions = [each for each in versions if vertex_type in each.parts]
        parts = [each.parts[vertex_type] for each in self.versions]
        self.ends = np.cumsum([len(part.ids) for part in parts])
        ids, before, after, is_new, is_gone = (
            columns[0] if len(columns) == 1 else np.concatenate(columns) for columns in zip(*parts, strict=True)
        )
        if output is not None:
            start, stop = self.versions[0].model.columns_of(output)
            before, after = before[:, start:stop], after[:, start:stop]
        self.ids, self.rows, self.is_new, self.is_gone = ids, (before, after), is_new, is_gone
        self._probabilities: dict[int, Pair] = {}

    @property
    def width(self) -> int:
        """Columns of a row."""
        return int(self.rows[0].shape[1])

    @cached_property
    def predicted(self) -> Pair:
        """As Engine.predict()."""
        return predictions(self.rows[0], None), predictions(self.rows[1], None)

    @cached_property
    def flipped(self) -> BoolArray:
        """Where the class changed; of one column, whether its probability is at least 0.5."""
        before, after = self.predicted
        if self.width == 1:
            before, after = before >= 0.5, after >= 0.5
        flipped: BoolArray = (before != after) | (self.is_new != self.is_gone)
        return flipped

    @cached_property
    def largest(self) -> Float32Array:
        """The largest absolute change of a column; infinite where a vertex came or went."""
        change = np.abs(self.rows[1] - self.rows[0]).max(axis=1, initial=0)
        change[self.is_new | self.is_gone] = np.inf
        largest: Float32Array = change
        return largest

    def probabilities(self, of_class: int) -> Pair:
        """Softmax of one class."""
        found = self._probabilities.get(of_class)
        if found is None:
            before, after = (_softmax(rows, of_class) for rows in self.rows)
            found = self._probabilities[of_class] = (before, after)
        return found

    def values(self, wanted: ChangeFilter) -> Pair:
        """What thresholds look at, and what is sent."""
        if wanted.column is not None:
            return self.rows[0][:, wanted.column], self.rows[1][:, wanted.column]
        if wanted.of_class is not None and self.width > 1:
            return self.probabilities(wanted.of_class)
        return self.predicted

    def places(self, wanted: ChangeFilter, among: Int64Array | None = None) -> Int64Array:
        """Rows that a filter lets through, ascending. among: rows whose ids it wants; None: not looked for yet."""
        if max(wanted.column or 0, wanted.of_class or 0) >= self.width:  # of a model that has been swapped since
            return np.zeros(0, np.int64)
        if among is None and wanted.ids is not None:
            among = places_of(self.ids, frozenset(wanted.ids))
        if wanted.flips:
            among = self._flips if among is None else among[self.flipped[among]]
        if wanted.min_change is not None:
            if among is None:
                among = self._moved_by(wanted.min_change)
            else:
                among = among[self.largest[among] >= wanted.min_change]
        if wanted.above is None and wanted.below is None:
            return np.arange(len(self.ids)) if among is None else among
        crossed = self._crossed(wanted, slice(None) if among is None else among)
        return np.flatnonzero(crossed) if among is None else among[crossed]

    @cached_property
    def _flips(self) -> Int64Array:
        return np.flatnonzero(self.flipped)

    @cached_property
    def _by_change(self) -> tuple[Float32Array, Int64Array]:
        order = np.argsort(self.largest)
        return self.largest[order], order

    def _moved_by(self, least: float) -> Int64Array:
        """Rows that changed by at least so much; what is looked at is what is found."""
        sizes, order = self._by_change
        return np.sort(order[np.searchsorted(sizes, np.float32(least)) :])

    def _crossed(self, wanted: ChangeFilter, among: Int64Array | slice) -> BoolArray:
        before, after = (each[among] for each in self.values(wanted))
        there_before, there_after = ~self.is_new[among], ~self.is_gone[among]
        crossed = np.zeros(len(before), np.bool_)
        for threshold, upwards in ((wanted.above, True), (wanted.below, False)):
            if threshold is not None:
                was, now = there_before & (before >= threshold), there_after & (after >= threshold)
                crossed |= (now & ~was) if upwards else (was & ~now)
        return crossed

    def changes(self, wanted: ChangeFilter, places: Int64Array) -> list[tuple[Any, ...]]:
        """(vertex, before, after), and with row_change the largest change: None where there is no row."""
        before, after = (each[places].tolist() for each in self.values(wanted))
        for place in np.flatnonzero(self.is_new[places]).tolist():
            before[place] = None
        for place in np.flatnonzero(self.is_gone[places]).tolist():
            after[place] = None
        if not wanted.row_change:
            return list(zip(self.ids[places].tolist(), before, after, strict=True))
        change = [each if np.isfinite(each) else None for each in self.largest[places].tolist()]
        return list(zip(self.ids[places].tolist(), before, after, change, strict=True))


def places_of(ids: AnyArray, wanted: frozenset[Hashable] | Mapping[Hashable, Any]) -> Int64Array:
    """Places of the ids that are wanted."""
    if ids.dtype.kind in "iu":
        numbers = [each for each in wanted if isinstance(each, int)]
        return np.flatnonzero(np.isin(ids, np.array(numbers, np.int64)))
    return np.array([place for place, each in enumerate(ids.tolist()) if each in wanted], np.int64)


def _softmax(rows: Float32Array, of_class: int) -> Float32Array:
    raised = np.exp(rows.astype(np.float64) - rows.max(axis=1, keepdims=True))
    shares: Float32Array = (raised[:, of_class] / raised.sum(axis=1)).astype(np.float32)
    return shares
