"""VertexMemory: TGN's memory. A row per vertex, the time of the last event taken into it, and one message that waits.

Strategy: tensors over vertex slots, no object per vertex. A message is kept raw (the other end, the time, the edge's
features) and is worked out when it is taken in, from the rows as they are then, so that gradients reach the message's
parts and the GRU through the next embedding. The row of v with a waiting message (u, t, x) is read as

    GRU([row[v] | row[u] | x | enc(t - last[v])], row[v]),    and that of a vertex without events as GRU(0, 0).

In training, events leave messages that wait until their vertex is met again: then the loss sees the parameters that
make the row (Rossi et al. 2020, section 3.2). In evaluation nothing waits: events are taken in as they are observed,
and the first call in evaluation takes in what training left. This is what torch_geometric's TGNMemory does; docs/
temporal-models.md names the three places where it does not, and why.

Invariants: rows hold no gradient; pending implies known; slots of slot_count and above are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from livegnn.errors import DtypeInvalid, StoredStateInvalid, ValueInvalid, VertexUnknown, WidthMismatch

_COLUMNS = ("_rows", "_last", "_other", "_time", "_raw", "_known", "_pending")


@final
class VertexMemory(nn.Module):
    """Memory rows of vertices, updated by a GRU from the last message of each batch of events.

    Args:    width: floats of a row.   edge_width: A, floats of an event's features.   time_encoder: (n,) -> (n, T);
             shared with the model.   time_width: T.   time_origin: the time from which a vertex's first event is
             counted; None: the time of the first event observed. Reset forgets an origin that was observed.
    """

    def __init__(
        self, width: int, edge_width: int, time_encoder: nn.Module, time_width: int, time_origin: int | None = None
    ) -> None:
        super().__init__()
        self.width, self.edge_width, self.time_origin = width, edge_width, time_origin
        self.time_encoder = time_encoder
        self.gru = nn.GRUCell(2 * width + edge_width + time_width, width)
        for name in _COLUMNS:
            self.register_buffer(name, torch.empty(0), persistent=False)
        self.reset(0)

    _rows: Tensor
    _last: Tensor
    _other: Tensor
    _time: Tensor
    _raw: Tensor
    _known: Tensor
    _pending: Tensor

    @property
    def slot_count(self) -> int:
        """Vertices that there is room for."""
        return self._slot_count

    def reset(self, slot_count: int) -> None:
        """Forgets all events, and makes room for so many vertices. Raises: ValueInvalid if that is below 0."""
        if slot_count < 0:
            raise ValueInvalid(f"[memory] expected slot_count of 0 or more, got {slot_count}; fix the argument")
        for name, column in self._blank(slot_count).items():
            setattr(self, name, column)
        self._slot_count = slot_count
        self._origin = self.time_origin
        self._waiting = False

    def grow(self, slot_count: int) -> None:
        """Makes room for more vertices; what is known of the others stays. Fewer than now changes nothing.

        Cost: O(1) amortised a vertex: columns are allocated half as large again.
        """
        capacity = len(self._rows)
        if slot_count > capacity:
            more = self._blank(max(slot_count, capacity + capacity // 2) - capacity)
            for name, column in more.items():
                setattr(self, name, torch.cat([getattr(self, name), column]))
        self._slot_count = max(self._slot_count, slot_count)

    def read(self, slots: Tensor) -> Tensor:
        """Rows as of the last event. slots: (n,) int64, better unique. Returns: (n, width) float32.

        Raises:  VertexUnknown, DtypeInvalid.
        """
        self._check_slots(slots)
        self._settle_if_evaluating()
        return self._current(slots)

    def last_update(self, slots: Tensor) -> Tensor:
        """(n,) int64, the time of each vertex's last event, waiting or taken in; the origin (0 without any) before."""
        self._check_slots(slots)
        known = torch.maximum(self._time[slots], self._last[slots])
        return torch.where(self._known[slots], known, torch.full_like(known, self._origin or 0))

    @torch.no_grad()
    def observe(self, src: Tensor, dst: Tensor, time: Tensor, edge_x: Tensor) -> None:
        """Takes events in, after they were scored; both ends of each learn of it.

        Of several events of a vertex, the one with the largest time counts, of several at that time the last.

        Args:    src, dst, time: (n,) int64, in the order of their edge ids.   edge_x: (n, A) float32.
        Raises:  DtypeInvalid, WidthMismatch, VertexUnknown.
        """
        self._check_events(src, dst, time, edge_x)
        if not len(src):
            return
        if self._origin is None:
            self._origin = int(time.min())
        self._settle_if_evaluating()
        vertices, last, from_src = _last_events(src, dst, time)
        self._settle(vertices)
        self._post(vertices, torch.where(from_src, dst[last], src[last]), time[last], edge_x[last])
        if not self.training:
            self._settle(vertices)
        self._waiting = self._waiting or self.training

    @torch.no_grad()
    def forget(self, slots: Tensor) -> None:
        """Forgets vertices that were removed: (k,) int64.

        Messages that wait at others and name them are taken in first; what other rows took from them stays.

        Raises:  VertexUnknown, DtypeInvalid.
        """
        self._check_slots(slots)
        naming = self._pending & torch.isin(self._other, slots)
        self._settle(naming.nonzero().view(-1))
        for name, column in self._blank(1).items():
            getattr(self, name)[slots] = column[0]

    def state(self) -> dict[str, Tensor]:
        """Copies of all that the events made, to be saved; not the weights, which state_dict() holds."""
        state = {name[1:]: getattr(self, name)[: self._slot_count].clone() for name in _COLUMNS}
        state["origin"] = torch.tensor([] if self._origin is None else [self._origin], dtype=torch.int64)
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """What state() gave, exactly, for a memory of the same widths. Raises: StoredStateInvalid."""
        blank = {name[1:]: column for name, column in self._blank(0).items()}
        if not isinstance(state, Mapping) or set(state) != {*blank, "origin"}:
            found = ", ".join(sorted(map(str, state))) if isinstance(state, Mapping) else type(state).__name__
            raise StoredStateInvalid(
                f"[memory] expected the state's parts {', '.join(blank)}, origin, got {found}; "
                "pass what state() returned"
            )
        count = len(state["known"])
        for name, column in blank.items():
            got, shape = state[name], (count, *column.shape[1:])
            if tuple(got.shape) != shape or got.dtype != column.dtype:
                raise StoredStateInvalid(
                    f"[memory] expected {name} of {column.dtype} and shape {shape}, got {got.dtype} and "
                    f"{tuple(got.shape)}; load it into a memory of the same widths"
                )
        for name in blank:
            setattr(self, "_" + name, state[name].to(self._rows.device, copy=True))
        self._slot_count = count
        self._origin = int(state["origin"]) if len(state["origin"]) else None
        self._waiting = bool(state["pending"].any())

    def _blank(self, count: int) -> dict[str, Tensor]:
        device = self.gru.weight_ih.device
        integers = torch.zeros(count, dtype=torch.int64, device=device)
        flags = torch.zeros(count, dtype=torch.bool, device=device)
        rows = torch.zeros(count, self.width, device=device)
        raw = torch.zeros(count, self.edge_width, device=device)
        columns = (rows, integers, integers.clone(), integers.clone(), raw, flags, flags.clone())
        return dict(zip(_COLUMNS, columns, strict=True))

    def _current(self, slots: Tensor) -> Tensor:
        """Rows with what waits taken in; gradients flow where they are asked for."""
        rows = self._stored(slots)
        if not self._waiting:
            return rows
        at = self._pending[slots].nonzero().view(-1)
        return rows.index_copy(0, at, self._taken(slots[at])) if len(at) else rows

    def _stored(self, slots: Tensor) -> Tensor:
        """Rows without what waits; GRU(0, 0) for vertices without events."""
        known = self._known[slots].unsqueeze(1)
        return torch.where(known, self._rows[slots], self._first())

    def _first(self) -> Tensor:
        weight = self.gru.weight_ih
        first: Tensor = self.gru(weight.new_zeros(1, weight.shape[1]), weight.new_zeros(1, self.width))
        return first

    def _taken(self, slots: Tensor) -> Tensor:
        """Rows after the message that waits at each slot."""
        with torch.no_grad():
            own, other = self._stored(slots), self._stored(self._other[slots])
            age = (self._time[slots] - self._last[slots]).to(own.dtype)
        message = torch.cat([own, other, self._raw[slots], self.time_encoder(age)], dim=1)
        rows: Tensor = self.gru(message, own)
        return rows

    def _post(self, vertices: Tensor, other: Tensor, time: Tensor, raw: Tensor) -> None:
        """A message for each vertex, in place of any before."""
        self._other[vertices], self._time[vertices], self._raw[vertices] = other, time, raw
        fresh = vertices[~self._known[vertices]]
        if len(fresh):
            self._rows[fresh] = self._first()
            self._last[fresh] = self._origin or 0
        self._known[vertices] = self._pending[vertices] = True

    def _settle(self, slots: Tensor) -> None:
        """Takes in what waits at these slots."""
        slots = slots[self._pending[slots]]
        if len(slots):
            self._rows[slots] = self._taken(slots)
            self._last[slots] = torch.maximum(self._last[slots], self._time[slots])
            self._pending[slots] = False

    @torch.no_grad()
    def _settle_if_evaluating(self) -> None:
        if self._waiting and not self.training:
            self._settle(self._pending.nonzero().view(-1))
            self._waiting = False

    def _check_slots(self, slots: Tensor) -> None:
        if slots.dtype != torch.int64 or slots.dim() != 1:
            raise DtypeInvalid(
                f"[memory] expected slots (n,) of int64, got {slots.dtype} {tuple(slots.shape)}; convert"
            )
        if len(slots):
            low, high = (int(bound) for bound in torch.aminmax(slots))
            if low < 0 or high >= self._slot_count:
                raise VertexUnknown(
                    f"[memory] expected slots in [0, {self._slot_count}), got {low} to {high}; "
                    f"call grow({high + 1}) first"
                )

    def _check_events(self, src: Tensor, dst: Tensor, time: Tensor, edge_x: Tensor) -> None:
        self._check_slots(src)
        self._check_slots(dst)
        if time.dtype != torch.int64:
            raise DtypeInvalid(f"[memory] expected times of int64, got {time.dtype}; convert them")
        if not len(src) == len(dst) == len(time):
            raise WidthMismatch(
                f"[memory] expected as many src as dst and times, got {len(src)}, {len(dst)}, {len(time)}; "
                "pass one each"
            )
        if edge_x.dtype != torch.float32 or tuple(edge_x.shape) != (len(src), self.edge_width):
            raise WidthMismatch(
                f"[memory] expected edge_x of float32 and shape ({len(src)}, {self.edge_width}), "
                f"got {edge_x.dtype} and {tuple(edge_x.shape)}; pass a row per event"
            )


def _last_events(src: Tensor, dst: Tensor, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(vertices, event, whether as its src) of the last event of each vertex, by (time, position)."""
    count = len(src)
    order = torch.argsort(time, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count, device=order.device)
    vertices, inverse = torch.unique(torch.cat([src, dst]), return_inverse=True)
    top = torch.full_like(vertices, -1).scatter_reduce(0, inverse, rank.repeat(2), "amax")
    last = order[top]
    return vertices, last, src[last] == vertices
