"""A convolution along the edges of one type: read as if vertices had no types, then given the types of its ends.

The layers' converters know nothing of types. They work on stand-ins for the rows of sources and targets; in what they
return the stand-ins are replaced, and every sum over edges becomes one over edges of the relation. A layer that treats
rows of its sources as its targets' does not pass this: values of two types never meet but along edges (models/ir.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from livegnn.errors import ModelError
from livegnn.models import edges, ir
from livegnn.models.order import with_inputs
from livegnn.models.pyg.context import Relation, refuse
from livegnn.models.pyg.convs.call import Call


def convert_along(conv: Any, call: Call, convert: Callable[[Any, Call], Any], relation: Relation) -> ir.Value:
    """The value of a convolution's call along edges of `relation`.

    Raises: ModelUnsupported where the layer cannot go from one type of vertex to another.
    """
    rows: dict[int, ir.Value] = {}  # by id of the real rows
    standing: dict[int, ir.Value] = {}  # stand-in -> the real rows

    def stand_in(value: Any) -> Any:
        if not isinstance(value, ir.Value) or value.on_edges:
            return value
        if id(value) not in rows:
            rows[id(value)] = ir.Input(value.width)
            standing[id(rows[id(value)])] = value
        return rows[id(value)]

    others = {key: stand_in(value) for key, value in call.others.items()}
    result = convert(conv, dataclasses.replace(call, x=stand_in(call.x), own=stand_in(call.own), others=others))
    try:
        return with_types(result, standing, relation)
    except ModelError as error:
        raise refuse(
            call.where,
            f"it does not go from one type of vertex to another ({error})",
            "use one of the layers that docs/hetero.md names there",
        ) from error


def with_types(result: ir.Value, standing: Mapping[int, ir.Value], relation: Relation) -> ir.Value:
    """What was made of stand-ins, made of the rows that they stand for. Raises: ModelError where types do not meet."""
    new: dict[int, ir.Value] = {}
    for value in ir.walk(result):
        inputs = [new[id(x)] for x in value.inputs]
        if id(value) in standing:
            new[id(value)] = standing[id(value)]
        elif isinstance(value, ir.Linear):
            new[id(value)] = ir.Linear(inputs[0], value.weight, value.bias)
        elif isinstance(value, ir.Combine):
            coefficients = (coefficient for coefficient, _ in value.terms)
            new[id(value)] = ir.Combine(tuple(zip(coefficients, inputs, strict=True)))
        elif isinstance(value, ir.Propagate):
            target = relation.src if value.reversed else relation.dst
            new[id(value)] = dataclasses.replace(value, x=inputs[0], relation=relation.number, target=target)
        elif isinstance(value, edges.Gather):
            score = inputs[1] if len(inputs) > 1 else None
            target = relation.src if value.reversed else relation.dst
            new[id(value)] = dataclasses.replace(
                value, message=inputs[0], score=score, relation=relation.number, target=target
            )
        else:
            new[id(value)] = with_inputs(value, inputs)
    return new[id(result)]
