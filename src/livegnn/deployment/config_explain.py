"""The table [explain] of livegnn.toml: what GET /v1/explain keeps to say what moved a vertex last."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

_Positive = Annotated[int, Meta(ge=1)]


class ExplainConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """record: "asked" begins with the first request for an engine, "always" with the deployment."""

    record: Literal["asked", "always", "never"] = "asked"
    keep_versions: _Positive = 1000  # of each engine
    keep_bytes: _Positive = 1 << 26  # of each engine
    edges_max: _Positive = 300_000  # that one answer reads, while batches wait
