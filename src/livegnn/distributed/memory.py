"""PartitionedMemory: TGN's memory, each vertex's row with its owner, and written back after each step.

A step reads: the rows of the vertices in the sample, and of the other end of each message that waits at one of them,
come from their owners into the model's own VertexMemory, which then holds nothing but these, numbered from 0 (bring()).
A step writes: each event goes to the owners of its two ends; an owner lets a VertexMemory of its rows and their
partners' observe them and keeps what became of its own (observe()). So both run the very code of one process on the
same numbers.

Invariants: only an owner changes a row; before a step's first write all that it reads has been read; the origin of
times is the same everywhere. A vertex's row is with one worker of those that hold its part (Layout.keepers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from livegnn.distributed.exchange import Exchange, Route
from livegnn.distributed.own_slots import OwnSlots, room
from livegnn.errors import ModelUnsupported
from livegnn.temporal.events import Events
from livegnn.temporal.models.inputs import TemporalInput
from livegnn.temporal.models.memory import VertexMemory
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

if TYPE_CHECKING:
    from livegnn.temporal.models.interface import TemporalModel

_INTEGERS, _FLOATS = ("last", "other", "time", "known", "pending"), ("rows", "raw")
_FLAGS = ("known", "pending")
_COLUMNS = (*_INTEGERS, *_FLOATS)  # of VertexMemory.state(), the origin aside
_NONE = np.zeros(0, np.int64)
_LATEST = 2**63 - 1

State = dict[str, Tensor]


def check_memory(model: TemporalModel) -> VertexMemory:
    """The memory of a model, which can be parted. Raises: ModelUnsupported for another kind."""
    if not isinstance(model.memory, VertexMemory):
        raise ModelUnsupported(
            f"[PartitionedMemory] expected a model with a VertexMemory, got {type(model.memory).__name__}; train it in "
            "one process"
        )
    return model.memory


def parted(state: State, keepers: AnyArray, size: int) -> list[State]:
    """The rows of each worker of a whole memory's state. keepers: (slots,) the worker that keeps each."""
    own = [torch.from_numpy(np.flatnonzero(keepers == rank)) for rank in range(size)]
    return [{"origin": state["origin"], **{name: state[name].cpu()[rows] for name in _COLUMNS}} for rows in own]


def whole(parts: Sequence[State], keepers: AnyArray) -> State:
    """The state of which parted() makes these."""
    found: State = {"origin": parts[0]["origin"].clone()}
    for name in _COLUMNS:
        first = parts[0][name]
        found[name] = first.new_empty((len(keepers), *first.shape[1:]))
        for rank, part in enumerate(parts):
            found[name][torch.from_numpy(np.flatnonzero(keepers == rank))] = part[name]
    return found


class PartitionedMemory:
    """One worker's rows, and what all workers do together. Every call is made by all, each with what is its own.

    Args:    model: its memory is a VertexMemory.  keepers: the worker that keeps each of (k,) slots, (k,) int64; the
             same on every worker, and for ever.
    Raises:  ModelUnsupported for another kind of memory.
    """

    def __init__(self, model: TemporalModel, exchange: Exchange, keepers: Callable[[Int64Array], Int64Array]) -> None:
        self._memory, self._exchange, self._keepers = check_memory(model), exchange, keepers
        self._own = OwnSlots(self._is_own)
        self.reset(0)

    def reset(self, slot_count: int) -> None:
        """Forgets all events, and makes room for so many vertices of the whole graph."""
        self._own.grow(slot_count)
        self._memory.reset(self._own.count(slot_count))
        self.load_own(self._memory.state(), slot_count)

    def load_own(self, state: State, slot_count: int) -> None:
        """Takes a state of this worker's rows alone, in order of slot; of later slots nothing is known."""
        self._own.grow(slot_count)
        self._origin = state["origin"].cpu()
        self._columns = {name: state[name].cpu().clone() for name in _COLUMNS}
        self._slot_count = slot_count
        self._waiting = bool(np.any(self._exchange.gather(self._columns["pending"].any().numpy().reshape(1))))

    def own(self) -> State:
        """What load_own() takes."""
        count = self._own.count(self._slot_count)
        return {**{name: column[:count].clone() for name, column in self._columns.items()}, "origin": self._origin}

    def load_state(self, state: State) -> None:
        """Takes what VertexMemory.state() gave of the whole graph. Every worker gives the same."""
        count = len(state["known"])
        keepers = self._keepers(np.arange(count))
        self.load_own(parted(state, keepers, self._exchange.size)[self._exchange.rank], count)

    def state(self) -> State:
        """All rows, as VertexMemory.state() of one process would give them; on every worker."""
        parts = self._exchange.gather(self._packed(np.arange(self._own.count(self._slot_count))))
        states = [{**self._unpacked(part), "origin": self._origin} for part in parts]
        return whole(states, self._keepers(np.arange(self._slot_count)))

    def grow(self, slot_count: int) -> None:
        """Makes room for more vertices; what is known of the others stays."""
        self._own.grow(slot_count)
        length = len(self._columns["known"])
        more = room(length, self._own.count(slot_count)) - length
        for name, column in self._columns.items() if more else ():
            self._columns[name] = torch.cat([column, column.new_zeros((more, *column.shape[1:]))])
        self._slot_count = max(self._slot_count, slot_count)

    # ---- a step

    def bring(self, inputs: list[TemporalInput]) -> list[TemporalInput]:
        """The inputs with rows numbered as the model's memory now holds them, for TemporalModel.embed."""
        self._settle_if_evaluating()
        held = self._load(np.unique(np.concatenate([_array(part.rows) for part in inputs])), _NONE)
        return [replace(part, rows=self._tensor(np.searchsorted(held, _array(part.rows)))) for part in inputs]

    def observe(self, events: Events, places: Int64Array, edge_x: Tensor) -> None:
        """Takes in the events of all workers, each giving its own: places (n,) are their order among all of them.

        The result is that of VertexMemory.observe() of all of them at once.
        """
        self._begin_times(events)
        self._settle_if_evaluating()
        numbers, raw = self._sent_to_owners(events, places, edge_x)
        ends = np.unique(numbers[1:3])
        own = ends[self._is_own(ends)]
        held = self._load(own, ends)
        if numbers.shape[1]:
            src, dst = (self._tensor(np.searchsorted(held, column)) for column in numbers[1:3])
            self._memory.observe(src, dst, self._tensor(numbers[3]), self._tensor(raw))
        self._write_back(own, held)
        self._waiting = self._waiting or self._memory.training

    def forget(self, slots: Int64Array) -> None:
        """Forgets vertices that were removed: (k,) slots, the same on every worker."""
        waiting = self._columns["pending"].numpy()
        own = self._own.slots[np.flatnonzero(waiting & np.isin(self._columns["other"].numpy(), slots))]
        self._settle(own)
        places = torch.from_numpy(self._own.rows(slots[self._is_own(slots)]))
        for column in self._columns.values():
            column[places] = torch.zeros((), dtype=column.dtype)

    # ---- inside

    def _settle_if_evaluating(self) -> None:
        """In evaluation nothing waits: what training left is taken in first, as VertexMemory does."""
        if self._waiting and not self._memory.training:
            self._settle(self._own.slots[np.flatnonzero(self._columns["pending"].numpy())])
            self._waiting = False

    def _settle(self, own: Int64Array) -> None:
        """Takes in what waits at vertices of this worker."""
        training, held = self._memory.training, self._load(own, _NONE)
        self._memory.eval()
        self._memory.read(self._tensor(_NONE))
        self._memory.train(training)
        self._write_back(own, held)

    def _begin_times(self, events: Events) -> None:
        """The origin of times is that of the first events seen by anybody."""
        if len(self._origin):
            return
        first = np.array([events.time.min() if len(events) else _LATEST], np.int64)
        earliest = min(int(part[0]) for part in self._exchange.gather(first))
        if earliest != _LATEST:
            self._origin = torch.tensor([earliest], dtype=torch.int64)

    def _sent_to_owners(self, events: Events, places: Int64Array, edge_x: Tensor) -> tuple[Int64Array, Float32Array]:
        """Of all workers' events those with an end here, in order: (4, n) place, src, dst, time; (n, A) features."""
        size = self._exchange.size
        at_src, at_dst = self._keepers(events.src), self._keepers(events.dst)
        twice = np.flatnonzero(at_src != at_dst)
        route = Route(np.concatenate([at_src, at_dst[twice]]), size)
        rows = np.concatenate([np.arange(len(events)), twice])
        numbers = np.stack([places, events.src, events.dst, events.time], axis=1)
        raw = edge_x.detach().cpu().numpy().astype(np.float32, copy=False)
        found = np.concatenate(self._exchange.swap(route.split(numbers[rows])))
        found_raw = np.concatenate(self._exchange.swap(route.split(raw[rows])))
        order = np.argsort(found[:, 0], kind="stable")
        return np.ascontiguousarray(found[order].T), np.ascontiguousarray(found_raw[order])

    def _load(self, wanted: Int64Array, others: Int64Array) -> Int64Array:
        """Puts rows into the model's memory: those wanted with what waits at them, and their partners' and others'.

        Args:    wanted: (n,) slots, unique.  others: slots.
        Returns: (N,) slots, ascending: the memory's row i is that of the vertex in slot i of these.
        """
        first = self._fetched(wanted)
        partners = first["other"].numpy()[first["pending"].numpy()]
        more = np.setdiff1d(np.concatenate([partners, others]), wanted)
        second = self._fetched(more)
        second["pending"][:] = False
        slots = np.concatenate([wanted, more])
        order = np.argsort(slots)
        held, places = slots[order], torch.from_numpy(order)
        state = {name: torch.cat([first[name], second[name]])[places] for name in _COLUMNS}
        numbered = np.searchsorted(held, state["other"].numpy())
        state["other"] = torch.from_numpy(np.where(state["pending"].numpy(), numbered, 0))
        self._memory.load_state({**state, "origin": self._origin})
        return held

    def _write_back(self, own: Int64Array, held: Int64Array) -> None:
        """Keeps what became of the rows of this worker's vertices."""
        state = self._memory.state()
        if not len(own):
            return
        at, rows = torch.from_numpy(np.searchsorted(held, own)), torch.from_numpy(self._own.rows(own))
        state["other"] = torch.from_numpy(held)[state["other"].cpu()]
        for name, column in self._columns.items():
            column[rows] = state[name].cpu()[at]

    def _fetched(self, slots: Int64Array) -> State:
        """Rows of any vertices from their owners, in this order."""
        size = self._exchange.size
        route = Route(self._keepers(slots), size)
        asked = self._exchange.swap(route.split(slots))
        answers = [self._packed(self._own.rows(part)) for part in asked]
        return self._unpacked(route.joined(self._exchange.swap(answers)))

    def _packed(self, rows: Int64Array) -> Float32Array:
        """Columns of own rows side by side, integers as pairs of float32 of the same bits: one array to send."""
        at = torch.from_numpy(rows)
        numbers = np.stack([self._columns[name][at].to(torch.int64).numpy() for name in _INTEGERS], axis=1)
        floats = [self._columns[name][at].numpy() for name in _FLOATS]
        return np.concatenate([numbers.view(np.float32), *floats], axis=1)

    def _unpacked(self, packed: Float32Array) -> State:
        """What _packed() joined."""
        count = len(_INTEGERS)
        numbers = np.ascontiguousarray(packed[:, : 2 * count]).view(np.int64)
        state = {name: torch.from_numpy(numbers[:, i].copy()) for i, name in enumerate(_INTEGERS)}
        for name in _FLAGS:
            state[name] = state[name].to(torch.bool)
        floats = torch.from_numpy(packed[:, 2 * count :].copy())
        state["rows"], state["raw"] = floats[:, : self._memory.width].clone(), floats[:, self._memory.width :].clone()
        return state

    def _is_own(self, slots: Int64Array) -> BoolArray:
        own: BoolArray = self._keepers(slots) == self._exchange.rank
        return own

    def _tensor(self, values: AnyArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._memory.gru.weight_ih.device)


def _array(slots: Tensor) -> Int64Array:
    return slots.cpu().numpy()
