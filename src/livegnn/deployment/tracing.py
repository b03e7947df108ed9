"""Spans of OpenTelemetry, where its package is installed and a provider is set: request -> commit -> apply -> durable.

    POST /v1/updates          of each request, under the caller's own span (header traceparent)
      livegnn.commit          one for each group, under its first request; it has links to the others
        livegnn.apply         graph and consumers
          livegnn.durable     the append to the log

Without the package, or without a provider, each of these is an empty context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

try:
    from opentelemetry import propagate, trace
except ModuleNotFoundError:  # optional
    trace = propagate = None  # type: ignore[assignment]

_NOTHING: AbstractContextManager[Any] = nullcontext()


def _tracer() -> Any:
    """None where spans would go nowhere."""
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace.get_tracer("livegnn")


def request_span(method: str, route: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Any]:
    """The span of a request; its status is set by ended()."""
    tracer = _tracer()
    if tracer is None:
        return _NOTHING
    carried = {name: headers[name.encode()].decode("latin-1") for name in _CARRIED if name.encode() in headers}
    span: AbstractContextManager[Any] = tracer.start_as_current_span(
        f"{method} {route}",
        context=propagate.extract(carried),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method, "http.route": route},
    )
    return span


_CARRIED = ("traceparent", "tracestate")


def ended(span: Any, status: int) -> None:
    """Notes the status of a request's answer."""
    if span is None:
        return
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(trace.StatusCode.ERROR)


def current() -> Any:
    """The caller's span, for a commit in another thread; None where there is none."""
    if _tracer() is None:
        return None
    span = trace.get_current_span()
    return span if span.get_span_context().is_valid else None


@contextmanager
def commit_span(parents: Sequence[Any], requests: int, updates: int) -> Iterator[None]:
    """The span of a group's commit, under the first of its requests' spans."""
    tracer = _tracer()
    if tracer is None:
        yield
        return
    found = [one for one in parents if one is not None]
    with tracer.start_as_current_span(
        "livegnn.commit",
        context=trace.set_span_in_context(found[0]) if found else None,
        links=[trace.Link(one.get_span_context()) for one in found[1:]],
        attributes={"livegnn.requests": requests, "livegnn.updates": updates},
    ):
        yield


def inner_span(name: str) -> AbstractContextManager[Any]:
    """A span under the thread's present one."""
    tracer = _tracer()
    if tracer is None:
        return _NOTHING
    span: AbstractContextManager[Any] = tracer.start_as_current_span(name)
    return span
