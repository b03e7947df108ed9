"""The ASGI application: routes, tokens, limits, one error envelope.

A route is a coroutine from a request to an answer. `Application.__call__` does around it what all need: token, errors,
metrics, and the request's part of the budget of bytes. Host, Origin and token are looked at before a body is read.
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
from livegnn.sampling import Prediction, SampleServer
from livegnn.serve import frames, json_bodies
from livegnn.serve.body import read_body
from livegnn.serve.envelope import Refused, enveloped
from livegnn.serve.idempotency import Keys, checked_key
from livegnn.serve.limits import Limits
from livegnn.serve.origins import check_local
from livegnn.serve.sample_metrics import SampleMetrics
from livegnn.serve.traffic import Lease, Traffic
from livegnn.serve.writing import JSON, Answer, Receive, Scope, Send, write

ROUTES = {
    "/v1/sample": "POST",
    "/v1/predict": "POST",
    "/v1/updates": "POST",
    "/v1/stats": "GET",
    "/v1/healthz": "GET",
    "/metrics": "GET",
}
_OPEN_ROUTES = ("/v1/healthz",)
_WRITTEN_AT_ONCE_BYTES_MAX = 1 << 15  # arrays of a JSON answer that the event loop may write itself
_JSON_FACTOR = 4  # bytes of JSON for a byte of an array, about
_SIZED = ("query", "features", "edge_ids", "edge_data")  # what the size of a sample depends on, apart from its seeds
_HEADERS = {  # of errors, by status
    401: (b"www-authenticate", b"Bearer"),
    408: (b"connection", b"close"),  # the rest of the body is not read
    413: (b"connection", b"close"),
    503: (b"retry-after", b"1"),
}


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
    return Application(server, token, limits or Limits(), read_only)


class Application:
    """The routes as one ASGI application: a look-up of the path, since no route has parameters.

    limits: what clients may ask for.  traffic: what is under way.
    """

    def __init__(self, server: SampleServer, token: str | None, limits: Limits, read_only: bool) -> None:
        self.limits, self.traffic = limits, Traffic(limits.under_way_bytes_max)
        self._server, self._read_only = server, read_only
        self._secret = None if token is None else b"Bearer " + token.encode()
        self._metrics = SampleMetrics(server, self.traffic)
        self._keys = Keys(limits.keys_max, limits.keys_ms_max)
        self._writer = ThreadPoolExecutor(1, "livegnn-updates")
        self._batches_waiting = 0
        handlers = (self._sample, self._predict, self._updates, self._stats, self._healthz, self._metrics_text)
        self._handlers: dict[str, Callable[[_Request], Awaitable[Answer]]] = dict(zip(ROUTES, handlers, strict=True))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise UsageError(f"[serve] expected HTTP, got {scope['type']}; there are no such routes")
        start, route = time.perf_counter(), "other"
        path = scope["path"][len(scope.get("root_path", "")) :]
        headers: list[tuple[bytes, bytes]] = []
        with Lease(self.traffic) as lease:
            try:
                if self._secret is None:
                    check_local(scope["headers"])
                _check_route(path, scope["method"])
                route = path
                request = _Request(dict(scope["headers"]), receive, lease)
                self._check_token(route, request.headers)
                answer = await self._handlers[route](request)
                lease.hold(len(answer.body))
            except Exception as error:  # every error leaves in the envelope
                lease.hold(0)
                status, body = enveloped(error)
                if status in _HEADERS:
                    headers.append(_HEADERS[status])
                elif status == 405:
                    headers.append((b"allow", ROUTES[path].encode()))
                answer = Answer(body, JSON, status)
            self._metrics.observe(route, answer.status, time.perf_counter() - start)
            await write(scope, send, answer, headers, self.traffic, self.limits.answer_ms_max)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        self._writer.shutdown(wait=True)  # once the batches that wait are applied
        await send({"type": "lifespan.shutdown.complete"})

    def _check_token(self, route: str, headers: Mapping[bytes, bytes]) -> None:
        if self._secret is None or route in _OPEN_ROUTES:
            return
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._secret):
            raise Refused(
                401, "TokenInvalid", "[token] expected the header Authorization: Bearer and the token, got another"
            )

    # ---- the routes

    async def _sample(self, request: _Request) -> Answer:
        answer_form, asked = await self._asked(request, json_bodies.SampleBody)
        seeds = asked.pop("seeds")
        size = self._server.sample_bytes(len(seeds), **{key: asked[key] for key in _SIZED})
        request.lease.hold(size if answer_form == frames.CONTENT_TYPE else _JSON_FACTOR * size)
        sample = await self._server.sample_async(seeds, **asked)
        wanted = {key: asked[key] for key in _SIZED[1:]}
        if answer_form == frames.CONTENT_TYPE:
            return Answer(frames.encode_sample(sample, **wanted), answer_form)
        return Answer(await _written(size, lambda: json_bodies.encode_sample(sample, **wanted)))

    async def _predict(self, request: _Request) -> Answer:
        answer_form, asked = await self._asked(request, json_bodies.PredictBody)
        prediction: Prediction = await self._server.predict_async(**asked)
        if answer_form == frames.CONTENT_TYPE:
            return Answer(frames.encode_prediction(prediction), answer_form)
        return Answer(await _written(prediction.values.nbytes, lambda: json_bodies.encode_prediction(prediction)))

    async def _updates(self, request: _Request) -> Answer:
        if self._read_only:
            raise Refused(403, "ReadOnly", "[updates] expected a service that takes updates, got a read-only one")
        named = request.headers.get(b"content-type", b"")
        if not named or _form(named) != JSON:  # named: a page of another site cannot send that without asking first
            raise _unsupported(named or b"none", JSON)
        key = checked_key(request.headers.get(b"idempotency-key"))
        body = await read_body(request.headers, request.receive, self.limits, request.lease)
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
        future.add_done_callback(lambda done: self._end(key, done))  # also where no client waits any more
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
            stands = done is not None and not done.cancelled() and done.exception() is None
            self._keys.end(key, done.result() if done is not None and stands else None)

    async def _stats(self, request: _Request) -> Answer:
        source = getattr(self._server.source, "stats", None)
        found: dict[str, Any] = {"server": dataclasses.asdict(self._server.stats)}
        if isinstance(source, Mapping):
            found["source"] = dict(source)
        elif dataclasses.is_dataclass(source) and not isinstance(source, type):
            found["source"] = dataclasses.asdict(source)
        found["queries"] = {str(one.number): one.query.to_text() for one in self._server.source.plan.queries}
        return _json(found)

    async def _healthz(self, request: _Request) -> Answer:
        if not self._server.is_open:
            raise Refused(503, "Closed", "[healthz] expected an open sample server, got one that was closed")
        return _json({"status": "ok", "version": self._server.version})

    async def _metrics_text(self, request: _Request) -> Answer:
        return Answer(self._metrics.text(), "text/plain; version=0.0.4; charset=utf-8")

    # ---- reading

    async def _asked(self, request: _Request, kind: type[json_bodies.PredictBody]) -> tuple[str, dict[str, Any]]:
        """The form of the answer to a sample or predict request, and what the server is to be called with."""
        named = request.headers.get(b"content-type", b"")
        answer_form, form = _answer_form(request.headers.get(b"accept", b"*/*"), named), _form(named)
        if form not in (JSON, frames.CONTENT_TYPE):
            raise _unsupported(named, f"{JSON} or {frames.CONTENT_TYPE}")
        body = await read_body(request.headers, request.receive, self.limits, request.lease)
        if form == JSON:
            asked = json_bodies.decode_request(body, kind)
        else:
            asked = frames.decode_request(body)._asdict()
            keys = kind.__struct_fields__
            if "query" not in keys and asked["query"] is not None:
                raise Refused(400, "BodyInvalid", "[body] expected query -1 in a predict request, got another")
            asked = {key: value for key, value in asked.items() if key in keys}
        count, most = len(asked["seeds"]), self.limits.seeds_max
        if not 1 <= count <= most:
            status, kind_of_error = (413, "TooMany") if count else (400, "BodyInvalid")
            raise Refused(status, kind_of_error, f"[seeds] expected from 1 to {most} seeds, got {count}; split them")
        timeout_ms = asked.pop("timeout_ms")
        wanted = self.limits.timeout_ms if timeout_ms is None else max(timeout_ms, -1.0)  # an integer of any length
        return answer_form, asked | {"timeout": min(wanted, self.limits.timeout_ms_max) / 1e3}


def _check_route(path: str, got: str) -> None:
    method = ROUTES.get(path)
    if method is None:
        raise Refused(404, "RouteUnknown", f"[route] expected one of {', '.join(ROUTES)}, got another; use one of them")
    if got != method:
        raise Refused(405, "MethodNotAllowed", f"[route] expected {method}, got {got[:20]}; use {method}")


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


async def _written(size: int, write: Callable[[], bytes]) -> bytes:
    if size <= _WRITTEN_AT_ONCE_BYTES_MAX:
        return write()
    return await asyncio.get_running_loop().run_in_executor(None, write)


def _json(document: object) -> Answer:
    return Answer(json.dumps(document, default=str).encode())
