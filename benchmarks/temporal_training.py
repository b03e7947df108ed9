"""Does training on every batch pay? Continuous training on real interactions (GNNFlow, Figures 10 and 11).

30% of the events warm a model up; the rest comes in batches, each tested on before it is trained on. Beside training on
every batch, with several shares of replay: never again; and every 25th (TGN) or 50th (TGAT) batch, on the events since,
so that every row but the first trains on the same number of new events (the column "events trained on" says how many in
all). Then passes of 1 to 4 epochs. Same warm start for every row: weights, optimiser and memory.

Expected: every batch beats never and seldom (mean of average precision over all batches).
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

WARM, ROUNDS = 0.3, 100
SELDOM = {"tgn": 25, "tgat": 50}
REPLAYS, EPOCHS = (0.0, 0.2, 0.5), (1, 2, 3, 4)
EVENTS_MAX = 60_000  # of jodie_wikipedia, unless --full
MODELS = {
    "tgn": {"name": "tgn", "embed_width": 64, "memory_width": 64, "time_width": 64},
    "tgat": {"name": "tgat", "embed_width": 64, "time_width": 64, "hop_count": 1},
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
    """The events, and one warm model for all ways."""

    name: str
    src: Any
    dst: Any
    time: Any
    vertices: int
    weights: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)

    @property
    def warm(self) -> int:
        return int(WARM * len(self.src))

    def trainer(self, model: str, way: Way) -> lg.ContinuousTrainer:
        part = slice(0, self.warm)
        features = np.zeros((self.vertices, 0), np.float32)
        graph = lg.Graph(features, self.src[part], self.dst[part], time=self.time[part], undirected=True)
        torch.manual_seed(0)
        hops = [10] * MODELS[model].get("hop_count", 1)
        sampler = lg.TemporalSampler(graph, hops, "recent" if model == "tgn" else "uniform")
        options: dict[str, Any] = {"epochs": way.epochs, "replay": way.replay, "train_every": way.every}
        return lg.ContinuousTrainer(build(MODELS[model]), graph, sampler, mrr_candidates=1, **options)

    def batches(self) -> Iterator[lg.Updates]:
        for part in np.array_split(np.arange(self.warm, len(self.src)), ROUNDS):
            updates = lg.Updates()
            updates.add_edges(self.src[part], self.dst[part], time=self.time[part])
            yield updates


def run(options: Options, report: Report) -> None:
    """Two tables for each model, and a picture."""
    torch.set_num_threads(options.threads)
    stream = datasets.load_or_generate("jodie_wikipedia")
    if options.tiny:
        stream = datasets.generate_like("jodie_wikipedia", scale=0.02)
    count = stream.event_count if options.full or options.tiny else EVENTS_MAX
    columns = (stream.src[:count], stream.dst[:count], stream.time[:count])
    origin = " (generated)" if stream.generated else ""
    for model, seldom in SELDOM.items():
        start = Start(f"jodie_wikipedia{origin}", *columns, stream.vertex_count)
        _warm_up(start, model, 1 if options.tiny else 3, report)
        events = f"{len(start.src):,} events, {ROUNDS} batches after {WARM:.0%}"
        report.heading(f"Continuous training: {model} on {start.name}, {events}")
        report.columns(("training", "mean AP", "last 20 batches", "AUC", "events trained on", "seconds"))
        every = [Way(f"every batch, replay {replay:.0%}", replay=replay) for replay in REPLAYS]
        ways = [Way("never again", every=0), Way(f"every {seldom}th batch", every=seldom), *every]
        found = {way.name: _row(start, model, way, report) for way in ways}
        _judge(found, ways, model, report, judged=not options.tiny)
        report.heading(f"Epochs of a batch: {model} on {start.name}")
        report.columns(("epochs", "mean AP", "last 20 batches", "AUC", "events trained on", "seconds"))
        for epochs in EPOCHS if not options.tiny else EPOCHS[:2]:
            _row(start, model, Way(str(epochs), epochs=epochs), report)
        _picture(found, model, start.name)


def _warm_up(start: Start, model: str, epochs: int, report: Report) -> None:
    trainer = start.trainer(model, Way("warm"))
    trainer.fit(epochs)
    start.weights = copy.deepcopy(trainer.model.state_dict())
    start.optimizer = copy.deepcopy(trainer._optimizer.state_dict())
    report.progress(f"training: {model} is warm, loss {trainer.report.epochs[-1].loss:.3f}")
    trainer.close()


def _row(start: Start, model: str, way: Way, report: Report) -> lg.TrainingReport:
    trainer = start.trainer(model, way)
    trainer.model.load_state_dict(start.weights)
    trainer._optimizer.load_state_dict(copy.deepcopy(start.optimizer))
    trainer.take_as_trained()
    rounds = list(trainer.run(start.batches()))
    seconds = sum(sum(one.seconds.values()) for one in rounds)
    trained = sum(epoch.events for epoch in trainer.report.epochs)
    late = np.mean([one.ap for one in rounds[-20:]])
    auc = np.average([one.auc for one in rounds], weights=[one.events for one in rounds])
    ap = trainer.report.mean_ap
    report.row([way.name, f"{ap:.4f}", f"{late:.4f}", f"{auc:.4f}", f"{trained:,}", f"{seconds:.0f}"])
    report.progress(f"training: {model}, {way.name}: {ap:.4f}, {rate(trained / seconds)} events/s")
    trainer.close()
    return trainer.report


def _judge(found: dict[str, lg.TrainingReport], ways: list[Way], model: str, report: Report, *, judged: bool) -> None:
    never, seldom, *always = ways
    for way in always if judged else ():
        for worse in (never, seldom):
            got, other = found[way.name].mean_ap, found[worse.name].mean_ap
            if got <= other:
                report.fail(
                    f"[temporal_training] expected {model} trained on {way.name} above {worse.name}, got {got:.4f} and "
                    f"{other:.4f}"
                )


def _picture(found: dict[str, lg.TrainingReport], model: str, name: str) -> None:
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
