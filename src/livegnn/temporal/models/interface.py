"""TemporalModel: what training and serving ask of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from livegnn.temporal.models.inputs import TemporalInput


class EventMemory(Protocol):
    """What events leave behind in a model, next to the graph: rows by vertex slot, and messages that wait."""

    def observe(self, src: Tensor, dst: Tensor, time: Tensor, edge_x: Tensor) -> None:
        """Takes events in, after they were scored: (n,) int64 slots and times in order, (n, A) float32 features."""

    def reset(self, slot_count: int) -> None:
        """Forgets all events, and makes room for so many vertices."""

    def grow(self, slot_count: int) -> None:
        """Makes room for more vertices; what is known of the others stays."""

    def forget(self, slots: Tensor) -> None:
        """Forgets what is known of vertices that were removed: (k,) int64."""

    def state(self) -> dict[str, Tensor]:
        """Copies of all that the events made, to be saved."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """What state() gave, exactly."""


class TemporalModel(nn.Module, ABC):
    """A model of a vertex at a time, and of links between two of them.

    hop_count: hops that one input holds.  snapshot_count: inputs that embed() reads, newest first; 1 but for models of
    snapshots (DySAT).  x_width, edge_width: floats of the vertex and edge features that inputs carry, perhaps 0;
    x_width is a dict by vertex type, in the graph's order, where vertices have types.
    A model sets its parts after this class's __init__: link, (B, out_width) twice -> (B,) or (B, 1) logits, and memory,
    where it has one.

    Args:    config: name and arguments, of which livegnn.temporal.models.build makes another model like this. Hops,
             snapshots and widths are those of its arguments.  out_width: floats of an embedding; embed_width unless
             given.
    Raises:  of the models here: ValueInvalid for widths below 1, heads that do not divide embed_width, dropout out of
             [0, 1); DtypeInvalid for what is no number.
    """

    memory: EventMemory | None
    link: nn.Module

    def __init__(self, config: dict[str, Any], *, out_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.out_width: int = config["embed_width"] if out_width is None else out_width
        self.hop_count: int = config["hop_count"]
        self.snapshot_count: int = config.get("snapshot_count", 1)
        self.x_width: int | dict[str, int] = config.get("x_width", 0)
        self.edge_width: int = config.get("edge_width", 0)
        self.memory = None

    @abstractmethod
    def embed(self, inputs: Sequence[TemporalInput]) -> Tensor:
        """(B, out_width) float32, a row per root. inputs: snapshot_count of them, over the same roots."""

    def recall(self, inputs: Sequence[TemporalInput]) -> Sequence[TemporalInput]:
        """The inputs with what the memory holds of their rows now: embed() of them does not look at it any more.

        A model with a memory that leaves this as it is, is right as well: while it answers, batches wait.
        """
        return inputs

    def score(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """(B,) float32 logits of links between rows of embeddings."""
        logits: Tensor = self.link(h_src, h_dst)
        return logits.reshape(-1)
