"""What the command line writes: coloured and moving on a terminal, plain lines elsewhere.

Plain means no control characters at all (CI logs, pipes, TERM=dumb, or rich not installed). NO_COLOR keeps the moving
progress bar of a terminal and leaves the colours out. Results go to standard output, errors to standard error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int, str], None]


class Console:
    """Headings, lines, tables and progress on standard output."""

    def __init__(self, plain: bool | None = None) -> None:
        self._rich = None if plain or not _wants_rich(plain) else _rich_console()

    @property
    def is_plain(self) -> bool:
        """True if nothing but text and line ends is written."""
        return self._rich is None

    def heading(self, text: str) -> None:
        """The start of a part."""
        if self._rich is not None:
            self._rich.print()
            self._rich.rule(f"[bold cyan]{_escaped(text)}", align="left", style="dim")
        else:
            self._write(f"\n== {text}")

    def line(self, text: str = "") -> None:
        """One line of text."""
        if self._rich is not None:
            self._rich.print(text, markup=False, highlight=False)
        else:
            self._write(text)

    def good(self, text: str) -> None:
        """A line that reports something proved."""
        if self._rich is not None:
            self._rich.print(f"[bold green]{_escaped(text)}", highlight=False)
        else:
            self._write(text)

    def warn(self, text: str) -> None:
        """A line that must not be overlooked."""
        if self._rich is not None:
            self._rich.print(f"[bold yellow]{_escaped(text)}", highlight=False)
        else:
            self._write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], strong: int | None = None) -> None:
        """A table; the first column is text, the others are numbers; row `strong` is set in bold."""
        if self._rich is not None:
            self._rich_table(columns, rows, strong)
            return
        widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
        for row in (columns, ["-" * width for width in widths], *rows):
            cells = [
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            self._write("  ".join(cells).rstrip())

    @contextmanager
    def progress(self, total: int, label: str, *, fades: bool = False) -> Iterator[Advance]:
        """A bar for `total` steps; the callable takes the steps done so far and a short note. fades: gone when done."""
        if self._rich is not None:
            with self._rich_progress(total, label, fades) as advance:
                yield advance
            return
        shown = 0

        def advance_plain(done: int, note: str) -> None:
            nonlocal shown
            quarter = 4 * done // max(total, 1)
            if quarter > shown:
                shown = quarter
                self._write(f"{label}: {25 * quarter}%  {note}".rstrip())

        yield advance_plain

    def _write(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], strong: int | None) -> None:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for i, column in enumerate(columns):
            table.add_column(_escaped(column), justify="left" if i == 0 else "right")
        for i, row in enumerate(rows):
            table.add_row(*(_escaped(cell) for cell in row), style="bold green" if i == strong else None)
        assert self._rich is not None
        self._rich.print(table)

    @contextmanager
    def _rich_progress(self, total: int, label: str, fades: bool) -> Iterator[Advance]:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn(label), BarColumn(bar_width=32), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("[dim]{task.fields[note]}"), console=self._rich, transient=fades) as bar:
            task = bar.add_task(label, total=total, note="")
            last = 0.0

            def advance(done: int, note: str) -> None:
                nonlocal last
                now = time.monotonic()
                if now - last > 0.1 or done >= total:
                    last = now
                    bar.update(task, completed=done, note=_escaped(note))

            yield advance


def _wants_rich(plain: bool | None) -> bool:
    if plain is False:
        return True
    return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


def _rich_console() -> Any:
    try:
        from rich.console import Console as RichConsole
    except ModuleNotFoundError:
        return None
    return RichConsole(file=sys.stdout)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
