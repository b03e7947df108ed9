"""One value of a record as a value of an update: strict, with the reason where it cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from livegnn.files import microseconds, whole_number

_INT64 = 2**63


class RecordFault(Exception):
    """Why a record is bad."""


def fault(where: str, expected: str, value: object) -> RecordFault:
    """The reason, in four parts without the advice, which the reader of dead letters knows."""
    shown = repr(value)
    return RecordFault(f"[{where}] expected {expected}, got {shown[:80]}")


def as_integer(where: str, value: Any) -> int:
    """A whole number: also one in text, or a float without a fraction."""
    found = None if isinstance(value, bool) or value is None else whole_number(value)
    if found is None:
        raise fault(where, "a whole number", value)
    return found


def as_number(where: str, value: Any) -> float:
    """A finite number: also one in text."""
    try:
        if isinstance(value, bool):
            raise ValueError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise fault(where, "a number", value) from None
    if not math.isfinite(found):
        raise fault(where, "a finite number", value)
    return found


def as_text(where: str, value: Any) -> str:
    """Text; a whole number is written out."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise fault(where, "text or a whole number", value)
    return str(value)


def as_time(where: str, value: Any) -> int:
    """A whole number in the user's unit, or a date as microseconds since 1970."""
    if (isinstance(value, str) and whole_number(value) is None) or isinstance(value, datetime):
        found = microseconds(value)
        if found is None or not -_INT64 < found < _INT64:
            raise fault(where, "a whole number or a date such as 2026-05-31T12:30:00Z", value)
        return found
    return as_integer(where, value)


def as_row(where: str, value: Any) -> list[float]:
    """A list of numbers in one field."""
    if not isinstance(value, list | tuple):
        raise fault(where, "a list of numbers", value)
    return [as_number(f"{where}[{place}]", each) for place, each in enumerate(value)]


CASTS: dict[str, Callable[[str, Any], Any]] = {
    "integer": as_integer,
    "number": as_number,
    "text": as_text,
    "time": as_time,
}
