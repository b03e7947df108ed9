"""Progress to stderr, Markdown tables to stdout and, if asked, to a file as well; each row is written as soon as it is
known. The file is complete: put it into benchmarks/results/ as it is."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


class Report:
    """Tables and notes of one run. `failures` counts wrong answers: the run exits with 1 if there are any."""

    def __init__(self, out: Path | None = None) -> None:
        self._files: list[TextIO] = [sys.stdout]
        if out is not None:
            self._files.append(out.open("w", encoding="utf-8"))
        self._begin = time.perf_counter()
        self.failures: list[str] = []

    def line(self, text: str = "") -> None:
        for file in self._files:
            file.write(text + "\n")
            file.flush()

    def close(self) -> None:
        for file in self._files[1:]:
            file.close()

    def title(self, text: str, command: str, machine: str) -> None:
        """The head of a result: what, when, by which command, on which machine."""
        self.line(f"# {text}\n\n{datetime.date.today()}, `{command}`. {machine}.")

    def heading(self, text: str) -> None:
        self.line(f"\n## {text}\n")

    def columns(self, names: Sequence[str]) -> None:
        self.line("| " + " | ".join(names) + " |")
        self.line("|" + "---|" * len(names))

    def row(self, cells: Sequence[object]) -> None:
        self.line("| " + " | ".join(str(cell) for cell in cells) + " |")

    def progress(self, text: str) -> None:
        sys.stderr.write(f"[{time.perf_counter() - self._begin:6.1f} s] {text}\n")
        sys.stderr.flush()

    def fail(self, text: str) -> None:
        self.failures.append(text)
        self.line(f"\nWRONG ANSWER: {text}\n")


def rate(per_second: float) -> str:
    """Three significant digits: 1.4, 34.2K, 1.02M."""
    for limit, unit in ((1e6, "M"), (1e3, "K")):
        if per_second >= limit * 0.9995:
            return f"{per_second / limit:.3g}{unit}"
    return f"{per_second:.3g}"


def size(count: float) -> str:
    """Bytes with a binary unit."""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds with the unit that fits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
