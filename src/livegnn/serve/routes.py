"""The ASGI application: routes, tokens, limits, one error envelope.

A route is a coroutine from a request to an answer; `_Endpoint` does around it what all need: token, errors, metrics.
The event loop only reads, writes and converts small bodies. Samples and predictions are made in the sample server's
thread, batches of updates are applied in one thread of their own, in the order of their arrival, and large JSON answers
are written in another.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from livegnn.errors import Overloaded, UsageError
from livegnn.sampling import Prediction, Sample, SampleServer
from livegnn.serve import frames, json_bodies
from livegnn.serve.envelope import Refused, enveloped
from livegnn.serve.limits import Limits
from livegnn.serve.metrics import Metrics

__all__ = ["ROUTES", "Application", "app"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = "application/json"
ROUTES = {
    "/v1/sample": "POST",
    "/v1/predict": "POST",
    "/v1/updates": "POST",
    "/v1/stats": "GET",
    "/v1/healthz": "GET",
    "/metrics": "GET",
}
_WRITTEN_AT_ONCE_MAX = 5_000  # numbers of a JSON answer that the event loop may write itself
_OPEN_ROUTES = ("/v1/healthz",)


class _Request(NamedTuple):
    headers: dict[bytes, bytes]
    receive: Receive


class _Answer(NamedTuple):
    body: bytes
    content_type: str = JSON
    status: int = 200


def app(
    server: SampleServer, *, token: str | None = None, limits: Limits | None = None, read_only: bool = False
) -> Application:
    """An ASGI application that serves a sample server; any ASGI server runs it, others can mount it.

    Args:    token: where given, every request but /v1/healthz needs the header "Authorization: Bearer <token>".
             limits: of requests.  read_only: refuses /v1/updates.
    Raises:  UsageError.
    """
    if not isinstance(server, SampleServer):
        raise UsageError(f"[serve] expected a SampleServer, got {type(server).__name__}; make one of your sampler")
    if token is not None and (not isinstance(token, str) or not token.isascii() or not token.strip()):
        raise UsageError("[serve] expected token as ASCII text that is not blank, got another value; give one")
    return Application(_Service(server, limits or Limits(), read_only), None if token is None else token.encode())


class Application:
    """The routes as one ASGI application: a look-up of the path, since no route has parameters."""

    def __init__(self, service: _Service, secret: bytes | None) -> None:
        self._service = service
        handlers = (
            service.sample,
            service.predict,
            service.updates,
            service.stats,
            service.healthz,
            service.metrics_text,
        )
        self._endpoints = {
            path: (method, _Endpoint(path, handler, service.metrics, None if path in _OPEN_ROUTES else secret))
            for (path, method), handler in zip(ROUTES.items(), handlers, strict=True)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"][len(scope.get("root_path", "")) :]
            method, endpoint = self._endpoints.get(path, (None, None))
            if endpoint is not None and scope["method"] == method:
                await endpoint(scope, receive, send)
            else:
                await self._refuse(scope["method"], method, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            raise UsageError(f"[serve] expected HTTP, got {scope['type']}; there are no such routes")

    async def _refuse(self, got: str, method: str | None, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = []
        if method is None:
            message = f"[route] expected one of {', '.join(ROUTES)}, got another; mend the path"
            refused = Refused(404, "RouteUnknown", message)
        else:
            refused = Refused(405, "MethodNotAllowed", f"[route] expected {method}, got {got}; use {method}")
            headers.append((b"allow", method.encode()))
        status, body = enveloped(refused)
        self._service.metrics.observe("other", status, 0.0)
        await _send(send, _Answer(body, JSON, status), headers)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        self._service.close()
        await send({"type": "lifespan.shutdown.complete"})


class _Endpoint:
    """One route as an ASGI application."""

    def __init__(
        self, route: str, handle: Callable[[_Request], Awaitable[_Answer]], metrics: Metrics, secret: bytes | None
    ) -> None:
        self._route, self._handle, self._metrics = route, handle, metrics
        self._secret = None if secret is None else b"Bearer " + secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        headers: list[tuple[bytes, bytes]] = []
        try:
            request = _Request(dict(scope["headers"]), receive)
            self._check_token(request.headers)
            answer = await self._handle(request)
        except Exception as error:  # every error leaves in the envelope
            status, body = enveloped(error)
            answer = _Answer(body, JSON, status)
            if status == 401:
                headers.append((b"www-authenticate", b"Bearer"))
            if status == 503:
                headers.append((b"retry-after", b"1"))
            if status in (408, 413):  # the rest of the body is not read
                headers.append((b"connection", b"close"))
        self._metrics.observe(self._route, answer.status, time.perf_counter() - start)
        await _send(send, answer, headers)

    def _check_token(self, headers: Mapping[bytes, bytes]) -> None:
        if self._secret is not None and not hmac.compare_digest(headers.get(b"authorization", b""), self._secret):
            raise Refused(
                401, "TokenInvalid", "[token] expected the header Authorization: Bearer and the token, got another"
            )


class _Service:
    """What the routes do."""

    def __init__(self, server: SampleServer, limits: Limits, read_only: bool) -> None:
        self._server, self._limits, self._read_only = server, limits, read_only
        self.metrics = Metrics(server)
        self._writer = ThreadPoolExecutor(1, "livegnn-updates")
        self._batches_waiting = 0

    def close(self) -> None:
        self._writer.shutdown(wait=True)

    async def sample(self, request: _Request) -> _Answer:
        answer_form = _answer_form(request.headers.get(b"accept", b"*/*"), request.headers.get(b"content-type", b""))
        asked = await self._asked(request, ("seeds", "query", "features", "edge_ids", "at_least", "timeout_ms"))
        seeds, timeout = asked.pop("seeds"), self._seconds(asked.pop("timeout_ms", None))
        sample = await self._server.sample_async(seeds, timeout=timeout, **asked)
        wanted = {"features": asked.get("features", True), "edge_ids": asked.get("edge_ids", True)}
        if answer_form == frames.CONTENT_TYPE:
            return _Answer(frames.encode_sample(sample, **wanted), answer_form)
        return _Answer(await _written(_numbers(sample), lambda: json_bodies.encode_sample(sample, **wanted)))

    async def predict(self, request: _Request) -> _Answer:
        answer_form = _answer_form(request.headers.get(b"accept", b"*/*"), request.headers.get(b"content-type", b""))
        asked = await self._asked(request, ("seeds", "at_least", "timeout_ms"))
        seeds, timeout = asked.pop("seeds"), self._seconds(asked.pop("timeout_ms", None))
        prediction: Prediction = await self._server.predict_async(seeds, timeout=timeout, **asked)
        if answer_form == frames.CONTENT_TYPE:
            return _Answer(frames.encode_prediction(prediction), answer_form)
        return _Answer(await _written(prediction.values.size, lambda: json_bodies.encode_prediction(prediction)))

    async def updates(self, request: _Request) -> _Answer:
        if self._read_only:
            raise Refused(403, "ReadOnly", "[updates] expected a service that takes updates, got a read-only one")
        named = request.headers.get(b"content-type", b"")
        if not named or _form(named) != JSON:  # named: a page of another site cannot send that without asking first
            raise _unsupported(named or b"none", JSON)
        body = await self._body(request)
        if self._batches_waiting >= self._limits.batches_waiting_max:
            raise Overloaded(
                f"[updates] expected fewer than {self._limits.batches_waiting_max} batches waiting, got as many; send "
                "it again later"
            )
        self._batches_waiting += 1
        try:
            version, count = await asyncio.get_running_loop().run_in_executor(self._writer, self._apply, body)
        finally:
            self._batches_waiting -= 1
        return _json({"version": version, "updates": count})

    def _apply(self, body: bytes) -> tuple[int, int]:
        updates = json_bodies.decode_updates(body, self._limits.updates_max)
        return self._server.apply(updates), len(updates)

    async def stats(self, request: _Request) -> _Answer:
        source = getattr(self._server.source, "stats", None)
        found: dict[str, Any] = {"server": dataclasses.asdict(self._server.stats)}
        if isinstance(source, Mapping):
            found["source"] = dict(source)
        elif dataclasses.is_dataclass(source) and not isinstance(source, type):
            found["source"] = dataclasses.asdict(source)
        found["queries"] = {str(one.number): one.query.to_text() for one in self._server.source.plan.queries}
        return _json(found)

    async def healthz(self, request: _Request) -> _Answer:
        if not self._server.is_open:
            raise Refused(503, "Closed", "[healthz] expected an open sample server, got one that was closed")
        return _json({"status": "ok", "version": self._server.version})

    async def metrics_text(self, request: _Request) -> _Answer:
        return _Answer(self.metrics.text(), "text/plain; version=0.0.4; charset=utf-8")

    # ---- reading

    async def _asked(self, request: _Request, keys: tuple[str, ...]) -> dict[str, Any]:
        """What a sample or predict request gives, of these keys; `seeds` among them."""
        form = _form(request.headers.get(b"content-type", b""))
        if form not in (JSON, frames.CONTENT_TYPE):
            raise _unsupported(request.headers[b"content-type"], f"{JSON} or {frames.CONTENT_TYPE}")
        body = await self._body(request)
        if form == JSON:
            asked = json_bodies.decode_request(body, keys)
        else:
            asked = frames.decode_request(body)._asdict()
            if "query" not in keys and asked["query"] is not None:
                raise Refused(400, "BodyInvalid", "[body] expected query -1 in a predict request, got another")
            asked = {key: value for key, value in asked.items() if key in keys}
        if not 1 <= len(asked["seeds"]) <= self._limits.seeds_max:
            raise Refused(
                413 if len(asked["seeds"]) else 400,
                "TooMany" if len(asked["seeds"]) else "BodyInvalid",
                f"[seeds] expected from 1 to {self._limits.seeds_max} seeds, got {len(asked['seeds'])}; split them",
            )
        return asked

    def _seconds(self, timeout_ms: float | None) -> float:
        wanted = self._limits.timeout_ms if timeout_ms is None else max(timeout_ms, -1.0)  # an integer of any length
        return min(wanted, self._limits.timeout_ms_max) / 1e3

    async def _body(self, request: _Request) -> bytes:
        """The whole body. Raises: Refused if it is too large, comes too slowly or stops."""
        length = request.headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limits.body_bytes_max:
            raise self._too_large(length.decode("latin-1"))
        try:
            async with asyncio.timeout(self._limits.body_ms_max / 1e3):
                first = await request.receive()
                if first["type"] != "http.request" or first.get("more_body", False):
                    return await self._rest(request, first)
        except TimeoutError as cause:
            limit = f"[body] expected all of it within {self._limits.body_ms_max} ms, got a part; send it faster"
            raise Refused(408, "BodySlow", limit, retryable=True) from cause
        body: bytes = first.get("body", b"")
        if len(body) > self._limits.body_bytes_max:
            raise self._too_large(str(len(body)))
        return body

    async def _rest(self, request: _Request, message: MutableMapping[str, Any]) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] != "http.request":
                raise Refused(400, "BodyInvalid", "[body] expected all of it, got the end of the connection")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limits.body_bytes_max:
                raise self._too_large(f"{size} so far")
            if not message.get("more_body", False):
                return b"".join(parts)
            message = await request.receive()

    def _too_large(self, got: str) -> Refused:
        limit = self._limits.body_bytes_max
        return Refused(413, "BodyTooLarge", f"[body] expected up to {limit} bytes, got {got[:20]}; split the request")


async def _send(send: Send, answer: _Answer, headers: list[tuple[bytes, bytes]]) -> None:
    headers.append((b"content-type", answer.content_type.encode()))
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


@lru_cache(256)
def _form(content_type: bytes) -> str:
    """A media type without its parameters; JSON where none is named."""
    return content_type.split(b";")[0].strip().lower().decode("latin-1") or JSON


@lru_cache(256)
def _answer_form(accept: bytes, content_type: bytes) -> str:
    """By Accept; where that leaves it open, as the request."""
    named = [_form(part) for part in accept.split(b",")]
    if frames.CONTENT_TYPE in named:
        return frames.CONTENT_TYPE
    if JSON in named:
        return JSON
    if "*/*" in named or "application/*" in named:
        asked = _form(content_type)
        return asked if asked == frames.CONTENT_TYPE else JSON
    raise Refused(
        406,
        "AcceptUnknown",
        f"[accept] expected {JSON} or {frames.CONTENT_TYPE}, got {accept[:80].decode('latin-1')}; ask for one of them",
    )


def _unsupported(got: bytes, expected: str) -> Refused:
    return Refused(
        415, "ContentTypeUnknown", f"[content-type] expected {expected}, got {got[:80].decode('latin-1')}; send that"
    )


def _numbers(sample: Sample) -> int:
    """How many numbers the sample's levels have, features first."""
    levels = range(sample.hops + 1)
    return sum(2 * sample.mask(k).size for k in levels) + sum(level.size for level in sample._features)


async def _written(numbers: int, write: Callable[[], bytes]) -> bytes:
    if numbers <= _WRITTEN_AT_ONCE_MAX:
        return write()
    return await asyncio.get_running_loop().run_in_executor(None, write)


def _json(document: object) -> _Answer:
    return _Answer(json.dumps(document, default=str).encode())
