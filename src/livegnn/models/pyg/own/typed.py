"""An own layer's call along the edges of one type: followed without types, then given those of the edges' ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute
from livegnn.models.pyg.context import EDGES, WEIGHTS, Import, Marker, Relation, is_edges, refuse
from livegnn.models.pyg.functions.turned import turn
from livegnn.models.pyg.hetero.relation import with_types
from livegnn.models.pyg.own.read import each_rows


def relation_in(given: Any) -> Relation | None:
    """The type of the edges in a call's arguments; None where edges have no types of their own."""
    if isinstance(given, (tuple, list)):
        return next((found for each in given if (found := relation_in(each)) is not None), None)
    if isinstance(given, dict):
        return relation_in(tuple(given.values()))
    return given.relation if isinstance(given, Marker) else None


def convert_along_types(
    where: str, given: tuple[Any, ...], record: Import, read: Callable[[tuple[Any, ...]], Any]
) -> Any:
    """read(given), for rows of the vertex types that the edges of the call join. Raises: ModelUnsupported."""
    relation = relation_in(given)
    if relation is None:
        return read(given)
    plain = _Plain(relation, record, where)
    result = read(plain.of(given))
    try:
        return each_rows(result, lambda rows: with_types(rows, plain.standing, relation))
    except ModelError as error:
        raise refuse(
            where,
            f"it does not go from one type of vertex to another ({error})",
            "let each message go from the first rows of x to the second, and add no self-loops",
        ) from error


class _Plain:
    """Arguments as a graph without types has them. standing: id of a stand-in -> the rows that it is for."""

    def __init__(self, relation: Relation, record: Import, where: str) -> None:
        self.relation, self.record, self.where = relation, record, where
        self.made: dict[int, ir.Value] = {}
        self.standing: dict[int, ir.Value] = {}

    def of(self, given: Any) -> Any:
        if isinstance(given, (tuple, list)):
            return type(given)(self.of(each) for each in given)
        if isinstance(given, dict):
            return {key: self.of(each) for key, each in given.items()}
        if isinstance(given, Marker) and given.relation is not None:
            if given.relation != self.relation:
                raise refuse(
                    self.where, "its edges and their weights or attributes are of different types", "fix the call"
                )
            if is_edges(given):
                return turn(EDGES) if given.turned else EDGES
            return WEIGHTS if given.what == WEIGHTS.what else given
        return each_rows(given, self.stand_in)

    def stand_in(self, value: ir.Value) -> ir.Value:
        if value.on_edges:
            leaves = (each for each in ir.walk(value) if isinstance(each, EdgeAttribute))
            if any(self.record.attribute_relations.get(id(each)) != self.relation for each in leaves):
                raise refuse(
                    self.where, "its edges and their weights or attributes are of different types", "fix the call"
                )
            return value
        if value.vertex_type not in (self.relation.src, self.relation.dst):
            raise refuse(self.where, "its rows are not of the types of vertices that its edges join", "fix the call")
        if id(value) not in self.made:
            self.made[id(value)] = ir.Input(value.width)
            self.standing[id(self.made[id(value)])] = value
        return self.made[id(value)]
