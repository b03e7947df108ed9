"""Histories with swaps and rescales, killed at any point: what the log has is what the engine is, bit for bit."""

import subprocess
import sys
from pathlib import Path

import pytest

import livegnn as lg
from livegnn.graph.consumers import Consumer
from livegnn.log import UpdateLog, open_log, replay
from tests.fault.switching import SNAPSHOT_EVERY, History

ROOT = Path(__file__).parents[2]
STEPS = 14


class Killed(BaseException):
    """The process ends here: what was in memory is never looked at again."""


class EndsWhenPublished(Consumer):
    """Attached before the engine, whose rows are then those of the version before, or after it."""

    armed = False

    def published(self, change, version):
        if self.armed:
            raise Killed


def killed(monkeypatch, log, ends, point, step):
    """Runs `step` and ends it at a point."""
    append = log.log.append

    def end_before(*args, **options):
        raise Killed

    def end_after(*args, **options):
        append(*args, **options)
        raise Killed

    with monkeypatch.context() as patch:
        ends.armed = point == "published"
        if not ends.armed:
            patch.setattr(log.log, "append", end_before if point == "before" else end_after)
        with pytest.raises(Killed):
            step()


def recovered(history, snapshot, log):
    engine = lg.Engine.load(snapshot, threads=1) if snapshot.exists() else history.engine()
    ends = EndsWhenPublished()
    engine.graph.host.attach(ends)
    attachment = log.attach(engine.graph)
    attachment.catch_up()
    return engine, ends


@pytest.mark.parametrize("point", ["before", "after", "published"])
@pytest.mark.parametrize("seed", range(5))
def test_a_history_killed_at_every_step_goes_on(tmp_path, monkeypatch, seed, point):
    history, snapshot = History(seed), tmp_path / "engine.lg"
    twin = history.engine()  # without a log, and never killed
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db", synchronous="NORMAL")) as log:
        engine, ends = recovered(history, snapshot, log)
        for number in range(STEPS):
            killed(monkeypatch, log, ends, point, lambda: history.make(number, engine))  # noqa: B023
            assert log.tail == number + (point != "before")
            engine, ends = recovered(history, snapshot, log)
            if point == "before":
                history.make(number, engine)
            history.make(number, twin)
            assert (engine.version, engine.graph.version, log.tail) == (number + 1,) * 3
            assert engine.state_digest() == twin.state_digest(), f"seed {seed}, step {number}"
            assert engine.scales == twin.scales
            if number % SNAPSHOT_EVERY == 0:
                engine.save(snapshot)
        engine.verify()
        begun = history.engine()
        replay(log, begun.graph)
        assert begun.state_digest() == twin.state_digest()
        other = History(seed, {"mode": "on_demand"} if seed != 1 else {"state": "compact"}).engine()
        replay(log, other.graph)
        assert other.state_digest() == twin.state_digest()


@pytest.mark.parametrize("seed", [5, 6])
def test_a_process_killed_among_its_steps(tmp_path, seed):
    command = [sys.executable, "-m", "tests.fault.switching", str(seed), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        for _ in range(9):
            process.stdout.readline()
        process.kill()
    history = History(seed)
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db", must_exist=True)) as log:
        assert log.tail >= 9
        twin = history.after(log.tail)
        engine, _ = recovered(history, tmp_path / "engine.lg", log)
        assert engine.state_digest() == twin.state_digest()
