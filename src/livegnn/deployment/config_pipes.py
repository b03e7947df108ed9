"""The tables [[source]] and [[sink]] of livegnn.toml: what flows in, and what flows out. docs/pipes.md describes them.

A field of a rule names a column of the record, is a table of its own, or is a list of columns:

    u = "from"                                    weight = { column = "amount", as = "number", default = 1 }
    x = ["age", "balance"]                        edge_type = { value = "pays" }
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from livegnn.errors import ValueInvalid

_Positive = Annotated[int, Meta(ge=1)]
_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Scalar: TypeAlias = str | int | float | bool


class _PipeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Keys of a table of the file; no others are taken."""


class RuleField(_PipeTable, frozen=True, kw_only=True):
    """A value of an update: of a column, cast; or a constant. columns: several, which make a row of numbers."""

    column: str = ""
    columns: tuple[str, ...] = ()
    cast: Literal["", "integer", "number", "text", "time"] = msgspec.field(default="", name="as")
    default: Scalar | tuple[int | float, ...] | None = None  # where the record has none
    value: Scalar | tuple[int | float, ...] | None = None  # a constant


_Field: TypeAlias = str | RuleField | tuple[str, ...] | None


class UpdateRule(_PipeTable, frozen=True, kw_only=True):
    """What update a record becomes: a method of livegnn.Updates, and where its arguments come from."""

    op: Literal["add_edge", "remove_edge", "set_weight", "set_edge_attr", "set_features", "add_vertex", "remove_vertex"]
    when: dict[str, Scalar | tuple[Scalar, ...]] = {}  # column -> the value, or values, that it must have
    exists: Literal["error", "ignore"] = "error"  # of add_vertex: "ignore" leaves a vertex that is there as it is
    missing: Literal["error", "ignore"] = "error"  # of remove_edge
    u: _Field = None
    v: _Field = None
    w: _Field = None
    weight: _Field = None
    time: _Field = None
    edge_type: _Field = None
    edge_attr: _Field = None
    edge_id: _Field = None
    attr: _Field = None
    x: _Field = None
    vertex_type: _Field = None


class SourceConfig(_PipeTable, frozen=True, kw_only=True):
    """Where updates come from."""

    name: _Name
    kind: Literal["csv", "jsonl", "parquet", "stdin", "kafka", "nats"]
    update: Annotated[tuple[UpdateRule, ...], Meta(min_length=1)]
    path: str = ""  # csv, jsonl, parquet: a file or a folder
    pattern: str = ""  # of the names in a folder; "*.csv" for csv
    watch: bool = True  # a folder: look for new files
    follow: bool = False  # csv, jsonl: read on while the file grows
    format: Literal["csv", "jsonl"] = "jsonl"  # stdin
    repeats: bool = False  # stdin: each start gets the same lines again, from the first one
    url: str = ""  # kafka://host:port/topic, nats://host:port/stream
    subject: str = ""  # nats: of the stream's subjects; all unless given
    begin: Literal["first", "new"] = "first"  # kafka, nats: where the first start begins
    options: dict[str, Scalar] = {}  # kafka: more for librdkafka.  nats: more for nats.connect
    batch: _Positive = 1000  # records that become one batch
    wait_ms: _Count = 20  # that a batch waits for more records
    unmatched: Literal["refuse", "skip"] = "refuse"  # a record that no rule's `when` fits


class SinkConfig(_PipeTable, frozen=True, kw_only=True):
    """Where changes go: the filters of GET /v1/changes, and a target."""

    name: _Name
    kind: Literal["webhook", "kafka", "nats", "parquet"]
    engine: str = ""  # needed where there are several; NAME.shadow: a shadow
    vertex_type: str | None = msgspec.field(default=None, name="type")
    output: str | None = None
    ids: tuple[int | str, ...] | None = None
    flips: bool = False
    above: float | None = None
    below: float | None = None
    of_class: int | None = msgspec.field(default=None, name="class")
    column: int | None = None
    min_change: float | None = None
    row_change: bool = False
    url: str = ""  # https://host/path, kafka://host:port/topic, nats://host:port/subject
    path: str = ""  # parquet: a folder
    secret_file: str = ""  # webhook: a file whose content signs each request
    secret_env: str = ""  # webhook: or the name of an environment variable
    timeout_ms: _Positive = 10_000  # of one delivery
    retry_ms_max: _Positive = 60_000  # between two tries
    batch: _Positive = 1000  # events of one delivery, about
    wait_ms: _Count = 0  # that a delivery waits for more events
    event_changes_max: _Positive = 1000  # vertices in one event; more of one version make more events
    options: dict[str, Scalar] = {}  # kafka, nats: as in [[source]]


_SOURCE_KEYS = {
    "csv": {"path", "pattern", "watch", "follow"},
    "jsonl": {"path", "pattern", "watch", "follow"},
    "parquet": {"path", "pattern", "watch"},
    "stdin": {"format", "repeats"},
    "kafka": {"url", "begin", "options"},
    "nats": {"url", "subject", "begin", "options"},
}
_SINK_KEYS = {
    "webhook": {"url", "secret_file", "secret_env"},
    "kafka": {"url", "options"},
    "nats": {"url", "options"},
    "parquet": {"path"},
}
_OF_KIND = {key for keys in (*_SOURCE_KEYS.values(), *_SINK_KEYS.values()) for key in keys}
_SCHEMES = {"kafka": ("kafka",), "nats": ("nats",), "webhook": ("http", "https")}


def check_pipes(
    where: str,
    sources: tuple[SourceConfig, ...],
    sinks: tuple[SinkConfig, ...],
    engines: tuple[str, ...],
    shadows: tuple[str, ...] = (),
) -> None:
    """What the types of the keys do not say. Raises: ValueInvalid naming the key."""
    pipes: tuple[SourceConfig | SinkConfig, ...] = (*sources, *sinks)
    seen: set[str] = set()
    for one in pipes:
        if one.name in seen:
            raise ValueInvalid(
                f"[{where}] expected sources and sinks with names of their own, got {one.name!r} twice; rename one"
            )
        seen.add(one.name)
        _check_keys(where, one, (_SOURCE_KEYS if isinstance(one, SourceConfig) else _SINK_KEYS)[one.kind])
    if sum(one.kind == "stdin" for one in sources) > 1:
        raise ValueInvalid(f"[{where}] expected one source of kind stdin, got several; there is one standard input")
    for sink in sinks:
        if sink.engine not in (*engines, *shadows) and (sink.engine or len(engines) != 1):
            known = ", ".join((*engines, *shadows)) or "none"
            raise ValueInvalid(
                f"[{where}] expected the engine of sink {sink.name!r} among {known}, got {sink.engine!r}; name one"
            )


def _check_keys(where: str, one: SourceConfig | SinkConfig, own: set[str]) -> None:
    table = "source" if isinstance(one, SourceConfig) else "sink"
    for field in msgspec.structs.fields(one):
        default: Any = {} if field.default is msgspec.NODEFAULT else field.default
        if field.name in _OF_KIND - own and getattr(one, field.name) != default:
            raise ValueInvalid(
                f"[{where}] expected keys of kind {one.kind!r} in {table} {one.name!r}, got {field.name!r}; it has "
                f"{', '.join(sorted(own))}"
            )
    for key in ("url", "path"):
        if key in own and not getattr(one, key):
            raise ValueInvalid(f"[{where}] expected {key} in {table} {one.name!r}, got none; name it")
    schemes = _SCHEMES.get(one.kind)
    if schemes and not one.url.startswith(tuple(f"{each}://" for each in schemes)):
        raise ValueInvalid(
            f"[{where}] expected a url that begins with {' or '.join(f'{each}://' for each in schemes)} in {table} "
            f"{one.name!r}, got another; correct it"
        )
    if isinstance(one, SinkConfig) and one.secret_file and one.secret_env:
        raise ValueInvalid(
            f"[{where}] expected one of secret_file and secret_env in sink {one.name!r}, got both; leave one out"
        )
