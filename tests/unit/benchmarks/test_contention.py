"""The contention table, in small: its rows, its verdicts, and that a wrong answer fails it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.engine import contention
from benchmarks.engine.contended import Contended
from benchmarks.engine.contention import LOADS, THREADS
from benchmarks.engine.runs import Played, Run, consecutive, restoring
from benchmarks.engine.stream import workload
from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.worker import Worker

OPTIONS = Options(full=False, tiny=True, threads=2, machine=REFERENCE)


class Wrong(Contended):
    """Answers wrongly with two threads."""

    def __init__(self, name: str, updates: int, hidden: int, threads: int, torch_threads: int | None) -> None:
        super().__init__(name, updates, hidden, threads, torch_threads)
        self.error = np.float32(threads - 1)

    def play(self, run: Run, multiply: bool) -> Played:
        played = super().play(run, multiply)
        return played._replace(rows=played.rows + self.error)


class Scripted:
    """A worker that takes a second for a batch, or four where torch spins as it comes."""

    def __init__(self, factory: Any, *arguments: Any, environment: Any = None) -> None:
        spins = environment is not None and environment["OMP_WAIT_POLICY"] is None and arguments[-1] is not None
        self.seconds = 4.0 if spins else 1.0

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def result(self) -> None:
        pass

    send = pause = resume = lambda *_: None

    def call(self, method: str, run: Run | None = None, multiply: bool = False) -> Any:
        return "" if run is None else Played(np.full(run.counted, self.seconds), np.zeros((1, 1), np.float32))


def test_rows_for_each_load_and_ratio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "Worker", Scripted)
    report = Report()
    contention.run(OPTIONS, report)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    split = 1 + len(LOADS) * len(THREADS)
    rates = {(row[0], int(row[1])): row[2:] for row in rows[1:split]}
    assert list(rates) == [(load.name, threads) for load in LOADS for threads in THREADS]
    assert rates[contention.ALONE.name, 1] == [f"**{n}** ({n} to {n})" for n in ("1", "10", "100", "1K")]
    ratios = {row[0]: row[1:] for row in rows[split + 1 :]}
    slower = ["**0.25** (0.25 to 0.25)"] * 4
    assert ratios["torch as it comes over passive, 1 thread"] == [*slower, "0.85", "NO"]
    assert ratios["2 threads over 1, both cores busy"] == ["**1.00** (1.00 to 1.00)"] * 4 + ["0.95", "yes"]
    assert ratios["torch, as it comes over alone, 2 threads"] == [*slower, "-", "-"]
    assert not report.failures


def test_a_wrong_answer_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "LOADS", (contention.ALONE,))
    monkeypatch.setattr(contention, "Contended", Wrong)
    monkeypatch.setattr(contention, "_ratios", lambda *_: None)  # without the loads that it names
    report = Report()
    contention.run(OPTIONS, report)
    assert report.failures
    assert all("alone, 2 threads" in failure for failure in report.failures)


def test_torch_is_loaded_only_where_the_load_says_so() -> None:
    pytest.importorskip("torch")
    for torch_threads in (None, 2):
        with Worker(Contended, "tiny", 300, 8, 1, torch_threads) as worker:
            worker.result()
            assert worker.call("has_torch") == (torch_threads is not None)
            played = worker.call("play", Run(0, 10, 1, 2), torch_threads is not None)
            assert len(played.seconds) == 2


def test_ratios_are_of_the_batches_that_both_counted() -> None:
    above, below = [np.array([1.0, 1.0, 9.0])], [np.array([2.0, 4.0])]
    assert contention.turn_ratios(above, below) == [3.0]


def test_a_run_is_undone() -> None:
    """Batches forth and one back: the edges and features of the snapshot, and the outputs' bits."""
    engine = Contended("tiny", 900, 8, 1, None)
    runs = consecutive({1: (2, 10), 100: (1, 3)})
    assert [(run.start, run.middle, run.stop) for run in runs] == [(0, 2, 12), (12, 112, 412)]
    ids = np.arange(engine.work.vertices, dtype=np.int64)
    before = engine.live.output(ids)
    for run in (*runs, *runs):
        played = engine.play(run, False)
        assert len(played.seconds) == run.counted
        assert not np.array_equal(played.rows, before[engine.ids])
        assert np.array_equal(engine.live.output(ids), before)
    assert engine.mismatch() == ""
    work = workload("tiny", 900)
    back = restoring(work, 12, 412)
    assert np.array_equal(back.feature_rows, work.features[back.feature_ids])
