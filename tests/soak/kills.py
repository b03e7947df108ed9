"""python -m tests.soak.kills --kills 1000 --seed 1: kills a deployment, checks what it recovers, and prints a table."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fault.kills import POINTS, Witness, run
from tests.soak.slices import Step
from tests.soak.victims import random_wait

FOLDER_KILLS = 50  # then another folder begins, so that histories stay short


def scenario(step: Step) -> None:
    """One folder, killed again and again: for the hour of `make soak`."""
    witness = Witness(step.folder)
    while step.tick():
        point = POINTS[int(step.rng.integers(len(POINTS)))]
        witness.kill(point, int(step.rng.integers(1, 4)), random_wait(step.rng, 3.0))
        step.counts.add("kills")
    witness.finish()
    step.counts.add("recoveries", witness.lives)
    step.counts.add("batches", witness.entries)


def table(found: list[Witness]) -> str:
    """The kills by point, and what the histories hold."""
    kills: Counter[str] = sum((each.kills for each in found), Counter())
    kinds: Counter[str] = sum((each.kinds for each in found), Counter())
    lines = ["| killed | times |", "|---|---|"]
    lines += [f"| {point} | {kills[point]} |" for point in (*POINTS, "at any time")]
    entries = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    acknowledged = sum(len(each.acknowledged) for each in found)
    lines.append(
        f"\n{kills.total():,} kills; {kinds.total():,} entries ({entries}); {acknowledged:,} batches acknowledged"
    )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Kills a deployment, and checks what it recovers.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    begun, found = time.monotonic(), list[Witness]()
    for seed in itertools.count(options.seed):
        left = options.kills - sum(each.kills.total() for each in found)
        if left <= 0:
            break
        with tempfile.TemporaryDirectory() as folder:
            found.append(run(Path(folder), min(FOLDER_KILLS, left), seed))
        print(f"seed {seed}: {found[-1].kills.total()} kills, {time.monotonic() - begun:.0f} s", flush=True)
    print(table(found))
    print(f"from seed {options.seed}, {time.monotonic() - begun:.0f} s, no failure")


if __name__ == "__main__":
    main(sys.argv[1:])
