"""What staleness and sampling cost in quality (NeutronRT, Table IV), on real dated graphs, five seeds.

The demo's own story: a module trained on the first half of time; then the rest streams by, and at checkpoints
predictions are judged: live, refreshed only now and then, sampled at fan-outs 5, 10 and 20, and by a model retrained
on the graph so far.
"""

from __future__ import annotations

import numpy as np

from benchmarks.options import Options
from benchmarks.report import Report
from livegnn import datasets
from livegnn.cli.demo import experiment as story
from livegnn.cli.demo import replay as play
from livegnn.cli.demo.plot import mean_auc

SEEDS = 5
DEVIATION_MAX = 1e-4  # live against PyG's full run, relative to the largest output
DEFAULT_GRAPHS = ("ethereum_phishing",)
FULL_GRAPHS = ("ethereum_phishing", "bitcoin_otc")


def run(options: Options, report: Report) -> None:
    """Mean and standard deviation over seeds of the mean AUC over the stream."""
    seeds = 1 if options.tiny else SEEDS
    report.heading(f"Quality: mean AUC over the stream, {seeds} seeds (mean +- standard deviation)")
    graphs = FULL_GRAPHS if options.full else DEFAULT_GRAPHS
    ways: list[str] = []
    for name in graphs:
        stream = datasets.load_or_generate(name)
        if options.tiny:
            stream = datasets.generate_like(name, scale=0.03)
        results: dict[str, list[float]] = {}
        for seed in range(seeds):
            report.progress(f"quality: {name}, seed {seed}")
            _play(stream, seed, options, report, results)
        if not ways:
            ways = list(results)
            report.columns(("graph", *ways))
        label = name + (" (generated)" if stream.generated else "")
        cells = [f"{np.nanmean(results[way]):.3f} +- {np.nanstd(results[way]):.3f}" for way in ways]
        report.row((label, *cells))


def _play(
    stream: datasets.EventStream, seed: int, options: Options, report: Report, results: dict[str, list[float]]
) -> None:
    prepared = story.prepare(stream, seed)
    epochs = 10 if options.tiny else 100
    by_labels = prepared.task == "labels"
    choice = play.PlayOptions(batch=500, checkpoints=20 if by_labels else 60, epochs=epochs)
    played = play.Player(prepared, story.train(prepared, epochs=epochs), choice).run(lambda _: None)
    if played.interrupted:
        raise KeyboardInterrupt
    if not played.deviation_max <= DEVIATION_MAX:
        report.fail(f"[quality] expected live outputs within {DEVIATION_MAX} of PyG's, got {played.deviation_max:.2e}")
    pooled = 1 if by_labels else 8  # a window of ratings holds few negative ones
    for way in played.scores:
        results.setdefault(way, []).append(mean_auc(played, way, pooled))
