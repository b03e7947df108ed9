"""What does a neighbour cost? livegnn's rates alone, with torch in its process, and next to a process that keeps both
cores busy.

Every combination of load and threads is a process of its own. All take the same runs of batches in turns, and only one
works at a time: the others are stopped. Ratios are taken turn by turn, between processes that worked one after the
other. torch multiplies two matrices before each batch, outside the clock: what follows a product is its idle threads.
Sums are exact, so all processes must give the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.engine.contended import HIDDEN, Contended, Spinner
from benchmarks.engine.runs import Played, Run, consecutive
from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.worker import Worker

THREADS = (1, 2)  # of the engine
TORCH_THREADS = 2
SPINNERS = 2
TURNS_MIN, TURNS_MAX = 5, 9
BUDGET_S = 200.0
SHAPES = {1: (150, 2000), 10: (15, 400), 100: (3, 80), 1000: (1, 20)}  # batches not counted and counted, by size
COUNTED_AFTER_PRODUCTS = {1: 250, 10: 60, 100: 15, 1000: 4}
DEFAULT_OVER_PASSIVE_MIN = 0.85
TWO_OVER_ONE_MIN = 0.95


@dataclass(frozen=True)
class Load:
    """What else is at work. torch: loaded in the engine's process.   multiply: it is used before each batch.
    policy: OMP_WAIT_POLICY, None where it is not set.   spinners: processes that keep a core busy each."""

    name: str
    torch: bool = False
    multiply: bool = False
    policy: str | None = None
    spinners: bool = False

    @property
    def environment(self) -> dict[str, str | None]:
        """Of the engine's process."""
        return {"OMP_WAIT_POLICY": self.policy, "OMP_NUM_THREADS": str(TORCH_THREADS)}


ALONE = Load("alone")
PASSIVE = Load("torch, OMP_WAIT_POLICY=passive", torch=True, multiply=True, policy="passive")
DEFAULT = Load("torch, as it comes", torch=True, multiply=True)
ACTIVE = Load("torch, OMP_WAIT_POLICY=active", torch=True, multiply=True, policy="active")
BUSY = Load("both cores busy", spinners=True)
LOADS = (ALONE, Load("torch at rest", torch=True), PASSIVE, DEFAULT, ACTIVE, BUSY)

Engine = tuple[Load, int]
Seconds = dict[tuple[Load, int, int], list[npt.NDArray[np.float64]]]  # of (load, threads, batch size), turn by turn


def run(options: Options, report: Report) -> None:
    """A table of rates and one of ratios; engines that disagree or differ from a run from scratch fail the run."""
    tiny = options.tiny
    runs = consecutive(dict.fromkeys(SHAPES, (1, 3)) if tiny else SHAPES)
    name, hidden = ("tiny", 32) if tiny else ("arxiv-like", HIDDEN)
    report.heading(f"Contention: livegnn, {name}, GraphConv {hidden}, updates per second")
    with ExitStack() as stack:
        engines = _start(name, runs[-1].stop, hidden, stack, report)
        spinners = [stack.enter_context(Worker(Spinner, number)) for number in range(SPINNERS)]
        for spinner in spinners:
            spinner.result()
            spinner.send("spin")
            spinner.pause()
        seconds = _turns(engines, spinners, runs, tiny, report)
        report.progress("  verifying")
        for (load, threads), worker in engines.items():
            mismatch = worker.call("mismatch")
            if mismatch:
                report.fail(f"[contention] {load.name}, {_threads(threads)}: {mismatch}")
    _rates(seconds, report)
    _ratios(seconds, report)


def _start(name: str, updates: int, hidden: int, stack: ExitStack, report: Report) -> dict[Engine, Worker]:
    """A worker for each load and number of threads; two start at a time."""
    engines: dict[Engine, Worker] = {}
    for load in LOADS:
        report.progress(f"{load.name}: starting")
        for threads in THREADS:
            torch_threads = TORCH_THREADS if load.torch else None
            arguments = (name, updates, hidden, threads, torch_threads)
            worker = Worker(Contended, *arguments, environment=load.environment)
            engines[load, threads] = stack.enter_context(worker)
        for threads in THREADS:
            engines[load, threads].result()
    return engines


def _turns(
    engines: dict[Engine, Worker], spinners: list[Worker], runs: list[Run], tiny: bool, report: Report
) -> Seconds:
    """TURNS_MIN to TURNS_MAX turns of every run on every engine."""
    seconds: Seconds = {(load, threads, r.size): [] for load, threads in engines for r in runs}
    begin = time.perf_counter()
    for turn in range(2 if tiny else TURNS_MAX):
        if turn >= TURNS_MIN and time.perf_counter() - begin > BUDGET_S:
            break
        report.progress(f"  turn {turn + 1}")
        for each in runs:
            short = each if tiny else replace(each, counted=COUNTED_AFTER_PRODUCTS[each.size])
            rows: dict[Run, npt.NDArray[np.float32]] = {}
            for (load, threads), worker in engines.items():
                own = short if load.multiply else each
                played = _play(worker, load, own, spinners)
                seconds[load, threads, each.size].append(played.seconds)
                if not np.array_equal(played.rows, rows.setdefault(own, played.rows)):
                    where = f"{load.name}, {_threads(threads)}, batch {each.size}"
                    report.fail(f"[contention] {where}: expected the bits of the first engine of the turn, got others")
    return seconds


def _play(worker: Worker, load: Load, run: Run, spinners: list[Worker]) -> Played:
    busy = spinners if load.spinners else []
    for spinner in busy:
        spinner.resume()
    try:
        found: Played = worker.call("play", run, load.multiply)
    finally:
        for spinner in busy:
            spinner.pause()
    return found


# ---- tables


def _spread(values: list[float], write: Callable[[float], str]) -> str:
    """Median (smallest to largest)."""
    return f"**{write(float(np.median(values)))}** ({write(min(values))} to {write(max(values))})"


def _rates(seconds: Seconds, report: Report) -> None:
    turns = len(next(iter(seconds.values())))
    report.line(f"Medians of {turns} turns (slowest to fastest).\n")
    report.columns(("load", "threads", *(f"batch {size}" for size in SHAPES)))
    for load in LOADS:
        for threads in THREADS:
            cells = []
            for size in SHAPES:
                rates = [size * len(turn) / turn.sum() for turn in seconds[load, threads, size]]
                cells.append(_spread(rates, rate))
            report.row([load.name, threads, *cells])


def _ratios(seconds: Seconds, report: Report) -> None:
    report.heading("Contention: ratios of rates, turn by turn")
    report.columns(("ratio", *(f"batch {size}" for size in SHAPES), "at least", "met"))
    for threads in THREADS:
        pair = (DEFAULT, threads), (PASSIVE, threads)
        name = f"torch as it comes over passive, {_threads(threads)}"
        _ratio_row(name, *pair, seconds, report, least=DEFAULT_OVER_PASSIVE_MIN)
    for load in LOADS:
        pair = (load, THREADS[1]), (load, THREADS[0])
        _ratio_row(f"2 threads over 1, {load.name}", *pair, seconds, report, least=TWO_OVER_ONE_MIN)
    for load in LOADS[1:]:
        for threads in THREADS:
            pair = (load, threads), (ALONE, threads)
            _ratio_row(f"{load.name} over alone, {_threads(threads)}", *pair, seconds, report)


def _ratio_row(
    name: str, above: Engine, below: Engine, seconds: Seconds, report: Report, least: float | None = None
) -> None:
    cells, met = [], True
    for size in SHAPES:
        ratios = turn_ratios(seconds[*above, size], seconds[*below, size])
        cells.append(_spread(ratios, lambda ratio: f"{ratio:.2f}"))
        met &= least is None or float(np.median(ratios)) >= least
    report.row([name, *cells, "-" if least is None else least, "-" if least is None else "yes" if met else "NO"])


def turn_ratios(above: list[npt.NDArray[np.float64]], below: list[npt.NDArray[np.float64]]) -> list[float]:
    """Rate of one over rate of the other, turn by turn, over the batches that both counted."""
    ratios = []
    for a, b in zip(above, below, strict=True):
        common = min(len(a), len(b))
        ratios.append(float(b[:common].sum() / a[:common].sum()))
    return ratios


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
