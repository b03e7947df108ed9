"""python -m benchmarks.partitions [graph ...] [--tiny] [--out FILE]: how well and how fast METIS, LDG, Fennel and a
hash divide real and generated graphs into 2 to 16 parts.

Balance is by edges (in-edges + 1 of each vertex). Graphs without dates, and those between two kinds of vertices, are
taken as undirected, as their messages flow both ways. A part that is too full, or METIS cutting more than a hash, is a
wrong answer.

Newcomers: METIS divides the first 80 % of the vertices, with the edges between them. The others come in batches of
1000, each with its edges to those before it, and go by a rule.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.engine.generate import generated
from benchmarks.machine import description
from benchmarks.report import Report, duration
from livegnn import datasets
from livegnn._native import UpdateKind
from livegnn.distributed import Newcomers, PartitionReport, VertexParts, fennel, hashed, ldg, metis
from livegnn.distributed.partition import NewcomerRule, StreamPass, Topology
from livegnn.errors import DataMissing

LARGE = ("products-like-small",)
GENERATED = ("arxiv-like", "products-like-small")
PARTS = (2, 4, 8, 16)
BATCH = 1000
SLACK = {"LDG": 0.05, "Fennel": 0.1}
_TEN = StreamPass(passes=10)

Finder = Callable[[Topology, int], VertexParts]
FINDERS: dict[str, Finder] = {
    "METIS": metis,
    "LDG": ldg,
    "LDG, 10 passes": partial(ldg, read=_TEN),
    "Fennel": fennel,
    "Fennel, 10 passes": partial(fennel, read=_TEN),
    "hash": lambda _, parts: hashed(parts),
}


def topologies(names: Sequence[str]) -> Iterator[tuple[str, Topology]]:
    """The graphs of these names that are at hand."""
    for name in names:
        if name in (*GENERATED, "tiny"):
            drawn = generated(name)
            yield name, Topology.of_edges(drawn.src, drawn.dst, drawn.shape.vertices)
        elif name in datasets.typed_names():
            yield name, _typed(name)
        else:
            try:
                stream = datasets.load(name)
            except DataMissing:
                continue
            both_ways = stream.is_bipartite or stream.time is None
            yield name, Topology.of_edges(stream.src, stream.dst, stream.vertex_count, undirected=both_ways)


def _typed(name: str) -> Topology:
    """Vertices of all types in one row of slots, type by type."""
    stream = datasets.load_typed(name)
    counts = [len(rows) for rows in stream.features.values()]
    first = dict(zip(stream.features, np.cumsum([0, *counts]).tolist(), strict=False))
    starts = np.array([[first[src], first[dst]] for src, _, dst in stream.edge_types])[stream.edge_type]
    return Topology.of_edges(stream.src + starts[:, 0], stream.dst + starts[:, 1], sum(counts))


def run(report: Report, names: Sequence[str], parts: Sequence[int], finders: dict[str, Finder]) -> None:
    """A table for each graph."""
    for name, topology in topologies(names):
        flow = "both ways" if topology.undirected else "along edges"
        report.heading(f"{name}: {topology.slot_count:,} vertices, {len(topology.src):,} edges, messages {flow}")
        report.columns(
            ("parts", "by", "cut", "max/mean edges + 1", "max/mean vertices", "halo a vertex", "pairs", "seconds")
        )
        for count in parts:
            cuts = {}
            for by, find in finders.items():
                begin = time.perf_counter()
                found = find(topology, count)
                seconds = time.perf_counter() - begin
                counted = PartitionReport.of(topology, found)
                cuts[by] = counted.cut
                report.row(_cells(count, by, counted, seconds))
                report.progress(f"{name}, {count} parts, {by}: {duration(seconds)}")
                _check(report, name, by, counted, topology)
            if cuts["METIS"] > cuts["hash"]:
                report.fail(f"[partitions] expected METIS to cut less than a hash on {name}, got {cuts}")


def run_newcomers(report: Report, names: Sequence[str], count: int) -> None:
    """One table: what the rules make of the last fifth of each graph."""
    report.heading(f"Newcomers: the last fifth of the vertices, {count} parts")
    report.columns(("graph", "newcomers", "by", "cut", "METIS of all", "max/mean vertices", "seconds"))
    for name, topology in topologies(names):
        first = topology.slot_count * 4 // 5
        early = np.maximum(topology.src, topology.dst) < first
        known = Topology.of_edges(topology.src[early], topology.dst[early], first, undirected=topology.undirected)
        start, whole = metis(known, count, balance="vertices"), metis(topology, count, balance="vertices")
        best = PartitionReport.of(topology, whole)
        batches = list(_arrivals(topology, first))
        for rule in get_args(NewcomerRule):
            newcomers = Newcomers.of(known, VertexParts(count, start.of), rule=rule)
            begin = time.perf_counter()
            for batch in batches:
                newcomers.follow(batch)
            seconds = time.perf_counter() - begin
            counted = PartitionReport.of(topology, newcomers.parts)
            report.row(
                [
                    name,
                    f"{topology.slot_count - first:,}",
                    rule,
                    f"{counted.cut_share:.1%}",
                    f"{best.cut_share:.1%}",
                    f"{counted.vertex_balance:.3f}",
                    duration(seconds),
                ]
            )
            if newcomers.live.tolist() != counted.vertices.tolist():
                report.fail(
                    f"[partitions] expected {counted.vertices.tolist()} vertices, got {newcomers.live.tolist()}"
                )


def _arrivals(topology: Topology, first: int) -> Iterator[dict[str, Any]]:
    """Batches that add the slots from `first` on, with their edges to those before them."""
    last = np.maximum(topology.src, topology.dst)
    order = np.argsort(last, kind="stable")
    ends = np.searchsorted(last[order], np.arange(first, topology.slot_count + BATCH, BATCH))
    for number, slot in enumerate(range(first, topology.slot_count, BATCH)):
        slots = np.arange(slot, min(slot + BATCH, topology.slot_count))
        edges = order[ends[number] : ends[number + 1]]
        yield {
            "kind": np.repeat([UpdateKind.AddVertex.value, UpdateKind.AddEdge.value], [len(slots), len(edges)]),
            "u": np.concatenate([slots, topology.src[edges]]),
            "v": np.concatenate([np.full(len(slots), -1), topology.dst[edges]]),
        }


def _cells(count: int, by: str, counted: PartitionReport, seconds: float) -> list[Any]:
    work = counted.in_edges + counted.vertices
    return [
        count,
        by,
        f"{counted.cut_share:.1%}",
        f"{work.max() / work.mean():.3f}",
        f"{counted.vertex_balance:.3f}",
        f"{counted.halo_sum / counted.vertices.sum():.3f}",
        f"{counted.pairs} of {count * (count - 1)}",
        duration(seconds),
    ]


def _check(report: Report, name: str, by: str, counted: PartitionReport, topology: Topology) -> None:
    slack = SLACK.get(by.partition(",")[0])
    if slack is None:
        return
    work = counted.in_edges + counted.vertices
    heaviest = int(topology.in_edges().max()) + 1
    most = max((1 + slack) * work.mean() + 1, float(heaviest) + work.mean())
    if work.max() > most:
        report.fail(f"[partitions] expected at most {most:.0f} in a part of {name} by {by}, got {work.max()}")


def main(arguments: list[str] | None = None) -> int:
    """0; 1 after a wrong answer."""
    known = [*datasets.names(), *datasets.typed_names(), *GENERATED]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("graphs", nargs="*", help=f"any of {', '.join(known)} (default: all that are at hand)")
    parser.add_argument("--tiny", action="store_true", help="a small graph: tries the benchmark, measures nothing")
    parser.add_argument("--out", type=Path, help="write the tables to this file too")
    options = parser.parse_args(arguments)
    report = Report(options.out)
    report.title("partitions", " ".join(["python -m benchmarks.partitions", *options.graphs]), description())
    names = ["tiny"] if options.tiny else options.graphs or known
    run(report, names, PARTS[:2] if options.tiny else PARTS, FINDERS)
    run_newcomers(report, [name for name in names if name not in LARGE], 8)
    report.close()
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
