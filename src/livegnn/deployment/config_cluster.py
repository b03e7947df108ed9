"""[cluster] of livegnn.toml: the engine over many workers."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

WORKERS_MAX = 64
PartitionerName: TypeAlias = Literal["metis", "ldg", "fennel", "hash"]


class ClusterServing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of lg.Cluster. docs/service.md says what a deployment over workers cannot have."""

    workers: Annotated[int, Meta(ge=0, le=WORKERS_MAX)] = 0  # 0: the engines are in this process
    address: str = ""  # of a Ray cluster; "": a Ray of this machine
    partition: PartitionerName = "metis"  # of the vertices that are there at the start
    newcomers: Literal["ldg", "fennel", "hash"] = "ldg"
    timeout_s: Annotated[float, Meta(gt=0)] = 60.0  # a worker that is silent for so long is started again
    snapshot_batches: Annotated[int, Meta(ge=1)] = 1000  # between two snapshots that a lost worker starts again from
