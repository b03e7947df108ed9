"""How engines take the same batches in turns: a position in a stream, and runs of batches from there.

In a turn every engine in its order applies the same run of batches, so that all share the noise of the machine. The
first batches of each turn are not counted: they find the previous engine's data and code in the caches, and on a
virtual machine whose host keeps page tables of its own, the memory that an engine had before the others' turns has to
be mapped again, which takes as long as a turn of small batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from benchmarks.engine.stream import Batch, Workload

TURN = {1: 250, 10: 20, 100: 5, 1000: 2}  # batches of a turn
WARM_UP = {1: 150, 10: 15, 100: 2, 1000: 1}  # batches of each turn that are not counted
TURNS_MAX = 8


class Turns:
    """Where the engines stand in the stream. short: turns of a tenth, for graphs on which one update reaches much."""

    def __init__(self, work: Workload, *, short: bool = False) -> None:
        self.work, self.position = work, 0
        self.turn, self.warm_up = (_tenths(TURN), _tenths(WARM_UP)) if short else (TURN, WARM_UP)

    def has_room(self, size: int) -> bool:
        """Whether the stream holds another turn of this batch size."""
        return self.position + size * (self.turn[size] + self.warm_up[size]) <= len(self.work.stream)

    def take(self, size: int, budget_s: float) -> Iterator[tuple[list[Batch], int]]:
        """(batches, how many of them are not counted), turn by turn until budget_s is spent; one at least, for which
        there must be room."""
        begin = time.perf_counter()
        for _ in range(TURNS_MAX):
            skipped = self.warm_up[size]
            count = self.turn[size] + skipped
            batches = list(self.work.stream.batches(self.position, size, count))
            self.position += size * count
            yield batches, skipped
            if time.perf_counter() - begin > budget_s or not self.has_room(size):
                return


def updates_needed(sizes: Sequence[int], latency_batches: int) -> int:
    """Length of stream that a race may consume."""
    turns = sum(size * (TURN[size] + WARM_UP[size]) * TURNS_MAX for size in sizes)
    return turns + 2 * latency_batches


def _tenths(counts: dict[int, int]) -> dict[int, int]:
    return {size: max(1, count // 10) for size, count in counts.items()}
