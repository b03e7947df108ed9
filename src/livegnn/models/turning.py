"""The same computation with its messages going against the edges.

A layer is read, or applied, as if messages went along the edges; then every sum that it has made is turned round. So no
layer has a form of its own for the other direction. What is of edges takes the names of their ends from the messages:
there a source is where a message comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from livegnn.models import ir
from livegnn.models.edges import Gather, Source, Target
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


def ends_changed(value: ir.Value, known: dict[int, tuple[ir.Value, ir.Value]]) -> ir.Value:
    """A value on edges with the ends of the edges changed over: what it is as messages against them see it.

    known: id of each value that was changed before -> itself, the changed one. Changed twice, a value is itself.
    """
    if not value.on_edges:
        return value
    if id(value) not in known:
        if isinstance(value, Source | Target):
            new: ir.Value = Target(value.x) if isinstance(value, Source) else Source(value.x)
        else:
            new = with_inputs(value, [ends_changed(x, known) for x in value.inputs]) if value.inputs else value
        known[id(value)] = value, new
        known[id(new)] = new, value
    return known[id(value)][1]
