"""Explained: the reads of an engine that say what its outputs are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from livegnn.errors import ModelMismatch, ModelUnsupported, UsageError, ValueInvalid
from livegnn.graph import checks
from livegnn.graph.graph import Graph
from livegnn.graph.updates import VertexType
from livegnn.inference import hetero as over_types
from livegnn.inference.explain.contributions import (
    ContributionChange,
    Contributions,
    ShareChange,
    SourceChange,
    SourceContributions,
    moved,
    scored,
)
from livegnn.inference.explain.history import MessageHistory
from livegnn.inference.explain.layout import Aggregation, ModelLayout
from livegnn.inference.explain.linear import linear_part, logits
from livegnn.inference.explain.moments import EdgeBudget, GoneVertex, Moment
from livegnn.inference.explain.shares import Shares, shares_of
from livegnn.inference.predict import predictions
from livegnn.models.model import Model
from livegnn.types import AnyArray, Float64Array, Int64Array

_Part: TypeAlias = Callable[[Float64Array], Float64Array]  # of values, one number each
_KEPT = ("incremental", "constrained", "affected")  # strategies that keep messages


class Explained:
    """What Engine inherits: contributions() and keep_messages()."""

    graph: Graph
    model: Model
    native: Any
    strategy: str
    state: str
    _messages: MessageHistory | None = None
    _layout: tuple[Model, ModelLayout] | None = None

    def contributions(
        self,
        vertex: Any,
        *,
        vertex_type: VertexType | None = None,
        column: int | None = None,
        hops: int = 1,
        limit: int = 100,
        edges_max: int | None = None,
    ) -> Contributions:
        """Which in-neighbours' messages the vertex's output is made of, and which of them moved it last.

        Shares are the engine's own integers: in each aggregation of the last layer they sum to the stored aggregate
        exactly, which is checked. All is of one version. docs/explain-live.md says what each family's shares are.

        Args:    column: of the output, for scores; unless given the predicted class, 0 where there is one column.
                 hops: 2 adds the shares of the in-neighbours one layer before.
                 limit: of in-neighbours for which hops=2 does so, those with the largest scores.
                 edges_max: refuses an answer that reads more edges. An edge counts once for each moment of each
                 aggregation that reads it.
        Raises:  VertexUnknown; ModelUnsupported naming an aggregation that is known in no parts; UsageError for a state
                 or strategy that keeps no messages, and in a what_if block; ValueInvalid; StateMismatch.
        Cost:    of the vertex's in-edges. The graph's lock is held: a batch under way is waited for.
        """
        if checks.whole_number("contributions", "hops", hops) not in (1, 2):
            raise ValueInvalid(f"[contributions] expected hops of 1 or 2, got {hops}; choose one")
        if checks.whole_number("contributions", "limit", limit) < 1:
            raise ValueInvalid(f"[contributions] expected a limit of at least 1, got {limit}; choose another")
        with self.graph.host.lock:
            self._refuse_unexplained("contributions")
            self._complete()
            return _Explanation(self, vertex, vertex_type, column, EdgeBudget(edges_max)).answer(hops, limit)

    def keep_messages(self, versions: int = 1000, size: int = 1 << 26) -> MessageHistory:
        """Keeps what later versions replace, so that contributions() can say what moved a vertex last.

        Args:    versions, size: the newest that are kept, and their bytes.
        Returns: the history; close() ends it. A second call replaces the first one's.
        Raises:  UsageError where contributions() does, and for an engine that is not eager.
        Cost:    of a batch: a copy of the rows that it replaces in the last two layers.
        """
        if checks.whole_number("keep_messages", "versions", versions) < 1 or size < 1:
            raise ValueInvalid(
                f"[keep_messages] expected versions and size of at least 1, got {versions} and {size}; choose others"
            )
        with self.graph.host.lock:
            self._refuse_unexplained("keep_messages")
            if not self.is_eager:
                raise UsageError(
                    '[keep_messages] expected an engine with mode="eager", got one that computes rows when they are '
                    "asked for, and so has no version of a change; make it eager"
                )
            if self._messages is not None:
                self._messages.close()
            self._messages = MessageHistory(self, versions, size)
            return self._messages

    def explained_layout(self) -> ModelLayout:
        """The aggregations of the model, as the engine keeps them."""
        if self._layout is None or self._layout[0] is not self.model:
            over_types.refuse_rows_of_edges("contributions", self.model)
            codes = over_types.codes_of(self.model, self.graph)
            output = self._joined(self.model).output
            split = self.strategy in ("incremental", "constrained")
            self._layout = self.model, ModelLayout(output, split=split, codes=codes)
        return self._layout[1]

    def _refuse_unexplained(self, where: str) -> None:
        self.refuse_closed(where)
        self._refuse_what_if(where)
        if self.strategy not in _KEPT:
            raise UsageError(
                f"[{where}] expected a strategy that keeps messages ({', '.join(_KEPT)}), got {self.strategy!r}; use "
                "another one"
            )
        if self.state != "fast":
            raise UsageError(
                f'[{where}] expected state="fast", which keeps messages, got {self.state!r}; make the engine with it'
            )

    # of Engine

    @property
    def scales(self) -> list[list[int]]:
        """Of its sums."""
        raise NotImplementedError

    @property
    def version(self) -> int:
        """Of its rows."""
        raise NotImplementedError

    @property
    def is_eager(self) -> bool:
        """Whether every output is up to date after each batch."""
        raise NotImplementedError

    def _joined(self, model: Model) -> Model:
        raise NotImplementedError

    def _complete(self) -> None:
        raise NotImplementedError

    def refuse_closed(self, where: str) -> None:
        """Raises: UsageError after close()."""
        raise NotImplementedError

    def _refuse_what_if(self, where: str, expected: str = "a committed version") -> None:
        raise NotImplementedError

    def _follow(self, follower: Any) -> None:
        raise NotImplementedError

    def _unfollow(self, follower: Any) -> None:
        raise NotImplementedError


class _Explanation:
    """One answer, under the graph's lock."""

    def __init__(
        self, engine: Explained, vertex: Any, vertex_type: VertexType | None, column: int | None, budget: EdgeBudget
    ) -> None:
        self._engine, graph, self._budget = engine, engine.graph, budget
        self._layout = engine.explained_layout()
        self._vertex, self._vertex_type = vertex, vertex_type
        self._slot = graph.host.ids.slot("contributions", vertex, vertex_type)
        width = over_types.width_of(engine.model, graph, "contributions", vertex_type)
        self._typed = graph.host.schema.has_types
        self._column = self._chosen(column, width)
        self._scales = engine.scales
        self._model_type = self._number_of(self._slot)
        self._now = self._moment(())

    def answer(self, hops: int, limit: int) -> Contributions:
        engine, layout, slot = self._engine, self._layout, self._slot
        made = self._of_stage(layout.last, slot)
        parts = [self._part(each) for each in made]
        linear = all(part is not None for part in parts)
        found = tuple(
            self._scored(each, self._now, slot, part if linear else None)
            for each, part in zip(made, parts, strict=True)
        )
        if hops == 2 and layout.last == 0:
            raise ValueInvalid("[contributions] expected hops=1 for a model of one layer, got 2; leave hops out")
        sources = self._sources(found, limit) if hops == 2 else ()
        answer = Contributions(
            version=engine.version,
            vertex=self._vertex,
            vertex_type=None if self._vertex_type is None else str(self._vertex_type),
            column=self._column,
            is_linear=linear,
            aggregations=found,
            sources=sources,
        )
        return self._with_change(answer, made, parts, hops, limit)

    # ---- now

    def _moment(self, later: Sequence[Any]) -> Moment:
        width = self._engine.model.input_width if not self._typed else max(self._engine.model.input_widths.values())
        return Moment(self._engine.native, self._engine.graph.host.store, width, self._budget, later)

    def _chosen(self, column: int | None, width: int) -> int:
        if column is not None:
            if not 0 <= checks.whole_number("contributions", "column", column) < width:
                raise ValueInvalid(
                    f"[contributions] expected a column from 0 to {width - 1}, got {column}; choose one of them"
                )
            return column
        row = self._engine.native.read(np.array([self._slot], np.int64))[:, :width]
        return int(row[0].argmax()) if width > 1 and len(self._engine.model.outputs) < 2 else 0

    def _type_code(self, slot: int) -> int | None:
        if not self._typed:
            return None
        return int(self._engine.graph.host.store.slot_types(np.array([slot], np.int64))[0])

    def _number_of(self, slot: int) -> int | None:
        """The model's number of the slot's type."""
        code = self._type_code(slot)
        name = None if code is None else (self._engine.graph.vertex_types or ())[code]
        types = list(self._engine.model.vertex_types)
        return types.index(name) if name in types else None

    def _of_stage(self, stage: int, slot: int) -> list[Aggregation]:
        return self._layout.of_stage(stage, self._type_code(slot))

    def _part(self, made: Aggregation) -> _Part | None:
        """What a part of the aggregate adds to the column; None where that is not linear."""
        whole = linear_part(logits(self._layout.output), made.value, self._model_type)
        return None if whole is None else lambda rows: whole(rows)[:, self._column]

    def _scored(
        self,
        made: Aggregation,
        moment: Moment,
        slot: int,
        part: _Part | None,
    ) -> Shares:
        shares = shares_of(made, moment, slot, self._scales)
        found = self._named(shares, [moment] * len(shares.slots))
        return scored(found, *found.mapped(part or _norms))

    def _named(self, shares: Any, moments: Sequence[Moment]) -> Any:
        """With ids and types, of each entry as of a moment of its own."""
        was = [moment.was(slot) for moment, slot in zip(moments, shares.slots.tolist(), strict=True)]
        vertices, types = self._names(shares.slots, was)
        named = replace(shares, vertices=vertices, types=types)
        return replace(named, predictions=self._predictions(shares.slots)) if isinstance(shares, Shares) else named

    def _names(self, slots: Int64Array, was: Sequence[GoneVertex | None]) -> tuple[AnyArray, tuple[str, ...] | None]:
        """Ids and types of slots: those that they had, where that is given, and else those that they have."""
        graph = self._engine.graph
        live = np.array([each is None for each in was], np.bool_)
        found = np.array([None if each is None else each.id for each in was], object)
        found[live] = graph.to_external(slots[live]).tolist()
        kind = object if graph.host.ids.text else np.int64
        types = None
        if self._typed:
            names = graph.vertex_types or ()
            codes = graph.host.store.vertex_types()[slots].tolist()
            codes = [code if each is None else each.code for code, each in zip(codes, was, strict=True)]
            types = tuple(names[code] if code >= 0 else "" for code in codes)
        return found.astype(kind), types

    def _predictions(self, slots: Int64Array) -> tuple[Any, ...]:
        """Of the sources, now; None where the model has no one prediction for them."""
        engine, graph = self._engine, self._engine.graph
        none: list[Any] = [None] * len(slots)
        live = np.flatnonzero(graph.host.store.live()[slots])
        if len(engine.model.outputs) > 1 or not len(live):
            return tuple(none)
        rows = engine.native.read(slots[live])
        codes = graph.host.store.slot_types(slots[live]) if self._typed else np.zeros(len(live), np.int64)
        for code in np.unique(codes).tolist():
            here = np.flatnonzero(codes == code)
            name = (graph.vertex_types or ())[code] if self._typed else None
            try:
                width = over_types.width_of(engine.model, graph, "contributions", name)
            except ModelMismatch:
                continue
            for place, one in zip(live[here].tolist(), predictions(rows[here][:, :width], None).tolist(), strict=True):
                none[place] = one
        return tuple(none)

    def _sources(self, found: tuple[Shares, ...], limit: int) -> tuple[SourceContributions, ...]:
        answer = []
        for slot, vertex, name in _first(found, limit):
            made = self._of_stage(self._layout.last - 1, slot)
            answer.append(
                SourceContributions(vertex, name, tuple(self._scored(each, self._now, slot, None) for each in made))
            )
        return tuple(answer)

    # ---- the latest change

    def _with_change(
        self, answer: Contributions, made: list[Aggregation], parts: Sequence[Any], hops: int, limit: int
    ) -> Contributions:
        history = self._engine._messages
        if history is None:
            return replace(answer, change_missing="off")
        answer = replace(answer, recorded_since=history.floor)
        if any(each.on_edges for each in made):
            return replace(answer, change_missing="edges")
        version = history.latest(self._slot)
        if version is None:
            return replace(answer, change_missing="older")
        before = self._moment(history.after(version - 1))
        after = self._moment(history.after(version))
        changes = tuple(
            self._changed(each, before, after, self._slot, part) for each, part in zip(made, parts, strict=True)
        )
        sources: tuple[SourceChange, ...] = ()
        if hops == 2:
            sources = tuple(self._source_changes(changes, before, after, limit))
        return replace(answer, change=ContributionChange(version, changes, sources))

    def _changed(
        self,
        made: Aggregation,
        before: Moment,
        after: Moment,
        slot: int,
        part: _Part | None,
    ) -> ShareChange:
        found = moved(made, *(shares_of(made, moment, slot, self._scales) for moment in (before, after)))
        moments = [after if why == ("added",) else before for why in found.why]  # an id may have the slot of another
        named: ShareChange = self._named(found, moments)
        score = part or _norms
        own = None if found.own_value is None else float(score(found.own_value[None])[0])
        rest = float(score(found.rest[None])[0])
        return replace(named, scores=score(found.values), own_score=own, rest_score=rest)

    def _source_changes(
        self, changes: tuple[ShareChange, ...], before: Moment, after: Moment, limit: int
    ) -> list[SourceChange]:
        answer = []
        for slot, vertex, name in _first(changes, limit, "message"):
            try:
                made = [each for each in self._of_stage(self._layout.last - 1, slot) if not each.on_edges]
            except ModelUnsupported:
                continue
            found = tuple(self._changed(each, before, after, slot, None) for each in made)
            answer.append(SourceChange(vertex, name, found))
        return answer


def _norms(rows: Float64Array) -> Float64Array:
    lengths: Float64Array = np.sqrt((rows * rows).sum(axis=1))
    return lengths


def _first(found: Sequence[Any], limit: int, why: str | None = None) -> list[tuple[int, Any, str | None]]:
    """Distinct sources with the largest scores: slot, id, type."""
    best: dict[int, tuple[float, Any, str | None]] = {}
    for shares in found:
        types = shares.types or (None,) * len(shares)
        reasons = shares.why if why is not None else ((),) * len(shares)
        for slot, vertex, name, score, reason in zip(
            shares.slots.tolist(), shares.vertices.tolist(), types, np.abs(shares.scores).tolist(), reasons, strict=True
        ):
            if why is None or why in reason:
                best[slot] = max(best.get(slot, (-1.0, vertex, name)), (score, vertex, name), key=lambda one: one[0])
    ordered = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:limit]
    return [(slot, vertex, name) for slot, (_, vertex, name) in ordered]
