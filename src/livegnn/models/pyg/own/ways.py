"""Reductions of an own layer at either end of the edges.

A sum at the sources is the sum at the targets of the same edges turned round. So rows of edges have their ends changed
over, are reduced as others are, and what comes back to edges is changed over again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from livegnn.models import ir
from livegnn.models.edges import Gather, Gathering
from livegnn.models.pyg.context import Import
from livegnn.models.pyg.own.reduce import Reducer
from livegnn.models.pyg.own.rows import EdgeChoice, Traced
from livegnn.models.turning import ends_changed


class Ways:
    """All reductions of one own layer, at the sources (end 0) and at the targets (end 1). anchor: rows of vertices."""

    def __init__(self, record: Import, where: str, anchor: ir.Value) -> None:
        self.anchor = anchor
        self.ends = tuple(Reducer(record, where, anchor, reversed=each) for each in (True, False))
        self.changed: dict[int, tuple[ir.Value, ir.Value]] = {}  # id of a value on edges -> itself, its ends changed
        self.masks: dict[int, tuple[Traced, Traced]] = {}  # the same of masks

    def of(self, rows: Traced, module: Any, label: Any, end: int) -> Traced:
        """The rows that an aggregation module makes. Raises: ModelUnsupported, Unfit."""
        return self.ends[end].of(self.rows(rows, end), module, label)

    def simple(self, rows: Traced, kind: ir.Aggregate, end: int) -> Traced:
        """The rows by an aggregate that the engine has. Raises: Unfit."""
        return self.ends[end].simple(self.rows(rows, end), kind)

    def gathered(self, value: ir.Value, kind: Gathering, edges: EdgeChoice, end: int) -> ir.Value:
        """`value`, of the graph's edges among these, by an aggregate that the engine has."""
        options: Any = {"loops": "keep" if edges.own else "drop", "relation": edges.relation, "reversed": not end}
        return Gather(value if end else self.swapped(value), kind, **options)

    def degree(self, rows: Traced, end: int) -> Traced | None:
        """The sum of edges' constant or weight, remembered as a degree; None where rows are neither."""
        return self.ends[end].degree(self.rows(rows, end))

    def softmax(self, score: Traced, end: int) -> Traced:
        """The softmax over the edges at one end, remembered as attention."""
        return self.rows(self.ends[end].softmax(self.rows(score, end)), end)

    def count(self, edges: EdgeChoice) -> ir.Value:
        """The number of in-edges in a list, one column."""
        return self.ends[1].count(edges)

    def inverse_root(self, x: ir.Value) -> ir.Value:
        """x^-1/2, 0 where x is not above 0; of a degree at either end, remembered."""
        return self.ends[0 if id(x) in self.ends[0].degrees else 1].inverse_root(x)

    def rows(self, rows: Traced, end: int) -> Traced:
        """Rows of edges as the reductions at `end` take and give them, and the masks of these edges."""
        if end == 1 or not isinstance(rows.edges, EdgeChoice):
            return rows
        edges = replace(rows.edges, masks=tuple(map(self._mask, rows.edges.masks)))
        return replace(rows, value=self.swapped(rows.value), edges=edges)

    def _mask(self, mask: Traced) -> Traced:
        """A mask with the ends of its edges changed over; one for each, as lists of edges differ by their masks."""
        known = self.masks.get(id(mask))
        if known is None:
            known = self.masks[id(mask)] = mask, replace(mask, value=self.swapped(mask.value))
            self.masks[id(known[1])] = known[1], mask
        return known[1]

    def swapped(self, value: ir.Value) -> ir.Value:
        """A value on edges with the ends of the edges changed over. Changed twice, it is itself."""
        return ends_changed(value, self.changed)
