"""What does a part cost over the bare engine, and what do two workers on two cores gain over one on one core?

One thread each, a process each, pinned; parcels over Unix sockets. All take the same batches in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from benchmarks.cluster.players import Players, Turn, local_seats, players
from benchmarks.cluster.world import ClusterWorld
from benchmarks.engine.runs import Run
from benchmarks.options import Options
from benchmarks.report import Report, duration, size

KINDS = ("gcn", "sage")
OVERHEAD_ASKED, SPEEDUP_ASKED = 0.15, 1.5
TURNS = 5
RUNS = {"arxiv-like": Run(0, 1000, 2, 15), "products-shaped-150k": Run(0, 1000, 1, 5), "tiny": Run(0, 30, 1, 3)}
COLUMNS = ("workload", "model", "batch", "figure", "asked", "measured", "met", "how")


def run(options: Options, report: Report) -> None:
    """A row for each figure."""
    contests("Time per batch", contest, options, report)


def contests(
    title: str, contest: Callable[[ClusterWorld, Run, Report], None], options: Options, report: Report
) -> None:
    """A table with the rows of a contest for each workload and kind."""
    report.heading(title)
    report.columns(COLUMNS)
    for name in ("tiny",) if options.tiny else ("arxiv-like", "products-shaped-150k"):
        for kind in KINDS:
            played = RUNS[name]
            world = ClusterWorld(name, kind, 8 if options.tiny else 256, 3 * (played.stop // 3 + 1))
            contest(world, played, report)


def contest(world: ClusterWorld, played: Run, report: Report) -> None:
    """Bare, one part and two parts, in turns. States that differ fail the report."""
    world.owners(2)  # found once, before the workers ask
    with tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder, ExitStack() as stack:
        names = {"bare": [], "one": local_seats(1, folder, [0], "one"), "two": local_seats(2, folder, [0, 1], "two")}
        teams = {name: stack.enter_context(players(world, seats)) for name, seats in names.items()}
        turns: dict[str, list[Turn]] = {name: [] for name in teams}
        for _ in range(TURNS):
            for name, team in teams.items():
                turns[name].append(team.play(played))
        check_states(world, list(teams.values()), report)
    bare, one, two = (float(np.median(np.concatenate([t.seconds for t in turns[n]]))) for n in names)
    sent, rounds = turns["two"][0].bytes / played.counted, turns["two"][0].rounds / played.counted
    more = f"{rounds:.3g} rounds, {size(sent)} sent by a worker"
    figures(world, played, report, ("a part's cost", "one part in a process"), (bare, one, two), more)


def figures(
    world: ClusterWorld, played: Run, report: Report, one_is: tuple[str, str], medians: tuple[float, ...], more: str
) -> None:
    """What one costs over the bare engine, and what two gain over one.

    Args:    one_is: its cost and itself, in words.  medians: seconds of the bare engine, one and two.  more: of two.
    """
    bare, one, two = medians
    begin = [world.name, world.kind, played.size]
    cost, gain = one / bare - 1, one / two
    how = f"{one_is[1]} {duration(one)}, the engine alone {duration(bare)}; medians of {TURNS} turns"
    met = "yes" if cost <= OVERHEAD_ASKED else "NO"
    report.row([*begin, f"{one_is[0]} over the bare engine", f"{OVERHEAD_ASKED:.0%}", f"{cost:.1%}", met, how])
    met = "yes" if gain >= SPEEDUP_ASKED else "NO"
    how = f"one {duration(one)}, two {duration(two)}; {more}"
    report.row([*begin, "two workers on two cores", f"{SPEEDUP_ASKED}x", f"{gain:.2f}x", met, how])
    report.progress(f"{world.name}, {world.kind}: {cost:.1%}, {gain:.2f}x")


def check_states(world: ClusterWorld, teams: list[Players], report: Report) -> None:
    """Fails the report where teams that took the same batches differ."""
    if len({team.digest() for team in teams}) != 1:
        report.fail(f"[cluster] expected one state of all on {world.name}, {world.kind}, got several")
