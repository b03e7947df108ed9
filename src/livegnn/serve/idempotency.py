"""Idempotency keys: a batch of updates that is sent again with its key is answered again, not applied again.

    key -> (digest of the body, answer)     the newest keys_max, answered within the last keys_ms_max

Only an answer of a batch that may stand is kept, perhaps an error: after any other the key may be used again. Keys lie
in memory and end with the process. Source: IETF draft-ietf-httpapi-idempotency-key-header.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from livegnn.serve.envelope import Refused
from livegnn.serve.writing import Answer

_LENGTH_MAX = 255


def checked_key(value: bytes | None) -> bytes | None:
    """The header's value, as it was sent. Raises: Refused."""
    if value is None or (1 <= len(value) <= _LENGTH_MAX and all(32 <= byte < 127 for byte in value)):
        return value
    got = f"{len(value)} characters" if value.isascii() else "others"
    raise Refused(
        400, "KeyInvalid", f"[idempotency-key] expected from 1 to {_LENGTH_MAX} printable ASCII characters, got {got}"
    )


class _Kept(NamedTuple):
    digest: bytes
    since: float
    answer: Answer


class Keys:
    """The answers by key. Begun in the event loop's thread, ended in the one that applies."""

    def __init__(self, count_max: int, ms_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._count_max, self._seconds_max, self._clock = count_max, ms_max / 1e3, clock
        self._under_way: dict[bytes, bytes] = {}  # key -> digest
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()  # the oldest first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._under_way) + len(self._kept)

    def begin(self, key: bytes, body: bytes) -> Answer | None:
        """The answer of the batch that had this key; None if there was none, and then this one is under way.

        Raises:  Refused for another body, and while the first is under way.
        """
        digest = hashlib.sha256(body).digest()
        with self._lock:
            self._forget()
            kept = self._kept.get(key)
            known = self._under_way.get(key) if kept is None else kept.digest
            if known is None:
                self._under_way[key] = digest
                return None
            if known != digest:
                expected = "[idempotency-key] expected the body that the key came with first, got another"
                raise Refused(422, "KeyReused", f"{expected}; use a new key")
            if kept is None:
                expected = "[idempotency-key] expected a batch that was answered, got one under way"
                raise Refused(409, "KeyUnderWay", f"{expected}; send it again later", retryable=True)
            return kept.answer

    def end(self, key: bytes, answer: Answer | None) -> None:
        """Keeps the answer; None: the batch was not applied, and the key is free."""
        with self._lock:
            digest = self._under_way.pop(key)
            if answer is not None:
                self._kept[key] = _Kept(digest, self._clock(), answer)
                self._forget()

    def _forget(self) -> None:
        since = self._clock() - self._seconds_max
        while self._kept and (len(self._kept) > self._count_max or next(iter(self._kept.values())).since < since):
            self._kept.popitem(last=False)
