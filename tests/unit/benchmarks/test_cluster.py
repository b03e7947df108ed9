"""The benchmarks of the cluster in small: counts of the baselines, sockets, the fit, and one state of all players."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("pymetis")

from benchmarks.cluster import hosts, wire
from benchmarks.cluster import time as timing
from benchmarks.cluster.baselines import EdgeTable, count_rows, row_bytes
from benchmarks.cluster.fit import CostModel, Measured, left_out
from benchmarks.cluster.links import Links
from benchmarks.cluster.papers import reach
from benchmarks.cluster.together import BarrierNetwork
from benchmarks.cluster.world import ClusterWorld
from benchmarks.engine.stream import ADD, FEATURES, REMOVE, Stream, Workload
from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def small_work(ops: list[tuple[int, int, int]]) -> Workload:
    """0 -> 1 -> 2 -> 3 and 4 -> 2, with a stream."""
    op, u, v = (np.array(column) for column in zip(*ops, strict=True))
    row_index = np.where(op == FEATURES, 0, -1)
    stream = Stream(op.astype(np.int8), u.astype(np.int32), v.astype(np.int32), row_index, np.ones((1, 2), np.float32))
    src, dst = np.array([0, 1, 2, 4], np.int32), np.array([1, 2, 3, 2], np.int32)
    return Workload("small", np.zeros((5, 2), np.float32), src, dst, 2, stream)


@pytest.mark.parametrize(
    ("kind", "op", "ripple", "rc", "asked"),
    [
        # parts: {0, 3, 4} and {1, 2}. Layer 1 changes 0 and 1, layer 2 also 2: by 0 -> 1, and 1 -> 2 inside of a part
        ("sage", (FEATURES, 0, 0), [1, 1], [1, 2], [2, 2]),
        # 4 -> 2 goes: 2 changes at layer 1 and sends to 3 at layer 2; 2 has no remote in-neighbour any more
        ("sage", (REMOVE, 4, 2), [1, 2], [0, 1], [0, 2]),
        # with GCN the message of 2 changes with its in-degree, so 3 is affected at layer 1 already, and pulls 2
        ("gcn", (REMOVE, 4, 2), [2, 2], [1, 1], [2, 2]),
        # 2 pulls 0 and 4 by one message and its answer; at layer 2, 3 pulls 2 the other way
        ("sage", (ADD, 0, 2), [1, 2], [2, 3], [2, 4]),
    ],
)
def test_baselines_are_counted_by_hand(
    kind: str, op: tuple[int, int, int], ripple: list[int], rc: list[int], asked: list[int]
) -> None:
    work = small_work([op])
    world = ClusterWorld("tiny", kind, 4, 1)
    found = count_rows(world, EdgeTable(work), work.stream.batch(0, 1), np.array([0, 1, 1, 0, 0], np.uint16))
    assert (found.ripple, found.rc) == (ripple, rc)
    assert (found.ripple_messages, found.rc_messages) == (ripple, asked)  # here no message of RIPPLE has two rows


def test_bytes_of_rows() -> None:
    assert row_bytes([3, 5], [128, 256, 40]) == 4 * (3 * 128 + 5 * 256)
    assert row_bytes([3, 5], [128, 256, 40], narrower=True) == 4 * (3 * 128 + 5 * 40)


def test_an_edge_that_comes_back_is_found_again() -> None:
    work = small_work([(REMOVE, 4, 2), (ADD, 0, 3)])
    table = EdgeTable(work)
    table.apply(work.stream.batch(0, 2))
    assert table.live.tolist() == [True, True, True, False, True]
    assert (table.src[4], table.dst[4]) == (0, 3)


@pytest.mark.parametrize(("size", "delay_s"), [(0, 0.0), (10, 0.01), (3_000_000, 0.0)])
def test_parcels_reach_their_parts(tmp_path: Any, size: int, delay_s: float) -> None:
    addresses: list[Any] = [str(tmp_path / str(part)) for part in range(3)]
    got: dict[int, list[list[bytes]]] = {}
    seconds: dict[int, float] = {}

    def run(part: int) -> None:
        links = Links(part, addresses, delay_s)
        got[part] = []
        links.meet()
        begun = time.monotonic()
        for turn in range(3):
            got[part].append(links.swap([bytes([part, to, turn]) + b"x" * size for to in range(3)]))
        seconds[part] = time.monotonic() - begun
        links.close()

    threads = [threading.Thread(target=run, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for part in range(3):
        for turn in range(3):
            assert got[part][turn] == [bytes([of, part, turn]) + b"x" * size for of in range(3)]
        assert seconds[part] >= 3 * delay_s


def test_the_fit_finds_what_made_the_numbers() -> None:
    copies = {1: 0, 2: 10, 4: 25, 8: 40}
    found = [Measured(p, b, (8.0 + 0.2 * b) / p, 3.0 * b, 4, 100) for p, b in copies.items()]
    model = CostModel.of(found)
    assert model.own == pytest.approx(8.0)
    assert model.copies == pytest.approx(0.2)
    assert model.wire == pytest.approx(3.0)

    def errors(of: list[Measured]) -> list[float]:
        return left_out(of, lambda m, one: m.compute(one.parts, one.boundary), lambda one: one.seconds)

    assert errors(found) == pytest.approx([0] * 4)
    assert errors([*found[:3], found[3]._replace(seconds=4.0)])[3] == pytest.approx(-0.5)
    assert CostModel.of([f._replace(seconds=8.0 / f.parts**2) for f in found]).copies == 0.0


@pytest.mark.parametrize("at_once", [1, 3])
def test_parts_run_so_many_at_a_time(at_once: int) -> None:
    network, running, most = BarrierNetwork(3, at_once), 0, 0

    def run(part: int) -> None:
        nonlocal running, most
        swap = network.swap_of(part)
        for turn in range(10):
            with network.turns:
                running += 1
                most = max(most, running)
                time.sleep(0.002)
                running -= 1
                assert swap([bytes([part, turn])] * 3)[(part + 1) % 3] == bytes([(part + 1) % 3, turn])

    threads = [threading.Thread(target=run, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most == 1) == (at_once == 1)
    assert not network.barrier.broken


def test_reach_grows_with_degrees() -> None:
    assert reach(1.0, 6.9) == 1.0
    assert 2.0 < reach(2.0, 6.9) < 4.0


def test_wire_in_small(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    wire.run(OPTIONS, report)
    assert not report.failures
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tiny")]
    assert len(rows) == 2 * 4


def test_a_wrong_state_fails_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "digest_of", lambda engine: 0)
    report = Report()
    wire.run(OPTIONS, report)
    assert len(report.failures) == 2


def test_verdicts() -> None:
    assert wire.judged_cells(200, 199.0, at_least=True) == ["200x", "NO"]
    assert wire.judged_cells(0.15, 0.15) == ["0.15", "yes"]
    assert wire.judged_cells(None, 3.0) == ["-", "-"]


def test_time_in_small(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "KINDS", ("sage",))
    monkeypatch.setattr(timing, "TURNS", 1)
    report = Report()
    timing.run(OPTIONS, report)
    assert not report.failures
    assert capsys.readouterr().out.count("| tiny | sage |") == 2


def test_hosts_say_why_there_are_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "refusal", lambda: "namespaces need root")
    report = Report()
    hosts.run(OPTIONS, report)
    assert "Not measured: namespaces need root." in capsys.readouterr().out
