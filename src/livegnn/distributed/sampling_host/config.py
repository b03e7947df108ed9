"""The settings of a cluster, and the file in its folder that keeps them.

folder = cluster.json | sampling-<i>.<step>.state ... | SQLite files of logs, unless they are elsewhere
cluster.json = { "format": 2, "spec": ..., "history": url, "logs": url with {name}, "log_options": {...},
                 "settings": {...} } trailer (stored.py)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from msgspec import Struct

from livegnn.documents import converted
from livegnn.errors import FileMissing, UsageError
from livegnn.log import UpdateLog, open_log
from livegnn.log.secrets import masked_url
from livegnn.sampling.cluster.runtime import ClusterLogs, Settings
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.stored import checked, replaced

_FILE = "cluster.json"
_FORMAT, _UNSEALED_FORMAT = 2, 1  # the latter of livegnn 0.1, which wrote neither its number nor a trailer
_GONE = {  # settings of processes that livegnn hosted itself
    *("heartbeat_ms", "heartbeat_timeout_ms", "startup_timeout_ms"),
    *("beat_ms", "silence_ms_max", "start_ms_max"),  # their names in livegnn 0.1
}


class Hosting(NamedTuple):
    """How workers run as Ray actors; not kept in the folder.

    cpus: that Ray reserves for a worker; 0 packs any number on a host.  threads: of a sampling worker, for large
    batches.  tables: a folder of each host for serving tables in RocksDB; native memory unless given.
    answers_at_once: of a serving worker.  poll_ms: between two looks at a worker.  suspect_ms: one that says nothing
    for longer is passed over where a replica is up.  hung_timeout_ms: one silent for longer is started again.
    startup_timeout_ms: the same for one that starts.  turn_timeout_ms: the same for one that stays in one turn, as a
    large step.
    """

    cpus: float = 0.0
    threads: int = 1
    tables: str | None = None
    answers_at_once: int = 8
    poll_ms: float = 50.0
    suspect_ms: float = 200.0
    hung_timeout_ms: float = 10_000.0
    startup_timeout_ms: float = 120_000.0
    turn_timeout_ms: float = 600_000.0


class _ConfigDocument(Struct, forbid_unknown_fields=True):
    spec: dict[str, Any]
    history: str
    logs: str
    log_options: dict[str, Any]
    settings: dict[str, Any]
    format: int = _UNSEALED_FORMAT


class ClusterConfig(NamedTuple):
    """What cluster.json says."""

    spec: ClusterSpec
    history: str
    logs: str
    log_options: dict[str, Any]
    settings: Settings

    def to_json(self) -> str:
        """The text of cluster.json."""
        document = {"spec": json.loads(self.spec.to_json()), "settings": self.settings._asdict()}
        document |= {"format": _FORMAT, "history": self.history, "logs": self.logs, "log_options": self.log_options}
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: bytes | str, formats: tuple[int, ...] = (_FORMAT,)) -> Self:
        """The value of a text. Raises: ValueError for another format; DocumentFault; msgspec.DecodeError."""
        found = converted(msgspec.json.decode(text), _ConfigDocument)
        if found.format not in formats:
            raise ValueError(f"format {found.format}")
        settings = Settings(**{name: value for name, value in found.settings.items() if name not in _GONE})
        return cls(ClusterSpec.from_json(found.spec), found.history, found.logs, found.log_options, settings)

    def write(self, folder: Path) -> None:
        """Replaces the file; for the owner only, since URLs and options may hold passwords. Raises: StorageFailed."""
        with replaced(folder / _FILE, "cluster", private=True) as file:
            file.write(self.to_json().encode())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises: UsageError for a folder without one; StoredStateInvalid for a damaged one; StorageFailed."""
        path = folder / _FILE
        try:
            with checked(path, "cluster", expected="a cluster's settings", advice="restore it from a copy") as content:
                text = content.read() or b""
                return cls.from_json(text, (_FORMAT if content.sealed else _UNSEALED_FORMAT,))
        except FileMissing as cause:
            raise UsageError(f"[cluster] expected {path}, got no such file; name the folder of a cluster") from cause

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder is a cluster's."""
        return (folder / _FILE).exists()

    def check_same(self, stored: ClusterConfig) -> None:
        """Raises: UsageError if the stored one is of another cluster: spec or URLs differ."""
        pairs: dict[str, tuple[str, str, Callable[[str], str]]] = {
            "queries, seed, ttl and columns": (stored.spec.to_json(), self.spec.to_json(), str),
            "history": (stored.history, self.history, masked_url),
            "logs": (stored.logs, self.logs, masked_url),
        }
        for name, (kept, given, shown) in pairs.items():
            if kept != given:
                raise UsageError(
                    f"[cluster] expected the {name} that the folder's cluster has ({shown(kept)}), got {shown(given)}; "
                    "start it as it was made, or name another folder"
                )

    def open_history(self) -> UpdateLog:
        """The history, opened anew."""
        return UpdateLog(open_log(self.history, **self.log_options))

    def open_logs(self) -> ClusterLogs:
        """The logs of the cluster, opened anew."""
        return ClusterLogs(
            self.open_history(), lambda name: open_log(self.logs.replace("{name}", name), **self.log_options)
        )
