"""Parquet files as the target of changes: each delivery is a file, which appears under its name when it is complete.

changes-FIRST-LAST.parquet, the versions in twelve digits; one row for each changed vertex

The newest file's name says how far the sink is, so that a crash after it repeats nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from livegnn.deployment.config_pipes import SinkConfig
from livegnn.deployment.pipes.events import SinkEvent
from livegnn.deployment.pipes.records import Unreachable
from livegnn.errors import StorageFailed, UsageError
from livegnn.optional import need
from livegnn.stored import made_folder, replaced

_UNDER_WAY = "_delivery.parquet"  # readers of a folder leave out what begins with _
_NAME = re.compile(r"changes-(\d{12})-(\d{12})\.parquet")


class ParquetTarget:
    """Writes events as files of a folder. Raises: DataMissing without pyarrow; StorageFailed."""

    def __init__(self, config: SinkConfig, folder: Path, text_ids: bool) -> None:
        self._pyarrow, self._parquet = need("pyarrow", "arrow"), need("pyarrow.parquet", "arrow")
        self._folder = made_folder(f"sink {config.name}", folder / config.path)
        kinds = self._pyarrow
        number = kinds.float64()
        self._schema = kinds.schema(
            [
                ("event", kinds.string()),
                ("version", kinds.int64()),
                ("engine", kinds.string()),
                ("model", kinds.string()),
                ("vertex", kinds.string() if text_ids else kinds.int64()),
                ("before", number),
                ("after", number),
                ("row_change", number),
                ("missed_from", kinds.int64()),
                ("reason", kinds.string()),
            ]
        )

    @property
    def delivered(self) -> int:
        """The newest version that is in a file."""
        found = (_NAME.fullmatch(one.name) for one in self._folder.iterdir())
        return max((int(one[2]) for one in found if one is not None), default=0)

    def deliver(self, events: Sequence[SinkEvent]) -> None:
        """Writes one file. Raises: Unreachable where the disk refuses."""
        rows = [row for event in events for row in _rows(event.data)]
        table = self._pyarrow.Table.from_pylist(rows, schema=self._schema)
        path = self._folder / f"changes-{events[0].version:012d}-{events[-1].version:012d}.parquet"
        try:
            with replaced(self._folder / _UNDER_WAY, "sink", sealed=False) as part:
                self._parquet.write_table(table, part)
            os.replace(self._folder / _UNDER_WAY, path)
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except (StorageFailed, UsageError, OSError) as cause:
            raise Unreachable(str(cause)) from cause

    def close(self) -> None:
        """Each file is closed when it is there."""


def _rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    of_all = {"event": data["event"], "version": data["version"], "engine": data["engine"]}
    if data["event"] == "missed":
        return [of_all | {"missed_from": data["from"], "reason": data["reason"]}]
    of_all["model"] = data["model"]
    names = ("vertex", "before", "after", "row_change")
    return [
        of_all | {name: _plain(value) for name, value in zip(names, change, strict=False)} for change in data["changes"]
    ]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value
