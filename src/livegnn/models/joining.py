"""Joins a model with a graph: which of the graph's columns of edges the model takes for weights and attributes.

A graph has weights, attributes, both or neither, and knows where its weights come from (`Graph.weight_column`). A model
read from a PyG forward knows what that forward hands to its layers as weights (`Model.weights_from`): edge_weight,
edge_attr, or these columns of one Data. What one name decides is decided; where two ways are left, the join is refused
and names both.
"""

from __future__ import annotations

from dataclasses import dataclass

from livegnn.errors import ColumnMissing, ModelMismatch, ModelUnsupported
from livegnn.graph.load import WeightColumn
from livegnn.models import edges, ir
from livegnn.models.messages import filled
from livegnn.models.model import Model
from livegnn.models.order import with_inputs


@dataclass(frozen=True)
class GraphColumns:
    """What a graph's edges have: where the weights come from, None without; the attributes' width, 0 without."""

    weight: WeightColumn | None
    attribute_width: int


def joined(model: Model, columns: GraphColumns) -> Model:
    """The model on a graph with `columns`; its `weights` is never "optional".

    Raises: ColumnMissing, ModelMismatch where the graph has not what the model reads; ModelUnsupported where the model
            was refused with a column that the graph has, or the two could be joined in two ways.
    """
    _refuse_columns(model, columns)
    fitted = model.for_graph(_takes_weights(model, columns))
    wanted, found = fitted.attribute_width, columns.attribute_width
    if wanted == 1 and found == 0 and columns.weight == "edge_attr":
        return _on_numbers(fitted)
    if wanted is not None and found == 0:
        got = "one number per edge" if columns.weight == "edge_attr" else "a graph without"
        raise ColumnMissing(
            f"[Engine] expected edge attributes of width {wanted}, which the model reads, got {got}; "
            "pass edge_attr= to Graph"
        )
    if wanted is not None and wanted != found:
        raise ModelMismatch(
            f"[Engine] expected edge attributes of width {wanted}, as the model takes, got {found}; "
            "use the graph it was trained on"
        )
    return fitted


def _refuse_columns(model: Model, columns: GraphColumns) -> None:
    """Refuses a graph with a column that the import left out because it could not be read."""
    given = set() if columns.weight is None else {"edge_attr" if columns.weight == "edge_attr" else "edge_weight"}
    given |= {"edge_attr"} if columns.attribute_width else set()
    for name in sorted(given & set(model.refused)):
        option = "weighted=False" if name == "edge_weight" else "edge_width=0"
        raise ModelUnsupported(
            f"[Engine] expected a graph without {name}, which the model's forward may read and the import left out "
            f"({model.refused[name]}), got one with it; import with from_pyg(module, {option}) to leave it out"
        )


def _takes_weights(model: Model, columns: GraphColumns) -> bool:
    """Whether the model reads the graph's weights as its own. Raises: ColumnMissing, ModelUnsupported."""
    if model.weights == "none":
        return False
    reads, has = model.weights_from, columns.weight
    wanted = None if reads is None else reads.removeprefix("data.")
    if wanted == "edge_attr" and columns.attribute_width:
        raise ModelUnsupported(
            "[Engine] expected a graph whose weights are its edge_attr, which the model's forward hands to its layers "
            f"as weights, got one that keeps edge_attr as attributes of width {columns.attribute_width}; build it from "
            "a 1-D edge_attr (data.edge_attr.view(-1)) and no edge_weight, or import with from_pyg(module, "
            "weighted=True) to take its weight= instead"
        )
    if has is None:
        undecided = reads == "edge_weight" and model.weights == "optional" and model.attribute_width is None
        if undecided and columns.attribute_width == 1:
            raise _asked(model, "one column of attributes", "build it with that column as weight= to take it")
        return False
    if wanted is None or has == wanted:
        return True
    if has == "weight" and wanted == "edge_weight":  # given to Graph by hand
        return True
    if reads == "data.edge_weight":  # PyG's Data gives None, and the forward goes on without
        return False
    named = "weights given as weight=" if has == "weight" else f"{has} alone"
    raise _asked(model, named, "import with from_pyg(module, weighted=True) to take it as the weights")


def _asked(model: Model, got: str, take: str) -> ModelUnsupported:
    """Of a join that could be made in two ways."""
    column = str(model.weights_from).removeprefix("data.")
    leave = ", or with from_pyg(module, weighted=False) to leave it out" if model.weights == "optional" else ""
    return ModelUnsupported(
        f"[Engine] expected a graph with {column}, from which the model's forward takes edge weights, got one with "
        f"{got}; {take}{leave}"
    )


def _on_numbers(model: Model) -> Model:
    """The model with its one attribute read from the graph's weights, where a 1-D edge_attr is kept."""
    new: dict[int, ir.Value] = {}
    numbers = edges.EdgeWeight()
    names = {}
    for value in ir.walk(*(each for each in (model.output, model.edge_output) if each is not None)):
        inputs = [new[id(each)] for each in value.inputs]
        if isinstance(value, edges.Gather) and value.loops == "replace":
            inputs = _with_numbers(value, new, filled(numbers, value.fill))
        new[id(value)] = numbers if isinstance(value, edges.EdgeAttribute) else with_inputs(value, inputs)
        names[id(new[id(value)])] = model.name_of(value)
    return Model.from_output(
        new[id(model.output)],
        edge_head=model.edge_head,
        names=names,
        vertex_types=model.vertex_types,
        edge_types=model.edge_types,
        outputs=model.outputs,
        edge_output=None if model.edge_output is None else new[id(model.edge_output)],
    )


def _with_numbers(gather: edges.Gather, new: dict[int, ir.Value], numbers: ir.Value) -> list[ir.Value]:
    """The inputs of a gather with `numbers` in the place of the attribute, of which its added loops have one, too."""
    here: dict[int, ir.Value] = {}
    for value in ir.walk(*gather.inputs):
        if isinstance(value, edges.EdgeAttribute):
            here[id(value)] = numbers
        elif isinstance(value, edges.Source | edges.Target) or not value.on_edges:
            here[id(value)] = new[id(value)]
        else:
            here[id(value)] = with_inputs(value, [here[id(each)] for each in value.inputs])
    return [here[id(each)] for each in gather.inputs]
