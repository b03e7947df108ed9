"""Tables [[index]] of livegnn.toml: approximate indexes that POST /v1/topk may use."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

_Name = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
_Positive = Annotated[int, Meta(ge=1)]


class IndexConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One index of usearch over an engine's rows; the engine is eager.

    sample: vertices whose best ten are compared with the exact ones, for the recall.  rebuild_below: a recall under
    which the index is built anew.
    """

    name: _Name
    engine: _Name
    metric: Literal["dot", "cosine", "l2"] = "cosine"
    vertex_type: str = ""
    sample: _Positive = 50
    rebuild_below: Annotated[float, Meta(ge=0, le=1)] = 0.9
