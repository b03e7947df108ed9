"""All parts in one process, a thread each: parcels change hands at a barrier. For counts, not for speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from benchmarks.cluster.world import ClusterWorld
from livegnn.distributed.cluster.batch import SlotBatch
from livegnn.distributed.cluster.part import NewOwners, PartEngine

T = TypeVar("T")
_WORD = (1 << 64) - 1


class BarrierNetwork:
    """Where the threads meet. It knows no part: a part keeps its swap for ever, and is to go when it is let go.

    at_once: how many of them run at the same time.
    """

    def __init__(self, parts: int, at_once: int) -> None:
        self._box: list[list[bytes]] = [[] for _ in range(parts)]
        self.barrier = threading.Barrier(parts)
        self.turns = threading.Semaphore(at_once)

    def swap_of(self, part: int) -> Callable[[list[bytes]], list[bytes]]:
        """What a part sends through."""

        def swap(parcels: list[bytes]) -> list[bytes]:
            self._box[part] = parcels
            self.turns.release()
            try:
                self.barrier.wait()
                got = [b"" if sender == part else sent[part] for sender, sent in enumerate(self._box)]
                self.barrier.wait()
            finally:
                self.turns.acquire()
            return got

        return swap


class Together:
    """The parts of a world's graph. one_at_a_time: so that they do not slow each other down."""

    def __init__(self, world: ClusterWorld, parts: int, *, one_at_a_time: bool = False) -> None:
        self.count = parts
        self._network = BarrierNetwork(parts, 1 if one_at_a_time else parts)
        program = world.program()
        arrays = world.cut(parts)
        self._none = NewOwners(len(arrays[0].owners), np.empty(0, np.uint16))
        self.parts = self._each(lambda i: PartEngine(arrays[i], program, self._network.swap_of(i)))

    def apply(self, batch: SlotBatch) -> tuple[list[float], int]:
        """Seconds of processor time by part, and the edges that all parts worked along."""

        def one(part: int) -> tuple[float, int]:
            begin = time.thread_time()
            changes = self.parts[part].apply(batch, self._none)
            return time.thread_time() - begin, sum(stage["edges"] for stage in changes.to_native().stages())

        found = self._each(one)
        return [seconds for seconds, _ in found], sum(edges for _, edges in found)

    def counts(self) -> dict[str, int]:
        """What all parts have sent since they were made; rounds are one part's."""
        each = [dict(part.halo.counts()) for part in self.parts]
        return {name: sum(c[name] for c in each) if name != "rounds" else each[0][name] for name in each[0]}

    def digest(self) -> int:
        """As one engine's."""
        return sum(part.digests()[1] for part in self.parts) & _WORD

    def _each(self, work: Callable[[int], T]) -> list[T]:
        found: dict[int, T] = {}
        failed: list[BaseException] = []

        def run(part: int) -> None:
            try:
                with self._network.turns:
                    found[part] = work(part)
            except BaseException as error:
                failed.append(error)
                self._network.barrier.abort()

        threads = [threading.Thread(target=run, args=(part,)) for part in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
        return [found[part] for part in range(self.count)]
