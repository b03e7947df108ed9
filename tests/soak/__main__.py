"""python -m tests.soak [--minutes 60] [--seed N] ...: the soak; with --scenario, one slice or one step of it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.soak import memory
from tests.soak.scenarios import SCENARIOS, find
from tests.soak.slices import Order, run_slice

UPDATES_PER_MINUTE = 10**8 / 60


def main(arguments: list[str] | None = None) -> int:
    """0; 1 if anything failed; 130 if interrupted before that."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="random work for an hour, from one seed")
    parser.add_argument("--minutes", type=float, default=60.0, help="at least so long (60)")
    parser.add_argument("--updates", type=float, help="at least so many (10^8 in an hour)")
    parser.add_argument("--seed", type=int, help="of everything; drawn and printed unless given")
    parser.add_argument("--scenarios", help=f"any of {','.join(SCENARIOS)}, or module:function (all)")
    parser.add_argument("--formats", default="", help="of damaged files (all)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="slices at a time")
    parser.add_argument("--slice", type=float, default=40.0, help="seconds of a slice (40)")
    parser.add_argument("--hang", type=float, default=180.0, help="seconds over its time after which a slice hangs")
    parser.add_argument("--memory", type=float, default=3072.0, help="MiB that a process may take")
    parser.add_argument("--scenario", help="one slice of this scenario, in this process")
    parser.add_argument("--seconds", type=float, default=40.0, help="with --scenario: how long")
    parser.add_argument("--step", type=int, help="with --scenario: this step alone, as long as it takes")
    parser.add_argument("--ticks", type=int, help="with --step: so many rounds of it")
    parser.add_argument("--report", type=Path, help="with --scenario: where to write what it did")
    options = parser.parse_args(arguments)
    options.seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    options.formats = tuple(filter(None, options.formats.split(",")))
    return _slice(options) if options.scenario else _soak(parser, options)


def _slice(options: argparse.Namespace) -> int:
    order = Order(
        options.scenario, options.seed, options.seconds, step=options.step, ticks=options.ticks, formats=options.formats
    )
    report = run_slice(order, options.report)
    if options.report is None:
        for name, count in sorted(report.counts["totals"].items()):
            print(f"{name:36} {count:>12,}")
        print("memory at rest, MiB:", *(point // memory.MIB for point in report.at_rest))
    if report.error:
        print(report.trace or report.error, file=sys.stderr)
        print("replay:", order.replay(report.step, report.ticks if report.trace else None), file=sys.stderr)
    return 1 if report.error else 0


def _soak(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from tests.soak.scheduler import Options, Soak
    from tests.soak.table import lines

    names = tuple(options.scenarios.split(",")) if options.scenarios else tuple(SCENARIOS)
    for name in names:
        try:
            find(name)
        except KeyError:
            parser.error(f"expected scenarios among {', '.join(SCENARIOS)}, got {name!r}")
    updates = options.minutes * UPDATES_PER_MINUTE if options.updates is None else options.updates
    soak = Soak(
        Options(
            options.seed,
            options.minutes * 60,
            int(updates),
            names,
            jobs=options.jobs,
            slice_seconds=options.slice,
            hang_seconds=options.hang,
            memory_max=int(options.memory * memory.MIB),
            formats=options.formats,
        ),
        lambda line: print(line, flush=True),
    )
    print(f"soak: seed {options.seed}, {options.minutes:g} min, {int(updates):,} updates", flush=True)
    soak.run()
    print("\n".join(lines(soak)), flush=True)
    return 1 if soak.failures else 130 if soak.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
