"""The ASGI application of a deployment.

    LimitedConnection (connections.py) -> Service: host, token, body within limits -> Litestar: routes -> answer
                                                                                   -> updates and JSON reads, at once

Service does what every request needs before a route sees it, as Application does for a sample server: it looks at
host, origin and token before it reads a body, and reads the body within its limits. Litestar routes, decodes bodies
as the structs of bodies.py, and makes the OpenAPI document of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import msgspec
from litestar import Litestar, Request, Response
from litestar.di import Provide
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from livegnn import _native
from livegnn.deployment import Deployment, tracing
from livegnn.errors import Overloaded, UsageError
from livegnn.serve.body import read_body
from livegnn.serve.envelope import Refused, enveloped
from livegnn.serve.limits import Limits
from livegnn.serve.origins import check_local
from livegnn.serve.service import changes, explain, meta, more_reads, page, pipes, reads, stats_route, temporal, writes
from livegnn.serve.service.access import Access, AccessToken
from livegnn.serve.service.context import ENDING, ServiceContext
from livegnn.serve.service.feed import ChangeFeed
from livegnn.serve.service.log_lines import FAILURE, RequestLog
from livegnn.serve.service.metrics import DeploymentMetrics
from livegnn.serve.service.query_names import check_names, written_name
from livegnn.serve.service.stats import StatsDesk
from livegnn.serve.service.windows import ActivityWindows
from livegnn.serve.traffic import Lease, Traffic
from livegnn.serve.writing import JSON, Answer, Receive, Scope, Send, write, write_piece

_PARTS = (reads, more_reads, temporal, changes, explain, pipes, writes, meta, stats_route)
HANDLERS = tuple(handler for part in _PARTS for handler in part.HANDLERS)
_ACCEPT_JSON = (b"*/*", JSON.encode())
_HEADERS = {  # of errors, by status
    401: (b"www-authenticate", b"Bearer"),
    405: (b"allow", b"GET, HEAD"),  # of the page; the router knows its own
    408: (b"connection", b"close"),  # the rest of the body is not read
    413: (b"connection", b"close"),
    429: (b"retry-after", b"1"),
    503: (b"retry-after", b"1"),
}


def service(
    deployment: Deployment,
    *,
    tokens: Iterable[AccessToken] = (),
    limits: Limits | None = None,
    anyone: bool = False,
    request_log: RequestLog | None = None,
) -> Service:
    """An ASGI application that serves a started deployment; any ASGI server runs it.

    Args:    tokens: where given, every request but /healthz and /readyz needs one; without any, only requests to this
             machine's own names are served.
             anyone: serves requests to any name without tokens: for a network that is trusted.
             request_log: gets every answered request.
    Raises:  UsageError, DataMissing without litestar (the extra serve).
    """
    if not isinstance(deployment, Deployment):
        raise UsageError(f"[serve] expected a Deployment, got {type(deployment).__name__}; make one: lg.Deployment")
    if not deployment.is_open:
        raise UsageError("[serve] expected a deployment that was started, got one that is not open; call start()")
    access = Access(tokens)
    return Service(deployment, access, limits or Limits(), request_log, local_only=not access and not anyone)


class Service:
    """The routes of a deployment as one ASGI application. limits, traffic: as those of serve.app."""

    def __init__(
        self,
        deployment: Deployment,
        access: Access,
        limits: Limits,
        request_log: RequestLog | None = None,
        *,
        local_only: bool,
    ) -> None:
        self._request_log = request_log
        self.limits, self.traffic = limits, Traffic(limits.under_way_bytes_max)
        self._access, self._local_only = access, local_only
        windows = ActivityWindows(deployment)
        self._metrics = DeploymentMetrics(deployment, self.traffic, windows)
        stats, feed = StatsDesk(deployment, windows), ChangeFeed(deployment.hub)
        self.context = ServiceContext(deployment, limits, self.traffic, self._metrics, stats, feed)
        self.traffic.on_end += [self.context.feed.end, self.context.repartitions.end]
        self._routes = Litestar(
            list(HANDLERS),
            dependencies={"context": Provide(lambda: self.context, sync_to_thread=False)},
            before_request=check_names,
            exception_handlers={HTTPException: _http_error, Exception: _error},
            openapi_config=OpenAPIConfig(
                title="livegnn",
                version=_native.__version__,
                path="/",
                use_handler_docstrings=True,
                render_plugins=(JsonRenderPlugin(),),
            ),
            on_startup=[windows.begin],
            on_shutdown=[windows.end, self.context.close],
            request_max_body_size=None,
            logging_config=None,
        )
        self._paths = {route.path for route in self._routes.routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)  # type: ignore[arg-type]
            return
        start, (scope, path) = time.perf_counter(), explain.spelled(scope)
        route = path if path in self._paths or path in page.PAGE_PATHS else "other"
        with Lease(self.traffic) as lease, ExitStack() as ending:
            scope[ENDING] = ending
            answering = _Answering(scope, send, lease, self)
            headers = dict(scope["headers"])
            span = ending.enter_context(tracing.request_span(scope["method"], route, headers))
            try:
                if self._local_only:
                    check_local(scope["headers"])
                _check_path(path)
                self._access.check(path, headers.get(b"authorization", b""))
                if path in page.PAGE_PATHS:
                    await answering.give(*page.page_answer(path, scope["method"]))
                    return
                body = await read_body(headers, receive, self.limits, lease)
                if route == "other" and path.count("/") < 2:  # else the router gives an OpenAPI page of its own
                    raise _unknown(path)
                is_plain = scope["method"] == "POST" and not scope["query_string"]  # a query is the router's to refuse
                if is_plain and route == writes.UPDATES:
                    await self._update(headers, body, answering)
                elif not (is_plain and await self._read(route, headers, body, answering)):
                    await self._routes(scope, _given(body, receive), answering)  # type: ignore[arg-type]
            except Exception as error:  # every error leaves in the envelope
                await answering.fail(error)
            finally:
                seconds = time.perf_counter() - start
                tracing.ended(span, answering.status)
                self._metrics.observe(route, answering.status, seconds)
                if self._request_log is not None:
                    self._request_log.answered(scope, route, answering.status, seconds)

    async def _update(self, headers: dict[bytes, bytes], body: bytes, answering: _Answering) -> None:
        """The route that decides the rate of updates, without what Litestar adds to a request: a fifth of its time."""
        key = headers.get(b"idempotency-key")
        form = headers.get(b"content-type", b"").decode("latin-1")
        try:
            done = await writes.applied(self.context, form, None if key is None else key.decode("latin-1"), body)
        except Overloaded as error:
            await answering.fail(error, 429)
        else:
            await answering.answer(msgspec.json.encode(done))

    async def _read(self, route: str, headers: dict[bytes, bytes], body: bytes, answering: _Answering) -> bool:
        """Whether this was a usual read, in JSON, and is answered: Litestar's part of it would be the larger one."""
        if route not in reads.DIRECT or headers.get(b"accept", b"*/*") not in _ACCEPT_JSON:
            return False
        found = await reads.read_directly(self.context, route, body)
        if found is not None:
            await answering.answer(found)
        return found is not None


def _check_path(path: str) -> None:
    """Refuses other spellings of a path, which the router would take: scopes and metrics go by the path."""
    if "//" in path or (path.endswith("/") and path != "/"):
        raise _unknown(path)


def _unknown(path: str) -> Refused:
    return Refused(404, "RouteUnknown", f"[route] expected a route of /openapi.json, got {path[:80]}")


class _Answering:
    """What Litestar sends: a whole answer goes by write(), within its time; a stream piece by piece."""

    def __init__(self, scope: Scope, send: Send, lease: Lease, service: Service) -> None:
        self._scope, self._send, self._lease, self._service = scope, send, lease, service
        self._start: Any = None
        self._begun = False
        self.status = 500

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._start, self.status = message, message["status"]
        elif self._begun or message.get("more_body", False):
            if not self._begun:
                self._begun = True
                await self._send(self._start)
            limits = self._service.limits
            await write_piece(self._scope, self._send, message, self._service.traffic, limits.answer_ms_max)
        else:
            await self._whole(message.get("body", b""))

    async def _whole(self, body: bytes) -> None:
        self._begun = True
        headers = [(name, value) for name, value in self._start["headers"] if name.lower() not in _OWN]
        kind = dict(self._start["headers"]).get(b"content-type", JSON.encode()).decode("latin-1")
        self._lease.hold(len(body))
        more = _HEADERS.get(self.status)
        if more is not None and more[0] not in {name.lower() for name, _ in headers}:
            headers.append(more)
        answer = Answer(body, kind, self.status)
        limits = self._service.limits
        await write(self._scope, self._send, answer, headers, self._service.traffic, limits.answer_ms_max)

    async def give(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """An answer that is no route's."""
        self.status, self._start = 200, {"headers": headers}
        await self._whole(body)

    async def answer(self, body: bytes, status: int = 200) -> None:
        """A whole answer in JSON."""
        self.status, self._start = status, {"headers": [(b"content-type", JSON.encode())]}
        await self._whole(body)

    async def fail(self, error: Exception, status: int | None = None) -> None:
        """An error in its envelope. status: in place of the error's own."""
        if self._begun:
            raise error
        self._lease.hold(0)
        self._scope[FAILURE] = error
        own, body = enveloped(error)
        await self.answer(body, own if status is None else status)


_OWN = (b"content-type", b"content-length")  # headers that write() sends


def _given(body: bytes, receive: Receive) -> Receive:
    """A receive() that gives a body that was read, and then what comes after it."""
    sent = False

    async def given() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given


def _error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    status, body = enveloped(error)
    request.scope[FAILURE] = error  # type: ignore[literal-required]
    if isinstance(error, Overloaded):  # a full queue of writes: the client is to slow down
        status = 429
    return Response(body, status_code=status, media_type=JSON)


def _http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Litestar's own refusals in our words."""
    if isinstance(error, NotFoundException):
        return _error(request, _unknown(request.url.path))
    if isinstance(error, MethodNotAllowedException):
        allowed = _error(
            request, Refused(405, "MethodNotAllowed", f"[route] expected another method, got {request.method}")
        )
        allowed.headers["allow"] = (error.headers or {}).get("allow", "")
        return allowed
    if isinstance(error, ValidationException):
        return _error(request, Refused(400, "BodyInvalid", f"[body] {_told(request, error)}; correct the request"))
    if error.status_code == 400:
        return _error(request, Refused(400, "BodyInvalid", f"[body] expected JSON, got: {error.detail}; correct it"))
    return _error(request, Refused(error.status_code, "RequestInvalid", f"[request] {error.detail}"))


def _told(request: Request[Any, Any, Any], error: ValidationException) -> str:
    found = [one for one in error.extra if isinstance(one, dict)] if isinstance(error.extra, list) else []
    names = [written_name(request.route_handler, str(one.get("key", "body"))) for one in found]
    said = "; ".join(f"{name}: {one.get('message', '')}" for name, one in zip(names, found, strict=True))
    return said or error.detail
