"""The client for asyncio: as Client, with await."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from livegnn.client import calls
from livegnn.client.calls import Reply, ServiceCall, change_params, explains, in_path, parser, reads
from livegnn.client.edits import Update, UpdateList, Vertex, items_of
from livegnn.client.events import Event, EventReader, decoded
from livegnn.client.replies import (
    ExplainReply,
    HealthReply,
    LinksReply,
    ModelsReply,
    NextReply,
    PipesReply,
    PredictionsReply,
    RepartitionReply,
    RowsReply,
    ScoresReply,
    SnapshotReply,
    TopReply,
    WhatIfReply,
    WriteReply,
)
from livegnn.client.retries import RetryPolicy, is_worth_repeating, refusal, retry_after, unreachable
from livegnn.errors import LiveGnnError, ServiceError, VersionPending
from livegnn.optional import need

if TYPE_CHECKING:
    import httpx

_SILENCE_S = 60.0  # of a stream: the service pings every 15 s


class AsyncClient:
    """The verbs of an engine over HTTP, in one event loop. Use it as `async with`, or call aclose().

    Args:    url: as "http://127.0.0.1:8000".  token: where the service wants one.  timeout_s: for one answer.
             retry: how often a request is sent again, and when. Changes that have begun go on until they are closed.
    Raises:  DataMissing without httpx (the extra client). Every verb raises the error that the service names, as the
             engine would (livegnn.errors), or ServiceError.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = 30.0, retry: RetryPolicy | None = None
    ) -> None:
        self._httpx = need("httpx", "client")
        self.url, self._timeout_s, self._retry = url.rstrip("/"), timeout_s, retry or RetryPolicy()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http: httpx.AsyncClient = self._httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout_s)

    # ---- writing

    async def apply(self, updates: UpdateList | Iterable[Update], *, key: str | None = None) -> WriteReply:
        """Applies a batch, all or none; returns when it is durable and visible.

        Args:    updates: an UpdateList, or dictionaries: {"op": "add_edge", "u": 4, "v": 2}.
                 key: names the write; one is made where none is given. So it is applied once, however often it is sent.
        """
        return await self._do(calls.apply(updates, key))

    async def apply_body(self, body: bytes, content_type: str, *, key: str | None = None) -> WriteReply:
        """Applies a batch in another form, as apply(): an Arrow stream of the columns of livegnn.Updates.from_arrow, or
        a frame of livegnn.serve.update_frames.
        """
        return await self._do(calls.apply_body(body, content_type, key))

    async def swap(self, engine: str, model: str) -> WriteReply:
        """Changes an engine to a model of the registry, "NAME" or "NAME/VERSION". Not sent again by itself."""
        body = {"engine": engine, "model": model}
        return await self._do(ServiceCall("POST", "/v1/admin/swap", parser(WriteReply), body, repeatable=False))

    async def snapshot(self) -> SnapshotReply:
        """Writes a snapshot."""
        return await self._do(ServiceCall("POST", "/v1/admin/snapshot", parser(SnapshotReply), repeatable=False))

    async def repartition(
        self,
        partition: Literal["metis", "ldg", "fennel", "hash"] = "metis",
        workers: int | None = None,
        balance: Literal["edges", "work"] = "edges",
    ) -> RepartitionReply:
        """Has other workers take over, of a service over workers; returns when they have. Not sent again by itself."""
        return await self._do(calls.repartition(partition, workers, balance))

    async def drain(self) -> SnapshotReply:
        """Ends writing, for a stop that is near: what is under way is answered, and a snapshot written."""
        return await self._do(ServiceCall("POST", "/v1/admin/drain", parser(SnapshotReply)))

    # ---- reading. at_least: waits up to timeout_ms until that version can be read

    async def embeddings(
        self,
        ids: Iterable[Vertex],
        *,
        engine: str | None = None,
        vertex_type: str | None = None,
        output: str | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> RowsReply:
        """Output rows. engine: its name, where the service has several."""
        of = {"engine": engine, "vertex_type": vertex_type, "output": output}
        when = {"at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(reads("/v1/embeddings", RowsReply, ids=list(ids), **of, **when))

    async def embeddings_body(
        self,
        ids: Iterable[Vertex],
        accept: str,
        *,
        engine: str | None = None,
        vertex_type: str | None = None,
        output: str | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> bytes:
        """Output rows in another form, for large reads: an Arrow stream with the columns id and row, or a frame."""
        of = {"engine": engine, "vertex_type": vertex_type, "output": output}
        when = {"at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(calls.raw("/v1/embeddings", accept, ids=list(ids), **of, **when))

    async def predict(
        self,
        ids: Iterable[Vertex],
        *,
        engine: str | None = None,
        vertex_type: str | None = None,
        output: str | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> PredictionsReply:
        """Classes, or for one column probabilities."""
        of = {"engine": engine, "vertex_type": vertex_type, "output": output}
        when = {"at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(reads("/v1/predict", PredictionsReply, ids=list(ids), **of, **when))

    async def predict_edges(
        self,
        pairs: Iterable[tuple[Vertex, Vertex]],
        *,
        engine: str | None = None,
        vertex_types: tuple[str, str] | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> ScoresReply:
        """Scores of pairs."""
        of = {"engine": engine, "vertex_types": vertex_types}
        when = {"at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(reads("/v1/edges", ScoresReply, pairs=list(pairs), **of, **when))

    async def topk(
        self,
        vertex: Vertex | None = None,
        *,
        row: Sequence[float] | None = None,
        k: int = 10,
        metric: Literal["dot", "cosine", "l2", "model"] | None = None,
        index: str | None = None,
        engine: str | None = None,
        vertex_type: str | None = None,
        candidate_type: str | None = None,
        linked: bool = True,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> TopReply:
        """The best vertices for a vertex, or for a row. index: one of the service, in place of a pass over all rows."""
        of = {"index": index, "engine": engine, "vertex_type": vertex_type, "candidate_type": candidate_type}
        how = {"k": k, "metric": metric, "linked": linked, "at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(reads("/v1/topk", TopReply, vertex=vertex, row=row, **of, **how))

    async def explain(
        self,
        vertex: Vertex,
        *,
        engine: str | None = None,
        vertex_type: str | None = None,
        column: int | None = None,
        hops: int = 1,
        limit: int = 100,
        rows: bool = True,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> ExplainReply:
        """Which in-neighbours' messages an output is made of, exactly, and which of them moved it last."""
        numbers = {"column": column, "hops": hops, "limit": limit, "at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(explains(vertex, engine=engine, vertex_type=vertex_type, numbers=numbers, rows=rows))

    async def what_if(
        self,
        updates: UpdateList | Iterable[Update],
        ids: Iterable[Vertex],
        *,
        engine: str | None = None,
        vertex_type: str | None = None,
        output: str | None = None,
    ) -> WhatIfReply:
        """Predictions now, and as they would be after a batch that is not applied."""
        of = {"engine": engine, "vertex_type": vertex_type, "output": output}
        updates = items_of(updates)
        return await self._do(reads("/v1/what-if", WhatIfReply, updates=updates, ids=list(ids), **of))

    async def readout(self, name: str, groups: Iterable[int] | None = None) -> dict[str, Any]:
        """Rows of a readout: its "version", "groups" and "rows"."""
        params = [("groups", str(each)) for each in groups or ()]
        return await self._do(ServiceCall("GET", f"/v1/readouts/{in_path(name)}", dict, params=params))

    async def sample(self, seeds: Iterable[Vertex], **options: Any) -> dict[str, Any]:
        """Samples that are kept ready, as POST /v1/sample gives them; options: of its body."""
        return await self._do(ServiceCall("POST", "/v1/sample", dict, {"seeds": list(seeds), **options}))

    # ---- temporal engines, and models of samplers. time: one for all, or one for each row

    async def temporal_embeddings(
        self,
        name: str,
        ids: Iterable[Vertex],
        time: int | Sequence[int],
        *,
        vertex_type: str | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> RowsReply:
        """Rows of vertices at times, by the temporal engine of that name."""
        of = {"vertex_type": vertex_type, "at_least": at_least, "timeout_ms": timeout_ms}
        path = f"/v1/temporal/{in_path(name)}/embeddings"
        return await self._do(reads(path, RowsReply, ids=list(ids), time=time, **of))

    async def links(
        self,
        name: str,
        pairs: Iterable[tuple[Vertex, Vertex]],
        time: int | Sequence[int],
        *,
        edge_type: str | Sequence[str] | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> LinksReply:
        """Probabilities of links at times, by the temporal engine of that name."""
        of = {"edge_type": edge_type, "at_least": at_least, "timeout_ms": timeout_ms}
        path = f"/v1/temporal/{in_path(name)}/links"
        return await self._do(reads(path, LinksReply, pairs=list(pairs), time=time, **of))

    async def next(
        self,
        src: Iterable[Vertex],
        time: int | Sequence[int],
        *,
        temporal: str | None = None,
        candidates: Iterable[Vertex] | None = None,
        k: int = 10,
        edge_type: str | Sequence[str] | None = None,
        at_least: int | None = None,
        timeout_ms: float | None = None,
    ) -> NextReply:
        """The k most probable destinations of each source at a time. temporal: the engine's name, where several are."""
        among = None if candidates is None else list(candidates)
        of = {"temporal": temporal, "edge_type": edge_type, "at_least": at_least, "timeout_ms": timeout_ms}
        return await self._do(reads("/v1/next", NextReply, src=list(src), time=time, candidates=among, k=k, **of))

    async def sampler_predict(
        self, name: str, seeds: Iterable[Vertex], *, at_least: int | None = None, timeout_ms: float | None = None
    ) -> RowsReply:
        """What the model of the sampler of that name gives for the samples of seeds."""
        path = f"/v1/samplers/{in_path(name)}/predict"
        return await self._do(reads(path, RowsReply, seeds=list(seeds), at_least=at_least, timeout_ms=timeout_ms))

    # ---- the service

    async def models(self) -> ModelsReply:
        """Models in use, in the registry, and what shadows have found."""
        return await self._do(ServiceCall("GET", "/v1/models", parser(ModelsReply)))

    async def pipes(self) -> PipesReply:
        """Where each source and sink stands, and what it waits for."""
        return await self._do(ServiceCall("GET", "/v1/pipes", parser(PipesReply)))

    async def health(self) -> HealthReply:
        """Whether the process answers."""
        return await self._do(ServiceCall("GET", "/healthz", parser(HealthReply)))

    async def ready(self) -> bool:
        """Whether it takes updates now. Raises: ServiceError where it cannot be reached."""
        response = await self._sent(ServiceCall("GET", "/readyz", parser(HealthReply)))
        return response.status_code == 200

    async def version(self) -> int:
        """The newest version that can be read."""
        return (await self.health()).version

    async def wait(self, version: int, timeout_s: float = 30.0) -> int:
        """Asks until a version can be read, and returns the newest then. Raises: VersionPending."""
        began, rest = time.monotonic(), 0.005
        while (found := await self.version()) < version:
            left = timeout_s - (time.monotonic() - began)
            if left <= 0:
                raise VersionPending(
                    f"[wait] expected version {version} within {timeout_s:g} s, got {found}; wait again"
                )
            await asyncio.sleep(min(rest, left))
            rest = min(0.2, rest * 1.5)
        return found

    def changes(
        self,
        *,
        engine: str | None = None,
        vertex_type: str | None = None,
        output: str | None = None,
        ids: Iterable[Vertex] | None = None,
        flips: bool = False,
        above: float | None = None,
        below: float | None = None,
        of_class: int | None = None,
        column: int | None = None,
        min_change: float | None = None,
        row_change: bool = False,
        after: int | None = None,
        at_least: int | None = None,
    ) -> AsyncChangeStream:
        """What changes from now on, or after a version: `async for change in client.changes(flips=True): ...`

        A stream that breaks goes on where it was: no change comes twice, and what cannot be had any more is named by
        a MissedEvent. docs/service.md says what the filters mean.
        Raises:  as every verb, at its first step or later.
        """
        numbers: dict[str, float | None] = {
            "above": above,
            "below": below,
            "class": of_class,
            "column": column,
            "min_change": min_change,
            "from": after,
            "at_least": at_least,
        }
        params = change_params(
            engine=engine,
            vertex_type=vertex_type,
            output=output,
            ids=ids,
            numbers=numbers,
            flips=flips,
            row_change=row_change,
        )
        return AsyncChangeStream(self, params)

    # ---- inside

    async def _do(self, call: ServiceCall[Reply]) -> Reply:
        """The reply; sent again where that may be. Raises: the service's error."""
        for attempt in range(self._retry.attempts):
            is_last = not call.repeatable or attempt == self._retry.attempts - 1
            try:
                response = await self._sent(call)
            except ServiceError:
                if is_last:
                    raise
                await asyncio.sleep(self._retry.wait_s(attempt))
                continue
            if response.is_success:
                return call.parse(response.content if call.is_raw else response.json())
            error = refusal(response.status_code, response.content)
            if is_last or not is_worth_repeating(response.status_code, error):
                raise error
            await asyncio.sleep(self._retry.wait_s(attempt, retry_after(response.headers)))
        raise AssertionError("an attempt returns or raises")

    async def _sent(self, call: ServiceCall[Any]) -> httpx.Response:
        """One attempt. Raises: ServiceError without an answer."""
        try:
            return await self._http.request(
                call.method,
                call.path,
                json=call.body,
                content=call.content,
                params=list(call.params),
                headers=dict(call.headers),
                timeout=self._timeout_s + call.extra_s,
            )
        except self._httpx.TransportError as cause:
            raise unreachable(self.url, cause) from cause

    async def _opened(self, params: Sequence[tuple[str, str]], last_id: str | None) -> httpx.Response:
        """The beginning of a stream. Raises: ServiceError; the service's error."""
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        timeout = self._httpx.Timeout(self._timeout_s, read=_SILENCE_S)
        request = self._http.build_request("GET", "/v1/changes", params=list(params), headers=headers, timeout=timeout)
        try:
            response = await self._http.send(request, stream=True)
            if response.is_success:
                return response
            body = await response.aread()
            await response.aclose()
        except self._httpx.TransportError as cause:
            raise unreachable(self.url, cause) from cause
        raise refusal(response.status_code, body)

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class AsyncChangeStream:
    """Changes, one after the other. `async with` waits until it has begun; else that is at the first step.

    position: the version up to which all has come.
    """

    def __init__(self, client: AsyncClient, params: Sequence[tuple[str, str]]) -> None:
        self._client, self._params = client, params
        self._reader = EventReader()
        self._response: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._ready: deque[tuple[Event | None, str | None]] = deque()
        self._failures = 0
        self._closed = False
        self.position = -1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            found = await self._next()
            if found is not None:
                return found
        raise StopAsyncIteration

    async def _next(self) -> Event | None:
        """The next event; None for a ping. Raises: what no other attempt would change."""
        while not self._ready and not self._closed:
            try:
                if self._pieces is None:
                    self._response = await self._client._opened(self._params, self._reader.last_id)
                    self._pieces = self._response.aiter_raw()
                self._take(await anext(self._pieces))
            except (StopAsyncIteration, self._client._httpx.TransportError, self._client._httpx.StreamError):
                await self._again(unreachable(self._client.url, ConnectionError("the stream has ended")))
            except LiveGnnError as error:
                if not isinstance(error, ServiceError) and not error.retryable:
                    raise
                await self._again(error)
        if self._closed:
            return None
        event, place = self._ready.popleft()
        self.position = int(place or self.position)
        return event

    def _take(self, piece: bytes) -> None:
        for kind, data in self._reader.feed(piece):
            self._ready.append((decoded(kind, data), self._reader.last_id))
            self._failures = 0

    async def _again(self, error: LiveGnnError) -> None:
        """Before another attempt. Raises: the error, where none would help, or enough were made and none has begun."""
        await self._drop()
        retry = self._client._retry
        if self._closed:
            return
        has_begun = self.position >= 0  # then it follows, however long the service is away
        if not error.retryable or (not has_begun and self._failures >= retry.attempts - 1):
            raise error
        await asyncio.sleep(retry.wait_s(self._failures))
        self._failures += 1

    async def _drop(self) -> None:
        response, self._response, self._pieces = self._response, None, None
        self._reader.restart()
        if response is not None:
            await response.aclose()

    async def aclose(self) -> None:
        """Ends it; the service has a place more."""
        self._closed = True
        await self._drop()

    async def __aenter__(self) -> Self:
        while self.position < 0:  # the first ping says where it begins
            await self._next()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
