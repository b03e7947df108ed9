"""Reading a request's body within the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from livegnn.serve.envelope import Refused
from livegnn.serve.limits import Limits
from livegnn.serve.traffic import Lease
from livegnn.serve.writing import Receive


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limits: Limits, lease: Lease) -> bytes:
    """The whole body. Raises: Refused if it is too large, comes too slowly or stops."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18 or int(length) > limits.body_bytes_max:
        raise _too_large(limits, length.decode("latin-1"))
    try:
        async with asyncio.timeout(limits.body_ms_max / 1e3):
            return await _parts(receive, limits, lease)
    except TimeoutError as cause:
        limit = f"[body] expected all of it within {limits.body_ms_max} ms, got a part; send it faster"
        raise Refused(408, "BodySlow", limit, retryable=True) from cause


async def _parts(receive: Receive, limits: Limits, lease: Lease) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "BodyInvalid", "[body] expected all of it, got the end of the connection")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limits.body_bytes_max:
            raise _too_large(limits, f"{size} so far")
        lease.hold(size)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limits: Limits, got: str) -> Refused:
    limit = limits.body_bytes_max
    return Refused(413, "BodyTooLarge", f"[body] expected up to {limit} bytes, got {got[:20]}; split the request")
