"""Temporal sampling: edges a second against a static CSR sampler of the same style, one that grows vectors as TGL's
does, and PyG's LastNeighborLoader. pyg-lib and torch-sparse, which PyG's NeighborLoader wants, are not measured."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.native_peers import program
from benchmarks.noise import Calm
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate
from livegnn.temporal import TemporalSampler

Int64 = npt.NDArray[np.int64]

TARGETS = {1: 40e6, 2: 75e6}  # sampled edges a second, by threads
STATIC_MAX = 1.3  # times a static CSR sampler's time, neither with Python around it
TURNS = 5  # calm ones, of the sampler and its peers one after the other; medians over them, of speeds and of ratios
TRIES = 10
REPEATS = 5  # of all batches in a turn


class Work(NamedTuple):
    """A dated graph with power-law degrees, and batches of targets: ends of consecutive events and other vertices, at
    the time of the event (`middle`) or after all edges (`end`)."""

    vertices: int
    src: Int64
    dst: Int64
    times: Int64
    targets: Int64
    target_times: Int64


class Kind(NamedTuple):
    """What a row measures."""

    strategy: Any
    fanouts: list[int]
    place: str
    threads: int


class Peers(NamedTuple):
    """csr_sampling, and the file with its work."""

    binary: Path
    file: Path


def run(options: Options, report: Report) -> None:
    """A row per strategy, fan-outs, batch, place in time and number of threads."""
    _last_neighbours(options, report)
    binary = program("csr_sampling", report)
    if binary is None:
        return
    report.heading("Temporal sampling: edges a second")
    report.columns(
        ("strategy", "fan-outs", "batch", "targets", "threads", "livegnn", "target", "native", "static CSR",
         "native / static", "at most", "growing vectors", "met")
    )  # fmt: skip
    calms = [(threads, Calm(threads)) for threads in sorted({1, options.threads})]
    with tempfile.TemporaryDirectory() as folder:
        for batch, place in itertools.product((60, 400) if options.tiny else (600, 4000), ("middle", "end")):
            work = generated(options.tiny, batch, place)
            graph, peers = _graph(work), Peers(binary, _written(work, Path(folder)))
            for strategy, fanouts, (threads, calm) in itertools.product(("recent", "uniform"), ([10], [10, 10]), calms):
                _row(work, graph, Kind(strategy, fanouts, place, threads), peers, calm, report)


def generated(tiny: bool, batch: int, place: str) -> Work:
    """100K vertices and 2M edges."""
    rng = np.random.default_rng(7)
    vertices, edges, batches = (2_000, 20_000, 5) if tiny else (100_000, 2_000_000, 40)
    weight = np.arange(1, vertices + 1) ** -0.8
    named = rng.permutation(vertices)
    src, dst = (named[rng.choice(vertices, edges, p=weight / weight.sum())] for _ in range(2))
    times = np.arange(edges)
    return Work(
        vertices, src, dst, times, *targets_of(rng, src, dst, times, np.arange(vertices), (batches, batch), place)
    )


def targets_of(
    rng: np.random.Generator, src: Int64, dst: Int64, times: Int64, others: Int64, shape: tuple[int, int], place: str
) -> tuple[Int64, Int64]:
    """`shape`: batches of so many targets and their times, as Work says.   others: what other vertices are drawn of."""
    batches, batch = shape
    third = batch // 3
    events = rng.integers(len(src) // 2, len(src) - third, batches)[:, None] + np.arange(third)
    more = others[rng.integers(0, len(others), (batches, batch - 2 * third))]
    at = np.hstack([times[events]] * 4)[:, :batch]  # the time of the event that a target is an end of
    at = at if place == "middle" else np.full_like(at, times.max() + 1)
    return np.hstack([src[events], dst[events], more]), at


def _graph(work: Work) -> lg.Graph:
    return lg.Graph(np.zeros((work.vertices, 0), np.float32), work.src, work.dst, time=work.times)


def _passes(sampler: TemporalSampler, work: Work, repeats: int) -> tuple[int, float, int]:
    """Edges of a pass over the batches, median seconds, and csr_sampling's checksum, of the first pass."""
    seconds, edges, checksum = [], 0, 0
    for number in range(repeats + 1):
        begin = time.perf_counter()
        for vertices, times in zip(work.targets, work.target_times, strict=True):
            hops = sampler.sample(vertices, times)
            if number == 0:
                for hop in hops:
                    edges += hop.edge_count
                    places = 2 * np.arange(hop.edge_count, dtype=np.uint64) + 1
                    checksum += int(((hop.edge_ids * 31 + hop.src_rows).astype(np.uint64) * places).sum())
        if number > 0:
            seconds.append(time.perf_counter() - begin)
    return edges, float(np.median(seconds)), checksum % 2**64


def _written(work: Work, folder: Path) -> Path:
    """The file that csr_sampling reads."""
    head = np.array([work.vertices, len(work.src), *work.targets.shape])
    columns = (work.src, work.dst, work.times, work.targets.ravel(), work.target_times.ravel())
    np.concatenate([head, *columns]).astype(np.int64).tofile(folder / "work.bin")
    return folder / "work.bin"


def _row(work: Work, graph: lg.Graph, kind: Kind, peers: Peers, calm: Calm, report: Report) -> None:
    command = [str(peers.binary), str(peers.file), kind.strategy, str(kind.threads), str(REPEATS)]

    def ours() -> tuple[int, float, int]:
        return _passes(TemporalSampler(graph, kind.fanouts, kind.strategy, threads=kind.threads), work, REPEATS)

    def theirs() -> list[tuple[int, float, int]]:
        done = subprocess.run([*command, *map(str, kind.fanouts)], check=True, capture_output=True, text=True)
        lines = [line.split() for line in done.stdout.splitlines()]
        return [(int(edges), float(seconds), int(checksum)) for _, edges, seconds, checksum in lines]

    wanted, tries = (1, 1) if work.vertices < 10_000 else (TURNS, TRIES)
    seconds, edges = [], 0
    for mine, peers_of_turn in calm.turns(ours, theirs, wanted, tries):
        edges = mine[0]
        every = (mine, *peers_of_turn)
        seconds.append([each[1] for each in every])
        if len({(count, checksum) for count, _, checksum in every}) != 1:
            report.fail(f"[temporal_sampling] expected the same samples of all, got others: {kind}")
    speeds = edges / np.median(seconds, axis=0)  # through Python; static, native, growing
    slower = float(np.median([turn[2] / turn[1] for turn in seconds]))
    target = TARGETS.get(kind.threads)
    met = "-" if target is None else "yes" if speeds[0] >= target and slower <= STATIC_MAX else "NO"
    report.row(
        [kind.strategy, kind.fanouts, work.targets.shape[1], kind.place, kind.threads, rate(speeds[0]),
         "-" if target is None else rate(target), rate(speeds[2]), rate(speeds[1]), f"{slower:.2f}", STATIC_MAX,
         rate(speeds[3]), met]
    )  # fmt: skip


def _last_neighbours(options: Options, report: Report) -> None:
    """PyG's LastNeighborLoader keeps the last 10 of each vertex: the past of one moment, the newest, only."""
    import torch
    from torch_geometric.nn.models.tgn import LastNeighborLoader

    report.heading("recent [10] at the end of time, against PyG's LastNeighborLoader, which knows no other time")
    report.columns(("batch", "livegnn", "LastNeighborLoader", "times faster"))
    for batch in (60,) if options.tiny else (600, 4000):
        work = generated(options.tiny, batch, "end")
        loader = LastNeighborLoader(work.vertices, size=10)
        for first in range(0, len(work.src), 200):  # directed: the source is the neighbour of the destination
            part = slice(first, first + 200)
            loader.insert(torch.from_numpy(work.src[part]), torch.from_numpy(work.dst[part]))
        graph = lg.Graph(np.zeros((work.vertices, 0), np.float32), work.src, work.dst, time=work.times, undirected=True)
        edges, seconds, _ = _passes(TemporalSampler(graph, [10], threads=options.threads), work, 5)
        theirs = []
        for vertices in work.targets:
            ids = torch.from_numpy(np.unique(vertices))
            begin = time.perf_counter()
            _, edge_index, _ = loader(ids)
            theirs.append((time.perf_counter() - begin) / max(edge_index.shape[1], 1))
        ours = seconds / edges
        speeds = (f"{rate(1 / each)} ({duration(each)} an edge)" for each in (ours, float(np.median(theirs))))
        report.row([batch, *speeds, f"{float(np.median(theirs)) / ours:.1f}"])
