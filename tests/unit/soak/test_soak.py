"""The soak: it ends with 0 where all is well, and reports what is not, with the command that repeats it."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from tests.soak import memory
from tests.soak.checks import check_fresh
from tests.soak.counts import Counts
from tests.soak.slices import Order, Slice
from tests.soak.world import Shape, World

ROOT = Path(__file__).parents[3]
BROKEN = "tests.unit.soak.broken"


def soak(*arguments, wait=100):
    run = subprocess.run(
        [sys.executable, "-m", "tests.soak", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=wait,
        check=False,
    )
    return run.returncode, run.stdout + run.stderr


def short(*names, more=()):
    """A soak of a slice each."""
    return soak(
        "--minutes", "0.001", "--updates", "1", "--seed", "5", "--slice", "0.2", "--scenarios", ",".join(names), *more
    )


def test_each_scenario_once():
    pytest.importorskip("pyarrow")
    names = ("volume", "variety", "hetero", "readers", "streams", "samplers", "crash", "steady")
    code, said = short(*names)
    assert code == 0, said
    assert "soak: seed 5" in said
    for name in names:
        assert f"{name} seed " in said
    assert int(re.search(r"updates +([\d,]+) of", said)[1].replace(",", "")) > 100
    assert re.search(r"kills +[1-9]", said)
    assert re.search(r"failures +0", said)
    assert "family covered" in said
    assert "option not covered" in said


def test_damaged_files_of_a_format(tmp_path):
    order = Order("damage", 3, step=0, ticks=15, formats=("engine",))
    report = Slice(order, tmp_path).run()
    totals = report.counts["totals"]
    assert report.error or totals["damaged files"] == 15
    assert totals["damaged files refused"] >= 1
    assert report.counts["covered"]["format"] == {"engine": 1}


def test_what_is_broken_is_reported():
    names = [f"{BROKEN}:{name}" for name in ("killed", "leak", "large", "well")]
    code, said = short(*names, more=["--memory", "400"])
    assert code == 1
    assert re.search(r"failures +3", said), said
    assert re.search(r"took \d+ MiB of memory, expected at most 400", said)
    assert "ended by SIGKILL" in said
    assert "memory at rest grew by" in said
    assert "FAILED tests.unit.soak.broken:well" not in said


def test_what_fails_is_repeated():
    code, said = short(f"{BROKEN}:wrong", more=["--slice", "20", "--jobs", "1"])
    assert code == 1
    assert re.search(r"failures +1", said), said
    assert "StateMismatch: [verify] expected the live state" in said
    replay = re.search(r"replay: python (-m tests\.soak .*broken:wrong.*)", said)[1]
    assert "--step 0 --ticks 3" in replay
    code, again = soak(*shlex.split(replay)[2:])
    assert code == 1
    assert "StateMismatch" in again


def test_what_hangs_is_ended():
    code, said = short(f"{BROKEN}:hangs", more=["--hang", "5"])
    assert code == 1
    assert "hung: did not end 5 s after its time" in said
    assert "in hangs" in said  # where it was, from faulthandler


def test_an_interrupted_soak_says_what_it_did():
    command = [
        sys.executable,
        "-u",
        "-m",
        "tests.soak",
        "--minutes",
        "5",
        "--seed",
        "1",
        "--slice",
        "0.5",
        "--jobs",
        "1",
    ]
    command += ["--scenarios", f"{BROKEN}:well"]

    def heed_interrupts():  # a process that was started in the background ignores them, and its children inherit that
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as process:
        first = process.stdout.readline()
        process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        rest = process.stdout.read()
    assert "soak: seed 1" in first
    assert process.returncode == 130
    assert "interrupted" in rest
    assert "updates" in rest


def test_a_step_is_a_function_of_its_seed(tmp_path):
    order, reports = Order("volume", 3, step=1, ticks=12), []
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
        reports.append(Slice(order, tmp_path / name).run())
    first, again = reports
    assert not first.error
    assert first.ticks == 12
    assert first.counts == again.counts
    assert first.counts["totals"]["batches"] >= 12


def test_growth_is_found_after_the_warm_up():
    flat = [50, 80, 99, 100, 101, 100, 99, 100, 101, 100, 100, 101]
    assert memory.growth(flat) in range(-2, 3)
    assert memory.growth([100 + 10 * k for k in range(20)]) >= 80
    assert memory.growth([1, 2, 3]) is None


@pytest.mark.parametrize("names", [None, "int", "text"])
@pytest.mark.parametrize("simple", [False, True])
def test_a_world_follows_its_batches(names, simple):
    rng = np.random.default_rng(4)
    shape = Shape(3, 40, 150, weighted=True, times=True, simple=simple, names=names, feature_dtype="bfloat16", kept=3)
    world = World(rng, shape)
    graph = world.graph()
    for _ in range(30):
        updates = world.batch(rng, 60)
        if rng.random() < 0.2:
            world.expire(updates, world.now - 20)
        graph.apply(updates)
    live = world.labels()
    assert set(graph.vertices().tolist()) == set(np.asarray(world.ids(live)).tolist())
    np.testing.assert_array_equal(graph.features(world.ids(live)), world.rows[live])
    edges = graph.edges()
    np.testing.assert_array_equal(edges["src"], world.ids(world.edges.src))
    np.testing.assert_array_equal(edges["dst"], world.ids(world.edges.dst))
    for name, column in world.edges.columns.items():
        np.testing.assert_array_equal(edges[name], column)
    assert {0, 1, 2} <= set(live.tolist())


def test_a_lost_update_is_found():
    rng = np.random.default_rng(2)
    world = World(rng, Shape(3, 30, 90))
    engine = lg.Engine(lg.Model([lg.layers.GCN(np.eye(3, dtype=np.float32))]), world.graph())
    world.batch(rng, 10)  # which the engine does not get
    with pytest.raises(AssertionError, match="another graph than the one that the updates make"):
        check_fresh(engine, world, engine.embeddings(engine.graph.vertices()), "a test")


def test_counts_are_added_up():
    one, other = Counts(), Counts()
    one.add("reads", 2)
    other.add("reads")
    other.cover("family", "gcn")
    one.merge(Counts(other.stored()))
    assert one.stored() == {"totals": {"reads": 3}, "covered": {"family": {"gcn": 1}}}
