"""SimulatedNetwork: parts of a cluster in one process, on a wire that loses, doubles and reorders; all by one seed.

Parts are threads, since a round is a call that waits; but only one of them runs at a time, and which one, and what the
wire does before, is drawn from the seed. So a failure comes again with its seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from livegnn.distributed.cluster.part import Swap
from livegnn.errors import WorkerUnavailable
from tests.simulation.round_machine import RoundMachine, WireFrame

T = TypeVar("T")


@dataclass(frozen=True)
class WireFaults:
    """Chances, for each frame that the wire holds: that it is lost, comes twice, or is sent again too early.

    break_after: rounds of all parts together, from the start of the network, after which the wire is broken.
    """

    lost: float = 0.2
    doubled: float = 0.1
    early: float = 0.05
    break_after: int | None = None


class _SteppedPart(Generic[T]):
    """A thread that runs only between resume() and its next wait."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.result: T | None = None
        self.error: BaseException | None = None
        self.ended = self.waits = False
        self.broken = False  # its wait ends with an error
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.result = self._work()
        except BaseException as error:  # the caller of SimulatedNetwork.run has it
            self.error = error
        self.ended = True
        self._stopped.release()

    def wait(self) -> None:
        """Called by the part: until it is resumed."""
        self.waits = True
        self._stopped.release()
        self._go.acquire()
        self.waits = False

    def resume(self) -> None:
        """Lets the part run until it waits again, or has ended."""
        self._go.release()
        self._stopped.acquire()
        if self.ended:
            self._thread.join()


class SimulatedNetwork:
    """The wire between `size` parts. counts: of frames that were lost, doubled, sent again and delivered."""

    def __init__(self, size: int, seed: int, faults: WireFaults | None = None) -> None:
        self.size, self.faults = size, WireFaults() if faults is None else faults
        self.counts = {"lost": 0, "doubled": 0, "again": 0, "delivered": 0, "ahead": 0}
        self.rounds = 0  # that were ended, by any part
        self._random = random.Random(seed)
        self._wire: list[WireFrame] = []
        self._parts: list[_SteppedPart[object]] = []
        self._life = 0
        self._machines = [RoundMachine(size, rank) for rank in range(size)]

    def swap(self, rank: int) -> Swap:
        """What PartEngine calls for a round; within run() alone."""

        def one_round(parcels: list[bytes]) -> list[bytes]:
            self._wire += self._machines[rank].begin(parcels)
            part = self._parts[rank]
            part.wait()
            if part.broken:
                raise WorkerUnavailable(f"[simulated] part {rank}: expected a round of all parts, got a broken wire")
            self.rounds += 1
            return self._machines[rank].end()

        return one_round

    def renew(self) -> None:
        """A new wire between all parts, as after the loss of one; what lies on the old one may still come."""
        self._life += 1
        self._machines = [RoundMachine(self.size, rank, self._life) for rank in range(self.size)]
        self.faults = WireFaults(self.faults.lost, self.faults.doubled, self.faults.early)

    def run(self, works: Sequence[Callable[[], T]]) -> list[T | BaseException]:
        """Runs work i as part i, all to their end. Returns: what each returned or raised.

        A part that waits for a round that another part never makes gets WorkerUnavailable.
        """
        parts = [_SteppedPart(work) for work in works]
        self._parts = list(parts)  # type: ignore[arg-type]  # results are of no concern to the wire
        ready = self._ready(parts)
        while not all(part.ended for part in parts):
            if ready and (not self._wire or self._random.random() < 0.5):
                parts[self._random.choice(ready)].resume()
                ready = self._ready(parts)
            elif self._wire:
                if self._move_one():
                    ready = self._ready(parts)
            elif lost := [frame for machine in self._machines for frame in machine.again()]:
                self.counts["again"] += len(lost)
                self._wire += lost
            else:
                self._break(parts)
                ready = self._ready(parts)
        return [part.error if part.error is not None else part.result for part in parts]  # type: ignore[misc]

    def _ready(self, parts: Sequence[_SteppedPart[T]]) -> list[int]:
        return [rank for rank, part in enumerate(parts) if self._may_run(rank, part)]

    def _may_run(self, rank: int, part: _SteppedPart[T]) -> bool:
        if part.ended:
            return False
        if part.waits and self.faults.break_after is not None and self.rounds >= self.faults.break_after:
            part.broken = True
        return not part.waits or part.broken or self._machines[rank].is_complete

    def _move_one(self) -> bool:
        """One thing happens on the wire, to one of its frames. Returns: whether a part has all of its round now."""
        place = self._random.randrange(len(self._wire))
        frame, chance = self._wire[place], self._random.random()
        self._wire[place] = self._wire[-1]
        self._wire.pop()
        faults, machine = self.faults, self._machines[frame.to]
        if chance < faults.lost:
            self.counts["lost"] += 1
            return False
        if chance < faults.lost + faults.doubled:
            self.counts["doubled"] += 1
            self._wire.append(frame)
        if self._random.random() < faults.early:
            self._wire += self._machines[frame.sender].again()[:1]
        self.counts["delivered"] += 1
        self.counts["ahead"] += frame.parcel is not None and frame.round > machine.round
        self._wire += machine.take(frame)
        return machine.is_complete

    @staticmethod
    def _break(parts: Sequence[_SteppedPart[T]]) -> None:
        """All that could come has come, and the parts that are left wait for one that has ended."""
        for part in parts:
            part.broken = part.waits
