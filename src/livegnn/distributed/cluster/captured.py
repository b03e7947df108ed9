"""CapturedCluster: the whole graph of a cluster at one version, put together from its workers' shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from livegnn.distributed.cluster.cut import Share
from livegnn.distributed.cluster.directory import Directory
from livegnn.distributed.cluster.recipe import GraphShape
from livegnn.distributed.cluster.recovery import RecoveringCrew
from livegnn.types import AnyArray


class CapturedCluster:
    """As livegnn.graph.saved.CapturedGraph: only take() holds up writers."""

    def __init__(self, directory: Directory, crew: RecoveringCrew, shape: GraphShape) -> None:
        self._directory, self._crew, self._shape = directory, crew, shape

    def take(self) -> None:
        """Asks the workers for their shares. The caller holds the graph's lock. Raises: WorkerUnavailable."""
        self.version = self._directory.graph.version
        self._whole, self._shares = self._directory.graph.to_arrays(), self._crew.each("own_arrays")
        self._next_edge_id = self._directory.next_edge_id

    def to_arrays(self) -> dict[str, AnyArray]:
        """As Graph.to_arrays() of the whole graph."""
        return assembled(self._whole, self._shares, self._shape, (self.version, self._next_edge_id))


def assembled(
    directory: dict[str, AnyArray], shares: Sequence[Share], shape: GraphShape, counters: tuple[int, int]
) -> dict[str, AnyArray]:
    """A whole graph as Graph.to_arrays() has it.

    Args:    directory: the same of it without edges and features.  shares: of it, each vertex and edge in one of them.
             counters: version and next edge id.
    """
    whole = dict(directory)
    features = np.zeros((len(whole["store.live"]), shares[0]["features"].shape[1]), shares[0]["features"].dtype)
    for share in shares:
        features[share["slots"]] = share["features"]
    order = np.argsort(np.concatenate([share["id"] for share in shares]), kind="stable")
    for name in (name for name in shares[0] if name not in ("slots", "features", "vertex_type")):
        whole[f"store.{name}"] = np.ascontiguousarray(np.concatenate([share[name] for share in shares])[order])
    whole["store.features"] = features
    whole["store.counters"] = np.array([*counters], np.int64)
    whole["option.feature_width"] = np.array(features.shape[1], np.int64)
    if "types.widths" in whole:
        widths = [shape.feature_widths[name] for name in shape.vertex_types or ()]
        whole["types.widths"] = np.array(widths, np.int64)
    return whole
