"""The types of a graph's vertices and edges: their names, their codes, and what an edge type joins.

    code of a vertex type = its place in vertex_types        code of an edge type = its place in edge_types

An edge type is named in full by (src type, name, dst type), as in torch_geometric's HeteroData. Its name alone will do
where only one edge type has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn._native import UpdateKind
from livegnn.errors import ColumnMissing, DtypeInvalid, StoredStateInvalid, ValueInvalid, VertexUnknown
from livegnn.graph import checks
from livegnn.graph.checks import Int32Array
from livegnn.graph.text_arrays import text_from_arrays, text_to_arrays
from livegnn.types import AnyArray, BoolArray, Int64Array

EdgeTriple = tuple[str, str, str]
TypeName = str | EdgeTriple
Kinds = npt.NDArray[np.uint8]

_REMOVE_EDGES_BEFORE, _SET_FEATURES = UpdateKind.RemoveEdgesBefore.value, UpdateKind.SetFeatures.value
ADD_VERTEX, REMOVE_VERTEX = UpdateKind.AddVertex.value, UpdateKind.RemoveVertex.value


NAMELESS = ("",)  # vertex_types of a graph without types; users cannot name a type so


@dataclass(frozen=True)
class GraphSchema:
    """The types of one graph. widths: of the feature rows, by vertex type. A graph without types has a nameless one."""

    vertex_types: tuple[str, ...]
    edge_types: tuple[EdgeTriple, ...]
    widths: tuple[int, ...]

    @classmethod
    def nameless(cls, width: int) -> GraphSchema:
        """Of a graph without types, whose feature rows are so wide."""
        return cls(NAMELESS, (), (width,))

    @cached_property
    def has_types(self) -> bool:
        """Whether vertices have types."""
        return self.vertex_types != NAMELESS

    @cached_property
    def ends(self) -> tuple[Int32Array, Int32Array]:
        """Codes of the vertex types that each edge type joins: of the sources, of the destinations."""
        code = {name: place for place, name in enumerate(self.vertex_types)}
        src = np.array([code[src] for src, _, _ in self.edge_types], np.int32)
        return src, np.array([code[dst] for _, _, dst in self.edge_types], np.int32)

    def store_options(self) -> dict[str, Any]:
        """The types as the native store takes them."""
        if not self.has_types:
            return {}
        src, dst = self.ends
        return {"type_widths": list(self.widths), "src_types": src.tolist(), "dst_types": dst.tolist()}

    def parts(self, kinds: Kinds) -> tuple[BoolArray, BoolArray]:
        """Which updates of a batch are of vertices, and which of edges; remove_edges_before is of neither."""
        of_vertex = kinds >= _SET_FEATURES
        return of_vertex, ~of_vertex & (kinds != _REMOVE_EDGES_BEFORE)

    def vertex_code(self, where: str, value: object) -> int:
        """The code of a vertex type, from its name or the code; 0 of None where there is but the nameless one.

        Raises: ColumnMissing, ValueInvalid, DtypeInvalid.
        """
        if not self.has_types:
            no_vertex_type(where, value)
            return 0
        if value is None:
            raise ColumnMissing(
                f"[{where}] expected vertex_type= among {_listed(self.vertex_types)}, got none; say which type is meant"
            )
        if isinstance(value, str):
            if value in self.vertex_types:
                return self.vertex_types.index(value)
        elif (code := checks.whole_number(where, "vertex_type", value)) in range(len(self.vertex_types)):
            return code
        raise ValueInvalid(
            f"[{where}] expected a vertex type among {_listed(self.vertex_types)}, got {value!r}; use one of them"
        )

    def edge_code(self, where: str, value: object) -> int:
        """The code of an edge type, from its name, its triple or the code. Raises: as vertex_code."""
        types = self.edge_types
        if value is None:
            raise ColumnMissing(f"[{where}] expected edge_type= among {_listed(types)}, got none; say which is meant")
        if isinstance(value, tuple):
            found = [place for place, triple in enumerate(types) if triple == value]
        elif isinstance(value, str):
            found = [place for place, triple in enumerate(types) if triple[1] == value]
        else:
            code = checks.whole_number(where, "edge_type", value)
            found = [code] if code in range(len(types)) else []
        if len(found) == 1:
            return found[0]
        if found:
            choices = _listed([types[place] for place in found])
            raise ValueInvalid(
                f"[{where}] expected one edge type, got {value!r}, which names {choices}; give (src type, name, dst "
                "type)"
            )
        raise ValueInvalid(f"[{where}] expected an edge type among {_listed(types)}, got {value!r}; use one of them")

    def of_type(self, code: int) -> str:
        """What messages add to "vertex"."""
        return f" of type {self.vertex_types[code]!r}" if self.has_types else ""

    def labelled(self, code: int, name: object) -> str:
        """A vertex as messages show it."""
        return f"{self.vertex_types[code]} {name!r}" if self.has_types else repr(name)

    def refuse_unknown(self, where: str, label: str, slots: Int64Array, names: AnyArray, code: int) -> Int64Array:
        """The slots of ids of one type, none of them -1. Raises: VertexUnknown, naming the row."""
        if slots.size and slots.min() < 0:
            row = int(np.argmax(slots < 0))
            got, whose = names[row : row + 1].tolist()[0], self.of_type(code) or f" in {label}"
            raise VertexUnknown(
                f"[{where}] expected ids of live vertices{whose}, got {got!r} at row {row}; add the vertex first"
            )
        return slots

    def end_types(self, kinds: Kinds, codes: Int32Array) -> Int32Array:
        """(2, k) codes of the types of the vertices u and v of each update, -1 where it has none."""
        of_vertex, of_edge = self.parts(kinds)
        types = np.full((2, codes.size), -1, np.int32)
        if not self.has_types:
            types[:, of_edge] = types[0, of_vertex] = 0
            return types
        types[0, of_vertex] = codes[of_vertex]
        for row, ends in enumerate(self.ends):
            types[row, of_edge] = ends[codes[of_edge]]
        return types

    def resolve(self, kinds: Kinds, types: Int32Array, names: Sequence[TypeName]) -> Int32Array:
        """Codes for the types of a batch's updates.

        Args:    kinds: (k,) of the updates.  types: (k,) codes, TYPE_UNSET, or -1 - place in names.
        Returns: (k,) int32: the vertex type of an update of vertices, the edge type of one of edges; TYPE_UNSET for
                 remove_edges_before without a type.
        Raises:  ColumnMissing, ValueInvalid, naming the first update whose type is missing or unknown.
        """
        if not self.has_types:
            if names:
                no_type_names(kinds, types, names)
            return types
        of_vertex, of_edge = self.parts(kinds)
        of_edge |= (kinds == _REMOVE_EDGES_BEFORE) & (types != checks.TYPE_UNSET)
        codes = types.copy()
        placed = (types < 0) & (types != checks.TYPE_UNSET)
        if placed.any():
            for mask, by_name in ((of_vertex, self._vertex_names), (of_edge, self._edge_names)):
                known = np.array([by_name.get(name, -1) for name in names], np.int32)
                codes[placed & mask] = known[-1 - types[placed & mask]]
        counts = np.where(of_vertex, len(self.vertex_types), len(self.edge_types))
        bad = ((codes < 0) | (codes >= counts)) & (of_vertex | of_edge)
        if bad.any():
            at = int(np.argmax(bad))
            self.resolve_few(kinds[at : at + 1].tolist(), types[at : at + 1].tolist(), names, at)  # raises
        return codes

    def resolve_few(
        self, kinds: Sequence[int], types: Sequence[int], names: Sequence[TypeName], first: int = 0
    ) -> list[int]:
        """resolve() for a few updates, without arrays; first: the place of the first one in its batch."""
        if not self.has_types:
            if names:
                no_type_names(np.array(kinds, np.uint8), np.array(types, np.int32), names)
            return list(types)
        codes: list[int] = []
        for i, (kind, given) in enumerate(zip(kinds, types, strict=True), start=first):
            if kind == _REMOVE_EDGES_BEFORE and given == checks.TYPE_UNSET:
                codes.append(given)
                continue
            of_vertex = kind >= _SET_FEATURES
            known = self._vertex_names if of_vertex else self._edge_names
            code = known.get(names[-1 - given], -1) if checks.TYPE_UNSET < given < 0 else given
            if not 0 <= code < len(self.vertex_types if of_vertex else self.edge_types):
                name = None if given == checks.TYPE_UNSET else names[-1 - given] if given < 0 else given
                code = (self.vertex_code if of_vertex else self.edge_code)(f"apply, update {i}", name)
            codes.append(code)
        return codes

    def types_named(self, kind: int, code: int) -> tuple[int, int]:
        """Codes of the types of the vertices u and v of one update; -1 where it has none."""
        if kind == _REMOVE_EDGES_BEFORE:
            return -1, -1
        if kind >= _SET_FEATURES:
            return (code if self.has_types else 0), -1
        return self._end_pairs[code] if self.has_types else (0, 0)

    @cached_property
    def _end_pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.ends[0].tolist(), self.ends[1].tolist(), strict=True))

    @cached_property
    def _vertex_names(self) -> dict[TypeName, int]:
        return {name: place for place, name in enumerate(self.vertex_types)}

    @cached_property
    def _edge_names(self) -> dict[TypeName, int]:
        codes: dict[TypeName, int] = {triple: place for place, triple in enumerate(self.edge_types)}
        for place, (_, name, _) in enumerate(self.edge_types):
            codes[name] = -1 if name in codes else place  # a name that several have names none
        return codes

    def to_arrays(self) -> dict[str, AnyArray]:
        """The schema as arrays without objects; nothing of a graph without types."""
        if not self.has_types:
            return {}
        arrays: dict[str, AnyArray] = {"widths": np.array(self.widths, np.int64)}
        flat = [part for triple in self.edge_types for part in triple]
        for part, strings in (("vertex", self.vertex_types), ("edge", flat)):
            arrays.update({f"{part}_{name}": array for name, array in text_to_arrays(strings).items()})
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> GraphSchema:
        """The schema that to_arrays() described. Raises: StoredStateInvalid, KeyError, ValueError."""
        vertex_types, flat = (
            text_from_arrays({name: arrays[f"{part}_{name}"] for name in ("text", "offsets")})
            for part in ("vertex", "edge")
        )
        triples = tuple(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        widths = tuple(int(width) for width in arrays["widths"].tolist())
        known = set(vertex_types)
        if len(widths) != len(vertex_types) or any(src not in known or dst not in known for src, _, dst in triples):
            raise StoredStateInvalid("[load] expected types that fit each other, got others; save the graph again")
        return cls(tuple(vertex_types), triples, widths)


def no_vertex_type(where: str, vertex_type: object) -> None:
    """Refuses a vertex type where the graph has none."""
    if vertex_type is not None:
        raise ColumnMissing(
            f"[{where}] expected no vertex_type (the graph has one kind of vertex), got {vertex_type!r}; leave it out"
        )


def no_type_names(kinds: Kinds, types: Int32Array, names: Sequence[TypeName]) -> None:
    """Refuses names of types, and types of vertices, in updates to a graph whose vertices have none."""
    named = (types < 0) & (types != checks.TYPE_UNSET)
    bad = named | ((kinds >= _SET_FEATURES) & (types != checks.TYPE_UNSET))
    if not bad.any():
        return
    at = int(np.argmax(bad))
    got = names[-1 - int(types[at])] if named[at] else int(types[at])
    if kinds[at] >= _SET_FEATURES:
        no_vertex_type(f"apply, update {at}", got)
    raise DtypeInvalid(
        f"[apply, update {at}] expected edge_type as a number (vertices have no types), got {got!r}; number the types"
    )


def _listed(names: Sequence[TypeName]) -> str:
    return ", ".join(map(repr, names)) if names else "none"
