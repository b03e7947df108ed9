"""A graph as arrays without objects: its options, the store's own arrays, ids, types, and what lies in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.errors import InvariantBroken, StoredStateInvalid
from livegnn.graph import checks, halves, load, offload
from livegnn.graph.checks import AnyArray
from livegnn.graph.ids import IdMap
from livegnn.graph.schema import Schema
from livegnn.graph.typed_ids import TypedIds

if TYPE_CHECKING:
    from livegnn.graph.graph import Graph

__all__ = ["restore", "to_arrays"]

_FLAGS = ("has_weight", "has_time", "has_type", "undirected", "simple")
_OPTIONS = ("feature_width", "attr_width", *_FLAGS)


def to_arrays(graph: Graph) -> dict[str, AnyArray]:
    """The whole graph, for restore(). The caller holds its lock."""
    arrays: dict[str, AnyArray] = {f"store.{name}": array for name, array in graph._store.to_arrays().items()}
    if graph._ids is not None:
        arrays.update({f"ids.{name}": array for name, array in graph._ids.to_arrays().items()})
    if graph._typed is not None:
        arrays.update({f"ids.{name}": array for name, array in graph._typed.to_arrays().items()})
        arrays.update({f"types.{name}": array for name, array in graph._typed.schema.to_arrays().items()})
    arrays.update({f"offload.{name}": array for name, array in offload.to_arrays(graph).items()})
    if graph._time_unit is not None:  # version 0.1 saved none
        arrays["time.unit"] = np.frombuffer(graph._time_unit.encode(), np.uint8)
    dtype = halves.FEATURE_DTYPES.index(graph.feature_dtype)
    for name, value in (graph._options | {"feature_dtype": dtype}).items():
        arrays[f"option.{name}"] = np.array(int(value), np.int64)
    if graph.weight_column is not None:
        arrays["option.weight_column"] = np.array(load.WEIGHT_COLUMNS.index(graph.weight_column), np.int64)
    return arrays


def restore(graph: Graph, arrays: Mapping[str, AnyArray]) -> None:
    """Fills a graph that was made without its constructor. Raises: StoredStateInvalid."""
    parts: dict[str, dict[str, AnyArray]] = {"store": {}, "ids": {}, "types": {}, "option": {}, "offload": {}}
    for key, array in arrays.items():
        part, _, name = key.partition(".")
        if part in parts:
            parts[part][name] = array
    try:
        if any(value.dtype != np.int64 or value.ndim for value in parts["option"].values()):
            raise ValueError("options that are no int64 numbers")
        options: dict[str, Any] = {name: int(parts["option"][name]) for name in _OPTIONS}
        for name in _FLAGS:
            if options[name] not in (0, 1):
                raise ValueError(f"{name} is {options[name]}, not 0 or 1")
            options[name] = bool(options[name])
        options["feature_dtype"] = halves.stored_dtype(int(parts["option"].get("feature_dtype", 0)))
        ids, typed = _stored_ids(parts)
        graph._set_up(options, ids, typed)
        column = int(parts["option"].get("weight_column", 0))
        if not 0 <= column < len(load.WEIGHT_COLUMNS):
            raise ValueError(f"weights of column {column}")
        graph._weight_column = load.WEIGHT_COLUMNS[column]
        _check_store(parts["store"])
        graph._store.from_arrays(parts["store"])
        graph._time_unit = checks.stored_unit(arrays.get("time.unit"))
        graph._offloaded = offload.from_arrays(graph, parts["offload"])
        graph._store.check_invariants()
        graph._ids_version = graph._store.version
    except (LookupError, ValueError, TypeError, RuntimeError, InvariantBroken) as cause:
        if isinstance(cause, StoredStateInvalid):
            raise
        raise StoredStateInvalid(
            f"[load] expected a saved graph, got one that cannot be read ({cause}); save it again"
        ) from cause
    if graph._ids is not None and len(graph._ids.names) != graph._store.slot_count:
        slots, got = graph._store.slot_count, len(graph._ids.names)
        raise StoredStateInvalid(f"[load] expected ids for {slots} slots, got {got}; save the graph again")
    if graph._ids is not None and set(graph._ids.free) != set(np.flatnonzero(~graph._store.live()).tolist()):
        raise StoredStateInvalid("[load] expected ids of the live vertices, got others; save the graph again")


def _stored_ids(parts: Mapping[str, Mapping[str, AnyArray]]) -> tuple[IdMap | None, TypedIds | None]:
    """What a saved graph knows of ids: the map of one kind of vertex, or that of types, or neither."""
    if parts["types"]:
        schema = Schema.from_arrays(parts["types"])
        return None, TypedIds.from_arrays(schema, parts["ids"], parts["store"]["vertex_type"])
    return IdMap.from_arrays(dict(parts["ids"])) if parts["ids"] else None, None


def _check_store(store: Mapping[str, AnyArray]) -> None:
    """What of a saved graph's arrays the store takes on trust. Raises: KeyError, ValueError."""
    version, next_edge_id = store["counters"].tolist()
    if store["id"].dtype != np.int64:
        raise ValueError(f"edge ids of {store['id'].dtype}")
    ids, least = store["id"], int(store["id"].max(initial=-1)) + 1
    if not 0 <= version <= checks.COUNTER_MAX or not least <= next_edge_id <= checks.COUNTER_MAX:
        raise ValueError(f"version {version} and next edge id {next_edge_id}, not from 0 and {least} to 2^62")
    if len(ids) != len(store["src"]):
        raise ValueError(f"{len(ids)} ids of {len(store['src'])} edges")
    if "type" in store and store["type"].min(initial=0) < 0:
        raise ValueError(f"an edge type {store['type'].min()}")
    if store["live"].max(initial=0) > 1:
        raise ValueError("flags of live vertices that are not 0 or 1")
