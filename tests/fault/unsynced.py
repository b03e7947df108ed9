"""A disk that forgets what was not synced: what a folder holds if the power fails just before a sync or rename.

A file has the content of its last fsync, or half of what was written where there was none; a folder has the names of
its own last fsync. Files of SQLite are copied as they are: SQLite syncs them itself (docs/reliability-faults.md).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

Inode = int


class UnsyncedDisk:
    """Follows a folder from now on: all that is in it counts as synced. crash: called before each sync and rename."""

    def __init__(self, root: Path, crash: Callable[[], None]) -> None:
        self.root, self.crash = root, crash
        self._held: dict[Inode, int] = {}  # open files, so that no number is given out again
        self._content: dict[Inode, bytes] = {}
        self._names: dict[Inode, dict[str, Inode]] = {}
        for folder, _, names in os.walk(root):
            self._sync(os.open(folder, os.O_RDONLY))
            for name in names:
                self._sync(os.open(Path(folder, name), os.O_RDONLY))

    def patch(self, monkeypatch: Any) -> None:
        fsync, replace = os.fsync, os.replace

        def synced(descriptor: int) -> None:
            self.crash()
            fsync(descriptor)
            self._sync(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))  # no dup: it would share locks

        def renamed(old: Any, new: Any) -> None:
            self.crash()
            replace(old, new)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", renamed)

    def _sync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        if os.path.isdir(path):
            self._names[inode] = {name: os.lstat(Path(path, name)).st_ino for name in os.listdir(path)}
            for name in self._names[inode]:
                child = os.lstat(Path(path, name)).st_ino
                if child not in self._held:
                    self._held[child] = os.open(Path(path, name), os.O_RDONLY)
        else:
            self._content[inode] = Path(path).read_bytes()

    def image(self, target: Path) -> None:
        """Writes what a power cut would leave now."""
        self._write(self.root.stat().st_ino, target)
        for file in self.root.rglob("history.db*"):
            place = target / file.relative_to(self.root)
            if place.parent.is_dir():
                shutil.copy(file, place)

    def _write(self, inode: Inode, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for name, child in self._names.get(inode, {}).items():
            descriptor = self._held[child]
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                self._write(child, target / name)
            elif name.startswith("history.db"):
                continue
            elif child in self._content:
                (target / name).write_bytes(self._content[child])
            else:  # torn
                written = Path(f"/proc/self/fd/{descriptor}").read_bytes()
                (target / name).write_bytes(written[: len(written) // 2])

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
