"""What of a graph lies in files."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING", "Offloaded", "OffloadedFile"]


@dataclass(frozen=True)
class OffloadedFile:
    """One file of edges: what of it is still away has times below `before`, and is `count` edges."""

    path: str
    key: str  # by which the file is known again where it has moved
    before: int
    count: int
    digest: str = ""  # of the file's bytes; "" for a file of livegnn 0.1, which has the checksums of its pages only


@dataclass(frozen=True)
class Offloaded:
    """What of a graph lies in files. `before` is None, and all else empty, where everything is in memory."""

    before: int | None
    count: int
    files: tuple[OffloadedFile, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the files are."""
        return tuple(file.path for file in self.files)


NOTHING = Offloaded(None, 0, ())
