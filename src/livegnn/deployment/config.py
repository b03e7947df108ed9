"""livegnn.toml: one graph, one log, and what is kept live, as msgspec structs. docs/service.md has an example.

Every key is checked strictly: no unknown keys, no other types, numbers in their range. Paths of files are relative to
the folder of the configuration file, or to the working folder where it came as a dictionary.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from livegnn.deployment.config_cluster import WORKERS_MAX, ClusterServing
from livegnn.deployment.config_explain import ExplainConfig
from livegnn.deployment.config_index import IndexConfig
from livegnn.deployment.config_pipes import SinkConfig, SourceConfig, check_pipes
from livegnn.deployment.config_temporal import TemporalConfig
from livegnn.documents import DocumentFault, converted
from livegnn.errors import FileMissing, ValueInvalid

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
SHADOW_SUFFIX = ".shadow"  # of an engine's name
FILE_NAME = "livegnn.toml"


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a table of the file; no others are taken."""


class GraphConfig(_Table, frozen=True, kw_only=True):
    """The graph before the first entry of the log. It is read at the first start only."""

    parts: str = ""  # a folder that a PartsWriter wrote, or Cluster.save(in_parts=True)
    features: str = ""  # .npy, .parquet or .csv: one row for each vertex
    id: str = ""  # the column of vertex ids in the features file; without it ids are row numbers
    columns: tuple[str, ...] = ()  # of the features file: the model's features, in its order; all but id without it
    edges: str = ""  # .parquet or .csv: one row for each edge; none without it
    src: str = "src"  # columns of the edges file
    dst: str = "dst"
    weight: str = ""
    time: str = ""
    edge_type: str = ""
    attributes: tuple[str, ...] = ()  # columns of the edges file that are edge attributes
    feature_width: Count = 0  # of a graph that begins without vertices: in place of features
    ids: Literal["integer", "text"] = "integer"  # of such a graph
    has_weight: bool = False  # columns of such a graph's edges
    has_time: bool = False
    attribute_width: Count = 0
    undirected: bool = False
    simple: bool = False
    feature_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    ttl: Count = 0  # an edge's time to live, in the unit of its time; 0: for ever
    factory: str = ""  # "module:function" that returns the livegnn.Graph: for types, or files of other forms


class LogConfig(_Table, frozen=True, kw_only=True):
    """Where the history is kept."""

    url: str = ""  # of open_log; default sqlite in the data folder
    group_updates_max: Positive = 10_000  # updates of several requests that become one entry
    queue_updates_max: Positive = 200_000  # updates that wait; more are refused with Overloaded
    keys_max: Positive = 100_000  # idempotency keys kept, the newest
    release: bool = True  # let go of entries that no kept snapshot needs, where the log can
    keep_entries: Count = 100_000  # the newest ones stay in any case, for other readers of the log


class SnapshotConfig(_Table, frozen=True, kw_only=True):
    """When snapshots are written, and how many stay."""

    keep: Positive = 3
    every_entries: Count = 100_000  # 0: only on request, and when the deployment closes
    at_close: bool = True
    in_parts: bool = False  # each worker of [cluster] writes its part; all hosts must see the data folder


class EngineConfig(_Table, frozen=True, kw_only=True):
    """One lg.Engine."""

    name: Name
    model: str  # NAME, for its newest version, or NAME/VERSION of the registry
    mode: Literal["eager", "on_demand", "hybrid"] = "eager"
    state: Literal["fast", "compact"] = "fast"
    threads: Count = 0  # 0: as many as there are cores
    memory_limit: str = ""
    shadow: str = ""  # a second model on the same stream: where do the two disagree


class ReadoutConfig(_Table, frozen=True, kw_only=True):
    """One lg.Readout over all vertices, or those of one type."""

    name: Name
    engine: Name
    kind: Literal["add", "mean", "max"] = "mean"
    vertex_type: str = ""


class PreSamplerConfig(_Table, frozen=True, kw_only=True):
    """One lg.PreSampler, and where it has a model a lg.SampleServer."""

    name: Name
    query: str  # in the text form of docs/queries.md
    model: str = ""  # NAME/VERSION of the registry: a torch module, by class path or pickle
    inputs: Literal["tree", "pyg", "data"] = "tree"  # what the model gets: docs/serving.md
    merge: bool = False
    seed: Count = 0
    edge_data: bool = False
    threads: Count = 0


class ChangesConfig(_Table, frozen=True, kw_only=True):
    """What GET /v1/changes keeps and allows."""

    keep_versions: Positive = 10_000  # of each engine, that changed something
    keep_bytes: Positive = 1 << 27  # of each engine
    idle_s: Count = 60  # for how long versions are kept on after the last subscriber has gone
    subscribers_max: Positive = 1000
    event_changes_max: Positive = 1000  # vertices in one event; of the others the count alone
    ping_ms: Positive = 15_000


class ServerConfig(_Table, frozen=True, kw_only=True):
    """Where `livegnn serve` listens."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    certificate: str = ""  # PEM files: with both of them the service speaks TLS
    key: str = ""
    body_bytes_max: Positive = 1 << 24
    updates_max: Positive = 100_000  # of one request
    ids_max: Positive = 10_000  # vertices or pairs whose rows one request reads
    connections_max: Positive = 2048  # more than changes.subscribers_max: each subscriber has one
    log: Literal["text", "json"] = "text"  # form of the lines on standard error
    log_level: Literal["debug", "info", "warning"] = "info"  # debug may show ids of vertices
    access_log: bool = False  # a line for each request


class TokenConfig(_Table, frozen=True, kw_only=True):
    """Who may call. `livegnn token` prints a token and these lines."""

    name: str
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
    scope: Literal["read", "write", "admin"] = "read"


class DeploymentConfig(_Table, frozen=True, kw_only=True):
    """A whole deployment."""

    graph: GraphConfig = GraphConfig()
    log: LogConfig = LogConfig()
    snapshots: SnapshotConfig = SnapshotConfig()
    server: ServerConfig = ServerConfig()
    changes: ChangesConfig = ChangesConfig()
    cluster: ClusterServing = ClusterServing()
    explain: ExplainConfig = ExplainConfig()
    models: str = "models"  # the registry's folder
    trust_pickle: bool = False  # load a model that is a pickle, which runs code of the file
    engine: tuple[EngineConfig, ...] = ()
    readout: tuple[ReadoutConfig, ...] = ()
    sampler: tuple[PreSamplerConfig, ...] = ()
    temporal: tuple[TemporalConfig, ...] = ()
    index: tuple[IndexConfig, ...] = ()
    token: tuple[TokenConfig, ...] = ()
    source: tuple[SourceConfig, ...] = ()
    sink: tuple[SinkConfig, ...] = ()

    @property
    def names(self) -> list[str]:
        """Of all consumers."""
        own = [*(e.name for e in self.engine), *(r.name for r in self.readout), *(s.name for s in self.sampler)]
        return own + [one.name for one in self.temporal] + [one.name for one in self.index]


def read_config(path: Path) -> DeploymentConfig:
    """The configuration of a file. Raises: FileMissing; ValueInvalid naming file and key."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as cause:
        raise FileMissing(f"[{path}] expected a configuration file, got none there; docs/service.md has one") from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise ValueInvalid(f"[{path}] expected TOML, got: {cause}; correct the file") from cause
    return checked_config(document, str(path))


def checked_config(document: Mapping[str, Any], where: str = "Deployment") -> DeploymentConfig:
    """A configuration from its document. Raises: ValueInvalid naming the key."""
    try:
        config = converted(dict(document), DeploymentConfig)
    except DocumentFault as fault:
        raise ValueInvalid(f"[{where}] {fault}; correct the configuration") from fault
    seen: set[str] = set()
    for name in config.names:
        if name in seen:
            raise ValueInvalid(f"[{where}] expected consumers with names of their own, got {name!r} twice; rename one")
        seen.add(name)
    engines = {one.name for one in config.engine}
    followers = [("readout", one) for one in config.readout] + [("index", one) for one in config.index]
    for kind, follower in followers:
        if follower.engine not in engines:
            known = ", ".join(sorted(engines)) or "none"
            raise ValueInvalid(
                f"[{where}] expected the engine of {kind} {follower.name!r} among {known}, got {follower.engine!r}; "
                "name one"
            )
    for sampler in config.sampler:
        if sampler.model and "/" not in sampler.model:
            raise ValueInvalid(
                f"[{where}] expected the model of sampler {sampler.name!r} as NAME/VERSION, got {sampler.model!r}; no "
                "entry of the log says which version answers, so name it"
            )
    check_cluster(config, where)
    shadows = tuple(one.name + SHADOW_SUFFIX for one in config.engine if one.shadow)
    check_pipes(where, config.source, config.sink, tuple(one.name for one in config.engine), shadows)
    return config


def check_cluster(config: DeploymentConfig, where: str = "cluster") -> None:
    """Raises: ValueInvalid for what an engine over workers cannot do, by its key, or only such a one can."""
    if not config.cluster.workers:
        if config.snapshots.in_parts:
            raise ValueInvalid(
                f"[{where}] expected cluster.workers above 0 with snapshots.in_parts, got 0; leave in_parts out"
            )
        return
    if len(config.engine) != 1:
        raise ValueInvalid(
            f"[{where}] expected one engine with cluster.workers = {config.cluster.workers}, got {len(config.engine)}; "
            "serve each of them by a deployment of its own"
        )
    (engine,) = config.engine
    found = [name for name in ("readout", "sampler", "temporal", "index") if getattr(config, name)]
    found += [f"engine.{name}" for name in ("shadow", "memory_limit") if getattr(engine, name)]
    found += [f'engine.mode = "{engine.mode}"'] if engine.mode != "eager" else []
    found += [f'engine.state = "{engine.state}"'] if engine.state != "fast" else []
    found += ['explain.record = "always"'] if config.explain.record == "always" else []
    if found:
        raise ValueInvalid(
            f"[{where}] expected none of what needs the graph in this process with cluster.workers = "
            f"{config.cluster.workers}, got {', '.join(found)}; leave it out, or the cluster"
        )


def over_workers(config: DeploymentConfig, workers: int) -> DeploymentConfig:
    """The configuration with so many workers; 0: in one process. Raises: ValueInvalid."""
    if type(workers) is not int or not 0 <= workers <= WORKERS_MAX:
        raise ValueInvalid(f"[workers] expected 0 to {WORKERS_MAX} workers, got {workers!r}; choose such a number")
    found = structs.replace(config, cluster=structs.replace(config.cluster, workers=workers))
    check_cluster(found, "workers")
    return found


def printed(config: DeploymentConfig) -> str:
    """The configuration as TOML, every default written out: what --print-config shows; read_config takes it."""
    lines: list[str] = []
    document = msgspec.to_builtins(config)
    tables = {key: value for key, value in document.items() if isinstance(value, dict)}
    lists = {key: value for key, value in document.items() if isinstance(value, list | tuple)}
    lines += [f"{key} = {_value(value)}" for key, value in document.items() if key not in tables and key not in lists]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    for key, entries in lists.items():
        for entry in entries:
            lines += ["", *_entry(key, entry)]
    return "\n".join(lines) + "\n"


def printed_token(token: TokenConfig) -> str:
    """The lines of a configuration that let a token in."""
    return "\n".join(_entry("token", msgspec.to_builtins(token)))


def _entry(key: str, entry: Mapping[str, object]) -> list[str]:
    return [f"[[{key}]]", *(f"{name} = {_value(value)}" for name, value in entry.items())]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{msgspec.json.encode(key).decode()} = {_value(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return msgspec.json.encode(value).decode()  # TOML's strings, numbers and truth values are JSON's
