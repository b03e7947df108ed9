"""The same computation with its messages going against the edges.

A layer is read, or applied, as if messages went along the edges; then every sum that it has made is turned round. So no
layer has a form of its own for the other direction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from livegnn.models import ir
from livegnn.models.edges import Gather
from livegnn.models.order import with_inputs


def turned(result: ir.Value, before: Iterable[ir.Value]) -> ir.Value:
    """`result` with every Propagate and Gather turned round, but for those that the values `before` are made of."""
    new = {id(value): value for value in ir.walk(*before)}
    for value in ir.walk(result):
        if id(value) in new:
            continue
        built = with_inputs(value, [new[id(x)] for x in value.inputs])
        if isinstance(built, ir.Propagate | Gather):
            built = dataclasses.replace(built, reversed=not built.reversed)
        new[id(value)] = built
    return new[id(result)]
