"""How long edges live: the ttl of a graph, the clock that it is counted from, and the removals that follow.

now = the largest time of any edge that the history has added. An edge leaves once time <= now - ttl: docs/updates.md,
"Edges that expire", has the definition, and core/include/livegnn/expiry.h writes the removals into a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np

from livegnn import _native
from livegnn.errors import ColumnMissing, DtypeInvalid, ValueInvalid
from livegnn.graph import checks
from livegnn.graph.checks import Int32Array
from livegnn.graph.schema import EdgeTriple, GraphSchema
from livegnn.graph.updates import EdgeType, Updates
from livegnn.types import AnyArray, BoolArray, Int64Array

Duration: TypeAlias = int | np.timedelta64 | timedelta
Ttl: TypeAlias = Duration | Mapping[EdgeType, Duration] | None

_TTL_MAX = 2**62
_NO_TIME = checks.INT64_MIN


class Expiry:
    """The ttl of a graph's edges, and `now`, which moves with the batches that stand.

    durations: by code of edge type, or of all edges under checks.TYPE_UNSET.  simple: whether additions look for edges.
    """

    def __init__(self, durations: Mapping[int, int], *, simple: bool, now: int = _NO_TIME) -> None:
        self.durations = dict(durations)
        self.simple = simple
        self.now = now
        self._types, self._ttls = list(durations), list(durations.values())

    @classmethod
    def of(
        cls, where: str, ttl: Ttl, schema: GraphSchema, options: Mapping[str, Any], unit: str | None
    ) -> Expiry | None:
        """What the user gave. unit: of datetime64 times.

        Raises:  ColumnMissing without times, and for a dict without edge types; ValueInvalid, DtypeInvalid.
        """
        if ttl is None:
            return None
        if not options["has_time"]:
            raise ColumnMissing(f"[{where}] expected time= with ttl=, got a graph without times; give time=")
        if not isinstance(ttl, Mapping):
            return cls({checks.TYPE_UNSET: _duration(where, "ttl", ttl, unit)}, simple=options["simple"])
        if not options["has_type"]:
            raise ColumnMissing(
                f"[{where}] expected ttl as one duration (edges have no types), got a dict; give a number"
            )
        durations: dict[int, int] = {}
        for name, value in ttl.items():
            code = schema.edge_code(where, name) if schema.has_types else checks.edge_type(where, "key of ttl", name)
            if code in durations:
                raise ValueInvalid(f"[{where}] expected each edge type once in ttl, got {name!r} again; leave one out")
            durations[code] = _duration(where, f"ttl of {checks.shown(name)}", value, unit)
        return cls(durations, simple=options["simple"])

    def shown(self, schema: GraphSchema) -> int | dict[EdgeTriple, int] | dict[int, int]:
        """The ttl as Graph.ttl gives it."""
        if checks.TYPE_UNSET in self.durations:
            return self.durations[checks.TYPE_UNSET]
        if not schema.has_types:
            return dict(self.durations)
        return {schema.edge_types[code]: ttl for code, ttl in self.durations.items()}

    def begin(self, time: Int64Array | None, types: Int32Array | None) -> BoolArray:
        """Sets `now` to the largest time of a new graph's edges; which of them are alive."""
        assert time is not None  # Expiry.of() refuses a graph without times
        if len(time):
            self.now = int(time.max())
        return self.alive(time, types)

    def alive(self, time: Int64Array, types: Int32Array | None) -> BoolArray:
        """Which edges are alive `now`."""
        alive = np.ones(len(time), np.bool_)
        for code, ttl in self.durations.items():
            old = time <= max(self.now - ttl, _NO_TIME)
            alive &= ~(old if code == checks.TYPE_UNSET or types is None else old & (types == code))
        return alive

    def written_out(self, buffer: _native.UpdateBuffer) -> tuple[_native.UpdateBuffer, int]:
        """The batch with the removals of what expires in it, and `now` after it."""
        return buffer.with_expiry(self._types, self._ttls, self.now, self.simple)

    def recorded(self, updates: Updates) -> Updates:
        """The same, as the user's ids say it."""
        return updates.rewritten(self.written_out(updates.buffer)[0])

    # ---- saving

    def to_arrays(self) -> dict[str, AnyArray]:
        """For from_arrays()."""
        return {
            "types": np.array(self._types, np.int32),
            "durations": np.array(self._ttls, np.int64),
            "now": np.array(self.now, np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], options: Mapping[str, Any]) -> Expiry | None:
        """What to_arrays() described; None without arrays. Raises: KeyError, TypeError, ValueError."""
        if not arrays:
            return None
        types, ttls = arrays["types"].tolist(), arrays["durations"].tolist()
        durations = dict(zip(types, ttls, strict=True))
        ttls_fit = all(1 <= ttl <= _TTL_MAX for ttl in ttls)
        types_fit = (
            all(code >= 0 for code in types)
            if options["has_type"] and types != [checks.TYPE_UNSET]
            else (types == [checks.TYPE_UNSET])
        )
        if not (options["has_time"] and ttls_fit and types_fit and len(durations) == len(types)):
            raise ValueError(f"a ttl of {ttls} for edge types {types}")
        return cls(durations, simple=options["simple"], now=int(arrays["now"]))


def _duration(where: str, name: str, value: object, unit: str | None) -> int:
    """A ttl in the unit of the times: 1 to 2^62."""
    span = np.timedelta64(value) if isinstance(value, timedelta) else value
    if isinstance(span, np.timedelta64):
        number = _in_unit(where, name, span, unit)
    else:
        number = checks.whole_number(where, name, span)
    if not 1 <= number <= _TTL_MAX:
        raise ValueInvalid(
            f"[{where}] expected {name} from 1 to 2^62, in the unit of the times, got {checks.shown(value)}; fix it"
        )
    return number


def _in_unit(where: str, name: str, span: np.timedelta64, unit: str | None) -> int:
    if unit is None:
        raise DtypeInvalid(
            f"[{where}] expected {name} as a whole number, as times without a unit are, got {span!r}; give a number, "
            "or time= as datetime64 (an empty array names a unit, too)"
        )
    try:
        number = span.astype(f"timedelta64[{unit}]")
        exact = not np.isnat(span) and bool(number == span)
    except (TypeError, OverflowError):
        exact = False
    if not exact:
        raise ValueInvalid(f"[{where}] expected {name} as a whole number of {unit}, got {span!r}; give such a number")
    return int(number.astype(np.int64))
