"""Replay: which old events a round trains on again, and with which memory.

Without memory, old events are drawn one by one. With memory an event wants the memory of its time: `MemoryStates` keeps
the memory as it was before some events, evenly spread over history, and replay takes runs of consecutive events from
there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from livegnn.temporal.events import Events, EventTable

if TYPE_CHECKING:
    from torch import Tensor

MemoryState = dict[str, "Tensor"]


class Run(NamedTuple):
    """Consecutive events, and the memory before the first of them; None: as it is, or of a model without."""

    events: Events
    memory: MemoryState | None


class MemoryStates:
    """The memory before the event at a place in the table, for at most `states_max` places."""

    def __init__(self, states_max: int) -> None:
        self.states_max = states_max
        self.places: list[int] = []
        self.states: list[MemoryState] = []

    def add(self, place: int, state: MemoryState) -> None:
        """A later place than all before. When there are too many, every other one goes."""
        while len(self.places) >= self.states_max and self.places:
            keep = slice(0, None, 2) if len(self.places) > 1 else slice(0, 0)
            self.places, self.states = self.places[keep], self.states[keep]
        if self.states_max > 0:
            self.places.append(place)
            self.states.append(state)

    def clear(self) -> None:
        """None is left."""
        self.places, self.states = [], []

    def draw(
        self, table: EventTable, last: int, count: int, run_events_min: int, rng: np.random.Generator
    ) -> list[Run]:
        """Runs of old events, places below `last`, of about `count` events in all, each of run_events_min at least.

        Runs do not reach into each other; removed events are left out.
        """
        if count < 1 or not self.places:
            return []
        runs = min(len(self.places), max(1, count // max(run_events_min, 1)))
        length = -(-count // runs)
        found = []
        for chosen in np.sort(rng.choice(len(self.places), runs, replace=False)):
            end = self.places[chosen + 1] if chosen + 1 < len(self.places) else last
            run = table.between(self.places[chosen], min(end, last)).in_time_order()
            events = run.at(slice(0, length))
            if len(events):
                found.append(Run(events, self.states[chosen]))
        return found
