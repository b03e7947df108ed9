"""A cluster on simulated logs, clock and processes: one random number decides all, so a failure replays from its seed.

What a worker sends lies in the network first, and is delivered later, in any order between senders, at times twice. A
crash comes in the middle of a turn, before or after something was written; the log, the network and the checkpoints
survive it, the worker's memory does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from livegnn.log import ByteLog, UpdateLog
from livegnn.sampling.cluster.coordinator import Coordinator, write_start
from livegnn.sampling.cluster.messages import decode, encode
from livegnn.sampling.cluster.partition import Owners
from livegnn.sampling.cluster.runtime import ClusterLogs, SamplingLoop, ServingLoop, Settings
from livegnn.sampling.cluster.spec import ClusterSpec

SETTINGS = Settings(checkpoint_steps=3, step_batches_max=3, steps_ahead_max=2)


class Crash(Exception):
    """The end of a simulated process."""


class MemoryLog(ByteLog):
    """A log in a list, which the caller keeps."""

    def __init__(self, name: str, frames: list[tuple[str, bytes]], may_crash: Callable[[], None]) -> None:
        super().__init__(name)
        self.frames, self.may_crash = frames, may_crash

    def _tail(self) -> int:
        return len(self.frames)

    def _committed(self) -> int:
        return len(self.frames) - 1

    def _find(self, key: str, tail: int) -> int | None:
        return next((place for place in range(tail) if self.frames[place][0] == key), None)

    def _put(self, offset: int, key: str, framed: bytes) -> int | None:
        if offset != len(self.frames):
            return None
        self.may_crash()
        self.frames.append((key, framed))
        self.may_crash()
        return offset

    def _frames(self, first: int, last: int) -> list[bytes]:
        return [framed for _, framed in self.frames[first:last]]

    def _first(self) -> int:
        return 0

    def _release(self, first: int, before: int) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        pass


class StepsLog(MemoryLog):
    """The steps as a coordinator sees them: what others do just before it appends decides who comes first."""

    def __init__(self, world: World) -> None:
        super().__init__("steps", world.storage.setdefault("steps", []), world.may_crash)
        self.world = world

    def append(self, payload: bytes, *, key: str | None = None, expect: int | None = None) -> int:
        self.world.before_step()
        return super().append(payload, key=key, expect=expect)


class InboxLog:
    """An inbox behind a network: what is appended arrives when the world delivers it."""

    def __init__(self, world: World, log: MemoryLog) -> None:
        self.world, self.log = world, log

    def append(self, payload: bytes, *, key: str | None = None) -> int:
        self.world.may_crash()
        self.world.network.append((self.log, payload))
        self.world.may_crash()
        return -1

    def read(self, from_offset: int = 0, limit: int | None = None) -> Any:
        return self.log.read(from_offset, limit)


class World:
    """Everything that survives a crash, and the workers that do not.

    Args:    rivals: coordinators beside the first, which know nothing of each other.
    """

    def __init__(self, seed: int, spec: ClusterSpec, graph: Any, owners: Owners, *, rivals: int = 0) -> None:
        self.random, self.spec = random.Random(seed), spec
        self.now = 0.0
        self.bomb: int | None = None
        self.network: list[tuple[MemoryLog, bytes]] = []
        self.storage: dict[str, list[tuple[str, bytes]]] = {}
        self.files: dict[tuple[str, int], dict[int, bytes]] = {}
        self.hosted: dict[tuple[str, int], int | None] = {}  # and the step that its host has last heard of
        self.loops: dict[tuple[str, int], SamplingLoop | ServingLoop] = {}  # those of them that are up
        self.coordinators: list[Coordinator | None] = [None] * (1 + rivals)
        self.turning: int | None = None  # the coordinator whose turn it is
        self.conflicts = 0
        self.crashes = 0
        write_start(spec, graph, owners, self)

    # ---- logs, files, processes

    def logs(self) -> ClusterLogs:
        return ClusterLogs(UpdateLog(self.memory("history")), self.open)

    def memory(self, name: str) -> MemoryLog:
        return MemoryLog(name, self.storage.setdefault(name, []), self.may_crash)

    def open(self, name: str) -> Any:
        if name == "steps":
            return StepsLog(self)
        return InboxLog(self, self.memory(name))

    def write(self, role: str, worker: int, state: Any) -> None:
        self.may_crash()
        step = state.push.step + 1 if role == "serving" else state.step
        self.files.setdefault((role, worker), {})[step] = encode(state)
        self.may_crash()

    def read(self, role: str, worker: int, step: int | None = None) -> Any:
        found = self.files.get((role, worker), {})
        wanted = max(found, default=None) if step is None else step
        return None if wanted not in found else decode(found[wanted])

    def start(self, role: str, worker: int) -> None:
        self.hosted.setdefault((role, worker))

    def stop(self, role: str, worker: int) -> None:
        self.hosted.pop((role, worker), None)
        self.loops.pop((role, worker), None)

    def progress(self) -> dict[tuple[str, int], int | None]:
        """Of some it is known late; of one that fell it may be that of before."""
        for who in sorted(self.hosted):
            if who in self.loops and self.random.random() < 0.8:
                self.hosted[who] = self.loops[who].worker.step
        return self.hosted

    def raise_one(self) -> None:
        """A hosted worker that is down comes up, sooner or later."""
        down = sorted(set(self.hosted) - set(self.loops))
        if down and self.random.random() < 0.3:
            role, worker = self.random.choice(down)
            kind = SamplingLoop if role == "sampling" else ServingLoop
            self.loops[role, worker] = kind(self.spec, worker, self.logs(), self, self.clock)

    def clock(self) -> float:
        return self.now

    def may_crash(self) -> None:
        if self.bomb is not None:
            self.bomb -= 1
            if self.bomb < 0:
                raise Crash

    def before_step(self) -> None:
        """A rival may take its turn between another's decision and its append."""
        others = [number for number in range(len(self.coordinators)) if number != self.turning]
        if self.turning is None or not others or self.random.random() < 0.3:
            return
        turning, bomb, before = self.turning, self.bomb, len(self.storage["steps"])
        self.turning = self.bomb = None  # a rival's turn is not cut into again
        self.coordinate(self.random.choice(others)).turn()
        self.turning, self.bomb = turning, bomb
        self.conflicts += len(self.storage["steps"]) > before

    # ---- time goes on

    def event(self, crashes: bool) -> None:
        """One thing happens."""
        self.now += self.random.randint(0, 30)
        self.raise_one()
        choice = self.random.random()
        if self.network and choice < 0.5:
            log, payload = self.network.pop(self.random.randrange(len(self.network)))
            for _ in range(2 if self.random.random() < 0.2 else 1):
                log.append(payload)
        elif choice < 0.6 or not self.loops:
            self.run(None, crashes)
        else:
            self.run(self.random.choice(sorted(self.loops)), crashes)

    def run(self, who: tuple[str, int] | None, crashes: bool) -> None:
        """A turn of a worker, or of the coordinator; it may be its last."""
        self.bomb = self.random.randrange(6) if crashes and self.random.random() < 0.15 else None
        number = self.random.randrange(len(self.coordinators)) if len(self.coordinators) > 1 else 0
        try:
            if who is None:
                coordinator = self.coordinate(number)
                self.turning, routed = number, coordinator.routed
                coordinator.turn()
                if len(self.coordinators) == 1:  # whom front ends may have asked during this turn has dropped nothing
                    assert not (routed & ~coordinator.serving).any()
            else:
                self.loops[who].turn()
        except Crash:
            self.crashes += 1
            if who is None:
                self.coordinators[number] = None
            else:
                self.loops.pop(who, None)
        self.bomb = self.turning = None

    def coordinate(self, number: int = 0) -> Coordinator:
        """A coordinator, a new one after a crash."""
        found = self.coordinators[number]
        if found is None:
            found = Coordinator(self.spec, self.logs(), self, self, SETTINGS, self.clock)
            self.coordinators[number] = found
        return found

    def settle(self) -> None:
        """Without further crashes, until everybody has everything."""
        for _ in range(40_000):
            self.event(crashes=False)
            if not self.network and self.random.random() < 0.05 and self.is_settled():
                return
        raise AssertionError(f"not settled: {self.steps()}")

    def is_settled(self) -> bool:
        every = [self.coordinate(number) for number in range(len(self.coordinators))]
        if any(each.is_moving or each.is_moving_seeds for each in every):
            return False
        if len({each.step for each in every}) > 1:
            return False
        coordinator = every[0]
        tail = len(self.storage.get("history", []))
        wanted = coordinator._workers()
        steps = {who: loop.worker.step for who, loop in self.loops.items()}
        done = all(steps.get(who) == coordinator.step for who in wanted)
        return done and all(self.loops[who].worker.spec is self.spec for who in wanted) and coordinator._last == tail

    def steps(self) -> dict[Any, Any]:
        return {who: loop.worker.step for who, loop in self.loops.items()} | {"steps": self.coordinate().step}
