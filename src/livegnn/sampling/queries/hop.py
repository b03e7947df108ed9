"""One hop of a sampling query, and what may stand in it.

Each `*_fault` function says what is wrong with one part, as "expected X, got Y; do Z", or nothing. The builder, the
text, the JSON and Hop itself ask the same functions, each naming the place in its own way.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from livegnn.errors import QueryInvalid
from livegnn.graph.checks import shown

Direction: TypeAlias = Literal["out", "in_", "both"]
Strategy: TypeAlias = Literal["random", "top_k", "weighted"]
EdgeTypeName: TypeAlias = str | int | tuple[str, str, str] | None  # a relation, a code, (src, relation, dst), all

FANOUT_MAX = 65535
HOPS_MAX = 16
EDGE_CODE_MAX = 2**31 - 1
TEXT_CHARACTERS_MAX = 65536


@dataclass(frozen=True)
class Hop:
    """Sample up to fanout edges of each vertex that the hop before gave.

    Args:    direction: "out", "in_" or "both".  edge_type: a relation name, a code, a triple (src, relation, dst), or
             None for all edges.  fanout: 1 to 65535.  by: "random" (uniform), "top_k" (latest by time) or "weighted"
             (by edge weight).
    Raises:  QueryInvalid.
    Source:  Helios, Figure 1.
    """

    direction: Direction
    edge_type: EdgeTypeName
    fanout: int
    by: Strategy

    def __post_init__(self) -> None:
        for part, fault_of in HOP_FAULTS.items():
            if fault := fault_of(getattr(self, part)):
                raise QueryInvalid(f"[Hop] {fault}")
        object.__setattr__(self, "direction", plain(self.direction))
        object.__setattr__(self, "edge_type", plain_edge_type(self.edge_type))
        object.__setattr__(self, "fanout", whole(self.fanout))
        object.__setattr__(self, "by", plain(self.by))


Parts: TypeAlias = tuple[str | None, tuple[Hop, ...], str | None]  # of a query: vertex type, hops, alias


def whole(value: object) -> int | None:
    """The integer that value is, numpy's included; None for everything else, booleans too."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def plain(name: str) -> str:
    """Python's own string of the same characters; numpy's strings and enums print in their own way."""
    return str.__str__(name)


def plain_edge_type(edge_type: EdgeTypeName) -> EdgeTypeName:
    """An edge type of Python's own str, int and tuple."""
    if isinstance(edge_type, str):
        return plain(edge_type)
    if isinstance(edge_type, tuple):
        return cast(tuple[str, str, str], tuple(map(plain, edge_type)))
    return whole(edge_type)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that comes closest to name, whatever the case; None if none is close."""
    by_lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def fanout_fault(value: object) -> str | None:
    """What is wrong with a fan-out."""
    number = whole(value)
    if number is not None and 1 <= number <= FANOUT_MAX:
        return None
    advice = "a sample has a bounded size by design, so name it" if value is None or number == -1 else "name how many"
    return f"expected a fan-out from 1 to {FANOUT_MAX}, got {shown(value)}; {advice}"


def strategy_fault(value: object) -> str | None:
    """What is wrong with a strategy."""
    known = get_args(Strategy)
    if isinstance(value, str) and value in known:
        return None
    close = nearest(value, known) if isinstance(value, str) else None
    advice = f"did you mean {close!r}?" if close else "uniform, the latest by time, or by edge weight"
    return f"expected by= one of 'random', 'top_k', 'weighted', got {shown(value)}; {advice}"


def direction_fault(value: object) -> str | None:
    """What is wrong with a direction."""
    if isinstance(value, str) and value in get_args(Direction):
        return None
    return f"expected a direction 'out', 'in_' or 'both', got {shown(value)}; name one of them"


def name_fault(what: str, value: object) -> str | None:
    """What is wrong with the name of a type or an alias."""
    if isinstance(value, str) and value and value.isprintable():
        return None
    return f"expected {what} as a non-empty string of printable characters, got {shown(value)}; name one"


def edge_type_fault(value: object) -> str | None:
    """What is wrong with an edge type."""
    if value is None:
        return None
    number = whole(value)
    if number is not None and 0 <= number <= EDGE_CODE_MAX:
        return None
    if isinstance(value, str):
        return name_fault("the name of an edge type", value)
    if isinstance(value, tuple) and len(value) == 3:
        faults = (name_fault("a triple of names (src, relation, dst)", name) for name in value)
        return next(filter(None, faults), None)
    return (
        f"expected an edge type as a name, a triple (src, relation, dst) or an integer from 0 to {EDGE_CODE_MAX}, "
        f"got {shown(value)}; leave it out for all edges"
    )


HOP_FAULTS: dict[str, Callable[[object], str | None]] = {
    "direction": direction_fault,
    "edge_type": edge_type_fault,
    "fanout": fanout_fault,
    "by": strategy_fault,
}


def hops_fault(count: int) -> str | None:
    """What is wrong with a number of hops."""
    if count <= HOPS_MAX:
        return None
    return f"expected at most {HOPS_MAX} hops, got {count}; a query of so many hops reads most of the graph"


def length_fault(text: str) -> str | None:
    """What is wrong with the length of a text."""
    if len(text) <= TEXT_CHARACTERS_MAX:
        return None
    return f"expected at most {TEXT_CHARACTERS_MAX} characters, got {len(text)}; shorten it"


def called(edge_type: EdgeTypeName) -> str:
    """The arguments that name an edge type in Python, without parentheses."""
    return "" if edge_type is None else repr(edge_type)
