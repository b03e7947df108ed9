"""Slices as processes, so many at a time, until time is over and the updates are done.

Each slice is `python -m tests.soak --scenario NAME --seed N --report FILE ...` in a process group of its own: what it
started ends with it. A slice fails when it says so, when a signal ends it, when it hangs, or when a process of it takes
more memory than it may; the others go on.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak import memory
from tests.soak.counts import Counts
from tests.soak.scenarios import FILLER, find
from tests.soak.slices import Order, Report

ROOT = Path(__file__).parents[2]

_POLL_SECONDS = 0.1
_MEMORY_SECONDS = 1.0
_FRUITLESS_MAX = 3  # slices of the filler in a row that brought no update: more of them would not either


@dataclass(frozen=True)
class Options:
    """What is asked for. updates: at least so many.  hang_seconds: over its time, after which a slice has hung."""

    seed: int
    seconds: float
    updates: int
    scenarios: tuple[str, ...]
    jobs: int = 2
    slice_seconds: float = 40.0
    hang_seconds: float = 180.0
    memory_max: int = 3072 * memory.MIB
    formats: tuple[str, ...] = ()


@dataclass
class Failure:
    """What went wrong, and the command that repeats it."""

    scenario: str
    seed: int
    what: str
    replay: str


@dataclass
class Running:
    """A slice at work."""

    order: Order
    process: subprocess.Popen[bytes]
    begun: float
    report_path: Path
    log_path: Path
    peaks: dict[int, int] = field(default_factory=dict)
    stopped: str = ""  # why the soak ended it


class Soak:
    """One soak; run() does it."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.options, self.say = options, say
        self.counts, self.failures = Counts(), list[Failure]()
        self.slices, self.spent = Counter[str](), Counter[str]()
        self.peak, self.peak_of = 0, ""
        self.begun, self.seconds, self.interrupted = 0.0, 0.0, False
        self._running: list[Running] = []
        self._started, self._measured, self._fruitless = 0, 0.0, 0

    def run(self) -> None:
        """Until time is over and the updates are done, or Ctrl-C."""
        self.begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            try:
                while self._running or self._wanted() is not None:
                    while len(self._running) < self.options.jobs and self._wanted() is not None:
                        self._start(Path(folder))
                    self._watch()
                    time.sleep(_POLL_SECONDS)
            except KeyboardInterrupt:
                self.interrupted = True
            finally:
                for running in self._running:
                    self._kill(running, "interrupted")
                    self.counts.merge(Counts(Report.read(running.report_path).counts))
                self.seconds = time.monotonic() - self.begun

    # ---- which, and when

    def _wanted(self) -> str | None:
        """The scenario that is furthest behind its share; each once at least."""
        active = Counter(running.order.scenario for running in self._running)
        for name in self.options.scenarios:
            if not self.slices[name] and not active[name]:
                return name
        if time.monotonic() - self.begun < self.options.seconds:
            return min(self.options.scenarios, key=lambda name: (self.spent[name] / find(name).share, active[name]))
        missing = self.counts.totals["updates"] < self.options.updates and FILLER in self.options.scenarios
        return FILLER if missing and self._fruitless < _FRUITLESS_MAX else None

    def _start(self, folder: Path) -> None:
        name = self._wanted()
        assert name is not None
        self._started += 1
        digest = hashlib.sha256(f"{self.options.seed}/{self._started}/{name}".encode()).digest()
        left = self.options.seconds - (time.monotonic() - self.begun)
        seconds = max(self.options.seconds / 10, self.options.slice_seconds) if find(name).whole else None
        seconds = min(seconds or self.options.slice_seconds, max(left, self.options.slice_seconds / 10))
        order = Order(name, int.from_bytes(digest[:4], "little"), seconds, formats=self.options.formats)
        report, log = folder / f"{self._started}.json", folder / f"{self._started}.log"
        scratch = folder / f"{self._started}"
        scratch.mkdir()
        command = [sys.executable, "-m", "tests.soak", "--scenario", name, "--seed", str(order.seed)]
        command += ["--seconds", f"{seconds:.3f}", "--report", str(report)]
        command += ["--formats", ",".join(order.formats)] * bool(order.formats)
        environment = os.environ | {"TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, process_group=0
            )
        self.spent[name] += seconds  # corrected when it ends
        self._running.append(Running(order, process, time.monotonic(), report, log))

    # ---- watching

    def _watch(self) -> None:
        now = time.monotonic()
        if now - self._measured > _MEMORY_SECONDS:
            self._measured = now
            for running in self._running:
                self._measure(running)
        for running in list(self._running):
            if running.process.poll() is not None:
                self._running.remove(running)
                self._ended(running)
            elif now - running.begun > running.order.seconds + self.options.hang_seconds:
                self._kill(running, f"hung: did not end {self.options.hang_seconds:g} s after its time")

    def _measure(self, running: Running) -> None:
        for pid, size in memory.resident_of_group(running.process.pid).items():
            running.peaks[pid] = max(size, running.peaks.get(pid, 0))
            if size > self.options.memory_max and not running.stopped:
                limit = self.options.memory_max // memory.MIB
                self._kill(running, f"took {size // memory.MIB} MiB of memory, expected at most {limit}")

    def _kill(self, running: Running, why: str) -> None:
        """SIGABRT first, so that faulthandler shows where every thread is."""
        running.stopped = running.stopped or why
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGABRT if why != "interrupted" else signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()

    def _ended(self, running: Running) -> None:
        order, report = running.order, Report.read(running.report_path)
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)  # what it may have left
        took = time.monotonic() - running.begun
        self.spent[order.scenario] += took - order.seconds
        self.slices[order.scenario] += 1
        self.counts.merge(Counts(report.counts))
        if order.scenario == FILLER:
            self._fruitless = 0 if report.counts["totals"].get("updates") else self._fruitless + 1
        peak = max(running.peaks.values(), default=0)
        if peak > self.peak:
            self.peak, self.peak_of = peak, f"{order.scenario}, seed {order.seed}"
        what = _failure_of(running, report)
        total, minutes = self.counts.totals["updates"], (time.monotonic() - self.begun) / 60
        did = f"{order.scenario} seed {order.seed}: {took:.0f} s, {_shortly(report)}, {peak // memory.MIB} MiB"
        self.say(f"{minutes:6.1f} min {total:13,} updates | {'FAILED ' if what else ''}{did}")
        if what:
            known = report.ticks if report.ended and report.error == what and report.trace else None
            failure = Failure(order.scenario, order.seed, what, order.replay(report.step, known))
            if "memory at rest" in what:  # a growth over many steps
                failure.replay = f"python -m tests.soak --scenario {order.scenario} --seed {order.seed}"
                failure.replay += f" --seconds {order.seconds:.0f}"
            self.failures.append(failure)
            self.say(f"    {what}\n    replay: {failure.replay}")
            self.say("\n".join("    | " + line for line in _tail(running, report)))


def _failure_of(running: Running, report: Report) -> str:
    """What went wrong, or nothing."""
    if running.stopped:
        return running.stopped
    code = running.process.returncode
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    if report.error:
        return report.error
    return "" if code == 0 and report.ended else f"ended with exit code {code} before its end"


def _shortly(report: Report) -> str:
    totals = report.counts["totals"]
    names = ("steps", "updates", "batches", "verifications", "what_ifs", "reads", "kills", "damaged files")
    return ", ".join(f"{totals[name]:,} {name}" for name in names if totals.get(name)) or "nothing"


def _tail(running: Running, report: Report, lines_max: int = 30) -> Sequence[str]:
    """The end of the traceback, or of what the process wrote."""
    text = report.trace or running.log_path.read_text(errors="replace")
    return [line[:300] for line in text.splitlines()[-lines_max:]]
