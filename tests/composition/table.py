"""The table: parts, columns, and the cells that are open. docs/composition.md is written from it:

python -m tests.composition.table > docs/composition.md
"""

from __future__ import annotations

from typing import NamedTuple

from livegnn import errors
from tests.composition import engines
from tests.composition.world import Setting

COLUMNS = {
    "typed graph": Setting(typed=True),
    "`ids=`": Setting(named=True),
    "edge weight, time, attributes": Setting(columns=True),
    "edges in files": Setting(away=True),
    "16-bit features": Setting(half=True),
    "log, with swaps and rescales": Setting(logged=True),
    "Readout, edge scores": Setting(read=True),
    "typed, `ids=`, edge columns, 16 bits, Readout": Setting(
        typed=True, named=True, columns=True, half=True, read=True
    ),
}
ROWS = {**engines.ROWS}


class Open(NamedTuple):
    """A cell that does not work: the error that its test raises, and why."""

    error: type[Exception]
    why: str


FILES = Open(errors.UsageError, "an engine reads whole lists of edges, so `offload` is refused while one is attached")
OPEN = {
    **{(row, "edges in files"): FILES for row in engines.ROWS},
}


def page() -> str:
    """The text of docs/composition.md."""
    reasons = list(dict.fromkeys(OPEN.values()))
    lines = [
        "# Every part with every other",
        "",
        "Each cell is a test in `tests/composition`. After every random batch it compares the part's answers with PyG,",
        "run on a copy of the graph that the test keeps itself, and with a run from scratch.",
        "A number marks a cell that does not work; its test shows how.",
        "",
        "| | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for row in ROWS:
        cells = [f"no ({reasons.index(OPEN[row, c]) + 1})" if (row, c) in OPEN else "yes" for c in COLUMNS]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {reason.why}." for number, reason in enumerate(reasons, 1)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
