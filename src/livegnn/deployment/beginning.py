"""The graph with which a deployment's history begins, from its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from livegnn.deployment.by_path import found_by_path
from livegnn.deployment.config import GraphConfig
from livegnn.deployment.live import GraphSource
from livegnn.errors import UsageError
from livegnn.files import Table, listed, read_features, read_table
from livegnn.graph import Graph


def first_graph(config: GraphConfig, folder: Path) -> GraphSource:
    """The graph before the first entry, or the folder of its parts. Paths are relative to `folder`.

    Raises:  UsageError where the configuration names none; what reading the files raises, naming file, row and column.
    """
    if config.factory:
        made = found_by_path(config.factory, "graph.factory")()
        if not isinstance(made, Graph):
            raise UsageError(
                f"[graph.factory] expected {config.factory} to return a livegnn.Graph, got {type(made).__name__}; "
                "return one"
            )
        return made
    if config.parts:
        from livegnn.distributed.cluster.parts_folder import PartsFolder

        return PartsFolder(folder / config.parts)
    if config.features:
        return _of_files(config, folder)
    if config.feature_width:
        return _empty(config)
    raise UsageError(
        "[graph] expected features, parts, feature_width or factory at the first start, got none of them; name the "
        "file of features, a folder of parts, the width of those that will come, or a function that makes the graph"
    )


def _of_files(config: GraphConfig, folder: Path) -> Graph:
    path = folder / config.features
    features, ids = read_features(path, config.id or None, id_option="id = ", columns=config.columns)
    columns: dict[str, Any] = {"src": np.zeros(0, np.int64), "dst": np.zeros(0, np.int64)}
    if config.edges:
        columns = _edges(config, read_table(folder / config.edges))
    elif ids is not None:
        columns = {"src": [], "dst": []}
    return Graph(features, **columns, ids=None if ids is None else listed(ids), **_flags(config))


def _edges(config: GraphConfig, table: Table) -> dict[str, Any]:
    columns: dict[str, Any] = {"src": listed(table.ids(config.src)), "dst": listed(table.ids(config.dst))}
    if config.weight:
        columns["weight"] = table.float32(config.weight)
    if config.time:
        columns["time"] = table.times(config.time)
    if config.edge_type:
        columns["edge_type"] = table.int64(config.edge_type)
    if config.attributes:
        columns["edge_attr"] = np.stack([table.float32(name) for name in config.attributes], axis=1)
    return columns


def _empty(config: GraphConfig) -> Graph:
    """A graph without vertices, whose edges have the columns that the configuration names."""
    none = np.zeros(0, np.int64)
    columns: dict[str, Any] = {"src": none, "dst": none}
    if config.has_weight:
        columns["weight"] = np.zeros(0, np.float32)
    if config.has_time:
        columns["time"] = none
    if config.attribute_width:
        columns["edge_attr"] = np.zeros((0, config.attribute_width), np.float32)
    if config.ids == "text":
        columns |= dict.fromkeys(("ids", "src", "dst"), np.zeros(0, np.str_))
    return Graph(np.zeros((0, config.feature_width), np.float32), **columns, **_flags(config))


def _flags(config: GraphConfig) -> dict[str, Any]:
    flags: dict[str, Any] = {"undirected": config.undirected, "simple": config.simple}
    flags["feature_dtype"] = config.feature_dtype
    return flags | ({"ttl": config.ttl} if config.ttl else {})
