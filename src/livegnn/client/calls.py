"""Each verb as a request and what to make of its answer: what the two clients share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from livegnn.client.edits import Update, UpdateList, Vertex, items_of
from livegnn.client.replies import ExplainReply, RepartitionReply, WriteReply

Reply = TypeVar("Reply")
ARROW = "application/vnd.apache.arrow.stream"
FRAME = "application/vnd.livegnn.frame"
_REPARTITION_S = 3600.0  # longer than workers need for a graph that fits them
Fields = TypeVar("Fields", bound=NamedTuple)


@dataclass(frozen=True)
class ServiceCall(Generic[Reply]):
    """parse: makes the reply of the answer's document.  repeatable: whether it may be sent twice."""

    method: str
    path: str
    parse: Callable[[Any], Reply]
    body: Mapping[str, Any] | None = None
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    extra_s: float = 0.0  # that the service may wait before it answers
    content: bytes | None = None  # a body that is not JSON
    is_raw: bool = False  # parse gets the bytes of the answer


def reads(path: str, kind: Callable[..., Reply], **body: Any) -> ServiceCall[Reply]:
    """A read with a body, without what is None."""
    timeout_ms = body.get("timeout_ms")
    given = {name: value for name, value in body.items() if value is not None}
    return ServiceCall("POST", path, parser(kind), given, extra_s=0.0 if timeout_ms is None else timeout_ms / 1e3)


def parser(kind: Callable[..., Reply]) -> Callable[[Any], Reply]:
    """Makes a named tuple of a document; fields that it does not know are left out, and an older service's defaults."""
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    defaults: Mapping[str, object] = kind._field_defaults  # type: ignore[attr-defined]
    return lambda said: kind(*(said.get(name, defaults[name]) if name in defaults else said[name] for name in names))


def apply(updates: UpdateList | Iterable[Update], key: str | None) -> ServiceCall[WriteReply]:
    """A batch with a key, so that it may be sent again."""
    headers = {"Idempotency-Key": str(uuid.uuid4()) if key is None else key}
    return ServiceCall("POST", "/v1/updates", parser(WriteReply), {"updates": items_of(updates)}, headers=headers)


def apply_body(body: bytes, content_type: str, key: str | None) -> ServiceCall[WriteReply]:
    """A batch in a form of its own, with a key."""
    headers = {"Idempotency-Key": str(uuid.uuid4()) if key is None else key, "Content-Type": content_type}
    return ServiceCall("POST", "/v1/updates", parser(WriteReply), headers=headers, content=body)


def repartition(partition: str, workers: int | None, balance: str) -> ServiceCall[RepartitionReply]:
    """Other workers, for whom the service may need long."""
    body = {"partition": partition, "workers": workers, "balance": balance}
    path, how = "/v1/admin/repartition", parser(RepartitionReply)
    return ServiceCall("POST", path, how, body, repeatable=False, extra_s=_REPARTITION_S)


def raw(path: str, accept: str, **body: Any) -> ServiceCall[bytes]:
    """A read whose answer is kept in the form that it comes in."""
    call = reads(path, WriteReply, **body)
    return ServiceCall("POST", path, bytes, call.body, headers={"Accept": accept}, extra_s=call.extra_s, is_raw=True)


def explains(
    vertex: Vertex,
    *,
    engine: str | None,
    vertex_type: str | None,
    numbers: Mapping[str, float | None],
    rows: bool,
) -> ServiceCall[ExplainReply]:
    """GET /v1/explain of a vertex."""
    texts = {"engine": engine, "type": vertex_type, "rows": "true" if rows else "false"}
    params = [(name, value) for name, value in texts.items() if value is not None]
    params += [(name, repr(value)) for name, value in numbers.items() if value is not None]
    path, waits = f"/v1/explain/{in_path(str(vertex))}", numbers.get("timeout_ms")
    return ServiceCall("GET", path, parser(ExplainReply), params=params, extra_s=0.0 if waits is None else waits / 1e3)


def change_params(
    *,
    engine: str | None,
    vertex_type: str | None,
    output: str | None,
    ids: Iterable[Vertex] | None,
    numbers: Mapping[str, float | None],
    flips: bool,
    row_change: bool,
) -> list[tuple[str, str]]:
    """The query of GET /v1/changes."""
    texts = {"engine": engine, "type": vertex_type, "output": output}
    params = [(name, value) for name, value in texts.items() if value is not None]
    params += [("ids", str(each)) for each in ids or ()]
    params += [(name, repr(value)) for name, value in numbers.items() if value is not None]
    params += [(name, "true") for name, value in (("flips", flips), ("row_change", row_change)) if value]
    return params


def in_path(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
