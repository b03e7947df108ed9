"""The table of touched edges: counts are those of the graph, violations are marked, and a wrong engine fails it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from benchmarks.engine import edges_touched  # noqa: E402
from benchmarks.engine.edges_touched import COLUMNS, KINDS, STRATEGIES, Entry, Touched  # noqa: E402
from benchmarks.engine.live import Live  # noqa: E402
from benchmarks.engine.stream import FEATURES  # noqa: E402
from benchmarks.machine import REFERENCE  # noqa: E402
from benchmarks.options import Options  # noqa: E402
from benchmarks.report import Report  # noqa: E402

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)
ENTRY = Entry("tiny", 2, hidden=8, share=1e-3)


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: tuple[Entry, ...] = (ENTRY,)
) -> tuple[Report, list[dict[str, str]], str]:
    monkeypatch.setattr(edges_touched, "TINY_PLAN", plan)
    report = Report()
    edges_touched.run(OPTIONS, report)
    out = capsys.readouterr().out
    lines = [line.strip("|").split("|") for line in out.splitlines() if line.startswith("| tiny")]
    return report, [dict(zip(COLUMNS, map(str.strip, line), strict=True)) for line in lines], out


def counted(cell: str) -> float:
    count = cell.split(" ")[0]
    return float(count.rstrip("K")) * (1000 if count.endswith("K") else 1)


def test_rows_add_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, rows, _ = run(monkeypatch, capsys)
    assert not report.failures
    assert len(rows) == 2 * len(KINDS) + 1  # attention's edges by whole rows
    for row in rows:
        counts = {name: counted(row[name]) for name in STRATEGIES}
        assert counts["incremental"] <= counts["affected"] < counts["khop"] <= counts["full"]
        assert counts["sampled 5"] < counts["sampled 10"] < counts["khop"]
        for name in STRATEGIES:
            shown = float(row[name].split("(")[1].rstrip("x)"))
            assert shown == pytest.approx(counts["khop"] / counts[name], rel=0.02)
        if row["touched per batch"] == "edges":
            assert counts["full"] == pytest.approx(2 * 14_400, rel=0.01)  # both layers
            assert row["never more edges than affected"] == "yes"
        if row["model"] != "gat":
            assert row["incremental"] == row["constrained"]
        if "whole rows" in row["touched per batch"]:
            assert counts["incremental"] < counts["constrained"] == counted(rows[6]["constrained"])


def test_sampling_draws_at_most_the_fanout() -> None:
    work = ENTRY.load()
    for name, fanout in (("sampled 5", 5), ("sampled 10", 10)):
        for each in edges_touched.outcome(ENTRY, work, "graphconv", name, OPTIONS).touched:
            assert each.edges <= fanout * each.vertices


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    start = edges_touched.start

    def wrong(*arguments: Any, **options: Any) -> Live:
        live = start(*arguments, **options)
        if options["strategy"] == "affected":
            live.output = lambda ids: Live.output(live, ids) + np.float32(0.5)  # type: ignore[method-assign]
        return live

    monkeypatch.setattr(edges_touched, "start", wrong)
    monkeypatch.setattr(edges_touched, "KINDS", ("gat", "sage-max"))
    report, _, _ = run(monkeypatch, capsys)
    assert len(report.failures) == 2
    assert all("affected" in failure for failure in report.failures)


def test_a_batch_with_more_edges_than_affected_is_marked() -> None:
    few, many = Touched(10, 10, 4), Touched(30, 20, 4)
    assert edges_touched.never_more({"incremental": [few, many], "affected": [many, many]}) == "yes"
    assert edges_touched.never_more({"incremental": [few, many], "affected": [many, few]}) == "NO: 1 of 2 batches"


def test_cells() -> None:
    assert edges_touched.reduced(1240.0, 124_000.0) == "1.24K (100x)"
    assert edges_touched.reduced(168.0, 1_800_000.0) == "168 (10.7Kx)"
    assert edges_touched.reduced(0.0, 10.0) == "0"
    touched = {name: [Touched(0, 0, 0)] for name in STRATEGIES}
    for row in edges_touched.rows(ENTRY, ENTRY.load(), "gin", touched):
        assert row[5:13] == ["0"] * 7 + ["-"]


def test_batches_hold_edges_alone_in_equal_shares() -> None:
    work = Entry("tiny", 3, share=0.01).load()
    assert not (work.stream.op == FEATURES).any()
    batches = list(work.stream.batches(0, 144, 3))
    assert [len(b.add_src) + len(b.remove_src) for b in batches] == [144] * 3
    assert abs(sum(len(b.add_src) - len(b.remove_src) for b in batches)) <= 2


def test_a_graph_that_is_not_at_hand_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.setattr(edges_touched, "real_workload", _missing)
    report, rows, out = run(monkeypatch, capsys, (Entry("bitcoin_otc", 1),))
    assert (report.failures, rows) == ([], [])
    assert "- bitcoin_otc left out: " in out


def _missing(name: str, updates_max: int) -> Any:
    raise edges_touched.DataMissing(f"[datasets] expected {name}, got nothing; fetch it")
