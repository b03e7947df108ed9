"""Letting go of log entries that no snapshot needs any more.

An entry goes only if every snapshot that is kept holds it, the oldest of them has just been read back sound, and at
least `keep_entries` newer entries stay. So each kept snapshot still leads to the present state, and `restore --at`
reaches as far back as before: to the oldest snapshot. What ends is a replay from the beginning of the history.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from livegnn.deployment import snapshots
from livegnn.deployment.config import LogConfig
from livegnn.errors import LiveGnnError
from livegnn.log import UpdateLog

_log = logging.getLogger("livegnn")


def log_options(url: str, config: LogConfig) -> dict[str, Any]:
    """Options of open_log for a log that is made now."""
    return {"releasable": True} if config.release and url.startswith("nats:") else {}


def release_entries(log: UpdateLog, data: Path, config: LogConfig) -> None:
    """Lets go of what no kept snapshot needs. Failures are logged: the next snapshot tries again."""
    if not config.release or not log.log.can_release:
        return
    try:
        oldest, first = snapshots.listed(data)[0], log.first
        before = min(snapshots.manifest_of(oldest).offset, log.tail - config.keep_entries)
        if before <= first:
            return
        snapshots.check(oldest)
        first = log.release(before)
    except LiveGnnError as error:
        _log.error("[release] the log keeps its entries: %s", error)
    else:
        _log.info("[release] log entries before %d are gone; restore reaches back to snapshot %s", first, oldest.name)
