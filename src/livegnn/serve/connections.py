"""Connections of the uvicorn server: how many, how long they may say nothing, how long a head may take and be.

uvicorn keeps a connection whose head never ends, and what a client never reads. Here each has one timer:

    from the first byte, or the last answer, to the end of the next head      head_ms_max
    from the answer to the next first byte                                    uvicorn's own, idle_ms_max
    from the last answer until all of it has left                             answer_ms_max

What arrives after an answer, the rest of a refused body, counts as waiting for a head. Heads beyond head_bytes_max are
refused, and trailers are not kept. All of it holds before a token is looked at.
"""

from __future__ import annotations

import asyncio
import http
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from livegnn.serve.envelope import Refused, enveloped
from livegnn.serve.limits import Limits
from livegnn.serve.traffic import Traffic
from livegnn.serve.writing import CONNECTION


class LimitedConnection(HttpToolsProtocol):
    """One connection; the requests on it find it in their scope, as writing.Connection."""

    def __init__(self, traffic: Traffic, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._traffic, self._limits = traffic, limits
        self._timer: asyncio.TimerHandle | None = None
        self._is_counted = self._in_head = self._head_is_new = self._is_refused = False
        self._head_bytes = 0
        self._cycles: deque[RequestResponseCycle] = deque()  # requests that are not answered, in their order

    # ---- writing.Connection

    async def drain(self) -> None:
        """As writing.Connection.drain."""
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(high=0)  # pauses until the buffer is empty
            await self.flow.drain()
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits()

    def abort(self) -> None:
        """As writing.Connection.abort."""
        self.transport.abort()

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, or refuses it where connections_max are open."""
        most = self._limits.connections_max
        if self._traffic.connections >= most:
            self._traffic.connections_refused += 1
            self.transport, self._is_refused = transport, True
            message = f"[serve] expected up to {most} connections, got one more; connect again later"
            self._refuse(Refused(503, "ConnectionsFull", message, retryable=True))
            return
        self._traffic.connections += 1
        self._is_counted = True
        super().connection_made(transport)
        self._start(self._limits.head_ms_max, "head")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._stop()
        if self._is_counted:
            self._traffic.connections -= 1
            self._disconnect()
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads; starts the timer where it is for a head, and refuses a long one."""
        if self._is_refused:
            return
        self._head_is_new = False
        super().data_received(data)
        if self._is_refused or self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes = 0 if self._head_is_new else self._head_bytes + len(data)
            if self._head_bytes > self._limits.head_bytes_max:
                message = f"[head] expected up to {self._limits.head_bytes_max} bytes, got more; send shorter headers"
                self._refuse(Refused(431, "HeadTooLarge", message))
                return
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start(self._limits.head_ms_max, "head")

    # ---- what uvicorn calls

    def shutdown(self) -> None:
        """The server ends, and waits for this connection's answer."""
        super().shutdown()
        self._traffic.end()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = self._head_is_new = True
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is kept; a trailer is not."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        self._stop()
        super().on_headers_complete()
        self._cycles.append(self.cycle)

    def on_response_complete(self) -> None:
        """The answer is written as far as the client reads; what is left has its own time."""
        self._cycles.popleft()
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._start(self._limits.answer_ms_max, "answer")

    def timeout_keep_alive_handler(self) -> None:
        """No request came; the connection is closed, once the last answer has left."""
        if self.transport.get_write_buffer_size() and not self.transport.is_closing():
            self._start(self._limits.answer_ms_max, "answer")
        super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused in the envelope."""
        self._refuse(Refused(400, "HeadInvalid", "[head] expected a request of HTTP/1.1, got another; fix it"))

    # ---- inside

    def _refuse(self, refused: Refused) -> None:
        """Answers without the application, and closes; where another answer is half written, closes only."""
        self._is_refused = True
        half_written = bool(self._cycles) and self._cycles[0].response_started
        self._disconnect()
        if half_written:
            self.transport.abort()
            return
        status, body = enveloped(refused)
        head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)
        self.transport.close()
        self._start(self._limits.answer_ms_max, "answer")

    def _disconnect(self) -> None:
        """Nothing more is sent; uvicorn itself says so to the newest request alone."""
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()

    def _start(self, ms: int, waited_for: str) -> None:
        self._stop()
        self._timer = self.loop.call_later(ms / 1e3, self._drop, waited_for)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, waited_for: str) -> None:
        self._timer = None
        self._traffic.dropped[waited_for] += 1
        self.transport.abort()
