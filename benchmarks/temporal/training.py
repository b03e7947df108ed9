"""Does training on every batch pay? Continuous training on real interactions (GNNFlow, Figures 10 and 11).

30% of the events warm a model up; the rest comes in batches, each tested on before it is trained on. Next to training
on every batch, with several shares of replay: never again; and every 25th (TGN) or 50th (TGAT) batch, on the events
since, so that every row but the first trains on the same number of new events (the column "events trained on" says
how many in all). Then passes of 1 to 4 epochs. Of each seed all rows start from the same weights, optimiser and
memory; what a row says is a mean over seeds, since two trainings from other weights differ by more than two of these
rows do.

Judged: what goes on training is above what never does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import livegnn as lg
from benchmarks.options import Options
from benchmarks.report import Report, rate
from livegnn import datasets
from livegnn.temporal.models import build

WARM, WARM_EPOCHS, ROUNDS = 0.3, 10, 100
SEEDS = (0, 1, 2)
SIGNATURE = 32  # floats of a random signature of each vertex: without, TGAT cannot distinguish vertices
SELDOM = {"tgn": 25, "tgat": 50}
REPLAYS, EPOCHS = (0.0, 0.2, 0.5), (2, 3, 4)
EVENTS_MAX = 40_000  # of jodie_wikipedia, unless --full
MODELS = {
    "tgn": {"name": "tgn", "embed_width": 64, "memory_width": 64, "time_width": 64, "x_width": SIGNATURE},
    "tgat": {"name": "tgat", "embed_width": 64, "time_width": 64, "hop_count": 1, "x_width": SIGNATURE},
}
OUT = Path("out") / "temporal"


@dataclass(frozen=True)
class Way:
    """How the rounds train."""

    name: str
    every: int = 1
    replay: float = 0.0
    epochs: int = 1


@dataclass(eq=False)
class Start:
    """The events, and a warm model for all ways."""

    name: str
    src: Any
    dst: Any
    time: Any
    vertices: int
    seed: int
    weights: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)

    @property
    def warm(self) -> int:
        return int(WARM * len(self.src))

    def trainer(self, model: str, way: Way) -> lg.ContinuousTrainer:
        part = slice(0, self.warm)
        features = np.random.default_rng(7).standard_normal((self.vertices, SIGNATURE)).astype(np.float32)
        graph = lg.Graph(features, self.src[part], self.dst[part], time=self.time[part], undirected=True)
        torch.manual_seed(self.seed)
        hops = [10] * MODELS[model].get("hop_count", 1)
        sampler = lg.TemporalSampler(graph, hops, "recent" if model == "tgn" else "uniform")
        options: dict[str, Any] = {
            "epochs": way.epochs, "replay": way.replay, "train_every": way.every, "seed": self.seed
        }  # fmt: skip
        return lg.ContinuousTrainer(build(MODELS[model]), graph, sampler, mrr_candidates=1, **options)

    def batches(self) -> Iterator[lg.Updates]:
        for part in np.array_split(np.arange(self.warm, len(self.src)), ROUNDS):
            updates = lg.Updates()
            updates.add_edges(self.src[part], self.dst[part], time=self.time[part])
            yield updates


def run(options: Options, report: Report) -> None:
    """A table for each model, and a picture."""
    torch.set_num_threads(options.threads)
    stream = datasets.load_or_generate("jodie_wikipedia")
    if options.tiny:
        stream = datasets.generate_like("jodie_wikipedia", scale=0.02)
    count = stream.event_count if options.full or options.tiny else EVENTS_MAX
    columns = (stream.src[:count], stream.dst[:count], stream.time[:count])
    origin = " (generated)" if stream.generated else ""
    for model, seldom in SELDOM.items():
        starts = []
        for seed in SEEDS[: 1 if options.tiny else None]:
            starts.append(Start(f"jodie_wikipedia{origin}", *columns, stream.vertex_count, seed))
            _warm_up(starts[-1], model, 1 if options.tiny else WARM_EPOCHS, report)
        name = starts[0].name
        every = [Way(f"every batch, replay {replay:.0%}", replay=replay) for replay in REPLAYS]
        ways = [Way("never again", every=0), Way(f"every {seldom}th batch", every=seldom), *every]
        ways += [
            Way(f"every batch, {epochs} epochs", epochs=epochs) for epochs in EPOCHS[: 1 if options.tiny else None]
        ]
        report.heading(
            f"Continuous training: {model} on {name}, {count:,} events, {ROUNDS} batches after {WARM:.0%}, "
            f"mean of {len(starts)} seeds"
        )
        report.columns(("training", "mean AP", "sd", "last 20 batches", "events trained on", "seconds"))
        found = {way.name: [_trained(start, model, way, report) for start in starts] for way in ways}
        for way in ways:
            _row(way, found[way.name], report)
        _judge(found, ways, model, report, judged=not options.tiny)
        _picture({way.name: found[way.name][0][0] for way in ways[: 2 + len(every)]}, model, name)


def _warm_up(start: Start, model: str, epochs: int, report: Report) -> None:
    trainer = start.trainer(model, Way("warm"))
    trainer.fit(epochs)
    start.weights = copy.deepcopy(trainer.model.state_dict())
    start.optimizer = copy.deepcopy(trainer._optimizer.state_dict())
    report.progress(f"training: {model} is warm, loss {trainer.report.epochs[-1].loss:.3f}")
    trainer.close()


def _trained(start: Start, model: str, way: Way, report: Report) -> tuple[lg.temporal.TrainingReport, float]:
    """What training that way comes to, and in how many seconds."""
    trainer = start.trainer(model, way)
    trainer.model.load_state_dict(start.weights)
    trainer._optimizer.load_state_dict(copy.deepcopy(start.optimizer))
    trainer.take_as_trained()
    seconds = sum(sum(one.seconds.values()) for one in trainer.run(start.batches()))
    events = sum(epoch.events for epoch in trainer.report.epochs)
    report.progress(
        f"training: {model}, {way.name}, seed {start.seed}: {trainer.report.mean_ap:.4f}, "
        f"{rate(events / seconds)} events/s"
    )
    trainer.close()
    return trainer.report, seconds


def _row(way: Way, trained: list[tuple[lg.temporal.TrainingReport, float]], report: Report) -> None:
    reports = [one for one, _ in trained]
    aps = [one.mean_ap for one in reports]
    late = np.mean([[one.ap for one in each.rounds[-20:]] for each in reports])
    events = sum(epoch.events for epoch in reports[0].epochs)
    seconds = np.mean([each for _, each in trained])
    report.row([way.name, f"{np.mean(aps):.4f}", f"{np.std(aps):.4f}", f"{late:.4f}", f"{events:,}", f"{seconds:.0f}"])


def _judge(
    found: dict[str, list[tuple[lg.temporal.TrainingReport, float]]],
    ways: list[Way],
    model: str,
    report: Report,
    *,
    judged: bool,
) -> None:
    means = {name: float(np.mean([one.mean_ap for one, _ in trained])) for name, trained in found.items()}
    never, *others = ways
    for way in others if judged else ():
        if means[way.name] <= means[never.name]:
            report.fail(
                f"[temporal_training] expected {model} trained on {way.name} above {never.name}, got "
                f"{means[way.name]:.4f} and {means[never.name]:.4f}"
            )


def _picture(found: dict[str, lg.temporal.TrainingReport], model: str, name: str) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), constrained_layout=True)
    for number, (way, report) in enumerate(found.items()):
        ap = np.array([one.ap for one in report.rounds if np.isfinite(one.ap)])
        width = min(5, len(ap))
        smooth = np.convolve(ap, np.ones(width) / width, mode="valid")
        axes.plot(np.arange(width, len(ap) + 1), smooth, label=way, color=f"C{number}", linewidth=1.5)
    axes.set(xlabel="batch", ylabel="average precision before training (mean of 5)", title=f"{model} on {name}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / f"continuous-{model}.png", dpi=120)
    pyplot.close(figure)
