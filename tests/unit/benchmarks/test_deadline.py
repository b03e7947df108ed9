"""The deadline table, in small."""

from benchmarks.engine import deadline
from benchmarks.engine.stream import workload
from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from livegnn.errors import StateMismatch
from livegnn.inference.stream import joined

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


def test_recorded_items_are_the_stream():
    stream = workload("tiny", 30).stream
    batch = joined(deadline.items(stream))
    assert len(batch) == 30
    u, v = batch._buffer.ids()
    assert u.tolist() == stream.u.tolist()
    assert [b for b, op in zip(v.tolist(), stream.op, strict=True) if op != 2] == stream.v[stream.op != 2].tolist()


def test_a_row_for_each_strategy_and_latency(capsys, monkeypatch):
    monkeypatch.setattr(deadline, "LATENCIES", ("1min",))
    report = Report()
    deadline.run(OPTIONS, report)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny")]
    assert [row[2] for row in rows] == list(deadline.STRATEGIES)
    assert all(int(row[4]) >= 1 and row[5].startswith(">= ") for row in rows)
    assert not report.failures


def test_a_wrong_answer_fails_the_run(monkeypatch):
    def wrong(engine):
        raise StateMismatch("[verify] expected, got; do")

    monkeypatch.setattr("livegnn.Engine.verify", wrong)
    report = Report()
    deadline.run(OPTIONS, report)
    assert len(report.failures) == len(deadline.STRATEGIES)
