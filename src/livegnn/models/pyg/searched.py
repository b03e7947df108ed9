"""The features' width of a module that runs with none that its layers state, found by running it.

Such a module reads parameters of its own, or a first layer that is given several rows side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torch import nn

from livegnn.models.pyg.check import Columns, runs
from livegnn.models.pyg.signature import Signature

_WIDEST = 256  # of the widths that no layer has anything to do with


def searched_width(module: nn.Module, signature: Signature, columns: Columns, stated: list[int]) -> int | None:
    """The only width with which the module runs on a small graph; None where it runs with none or with several."""

    def running(width: int) -> bool:
        return runs(module, signature, dataclasses.replace(columns, widths=(width,)))

    found = next((width for width in _likely(module, stated) if running(width)), None)
    others = [] if found is None else [found + 1, 2 * found + 1, max(1, found - 1)]
    return None if any(width != found and running(width) for width in others) else found


def _likely(module: nn.Module, stated: list[int]) -> Iterator[int]:
    """Widths to try: parts and differences of those that are stated, those of parameters, and all up to a limit."""
    parameters = [extent for each in module.parameters() for extent in each.shape]
    parts = [width // count for width in stated for count in range(2, 9) if width % count == 0]
    differences = [a - b for a in stated for b in stated if a > b]
    yield from dict.fromkeys(each for each in (*parts, *differences, *parameters, *range(1, _WIDEST + 1)) if each > 0)
