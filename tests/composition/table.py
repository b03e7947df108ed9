"""The table: parts, columns, and the cells that are open. docs/composition.md is written from it:

python -m tests.composition.table > docs/composition.md
"""

from __future__ import annotations

from typing import NamedTuple

from tests.composition import distributed, engines, samplers, temporal
from tests.composition.world import Setting

COLUMNS = {
    "typed graph": Setting(typed=True),
    "`ids=`": Setting(named=True),
    "edge weight, time, attributes": Setting(columns=True),
    "edges in files": Setting(away=True),
    "16-bit features": Setting(half=True),
    "`ttl=`": Setting(expires=True),
    "log": Setting(logged=True),
    "log, with swaps and rescales": Setting(logged=True, swapped=True),
    "Readout, edge scores": Setting(read=True),
    "typed, `ids=`, edge columns, 16 bits, Readout": Setting(
        typed=True, named=True, columns=True, half=True, read=True
    ),
    "typed, `ids=`, edge columns, `ttl=`, log": Setting(
        typed=True, named=True, columns=True, expires=True, logged=True
    ),
    "typed, `ids=`, edge columns, 16 bits, files, log": Setting(
        typed=True, named=True, columns=True, half=True, away=True, logged=True
    ),
}
ROWS = {**engines.ROWS, **samplers.ROWS, **temporal.ROWS, **distributed.ROWS}
OF_ENGINES = [column for column, setting in COLUMNS.items() if setting.swapped or setting.read]
CELLS = [(row, column) for row in ROWS for column in COLUMNS if row in engines.ROWS or column not in OF_ENGINES]


class Open(NamedTuple):
    """A cell that does not work: the error that its test raises, what it says, and why."""

    error: type[Exception]
    match: str
    why: str


OPEN: dict[tuple[str, str], Open] = {}


def cell(row: str, column: str, reasons: list[Open]) -> str:
    """yes, no (with the number of its reason), or a dash for what the part does not have."""
    if (row, column) in OPEN:
        return f"no ({reasons.index(OPEN[row, column]) + 1})"
    return "yes" if (row, column) in CELLS else "–"


def page() -> str:
    """The text of docs/composition.md."""
    reasons = list(dict.fromkeys(OPEN.values()))
    lines = [
        "# Every part with every other",
        "",
        "Each cell is a test in `tests/composition`. After every random batch it compares the part's answers with a",
        "run from scratch and with PyG (samplers: with a scan in NumPy). PyG runs on a copy of the graph that the test",
        "keeps itself. A temporal training or engine is compared with the same one on the graph in its plainest form.",
        "That form has no types, ids or weights, all edges in memory and features of 32 bits.",
        *(["A number marks a cell that does not work; its test shows how."] if reasons else []),
        "",
        "| | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for row in ROWS:
        lines.append(f"| {row} | " + " | ".join(cell(row, column, reasons) for column in COLUMNS) + " |")
    if reasons:
        lines += ["", *(f"{number}. {reason.why}." for number, reason in enumerate(reasons, 1))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
