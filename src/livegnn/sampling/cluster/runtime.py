"""Workers over logs: each turn() takes what has arrived and says what is to be said.

Logs of a cluster, by name:  history (batches)  steps  sampling-<i>  serving-<j> (inboxes)

The entry at offset k of `steps` is step k. Appends carry keys, so a worker that starts again and repeats itself leaves
no second entry while the log knows the key; receivers drop what slips through. Time, logs and files come in as
arguments: tests run the same loops on simulated ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from livegnn import _native
from livegnn.errors import StoredStateInvalid, UpdateError, UsageError
from livegnn.graph import Updates
from livegnn.log import ByteLog, UpdateLog
from livegnn.sampling.cluster.checkpoints import Checkpoints, Stored
from livegnn.sampling.cluster.messages import (
    Batches,
    Checkpoint,
    CountChanges,
    Message,
    Move,
    Part,
    Push,
    Served,
    Step,
    decode,
    encode,
)
from livegnn.sampling.cluster.partition import PartitionState
from livegnn.sampling.cluster.sampling_worker import SamplingWorker
from livegnn.sampling.cluster.serving_worker import ServingWorker, Tables
from livegnn.sampling.cluster.spec import ClusterSpec

Clock: TypeAlias = Callable[[], float]  # ms

ROLES = ("sampling", "serving")
Name: TypeAlias = tuple[int, int, int]  # step, hop or 0, sender
Worker = TypeVar("Worker", bound=SamplingWorker | ServingWorker)

_ENTRIES_A_TURN = 64
_ENTRY_BYTES_MAX = 512 * 1024


class Settings(NamedTuple):
    """How the coordinator makes steps.

    checkpoint_steps: between two checkpoints.  step_batches_max: entries of the history in one step.  steps_ahead_max:
    steps that the slowest sampling worker may lie behind before new batches are held back, to be taken in larger steps.
    """

    checkpoint_steps: int = 1000
    step_batches_max: int = 256
    steps_ahead_max: int = 8


class WorkerParts(NamedTuple):
    """What a worker has of its host.

    threads: of a sampling worker, for large batches.  tables: of a serving worker; native memory unless given.
    """

    threads: int = 1
    tables: Tables | None = None


class ClusterLogs:
    """The logs of a cluster, opened by name when first used.

    Args:    history: the batches that a graph accepted.  open_log: the log of a name.
    """

    def __init__(self, history: UpdateLog, open_log: Callable[[str], ByteLog]) -> None:
        self.history, self._open = history, open_log
        self._opened: dict[str, ByteLog] = {}

    def log(self, name: str) -> ByteLog:
        """The log of that name."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def send(self, message: CountChanges | Push) -> None:
        """Appends a message to the inbox of its receiver, in parts where it is large."""
        sender, step, hop = message.sender, message.step, message.hop if isinstance(message, CountChanges) else 0
        inbox = self.log(f"serving-{message.receiver}" if isinstance(message, Push) else f"sampling-{message.receiver}")
        payload = encode(message)
        if len(payload) <= _ENTRY_BYTES_MAX:
            inbox.append(payload, key=f"{sender}.{step}.{hop}")
            return
        contents = [payload[first : first + _ENTRY_BYTES_MAX] for first in range(0, len(payload), _ENTRY_BYTES_MAX)]
        for place, content in enumerate(contents):
            part = Part(sender, step, hop, place, len(contents), np.frombuffer(content, np.uint8))
            inbox.append(encode(part), key=f"{sender}.{step}.{hop}.{place}")

    def step(self, number: int) -> Step | None:
        """The step of that number, if it is there."""
        steps = self.log("steps")
        for entry in steps.read(number, 1):
            found = decode(entry.payload)
            if not isinstance(found, Step) or found.step != number:
                raise StoredStateInvalid(
                    f"[steps, offset {number}] expected step {number}, got another; restore the log"
                )
            return found
        return None

    def batches(self, first: int, last: int) -> list[Updates]:
        """The batches at the offsets [first, last) of the history, if any."""
        return [entry.updates for entry in self.history.read(first, max(0, last - first))]

    def close(self) -> None:
        """Closes the opened logs and the history."""
        for log in self._opened.values():
            log.close()
        self.history.close()


class _Inbox:
    """Reads a worker's inbox, puts large messages together, and knows from where on it is still needed."""

    def __init__(self, log: ByteLog, place: int) -> None:
        self._log, self._next = log, place
        self._places: dict[Name, int] = {}  # of the first entry of a message
        self._parts: dict[Name, dict[int, bytes]] = {}

    def read(self) -> list[Message]:
        """What has come since, a limited number at a time. If the log fails, nothing has been read."""
        entries = list(self._log.read(self._next, _ENTRIES_A_TURN))
        found = []
        for entry in entries:
            message: Message | None = decode(entry.payload)
            name = _name(message)
            self._places.setdefault(name, entry.offset)
            if isinstance(message, Part):
                message = self._whole(name, message)
            if message is not None:
                found.append(message)
            self._next = entry.offset + 1
        return found

    def needed(self, waiting: set[Name], step: int) -> int:
        """The place from which a worker whose next step is `step` still needs messages; forgets what it does not."""
        self._parts = {name: parts for name, parts in self._parts.items() if name[0] >= step}
        waiting = waiting | set(self._parts)
        self._places = {name: place for name, place in self._places.items() if name in waiting}
        return min(self._places.values(), default=self._next)

    def _whole(self, name: Name, part: Part) -> Message | None:
        """The message that is complete with this part."""
        parts = self._parts.setdefault(name, {})
        parts[part.place] = part.content.tobytes()
        if len(parts) < part.parts:
            return None
        del self._parts[name]
        return decode(b"".join(parts[place] for place in range(part.parts)))


def _name(message: Message | None) -> Name:
    if isinstance(message, CountChanges | Part | Push):
        return message.step, 0 if isinstance(message, Push) else message.hop, message.sender
    got = type(message).__name__
    raise StoredStateInvalid(f"[inbox] expected changes of counts or a push, got {got}; restore the log")


class _Loop(ABC, Generic[Worker]):
    """A worker over logs, from its latest checkpoint on."""

    role: int  # place in ROLES

    def __init__(
        self,
        spec: ClusterSpec,
        worker: int,
        logs: ClusterLogs,
        checkpoints: Checkpoints,
        clock: Clock,
        parts: WorkerParts | None = None,
    ) -> None:
        name = ROLES[self.role]
        self.worker, place = self._restored(spec, worker, checkpoints.read(name, worker), parts or WorkerParts())
        self._logs, self._checkpoints, self._clock = logs, checkpoints, clock
        self._inbox = _Inbox(logs.log(f"{name}-{worker}"), place)

    @abstractmethod
    def _restored(self, spec: ClusterSpec, worker: int, state: Stored | None, parts: WorkerParts) -> tuple[Worker, int]:
        """The worker in this state, and the place in its inbox from which it needs messages."""

    @property
    def has_moved(self) -> bool:
        """Whether its partition was cut anew: this loop is over, start another."""
        return isinstance(self.worker, SamplingWorker) and self.worker.moved is not None

    @abstractmethod
    def turn(self) -> bool:
        """Goes on as far as possible without waiting; whether there was anything to do."""


class SamplingLoop(_Loop[SamplingWorker]):
    """A sampling worker over logs; starts from its latest checkpoint. Raises: UsageError if there is none."""

    role = 0

    def _restored(
        self, spec: ClusterSpec, worker: int, state: Stored | None, parts: WorkerParts
    ) -> tuple[SamplingWorker, int]:
        if not isinstance(state, PartitionState):
            raise UsageError(
                f"[sampling {worker}] expected a state to start from, got none; write the start states first"
            )
        self._ids = state.named(spec.schema)
        workers = int(state.owners.max()) + 1
        return SamplingWorker(spec, worker, workers, state, threads=parts.threads), state.inbox

    def turn(self) -> bool:
        """As the class says."""
        if self.has_moved:
            return False
        messages = self._inbox.read()
        for message in messages:
            if isinstance(message, CountChanges):
                self._send(self.worker.receive(message))
        return self._begin() or bool(messages)

    def _begin(self) -> bool:
        if not self.worker.is_idle:
            return False
        step = self._logs.step(self.worker.step)
        if step is None:
            return False
        batches = self._logs.batches(self.worker.offset, step.last) if isinstance(step, Batches) else []
        self._send(self.worker.begin(step, [self._in_slots(batch) for batch in batches]))
        if isinstance(step, Checkpoint | Move):
            place = self._inbox.needed(self.worker.needed_from(), self.worker.step)
            role = "moved" if isinstance(step, Move) else "sampling"
            ids = {} if self._ids is None else self._ids.to_arrays()
            self._checkpoints.write(role, self.worker.worker, replace(self.worker.state(), inbox=place, ids=ids))
        return True

    def _in_slots(self, batch: Updates) -> _native.UpdateBuffer:
        """A batch of the history as stores take it; the ids follow. Raises: UsageError for ids of another graph."""
        buffer, change, refused = batch.slot_buffer, None, None
        if self._ids is not None:
            try:
                buffer, change = self._ids.translate(batch)
            except UpdateError as cause:
                buffer, refused = None, cause
        if buffer is None:
            raise UsageError(
                f"[history, from offset {self.worker.offset}] expected the ids of the graph that the workers began "
                f"with, got {refused or 'ids of its own'}; name its history"
            ) from refused
        if change is not None:
            change.commit()
        return buffer

    def _send(self, messages: list[CountChanges | Push]) -> None:
        for message in messages:
            self._logs.send(message)


class ServingLoop(_Loop[ServingWorker]):
    """A serving worker over its inbox; starts from its latest checkpoint, or from the inbox's beginning."""

    role = 1

    def _restored(
        self, spec: ClusterSpec, worker: int, state: Stored | None, parts: WorkerParts
    ) -> tuple[ServingWorker, int]:
        made = ServingWorker(spec, worker, tables=parts.tables)
        if not isinstance(state, Served):
            return made, 0
        made.restore(state.push)
        return made, state.inbox

    def turn(self) -> bool:
        """As the class says."""
        messages = self._inbox.read()
        wanted = False
        for message in messages:
            if isinstance(message, Push):
                wanted |= any(push.checkpoint for push in self.worker.receive(message, self._clock()))
        if wanted:
            place = self._inbox.needed(self.worker.needed_from(), self.worker.step or 0)
            self._checkpoints.write("serving", self.worker.worker, Served(place, self.worker.state()))
        return bool(messages)
