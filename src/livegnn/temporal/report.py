"""What continuous training did, round by round: numbers, a CSV file, a picture of the learning curves."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from livegnn.optional import need
from livegnn.stored import file_path, replaced


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One pass of training: mean loss per event; the validation's scores where there is one, else NaN."""

    round: int
    epoch: int
    events: int
    loss: float
    ap: float = float("nan")
    auc: float = float("nan")


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round: round 0 is the warm start. ap, auc and mrr are of the model before it was trained on these events.

    version: of the graph that it read.  seconds: by phase (ingest, sample, fetch, model, memory, checkpoint, publish).
    hit_rates: of feature caches, for "vertices" and "edges", as far as there are caches.
    """

    round: int
    version: int
    events: int
    replayed: int
    loss: float
    ap: float
    auc: float
    mrr: float
    seconds: dict[str, float]
    hit_rates: dict[str, float] = field(default_factory=dict)


_COLUMNS = ("round", "version", "events", "replayed", "loss", "ap", "auc", "mrr")
_PHASES = ("ingest", "sample", "fetch", "model", "memory", "checkpoint", "publish")


@dataclass(eq=False)
class TrainingReport:
    """All rounds and epochs so far."""

    rounds: list[RoundReport] = field(default_factory=list)
    epochs: list[EpochReport] = field(default_factory=list)

    @property
    def mean_ap(self) -> float:
        """Mean over the rounds' average precisions, each weighted by its events; the warm start is not tested."""
        tested = [r for r in self.rounds if np.isfinite(r.ap)]
        weights = [r.events for r in tested]
        return float(np.average([r.ap for r in tested], weights=weights)) if tested else float("nan")

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase over all rounds."""
        total: dict[str, float] = {}
        for one in self.rounds:
            for phase, seconds in one.seconds.items():
                total[phase] = total.get(phase, 0.0) + seconds
        return total

    def to_csv(self, path: str | Path) -> None:
        """A row per round: its columns, then seconds_<phase>. Raises: UsageError for no path; StorageFailed."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([*_COLUMNS, *(f"seconds_{phase}" for phase in _PHASES)])
        for one in self.rounds:
            values = [getattr(one, column) for column in _COLUMNS]
            writer.writerow([*values, *(f"{one.seconds.get(phase, 0.0):.6f}" for phase in _PHASES)])
        with replaced(file_path("to_csv", path), "to_csv", sealed=False) as file:
            file.write(text.getvalue().encode())

    def plot(self, path: str | Path, title: str = "") -> None:
        """Draws the learning curves: what each round scored untrained, and losses. Wants livegnn[cli]."""
        need("matplotlib", "cli").use("Agg", force=False)
        plt = need("matplotlib.pyplot", "cli")
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
        tested = [r for r in self.rounds if np.isfinite(r.ap)]
        numbers = [r.round for r in tested]
        for name, label in (("ap", "average precision"), ("auc", "ROC AUC"), ("mrr", "reciprocal rank")):
            left.plot(numbers, [getattr(r, name) for r in tested], label=label, linewidth=1.4)
        left.set(xlabel="round", ylabel="score on events not trained on yet", title=title or "test, then train")
        left.grid(alpha=0.3)
        if tested:
            left.legend(loc="best", frameon=False)
        right.plot(range(1, len(self.epochs) + 1), [e.loss for e in self.epochs], color="tab:gray", linewidth=1.2)
        right.set(xlabel="epoch, all rounds", ylabel="loss per event", title="training")
        right.grid(alpha=0.3)
        figure.savefig(path, dpi=120)
        plt.close(figure)

    def state(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return {"rounds": [_saved_round(r) for r in self.rounds], "epochs": [asdict(e) for e in self.epochs]}

    @classmethod
    def of(cls, state: dict[str, Any]) -> TrainingReport:
        """What state() gave."""
        return cls([RoundReport(**r) for r in state["rounds"]], [EpochReport(**e) for e in state["epochs"]])


def _saved_round(report: RoundReport) -> dict[str, Any]:
    """Without hit rates where there are no caches, as before there were any."""
    saved = asdict(report)
    return saved if report.hit_rates else {key: value for key, value in saved.items() if key != "hit_rates"}
