"""A webhook as the target of changes: POST of JSON, signed, tried again until it is taken.

body       {"sink": name, "events": [...]}
livegnn-delivery: key of the first event ":" key of the last: the same for each try
livegnn-signature: t=SECONDS,v1=HMAC-SHA256 of "SECONDS." and the body, in hexadecimal digits
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from livegnn.deployment.config_pipes import SinkConfig
from livegnn.deployment.pipes.events import SinkEvent
from livegnn.deployment.pipes.records import Unreachable
from livegnn.errors import UsageError

_BUSY = (429, 503)
_RETRY_AFTER_MAX_S = 3600.0


class TargetBusy(Unreachable):
    """The target asks to come again after a time."""

    def __init__(self, text: str, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A delivery goes where the configuration says, and nowhere else."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class WebhookTarget:
    """Posts events. Raises: UsageError where the secret is named, and not there."""

    def __init__(self, config: SinkConfig, folder: Path) -> None:
        self._config = config
        self._secret = _secret(config, folder)
        self._opener = urllib.request.build_opener(_NoRedirect())

    def deliver(self, events: Sequence[SinkEvent]) -> None:
        """Posts them in one request, which the target must answer with 2xx. Raises: Unreachable."""
        body = msgspec.json.encode({"sink": self._config.name, "events": [one.data for one in events]})
        headers = {
            "content-type": "application/json",
            "user-agent": "livegnn",
            "livegnn-delivery": f"{events[0].key}:{events[-1].key}",
        }
        if self._secret:
            headers["livegnn-signature"] = signature(self._secret, body, int(time.time()))
        request = urllib.request.Request(self._config.url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._config.timeout_ms / 1e3) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as cause:
            after = cause.headers.get("retry-after", "") if cause.headers is not None else ""
            status = f"expected an answer of 200 to 299, got {cause.code}"
            cause.close()
            if cause.code in _BUSY and after.isascii() and after.isdigit():
                raise TargetBusy(status, min(float(after), _RETRY_AFTER_MAX_S)) from None
            raise Unreachable(status) from None
        except (OSError, ValueError, http.client.HTTPException) as cause:
            raise Unreachable(f"expected an answer, got {type(cause).__name__}") from None

    def close(self) -> None:
        """Each delivery has a connection of its own."""


def signature(secret: bytes, body: bytes, seconds: int) -> str:
    """The header that proves who sent a body, and when."""
    digest = hmac.new(secret, b"%d." % seconds + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def _secret(config: SinkConfig, folder: Path) -> bytes:
    where, found = "", b""
    if config.secret_file:
        where = f"in the file {config.secret_file}"
        try:
            found = (folder / config.secret_file).read_bytes().strip()
        except OSError as cause:
            raise UsageError(
                f"[sink {config.name}] expected a secret {where}, got {cause.strerror or cause}; write the file"
            ) from cause
    elif config.secret_env:
        where = f"in the environment variable {config.secret_env}"
        found = os.environb.get(config.secret_env.encode(), b"").strip()
    if where and not found:
        raise UsageError(f"[sink {config.name}] expected a secret {where}, got none; set it, or leave the key out")
    return found
