"""A file of results says what was measured, when, how and where."""

import datetime

import pytest

from benchmarks import __main__ as command_line
from benchmarks.engine import store
from benchmarks.machine import description
from benchmarks.report import Report


def test_a_file_begins_with_the_date_the_command_and_the_machine(tmp_path, capsys, monkeypatch):
    def run(options, report):
        report.heading("Store")
        report.columns(("measure", "value"))
        report.row(("load", "2 s"))

    monkeypatch.setattr(store, "run", run)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    assert command_line.main(["store", "--tiny", "--threads", "1", "--out", str(tmp_path / "store.md")]) == 0
    written = (tmp_path / "store.md").read_text()
    assert written == capsys.readouterr().out
    title, _, facts, rest = written.split("\n", 3)
    assert title == "# store"
    assert facts == f"{datetime.date.today()}, `python -m benchmarks store --tiny --threads 1`. {description()}."
    assert rest == "\n## Store\n\n| measure | value |\n|---|---|\n| load | 2 s |\n"


def test_the_machine_is_named_by_processor_and_cores():
    processor, cores, *_ = description().split(", ")
    assert processor
    assert cores.endswith(" cores")


def test_a_wrong_answer_is_written_and_counted(capsys: pytest.CaptureFixture[str]):
    report = Report()
    report.fail("row 3 differs")
    assert report.failures == ["row 3 differs"]
    assert "WRONG ANSWER: row 3 differs" in capsys.readouterr().out
