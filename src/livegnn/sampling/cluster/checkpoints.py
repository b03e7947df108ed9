"""Where workers write their state: files of messages (messages.py), one a worker and step, the latest two kept.

name = role "-" worker "." step ".state"            role = "sampling" | "serving" | "moved"

file = message trailer (stored.py); those of livegnn 0.1 have no trailer, only the message's own CRC-32

A file is there whole or not at all. A damaged one is passed over for the one before it: a worker may start from any of
its states, since its inbox holds what came after.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol, TypeAlias

from livegnn.errors import FileMissing, StoredStateInvalid
from livegnn.sampling.cluster.messages import Served, decode, encode
from livegnn.sampling.cluster.partition import PartitionState
from livegnn.stored import checked, made_folder, replaced

Stored: TypeAlias = PartitionState | Served

_NAME = re.compile(r"(sampling|serving|moved)-(\d+)\.(\d+)\.state")
_KEPT = 2


class Checkpoints(Protocol):
    """Keeps the latest states of workers."""

    def write(self, role: str, worker: int, state: Stored) -> None:
        """Keeps a state; afterwards it survives whatever happens to the process."""

    def read(self, role: str, worker: int, step: int | None = None) -> Stored | None:
        """The latest state of a worker, or that of a step; None if there is none."""


class CheckpointFiles:
    """Checkpoints in a folder, made for its owner only if there is none."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = made_folder("checkpoint", folder, 0o700)

    def write(self, role: str, worker: int, state: Stored) -> None:
        """As Checkpoints.write; older files than the latest two go. Raises: StorageFailed."""
        place = self.folder / f"{role}-{worker}.{_step_of(state)}.state"
        with replaced(place, "checkpoint", private=True) as file:
            file.write(encode(state))
        for step in self._steps(role, worker)[_KEPT:]:
            (self.folder / f"{role}-{worker}.{step}.state").unlink(missing_ok=True)

    def read(self, role: str, worker: int, step: int | None = None) -> Stored | None:
        """As Checkpoints.read. Raises: StoredStateInvalid if there are files and all of them are damaged."""
        damaged: StoredStateInvalid | None = None
        for found in self._steps(role, worker):
            if step is not None and found != step:
                continue
            try:
                state = self._read(self.folder / f"{role}-{worker}.{found}.state")
            except FileMissing:  # a newer one has just replaced it
                continue
            except StoredStateInvalid as cause:
                damaged = damaged or cause
                continue
            if isinstance(state, Served if role == "serving" else PartitionState):
                return state
        if damaged is not None:
            raise StoredStateInvalid(
                f"[checkpoint, {role} {worker}] expected a state in {self.folder}, got damaged files only ({damaged}); "
                "restore the folder from a copy"
            ) from damaged
        return None

    def _read(self, path: Path) -> Stored:
        with checked(path, "checkpoint", expected="a worker's state", advice="restore it from a copy") as content:
            state = decode(content.read() or b"")
            if not isinstance(state, PartitionState | Served):
                raise ValueError(f"a message {type(state).__name__}")
            return state

    def clean(self, role: str, worker: int) -> None:
        """Deletes what a worker that was killed left half written; for its successor, when it starts."""
        for kind in ("sampling", "moved") if role == "sampling" else (role,):
            for path in self.folder.glob(f"{kind}-{worker}.*.part"):
                path.unlink(missing_ok=True)

    def _steps(self, role: str, worker: int) -> list[int]:
        """Steps of the states of a worker, latest first."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(m[3]) for m in found if m and (m[1], int(m[2])) == (role, worker)), reverse=True)


def _step_of(state: Stored) -> int:
    """The next step of the state."""
    return state.step if isinstance(state, PartitionState) else state.push.step + 1
