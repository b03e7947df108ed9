"""What clients may ask for, one by one and all together."""

from __future__ import annotations

from dataclasses import dataclass, fields

from livegnn.errors import ValueInvalid


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the HTTP service; what is beyond one is refused with its name, or its connection closed.

    One request. body_bytes_max: of any body.  body_ms_max: time for a body to arrive.  seeds_max: of one request.
    ids_max: vertices or pairs whose rows one request to a deployment reads.
    updates_max: of one batch.  timeout_ms_max: largest timeout_ms that counts.  timeout_ms: where a request gives none.
    answer_ms_max: time for the client to read an answer.

    All together. under_way_bytes_max: request bodies, and answers until they are written.  batches_waiting_max: batches
    of updates that wait their turn.  keys_max, keys_ms_max: how many idempotency keys are kept, and for how long.

    Connections, where run() or background() serves. connections_max: open at once.  head_bytes_max, head_ms_max: of a
    request's head, and time for it to arrive.  idle_ms_max: between two requests.

    Raises:  ValueInvalid for a limit that is not a whole number of at least 1.
    """

    body_bytes_max: int = 1 << 20
    body_ms_max: int = 10_000
    seeds_max: int = 1024
    ids_max: int = 10_000
    updates_max: int = 10_000
    timeout_ms_max: int = 60_000
    timeout_ms: int = 10_000
    answer_ms_max: int = 30_000
    under_way_bytes_max: int = 1 << 28
    batches_waiting_max: int = 64
    keys_max: int = 10_000
    keys_ms_max: int = 86_400_000
    connections_max: int = 512
    head_bytes_max: int = 1 << 16
    head_ms_max: int = 10_000
    idle_ms_max: int = 5_000

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) is not int or value < 1:
                raise ValueInvalid(
                    f"[Limits] expected {one.name} of at least 1, got {value!r}; give a whole number, or leave it out"
                )
