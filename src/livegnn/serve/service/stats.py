"""What GET /v1/stats answers: the numbers of the page at /. docs/service-page.md says what each of them means."""

from __future__ import annotations

import time
from contextlib import suppress

from msgspec import Struct

from livegnn.deployment import Deployment
from livegnn.errors import WorkerUnavailable
from livegnn.models.model import Model
from livegnn.serve.service.metrics import memory_by_part, snapshot_age_s
from livegnn.serve.service.windows import ActivityWindows, quantiles_ms
from livegnn.serve.traffic import Traffic

_MOST = 10  # most-changed vertices
_DIFFERING = 12  # newest disagreements of a shadow
_SIZES_S = 5.0  # how old sizes may be: reading them waits for the writer


class FreshnessStats(Struct, frozen=True):
    """From acceptance to visibility, of the newest requests (4,096 at most); null without any."""

    p50: float | None
    p99: float | None
    max: float | None


class QueueStats(Struct, frozen=True):
    """What waits for the writer. updates_max: more are refused.  refused: requests, since the start."""

    requests: int
    updates: int
    updates_max: int
    refused: int


class SnapshotStats(Struct, frozen=True):
    """The newest snapshot. age_s: since it was written.  behind: versions after it."""

    version: int
    age_s: float | None
    behind: int


class GraphStats(Struct, frozen=True):
    """The graph as it is, and what its updates may say. time_unit: of times given as datetime64; null of numbers."""

    vertices: int
    edges: int
    feature_width: int
    ids: str
    undirected: bool
    has_weight: bool
    has_time: bool
    time_unit: str | None
    vertex_types: list[str]
    edge_types: list[tuple[str, str, str]]


class MovedStats(Struct, frozen=True):
    """A vertex that changed in the last minute. moved: sum of the largest changes of a column, over `versions`."""

    vertex: int | str
    type: str | None
    moved: float
    versions: int
    prediction: int | float | None


class ShadowStats(Struct, frozen=True):
    """compared, differing: predictions of changed vertices.  newest: [vertex, served, shadow], latest first."""

    model: str
    compared: int
    differing: int
    newest: list[tuple[int | str, int | float | bool, int | float | bool]]


class EngineStats(Struct, frozen=True):
    """One engine. widths: columns of a row, by vertex type, "" without types.  changed: outputs, since the start.
    affected: outputs that an update changes, on average over the series.  most_changed: of the last minute; null where
    the engine is not followed.
    """

    name: str
    model: str
    mode: str
    widths: dict[str, int]
    outputs: list[str]
    changed: int
    affected: float | None
    most_changed: list[MovedStats] | None
    shadow: ShadowStats | None


class SeriesStats(Struct, frozen=True):
    """One value for each second, oldest first. number: of the newest.  changed: by engine."""

    number: int
    at: list[float]
    seconds: list[float]
    updates: list[int]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    waiting: list[int]
    changed: dict[str, list[int]]


class StatsAnswer(Struct, frozen=True):
    """What the service does. rates are over ten seconds; totals are since the start of the process."""

    version: int
    offset: int
    ready: bool
    uptime_s: float
    updates_per_s: float
    requests_per_s: float
    updates: int
    requests: int
    entries: int
    freshness_ms: FreshnessStats
    queue: QueueStats
    snapshot: SnapshotStats
    graph: GraphStats
    engines: list[EngineStats]
    memory: dict[str, int]
    connections: int
    subscribers: int
    missed: int
    series: SeriesStats


class StatsDesk:
    """Answers for GET /v1/stats. What takes long is worked out by one request at a time, and kept for the others."""

    def __init__(self, deployment: Deployment, windows: ActivityWindows) -> None:
        self._deployment, self.windows = deployment, windows
        self._sizes: dict[str, int] = {}
        self._edges, self._edges_due = 0, 0.0  # of a graph over workers
        self._sizes_at = self._most_at = -_SIZES_S
        self._most: dict[str, list[MovedStats] | None] = dict.fromkeys(_served(deployment))
        self._snapshot = (-1, 0.0)

    def is_due(self) -> bool:
        """Whether the next request is to call refresh()."""
        return time.monotonic() - min(self._sizes_at + _SIZES_S, self._most_at + 1.0) > 0

    def refresh(self) -> None:
        """Sizes, and the most-changed vertices. Waits for a batch under way, so not for the event loop."""
        now = time.monotonic()
        if now - self._most_at > 1.0:
            self._most_at = now
            for name in self._most:
                found = self.windows.most_changed(name, _MOST)
                self._most[name] = None if found is None else [MovedStats(*one) for one in found]
        if now - self._sizes_at > _SIZES_S:
            self._sizes_at = now
            self._sizes = memory_by_part(self._deployment)
            self._count_edges()

    def _count_edges(self) -> None:
        """Of a graph over workers, who pass over all of them: a hundredth of the time at most."""
        cluster, now = self._deployment.cluster, time.monotonic()
        if cluster is not None and now >= self._edges_due:
            with suppress(WorkerUnavailable):  # then the number stays as it was
                self._edges = cluster.edge_count
            self._edges_due = now + 100 * (time.monotonic() - now)

    def answer(self, after: int, traffic: Traffic) -> StatsAnswer:
        """All numbers. after: the number of the newest tick that the caller has."""
        deployment, windows, commits = self._deployment, self.windows, self._deployment.commits
        updates_per_s, requests_per_s = windows.rate()
        version, hub = deployment.version, deployment.hub
        return StatsAnswer(
            version=version,
            offset=deployment.offset,
            ready=deployment.is_ready,
            uptime_s=time.time() - windows.began,
            updates_per_s=updates_per_s,
            requests_per_s=requests_per_s,
            updates=commits.updates,
            requests=commits.requests,
            entries=commits.entries,
            freshness_ms=FreshnessStats(*quantiles_ms(commits.freshness_s)),
            queue=QueueStats(
                commits.waiting_requests,
                commits.waiting_updates,
                deployment.config.log.queue_updates_max,
                commits.refused,
            ),
            snapshot=SnapshotStats(
                deployment.snapshot_version, snapshot_age_s(deployment), max(0, version - deployment.snapshot_version)
            ),
            graph=_graph(deployment, self._edges),
            engines=[self._engine(name) for name in _served(deployment)],
            memory=self._sizes,
            connections=traffic.connections,
            subscribers=hub.subscribers,
            missed=hub.missed,
            series=_series(windows, after),
        )

    def _engine(self, name: str) -> EngineStats:
        deployment = self._deployment
        engine, shadow = deployment.engine(name), None
        if name in deployment.shadows:
            compared = deployment.shadows[name]
            found = compared.disagreement
            newest = [(vertex, *pair) for vertex, pair in reversed(found.newest.items())][:_DIFFERING]
            reference = deployment.key_of(compared.shadow.model)  # also of one that was set aside
            shadow = ShadowStats(reference, found.compared, found.differing, newest)
        model = engine.model
        return EngineStats(
            name=name,
            model=deployment.key_of(model),
            mode=engine.mode,
            widths=model.output_widths or {"": _width(model)},
            outputs=list(model.outputs),
            changed=self.windows.changed[name],
            affected=self.windows.affected(name),
            most_changed=self._most[name],
            shadow=shadow,
        )


def _served(deployment: Deployment) -> list[str]:
    """The engines that are no shadows, which come and go."""
    return [one.name for one in deployment.config.engine]


def _width(model: Model) -> int:
    for start, stop in model.outputs.values():
        return stop - start
    return model.output_width


def _graph(deployment: Deployment, edges: int) -> GraphStats:
    """edges: that the workers have counted, where the graph is over workers."""
    graph, cluster = deployment.graph, deployment.cluster
    return GraphStats(
        vertices=graph.vertex_count,
        edges=graph.edge_count if cluster is None else edges,
        feature_width=graph.feature_width if cluster is None else cluster.shape.feature_width,
        ids="text" if graph.host.ids.text else "integer",
        undirected=graph.undirected,
        has_weight=graph.has_weight,
        has_time=graph.has_time,
        time_unit=graph.host.time_unit,
        vertex_types=list(graph.vertex_types or ()),
        edge_types=list(graph.edge_types or ()),
    )


def _series(windows: ActivityWindows, after: int) -> SeriesStats:
    ticks = [one for one in list(windows.ticks) if one.number > after]
    return SeriesStats(
        number=ticks[-1].number if ticks else after,
        at=[one.at for one in ticks],
        seconds=[one.seconds for one in ticks],
        updates=[one.updates for one in ticks],
        p50_ms=[one.p50_ms for one in ticks],
        p99_ms=[one.p99_ms for one in ticks],
        waiting=[one.waiting for one in ticks],
        changed={name: [one.changed.get(name, 0) for one in ticks] for name in list(windows.changed)},
    )
