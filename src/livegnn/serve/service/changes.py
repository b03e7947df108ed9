"""The route of changes: server-sent events of the vertices whose predictions change."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any, cast

from litestar import Request, get
from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from livegnn.deployment.filters import ChangeFilter
from livegnn.serve.envelope import Refused
from livegnn.serve.service.context import ENDING, ServiceContext

EVENTS = "text/event-stream"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # a proxy is not to gather them


def _query(name: str, about: str) -> QueryParameter:
    return QueryParameter(name=name, required=False, description=about)


@get("/v1/changes", summary="Follow what changes", media_type=EVENTS)
async def changes(
    request: Request[Any, Any, Any],
    context: NamedDependency[ServiceContext],
    engine: Annotated[str | None, _query("engine", "its name, where there are several")] = None,
    vertex_type: Annotated[str | None, _query("type", "of the vertices, where they have types")] = None,
    output: Annotated[str | None, _query("output", "of a model with several results")] = None,
    ids: Annotated[list[str] | None, _query("ids", "these vertices only; once for each id")] = None,
    flips: Annotated[bool, _query("flips", "only where the class changed")] = False,
    above: Annotated[float | None, _query("above", "only where the value reached it from below")] = None,
    below: Annotated[float | None, _query("below", "only where the value fell below it")] = None,
    of_class: Annotated[int | None, _query("class", "the value is the probability of this class")] = None,
    column: Annotated[int | None, _query("column", "the value is this column of the row")] = None,
    min_change: Annotated[float | None, _query("min_change", "least change of any column")] = None,
    row_change: Annotated[bool, _query("row_change", "add the largest change of any column")] = False,
    after: Annotated[int | None, _query("from", "the version that the caller has")] = None,
    at_least: Annotated[int | None, _query("at_least", "begins at this version or later")] = None,
    timeout_ms: Annotated[float, _query("timeout_ms", "milliseconds to wait for it")] = 10_000.0,
    last_event_id: Annotated[str | None, HeaderParameter(name="Last-Event-ID", required=False)] = None,
) -> Stream:
    """A stream of the events change, missed and ping. The id of each is a version.

    change: {"version", "engine", "model", "changes": [[vertex, before, after], ...], "more"}; missed: {"from", "to",
    "resume", "reason"}; ping: {"version"}. Last-Event-ID goes before from.
    """
    after = _place(last_event_id) if last_event_id else after
    for name, version in (("from", after), ("at_least", at_least)):
        if version is not None and not 0 <= version < 2**63:
            raise _refused(f"{name} as a version", version)
    if not 0 < timeout_ms <= context.limits.timeout_ms_max:
        raise _refused(f"timeout_ms up to {context.limits.timeout_ms_max}", timeout_ms)
    wanted = ChangeFilter(
        engine=context.engine(engine)[0],
        vertex_type=vertex_type,
        output=output,
        ids=None if ids is None else _ids(ids, context),
        flips=flips,
        above=above,
        below=below,
        of_class=of_class,
        column=column,
        min_change=min_change,
        row_change=row_change,
    )
    await context.reached(max(after or 0, at_least or 0), timeout_ms)
    subscription = await context.feed.subscribe(wanted, after, at_least or 0)
    ending: ExitStack = cast("dict[str, Any]", request.scope)[ENDING]
    ending.callback(subscription.close)
    return Stream(subscription, media_type=EVENTS, headers=_HEADERS)


def _place(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise _refused("Last-Event-ID as a version", text[:40])
    return int(text)


def _ids(given: list[str], context: ServiceContext) -> tuple[int | str, ...]:
    """Ids as the graph has them: strings, or integers. Raises: Refused."""
    most = context.limits.seeds_max
    if len(given) > most:
        raise Refused(413, "TooMany", f"[changes] expected up to {most} ids, got {len(given)}; subscribe twice")
    return tuple(sorted(set(context.queried(given))))


def _refused(expected: str, got: object) -> Refused:
    return Refused(400, "QueryInvalid", f"[changes] expected {expected}, got {got}; correct it")


HANDLERS = (changes,)
