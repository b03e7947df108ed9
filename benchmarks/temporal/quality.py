"""Do our temporal models predict as well as their peers? TGN, TGAT, DySAT; average precision on real dated graphs.

The peers, on the same events, negatives, widths, optimiser and epochs: TGN assembled from PyG's own parts; TGAT and
DySAT in plain torch on neighbours found with NumPy, begun with the same weights, without dropout, with fixed time
frequencies (learnt ones multiply rounding by ages), so that both sides should take the same steps, but for rounding.
Of each run the epoch with the best validation counts. A mean over seeds of more than DEFICIT_MAX below the peer's
fails.

One piece at a time, kept in a CSV and resumed from there (the budget is part of a row; other rows are left alone):

    python -m benchmarks.temporal.quality --graph bitcoin_otc --model tgn --seed 0 --results out/temporal/quality.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.options import Options
from benchmarks.peers.plain_temporal import Plain
from benchmarks.peers.pyg_tgn import PyGTGN
from benchmarks.report import Report, duration
from benchmarks.temporal.contest import POINTS, Budget, Contender, Data, Point, Scores, load, play
from benchmarks.temporal.ours import Ours

GRAPHS = ("jodie_wikipedia", "tags_math_sx", "bitcoin_otc")
MODELS = ("tgn", "tgat", "dysat")
SIDES = ("ours", "peer")
SEEDS = (0, 1, 2)
EPOCHS = {"jodie_wikipedia": (3, 1, 1), "tags_math_sx": (1, 1, 1), "bitcoin_otc": (5, 3, 3)}  # in the order of MODELS
WINDOWS = {"jodie_wikipedia": 86_400, "tags_math_sx": 7 * 1_440, "bitcoin_otc": 60 * 1_440}  # days, for DySAT
DEFICIT_MAX = 0.005
OUT = Path("out") / "temporal"
Key = dict[str, object]
KEY = ("graph", "model", "side", "seed", "epochs", "batch", "width", "events")


@dataclass(frozen=True)
class Plan:
    """What is run. events_max: 0 for the graph's own cut."""

    graphs: Sequence[str] = GRAPHS
    models: Sequence[str] = MODELS
    sides: Sequence[str] = SIDES
    seeds: Sequence[int] = SEEDS
    epochs: int = 0
    batch: int = 200
    width: int = 64
    events_max: int = 0

    def budget(self, graph: str, model: str) -> Budget:
        epochs = self.epochs or EPOCHS[graph][MODELS.index(model)]
        return Budget(epochs=epochs, batch=self.batch, width=self.width, dropout=0.1 if model == "tgn" else 0.0)


class Results:
    """Rows of epochs in a CSV file, and points of learning curves in one next to it, appended run by run."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self.path, self._curves = path, path.with_name(f"{path.stem}-curves.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in (path, self._curves) if fresh else ():
            file.unlink(missing_ok=True)
        self._rows, self._points = _read(path), _read(self._curves)

    def of(self, key: Key) -> list[dict[str, str]]:
        """The epochs of one run."""
        return _select(self._rows, key)

    def curve(self, key: Key) -> list[dict[str, str]]:
        """The learning curve of one run."""
        return _select(self._points, key)

    def add(self, key: Key, epochs: list[Scores], curve: list[Point]) -> None:
        """A whole run at once: one that was cut short leaves nothing."""
        self._points += _append(self._curves, [{**key, **asdict(point)} for point in curve])
        self._rows += _append(self.path, [{**key, **asdict(scores)} for scores in epochs])


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _append(path: Path, rows: list[dict[str, object]]) -> list[dict[str, str]]:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        if new:
            writer.writeheader()
        writer.writerows(rows)
    return [{name: str(value) for name, value in row.items()} for row in rows]


def _select(rows: list[dict[str, str]], key: Key) -> list[dict[str, str]]:
    return [row for row in rows if all(row[name] == str(value) for name, value in key.items())]


def run(options: Options, report: Report) -> None:
    """All graphs and models, from the start; --tiny: one graph's first events, one seed, nothing judged."""
    torch.set_num_threads(options.threads)
    plan = Plan(graphs=("bitcoin_otc",), seeds=(0,), epochs=1, width=8, events_max=3000) if options.tiny else Plan()
    results = Results(OUT / ("quality-tiny.csv" if options.tiny else "quality.csv"), fresh=True)
    compare(plan, results, report, judged=not options.tiny)


def compare(plan: Plan, results: Results, report: Report, *, judged: bool) -> None:
    """Runs what is not among the results, and prints a row per graph and model."""
    report.heading(f"Temporal link prediction: test average precision, mean of {len(plan.seeds)} seeds")
    report.line(f"Batches of {plan.batch}, widths of {plan.width}; inductive: a vertex that no training event had.\n")
    report.columns(
        ("graph", "model", "epochs", "ours", "peer", "ours - peer", "AUC", "inductive", "peer's", "seconds", "peer's")
    )
    for graph in plan.graphs:
        data = load(graph, plan.events_max or None)
        for model in plan.models:
            best = {side: _best(plan, data, model, side, results, report) for side in plan.sides}
            _row(plan, graph, model, best, report, judged=judged)
        _curves(plan, data, results)


def _best(
    plan: Plan, data: Data, model: str, side: str, results: Results, report: Report
) -> dict[str, np.typing.NDArray[np.float64]]:
    """Of each seed the epoch that validates best: measure -> (seeds,)."""
    chosen = []
    for seed in plan.seeds:
        epochs = _epochs(plan, data, model, side, seed, results, report)
        best = max(epochs, key=lambda row: float(row["validation_ap"]))
        seconds = sum(float(row["train_seconds"]) + float(row["test_seconds"]) for row in epochs)
        chosen.append([float(best[name]) for name in ("test_ap", "test_auc", "inductive_ap")] + [seconds])
    return dict(zip(("ap", "auc", "inductive", "seconds"), np.array(chosen).T, strict=True))


def _epochs(
    plan: Plan, data: Data, model: str, side: str, seed: int, results: Results, report: Report
) -> list[dict[str, str]]:
    budget, key = plan.budget(data.name, model), _key(plan, data, model, side, seed)
    if not results.of(key):
        torch.manual_seed(seed)
        contender = _contender(model, side, data, budget)
        done: list[Scores] = []
        curve: list[Point] = []
        for scores, points in play(contender, data, budget, seed):
            done.append(scores)
            curve += points
            report.progress(
                f"{data.name} {model} {side} seed {seed} epoch {scores.epoch + 1}/{budget.epochs}: loss "
                f"{scores.loss:.3f} validation {scores.validation_ap:.4f} test {scores.test_ap:.4f} inductive "
                f"{scores.inductive_ap:.4f} {duration(scores.train_seconds)} + {duration(scores.test_seconds)}"
            )
        results.add(key, done, curve)
    return results.of(key)


def _key(plan: Plan, data: Data, model: str, side: str, seed: int) -> Key:
    budget = plan.budget(data.name, model)
    run = (data.name, model, side, seed, budget.epochs, budget.batch, budget.width, len(data.src))
    return dict(zip(KEY, run, strict=True))


def _contender(model: str, side: str, data: Data, budget: Budget) -> Contender:
    window = WINDOWS[data.name]
    if side == "peer" and model == "tgn":
        return PyGTGN(data, budget)
    ours = Ours(model, data, budget, window)
    return ours if side == "ours" else Plain(model, data, budget, window, ours.module)


def _row(
    plan: Plan,
    graph: str,
    model: str,
    best: dict[str, dict[str, np.typing.NDArray[np.float64]]],
    report: Report,
    *,
    judged: bool,
) -> None:
    cells: dict[str, dict[str, str]] = {
        side: {
            "ap": f"{values['ap'].mean():.4f} +- {values['ap'].std():.4f}",
            "auc": f"{values['auc'].mean():.4f}",
            "inductive": f"{values['inductive'].mean():.4f}",
            "seconds": f"{values['seconds'].mean():.0f}",
        }
        for side, values in best.items()
    }
    ours, peer = (cells.get(side, dict.fromkeys(("ap", "auc", "inductive", "seconds"), "-")) for side in SIDES)
    gap = float(best["ours"]["ap"].mean() - best["peer"]["ap"].mean()) if len(best) == len(SIDES) else float("nan")
    measured = (ours["ap"], peer["ap"], f"{gap:+.4f}", ours["auc"], ours["inductive"], peer["inductive"])
    report.row((graph, model, plan.budget(graph, model).epochs, *measured, ours["seconds"], peer["seconds"]))
    if judged and gap < -DEFICIT_MAX:
        report.fail(f"[temporal_quality] expected {model} on {graph} within {DEFICIT_MAX} of its peer, got {gap:+.4f}")


def _curves(plan: Plan, data: Data, results: Results) -> None:
    """Learning curves of each model and side, mean over seeds; a PNG next to the CSV."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for number, model in enumerate(plan.models):
        for side in plan.sides:
            runs = [results.curve(_key(plan, data, model, side, seed)) for seed in plan.seeds]
            ap = np.array([[float(point["ap"]) for point in one] for one in runs]).mean(0)
            steps = np.arange(1, len(ap) + 1) / POINTS
            style = {"color": f"C{number}", "linestyle": "-" if side == "ours" else "--"}
            axes.plot(steps, ap, label=f"{model} {side}", **style)
    axes.set(xlabel="epochs", ylabel="average precision on training events, before their step", title=data.name)
    axes.legend()
    figure.tight_layout()
    figure.savefig(results.path.with_name(f"{results.path.stem}-{data.name}.png"), dpi=120)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Pieces of the table; 0, or 1 if a model fell behind its peer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.temporal.quality", description=__doc__)
    parser.add_argument("--graph", choices=sorted(WINDOWS), action="append")
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--side", choices=SIDES, action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--epochs", type=int, default=0, help="default: by graph")
    parser.add_argument("--batch", type=int, default=Plan.batch)
    parser.add_argument("--width", type=int, default=Plan.width)
    parser.add_argument("--events", type=int, default=0, help="only the first events of each graph")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=OUT / "quality.csv")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    shape = Plan(epochs=given.epochs, batch=given.batch, width=given.width, events_max=given.events)
    chosen = {"graphs": given.graph, "models": given.model, "sides": given.side, "seeds": given.seed}
    plan = replace(shape, **{name: tuple(value) for name, value in chosen.items() if value})
    report = Report()
    compare(plan, Results(given.results, fresh=given.fresh), report, judged=True)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
