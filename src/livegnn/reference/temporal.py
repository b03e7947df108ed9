"""Temporal samples by their definition: every edge is looked at for every target. docs/temporal-sampling.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from livegnn.reference.sampling import _mix
from livegnn.types import Int64Array

_MASK = 0xFFFFFFFFFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_WALK_PART = 1 << 48


class TemporalEdges(NamedTuple):
    """Every edge of a graph, (m,) int64 each; an undirected edge once, either way round. types: None without."""

    src: Int64Array
    dst: Int64Array
    ids: Int64Array
    times: Int64Array
    undirected: bool
    types: Int64Array | None = None


class TemporalRows(NamedTuple):
    """One hop as TemporalHop has it, in the order of its fields."""

    targets: list[int]
    target_times: list[int]
    ptr: list[int]
    src: list[int]
    edge_ids: list[int]
    times: list[int]
    edge_index: list[list[int]]
    next_targets: list[int]
    next_times: list[int]


@dataclass(frozen=True)
class PastRule:
    """TemporalSampler's arguments, as far as a sample depends on them."""

    fanouts: tuple[int, ...]
    strategy: Literal["recent", "uniform"] = "recent"
    inclusive: bool = False
    window: int | None = None
    seed: int = 0
    prop_time: bool = False
    replace: bool = False
    unique: bool = False
    snapshots: int = 1
    edge_types: tuple[int, ...] = ()  # all


def past(rule: PastRule, edges: TemporalEdges, v: int, time: int, snapshot: int) -> list[tuple[int, int, int]]:
    """(time, edge id, source) of the edges that target (v, time) may take, oldest first."""
    found = []
    types = np.zeros(len(edges.ids), np.int64) if edges.types is None else edges.types
    columns = (column.tolist() for column in (edges.src, edges.dst, edges.ids, edges.times, types))
    for src, dst, edge_id, at, edge_type in zip(*columns, strict=True):
        if not _inside(rule, time, at, snapshot) or (rule.edge_types and edge_type not in rule.edge_types):
            continue
        if dst == v:
            found.append((at, edge_id, src))
        elif edges.undirected and src == v:
            found.append((at, edge_id, dst))
    return sorted(found)


def _inside(rule: PastRule, time: int, at: int, snapshot: int) -> bool:
    if rule.window is None:
        return at <= time if rule.inclusive else at < time
    end = time - snapshot * rule.window
    start = end - rule.window
    if rule.snapshots == 1:
        return start <= at <= end if rule.inclusive else start <= at < end
    return start < at <= end if rule.inclusive else start <= at < end


def draw_ranks(key: int, n: int, k: int, replace: bool) -> list[int]:
    """Ascending ranks below n: k drawn with replacement, or k < n without."""
    drawn: list[int] = []
    kept = k if replace or k <= n // 2 else n - k
    state = key
    while len(drawn) < kept:
        rank = (_mix(state) * n) >> 64
        state = (state + _GOLDEN) & _MASK
        if replace or rank not in drawn:
            drawn.append(rank)
    if kept != k:
        drawn = [rank for rank in range(n) if rank not in drawn]
    return sorted(drawn)


def _key(seed: int, call: int, part: int, row: int) -> int:
    return _mix(_mix((_mix(seed ^ _mix(call)) + part) & _MASK) ^ row)


def _chosen(
    rule: PastRule, fanout: int, key: int, candidates: list[tuple[int, int, int]]
) -> list[tuple[int, int, int]]:
    n = len(candidates)
    replace = rule.replace and rule.strategy == "uniform"
    if fanout == -1 or n == 0 or (n <= fanout and not replace):
        return candidates
    if rule.strategy == "recent":
        return candidates[n - fanout :]
    return [candidates[rank] for rank in draw_ranks(key, n, fanout, replace)]


def sample_hops(
    rule: PastRule, edges: TemporalEdges, vertices: Int64Array, times: Int64Array, call: int = 0, snapshot: int = 0
) -> list[TemporalRows]:
    """The hops of one call: (B,) int64 vertices and times."""
    targets, target_times = vertices.tolist(), times.tolist()
    hops = []
    for hop, fanout in enumerate(rule.fanouts):
        ptr, rows = [0], []
        src, ids, at = [], [], []
        for row, (v, time) in enumerate(zip(targets, target_times, strict=True)):
            candidates = past(rule, edges, v, time, snapshot)
            key = _key(rule.seed, call, (snapshot << 16) + hop, row)
            for edge_time, edge_id, source in _chosen(rule, fanout, key, candidates):
                src.append(source)
                ids.append(edge_id)
                at.append(edge_time)
                rows.append(row)
            ptr.append(len(src))
        seen_at = [target_times[row] for row in rows] if rule.prop_time else at
        next_targets, next_times, source_rows = _next(rule, targets, target_times, src, seen_at)
        hops.append(
            TemporalRows(targets, target_times, ptr, src, ids, at, [source_rows, rows], next_targets, next_times)
        )
        targets, target_times = next_targets, next_times
    return hops


def _next(
    rule: PastRule, targets: list[int], target_times: list[int], src: list[int], seen_at: list[int]
) -> tuple[list[int], list[int], list[int]]:
    next_targets, next_times, source_rows = list(targets), list(target_times), []
    for v, time in zip(src, seen_at, strict=True):
        pairs = list(zip(next_targets, next_times, strict=True))
        if rule.unique and (v, time) in pairs:
            source_rows.append(pairs.index((v, time)))
            continue
        source_rows.append(len(next_targets))
        next_targets.append(v)
        next_times.append(time)
    return next_targets, next_times, source_rows


def walk(
    rule: PastRule, edges: TemporalEdges, vertices: Int64Array, times: Int64Array, length: int, call: int = 0
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Vertices (B, length + 1), times and edge ids (B, length) of walks back in time; -1, 0 and -1 after the end."""
    found_v = np.full((len(vertices), length + 1), -1, np.int64)
    found_t = np.zeros((len(vertices), length), np.int64)
    found_id = np.full((len(vertices), length), -1, np.int64)
    for row, (v, time) in enumerate(zip(vertices.tolist(), times.tolist(), strict=True)):
        found_v[row, 0] = v
        for step in range(length):
            candidates = past(rule, edges, v, time, 0)
            if not candidates:
                break
            rank = (_mix(_key(rule.seed, call, _WALK_PART + step, row)) * len(candidates)) >> 64
            time, found_id[row, step], v = candidates[rank]
            found_v[row, step + 1], found_t[row, step] = v, time
    return found_v, found_t, found_id
