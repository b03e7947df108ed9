"""The comparison of partitioners, in small: the tables, and batches that bring each vertex and edge once."""

import numpy as np
import pytest

from benchmarks import partitions
from benchmarks.report import Report
from livegnn._native import UpdateKind
from livegnn.distributed import PartitionReport, VertexParts
from livegnn.distributed.partition import Topology


def test_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pymetis", reason="pymetis is of the extra [distributed]")
    assert partitions.main(["--tiny"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 2 * len(partitions.FINDERS) + 1 + 3
    assert any("METIS" in row for row in rows)


def test_a_full_part_is_a_wrong_answer() -> None:
    topology = Topology.of_edges(np.arange(99), np.arange(1, 100), 100)
    report = Report()
    for by, expected in (("hash", 0), ("LDG", 1), ("Fennel, 10 passes", 2)):
        counted = PartitionReport.of(topology, VertexParts(2, np.zeros(100, int)))
        partitions._check(report, "line", by, counted, topology)
        assert len(report.failures) == expected


def test_batches_bring_all_that_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "BATCH", 7)
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 50, (2, 300))
    batches = list(partitions._arrivals(Topology.of_edges(src, dst, 50), 40))
    seen: list[tuple[int, int]] = []
    slots = 40
    for batch in batches:
        added = batch["u"][batch["kind"] == UpdateKind.AddVertex.value]
        assert added.tolist() == list(range(slots, slots + len(added)))
        slots += len(added)
        edges = batch["kind"] == UpdateKind.AddEdge.value
        assert max(batch["u"][edges].max(), batch["v"][edges].max()) < slots
        seen += zip(batch["u"][edges].tolist(), batch["v"][edges].tolist(), strict=True)
    assert slots == 50
    late = np.maximum(src, dst) >= 40
    assert sorted(seen) == sorted(zip(src[late].tolist(), dst[late].tolist(), strict=True))
