"""GET /v1/stats."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from livegnn.serve.service.context import ServiceContext
from livegnn.serve.service.stats import StatsAnswer

_AFTER = QueryParameter(name="after", required=False, ge=0, description="series.number of the answer before")


@get("/v1/stats", summary="What the service does, as numbers")
async def stats(
    context: NamedDependency[ServiceContext],
    after: Annotated[int, _AFTER] = 0,
) -> StatsAnswer:
    """Rates, freshness, queue, snapshot, memory and engines, with two minutes of them by the second.

    A reader that asks again passes the number of the series that it has, and gets what is new.
    """
    desk = context.stats
    if desk.is_due():
        await context.aside(desk.refresh)
    return desk.answer(after, context.traffic)


HANDLERS = (stats,)
