"""The TOML file of `livegnn train`: what may stand in it, what stands there if nothing does, and how it is checked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from livegnn.errors import DataMissing, ValueInvalid

__all__ = ["CacheConfig", "Config", "DataConfig", "OutputConfig", "SamplerConfig", "TrainConfig", "read_config"]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where events come from: a data set by name, or a file with one row for each event."""

    dataset: str = "jodie_wikipedia"
    generated: bool = False
    events: str = ""  # .parquet or .csv; then dataset is not read
    features: str = ""  # .npy, .parquet or .csv: one row for each vertex
    id: str = ""  # the column of vertex ids in the features file
    src: str = "src"
    dst: str = "dst"
    time: str = "time"
    attributes: tuple[str, ...] = ()  # columns of the events file that are edge features
    undirected: bool = True
    limit: int = 0  # only the first so many events
    warm: float = 0.3  # share of the events that the warm start trains on
    batch: int = 1000  # events of an incremental batch, and so of a round


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """Options of lg.TemporalSampler."""

    fanouts: tuple[int, ...] = (10,)
    strategy: str = "recent"
    window: int = 0  # 0: none
    snapshots: int = 1
    prop_time: bool = False
    seed: int = 0
    threads: int = 0  # 0: as many as there are cores


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Options of lg.ContinuousTrainer and of its fit()."""

    batch_size: int = 200
    epochs: int = 2
    warm_epochs: int = 3
    validation: float = 0.0
    patience: int = 0  # 0: none
    replay: float = 0.0
    chunks: int = 1
    learning_rate: float = 1e-3
    mrr_candidates: int = 20
    memory_states: int = 16
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """Options of lg.FeatureCache; a capacity of 0 is no cache."""

    vertices: int = 0
    edges: int = 0
    policy: str = "lru"
    max_replace: float = 0.2


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """Where results go."""

    folder: str = "out/train"
    tensorboard: bool = False


@dataclass(frozen=True, kw_only=True)
class Config:
    """All sections. model: name and arguments, as livegnn.temporal.models.build takes them."""

    data: DataConfig = field(default_factory=DataConfig)
    model: dict[str, Any] = field(default_factory=lambda: {"name": "tgn"})
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def to_toml(self) -> str:
        """The whole configuration as a file."""
        lines = []
        for one in fields(self):
            section = getattr(self, one.name)
            values = (
                section if isinstance(section, dict) else {f.name: getattr(section, f.name) for f in fields(section)}
            )
            lines += [f"[{one.name}]", *(f"{name} = {_toml(value)}" for name, value in values.items()), ""]
        return "\n".join(lines)


_LEAST = {  # of whole numbers, where it is not 0
    "data.batch": 1,
    "sampler.snapshots": 1,
    "train.batch_size": 1,
    "train.epochs": 1,
    "train.warm_epochs": 1,
    "train.chunks": 1,
    "train.mrr_candidates": 1,
    "sampler.fanouts": -1,
}


def read_config(path: Path | None, changes: Sequence[str] = ()) -> Config:
    """The configuration in a file, with changes "section.key=value" (the value as TOML writes it) on top.

    Raises:  DataMissing without the file; ValueInvalid for what is no TOML, or a section, key or value that is none.
    """
    where = "train" if path is None else str(path)
    given: dict[str, Any] = {}
    if path is not None:
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as cause:
            raise DataMissing(
                f"[train] expected a file, got none at {path}; see livegnn train --print-config"
            ) from cause
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
            raise ValueInvalid(f"[{path}] expected TOML, got what cannot be read ({cause}); mend it") from cause
    for change in changes:
        _change(given, change)
    sections = {one.name: one for one in fields(Config)}
    made: dict[str, Any] = {}
    for name, values in given.items():
        if name not in sections or not isinstance(values, dict):
            known = ", ".join(sections)
            raise ValueInvalid(
                f"[{where}] expected sections among {known}, got {name!r}; take it out, or mend its name"
            )
        kind = sections[name].default_factory
        assert kind is not MISSING
        made[name] = {"name": "tgn", **values} if name == "model" else _section(where, name, kind, values)
    return Config(**made)


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


def _section(where: str, name: str, kind: Any, values: dict[str, Any]) -> Any:
    known = {one.name: one for one in fields(kind)}
    checked = {}
    for key, value in values.items():
        if key not in known:
            names = ", ".join(known)
            raise ValueInvalid(f"[{where}] expected keys of [{name}] among {names}, got {key!r}; mend its name")
        checked[key] = _checked(where, f"{name}.{key}", known[key].default, value)
    return kind(**checked)


def _checked(where: str, key: str, default: Any, value: Any) -> Any:
    """The value, of the default's kind and in its range. Whole numbers do for real ones."""
    least = _LEAST.get(key, 0)
    if isinstance(default, tuple):
        numbers = key == "sampler.fanouts"
        if isinstance(value, list) and all(type(v) is int and v >= least if numbers else type(v) is str for v in value):
            return tuple(value)
        kind = f"a list of whole numbers from {least} on" if numbers else "a list of names"
    elif isinstance(default, float) and type(value) in (int, float) and 0 <= value < math.inf:
        return float(value)
    elif type(value) is type(default) and (type(value) is not int or value >= least) and type(value) is not float:
        return value
    else:
        kinds = {bool: "true or false", int: f"a whole number from {least} on", float: "a number from 0 on"}
        kind = kinds.get(type(default), "a string")
    raise ValueInvalid(f"[{where}] expected {kind} for {key}, got {value!r}; mend it")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
