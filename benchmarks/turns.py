"""How engines take the same batches in turns: a position in a stream, and runs of batches from there.

In a turn every engine in its order applies the same run of batches, so that all share the noise of the machine. The
first batch of a size is not counted, nor at sizes 1 and 10 the first ones of each turn (they find the previous engine's
data and code in the caches).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from benchmarks.stream import Batch, Workload

TURN = {1: 250, 10: 20, 100: 5, 1000: 2}  # batches of a turn
WARM_UP = {1: 20, 10: 3}  # batches of each turn that are not counted
TURNS_MAX = 8


class Turns:
    """Where the engines stand in the stream. short: turns of a tenth, for graphs on which one update reaches much."""

    def __init__(self, work: Workload, *, short: bool = False) -> None:
        self.work, self.position = work, 0
        self.turn = {size: max(1, count // 10) for size, count in TURN.items()} if short else TURN

    def has_room(self, size: int) -> bool:
        """Whether the stream holds another turn of this batch size."""
        return self.position + size * (self.turn[size] + WARM_UP.get(size, 1)) <= len(self.work.stream)

    def take(self, size: int, budget_s: float) -> Iterator[tuple[list[Batch], int]]:
        """(batches, how many of them are not counted), turn by turn until budget_s is spent; one at least, for which
        there must be room."""
        begin = time.perf_counter()
        for turn in range(TURNS_MAX):
            skipped = WARM_UP.get(size, 1 if turn == 0 else 0)
            count = self.turn[size] + skipped
            batches = list(self.work.stream.batches(self.position, size, count))
            self.position += size * count
            yield batches, skipped
            if time.perf_counter() - begin > budget_s or not self.has_room(size):
                return


def updates_needed(sizes: Sequence[int], latency_batches: int) -> int:
    """Length of stream that a race may consume."""
    turns = sum(size * (TURN[size] + WARM_UP.get(size, 1)) * TURNS_MAX for size in sizes)
    return turns + 2 * latency_batches
