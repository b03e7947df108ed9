"""A recorder that notes what is asked of it, and fails where it is told to."""

from collections.abc import Callable
from typing import Any

from livegnn.graph.consumers import Recorded, Recorder


class Noted(Recorder):
    """Notes (name, step) in `notes`. at: what to do at a step, by its name."""

    def __init__(self, notes: list[Any], name: str, **at: Callable[[], object]) -> None:
        self.notes, self.name, self.at = notes, name, at

    def _step(self, step: str) -> None:
        self.notes.append((self.name, step))
        if step in self.at:
            self.at[step]()

    def prepare(self, recorded: Recorded) -> None:
        self._step("prepare")

    def append(self, recorded: Recorded) -> None:
        self._step("append")

    def abort(self) -> None:
        self._step("abort")


def no_room() -> None:
    raise OSError("no room on the disk")
