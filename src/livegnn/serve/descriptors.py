"""File descriptors: each connection takes one, and many systems allow a process 1,024 until it asks for more."""

from __future__ import annotations

import logging
import sys

_OWN = 256  # of the log, snapshots, sinks and libraries
_log = logging.getLogger("livegnn")


def raise_limit(connections_max: int) -> int:
    """Raises this process's soft limit of open files as far as it may; the limit from now on.

    It logs a warning where that is too few for `connections_max` connections.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _raised(soft, hard)
    needed = connections_max + _OWN
    if limit < needed:
        _log.warning(
            "[serve] expected room for %d open files (%d connections and %d more), got a limit of %d; raise the hard "
            "limit (ulimit -Hn, LimitNOFILE= of systemd), or lower connections_max",
            needed,
            connections_max,
            _OWN,
            limit,
        )
    return limit


def _raised(soft: int, hard: int) -> int:
    import resource

    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS allows less than it names as the hard limit
        return soft
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
