"""A graph as arrays without objects: its options, the store's own arrays, ids, types, and what lies in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from livegnn import _native
from livegnn.errors import InvariantBroken, StoredStateInvalid
from livegnn.graph import checks, load, offload
from livegnn.graph import float16 as halves
from livegnn.graph.expiry import Expiry
from livegnn.graph.host import GraphHost
from livegnn.graph.ids import NamedIds
from livegnn.graph.schema import GraphSchema
from livegnn.graph.threads import core_count
from livegnn.types import AnyArray

_FLAGS = ("has_weight", "has_time", "has_type", "undirected", "simple")
_OPTIONS = ("feature_width", "attr_width", *_FLAGS)


class CapturedGraph:
    """A graph at one version, copied as it lies in memory: room comes first, then take(), then to_arrays().

    Only take() holds up writers, for as long as bytes take to copy. What takes longer does not: memory from the system
    before it, and the order and form of a saved graph after it.
    """

    def __init__(self, host: GraphHost) -> None:
        self._host = host
        with host.lock:
            self._store = _native.GraphCapture(host.store)
        self._store.make_room(core_count())

    def take(self) -> None:
        """Copies the graph. The caller holds its lock."""
        host = self._host
        self.version = host.store.version
        self._store.take(host.store, core_count())
        self._ids = host.ids.captured()
        self._rest: dict[str, AnyArray] = {f"types.{name}": array for name, array in host.schema.to_arrays().items()}
        self._rest |= {f"offload.{name}": array for name, array in offload.to_arrays(host).items()}
        if host.expiry is not None:
            self._rest |= {f"ttl.{name}": array for name, array in host.expiry.to_arrays().items()}
        if host.time_unit is not None:  # version 0.1 saved none
            self._rest["time.unit"] = np.frombuffer(host.time_unit.encode(), np.uint8)
        dtype = halves.FEATURE_DTYPES.index(host.options["feature_dtype"])
        for name, value in (host.options | {"feature_dtype": dtype}).items():
            self._rest[f"option.{name}"] = np.array(int(value), np.int64)
        if host.options["has_weight"] and host.weight_column is not None:
            self._rest["option.weight_column"] = np.array(load.WEIGHT_COLUMNS.index(host.weight_column), np.int64)

    def to_arrays(self) -> dict[str, AnyArray]:
        """The whole graph, for restore()."""
        arrays: dict[str, AnyArray] = {f"store.{name}": array for name, array in self._store.to_arrays().items()}
        arrays |= {f"ids.{name}": array for name, array in self._ids.to_arrays().items()}
        return arrays | self._rest


def restore(arrays: Mapping[str, AnyArray], block_edges_max: int) -> GraphHost:
    """The host of a saved graph. Raises: StoredStateInvalid."""
    parts: dict[str, dict[str, AnyArray]] = {part: {} for part in ("store", "ids", "types", "option", "offload", "ttl")}
    for key, array in arrays.items():
        part, _, name = key.partition(".")
        if part in parts:
            parts[part][name] = array
    try:
        return _restored(parts, arrays.get("time.unit"), block_edges_max)
    except (LookupError, ValueError, TypeError, RuntimeError, InvariantBroken) as cause:
        if isinstance(cause, StoredStateInvalid):
            raise
        raise StoredStateInvalid(
            f"[load] expected a saved graph, got one that cannot be read ({cause}); save it again"
        ) from cause


def _restored(parts: Mapping[str, dict[str, AnyArray]], unit: AnyArray | None, block_edges_max: int) -> GraphHost:
    stored = parts["option"]
    if any(value.dtype != np.int64 or value.ndim for value in stored.values()):
        raise ValueError("options that are no int64 numbers")
    options: dict[str, Any] = {name: int(stored[name]) for name in _OPTIONS}
    for name in _FLAGS:
        if options[name] not in (0, 1):
            raise ValueError(f"{name} is {options[name]}, not 0 or 1")
        options[name] = bool(options[name])
    options["feature_dtype"] = halves.stored_dtype(int(stored.get("feature_dtype", 0)))
    column = int(stored.get("weight_column", 0))
    if not 0 <= column < len(load.WEIGHT_COLUMNS):
        raise ValueError(f"weights of column {column}")
    host = GraphHost(
        options,
        _stored_ids(parts, options["feature_width"]),
        block_edges_max=block_edges_max,
        weight_column=load.WEIGHT_COLUMNS[column],
        time_unit=checks.stored_unit(unit),
        expiry=Expiry.from_arrays(parts["ttl"], options),
    )
    _check_store(parts["store"])
    host.store.from_arrays(parts["store"])
    host.offloaded = offload.from_arrays(host, parts["offload"])
    host.store.check_invariants()
    host.ids_version = host.store.version
    return host


def _stored_ids(parts: Mapping[str, Mapping[str, AnyArray]], width: int) -> NamedIds | None:
    """The ids of a saved graph, None where they are slots."""
    if parts["types"]:
        return NamedIds.from_arrays(
            GraphSchema.from_arrays(parts["types"]), parts["ids"], parts["store"]["vertex_type"]
        )
    if not parts["ids"]:
        return None
    live = parts["store"]["live"] != 0
    return NamedIds.from_arrays(GraphSchema.nameless(width), parts["ids"], np.where(live, 0, -1).astype(np.int32))


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
