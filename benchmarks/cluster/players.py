"""Those that take the same batches in turns, a process each: the bare engine, and parts that swap over sockets.

Every turn begins at the snapshot and is taken back after the clock, so that all turns of a run do the same work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import livegnn as lg
from benchmarks.cluster.links import Address, Links, enter_namespace, pin
from benchmarks.cluster.world import ClusterWorld, batch_of, digest_of
from benchmarks.engine.live import timed
from benchmarks.engine.runs import Run, restoring
from benchmarks.engine.stream import to_updates
from benchmarks.worker import Worker
from livegnn.distributed.cluster.batch import SlotBatch
from livegnn.distributed.cluster.part import NewOwners, PartEngine


class Turn(NamedTuple):
    """seconds: of each counted batch.  bytes, rounds: sent by this part in all of them."""

    seconds: Any
    bytes: int
    rounds: int


@dataclass(frozen=True)
class Seat:
    """Where a part runs. delay_s: latency added to every parcel.  near: whether the others are on its host."""

    part: int
    addresses: list[Address]
    core: int | None
    namespace: str = ""
    delay_s: float = 0.0
    near: bool = False
    parts: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", len(self.addresses))


class BareEngine:
    """The engine of the whole graph, one thread."""

    def __init__(self, world: ClusterWorld, core: int | None) -> None:
        pin(core)
        self._work = world.work()
        self._engine = lg.Engine(world.model(), world.graph(), threads=1)

    def play(self, run: Run) -> Turn:
        """One turn."""
        before, counted = (map(self._updates, each) for each in run.batches(self._work))
        timed(self._engine.apply, list(before))
        seconds = timed(self._engine.apply, list(counted))
        self._engine.apply(self._updates(restoring(self._work, run.start, run.stop)))
        return Turn(seconds, 0, 0)

    def digest(self) -> int:
        """What the parts' add up to."""
        return digest_of(self._engine)

    @staticmethod
    def _updates(batch: Any) -> Any:
        return to_updates(lg, batch)


class PlayingPart:
    """One part, one thread."""

    def __init__(self, world: ClusterWorld, seat: Seat) -> None:
        pin(seat.core)
        if seat.namespace:
            enter_namespace(seat.namespace)
        self._work = world.work()
        arrays = world.cut(seat.parts)[seat.part]
        self._none = NewOwners(len(arrays.owners), np.empty(0, np.uint16))
        self._links = Links(seat.part, seat.addresses)
        near = range(seat.parts) if seat.near else ()
        self._part = PartEngine(arrays, world.program(), self._links.swap, near=near)
        self._links.delay_s = seat.delay_s  # the engine's first run is over

    def play(self, run: Run) -> Turn:
        """One turn; all parts play it at the same time."""
        before, counted = (list(map(batch_of, each)) for each in run.batches(self._work))
        timed(self._apply, before)
        first = dict(self._part.halo.counts())
        self._links.meet()
        seconds = timed(self._apply, counted)
        last = dict(self._part.halo.counts())
        self._apply(batch_of(restoring(self._work, run.start, run.stop)))
        return Turn(seconds, last["bytes"] - first["bytes"], last["rounds"] - first["rounds"])

    def round_seconds(self, payload: int, count: int) -> float:
        """Of one round with a parcel of this size to every part."""
        parcels = [bytes(payload)] * (self._links.links.size)
        self._links.meet()
        begin = time.perf_counter()
        for _ in range(count):
            self._links.swap(parcels)
        return (time.perf_counter() - begin) / count

    def digest(self) -> int:
        """This part's share."""
        return int(self._part.digests()[1])

    def _apply(self, batch: SlotBatch) -> None:
        self._part.apply(batch, self._none)


class Players:
    """Worker processes that do the same at the same time."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """What each returned."""
        for worker in self.workers:
            worker.send(method, *arguments)
        return [worker.result() for worker in self.workers]

    def play(self, run: Run) -> Turn:
        """Seconds of each batch are those of the slowest part; bytes those of the part that sent most."""
        turns = self.call("play", run)
        slowest = np.max([turn.seconds for turn in turns], axis=0)
        return Turn(slowest, max(turn.bytes for turn in turns), turns[0].rounds)

    def digest(self) -> int:
        """As one engine's."""
        return sum(self.call("digest")) & (1 << 64) - 1


@contextmanager
def players(world: ClusterWorld, seats: list[Seat]) -> Iterator[Players]:
    """A process for each seat; without seats one with the bare engine, on the first core."""
    with ExitStack() as stack:
        if seats:
            workers = [stack.enter_context(Worker(PlayingPart, world, seat)) for seat in seats]
        else:
            workers = [stack.enter_context(Worker(BareEngine, world, 0))]
        for worker in workers:
            worker.result()
        yield Players(workers)


def local_seats(parts: int, folder: str, cores: list[int], label: str, *, near: bool = True) -> list[Seat]:
    """Parts on this machine, over Unix sockets. near: whether they know that they are on one."""
    addresses: list[Address] = [str(Path(folder) / f"{label}-{part}") for part in range(parts)]
    return [Seat(part, addresses, cores[part % len(cores)], near=near) for part in range(parts)]
