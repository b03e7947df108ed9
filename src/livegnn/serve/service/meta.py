"""Routes about the service itself: health, readiness, metrics."""

from __future__ import annotations

from litestar import Response, get
from litestar.di import NamedDependency

from livegnn.serve.envelope import Refused
from livegnn.serve.service.bodies import HealthAnswer
from livegnn.serve.service.context import ServiceContext


@get("/healthz", summary="Is the process alive?")
async def healthz(context: NamedDependency[ServiceContext]) -> HealthAnswer:
    """200 as long as the process answers. Needs no token."""
    return HealthAnswer("ok", context.deployment.version)


@get("/readyz", summary="Does it take updates?")
async def readyz(context: NamedDependency[ServiceContext]) -> HealthAnswer:
    """200 while updates are taken; 503 while the log does not answer, or the service drains. Needs no token."""
    if context.is_draining or not context.deployment.is_ready:
        raise Refused(503, "NotReady", "[readyz] expected a service that takes updates, got one that does not now")
    return HealthAnswer("ok", context.deployment.version)


@get("/metrics", summary="Prometheus' text form", media_type="text/plain; version=0.0.4; charset=utf-8")
async def metrics(context: NamedDependency[ServiceContext]) -> Response[bytes]:
    """Counts, times and bytes of the service."""
    text = await context.aside(context.metrics.text)  # the graph's sizes wait for the writer
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


HANDLERS = (healthz, readyz, metrics)
