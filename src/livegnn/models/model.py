"""A model: one output value, what it reads of the graph, and names for its parts.

Invariants: exactly one Input; `weights` says what the model does with the graph's edge weights and `for_graph` turns a
model that may or may not read them into one that certainly does or does not.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ColumnMissing, ModelError, ModelMismatch, WidthMismatch
from livegnn.models import edge_level, edges, ir, model_file, stored
from livegnn.models.layers import Layer, applied, first_input_width

WeightUse: TypeAlias = Literal["none", "optional", "required"]
WeightsFrom: TypeAlias = Literal["edge_weight", "edge_attr", "data.edge_weight", "data.edge_attr"]
EdgeTriple: TypeAlias = tuple[str, str, str]


class Model:
    """A graph neural network as data.

    y = output(x, edges): `layers` one after the other, from the features on. Arrays are kept as float32.

    Args:     layers: layer specs (`livegnn.models.layers`).
              input_width: the features' width, where no layer states it.
              edge_head: row-local value of width 1 over an Input of width 2 * output_width, the two ends' embeddings
                  side by side; None scores a pair by their dot product.
    Raises:   ModelError, WidthMismatch if layers do not fit together.
    """

    _weights_from: WeightsFrom | None = None
    _refused: Mapping[str, str] = MappingProxyType({})
    _tables: Mapping[str, NDArray[np.float32]] = MappingProxyType({})
    _outputs: Mapping[str, tuple[int, int]] = MappingProxyType({})
    _edge_output: ir.Value | None = None
    _unweighted_edge_output: ir.Value | None = None

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        input_width: int | None = None,
        edge_head: ir.Value | None = None,
    ) -> None:
        if not layers:
            raise ModelError("[Model] expected at least one layer, got none; pass a list such as [lg.layers.GCN(W, b)]")
        width = first_input_width(layers) if input_width is None else input_width
        if width is None:
            raise ModelError("[Model] expected a layer that states the features' width, got none; pass input_width=")
        if isinstance(width, bool) or not isinstance(width, int | np.integer):
            raise ModelError(f"[Model] expected input_width as an int, got {width!r}; pass the features' width")
        features = ir.Input(int(width))
        names: dict[int, str] = {id(features): "input"}
        for position, x in enumerate(applied(layers, features, "Model")):
            for value in ir.walk(x):
                names.setdefault(id(value), f"layers[{position}] ({type(layers[position]).__name__})")
        self._set_types(x, None, (), ())
        self._define(x, None, edge_head, names)

    @classmethod
    def from_output(
        cls,
        output: ir.Value,
        *,
        unweighted: ir.Value | None = None,
        edge_head: ir.Value | None = None,
        names: Mapping[int, str] | None = None,
        vertex_types: Sequence[str] = (),
        edge_types: Sequence[EdgeTriple] = (),
        weights_from: WeightsFrom | None = None,
        refused: Mapping[str, str] | None = None,
        tables: Mapping[str, NDArray[np.float32]] | None = None,
        outputs: Mapping[str, tuple[int, int]] | None = None,
        edge_output: ir.Value | None = None,
        unweighted_edge_output: ir.Value | None = None,
    ) -> Model:
        """A model from values built by hand.

        Args:     unweighted: the output on a graph without weights, where the model may be used with or without.
                  names: id(value) -> name for messages.
                  vertex_types, edge_types: names of the types that values are numbered by; output is then a ByType.
                  weights_from: the property.   refused: column of a graph ("edge_weight" or "edge_attr") -> why the
                  model is refused on a graph that has it.   tables, outputs: the properties.
                  edge_output, unweighted_edge_output: over rows of the two outputs, as `from_edges` makes them.
        Raises:   ModelError if there is not exactly one Input.
        """
        model = cls.__new__(cls)
        model._weights_from, model._refused = weights_from, dict(refused or {})
        model._tables = dict(tables or {})
        model._edge_output, model._unweighted_edge_output = edge_output, unweighted_edge_output
        model._outputs = _checked_outputs(outputs or {}, (edge_output or output).width)
        model._set_types(output, unweighted, tuple(vertex_types), tuple(edge_types))
        model._define(output, unweighted, edge_head, dict(names or {}))
        return model

    @classmethod
    def from_edges(cls, edge_output: ir.Value, *, unweighted: ir.Value | None = None, **options: Any) -> Model:
        """A model with one row per edge, from a value on edges; options: as of from_output.

        y[(u, v)] = edge_output(rows of u, rows of v, attributes and weight of the edge). What is kept of a vertex, the
        model's `output`, is the rows that `edge_output` reads at ends of edges.

        Raises: ModelError for a value that reads no vertex, or vertices that have types.
        """
        output, edge_output = edge_level.rows_of_ends(edge_output)
        if unweighted is not None:
            options["unweighted"], options["unweighted_edge_output"] = edge_level.rows_of_ends(unweighted)
        return cls.from_output(output, edge_output=edge_output, **options)

    def _set_types(
        self,
        output: ir.Value,
        unweighted: ir.Value | None,
        vertex_types: tuple[str, ...],
        edge_types: tuple[EdgeTriple, ...],
    ) -> None:
        self._vertex_types, self._edge_types = vertex_types, edge_types
        roots = [output] if unweighted is None else [output, unweighted]
        for value in roots:
            if isinstance(value, ir.ByType) != bool(vertex_types) or value.vertex_type is not None:
                raise ModelError(
                    "[Model] expected a ByType as the output if there are vertex_types, and only then, got "
                    f"{type(value).__name__} with vertex types {vertex_types}; fix the output"
                )
        if not vertex_types:
            return
        for value in ir.walk(*roots):
            if value.vertex_type is not None and value.vertex_type >= len(vertex_types):
                raise ModelError(f"[Model] expected types below {len(vertex_types)}, got {value.vertex_type}; name all")
            if isinstance(value, ir.Propagate | edges.Gather):
                self._check_relation(value)

    def _check_relation(self, value: ir.Propagate | edges.Gather) -> None:
        """Refuses rows that do not go where the edges of their relation lead."""
        relation = value.relation
        relations = relation if isinstance(relation, tuple) else () if relation is None else (relation,)
        if not relations:
            raise ModelError(
                "[Model] expected a relation in every sum over edges between vertex types, got none; name it"
            )
        codes = {value.x.vertex_type} if isinstance(value, ir.Propagate) else edges.end_types(value.inputs)[0]
        target = None if value.vertex_type is None else self._vertex_types[value.vertex_type]
        for each in relations:
            # of several relations each has its own part of the message, a ByRelation
            leads_to = self._check_sources(codes if len(relations) == 1 else set(), each, value.reversed)
            if leads_to[0 if value.reversed else 2] != target:
                raise ModelError(
                    f"[Model] expected rows that go along edges of their relation, got {leads_to} to {target!r}; "
                    "name the edge types in the order of their numbers"
                )
        parts = [part for part in edges.on_edges(value.inputs) if isinstance(part, edges.ByRelation)]
        for by_relation in parts:
            for part, each in zip(by_relation.parts, by_relation.relations, strict=True):
                self._check_sources(edges.end_types((part,))[0], each, value.reversed)

    def _check_sources(self, codes: Set[int | None], relation: int, reversed: bool) -> EdgeTriple:
        """A relation's type of edges. Refuses rows of other sources than these have."""
        sources = sorted(self._vertex_types[code] for code in codes if code is not None)
        known = 0 <= relation < len(self._edge_types)
        if not known or not {*sources} <= {self._edge_types[relation][2 if reversed else 0]}:
            got = self._edge_types[relation] if known else relation
            raise ModelError(
                f"[Model] expected rows that go along edges of their relation, got {got} from rows of {sources}; name "
                "the edge types in the order of their numbers"
            )
        return self._edge_types[relation]

    def _define(
        self, output: ir.Value, unweighted: ir.Value | None, edge_head: ir.Value | None, names: dict[int, str]
    ) -> None:
        self._output, self._unweighted, self._edge_head = output, unweighted, edge_head
        self._values = ir.walk(*self._roots())
        inputs = [value for value in self._values if isinstance(value, ir.Input)]
        if len(inputs) != 1:
            raise ModelError(f"[Model] expected exactly one Input, got {len(inputs)}; build all values on one ir.Input")
        self._input = inputs[0]
        widths = sorted({value.width for value in self._values if isinstance(value, edges.EdgeAttribute)})
        if len(widths) > 1:
            raise WidthMismatch(
                f"[Model] expected edge attributes of one width, got layers that read {widths}; check their weights"
            )
        self._check_rows_of_edges()
        whole = self._edge_output or output
        without = self._unweighted_edge_output or unweighted
        if without is not None and (_reads_weights(without) or without.width != whole.width):
            raise ModelError("[Model] expected an unweighted output of equal width, got another; rebuild it")
        if edge_head is not None:
            _check_edge_head(edge_head, output.width)
        self._names = {id(value): names[id(value)] for value in self._values if id(value) in names}

    def _roots(self) -> list[ir.Value]:
        """What is computed on a graph with weights, then what is without."""
        roots = (self._output, self._edge_output, self._unweighted, self._unweighted_edge_output)
        return [each for each in roots if each is not None]

    def _check_rows_of_edges(self) -> None:
        """Refuses rows of edges that are not computed from the output's. Raises: ModelError."""
        if self._edge_output is None and self._unweighted_edge_output is None:
            return
        if self._edge_output is None or (self._unweighted is None) != (self._unweighted_edge_output is None):
            raise ModelError("[Model] expected an edge output for each output, got one alone; use Model.from_edges")
        if self._vertex_types or self._edge_head is not None:
            raise ModelError(
                "[Model] expected an edge output alone, over vertices without types, got types or an edge head as "
                "well; leave them out"
            )
        edge_level.check_edge_output(self._output, self._edge_output)
        if self._unweighted is not None and self._unweighted_edge_output is not None:
            edge_level.check_edge_output(self._unweighted, self._unweighted_edge_output)

    @property
    def edge_output(self) -> ir.Value | None:
        """One row per edge, where that is the model's result (`Engine.edge_outputs`); `output` is then what is kept of
        a vertex for it. None for a model with one row per vertex.
        """
        return self._edge_output

    @property
    def output(self) -> ir.Value:
        """The value that an engine keeps up to date (on a graph with weights, where the model may read them)."""
        return self._output

    @property
    def input_width(self) -> int:
        """Width of the features."""
        return self._input.width

    @property
    def output_width(self) -> int:
        """Width of the embeddings."""
        return self._output.width

    @property
    def outputs(self) -> Mapping[str, tuple[int, int]]:
        """Name -> columns (start, stop) of each result, where the output holds several side by side; else empty."""
        return MappingProxyType(dict(self._outputs))

    def columns_of(self, name: str | int) -> tuple[int, int]:
        """The columns of one of `outputs`. Raises: ModelMismatch naming those that there are."""
        found = self._outputs.get(str(name))
        if found is None:
            there = f"output as one of {', '.join(self._outputs)}" if self._outputs else "output left out"
            advice = "pass one of these" if self._outputs else "import the model with outputs='all'"
            raise ModelMismatch(f"[model] expected {there}, got {name!r}; {advice}")
        return found

    @property
    def vertex_types(self) -> tuple[str, ...]:
        """Names of the vertex types that the model was made for; empty for a graph with one kind of vertex."""
        return self._vertex_types

    @property
    def edge_types(self) -> tuple[EdgeTriple, ...]:
        """(src type, name, dst type) of the edge types that the model was made for."""
        return self._edge_types

    @property
    def input_widths(self) -> dict[str, int]:
        """Width of the features by vertex type, for the types whose features the model reads."""
        read = {value.code: value.columns for value in self._values if isinstance(value, ir.OfType)}
        return {self._vertex_types[code]: read[code] for code in sorted(read)}

    @property
    def output_widths(self) -> dict[str, int]:
        """Width of the embeddings by vertex type, for the types that have any."""
        parts = self._output.parts if isinstance(self._output, ir.ByType) else ()
        widths = {part.vertex_type: part.width for part in parts}
        return {name: widths[code] for code, name in enumerate(self._vertex_types) if code in widths}

    @property
    def uses_weights(self) -> bool:
        """Whether `output`, or the edge output, reads the graph's edge weights."""
        return _reads_weights(self._output) or (self._edge_output is not None and _reads_weights(self._edge_output))

    @property
    def weights(self) -> WeightUse:
        """What the model does with edge weights: reads none, reads them where the graph has them, must have them."""
        if not self.uses_weights:
            return "none"
        return "required" if self._unweighted is None else "optional"

    @property
    def weights_from(self) -> WeightsFrom | None:
        """What the PyG forward hands to its layers as edge weights: an argument, or a column of its Data.

        None for a model that takes the graph's weights wherever they come from, or takes none.
        """
        return self._weights_from

    @property
    def refused(self) -> Mapping[str, str]:
        """Column of a graph ("edge_weight" or "edge_attr") -> why the model cannot run on a graph that has it."""
        return MappingProxyType(dict(self._refused))

    @property
    def tables(self) -> Mapping[str, NDArray[np.float32]]:
        """Rows of the vertices that the PyG module had as parameters, by name: the features of the graph.

        A new vertex needs a row, too: features=, or the mean of its neighbours' rows, say. Not stored with an engine.
        """
        return MappingProxyType(dict(self._tables))

    @property
    def attribute_width(self) -> int | None:
        """Width of the edge attributes that the model reads; None if it reads none."""
        return next((value.width for value in self._values if isinstance(value, edges.EdgeAttribute)), None)

    @property
    def uses_types(self) -> bool:
        """Whether the model distinguishes edges by their type."""
        return any(
            isinstance(value, edges.EdgeRelation) or getattr(value, "relation", None) is not None
            for value in self._values
        )

    @property
    def uses_edges(self) -> bool:
        """Whether messages are computed edge by edge (a Gather), not once per vertex."""
        return any(isinstance(value, edges.Gather) for value in self._values)

    @property
    def goes_back(self) -> bool:
        """Whether some messages go against the edges, so that a row depends on out-neighbours, too."""
        return any(isinstance(value, ir.Propagate | edges.Gather) and value.reversed for value in self._values)

    @property
    def edge_head(self) -> ir.Value | None:
        """How pairs are scored; None is the dot product."""
        return self._edge_head

    def for_graph(self, has_weight: bool) -> Model:
        """This model on a graph that has, or has not, a weight per edge; the result's `weights` is never "optional".

        Raises: ColumnMissing if the model needs weights and the graph has none.
        """
        use = self.weights
        if use == "required" and not has_weight:
            name = next(self.name_of(value) for value in self._values if _reads_weight(value))
            raise ColumnMissing(
                f"[model] expected edge weights, which {name} reads, got a graph without; pass weight= to Graph"
            )
        if use != "optional":
            return self
        assert self._unweighted is not None
        fitted = copy.copy(self)
        fitted._edge_output = self._edge_output if has_weight else self._unweighted_edge_output
        fitted._unweighted_edge_output = None
        fitted._define(self._output if has_weight else self._unweighted, None, self._edge_head, self._names)
        return fitted

    def name_of(self, value: ir.Value) -> str:
        """Where a value comes from, for messages: a layer's position or the module's qualified name."""
        name = self._names.get(id(value))
        return name if name is not None else f"{type(value).__name__} of width {value.width}"

    @property
    def depth(self) -> int:
        """The largest number of sums over edges between the features and the output."""
        depth: dict[int, int] = {}
        for value in self._values:
            below = max((depth[id(each)] for each in value.inputs), default=0)
            depth[id(value)] = below + isinstance(value, ir.Propagate | edges.Gather)
        return depth[id(self._output)]

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
        """(structure, arrays): JSON-ready data and the weights it names; the grammar is in `livegnn.models.stored`."""
        of_edges = (self._edge_output, self._unweighted_edge_output)
        structure, arrays = stored.to_arrays(self._output, self._unweighted, self._edge_head, self._names, of_edges)
        if self._vertex_types:
            structure |= {"vertex_types": [*self._vertex_types], "edge_types": [[*each] for each in self._edge_types]}
        if self._weights_from is not None:
            structure["weights_from"] = self._weights_from
        if self._refused:
            structure["refused"] = dict(self._refused)
        if self._outputs:
            structure["outputs"] = {name: [*columns] for name, columns in self._outputs.items()}
        return structure, arrays

    @classmethod
    def from_arrays(cls, structure: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Model:
        """The model that `to_arrays` wrote, bit for bit.

        Raises: StoredStateInvalid if the data are damaged or of another version.
        """
        return cls.from_output(**stored.from_arrays(structure, arrays))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes structure and weights to one file with a checksum: a crash leaves the old file or the new one.

        Raises: UsageError for a path without a folder, or that is none; StorageFailed where the disk refuses.
        """
        model_file.write(path, *self.to_arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """The model that save() wrote, bit for bit; no code is run from the file, and PyTorch is not needed.

        Raises: StoredStateInvalid for a damaged or foreign file; FileMissing; StorageFailed.
        """
        return cls.from_arrays(*model_file.read(path))

    def __repr__(self) -> str:
        reads, makes, more = f"{self.input_width}", f"{self.output_width}", ""
        if self._vertex_types:
            widths = (self.input_widths, self.output_widths)
            reads, makes = (", ".join(f"{name} {width}" for name, width in each.items()) for each in widths)
        else:
            more += "" if self.attribute_width is None else f", edge attributes {self.attribute_width}"
            more += ", edge types" if self.uses_types else ""
        if self._edge_output is not None:
            makes = f"{self._edge_output.width} per edge"
        size = f"depth {self.depth}, {len(self._values)} values, weights {self.weights}"
        return f"Model({reads} -> {makes}, {size}{more})"


def _reads_weights(output: ir.Value) -> bool:
    return any(_reads_weight(value) for value in ir.walk(output))


def _reads_weight(value: ir.Value) -> bool:
    return isinstance(value, edges.EdgeWeight) or (isinstance(value, ir.Propagate) and value.weighted)


def _checked_outputs(outputs: Mapping[str, tuple[int, int]], width: int) -> dict[str, tuple[int, int]]:
    """The columns of several results. Raises: ModelError for columns that the output does not have."""
    checked = {str(name): (int(start), int(stop)) for name, (start, stop) in outputs.items()}
    if any(not 0 <= start < stop <= width for start, stop in checked.values()):
        raise ModelError(f"[Model] expected outputs within {width} columns, got {checked}; fix the columns")
    return checked


def _check_edge_head(head: ir.Value, width: int) -> None:
    values = ir.walk(head)
    inputs = [value.width for value in values if isinstance(value, ir.Input)]
    if (
        inputs != [2 * width]
        or head.width != 1
        or any(isinstance(value, ir.Propagate | edges.Gather) for value in values)
    ):
        raise ModelError(
            f"[Model] expected a row-local edge head from width {2 * width} to 1, got {inputs} to {head.width}; "
            "build it on ir.Input(2 * output_width)"
        )
