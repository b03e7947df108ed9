"""Routes that write: batches of updates, swaps, snapshots; others for workers; and the one that ends writing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from litestar import Request, post
from litestar.di import NamedDependency
from litestar.openapi.spec import OpenAPIFormat, OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema
from litestar.params import HeaderParameter, JSONBody

from livegnn.deployment import Applied
from livegnn.deployment.keys import KEY_LENGTH_MAX
from livegnn.graph import Updates
from livegnn.serve.envelope import Refused
from livegnn.serve.json_bodies import decode_updates
from livegnn.serve.service.arrow_bodies import updates_of_arrow
from livegnn.serve.service.bodies import (
    EXAMPLE_UPDATES,
    AppliedAnswer,
    RepartitionAnswer,
    RepartitionBody,
    SnapshotAnswer,
    SwapBody,
)
from livegnn.serve.service.context import ServiceContext
from livegnn.serve.service.forms import ARROW, FRAME
from livegnn.serve.update_frames import decode_updates as decode_frame
from livegnn.serve.writing import JSON

_DRAIN_LOOK_S = 0.01
_DECODED_AT_ONCE = 1 << 14  # bytes of a body that the event loop may decode itself
_KEY = HeaderParameter(
    name="Idempotency-Key", required=False, max_length=KEY_LENGTH_MAX, description="names this write"
)
UPDATES = "/v1/updates"


@dataclass
class _UpdatesOperation(Operation):
    """Describes the body, which the route reads itself, since it may be Arrow or a frame."""

    def __post_init__(self) -> None:
        items = Schema(type=OpenAPIType.ARRAY, items=Schema(type=OpenAPIType.OBJECT), examples=[EXAMPLE_UPDATES])
        batch = Schema(type=OpenAPIType.OBJECT, properties={"updates": items}, required=["updates"])
        stream = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)
        content = {JSON: OpenAPIMediaType(schema=batch)}
        content |= {form: OpenAPIMediaType(schema=stream) for form in (ARROW, FRAME)}
        self.request_body = RequestBody(content=content, required=True)


@post(UPDATES, status_code=200, summary="Apply a batch of updates", operation_class=_UpdatesOperation)
async def updates(
    request: Request[Any, Any, Any],
    context: NamedDependency[ServiceContext],
    idempotency_key: Annotated[str | None, _KEY] = None,
) -> AppliedAnswer:
    """Applies a batch, all or none; answers when it is durable and visible.

    JSON {"updates": [...]}, each with "op", the name of a method of livegnn.Updates, and its arguments by name; an
    Arrow stream of the columns of Updates.from_arrow; or a frame of livegnn.serve.update_frames.
    """
    return await applied(context, request.headers.get("content-type", ""), idempotency_key, await request.body())


async def applied(context: ServiceContext, content_type: str, key: str | None, body: bytes) -> AppliedAnswer:
    """What POST /v1/updates does with a body. Service calls it for every such request: see app.py."""
    form = content_type.split(";")[0].strip().lower()
    read = _READERS.get(form)
    if read is None:
        raise Refused(
            415,
            "ContentTypeUnknown",
            f"[updates] expected {' or '.join(_READERS)}, got {form or 'none'}; name the body's form",
        )
    if key is not None and len(key) > KEY_LENGTH_MAX:
        limit = f"[updates] expected Idempotency-Key of up to {KEY_LENGTH_MAX} characters, got {len(key)}; shorten it"
        raise Refused(400, "BodyInvalid", limit)
    most = context.limits.updates_max
    small = form != ARROW and len(body) <= _DECODED_AT_ONCE
    more = {"unit": context.deployment.graph.host.time_unit} if form == JSON else {}
    batch = read(body, most, **more) if small else await context.aside(lambda: read(body, most, **more))
    digest = None if key is None else hashlib.blake2b(body, digest_size=16).hexdigest()
    with context.writing():
        done = await asyncio.wrap_future(context.deployment.submit(batch, key=key, digest=digest))
    return _answer(context, done)


def _answer(context: ServiceContext, done: Applied) -> AppliedAnswer:
    return AppliedAnswer(*done, context.deployment.offset_of(done.version))


_READERS: dict[str, Callable[..., Updates]] = {JSON: decode_updates, ARROW: updates_of_arrow, FRAME: decode_frame}


@post("/v1/admin/swap", status_code=200, summary="Change an engine's model")
async def swap(data: JSONBody[SwapBody], context: NamedDependency[ServiceContext]) -> AppliedAnswer:
    """A model of the registry takes over, as an entry of the log; the old one serves until then."""
    with context.writing():
        done = await context.aside(lambda: context.deployment.swap(data.engine, data.model))
    return _answer(context, done)


@post("/v1/admin/snapshot", status_code=200, summary="Write a snapshot")
async def snapshot(context: NamedDependency[ServiceContext]) -> SnapshotAnswer:
    """Writes a snapshot of the present version, and removes the oldest."""
    report = await context.aside(context.deployment.snapshot)
    return SnapshotAnswer(report.version, report.pause_s * 1e3)


@post("/v1/admin/repartition", status_code=200, summary="Have other workers take over")
async def repartition(data: JSONBody[RepartitionBody], context: NamedDependency[ServiceContext]) -> RepartitionAnswer:
    """Of a service over workers: others take their place, or another number of them; all else goes on meanwhile.

    It takes as long as a start, or longer. A second request waits for the first one. The next start has the workers
    of the configuration again.
    """
    context.refuse_draining()
    work = partial(context.deployment.repartition, data.partition, data.workers, data.balance)
    return RepartitionAnswer(*await context.repartitions.run(work))


@post("/v1/admin/drain", status_code=200, summary="Take no more writes")
async def drain(context: NamedDependency[ServiceContext]) -> SnapshotAnswer:
    """For a stop that is near: refuses writes from now on, answers those under way, and writes a snapshot.

    Sources and training end; reads and streams go on. /readyz answers 503. Only a restart takes writes again.
    """
    context.is_draining = True
    while context.writes:
        await asyncio.sleep(_DRAIN_LOOK_S)
    report = await context.aside(context.deployment.drain)
    return SnapshotAnswer(report.version, report.pause_s * 1e3)


HANDLERS = (updates, swap, snapshot, repartition, drain)
