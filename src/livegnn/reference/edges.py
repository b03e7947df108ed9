"""Messages computed edge by edge, and their reductions, vertex by vertex from the formulas.

Part of `livegnn.reference.evaluate`, which reads the stored grammar and hands its row-local step over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from livegnn.types import AnyArray

Entry = Mapping[str, Any]
_LEAVES = ("Source", "Target", "EdgeAttribute", "EdgeWeight", "EdgeRelation", "AddedLoop")

#: (k, w) messages, k > 0, to one row.
REDUCES: dict[str, Callable[[AnyArray], AnyArray]] = {
    "sum": lambda m: m.sum(0),
    "mean": lambda m: m.mean(0),
    "max": lambda m: m.max(0),
    "min": lambda m: m.min(0),
    "median": lambda m: np.sort(m, axis=0)[(len(m) - 1) // 2],
    "newest": lambda m: m[-1],
}


def by_destination(dst: AnyArray) -> Iterator[tuple[int, AnyArray]]:
    """Each vertex that is there, and the positions of its edges, ascending."""
    order = np.argsort(dst, kind="stable")
    found, starts = np.unique(dst[order], return_index=True)
    ends = [*starts.tolist(), len(dst)][1:]
    return ((v, order[s:e]) for v, s, e in zip(found.tolist(), starts.tolist(), ends, strict=True))


@dataclass(frozen=True)
class Edges:
    """src, dst (m,); weight (m,), attributes (m, a), types (m,), or None; in order of edge ids, `added` loops last."""

    src: AnyArray
    dst: AnyArray
    weight: AnyArray | None
    attributes: AnyArray | None
    types: AnyArray | None
    added: int = 0


def on_edges(values: Sequence[Entry]) -> set[int]:
    """Positions of the values that have one row per edge."""
    found: set[int] = set()
    for position, entry in enumerate(values):
        leaf = entry["op"] in _LEAVES
        if leaf or (entry["op"] != "Gather" and any(i in found for i in entry["inputs"])):
            found.add(position)
    return found


def gather(
    entry: Entry,
    values: Sequence[Entry],
    rows: Mapping[int, AnyArray],
    standing: set[int],
    edges: Edges,
    shape: tuple[int, Any],
    local: tuple[Callable[..., Any], Any],
) -> AnyArray:
    """The reduction that `entry` describes, (n, w). shape: (n, dtype). local: the row-local step and the arrays."""
    count, dtype = shape
    if entry.get("reversed"):
        edges = replace(edges, src=edges.dst, dst=edges.src)
    chosen = _chosen(entry, edges, count, np.dtype(dtype).type)
    value = _at_edges(values, rows, chosen, dtype, local)
    message = value(entry["inputs"][0])
    score = value(entry["inputs"][1]) if len(entry["inputs"]) > 1 else None
    result = np.zeros((count, message.shape[1]), dtype)
    for v, mine in by_destination(chosen.dst):
        result[v] = _reduce(entry, message[mine], None if score is None else score[mine])
    return result


def rows_of_edges(
    position: int,
    values: Sequence[Entry],
    rows: Mapping[int, AnyArray],
    edges: Edges,
    dtype: Any,
    local: tuple[Callable[..., Any], Any],
) -> AnyArray:
    """A value on edges itself, (m, w). local: the row-local step and the arrays."""
    every = {"relation": None, "loops": "keep"}
    return _at_edges(values, rows, _chosen(every, edges, 0, np.dtype(dtype).type), dtype, local)(position)


def _at_edges(
    values: Sequence[Entry],
    rows: Mapping[int, AnyArray],
    chosen: Edges,
    dtype: Any,
    local: tuple[Callable[..., Any], Any],
) -> Callable[[int], AnyArray]:
    """Rows of the chosen edges, by the position of a value."""
    known: dict[int, AnyArray] = {}

    def value(position: int) -> AnyArray:
        if position not in known:
            inner = values[position]
            if inner["op"] == "Source":
                known[position] = rows[inner["inputs"][0]][chosen.src]
            elif inner["op"] == "Target":
                known[position] = rows[inner["inputs"][0]][chosen.dst]
            elif inner["op"] == "EdgeAttribute":
                known[position] = _given(chosen.attributes, "attributes")
            elif inner["op"] == "EdgeWeight":
                known[position] = _given(chosen.weight, "weights")[:, None]
            elif inner["op"] == "EdgeRelation":
                known[position] = np.array(_given(chosen.types, "types"), dtype)[:, None]
            elif inner["op"] == "AddedLoop":
                known[position] = (np.arange(len(chosen.src)) >= len(chosen.src) - chosen.added).astype(dtype)[:, None]
            elif inner["op"] == "ByRelation":
                parts = dict(zip(inner["relations"], map(value, inner["inputs"]), strict=True))
                kinds = _given(chosen.types, "types").tolist()
                rows_of = [parts[kind][e] for e, kind in enumerate(kinds)]
                known[position] = np.array(rows_of, dtype).reshape(len(kinds), next(iter(parts.values())).shape[1])
            else:
                step, arrays = local
                known[position] = step(inner, [value(i) for i in inner["inputs"]], arrays)
        return known[position]

    return value


def _given(column: AnyArray | None, what: str) -> AnyArray:
    if column is None:
        raise ValueError(f"[reference] expected edge {what}, got none; pass {what}=")
    return column


def _chosen(entry: Entry, edges: Edges, count: int, kind: Any) -> Edges:
    """The edges that count, with the loops that `loops` asks for after them."""
    keep = np.ones(len(edges.src), np.bool_)
    if entry["relation"] is not None and len(keep):
        keep &= np.isin(_given(edges.types, "types"), np.ravel(entry["relation"]))
    if entry["loops"] != "keep":
        keep &= (edges.src == edges.dst) == (entry["loops"] == "only")
    src, dst = edges.src[keep].astype(np.int64), edges.dst[keep].astype(np.int64)
    weight = None if edges.weight is None else np.array(edges.weight, kind)[keep]
    attributes = None if edges.attributes is None else np.array(edges.attributes, kind)[keep]
    if entry["loops"] == "replace":
        if attributes is not None:
            own = np.full((count, attributes.shape[1]), 0.0 if entry["fill"] == "mean" else entry["fill"], kind)
            if entry["fill"] == "mean":
                for v, mine in by_destination(dst):
                    own[v] = attributes[mine].mean(0)
            attributes = np.vstack([attributes, own])
        weight = None if weight is None else np.concatenate([weight, np.ones(count, kind)])
        src, dst = np.concatenate([src, np.arange(count)]), np.concatenate([dst, np.arange(count)])
    added = count if entry["loops"] == "replace" else 0
    types = None if edges.types is None else np.pad(np.asarray(edges.types)[keep], (0, added))
    return Edges(src, dst, weight, attributes, types, added)


def _reduce(entry: Entry, message: AnyArray, score: AnyArray | None) -> AnyArray:
    """(k, w) messages of one vertex, k > 0, to one row."""
    if score is None:
        return REDUCES[entry["reduce"]](message)
    heads = entry["heads"]
    power = np.exp(score - score.max(0))
    share = power / (power.sum(0) + score.dtype.type(1e-16))
    parts = message.reshape(len(message), heads, message.shape[1] // heads)
    return np.ravel((share.reshape(len(message), heads, 1) * parts).sum(0))


def by_heads(entry: Entry, xs: Sequence[AnyArray]) -> Any:
    """HeadDot, HeadScale and RowMatrix."""
    a, b = xs
    if entry["op"] == "RowMatrix":
        out = b.shape[1] // a.shape[1]
        return np.matmul(a[:, None, :], b.reshape(len(a), a.shape[1], out))[:, 0]
    heads = entry["heads"]
    wide = a.shape[1] // heads
    if entry["op"] == "HeadScale":
        return a * np.repeat(b, wide, axis=1)
    return np.stack(
        [(a[:, h * wide : (h + 1) * wide] * b[:, h * wide : (h + 1) * wide]).sum(1) for h in range(heads)], 1
    )
