"""The TOML file of `livegnn train`: what may stand in it, in which range, and what stands there if nothing does."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from livegnn.documents import DocumentFault, converted
from livegnn.errors import DataMissing, ValueInvalid

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Fanout = Annotated[int, Meta(ge=-1)]
Share = Annotated[float, Meta(ge=0, le=sys.float_info.max)]


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a table of the file; no others are taken."""


class DataConfig(_Section, frozen=True, kw_only=True):
    """Where events come from: a data set by name, or a file with one row for each event."""

    dataset: str = "jodie_wikipedia"
    generated: bool = False
    download: bool = False  # by PyG's or OGB's class, where the data set is not at hand
    events: str = ""  # .parquet or .csv; then dataset is not read
    features: str = ""  # .npy, .parquet or .csv: one row for each vertex
    id: str = ""  # the column of vertex ids in the features file
    src: str = "src"
    dst: str = "dst"
    time: str = "time"
    attributes: tuple[str, ...] = ()  # columns of the events file that are edge features
    undirected: bool | Literal["auto"] = "auto"  # auto: for a data set between two kinds of vertices alone
    limit: Count = 0  # only the first so many events
    warm: Share = 0.3  # share of the events that the warm start trains on
    batch: Positive = 1000  # events of an incremental batch, and so of a round


class SamplerConfig(_Section, frozen=True, kw_only=True):
    """Options of lg.TemporalSampler."""

    fanouts: tuple[Fanout, ...] = (10,)
    strategy: str = "recent"
    window: Count = 0  # 0: none
    snapshots: Positive = 1
    prop_time: bool = False
    seed: Count = 0
    threads: Count = 0  # 0: as many as there are cores


class TrainConfig(_Section, frozen=True, kw_only=True):
    """Options of lg.ContinuousTrainer and of its fit()."""

    batch_size: Positive = 200
    epochs: Positive = 2
    warm_epochs: Positive = 3
    validation: Share = 0.0
    patience: Count = 0  # 0: none
    replay: Share = 0.0
    chunks: Positive = 1
    learning_rate: Share = 1e-3
    mrr_candidates: Positive = 20
    memory_states: Count = 16
    device: str = "cpu"
    seed: Count = 0


class CacheConfig(_Section, frozen=True, kw_only=True):
    """Options of lg.FeatureCache; a capacity of 0 is no cache."""

    vertices: Count = 0
    edges: Count = 0
    policy: str = "lru"
    max_replace: Share = 0.2


class OutputConfig(_Section, frozen=True, kw_only=True):
    """Where results go."""

    folder: str = "out/train"
    tensorboard: bool = False


class Config(_Section, frozen=True, kw_only=True):
    """All sections. model: name and arguments, as livegnn.temporal.models.build takes them."""

    data: DataConfig = DataConfig()
    model: dict[str, Any] = msgspec.field(default_factory=lambda: {"name": "tgn"})
    sampler: SamplerConfig = SamplerConfig()
    train: TrainConfig = TrainConfig()
    cache: CacheConfig = CacheConfig()
    output: OutputConfig = OutputConfig()

    def to_toml(self) -> str:
        """The whole configuration as a file."""
        lines = []
        for name, section in msgspec.structs.asdict(self).items():
            values = section if isinstance(section, dict) else msgspec.structs.asdict(section)
            lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items()), ""]
        return "\n".join(lines)


def read_config(path: Path | None, changes: Sequence[str] = ()) -> Config:
    """The configuration in a file, with changes "section.key=value" (the value as TOML writes it) on top.

    Raises:  DataMissing without the file; ValueInvalid for what is no TOML, or a section, key or value that is none.
    """
    given: dict[str, Any] = {}
    if path is not None:
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as cause:
            raise DataMissing(
                f"[train] expected a file, got none at {path}; see livegnn train --print-config"
            ) from cause
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
            raise ValueInvalid(f"[{path}] expected TOML, got what cannot be read ({cause}); correct it") from cause
    for change in changes:
        _change(given, change)
    if isinstance(given.get("model"), dict):
        given["model"] = {"name": "tgn", **given["model"]}
    try:
        return converted(given, Config)
    except DocumentFault as fault:
        raise ValueInvalid(f"[{'train' if path is None else path}] {fault}; correct it, or take it out") from fault


def _change(given: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and key):
        raise ValueInvalid(f"[train] expected --set section.key=value, got {change!r}; as in --set train.epochs=1")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a word without quotes
    given.setdefault(section, {})[key] = value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
