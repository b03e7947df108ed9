"""Turns of a benchmark are those in which the machine was calm, as long as there are enough of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from benchmarks.noise import Calm


class Scripted(Calm):
    """Calm or not as a list says: before, between and after the two halves of each turn."""

    def __init__(self, calm: Iterable[bool]) -> None:
        self._said = iter(calm)

    def now(self) -> bool:
        return next(self._said)


def turns(calm: str, wanted: int, tries: int) -> list[int]:
    """Which turns are taken; a turn is calm (c), or disturbed before (b), in the middle (m) or after (a)."""
    said = itertools.chain.from_iterable([turn != "b", turn != "m", turn != "a"] for turn in calm)
    ours, theirs = itertools.count(), itertools.count(100)
    taken = list(Scripted(said).turns(lambda: next(ours), lambda: next(theirs), wanted, tries))
    assert all(yours == mine + 100 for mine, yours in taken)
    return [mine for mine, _ in taken]


@pytest.mark.parametrize(
    ("calm", "wanted", "tries", "taken"),
    [
        ("ccc", 2, 5, [0, 1]),
        ("bcmcac", 3, 9, [1, 3, 5]),
        ("bmab", 1, 4, [3]),
        ("cbma", 3, 4, [0, 2, 3]),
        ("b", 1, 1, [0]),
    ],
)
def test_calm_turns_are_taken_and_the_last_ones_where_they_are_few(
    calm: str, wanted: int, tries: int, taken: list[int]
) -> None:
    assert turns(calm, wanted, tries) == taken
