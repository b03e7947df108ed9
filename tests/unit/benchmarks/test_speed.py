"""Contests of a process per engine: turns do equal work, ratios are of the same batches, a wrong answer fails."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from benchmarks.engine import process_contest, speed  # noqa: E402
from benchmarks.engine.players import LivePlayer, PeerPlayer, PygPlayer, play  # noqa: E402
from benchmarks.engine.process_contest import LIVE, PYG, Cell, ProcessContest  # noqa: E402
from benchmarks.engine.runs import Played, Run  # noqa: E402
from benchmarks.engine.speed import Entry  # noqa: E402
from benchmarks.engine.stream import workload  # noqa: E402
from benchmarks.machine import REFERENCE  # noqa: E402
from benchmarks.options import Options  # noqa: E402
from benchmarks.peers import prototype  # noqa: E402
from benchmarks.report import Report  # noqa: E402

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)
SOURCE = partial(workload, "tiny", 900)
RUN = Run(0, 10, 2, 6)


def table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Report, list[dict[str, str]]]:
    plan = (Entry("tiny", "graphconv", (64,), 0.0, peers=("rc", "pyg"), latency_batches=5),)
    monkeypatch.setattr(speed, "TINY_PLAN", plan)
    monkeypatch.setattr(speed, "SIZES", (10,))
    report = Report()
    speed.run(OPTIONS, report)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return report, [dict(zip(speed.COLUMNS, row, strict=True)) for row in cells]


def test_a_row_for_each_size(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    report, (row,) = table(monkeypatch, capsys)
    assert not report.failures
    assert row["batch"] == "10"
    assert row["RC"].endswith("x)")
    assert row["RIPPLE torch"] == row["RIPPLE numpy"] == "-"
    assert float(row["x strongest peer"]) == pytest.approx(float(row["RC"].split("; ")[1][:-2]), rel=0.1, abs=0.1)
    assert float(row["largest difference"]) < 1e-4
    assert (row["prototype"] == "-") == (prototype.built()[0] is None)


def test_players_agree_in_every_turn_and_go_back_to_the_snapshot() -> None:
    """With and without a limit that leaves most batches of the run to one untimed batch."""
    model = "graphconv", (64,)
    players: dict[str, Any] = {LIVE: LivePlayer(SOURCE, *model, 1), PYG: PygPlayer(SOURCE, *model, 1)}
    players |= {name: PeerPlayer(name, SOURCE, *model, 1) for name in ("rc", "torch", "numpy")}
    library, _ = prototype.built()
    if library is not None:
        players["prototype"] = prototype.Prototype(str(library), SOURCE, 64, 1)
    expected = players[LIVE].play(RUN, 10.0).rows
    for name, player in players.items():
        for limit_s in (10.0, 0.0, 10.0):
            played = player.play(RUN, limit_s)
            np.testing.assert_allclose(played.rows, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
            whole = 1 if name == PYG else RUN.counted
            assert len(played.seconds) == (1 if limit_s == 0 and name != "prototype" else whole)
    players[LIVE].verify()


class Edges:
    """An engine that is its edges and features."""

    def __init__(self) -> None:
        self.work = SOURCE()
        self.edges = Counter(zip(self.work.src.tolist(), self.work.dst.tolist(), strict=True))
        self.features = self.work.features.copy()
        self.sizes: list[int] = []

    def apply(self, batch: Any) -> None:
        self.sizes.append(batch.size)
        self.edges.update(zip(batch.add_src.tolist(), batch.add_dst.tolist(), strict=True))
        self.edges.subtract(zip(batch.remove_src.tolist(), batch.remove_dst.tolist(), strict=True))
        self.features[batch.feature_ids] = batch.feature_rows

    def output(self, ids: np.ndarray) -> np.ndarray:
        return self.features[ids].copy()


@pytest.mark.parametrize(("limit_s", "sizes"), [(10.0, [10] * 8 + [80]), (0.0, [10, 10, 10, 50, 80])])
def test_a_slow_engine_is_timed_on_the_first_batches_and_takes_the_rest_at_once(
    limit_s: float, sizes: list[int]
) -> None:
    engine = Edges()
    ids = np.arange(engine.work.vertices)
    played = play(engine, lambda batch: batch, engine.work, ids, RUN, limit_s)
    assert engine.sizes == sizes
    assert len(played.seconds) == sizes[:-1].count(10) - 2
    changed = engine.work.stream.batch(RUN.start, RUN.stop)
    assert np.array_equal(played.rows[changed.feature_ids], changed.feature_rows)
    assert +engine.edges == Counter(zip(engine.work.src.tolist(), engine.work.dst.tolist(), strict=True))
    assert np.array_equal(engine.features, engine.work.features)


def test_rates_are_medians_and_ratios_are_of_the_batches_that_both_timed() -> None:
    own = [np.array([1.0, 3.0]), np.array([2.0, 6.0]), np.array([1.0, 5.0])]
    cell = Cell(10, [], {LIVE: own, "rc": [np.array([4.0])], PYG: [np.array([8.0]), np.array([16.0])]})
    assert cell.rates(LIVE) == [20 / 4, 20 / 8, 20 / 6]
    assert (cell.rate(LIVE), cell.range(LIVE), cell.range("rc")) == (20 / 6, 2.0, None)
    assert cell.ratio("rc") == 4.0
    assert cell.ratio(PYG) == (20 / 6) / np.median([10 / 8, 10 / 16])
    assert cell.unsteady() == [LIVE, PYG]


class Scripted:
    """A worker that answers with seconds from a list."""

    seconds: ClassVar[dict[str, list[float]]] = {}

    def __init__(self, factory: Any, *arguments: Any, environment: Any) -> None:
        self.name = arguments[0] if factory is PeerPlayer else LIVE

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def result(self) -> None:
        pass

    def call(self, method: str, run: Run, limit_s: float) -> Played:
        rows = np.ones((3, 2), np.float32)
        return Played(np.array([self.seconds[self.name].pop(0)]), rows + np.float32(0.5) * (self.name == "wrong"))


def test_unsteady_engines_are_measured_again_and_the_steadier_measurement_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_contest, "Worker", Scripted)
    monkeypatch.setattr(process_contest, "TURNS", 2)
    Scripted.seconds = {LIVE: [1.0, 1.0], "rc": [1.0, 2.0, 4.0, 4.0], "torch": [1.0, 2.0, 1.0, 3.0]}
    shapes = {10: (0, 1)}
    with ProcessContest(SOURCE, "graphconv", (8,), threads=1, peers=("rc", "torch"), shapes=shapes) as contest:
        cell = contest.cell(10, 60.0)
    assert not any(Scripted.seconds.values())
    assert {name: [float(turn[0]) for turn in turns] for name, turns in cell.turns.items()} == {
        LIVE: [1.0, 1.0],
        "rc": [4.0, 4.0],
        "torch": [1.0, 2.0],
    }
    assert cell.unsteady() == ["torch"]


@pytest.mark.parametrize("flags", [set(), {"avx2", "avx512f"}])
def test_without_avx512_the_prototype_is_left_out(
    flags: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "exact.cpp").write_text("")
    monkeypatch.setenv("LIVEGNN_PROTOTYPE", str(tmp_path))
    monkeypatch.setattr(prototype, "_processor_flags", lambda: flags)
    assert prototype.built() == (None, "this machine has no AVX-512")
    monkeypatch.setenv("LIVEGNN_PROTOTYPE", str(tmp_path / "nowhere"))
    assert "not at hand" in prototype.built()[1]


def test_a_wrong_answer_in_any_turn_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_contest, "Worker", Scripted)
    Scripted.seconds = {name: [1.0] * process_contest.TURNS for name in (LIVE, "wrong")}
    report = Report()
    with ProcessContest(SOURCE, "graphconv", (8,), threads=1, peers=("wrong",), shapes={10: (0, 1)}) as contest:
        speed._check(Entry("tiny", "graphconv"), contest.cell(10, 60.0), report)
    assert len(report.failures) == 1
    assert "expected wrong to agree within 0.0001, got 5.00e-01" in report.failures[0]
