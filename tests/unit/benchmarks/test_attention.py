"""The table of attention: rows add up, counts are those of the graph, and an engine that answers wrongly fails it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from benchmarks.engine import attention, networks  # noqa: E402
from benchmarks.engine.attention import CONSTRAINED, INCREMENTAL, Cell, Counts, Entry  # noqa: E402
from benchmarks.engine.bound import Counter  # noqa: E402
from benchmarks.engine.live import Live  # noqa: E402
from benchmarks.engine.stream import workload  # noqa: E402
from benchmarks.machine import REFERENCE  # noqa: E402
from benchmarks.options import Options  # noqa: E402
from benchmarks.report import Report  # noqa: E402

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)
START = attention.start


def wrong(name: str, error: float) -> Any:
    """start, but what the engine called `name` puts out is off by `error`."""

    def start(each: str, *arguments: Any) -> Live:
        live = START(each, *arguments)
        if each == name:
            live.output = lambda ids: Live.output(live, ids) + np.float32(error)  # type: ignore[method-assign]
        return live

    return start


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Report, list[list[str]]]:
    plan = (Entry("tiny", hidden=16, budget_s=0.0, plain=("graphconv",), sizes=(1, 100), short=True),)
    monkeypatch.setattr(attention, "TINY_PLAN", plan)
    report = Report()
    attention.run(OPTIONS, report)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny")]
    return report, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def number(cell: str) -> float:
    return float(cell.rstrip("K")) * (1000 if cell.endswith("K") else 1)


def test_tables_add_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, rows = run(monkeypatch, capsys)
    assert not report.failures
    assert [row[2] for row in rows] == ["1", "100"] * 2
    for row in rows[:2]:
        assert len(row) == len(attention.SPEED_COLUMNS)
        assert number(row[3].strip("*")) / number(row[5]) == pytest.approx(float(row[6]), rel=0.02, abs=0.01)
        assert number(row[8]) / number(row[3].strip("*")) == pytest.approx(float(row[10]), rel=0.02, abs=0.01)
        assert (row[7], row[9], row[12], row[13]) == ("-", "-", "-", "yes")
    for row in rows[2:]:
        delta, constrained, scanned, reread, ratio = map(number, row[3:])
        assert scanned > 0
        assert reread <= constrained  # of a small move of a hub incremental looks at a few in-edges alone
        assert constrained / delta == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize(("name", "error", "failures"), [(CONSTRAINED, 1e-3, 2), (INCREMENTAL, 0.5, 3)])
def test_a_wrong_answer_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, error: float, failures: int
) -> None:
    monkeypatch.setattr(attention, "start", wrong(name, error))
    report, rows = run(monkeypatch, capsys)
    assert len(report.failures) == failures  # two cells; incremental is compared with the formulas, too
    assert [row[13] for row in rows[:2]] == ["NO", "NO"]


def test_counts_are_those_of_the_graph() -> None:
    """Delta edges: out-edges of the rows that differ, by set propagation; in-edges of the same rows are read again."""
    work = workload("tiny", 600)
    engines = {name: attention.start(name, work, 16, 1) for name in attention.ATTENTIVE}
    counter = Counter(work, 2)
    for batch in work.stream.batches(0, 10, 8):
        found = {name: attention.counts_of(engine.apply(engine.prepare(batch))) for name, engine in engines.items()}
        reached = counter.count(batch, follows_degree=False)
        edges = len(batch.add_src) + len(batch.remove_src)
        assert found[INCREMENTAL].delta == found[CONSTRAINED].delta
        assert found[INCREMENTAL].delta == sum(layer.delta_edges - edges for layer in reached)
        assert found[CONSTRAINED].scanned == 0
        assert found[INCREMENTAL].reread <= found[CONSTRAINED].reread


def test_targets_are_judged() -> None:
    seconds = {INCREMENTAL: [1.0], CONSTRAINED: [8.5], "graphconv": [0.4], "gcn": [0.5]}
    counts = {INCREMENTAL: [Counts(10, 30, 2), Counts(30, 50, 4)], CONSTRAINED: [Counts(10, 0, 32), Counts(30, 0, 48)]}
    cell = Cell(1, seconds, counts, equal=True)
    entry = Entry("arxiv-like")
    row = attention.speed_row(entry, cell)
    assert row[3:] == ["**1**", "1e+03 / 1e+03 ms", "0.118", "8.50", "8", "2.5", "2", "2.50", "3", "yes", "yes"]
    cell.seconds["graphconv"] = [0.25]
    assert attention.speed_row(entry, cell)[-2] == "NO"  # four times GraphConv
    assert attention.count_row(entry, cell) == ["arxiv-like", 256, 1, "20", "40", "40", "3", "2"]
    cell.seconds["graphconv"], cell.seconds[CONSTRAINED] = [0.4], [7.0]
    assert attention.speed_row(entry, cell)[-2] == "NO"  # seven times constrained


def test_attention_refuses_heads_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="8 divides"):
        networks.attention([4, 12, 3])
