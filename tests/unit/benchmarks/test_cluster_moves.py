"""The benchmark of workers that take over, in small and in threads."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("pymetis")

import livegnn as lg
from benchmarks.cluster import moves
from benchmarks.cluster.world import ClusterWorld
from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from livegnn.distributed.cluster.crew import ThreadCrew

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


def in_threads(world: ClusterWorld) -> lg.Cluster:
    return lg.Cluster(world.model(), world.graph(), 2, partition="hash", crew=ThreadCrew(2))


@pytest.mark.parametrize("wrong", [False, True])
def test_a_row_for_a_change(
    wrong: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(moves, "started", in_threads)
    if wrong:
        monkeypatch.setattr(lg.Cluster, "state_digest", lambda cluster: "another")
    report = Report()
    moves.run(OPTIONS, report)
    assert len(report.failures) == int(wrong)
    assert "| tiny | 5 | 2 to 3 workers, metis |" in capsys.readouterr().out
