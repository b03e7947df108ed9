"""With which columns of the edges a forward is read: with weights and without, with attributes as rows, as one number
an edge, or without.

A forward may hand edge_attr to a layer's edge_weight. Then the model's weights come from edge_attr, and it has the two
forms, with and without weights, that one with an edge_weight of its own has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import nn

from livegnn.errors import ModelError, ModelMismatch, ModelUnsupported
from livegnn.models import edges, ir
from livegnn.models.model import WeightsFrom
from livegnn.models.pyg.check import Columns, runs
from livegnn.models.pyg.columns import edge_widths, stated_widths
from livegnn.models.pyg.context import Import, refuse
from livegnn.models.pyg.signature import Signature

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """The options of lg.from_pyg that say how a module is read."""

    check: bool
    weighted: bool | None
    input_width: int | Mapping[str, int] | None
    edge_width: int | None
    ignore_cached: bool = False
    outputs: Any = None
    operators: Mapping[type, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """Edge attributes that a forward may be given: their width, None for none, and whether as a vector.

    guessed: no layer states that the forward reads any, and it can do without.
    """

    width: int | None
    flat: bool = False
    guessed: bool = False


def attribute_choices(module: nn.Module, signature: Signature, edge_width: int | None) -> list[Choice]:
    """The attributes to try a forward with, the likeliest first. Raises: ModelError for an edge_width that is none."""
    kind, use = type(module).__name__, signature.attributes
    if edge_width is not None:
        if edge_width and use == "none":
            raise ModelError(
                f"[from_pyg] expected a forward with edge_attr, got {kind}'s without; leave edge_width out"
            )
        vectors = [Choice(1, flat=True)] if edge_width == 1 else []
        return [Choice(edge_width or None), *vectors]
    if use == "none":
        return [Choice(None)]
    stated = [Choice(width) for width in edge_widths(module, use == "required")]
    if stated or use == "required":
        return [*stated, Choice(1, flat=True)]
    others = [Choice(width, guessed=True) for width in stated_widths(module)]
    return [Choice(1, True, True), *others, Choice(None, guessed=True)]


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What a module is read as: outputs with and without weights, and Model's weights_from, refused and tables."""

    outputs: dict[bool, T]
    weights_from: WeightsFrom | None
    refused: dict[str, str]
    tables: Mapping[str, Any] = field(default_factory=dict)


def _uses_weights(output: ir.Value) -> bool:
    """Whether any value reads the edges' weights."""
    return any(isinstance(each, edges.EdgeWeight) or getattr(each, "weighted", False) for each in ir.walk(output))


class VariantReader(Generic[T]):
    """Reads the forms of one module.

    read: the output with such columns.   compare: raises where it is not the module's.   rows: of an output, those of
    vertices.
    """

    def __init__(
        self,
        module: nn.Module,
        signature: Signature,
        record: Import,
        read: Callable[[Columns], T],
        compare: Callable[[T, Columns], None],
        rows: Callable[[T], ir.Value],
    ) -> None:
        self.module, self.signature, self.record = module, signature, record
        self.read, self.compare, self.rows = read, compare, rows
        self.kind = type(module).__name__
        self.refused: dict[str, str] = {}

    def all(self, columns: Columns, choice: Choice, options: Options) -> Reading[T]:
        """Every form that the options ask for. Raises: ModelUnsupported, ModelMismatch, ModelError."""
        weighted = options.weighted
        if choice.guessed:
            columns = self.settled(columns)
        elif columns.attributes == 1 and not columns.flat:
            columns = self.shaped(columns)
        outputs: dict[bool, T] = {}
        taken: set[str] = set()
        for with_weights in self.wanted(weighted):
            here = dataclasses.replace(columns, weighted=with_weights)
            try:
                outputs[with_weights] = self.form(here, options)
            except ModelUnsupported as error:
                if not self.may_leave_out(here, outputs, weighted):
                    raise
                if with_weights:
                    self.refused["edge_weight"] = _reason(error)
            taken |= self.record.weights_from
        if "edge_attr" in taken:
            return self.from_attributes(columns, outputs, taken, options)
        if weighted and self.signature.weights == "none":
            raise ModelError(
                f"[from_pyg] expected a forward with edge_weight, got {self.kind}'s without; leave weighted out"
            )
        if True in outputs and not _uses_weights(self.rows(outputs[True])):
            outputs = {False: outputs.get(False, outputs[True])}
        named = weighted is None and True in outputs
        return Reading(outputs, self.name("edge_weight") if named else None, self.refused)

    def form(self, columns: Columns, options: Options | None = None) -> T:
        """One reading, and what it takes weights from; with options, compared with the module as they say.

        What torch.fx reads otherwise than it runs (`isinstance(edge_index, Tensor)`) is recorded, and compared again.
        """
        try:
            return self.compared(columns, options)
        except ModelMismatch as error:
            if self.record.forced:
                raise
            self.record.forced = True
            try:
                return self.compared(columns, options)
            except (ModelMismatch, ModelUnsupported):
                self.record.forced = False
                raise self.record.unfollowed or error from error

    def compared(self, columns: Columns, options: Options | None) -> T:
        """One reading. Raises: ModelUnsupported, ModelMismatch."""
        self.record.weights_from.clear()
        output = self.read(columns)
        as_weights = self.takes_attributes(self.record.weights_from)
        if options is not None and (options.check or self.record.recorded):
            self.compare(output, dataclasses.replace(columns, as_weights=as_weights))
        return output

    def runs(self, columns: Columns) -> bool:
        return runs(self.module, self.signature, columns)

    def settled(self, columns: Columns) -> Columns:
        """Columns with attributes if the forward takes these for weights, or cannot do without."""
        bare: Columns = dataclasses.replace(columns, attributes=None, flat=False)
        if columns.attributes is None:
            self.refused["edge_attr"] = f"{self.kind}.forward fails with edge_attr of any width that was tried"
            return bare
        try:
            read = self.form(columns)
        except ModelUnsupported as error:
            if self.signature.data:
                raise
            self.refused["edge_attr"] = _reason(error)
            return bare
        if "edge_attr" in self.record.weights_from or not self.runs(bare):
            return columns
        if any(isinstance(each, edges.EdgeAttribute) for each in ir.walk(self.rows(read))):
            width = columns.attributes
            self.refused["edge_attr"] = f"{self.kind}.forward reads it in rows of width {width} with edge_width={width}"
        return bare

    def shaped(self, columns: Columns) -> Columns:
        """Attributes of width 1 as rows, or as a vector where only that can be read."""
        vector: Columns = dataclasses.replace(columns, flat=True)
        try:
            self.form(columns)
        except ModelUnsupported:
            return vector if self.runs(vector) else columns
        return columns

    def wanted(self, weighted: bool | None) -> list[bool]:
        """With which of weights and no weights the forward is read. Raises: ModelError for a bad `weighted`."""
        use = self.signature.weights
        if weighted is not None and not isinstance(weighted, bool):
            raise ModelError(f"[from_pyg] expected weighted as True, False or None, got {weighted!r}; leave it out")
        if weighted is None:
            return {"none": [False], "optional": [True, False], "required": [True]}[use]
        if weighted is False and use == "required":
            raise ModelError(
                f"[from_pyg] expected weighted=True, got {self.kind}'s edge_weight without default; leave it out"
            )
        return [weighted and use != "none"]

    def may_leave_out(self, columns: Columns, outputs: dict[bool, T], weighted: bool | None) -> bool:
        """Whether a form is one of two, and the module itself does not run in it."""
        one_of_two = weighted is None and self.signature.weights == "optional"
        return one_of_two and (columns.weighted or bool(outputs)) and not self.runs(columns)

    def from_attributes(
        self, columns: Columns, outputs: dict[bool, T], taken: set[str], options: Options
    ) -> Reading[T]:
        """The forms of a forward that hands edge_attr to its layers as weights."""
        self.takes_attributes(taken)
        weighted = options.weighted
        optional = self.signature.attributes == "optional"
        if weighted is False and not optional:
            raise ModelError(
                f"[from_pyg] expected weighted=True, got {self.kind}'s edge_attr, its weights, without default; "
                "leave it out"
            )
        found = dict.fromkeys([True], outputs[False] if False in outputs else outputs[True])
        if optional and weighted is not True:
            bare = dataclasses.replace(columns, weighted=False, attributes=None, flat=False, bare=True)
            try:
                found[False] = self.form(bare, options)
            except ModelUnsupported:
                if weighted is False or self.runs(bare):  # else it needs them
                    raise
        if weighted is False:
            del found[True]
        return Reading(found, self.name("edge_attr") if weighted is None else None, self.refused)

    def name(self, column: str) -> Any:
        return f"data.{column}" if self.signature.data else column

    def takes_attributes(self, taken: set[str]) -> bool:
        """Whether weights are taken from edge_attr. Raises: ModelUnsupported if they are from edge_weight, too."""
        if len(taken) > 1:
            raise refuse(
                f"{self.kind}.forward",
                "it takes edge weights from edge_weight and from edge_attr",
                "use one of them, or pass weighted=True for edge_weight alone",
            )
        return "edge_attr" in taken


def _reason(error: ModelUnsupported) -> str:
    return f"{error.got}; {error.advice}" if error.got else str(error)
