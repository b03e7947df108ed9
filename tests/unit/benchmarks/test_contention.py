"""The contention table, in small: its rows, its verdicts, and that a wrong answer fails it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import contention
from benchmarks.contended import Contended
from benchmarks.contention import LOADS, THREADS
from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.runs import Played, Run, consecutive, restoring
from benchmarks.stream import workload
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


def test_rows_for_each_load_and_ratio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(contention, "LOADS", (LOADS[0], contention.DEFAULT, contention.PASSIVE, contention.BUSY))
    report = Report()
    contention.run(OPTIONS, report)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rates = rows[1 : 1 + 4 * len(THREADS)]
    assert [(row[0], row[1]) for row in rates] == [
        (load.name, str(threads)) for load in contention.LOADS for threads in THREADS
    ]
    ratios = rows[2 + 4 * len(THREADS) :]
    assert [row[-2] for row in ratios] == ["0.85"] * 2 + ["0.95"] * 4 + ["-"] * 6
    assert {row[-1] for row in ratios[:6]} <= {"yes", "NO"}
    assert not report.failures


def test_a_wrong_answer_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "LOADS", (contention.ALONE,))
    monkeypatch.setattr(contention, "Contended", Wrong)
    monkeypatch.setattr(contention, "_ratios", lambda *_: None)
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
