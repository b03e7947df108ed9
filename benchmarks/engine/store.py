"""The graph store alone: bulk load, random insertion and deletion, a hub emptied, bytes per edge, out-neighbour
scan."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import livegnn
from benchmarks.engine.generate import Shape, chung_lu, generated
from benchmarks.engine.live import timed
from benchmarks.machine import best_seconds
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate

LOAD_TARGET_S = 60.0  # 100M edges
SCAN_TARGET = 1.3  # times CSR
SCANS = 7
BATCH = 1000

Int64 = npt.NDArray[np.int64]


def run(options: Options, report: Report) -> None:
    """One measure a row."""
    report.heading("Store")
    report.columns(("measure", "value", "target", "met"))
    rng = np.random.default_rng(1)
    src, dst, vertices, text = _edges(options)
    graph = _load(src, dst, vertices, text, options, report)
    _scan(graph, src, dst, vertices, report)
    _churn(graph, src, dst, vertices, rng, report)
    _hub(report, 10_000 if options.tiny else 1_000_000)


def _edges(options: Options) -> tuple[Int64, Int64, int, str]:
    """Distinct Chung-Lu edges; at 100M (--full) two independent ends, where duplicates do no harm."""
    if options.full and not options.tiny:
        rng = np.random.default_rng(2)
        vertices, count = 2_400_000, 100_000_000
        skewed = (vertices * rng.random(count) ** 2).astype(np.int64)  # vertex v with density ~ v^-1/2
        return skewed, rng.integers(0, vertices, count), vertices, "100M edges, 2.4M vertices"
    if options.tiny:
        graph = generated("tiny")
        return graph.src.astype(np.int64), graph.dst.astype(np.int64), graph.shape.vertices, "16K edges"
    shape = Shape(
        vertices=600_000, edges=20_000_000, feature_width=1, classes=1, in_exponent=3.757, in_degree_max=17_481
    )
    src, dst = chung_lu(shape, 3)
    return src.astype(np.int64), dst.astype(np.int64), shape.vertices, "20M edges, 600K vertices"


def _load(src: Int64, dst: Int64, vertices: int, text: str, options: Options, report: Report) -> livegnn.Graph:
    report.progress(f"store: loading {text}")
    features = np.zeros((vertices, 1), np.float32)
    begin = time.perf_counter()
    graph = livegnn.Graph(features, src, dst)
    seconds = time.perf_counter() - begin
    target = f"{LOAD_TARGET_S * len(src) / 1e8:.0f} s" if not options.tiny else "-"
    met = "yes" if seconds <= LOAD_TARGET_S * len(src) / 1e8 else "NO"
    report.row((f"bulk load, {text}", f"{duration(seconds)}, {rate(len(src) / seconds)} edges/s", target, met))
    sizes = graph.memory()
    total = sum(sizes.values())
    parts = ", ".join(f"{name} {count / len(src):.1f}" for name, count in sizes.items() if count)
    report.row(("bytes per edge, both directions and ids", f"{total / len(src):.1f} ({parts})", "-", "-"))
    return graph


def _scan(graph: livegnn.Graph, src: Int64, dst: Int64, vertices: int, report: Report) -> None:
    """Sum of all out-neighbours' ids, vertex by vertex, against the same of a CSR; and against the fastest sum of the
    CSR's neighbours as one array, which knows no vertices."""
    report.progress("store: scanning")
    scan: Any = graph.host.store.scan_out_sum  # not public: the scans are for this benchmark alone
    in_order = np.argsort(src, kind="stable")
    neighbours = dst[in_order].astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(np.bincount(src, minlength=vertices))])
    tensor = torch.from_numpy(neighbours)
    torch.set_num_threads(1)

    def by_vertex() -> int:
        return int(livegnn._native.scan_csr_sum(starts, neighbours))

    def flat() -> float:
        sums = (lambda: neighbours.sum(dtype=np.int64), lambda: tensor.sum())
        return min(best_seconds(each, SCANS) for each in sums)

    expected = int(dst.sum())
    for name, got in (("scan", scan()), ("CSR's", by_vertex())):
        if got != expected:
            report.fail(f"[store] expected a {name} sum of {expected}, got {got}")
    turns = [(best_seconds(scan, 1), best_seconds(by_vertex, 1)) for _ in range(SCANS)]
    ours, csr = (min(seconds) for seconds in zip(*turns, strict=True))
    met = "yes" if ours <= SCAN_TARGET * csr else "NO"
    text = f"{ours / csr:.2f} times ({rate(len(src) / ours)} against {rate(len(src) / csr)} edges/s, one thread)"
    report.row(("out-neighbour scan against CSR", text, SCAN_TARGET, met))
    report.row(("the same against a flat sum of the CSR's array", f"{ours / flat():.2f} times", "-", "-"))


def _churn(
    graph: livegnn.Graph, src: Int64, dst: Int64, vertices: int, rng: np.random.Generator, report: Report
) -> None:
    """Random insertions, then random deletions, in batches of BATCH, through graph.apply."""
    report.progress("store: inserting and deleting")
    count = min(200 * BATCH, len(src) // 4)
    u, v = rng.integers(0, vertices, count), rng.integers(0, vertices, count)
    removed = rng.choice(len(src), count, replace=False)
    before = graph.edge_count
    for name, method, a, b in (
        ("insertion", "add_edges", u, v),
        ("deletion", "remove_edges", src[removed], dst[removed]),
    ):
        batches = []
        for i in range(0, count, BATCH):
            updates = livegnn.Updates()
            getattr(updates, method)(a[i : i + BATCH], b[i : i + BATCH])
            batches.append(updates)
        seconds = timed(graph.apply, batches)
        report.row((f"random {name}, batches of {BATCH}", f"{rate(count / seconds.sum())} edges/s", "-", "-"))
    if graph.edge_count != before:
        report.fail(f"[store] expected {before} edges after as many deletions as insertions, got {graph.edge_count}")


def _hub(report: Report, degree: int) -> None:
    """Edges of one vertex deleted one batch each, in random order, while it has `degree` of them; and all at once."""
    report.progress("store: emptying a hub")
    rng = np.random.default_rng(5)
    leaves = np.arange(1, degree + 1)
    features = np.zeros((degree + 1, 1), np.float32)
    graph = livegnn.Graph(features, np.zeros(degree, np.int64), leaves)
    order = rng.permutation(leaves)
    count = min(20_000, degree // 2)
    batches = []
    for leaf in order[:count].tolist():
        updates = livegnn.Updates()
        updates.remove_edge(0, leaf)
        batches.append(updates)
    seconds = timed(graph.apply, batches)
    text = f"{duration(float(np.median(seconds)))} median, {duration(float(np.percentile(seconds, 99)))} p99"
    report.row((f"one deletion at a hub of {degree} out-edges", text, "-", "-"))
    updates = livegnn.Updates()
    updates.remove_edges(np.zeros(degree - count, np.int64), np.ascontiguousarray(order[count:]))
    total = float(timed(graph.apply, [updates])[0])
    report.row(("the rest of the hub in one batch", f"{rate((degree - count) / total)} edges/s", "-", "-"))
    if graph.edge_count != 0:
        report.fail(f"[store] expected no edges after emptying the hub, got {graph.edge_count}")
