"""Answers on their way to the client: in pieces, within a time, after which the connection is dropped.

A server keeps what a client does not read. So a large answer goes in pieces, each after the one before has left, and an
answer ends when all of it has left this process. The scope of connections.py offers "livegnn.connection" for that; with
another ASGI server an answer that is not read in time ends as an error, and what happens then is up to that server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, Protocol

from livegnn.serve.traffic import Traffic

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = "application/json"
CONNECTION = "livegnn.connection"
_PIECE_BYTES = 1 << 16


class Answer(NamedTuple):
    """What a request gets."""

    body: bytes
    content_type: str = JSON
    status: int = 200


class Connection(Protocol):
    """What scope["extensions"][CONNECTION] offers."""

    async def drain(self) -> None:
        """Waits until all that was written has left this process."""

    def abort(self) -> None:
        """Closes the connection, and forgets what was not sent."""


async def write_piece(
    scope: Scope, send: Send, message: MutableMapping[str, Any], traffic: Traffic, ms_max: int
) -> None:
    """Sends a piece of a stream; drops the connection of a client that does not read it in time."""
    connection: Connection | None = scope.get("extensions", {}).get(CONNECTION)
    try:
        async with asyncio.timeout(ms_max / 1e3):
            await send(message)
    except TimeoutError:
        traffic.dropped["answer"] += 1
        if connection is None:
            raise
        connection.abort()
        await asyncio.sleep(0)


async def write(
    scope: Scope, send: Send, answer: Answer, headers: list[tuple[bytes, bytes]], traffic: Traffic, ms_max: int
) -> None:
    """Sends an answer; drops the connection of a client that does not read it in time."""
    connection: Connection | None = scope.get("extensions", {}).get(CONNECTION)
    body = answer.body
    headers += [(b"content-type", answer.content_type.encode()), (b"content-length", b"%d" % len(body))]
    try:
        async with asyncio.timeout(ms_max / 1e3):
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            if len(body) > _PIECE_BYTES:
                for first in range(0, len(body), _PIECE_BYTES):
                    piece = body[first : first + _PIECE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if connection is not None:
                    await connection.drain()
                body = b""
            await send({"type": "http.response.body", "body": body})
    except TimeoutError:
        traffic.dropped["answer"] += 1
        if connection is None:
            raise
        connection.abort()
        await asyncio.sleep(0)  # the server takes note before this request ends
