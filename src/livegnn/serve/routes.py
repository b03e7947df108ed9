"""The ASGI application: routes, tokens, limits, one error envelope.

A route is a coroutine from a request to an answer; `_Endpoint` does around it what all need: token, errors, metrics,
and the request's part of the budget of bytes. Host, Origin and token are looked at before a body is read.
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
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from livegnn.errors import Overloaded, UpdateError, UsageError
from livegnn.sampling import Prediction, Sample, SampleServer
from livegnn.serve import frames, json_bodies
from livegnn.serve.envelope import Refused, enveloped
from livegnn.serve.idempotency import Keys, checked_key
from livegnn.serve.limits import Limits
from livegnn.serve.metrics import Metrics
from livegnn.serve.origins import check_local
from livegnn.serve.traffic import Lease, Traffic
from livegnn.serve.writing import JSON, Answer, Receive, Scope, Send, write

__all__ = ["ROUTES", "Application", "app"]

ROUTES = {
    "/v1/sample": "POST",
    "/v1/predict": "POST",
    "/v1/updates": "POST",
    "/v1/stats": "GET",
    "/v1/healthz": "GET",
    "/metrics": "GET",
}
_WRITTEN_AT_ONCE_MAX = 5_000  # numbers of a JSON answer that the event loop may write itself
_JSON_FACTOR = 4  # bytes of JSON for a byte of an array, about
_SIZED = ("query", "features", "edge_ids", "edge_data")  # what the size of a sample depends on, apart from its seeds
_OPEN_ROUTES = ("/v1/healthz",)


class _Request(NamedTuple):
    headers: dict[bytes, bytes]
    receive: Receive
    lease: Lease


def app(
    server: SampleServer, *, token: str | None = None, limits: Limits | None = None, read_only: bool = False
) -> Application:
    """An ASGI application that serves a sample server; any ASGI server runs it, others can mount it.

    Args:    token: where given, every request but /v1/healthz needs the header "Authorization: Bearer <token>"; without
             one only requests to this machine's own names are served, and from its own pages.
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
        self._is_local = secret is None
        handlers = (
            service.sample,
            service.predict,
            service.updates,
            service.stats,
            service.healthz,
            service.metrics_text,
        )
        self._endpoints = {
            path: (method, _Endpoint(path, handler, service, None if path in _OPEN_ROUTES else secret))
            for (path, method), handler in zip(ROUTES.items(), handlers, strict=True)
        }

    @property
    def limits(self) -> Limits:
        """What clients may ask for."""
        return self._service.limits

    @property
    def traffic(self) -> Traffic:
        """What is under way."""
        return self._service.traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"][len(scope.get("root_path", "")) :]
            method, endpoint = self._endpoints.get(path, (None, None))
            try:
                if self._is_local:
                    check_local(scope["headers"])
                _check_route(scope["method"], method)
            except Refused as refused:
                await self._refuse(scope, send, refused, method)
            else:
                assert endpoint is not None
                await endpoint(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            raise UsageError(f"[serve] expected HTTP, got {scope['type']}; there are no such routes")

    async def _refuse(self, scope: Scope, send: Send, refused: Refused, method: str | None) -> None:
        headers: list[tuple[bytes, bytes]] = []
        if refused.status == 405:
            headers.append((b"allow", str(method).encode()))
        status, body = enveloped(refused)
        service = self._service
        service.metrics.observe("other", status, 0.0)
        await write(scope, send, Answer(body, JSON, status), headers, service.traffic, service.limits.answer_ms_max)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        self._service.close()
        await send({"type": "lifespan.shutdown.complete"})


def _check_route(got: str, method: str | None) -> None:
    if method is None:
        raise Refused(404, "RouteUnknown", f"[route] expected one of {', '.join(ROUTES)}, got another; use one of them")
    if got != method:
        raise Refused(405, "MethodNotAllowed", f"[route] expected {method}, got {got[:20]}; use {method}")


class _Endpoint:
    """One route as an ASGI application."""

    def __init__(
        self, route: str, handle: Callable[[_Request], Awaitable[Answer]], service: _Service, secret: bytes | None
    ) -> None:
        self._route, self._handle, self._service = route, handle, service
        self._secret = None if secret is None else b"Bearer " + secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        headers: list[tuple[bytes, bytes]] = []
        service = self._service
        with Lease(service.traffic) as lease:
            try:
                request = _Request(dict(scope["headers"]), receive, lease)
                self._check_token(request.headers)
                answer = await self._handle(request)
                lease.hold(len(answer.body))
            except Exception as error:  # every error leaves in the envelope
                lease.hold(0)
                answer = _refusal(error, headers)
            service.metrics.observe(self._route, answer.status, time.perf_counter() - start)
            await write(scope, send, answer, headers, service.traffic, service.limits.answer_ms_max)

    def _check_token(self, headers: Mapping[bytes, bytes]) -> None:
        if self._secret is not None and not hmac.compare_digest(headers.get(b"authorization", b""), self._secret):
            raise Refused(
                401, "TokenInvalid", "[token] expected the header Authorization: Bearer and the token, got another"
            )


def _refusal(error: Exception, headers: list[tuple[bytes, bytes]]) -> Answer:
    """The envelope of an error; the headers that belong to its status are appended."""
    status, body = enveloped(error)
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status in (408, 413):  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    return Answer(body, JSON, status)


class _Service:
    """What the routes do."""

    def __init__(self, server: SampleServer, limits: Limits, read_only: bool) -> None:
        self._server, self.limits, self._read_only = server, limits, read_only
        self.traffic = Traffic(limits.under_way_bytes_max)
        self.metrics = Metrics(server, self.traffic)
        self._keys = Keys(limits.keys_max, limits.keys_ms_max)
        self._writer = ThreadPoolExecutor(1, "livegnn-updates")
        self._batches_waiting = 0

    def close(self) -> None:
        """Ends once the batches that wait are applied."""
        self._writer.shutdown(wait=True)

    async def sample(self, request: _Request) -> Answer:
        answer_form = _answer_form(request.headers.get(b"accept", b"*/*"), request.headers.get(b"content-type", b""))
        asked = await self._asked(request, json_bodies.SampleBody)
        seeds, timeout = asked.pop("seeds"), self._seconds(asked.pop("timeout_ms", None))
        size = self._server.sample_bytes(len(seeds), **{key: asked[key] for key in _SIZED})
        request.lease.hold(size if answer_form == frames.CONTENT_TYPE else _JSON_FACTOR * size)
        sample = await self._server.sample_async(seeds, timeout=timeout, **asked)
        wanted = {key: asked[key] for key in _SIZED[1:]}
        if answer_form == frames.CONTENT_TYPE:
            return Answer(frames.encode_sample(sample, **wanted), answer_form)
        return Answer(await _written(_numbers(sample), lambda: json_bodies.encode_sample(sample, **wanted)))

    async def predict(self, request: _Request) -> Answer:
        answer_form = _answer_form(request.headers.get(b"accept", b"*/*"), request.headers.get(b"content-type", b""))
        asked = await self._asked(request, json_bodies.PredictBody)
        seeds, timeout = asked.pop("seeds"), self._seconds(asked.pop("timeout_ms", None))
        prediction: Prediction = await self._server.predict_async(seeds, timeout=timeout, **asked)
        if answer_form == frames.CONTENT_TYPE:
            return Answer(frames.encode_prediction(prediction), answer_form)
        return Answer(await _written(prediction.values.size, lambda: json_bodies.encode_prediction(prediction)))

    async def updates(self, request: _Request) -> Answer:
        if self._read_only:
            raise Refused(403, "ReadOnly", "[updates] expected a service that takes updates, got a read-only one")
        named = request.headers.get(b"content-type", b"")
        if not named or _form(named) != JSON:  # named: a page of another site cannot send that without asking first
            raise _unsupported(named or b"none", JSON)
        key = checked_key(request.headers.get(b"idempotency-key"))
        body = await self._body(request)
        if key is not None and (kept := self._keys.begin(key, body)) is not None:
            return kept
        try:
            if self._batches_waiting >= self.limits.batches_waiting_max:
                raise Overloaded(
                    f"[updates] expected fewer than {self.limits.batches_waiting_max} batches waiting, got as many; "
                    "send it again later"
                )
            future = self._writer.submit(self._apply, body)
        except BaseException:
            self._end(key, None)
            raise
        future.add_done_callback(
            lambda done: self._end(key, done)
        )  # also where no client waits for the answer any more
        self._batches_waiting += 1
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._batches_waiting -= 1

    def _apply(self, body: bytes) -> Answer:
        """Raises where the batch was refused. What fails after that, as something attached to the graph may, is an
        answer too: the batch stands, and must not be applied again.
        """
        updates = json_bodies.decode_updates(body, self.limits.updates_max)
        before = self._server.version
        try:
            version = self._server.apply(updates)
        except Exception as error:
            if isinstance(error, UpdateError) or self._server.version == before:
                raise
            status, envelope = enveloped(error)
            return Answer(envelope, JSON, status)
        return _json({"version": version, "updates": len(updates)})

    def _end(self, key: bytes | None, done: Future[Answer] | None) -> None:
        """Keeps the answer of a batch that may stand."""
        if key is not None:
            failed = done is None or done.cancelled() or done.exception() is not None
            self._keys.end(key, None if done is None or failed else done.result())

    async def stats(self, request: _Request) -> Answer:
        source = getattr(self._server.source, "stats", None)
        found: dict[str, Any] = {"server": dataclasses.asdict(self._server.stats)}
        if isinstance(source, Mapping):
            found["source"] = dict(source)
        elif dataclasses.is_dataclass(source) and not isinstance(source, type):
            found["source"] = dataclasses.asdict(source)
        found["queries"] = {str(one.number): one.query.to_text() for one in self._server.source.plan.queries}
        return _json(found)

    async def healthz(self, request: _Request) -> Answer:
        if not self._server.is_open:
            raise Refused(503, "Closed", "[healthz] expected an open sample server, got one that was closed")
        return _json({"status": "ok", "version": self._server.version})

    async def metrics_text(self, request: _Request) -> Answer:
        return Answer(self.metrics.text(), "text/plain; version=0.0.4; charset=utf-8")

    # ---- reading

    async def _asked(self, request: _Request, kind: type[json_bodies.PredictBody]) -> dict[str, Any]:
        """The fields of a sample or predict request by name."""
        form = _form(request.headers.get(b"content-type", b""))
        if form not in (JSON, frames.CONTENT_TYPE):
            raise _unsupported(request.headers[b"content-type"], f"{JSON} or {frames.CONTENT_TYPE}")
        body = await self._body(request)
        if form == JSON:
            asked = json_bodies.decode_request(body, kind)
        else:
            asked = frames.decode_request(body)._asdict()
            keys = kind.__struct_fields__
            if "query" not in keys and asked["query"] is not None:
                raise Refused(400, "BodyInvalid", "[body] expected query -1 in a predict request, got another")
            asked = {key: value for key, value in asked.items() if key in keys}
        if not 1 <= len(asked["seeds"]) <= self.limits.seeds_max:
            raise Refused(
                413 if len(asked["seeds"]) else 400,
                "TooMany" if len(asked["seeds"]) else "BodyInvalid",
                f"[seeds] expected from 1 to {self.limits.seeds_max} seeds, got {len(asked['seeds'])}; split them",
            )
        return asked

    def _seconds(self, timeout_ms: float | None) -> float:
        wanted = self.limits.timeout_ms if timeout_ms is None else max(timeout_ms, -1.0)  # an integer of any length
        return min(wanted, self.limits.timeout_ms_max) / 1e3

    async def _body(self, request: _Request) -> bytes:
        """The whole body. Raises: Refused if it is too large, comes too slowly or stops."""
        length = request.headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.limits.body_bytes_max:
            raise self._too_large(length.decode("latin-1"))
        try:
            async with asyncio.timeout(self.limits.body_ms_max / 1e3):
                return await self._parts(request)
        except TimeoutError as cause:
            limit = f"[body] expected all of it within {self.limits.body_ms_max} ms, got a part; send it faster"
            raise Refused(408, "BodySlow", limit, retryable=True) from cause

    async def _parts(self, request: _Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await request.receive()
            if message["type"] != "http.request":
                raise Refused(400, "BodyInvalid", "[body] expected all of it, got the end of the connection")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body_bytes_max:
                raise self._too_large(f"{size} so far")
            request.lease.hold(size)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self, got: str) -> Refused:
        limit = self.limits.body_bytes_max
        return Refused(413, "BodyTooLarge", f"[body] expected up to {limit} bytes, got {got[:20]}; split the request")


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
    """How many numbers the sample's levels have."""
    levels = range(sample.hops + 1)
    edges = sum(level.size for column in sample.edge_levels for level in column)
    return sum(2 * sample.mask(k).size for k in levels) + sum(level.size for level in sample._features) + edges


async def _written(numbers: int, write: Callable[[], bytes]) -> bytes:
    if numbers <= _WRITTEN_AT_ONCE_MAX:
        return write()
    return await asyncio.get_running_loop().run_in_executor(None, write)


def _json(document: object) -> Answer:
    return Answer(json.dumps(document, default=str).encode())
