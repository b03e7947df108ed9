"""`livegnn sample`: a query kept sampled while a stream is played, then asked, next to sampling at query time.

Order: plan -> play the events through PreSampler.apply -> write the seeds' samples -> ask one query at a time of each
way -> verify. Ctrl-C ends the part under way; what was done until then is reported.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import livegnn as lg
from livegnn import datasets
from livegnn.cli.arguments import add_columns, from_zero, positive
from livegnn.cli.console import Console
from livegnn.cli.events import Ids, play
from livegnn.cli.results import ResultFile
from livegnn.cli.sample_input import (
    PAPER_QUERY,
    EventSource,
    check_seeds,
    named_files,
    open_source,
    read_seeds,
    read_ttl,
)
from livegnn.files import listed
from livegnn.sampling import AdHocSampler, Plan, Sample, Schema
from livegnn.sampling.queries.expiry import Ttl

_COLUMNS = ("version", "seed", "hop", "place", "vertex", "edge_id", "parent")
_QUERIES, _SECONDS = 2000, 2.0  # of each way: so many queries, or as many as fit
_SEEDS_A_READ = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn sample`."""
    what = parser.add_argument_group("what is played (a data set, or files of your own)")
    what.add_argument(
        "--dataset", choices=datasets.typed_names(), default=datasets.typed_names()[0], help="default: %(default)s"
    )
    what.add_argument("--generated", action="store_true", help="a generated stream even where the real one is at hand")
    what.add_argument("--features", type=Path, metavar="FILE", help=".npy, .parquet or .csv: one row for each vertex")
    what.add_argument("--events", type=Path, metavar="FILE", help=".parquet or .csv: one row for each update, in order")
    what.add_argument("--edges", type=Path, metavar="FILE", help="edges that are there before the first event")
    columns = add_columns(
        parser, time="times of edges: TopK and --ttl want them", weight="weights of edges: EdgeWeight wants them"
    )
    columns.add_argument("--type-column", metavar="NAME", help="types of edges: names where vertices have types")
    columns.add_argument("--vertex-type-column", metavar="NAME", help="vertex types in the features file")
    columns.add_argument("--undirected", action="store_true", help="every edge is followed both ways")
    how = parser.add_argument_group("how")
    how.add_argument("--query", metavar="TEXT", help=f"text, JSON, or @FILE with either (default: {PAPER_QUERY})")
    how.add_argument("--seeds", default="1000", metavar="FILE|N", help="ids, one a line, or how many at random (1000)")
    how.add_argument("--batch", type=positive, default=100, metavar="N", help="events in a batch (default: 100)")
    how.add_argument("--ttl", action="append", metavar="[TYPE=]N", help="how long edges count, in the unit of times")
    how.add_argument(
        "--seed", type=from_zero, default=0, metavar="N", help="of random samples and of seeds (default: 0)"
    )
    how.add_argument("--explain", action="store_true", help="print the plan and stop")
    how.add_argument("--verify", action="store_true", help="compare every sample with a scan of the graph at the end")
    how.add_argument("--out", type=Path, metavar="FILE", help=".parquet or .csv to write the seeds' samples to")
    parser.set_defaults(refuse=parser.error)


@dataclass(frozen=True, eq=False)
class Way:
    """One way of answering, and the seconds of each of its queries."""

    name: str
    seconds: npt.NDArray[np.float64]


def run(options: argparse.Namespace, console: Console) -> int:
    """Plays a stream through a pre-sampler and asks it; 0, or 130 if it was interrupted."""
    if (options.features is None) != (options.events is None):
        options.refuse("expected --features and --events together; without both a data set is played")
    ttl = read_ttl(options.ttl)
    if not options.explain:
        check_seeds(options.seeds)
    inputs = (options.features, options.events, options.edges, *named_files(options))
    results = None if options.out is None else ResultFile(options.out, _COLUMNS, inputs)
    source = open_source(options, console)
    plan = Plan.of([source.query], Schema.of(source.graph))
    console.heading("The plan")
    console.line(plan.explain())
    if options.explain:
        return 0
    seeds = read_seeds(options.seeds, source.graph, source.query.vertex_type, options.seed)
    sampler = lg.PreSampler(source.graph, source.query, seed=options.seed, ttl=ttl)
    console.heading("The stream")
    console.line(f"{source.title}.")
    console.line(f"{source.event_count:,} events, batches of {options.batch:,}.")
    start = sampler.version
    played = play(console, source.event_count, options.batch, lambda begin, end: source.play(sampler.apply, begin, end))
    done = sampler.version - start
    if played.interrupted:
        console.warn(f"Interrupted after {done:,} batches; what follows is of version {sampler.version:,}.")
    _report_stream(min(done * options.batch, source.event_count), played.seconds, sampler, console)
    if results is not None:
        _write(results, sampler, seeds, options.out, console)
    if played.interrupted:
        console.warn("The queries and the checks were left out.")
        return 130
    interrupted = _ask(sampler, source, seeds, ttl, options, console)
    if options.verify and not interrupted:
        sampler.verify()
        console.good("verify: every kept sample equals a scan of the graph.")
    return 130 if interrupted else 0


def _report_stream(events: int, seconds: list[float], sampler: lg.PreSampler, console: Console) -> None:
    stats = sampler.stats
    if seconds:
        ms = np.asarray(seconds) * 1e3
        console.line(
            f"{events:,} records in {ms.sum() / 1e3:.2f} s: {events / ms.sum() * 1e3:,.0f} records/s;"
            f" a batch p50 {np.median(ms):.3f} ms, p99 {np.quantile(ms, 0.99):.3f} ms."
        )
    if stats.lag_ms is not None:
        p50, p99, most = stats.lag_ms
        console.line(f"Visible to readers after p50 {p50:.3f} ms, p99 {p99:.3f} ms, at most {most:.3f} ms.")
    if stats.refills:
        console.line(f"{stats.refills:,} rows were refilled by a scan.")
    parts = ", ".join(f"{name.replace('_', ' ')} {size / 2**20:,.1f}" for name, size in stats.bytes.items())
    console.line(f"Memory of the samples: {sum(stats.bytes.values()) / 2**20:,.1f} MiB ({parts}).")


# ---- answers


def _ask(
    sampler: lg.PreSampler, source: EventSource, seeds: Ids, ttl: Ttl, options: argparse.Namespace, console: Console
) -> bool:
    """One query at a time of each way, on the same graph; True if Ctrl-C ended it."""
    console.heading("The queries")
    _show_one(sampler, seeds, console)
    peers: dict[str, Any] = {"pre-sampled": sampler}
    peers["ad hoc"] = AdHocSampler(source.graph, source.query, seed=options.seed, ttl=ttl)
    ways: list[Way] = []
    interrupted = False
    try:
        for name, peer in peers.items():
            ways.append(Way(name, _latencies(peer, seeds)))
        together = _rate(sampler, seeds)
    except KeyboardInterrupt:
        interrupted = True
        console.warn(f"Interrupted after {len(ways)} of {len(peers)} ways.")
    if ways:
        console.table(("one query at a time", "queries", "queries/s", "p50", "p99", "largest"), _rows(ways), strong=0)
    if not interrupted:
        console.line(f"Pre-sampled, {min(_SEEDS_A_READ, len(seeds))} seeds a call: {together:,.0f} queries/s.")
    return interrupted


def _show_one(sampler: lg.PreSampler, seeds: Ids, console: Console) -> None:
    """The fullest answer among the first seeds, in words."""
    few = seeds[:64]
    sample = sampler.sample(listed(few), features=False)
    full = int(np.argmax(sample.mask(1).reshape(len(few), -1).sum(axis=1)))
    types = ["" if kind is None else f" {kind}" for kind in sample.vertex_types]
    parts = [f"{types[0]} {few[full]}".strip()]
    for k in range(1, sample.hops + 1):
        vertices = np.asarray(sample.hop(k)).reshape(len(few), -1)[full]
        there = vertices[sample.mask(k).reshape(len(few), -1)[full]].tolist()
        shown = ", ".join(map(str, there[:3])) + (", ..." if len(there) > 3 else "")
        parts.append(f"{len(there)}{types[k]}" + (f" ({shown})" if there else ""))
    console.line("One answer: " + " -> ".join(parts))


def _latencies(peer: Any, seeds: Ids) -> npt.NDArray[np.float64]:
    for row in range(min(20, len(seeds))):  # the first ones find the caches cold
        peer.sample(listed(seeds[row : row + 1]))
    found: list[float] = []
    end = time.perf_counter() + _SECONDS
    for row in itertools.islice(itertools.cycle(range(len(seeds))), _QUERIES):
        one = listed(seeds[row : row + 1])
        clock = time.perf_counter()
        peer.sample(one)
        done = time.perf_counter()
        found.append(done - clock)
        if done > end:
            break
    return np.asarray(found)


def _rate(sampler: lg.PreSampler, seeds: Ids) -> float:
    """Queries a second where many seeds are given at once."""
    blocks = [listed(seeds[begin : begin + _SEEDS_A_READ]) for begin in range(0, len(seeds), _SEEDS_A_READ)]
    count, clock = 0, time.perf_counter()
    for block in itertools.cycle(blocks):
        sampler.sample(block)
        count += len(block)
        taken = time.perf_counter() - clock
        if taken > _SECONDS / 4:
            return count / taken
    return 0.0


def _rows(ways: list[Way]) -> list[list[str]]:
    rows = []
    for way in ways:
        us = way.seconds * 1e6
        quantiles = [f"{value:,.0f} us" for value in (np.median(us), np.quantile(us, 0.99), us.max())]
        rows.append([way.name, f"{len(us):,}", f"{1e6 / us.mean():,.0f}", *quantiles])
    return rows


# ---- rows


def rows_of(sample: Sample) -> dict[str, npt.NDArray[Any]]:
    """A sample as columns, one row for each sampled vertex, by seed, hop and place.

    place counts from 0 within the seed's hop, gaps included: with fan-out C, the parent's is place // C.
    """
    count = len(sample)
    names = ("row", "hop", "place", "vertex", "edge_id", "parent")
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
    above = np.asarray(sample.hop(0)).reshape(count, 1)
    for k in range(1, sample.hops + 1):
        vertices = np.asarray(sample.hop(k)).reshape(count, -1)
        row, place = np.nonzero(sample.mask(k).reshape(count, -1))
        fanout = vertices.shape[1] // above.shape[1]
        parts["row"].append(row)
        parts["hop"].append(np.full(len(row), k, dtype=np.int64))
        parts["place"].append(place)
        parts["vertex"].append(vertices[row, place])
        parts["edge_id"].append(sample.edge_ids(k).reshape(count, -1)[row, place])
        parts["parent"].append(above[row, place // fanout])
        above = vertices
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    order = np.argsort(columns["row"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    row = columns.pop("row")
    version = np.full(len(row), sample.version, dtype=np.int64)
    return {"version": version, "seed": np.asarray(sample.hop(0))[row], **columns}


def _write(results: ResultFile, sampler: lg.PreSampler, seeds: Ids, path: Path, console: Console) -> None:
    with results.written() as rows:
        for begin in range(0, len(seeds), _SEEDS_A_READ):
            rows.add(rows_of(sampler.sample(listed(seeds[begin : begin + _SEEDS_A_READ]), features=False)))
    console.line(f"{rows.count:,} sampled vertices of {len(seeds):,} seeds: {path}")
