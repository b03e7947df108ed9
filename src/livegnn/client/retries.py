"""Errors of a service as errors of livegnn, and when a request is sent again.

A request is sent again if the service says "later" (429, 503, or an error that is retryable) or cannot be reached, and
if it may be: reads, and writes with a key, which are applied once. Waits grow by two, are spread at random, and are at
least as long as the header Retry-After says.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livegnn.errors import LiveGnnError, ServiceError, ValueInvalid, VersionPending, of_kind
from livegnn.errors import __all__ as kinds

_LATER = (429, 503)
_FACTS = ("where", "subject", "update", "vertex", "edge", "expected", "got", "advice")


@dataclass(frozen=True)
class RetryPolicy:
    """attempts: in all.  first_s, longest_s: waits between them, before they are spread.

    Raises:  ValueInvalid.
    """

    attempts: int = 6
    first_s: float = 0.1
    longest_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 < self.first_s <= self.longest_s:
            raise ValueInvalid(
                f"[RetryPolicy] expected attempts of at least 1 and 0 < first_s <= longest_s, got {self}; correct them"
            )

    def wait_s(self, attempt: int, retry_after: float = 0.0) -> float:
        """How long to wait after attempt number 0, 1, ..."""
        spread = 0.5 + random.random() / 2
        return max(retry_after, min(self.longest_s, self.first_s * 2.0 ** min(attempt, 30)) * spread)


def unreachable(url: str, cause: Exception) -> ServiceError:
    """The error where no answer came."""
    said = str(cause) or type(cause).__name__
    error = ServiceError(f"[client] expected an answer from {url}, got none: {said}; look whether it runs")
    error.kind, error.retryable = "Unreachable", True
    return error


def refusal(status: int, body: bytes) -> LiveGnnError:
    """The error of an envelope: of its kind where livegnn has one, else a ServiceError."""
    try:
        envelope: dict[str, Any] = json.loads(body)["error"]
        kind, message, retryable = envelope["kind"], str(envelope["message"]), bool(envelope["retryable"])
    except (ValueError, KeyError, TypeError):
        error = ServiceError(f"[client] expected an answer of livegnn, got status {status} from another program")
        error.kind, error.status, error.retryable = "ForeignAnswer", status, status in _LATER
        return error
    if kind in kinds:
        facts: Any = {name: envelope[name] for name in _FACTS if name in envelope}
        return of_kind(kind, message, facts)
    error = ServiceError(message)
    error.kind, error.status, error.retryable = kind, status, retryable
    return error


def is_worth_repeating(status: int, error: LiveGnnError) -> bool:
    """Whether the same request may succeed a little later. A wait that has ended is the caller's to repeat."""
    return not isinstance(error, VersionPending) and (status in _LATER or error.retryable)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds, where the service gives any."""
    given = headers.get("retry-after", "")
    return min(float(given), 60.0) if given.isascii() and given.isdigit() else 0.0
