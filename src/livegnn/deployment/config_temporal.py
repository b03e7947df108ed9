"""[[temporal]] in livegnn.toml: temporal engines, and how they are trained on what comes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

_Count = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]


class TemporalConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One lg.TemporalEngine with a TemporalSampler of its own."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    model: str  # of the registry: model.toml with a TemporalModel class, and weights.pt
    fanouts: Annotated[tuple[int, ...], Meta(min_length=1)] = (10,)
    strategy: Literal["recent", "uniform"] = "recent"
    window: _Count = 0  # 0: the whole past
    seed: _Count = 0  # of samples, and of the training
    edge_types: tuple[str, ...] = ()  # whose edges are events; all unless given
    edge_columns: tuple[Literal["attr", "weight", "type"], ...] = ("attr",)
    memory_step: _Positive = 200
    threads: _Count = 0  # 0: as many as there are cores
    train: bool = False  # on what comes; each round ends with a swap
    events_min: _Positive = 1000  # of a round
    batch_size: _Positive = 200
    epochs: _Positive = 1
    replay: Annotated[float, Meta(ge=0)] = 0.0
    learning_rate: Annotated[float, Meta(gt=0)] = 1e-3

    @property
    def settings(self) -> dict[str, object]:
        """What answers depend on, apart from the model."""
        names = ("fanouts", "strategy", "window", "seed", "edge_types", "edge_columns", "memory_step")
        values = {name: getattr(self, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
