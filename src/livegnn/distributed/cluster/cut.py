"""One part of a graph as arrays: its own vertices, the ghosts that its edges end at, and these edges.

Slots of a part count from 0, its own vertices first; `globals` says which slot of the whole graph each is. An edge is
in the parts of both of its ends, under the id that it has in the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.errors import UsageError
from livegnn.graph import float16
from livegnn.graph.graph import Graph
from livegnn.types import AnyArray, Int64Array

Share: TypeAlias = Mapping[str, AnyArray]  # slots, features, vertex_type; src, dst, id and the other columns of edges

PARTS_MAX = 64
EDGE_COLUMNS = ("src", "dst", "id", "weight", "time", "type", "attr")
_FLAGS = ("has_weight", "has_time", "has_type", "undirected", "simple")


@dataclass(frozen=True)
class PartArrays:
    """A part, for another process.

    options: of the native store.  store: its columns.  globals: (n,) int64 slots of the whole graph.  owners: (V,)
    uint16 part of each slot of the whole graph, free ones included.  next_edge_id: of the whole graph.
    """

    part: int
    parts: int
    options: dict[str, Any]
    store: dict[str, AnyArray]
    globals: Int64Array
    owners: npt.NDArray[np.uint16]
    next_edge_id: int

    def to_arrays(self) -> dict[str, AnyArray]:
        """Without objects, for a file."""
        arrays: dict[str, AnyArray] = {f"store.{name}": array for name, array in self.store.items()}
        numbers = [self.part, self.parts, self.next_edge_id]
        arrays |= {"globals": self.globals, "owners": self.owners, "numbers": np.array(numbers, np.int64)}
        for name, value in self.options.items():
            if name == "feature_dtype":
                value = float16.FEATURE_DTYPES.index(value)
            arrays[f"option.{name}"] = np.array(value, np.int64)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """What to_arrays() described."""
        part, parts, next_edge_id = arrays["numbers"].tolist()
        options: dict[str, Any] = {}
        for name in (key[7:] for key in arrays if key.startswith("option.")):
            options[name] = arrays[f"option.{name}"].tolist()
        options |= {name: bool(options[name]) for name in _FLAGS}
        options["feature_dtype"] = float16.stored_dtype(int(options["feature_dtype"]))
        store = {key[6:]: np.ascontiguousarray(arrays[key]) for key in arrays if key.startswith("store.")}
        owners = np.ascontiguousarray(arrays["owners"], np.uint16)
        return cls(part, parts, options, store, np.ascontiguousarray(arrays["globals"]), owners, next_edge_id)

    def make_store(self) -> _native.GraphStore:
        """The native graph of the part."""
        store = _native.GraphStore(**self.options)
        store.from_arrays(self.store)
        return store


def share_of(part: PartArrays) -> Share:
    """The part's share of the whole graph's columns, in slots of that. Each vertex and each edge is in one share.

    slots, features, vertex_type: of its own vertices.  src, dst, id and the other columns of edges: those into its
    vertices; of an undirected edge, to the smaller end.
    """
    columns, names, ghosts = part.store, part.globals, part.owners[part.globals] != part.part
    own = np.flatnonzero(~ghosts & (columns["live"] != 0))
    found: dict[str, AnyArray] = {"slots": names[own], "features": columns["features"][own]}
    if "vertex_type" in columns:
        found["vertex_type"] = columns["vertex_type"][own]
    kept = ~ghosts[counted_ends(columns["src"], columns["dst"], names, bool(part.options["undirected"]))]
    for name in EDGE_COLUMNS:
        if name in columns:
            column = columns[name][kept]
            found[name] = names[column].astype(column.dtype) if name in ("src", "dst") else column
    return found


def counted_ends(src: Int64Array, dst: Int64Array, names: Int64Array, undirected: bool) -> Int64Array:
    """The end of each edge whose part counts it in what all parts count together."""
    return np.where(names[src] <= names[dst], src, dst) if undirected else dst


def joined_shares(shares: Sequence[Share], options: Mapping[str, Any]) -> Share:
    """Several shares, in which columns may be missing, as one with all columns. options: of the native store."""
    joined = {}
    for name, empty in empty_share(options).items():
        columns = [share[name] for share in shares if name in share]
        joined[name] = columns[0] if len(columns) == 1 else np.concatenate([empty, *columns])
    return joined


def empty_share(options: Mapping[str, Any]) -> dict[str, AnyArray]:
    """Every column of a graph with these options, without rows."""
    dtype = np.float32 if options["feature_dtype"] == "float32" else np.uint16
    share: dict[str, AnyArray] = {name: np.zeros(0, np.int64) for name in ("slots", "src", "dst", "id")}
    share["features"] = np.zeros((0, options["feature_width"]), dtype)
    if "type_widths" in options:
        share["vertex_type"] = np.zeros(0, np.int32)
    for flag, name, kind in (("weight", "weight", np.float32), ("time", "time", np.int64), ("type", "type", np.int32)):
        if options[f"has_{flag}"]:
            share[name] = np.zeros(0, kind)
    if options["attr_width"]:
        share["attr"] = np.zeros((0, options["attr_width"]), np.float32)
    return share


def check_parts(where: str, parts: object) -> int:
    """Raises: UsageError for a number of parts that a graph cannot be cut into."""
    if type(parts) is not int or not 1 <= parts <= PARTS_MAX:
        raise UsageError(f"[{where}] expected 1 to {PARTS_MAX} workers, got {parts!r}; choose such a number")
    return parts


def cut(graph: Graph, owners: npt.NDArray[np.uint16], parts: int) -> list[PartArrays]:
    """All parts of a graph whose slot v is part owners[v]'s.

    Raises: UsageError where edges lie in files, or where the owners are not those of this graph.
    """
    check_parts("Cluster", parts)
    graph.host.need_all_edges("Cluster")
    if owners.shape != (graph.slot_count,) or (len(owners) and int(owners.max()) >= parts):
        raise UsageError(
            f"[Cluster] expected a part below {parts} for each of {graph.slot_count} slots, got {owners.shape} of them "
            f"up to {owners.max(initial=0)}; partition this graph"
        )
    with graph.host.lock:
        whole, options = graph.host.store.to_arrays(), store_options(graph)
    return [_cut_one(whole, options, owners, part, parts) for part in range(parts)]


def store_options(graph: Graph) -> dict[str, Any]:
    """The keywords of a native store of the same kind."""
    return {**graph.host.options, **graph.host.schema.store_options()}


def own_first(slots: Int64Array, owners: npt.NDArray[np.uint16], part: int) -> Int64Array:
    """The order of a part's vertices: its own, then its ghosts, both by slot. So rows that it works on lie together."""
    return np.lexsort((slots, owners[slots] != part))


def _cut_one(
    whole: Mapping[str, AnyArray], options: dict[str, Any], owners: npt.NDArray[np.uint16], part: int, parts: int
) -> PartArrays:
    src, dst = whole["src"], whole["dst"]
    held = (owners[src] == part) | (owners[dst] == part)
    present = (owners == part) & (whole["live"] != 0)
    present[src[held]] = True
    present[dst[held]] = True
    slots = np.flatnonzero(present)
    slots = slots[own_first(slots, owners, part)]
    locals_of = np.full(len(owners), -1, src.dtype)
    locals_of[slots] = np.arange(len(slots), dtype=src.dtype)
    store: dict[str, AnyArray] = {
        name: np.ascontiguousarray(whole[name][held]) for name in EDGE_COLUMNS if name in whole
    }
    store["src"], store["dst"] = locals_of[store["src"]], locals_of[store["dst"]]
    store["live"] = np.ones(len(slots), whole["live"].dtype)
    store["features"] = np.ascontiguousarray(whole["features"][slots])
    if "vertex_type" in whole:
        store["vertex_type"] = np.ascontiguousarray(whole["vertex_type"][slots])
    version, next_edge_id = whole["counters"].tolist()
    store["counters"] = np.array([version, next_edge_id], np.int64)
    return PartArrays(part, parts, options, store, slots, owners, next_edge_id)
