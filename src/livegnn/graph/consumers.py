"""What attaches to a graph: consumers, which follow its batches, and recorders, which agree to them or write them down.

Order of one batch, all in the writer's thread under the graph's lock (host.py):
    guards · store and native halves of consumers · prepare of every recorder · append of every recorder · publication ·
    Consumer.published, in order of attachment
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from livegnn import _native
from livegnn.errors import LiveGnnError
from livegnn.graph.updates import Updates
from livegnn.types import Float32Array


class VertexChange(NamedTuple):
    """One vertex that a batch adds or removes: its slot, its id, the place of the update, and the code of its type."""

    slot: int
    id: Any
    adds: bool
    update: int
    code: int


Guard: TypeAlias = Callable[[list[VertexChange]], None]  # before a batch is applied; what it raises refuses the batch


class IdHolder(Protocol):
    """What holds slots, and looks up their ids before a batch gives slots to other ids."""

    def before_ids_move(self) -> None:
        """Called under the lock, while the slots still have the ids of the version before."""


class Consumer(ABC):
    """What follows a graph: an engine, a sampler, a cache.

    native: the native engine that takes part in the batch itself.  follower: the native follower that may refuse a
    batch and keeps up with it.  A consumer that exchanges one of them calls host.renew_natives().
    needs_all_edges: False for a consumer that reads what is in memory and asks where it may need more. While another
    one is attached the store has copies of the edges in files. One that reads the graph before it is attached does both
    inside host.attaching().
    edges_stay: True for a consumer that offload() must wait for: it is refused.
    excused: see GraphHost.excuse().
    """

    native: Any = None
    follower: Any = None
    needs_all_edges: bool = True
    edges_stay: bool = False
    excused: Callable[[LiveGnnError], object] | None = None

    @abstractmethod
    def published(self, change: Any, version: int) -> Any:
        """Called after `version` was published, with what the native half made of the batch (None without one).

        Returns: what host.apply(updates, consumer) returns.  The batch stands, whatever this raises.
        """


class Taker(Protocol):
    """What applies to a part of a graph those updates of a batch that are the part's."""

    def take(self, buffer: _native.UpdateBuffer, apply: Callable[[_native.UpdateBuffer], Any]) -> Any:
        """What apply() gives for the updates of the part; buffer: the whole batch, in slots.

        Raises:  UpdateError, with the update's place in the whole batch.
        """


class Switch(NamedTuple):
    """What a consumer does between batches and its later state depends on: an engine's swap or rescale.

    name: the consumer's.  kind: "swap" or "rescale".  data: of numbers, texts, lists and dicts, as JSON has them.
    """

    name: str
    kind: str
    data: dict[str, Any]
    arrays: dict[str, Float32Array]


class Switching(Consumer):
    """A consumer with switches. With recorders on the graph each of them is a version, and a part of its history.

    name: what recorders know its switches by; on one graph no other consumer may have it.
    """

    name: str

    @abstractmethod
    def redo(self, switch: Switch) -> None:
        """Makes a recorded switch again, as one version, all or none. Raises: LiveGnnError where it does not fit."""


Recorded: TypeAlias = Updates | Switch


class Recorder(ABC):
    """What must agree to each batch before anyone sees it, or write it down: a log, a vote of several processes.

    The store and all native halves have taken the batch when recorders are asked; nothing is published yet. First every
    recorder prepares, then every recorder appends, each time in order of attachment. If any of these calls raises, the
    batch is taken back, and each recorder that has prepared aborts. A switch is a batch without updates.
    """

    @abstractmethod
    def prepare(self, recorded: Recorded) -> None:
        """Refuses the batch or switch by raising, or promises to append it. Leaves nothing that outlasts abort()."""

    @abstractmethod
    def append(self, recorded: Recorded) -> None:
        """Makes it last: every recorder has agreed. What this raises takes the batch back."""

    @abstractmethod
    def abort(self) -> None:
        """Forgets the batch that prepare() has accepted, or, where append() has written it, says so before the next."""
