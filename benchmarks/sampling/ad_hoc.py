"""Pre-sampling against sampling at query time on the same store: by a sort of all neighbours, as graph databases do it,
by our own time index, and by a sort over adjacency that two processes share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.options import Options
from benchmarks.peers.partitioned import Partitioned
from benchmarks.peers.sort_all import SortSampler
from benchmarks.report import Report, duration
from benchmarks.sampling.serving import latencies
from benchmarks.sampling.workload import Social, query, social
from livegnn.sampling import SampleSource

TARGETS = {"sort": 20.0, "index": 1.0, "sort, 2 processes": 20.0}


def run(options: Options, report: Report) -> None:
    """A row per strategy, kind of seed and way of sampling."""
    report.heading("Pre-sampling against sampling ad hoc: one query at a time, [25, 10], with features")
    report.columns(
        ("strategy", "seeds", "against", "pre-sampled median / p99", "ad hoc median / p99", "queries/s ratio",
         "p99 ratio", "at least", "met")
    )  # fmt: skip
    work = social(options.tiny)
    report.progress(f"loading {work.loaded:,} edges over {work.vertices:,} vertices")
    graph = work.graph()
    for by in ("top_k", "weighted", "random"):
        _strategy(by, graph, work, options, report)


def _strategy(by: str, graph: lg.Graph, work: Social, options: Options, report: Report) -> None:
    asked = query(by)
    sampler = lg.PreSampler(graph, asked, seed=5, threads=1)
    peers: dict[str, SampleSource] = {
        "sort": SortSampler(graph, asked, seed=5),
        "index": lg.AdHocSampler(graph, asked, seed=5),
    }
    rng = np.random.default_rng(6)
    degree = graph.out_degree(np.arange(work.forums))
    hubs = np.argsort(-degree)[: max(10, work.forums // 100)]
    count = 60 if options.tiny else 1000
    kinds = {"hubs (1%)": rng.choice(hubs, count), "any": rng.integers(0, work.forums, count)}
    with Partitioned(work, asked, 5) as partitioned:
        for kind, seeds in kinds.items():
            ours = latencies(lambda seed: sampler.sample(seed, edge_ids=False), np.tile(seeds, 5))
            for name, peer in {**peers, "sort, 2 processes": partitioned}.items():
                theirs = latencies(lambda seed, peer=peer: peer.sample(seed, edge_ids=False), seeds)  # type: ignore[misc]
                for k in (1, 2):
                    if not np.array_equal(peer.sample(seeds[:20]).hop(k), sampler.sample(seeds[:20]).hop(k)):
                        report.fail(f"[sampling_ad_hoc] {by}, {kind}: expected {name} to give the same hop {k}")
                _row(by, kind, name, ours, theirs, report)
    sampler.close()


def _row(
    by: str, kind: str, name: str, ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], report: Report
) -> None:
    (median, p99), (their_median, their_p99) = (np.quantile(found, [0.5, 0.99]) for found in (ours, theirs))
    speed, tail = theirs.mean() / ours.mean(), their_p99 / p99
    judged = kind.startswith("hubs") and (by != "random" or name == "index")
    target = TARGETS[name] if judged else None
    met = "-" if target is None else ("yes" if min(speed, tail) >= target or (name == "index" and speed >= 1) else "NO")
    pairs = (f"{duration(median)} / {duration(p99)}", f"{duration(their_median)} / {duration(their_p99)}")
    report.row([by, kind, name, *pairs, f"{speed:.1f}", f"{tail:.1f}", "-" if target is None else target, met])
    report.progress(f"{by}, {kind}, {name}: {speed:.1f} times the queries/s")
