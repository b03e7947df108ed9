"""The table of sums of messages on edges: counts are those of the graph, and an engine that answers wrongly fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from benchmarks.engine import edge_sums  # noqa: E402
from benchmarks.engine.edge_sums import CONSTRAINED, INCREMENTAL, Cell, Race  # noqa: E402
from benchmarks.engine.stream import workload  # noqa: E402
from benchmarks.machine import REFERENCE  # noqa: E402
from benchmarks.options import Options  # noqa: E402
from benchmarks.report import Report  # noqa: E402

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Report, list[list[str]]]:
    monkeypatch.setattr(edge_sums, "SIZES", (1, 100))
    report = Report()
    edge_sums.run(OPTIONS, report)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny")]
    return report, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_row_a_batch_size(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, rows = run(monkeypatch, capsys)
    assert not report.failures
    assert [row[1] for row in rows] == ["1", "100"]
    for row in rows:
        assert len(row) == len(edge_sums.COLUMNS)
        assert row[-1] == "yes"


@pytest.mark.parametrize("name", [INCREMENTAL, CONSTRAINED])
def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> None:
    start = Race.__init__

    def wrong(race: Race, *arguments: Any, **options: Any) -> None:
        start(race, *arguments, **options)
        right = race.engines[name].embeddings
        monkeypatch.setattr(race.engines[name], "embeddings", lambda ids: right(ids) + np.float32(0.5))

    monkeypatch.setattr(Race, "__init__", wrong)
    report, rows = run(monkeypatch, capsys)
    assert len(report.failures) == (4 if name == INCREMENTAL else 2)  # incremental is compared with PyG, too
    assert [row[-1] for row in rows] == ["NO", "NO"]


def test_messages_are_those_of_moved_sources() -> None:
    race = Race(workload("tiny", 600), 8, 1, short=True)
    for batch in race.work.stream.batches(0, 1, 20):
        before = {name: engine.graph.out_degree(batch.feature_ids) for name, engine in race.engines.items()}
        found = {name: engine.apply(edge_sums.updates_of(batch)) for name, engine in race.engines.items()}
        first = found[INCREMENTAL].stats.layers[0]
        edges = len(batch.add_src) + len(batch.remove_src)
        assert first.edges == before[INCREMENTAL].sum() + edges
        assert first.reread == 0
        assert found[CONSTRAINED].stats.layers[0].reread >= first.edges - len(batch.remove_src)


def test_rates_and_ratios() -> None:
    cell = Cell(
        10, {INCREMENTAL: [0.5, 0.5], CONSTRAINED: [2.0, 2.0]}, {INCREMENTAL: [4, 6], CONSTRAINED: [90, 110]}, True
    )
    cell.pyg_s = 3.0
    row = edge_sums.row_of("w", cell)
    assert row[2:] == ["**20**", "500 / 500 ms", "5", "4.00", "5", "100", "3 s", "6", "yes"]
