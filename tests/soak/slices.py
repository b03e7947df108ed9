"""One slice: a process that runs steps of one scenario, from one seed, until its time is over.

Step k is a function of (seed, k) and of the number of its ticks, and of nothing else; threads and kills apart. Time
only decides when to stop. So a failure is replayed by `--seed N --step K --ticks T`, and quickly.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shlex
import shutil
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.soak import memory
from tests.soak.counts import Counts
from tests.soak.scenarios import Scenario, find

_NOTE_SECONDS = 0.5
_STEP_SECONDS = 8.0  # after which a step that is not `whole` gives way to the next one


@dataclass(frozen=True)
class Order:
    """What a slice is asked for. step: that one alone, without a limit of time; ticks: that many of it."""

    scenario: str
    seed: int
    seconds: float = 40.0
    step: int | None = None
    ticks: int | None = None
    formats: tuple[str, ...] = ()

    def replay(self, step: int, ticks: int | None) -> str:
        """The command that repeats a step."""
        parts = ["python -m tests.soak", f"--scenario {self.scenario}", f"--seed {self.seed}", f"--step {step}"]
        parts += [f"--ticks {ticks}"] * (ticks is not None)
        parts += [f"--formats {shlex.quote(','.join(self.formats))}"] * bool(self.formats)
        return " ".join(parts)


@dataclass
class Report:
    """What a slice has done, as it goes on; kept in a file that outlives a crash."""

    step: int = 0
    ticks: int = 0
    counts: dict[str, Any] = field(default_factory=lambda: Counts().stored())
    at_rest: list[int] = field(default_factory=list)
    error: str = ""
    trace: str = ""
    ended: bool = False

    @classmethod
    def read(cls, path: Path) -> Report:
        """What the file says; a new report where there is none."""
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Replaces the file."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        os.replace(part, path)


class Step:
    """What a scenario gets: its randomness, a folder of its own, the counts, and when to stop."""

    def __init__(self, slice_: Slice, number: int) -> None:
        self._slice, self.number, self.ticks = slice_, number, 0
        self.seed = slice_.order.seed
        self.rng = np.random.default_rng([self.seed, number])
        self.counts, self.formats = slice_.counts, slice_.order.formats
        self.folder = slice_.folder / str(number)
        self.folder.mkdir()
        self._end = time.monotonic() + (1e9 if slice_.scenario.whole else _STEP_SECONDS)

    def tick(self) -> bool:
        """Whether to go on with one more round; a scenario asks before each."""
        wanted = self._slice.order.ticks
        if self._slice.order.step is None:
            go_on = self.ticks == 0 or time.monotonic() < min(self._end, self._slice.end)
        else:
            go_on = wanted is None or self.ticks < wanted
        self.ticks += go_on
        self._slice.note(self)
        return go_on

    def rest(self) -> None:
        """Measures memory; to be called where nothing but what stays is held."""
        self._slice.report.at_rest.append(memory.at_rest())


class Slice:
    """The steps of a slice, and its report."""

    def __init__(self, order: Order, folder: Path, report_path: Path | None = None) -> None:
        self.order, self.folder, self._report_path = order, folder, report_path
        self.scenario: Scenario = find(order.scenario)
        self.counts, self.report = Counts(), Report()
        self.end = time.monotonic() + order.seconds
        self._noted = 0.0

    def run(self) -> Report:
        """All steps, up to the first that fails."""
        scenario = self.scenario.load()
        self.end = time.monotonic() + self.order.seconds  # imports take no time of it
        number = self.order.step or 0
        while not self.report.error:
            self._one(scenario, number)
            number += 1
            if self.order.step is not None or time.monotonic() >= self.end:
                break
        self.report.error = self.report.error or self._leak()
        self.report.ended = True
        self._write()
        return self.report

    def _leak(self) -> str:
        """What is said where memory at rest has grown too much; else nothing."""
        points, limit = self.report.at_rest, self.scenario.growth_max
        grown = memory.growth(points)
        if grown is None or grown <= limit * memory.MIB:
            return ""
        shown = ", ".join(f"{point // memory.MIB}" for point in points[:: 1 + len(points) // 20])
        return f"memory at rest grew by {grown // memory.MIB} MiB, expected at most {limit}: {shown}"

    def _one(self, scenario: Callable[[Step], None], number: int) -> None:
        step = Step(self, number)
        self.report.step = number
        try:
            self.note(step, at_once=True)
            scenario(step)
            self.counts.add("steps")
        except Exception as error:
            self.report.error = f"{type(error).__name__}: {error}"
            self.report.trace = traceback.format_exc()
        self.report.ticks = step.ticks
        shutil.rmtree(step.folder, ignore_errors=True)
        del step
        if not self.scenario.whole:
            self.report.at_rest.append(memory.at_rest())
        self._write()

    def note(self, step: Step, *, at_once: bool = False) -> None:
        """Writes the report down, now and then."""
        if at_once or time.monotonic() - self._noted > _NOTE_SECONDS:
            self.report.ticks = step.ticks
            self._write()

    def _write(self) -> None:
        self.report.counts, self._noted = self.counts.stored(), time.monotonic()
        if self._report_path is not None:
            self.report.write(self._report_path)


def run_slice(order: Order, report_path: Path | None) -> Report:
    """Runs one slice in this process. A signal that ends it shows where every thread was."""
    faulthandler.enable(all_threads=True)
    warnings.simplefilter("ignore")
    if report_path is not None:
        threading.Thread(target=_end_with_the_soak, args=(os.getppid(),), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        return Slice(order, Path(folder), report_path).run()


def _end_with_the_soak(parent: int) -> None:
    """Ends this process and what it started once the soak has gone."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)
