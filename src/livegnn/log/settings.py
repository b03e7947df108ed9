"""What open_log's options may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from livegnn.errors import ValueInvalid
from livegnn.graph import checks

__all__ = ["checked_count", "checked_mapping", "checked_seconds"]

_SECONDS_MAX = 1e6  # SQLite and librdkafka count milliseconds in 32 bits


def checked_seconds(name: str, value: object) -> float:
    """A number of seconds, from 0 on. Raises: ValueInvalid."""
    seconds = checks.as_seconds(value)
    if seconds is None or not 0 <= seconds <= _SECONDS_MAX:
        raise ValueInvalid(
            f"[open_log] expected {name} from 0 to {_SECONDS_MAX:.0f}, got {checks.shown(value)}; "
            "give a number of seconds"
        )
    return seconds


def checked_count(name: str, value: object, least: int = 1) -> int:
    """An integer from `least` to 2^31 - 1. Raises: DtypeInvalid, ValueInvalid."""
    count = checks.whole_number("open_log", name, value)
    if not least <= count < 2**31:
        raise ValueInvalid(f"[open_log] expected {name} from {least} to {2**31 - 1}, got {count}; give such a number")
    return count


def checked_mapping(name: str, value: object) -> dict[str, Any]:
    """Settings by their names. Raises: ValueInvalid, which shows none of them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueInvalid(
            f"[open_log] expected {name} as a dictionary of settings by name, got {type(value).__name__}; give one"
        )
    return dict(value)
