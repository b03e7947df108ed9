"""What one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from livegnn.errors import ValueInvalid

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the HTTP service; a request beyond one is refused with its name.

    body_bytes_max: of any body.  body_ms_max: time for a body to arrive.  seeds_max: of one request.  updates_max: of
    one batch.  batches_waiting_max: batches of updates that wait their turn.  timeout_ms_max: largest timeout_ms that
    counts.  timeout_ms: where a request gives none.

    Raises:  ValueInvalid for a limit that is not a whole number of at least 1.
    """

    body_bytes_max: int = 1 << 20
    body_ms_max: int = 10_000
    seeds_max: int = 1024
    updates_max: int = 10_000
    batches_waiting_max: int = 64
    timeout_ms_max: int = 60_000
    timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is not int or value < 1:
                raise ValueInvalid(
                    f"[Limits] expected {one.name} of at least 1, got {value!r}; give a whole number, or leave it out"
                )
