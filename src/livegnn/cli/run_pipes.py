"""`livegnn run CONFIG`: a deployment's sources and sinks without the server, until the sources end, or a signal."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from livegnn.cli.console import Console
from livegnn.deployment import Deployment
from livegnn.errors import UsageError

_LINE_S = 2.0  # between two lines of progress
_LOOK_S = 0.1


def run_pipes(options: argparse.Namespace, console: Console) -> int:
    """Runs the pipes; 0, 1 where one of them failed, 130 if it was interrupted.

    Raises: UsageError for a configuration without sources.
    """
    path: Path = options.config
    deployment = Deployment(path, options.data or path.parent / "data", once=options.once)
    if not deployment.config.source:
        raise UsageError(f"[run] expected a [[source]] in {path}, got none; docs/pipes.md has examples")
    with _signalled() as stop:
        began = time.monotonic()
        with deployment:
            console.line(f"Version {deployment.version}; Ctrl-C ends it.")
            shown = began
            while not stop.is_set() and not deployment.pipes.wait(_LOOK_S):
                if time.monotonic() - shown > _LINE_S:
                    shown = time.monotonic()
                    _say(deployment, console, shown - began)
            while not stop.is_set() and not deployment.pipes.drain(_LOOK_S):
                if time.monotonic() - shown > _LINE_S:
                    shown = time.monotonic()
                    _say(deployment, console, shown - began)
        _say(deployment, console, time.monotonic() - began)
        failed = [(one.name, one.error) for one in deployment.pipes.sources if one.life == "failed"]
        failed += [(one.name, one.error) for one in deployment.pipes.sinks if one.life == "failed"]
        for name, error in failed:
            console.warn(f"{name} failed: {error}")
        if stop.is_set():
            console.warn("Interrupted; what was committed is durable, and the next run goes on after it.")
            return 130
    return 1 if failed else 0


def _say(deployment: Deployment, console: Console, seconds: float) -> None:
    """One line for each source and sink."""
    for source in deployment.pipes.sources:
        lag = "" if source.lag is None or not source.lag.amount else f", {source.lag.amount:,} {source.lag.unit} to go"
        why = f"; {source.life}: {source.error}" if source.error else ""
        console.line(
            f"{source.name}: {source.records:,} records, {source.bad:,} bad, {source.updates:,} updates "
            f"({source.updates / max(seconds, 1e-9):,.0f}/s){lag}{why}"
        )
    for sink in deployment.pipes.sinks:
        why = f"; {sink.life}: {sink.error}" if sink.error else ""
        console.line(f"{sink.name}: {sink.events:,} events, {sink.changes:,} changes, {sink.lag:,} versions to go{why}")
    console.line(f"version {deployment.version}")


@contextmanager
def _signalled() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one ends the process at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
