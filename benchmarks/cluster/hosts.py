"""Two workers as two hosts: a network namespace each, joined by a link whose rate is shaped.

tc's token bucket gives the rate; latency is added at the receiver (links.py), where the kernel has no netem. The cost
model predicts each row from the run over Unix sockets: its seconds, less its own rounds and bytes, and those of the
link. Needs root, and `ip` and `tc`; without them the benchmark says so and measures nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.cluster.links import Address
from benchmarks.cluster.players import Seat, local_seats, players
from benchmarks.cluster.world import ClusterWorld
from benchmarks.engine.runs import Run
from benchmarks.options import Options
from benchmarks.report import Report, duration, size

KIND = "sage"
LINKS = ((10, 1e-4), (10, 1e-3), (1, 1e-4), (1, 1e-3))  # Gb/s, seconds
RUNS = {"arxiv-like": Run(0, 1000, 2, 15), "tiny": Run(0, 30, 1, 3)}
COLUMNS = ("workload", "batch", "link", "a round", "a batch", "predicted", "error", "sent by a worker")


def run(options: Options, report: Report) -> None:
    """A row for Unix sockets, and one for each link."""
    report.heading("Two hosts as two network namespaces")
    name = "tiny" if options.tiny else "arxiv-like"
    played = RUNS[name]
    world = ClusterWorld(name, KIND, 8 if options.tiny else 256, 3 * (played.stop // 3 + 1))
    world.owners(2)
    if (why := refusal()) is not None:
        report.line(f"Not measured: {why}.")
        return
    report.columns(COLUMNS)
    with tempfile.TemporaryDirectory(prefix="livegnn-bench-") as folder:
        seats = local_seats(2, folder, [0, 1], "local", near=False)
        alone, sent, rounds, latency, digest = played_by(world, seats, played)
    begin = [name, played.size]
    report.row([*begin, "Unix sockets", duration(latency), duration(alone), "-", "-", size(sent)])
    for number, (gigabits, delay_s) in enumerate(LINKS):
        with two_hosts(gigabits) as (namespaces, addresses):
            seats = [Seat(part, addresses, part, namespaces[part], delay_s) for part in range(2)]
            seconds, sent, rounds, measured, again = played_by(world, seats, played)
        if again != digest:
            report.fail(f"[cluster_hosts] expected the state that workers on one host have, got another on {number}")
        predicted = alone + rounds * delay_s + sent * 8 / (gigabits * 1e9)
        link = f"{gigabits} Gb/s, {duration(delay_s)}"
        error = f"{predicted / seconds - 1:+.0%}"
        report.row([*begin, link, duration(measured), duration(seconds), duration(predicted), error, size(sent)])
        report.progress(f"{link}: {duration(seconds)}")


def played_by(world: ClusterWorld, seats: list[Seat], played: Run) -> tuple[float, float, float, float, int]:
    """(seconds, bytes of a worker, rounds) of a batch, seconds of a small round, and the state."""
    with players(world, seats) as team:
        turns = [team.play(played) for _ in range(3)]
        small = max(team.call("round_seconds", 64, 200))
        seconds = float(np.median(np.concatenate([turn.seconds for turn in turns])))
        counted = played.counted
        return seconds, turns[0].bytes / counted, turns[0].rounds / counted, small, team.digest()


def refusal() -> str | None:
    """Why this machine has no namespaces for us."""
    if os.name != "posix" or os.geteuid() != 0:
        return "namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"{' and '.join(missing)} missing"
    try:
        with two_hosts(1):
            return None
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(error.cmd)}` was refused"


@contextmanager
def two_hosts(gigabits: int) -> Iterator[tuple[list[str], list[Address]]]:
    """Names of two namespaces and addresses in them; both go with the block."""
    names = [f"lg{os.getpid()}-{end}" for end in (0, 1)]
    ends = [f"lg{os.getpid() % 100_000}e{end}" for end in (0, 1)]
    addresses: list[Address] = [(f"10.77.0.{end + 1}", 7700) for end in (0, 1)]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for name, end, address in zip(names, ends, addresses, strict=True):
            _ip("-n", name, "address", "add", f"{address[0]}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            shape = ["tbf", "rate", f"{gigabits}gbit", "burst", "256kb", "latency", "50ms"]
            _quietly(["tc", "-n", name, "qdisc", "add", "dev", end, "root", *shape])
        yield names, addresses
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    _quietly(["ip", *words])


def _quietly(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, check=True)
