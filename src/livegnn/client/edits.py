"""A batch of updates as the service takes it: what livegnn.Updates is to an engine, without NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeAlias

Vertex: TypeAlias = int | str
EdgeType: TypeAlias = str | Sequence[str]
Update: TypeAlias = dict[str, Any]  # {"op": a method of livegnn.Updates, its arguments by name}


class UpdateList:
    """Updates one after the other. Each method adds one, and returns the list itself.

    >>> UpdateList().add_edge(4, 2, weight=0.5).remove_vertex(7).items
    [{'op': 'add_edge', 'u': 4, 'v': 2, 'weight': 0.5}, {'op': 'remove_vertex', 'u': 7}]
    """

    def __init__(self, items: Iterable[Update] = ()) -> None:
        self.items: list[Update] = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def _add(self, op: str, **arguments: Any) -> Self:
        self.items.append({"op": op, **{name: value for name, value in arguments.items() if value is not None}})
        return self

    def add_edge(
        self,
        u: Vertex,
        v: Vertex,
        *,
        weight: float | None = None,
        time: int | str | None = None,
        edge_type: EdgeType | None = None,
        edge_attr: Sequence[float] | None = None,
    ) -> Self:
        """As Updates.add_edge; time may be a date in ISO 8601."""
        return self._add("add_edge", u=u, v=v, weight=weight, time=time, edge_type=edge_type, edge_attr=edge_attr)

    def remove_edge(
        self,
        u: Vertex,
        v: Vertex,
        *,
        time: int | str | None = None,
        edge_type: EdgeType | None = None,
        edge_id: int | None = None,
        missing: str | None = None,
    ) -> Self:
        """As Updates.remove_edge."""
        return self._add("remove_edge", u=u, v=v, time=time, edge_type=edge_type, edge_id=edge_id, missing=missing)

    def remove_edges_before(self, time: int | str, *, edge_type: EdgeType | None = None) -> Self:
        """As Updates.remove_edges_before."""
        return self._add("remove_edges_before", time=time, edge_type=edge_type)

    def set_weight(
        self, u: Vertex, v: Vertex, w: float, *, edge_type: EdgeType | None = None, edge_id: int | None = None
    ) -> Self:
        """As Updates.set_weight."""
        return self._add("set_weight", u=u, v=v, w=w, edge_type=edge_type, edge_id=edge_id)

    def set_edge_attr(
        self,
        u: Vertex,
        v: Vertex,
        attr: Sequence[float],
        *,
        edge_type: EdgeType | None = None,
        edge_id: int | None = None,
    ) -> Self:
        """As Updates.set_edge_attr."""
        return self._add("set_edge_attr", u=u, v=v, attr=list(attr), edge_type=edge_type, edge_id=edge_id)

    def set_features(self, u: Vertex, x: Sequence[float], *, vertex_type: str | None = None) -> Self:
        """As Updates.set_features, of one vertex."""
        return self._add("set_features", u=u, x=list(x), vertex_type=vertex_type)

    def add_vertex(self, u: Vertex, x: Sequence[float], *, vertex_type: str | None = None) -> Self:
        """As Updates.add_vertex."""
        return self._add("add_vertex", u=u, x=list(x), vertex_type=vertex_type)

    def remove_vertex(self, u: Vertex, *, vertex_type: str | None = None) -> Self:
        """As Updates.remove_vertex."""
        return self._add("remove_vertex", u=u, vertex_type=vertex_type)


def items_of(updates: UpdateList | Iterable[Update]) -> list[Update]:
    """The updates as the service takes them."""
    return updates.items if isinstance(updates, UpdateList) else list(updates)
