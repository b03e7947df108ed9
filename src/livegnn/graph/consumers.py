"""What follows a graph, and what it is told."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

__all__ = ["Consumer", "HoldsIds", "VertexChange"]


class HoldsIds(Protocol):
    """What holds slots, and names their ids when it is asked."""

    def _before_ids_move(self) -> None:
        """Called under the lock: these are still the ids that the slots had."""


class Consumer(Protocol):
    """Whatever follows a graph: an engine, a pre-sampler, a cache.

    One that can do with the edges in memory, and asks where it may need more, sets `needs_all_edges = False`; without
    that attribute it is refused beside offloaded edges.
    """

    @property
    def native(self) -> Any:
        """The native engine that takes part in the batch itself, or None."""

    @property
    def follower(self) -> Any:
        """The native follower that may refuse a batch and keeps up with it, or None."""

    def _published(self, change: Any, version: int) -> Any:
        """Called in the applying thread after version was published; the result is what consumer.apply returns."""


class VertexChange(NamedTuple):
    """One vertex that a batch adds or removes: its slot, its id, and the place of the update in the batch."""

    slot: int
    id: Any
    adds: bool
    update: int
