"""What a model reads: the hops of a sample as tensors, and the features of their rows and edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from livegnn.temporal.hop import TemporalHop


@dataclass(frozen=True, slots=True, eq=False)
class HopInput:
    """One hop: E edges from B' rows to B rows, of which the first B are the same vertices.

    Args:    edge_index: (2, E) int64, row 0 below B', row 1 below B.  dt: (E,) float32, the target's time less the
             edge's, taken in int64.  targets: (B,) int64 slots.  target_times: (B,) int64.  edge_x: (E, A) float32.
             edge_types: (E,) int64 codes, None where edges have no types.
    """

    edge_index: Tensor
    dt: Tensor
    targets: Tensor
    target_times: Tensor
    edge_x: Tensor
    edge_types: Tensor | None = None

    @property
    def target_count(self) -> int:
        """B."""
        return len(self.targets)


@dataclass(frozen=True, slots=True, eq=False)
class TemporalInput:
    """Hops from the roots outward, and the rows of the last one.

    Args:    hops: hop 0's targets are the roots.  rows: (N,) int64, slots of the last hop's sources and targets
             (its next_targets).  row_times: (N,) int64.  x: (N, F) float32, their features, F perhaps 0.
             types: (N,) int64, codes of their vertex types, None of a graph without; x is then filled with zeros up
             to the widest type's width.
             memory: (N, M) float32, what the model's memory holds of them; None where the model is to look.
    """

    hops: tuple[HopInput, ...]
    rows: Tensor
    row_times: Tensor
    x: Tensor
    memory: Tensor | None = None
    types: Tensor | None = None

    @classmethod
    def of(
        cls, hops: Sequence[TemporalHop], x: Tensor, edge_x: Sequence[Tensor], device: torch.device | str = "cpu"
    ) -> TemporalInput:
        """The input of sampled hops; on the CPU the arrays are shared, not copied."""
        parts = tuple(_hop_input(hop, features, device) for hop, features in zip(hops, edge_x, strict=True))
        last = hops[-1]
        types = None if last.next_types is None else _tensor(last.next_types, device)
        return cls(parts, _tensor(last.next_targets, device), _tensor(last.next_times, device), x, types=types)


def _hop_input(hop: TemporalHop, edge_x: Tensor, device: torch.device | str) -> HopInput:
    dt = torch.from_numpy(hop.target_times[hop.dst] - hop.times).to(torch.float32)
    targets, times = _tensor(hop.targets, device), _tensor(hop.target_times, device)
    types = None if hop.edge_types is None else _tensor(hop.edge_types, device)
    return HopInput(_tensor(hop.edge_index, device), dt.to(device), targets, times, edge_x, types)


def _tensor(values: object, device: torch.device | str) -> Tensor:
    return torch.from_numpy(values).to(device)
