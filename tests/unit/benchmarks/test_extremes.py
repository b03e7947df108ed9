"""The table around InkStream: rows add up, and an engine that answers wrongly fails the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from benchmarks.engine import extremes  # noqa: E402
from benchmarks.engine.generate import SHAPES  # noqa: E402
from benchmarks.engine.trained import smaller, train  # noqa: E402
from benchmarks.machine import REFERENCE  # noqa: E402
from benchmarks.options import Options  # noqa: E402
from benchmarks.peers.inkstream import LayerCounts  # noqa: E402
from benchmarks.peers.inkstream_layer import InkStreamLayer  # noqa: E402
from benchmarks.report import Report  # noqa: E402

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


class StandIn:
    """An engine with livegnn's face on InkStream's rows; `error` is added to every output."""

    def __init__(self, work: Any, module: Any, aggregate: str, error: float = 0.0) -> None:
        self.peer = InkStreamLayer(work, f"sage-{aggregate}", module)
        self.engine = SimpleNamespace(verify=lambda: None)
        self.error = error

    def prepare(self, batch: Any) -> Any:
        return batch

    def apply(self, batch: Any) -> Any:
        counts = self.peer.apply(batch)
        layers = [SimpleNamespace(extremes=None), *(SimpleNamespace(extremes=layer) for layer in counts)]
        return Result(SimpleNamespace(layers=layers), counts[-1].changed)

    def output(self, ids: Any) -> Any:
        return self.peer.output(ids) + np.float32(self.error)


class Result:
    """As livegnn.Changes: `stats`, and the number of changed outputs as its length."""

    def __init__(self, stats: Any, changed: int) -> None:
        self.stats, self.changed = stats, changed

    def __len__(self) -> int:
        return self.changed


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: float) -> tuple[Report, list[str]]:
    plan = (extremes.Entry("tiny", "min", hidden=8, budget_s=0.0, sizes=(1, 100), short=True),)
    monkeypatch.setattr(extremes, "TINY_PLAN", plan)
    monkeypatch.setattr(
        extremes, "start_livegnn", lambda work, module, aggregate, _: StandIn(work, module, aggregate, error)
    )
    report = Report()
    extremes.run(OPTIONS, report)
    return report, [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny")]


def test_tables_add_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, rows = run(monkeypatch, capsys, error=0.0)
    assert not report.failures
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    speed, conditions, affected = cells[:2], cells[2:10], cells[10:]
    assert len(affected) == 4
    for row in speed:
        assert row[-2] == "1"  # the stand-in reads what InkStream reads
    for row in conditions:
        shares = [float(cell.rstrip("%")) for cell in row[7:]]
        assert sum(shares[:4]) == pytest.approx(100, abs=0.3)
    for row in affected:
        assert 0 < float(row[6]) <= float(row[5])
    assert [row[8] == row[6] for row in affected] == [False, True, False, True]


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, _ = run(monkeypatch, capsys, error=0.5)
    assert len(report.failures) == 2


def test_counts_are_summed_by_layer() -> None:
    batches = [[LayerCounts(covered=1), LayerCounts(exposed=2, changed=5)], [LayerCounts(covered=3), LayerCounts()]]
    assert extremes.per_layer(batches) == [LayerCounts(covered=4), LayerCounts(exposed=2, changed=5)]


def test_training_learns_the_planted_labels() -> None:
    shape = smaller(SHAPES["products-like-small"])
    assert shape.edges / shape.vertices == pytest.approx(50, rel=0.01)
    trained = train("sage-max", "tiny", [24, 16, 7])
    assert trained.accuracy > trained.chance + 0.1
    assert not any(parameter.requires_grad for parameter in trained.module.parameters())
