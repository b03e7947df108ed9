"""python -m benchmarks.zoo [WORD ...] [--held-out] [--out FILE]: tries the classes, each in a process of its own.

LIVEGNN_ZOO names the folder of the checkouts, one folder per repository, OWNER+NAME. Words choose entries by their
titles; --held-out takes the second set (held_out.py).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import torch

import livegnn  # noqa: F401 before the fork: a class costs no import
from benchmarks.machine import description
from benchmarks.report import Report
from benchmarks.zoo import held_out, trial
from benchmarks.zoo.classes import ENTRIES
from benchmarks.zoo.entries import Entry
from benchmarks.zoo.summary import Result, write


def main(arguments: list[str] | None = None) -> int:
    """0; 1 if a class is wrong or crashes; 2 without checkouts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description="tries public network classes")
    parser.add_argument("words", nargs="*", help="only entries whose title holds one of these")
    parser.add_argument("--held-out", action="store_true", help="the second set, chosen before any was tried")
    parser.add_argument("--out", type=Path, help="write the tables to this file too")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one class (default 120)")
    options = parser.parse_args(arguments)
    if "LIVEGNN_ZOO" not in os.environ:
        sys.stderr.write("[zoo] expected LIVEGNN_ZOO, the folder of the checkouts (OWNER+NAME), got none; set it\n")
        return 2
    checkouts = Path(os.environ["LIVEGNN_ZOO"])
    entries = held_out.ENTRIES if options.held_out else ENTRIES
    chosen = [each for each in entries if not options.words or any(word in each.title for word in options.words)]
    missing = sorted({each.repository for each in chosen if not (checkouts / each.folder).is_dir()})
    report = Report(options.out)
    torch.set_num_threads(1)
    results = []
    for entry in chosen:
        if entry.repository not in missing:
            results.append(Result(entry, *_apart(entry, checkouts, options.limit)))
            report.progress(f"{results[-1].verdict:10} {entry.title}  {results[-1].reason[:160]}")
    command = " ".join(["python -m benchmarks.zoo", *(["--held-out"] if options.held_out else []), *options.words])
    write(report, results, missing, command, description())
    report.close()
    return 1 if any(each.verdict in ("wrong", "crash") for each in results) else 0


def _apart(entry: Entry, checkouts: Path, limit: float) -> tuple[str, str]:
    """The trial in a process of its own: a crash and an endless run are verdicts."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(entry, checkouts, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(limit):
            verdict: tuple[str, str] = ours.recv()
            return verdict
        return "crash", f"no answer within {limit:g} s"
    except EOFError:
        process.join()
        return "crash", f"the process ended with code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _child(entry: Entry, checkouts: Path, answer: Connection) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    answer.send(trial.attempt(entry, checkouts))
    answer.close()


if __name__ == "__main__":
    sys.exit(main())
