"""Coordinator: puts batches and changes of maps in one order of steps, and says which workers are to run.

It keeps nothing of its own: it reads the steps, the tail of the history and how far workers are. It appends with the
offset that it expects, so that of two coordinators one is refused, reads on and decides anew: one order of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from livegnn import _native
from livegnn.errors import LogConflict, UsageError
from livegnn.graph import Graph
from livegnn.sampling.cluster.checkpoints import Checkpoints
from livegnn.sampling.cluster.messages import Batches, Checkpoint, Move, Serve, Step, decode, encode
from livegnn.sampling.cluster.partition import (
    Owners,
    PartitionState,
    Serving,
    check_owners,
    check_serving,
    join,
    split,
    start_state,
    workers_in,
)
from livegnn.sampling.cluster.runtime import Clock, ClusterLogs, Settings
from livegnn.sampling.cluster.spec import ClusterSpec

Who: TypeAlias = tuple[str, int]  # role and number of a worker


class Hosts(Protocol):
    """Where workers run: Ray, or a simulation. A worker that dies or hangs is started again there, from its checkpoint
    and under the same number, until it is stopped."""

    def start(self, role: str, worker: int) -> None:
        """Hosts a worker of this number; it starts from its latest checkpoint. Nothing if it is hosted already."""

    def stop(self, role: str, worker: int) -> None:
        """Ends it, and hosts it no longer."""

    def progress(self) -> Mapping[Who, int | None]:
        """The hosted workers: the next step of each one, None where it has not said. May be late, never early."""


def write_start(spec: ClusterSpec, graph: Graph, owners: Owners, checkpoints: Checkpoints) -> None:
    """Writes the first states of all sampling workers: the graph as it is, cut by `owners`.

    The history that the workers follow goes on from graph.version.

    Raises:  UsageError for a graph with edges in files.
    """
    for worker, state in enumerate(split(spec, start_state(spec, graph), owners)):
        checkpoints.write("sampling", worker, state)


class Coordinator:
    """One turn() after another keeps a cluster going.

    Args:    hosts: run the workers.  clock: ms.
    Raises:  UsageError without start states; StoredStateInvalid for a steps log that cannot be read.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        logs: ClusterLogs,
        checkpoints: Checkpoints,
        hosts: Hosts,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.spec = spec
        self.serving: Serving = np.zeros(_native.BUCKETS, np.uint64)
        self._logs, self._checkpoints, self._hosts = logs, checkpoints, hosts
        self._settings, self._clock = settings, clock
        first = checkpoints.read("sampling", 0)
        if not isinstance(first, PartitionState):
            raise UsageError("[coordinator] expected start states, got none; call write_start first")
        self.owners = first.owners  # and then as the moves among the steps say
        self._last = first.offset  # of the history, up to where it is in the steps
        self.step = 0  # the next one: how many are put in order
        self._since_checkpoint = 0
        self._moving: Move | None = None  # until the new partitions are there
        self._hosted: dict[Who, int | None] = {}  # and the next step of each
        self._left: dict[int, int] = {}  # serving worker -> the step with which it left last
        self._target: tuple[Serving, int] | None = None  # a map, and the step that its workers must have reached
        self._catch_up()
        self._target = None
        self.routed = self.serving  # the map that front ends are to go by

    # ---- what it is asked for

    def serve(self, serving: Serving) -> None:
        """Gives buckets to other serving workers: new owners are filled, then `routed` changes, then old owners drop.

        Raises:  UsageError for a bucket without an owner, or while sampling workers are moving.
        """
        check_serving("serve", serving)
        while (serving & ~self.serving).any():
            self._serve(serving | self.serving)
        self._target = serving, self.step

    def refill(self, worker: int) -> None:
        """Has a serving worker sent everything anew, as after the loss of its tables: it leaves and comes back."""
        bit = np.uint64(1 << worker)
        mine = self.serving & bit
        while (self.serving & bit).any():
            mine = self.serving & bit
            self._serve(self.serving & ~bit)
        while (mine & ~self.serving).any():
            self._serve(self.serving | mine)
        self._target = self.serving, self.step

    def move(self, owners: Owners) -> None:
        """Gives buckets to other sampling workers, whose number may change. Raises: UsageError for gaps."""
        check_owners("move", owners)
        self._require_no_move()
        while not self._append(Move(self.step, int(self._clock()), owners)):
            self._require_no_move()

    def checkpoint(self) -> None:
        """Has every worker write its state. Raises: UsageError while sampling workers are moving."""
        self._require_no_move()
        while not self._append(Checkpoint(self.step, int(self._clock()))):
            self._require_no_move()

    @property
    def is_moving(self) -> bool:
        """Whether buckets are on their way between sampling workers; no step comes before they have arrived."""
        return self._moving is not None

    # ---- a turn

    def turn(self) -> bool:
        """Does what there is to do, without waiting; whether there was anything."""
        self._catch_up()
        self._hosted = dict(self._hosts.progress())
        return self._finish_move() | self._finish_serve() | self._order_batches() | self._host_wanted()

    def _serve(self, masks: Serving) -> bool:
        self._require_no_move()
        return self._append(Serve(self.step, int(self._clock()), masks.copy()))

    def _require_no_move(self) -> None:
        if self._moving is not None:
            raise UsageError("[coordinator] expected no move under way, got one; try again when it is done")

    def _append(self, step: Step) -> bool:
        """Appends the next step, unless another coordinator had one: then that is read, and this one is out of date."""
        try:
            self._logs.log("steps").append(encode(step), expect=step.step)
        except LogConflict:
            self._catch_up()
            return False
        self._catch_up()
        return True

    def _catch_up(self) -> None:
        for entry in self._logs.log("steps").read(self.step):
            step = decode(entry.payload)
            if self._moving is not None:  # a step after a move: it is done
                self.owners, self._moving = self._moving.owners, None
            self.step = entry.offset + 1
            self._since_checkpoint += 1
            if isinstance(step, Batches):
                self._last = max(self._last, step.last)
            elif isinstance(step, Serve):
                left = set(workers_in(self.serving)) - set(workers_in(step.serving))
                self._left.update(dict.fromkeys(left, step.step))
                self.serving = step.serving
                if self._target is None or (self._target[0] & ~step.serving).any():  # of another coordinator
                    self._target = step.serving, self.step
            elif isinstance(step, Move):
                self._moving = step
            elif isinstance(step, Checkpoint):
                self._since_checkpoint = 0

    def _order_batches(self) -> bool:
        slowest = min((at or 0 for who, at in self._hosted.items() if who[0] == "sampling"), default=self.step)
        if self.step - slowest > self._settings.steps_ahead_max or self._moving is not None:
            return False
        tail = self._logs.history.tail
        ordered = False
        if tail > self._last:
            last = min(tail, self._last + self._settings.step_batches_max)
            ordered = self._append(Batches(self.step, last, int(self._clock())))
        if self._moving is None and self._since_checkpoint >= self._settings.checkpoint_steps:
            ordered |= self._append(Checkpoint(self.step, int(self._clock())))
        return ordered

    # ---- workers

    def _workers(self) -> list[Who]:
        serving = [("serving", number) for number in workers_in(self.serving)]
        return [("sampling", number) for number in range(int(self.owners.max()) + 1)] + serving

    def _host_wanted(self) -> bool:
        """Starts wanted workers that are not hosted, and stops others; whether there were any."""
        wanted = self._workers()
        missing = [who for who in wanted if who not in self._hosted]
        for who in missing:
            self._hosts.start(*who)
        for who, at in self._hosted.items():
            has_to_drop = who[0] == "serving" and (at or 0) <= self._left.get(who[1], -1)  # what it holds
            if who not in wanted and not has_to_drop:
                self._hosts.stop(*who)
        return bool(missing)

    def _finish_serve(self) -> bool:
        """Once all new owners are filled: front ends turn to them, and a turn later the old ones drop theirs."""
        if self._target is None or self._moving is not None:
            return False
        serving, step = self._target
        if any((self._hosted.get(("serving", number)) or -1) < step for number in workers_in(serving)):
            return False
        if not np.array_equal(serving, self.routed):
            self.routed = serving  # the caller updates front ends before the next turn
            return True
        if np.array_equal(serving, self.serving) or self._serve(serving):
            self._target = None
        return True

    @property
    def is_moving_seeds(self) -> bool:
        """Whether serving workers are still being filled for a new map."""
        return self._target is not None

    def _finish_move(self) -> bool:
        """Once every sampling worker has come to the end of a move: cuts their states anew, for others to start from.

        Doing it twice does no harm: the new states are a function of the old ones, and no worker goes on from them
        before there is another step.
        """
        move = self._moving
        if move is None:
            return False
        after = move.step + 1
        one = self._checkpoints.read("moved", 0, after)
        if not isinstance(one, PartitionState):
            return False
        states = [self._checkpoints.read("moved", worker, after) for worker in range(int(one.owners.max()) + 1)]
        parts = [state for state in states if isinstance(state, PartitionState)]
        if len(parts) < len(states):
            return False
        for worker, part in enumerate(split(self.spec, join(parts), move.owners)):
            inbox = parts[worker].inbox if worker < len(parts) else 0
            self._checkpoints.write("sampling", worker, replace(part, inbox=inbox))
        for who in [who for who in self._hosted if who[0] == "sampling"]:
            self._hosts.stop(*who)
            del self._hosted[who]
        self.owners, self._moving = move.owners, None
        return True
