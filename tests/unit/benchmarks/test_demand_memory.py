"""The tables of on demand and of a limit of memory, in small: they measure what they say, and a wrong answer fails."""

import numpy as np
import pytest

from benchmarks.engine import demand, memory
from benchmarks.engine.live import Live
from benchmarks.engine.stream import workload
from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from livegnn.inference import memory as limits

TINY = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    for module in (memory, limits):
        monkeypatch.setattr(module, "LEAST_LIMIT", 1)


def rows_of(printed: str) -> list[list[str]]:
    """The cells of a table's rows, its head left out."""
    lines = [line for line in printed.splitlines() if line.startswith("| tiny")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_on_demand_asks_for_one_vertex_to_all(capsys, monkeypatch):
    monkeypatch.setattr(demand, "SIZES", (10,))
    report = Report()
    demand.run(TINY, report)
    rows = rows_of(capsys.readouterr().out)
    assert report.failures == []
    assert len(rows) == 2 * (1 + len(demand.SHARES))
    for _, _, size, affected, asked, *_, met in rows:
        assert size == "10"
        assert 1 <= int(asked) <= int(affected)
        assert (met == "-") == (int(asked) < int(affected))
    assert rows[0][4] == "1"


def test_a_limit_of_memory_by_tenths(capsys, monkeypatch):
    monkeypatch.setattr(memory, "FEW", (10, 2))
    monkeypatch.setattr(memory, "BATCHES", {1: 3, 100: 2})
    report = Report()
    memory.run(TINY, report)
    memory._tenths(workload("tiny", 203), "graphconv", "compact", TINY, report)
    rows = rows_of(capsys.readouterr().out)
    assert report.failures == []
    assert [row[2:4] for row in rows] == [
        [state, share] for state in ("fast", "compact") for share in ("all", "10/10", "2/10")
    ]


@pytest.mark.parametrize("table", [demand, memory])
def test_a_wrong_answer_fails(table, capsys, monkeypatch):
    monkeypatch.setattr(demand, "SIZES", (10,))
    monkeypatch.setattr(memory, "FEW", (10,))
    monkeypatch.setattr(memory, "BATCHES", {1: 2})
    right = Live.output

    def wrong(self, ids):
        off = self.engine.mode == "on_demand" or self.engine.memory is not None
        return right(self, ids) + np.float32(off)

    monkeypatch.setattr(Live, "output", wrong)
    report = Report()
    table.run(TINY, report)
    assert any("expected equal results" in failure for failure in report.failures)
