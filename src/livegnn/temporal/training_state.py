"""TrainingState: what rounds of training change, so that a round can be undone and a training be continued.

A round changes all of it or nothing (all_or_nothing). A checkpoint is all of it (saved, load); it holds places in the
table of events as marks, for the graph that comes back may have lost edges, and may stand at an earlier version than
the checkpoint: then places are found as it comes up to that version (catch_up).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from livegnn.errors import StoredStateInvalid
from livegnn.graph import Graph
from livegnn.optional import need
from livegnn.temporal.events import Arrived, EventTable, Mark
from livegnn.temporal.link import Negatives
from livegnn.temporal.loading import Clock
from livegnn.temporal.replay import MemoryStates
from livegnn.temporal.report import TrainingReport
from livegnn.types import Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.interface import EventMemory, TemporalModel

_VALUES = ("version", "next", "untrained", "before", "fit_epochs", "best")  # replaced by rounds, never changed in place


class Best(NamedTuple):
    """The best weights of the warm start so far, by the validation's average precision, and the epochs since."""

    ap: float
    weights: dict[str, torch.Tensor]
    since: int


class TrainingState:
    """Weights, optimiser, memory, events and how far they are taken, and the report of what was done.

    Args:    model, optimizer: the trainer's.  memory: the model's, or what stands for it.  options: what a checkpoint
             must have been made with.  table: the graph's events.  start: version and digest of the graph as the
             training begins.  memory_states_max: for replay.  clock: of the seconds that the report is to hold.
    """

    def __init__(
        self,
        model: TemporalModel,
        optimizer: torch.optim.Optimizer,
        graph: Graph,
        *,
        memory: EventMemory | None,
        options: dict[str, Any],
        table: EventTable,
        start: tuple[int, str],
        memory_states_max: int,
        clock: Clock,
    ) -> None:
        self.model, self.optimizer, self.graph, self.memory = model, optimizer, graph, memory
        self.table, self.version = table, start[0]
        self.report = TrainingReport()
        self.negatives = Negatives()
        self.memory_states = MemoryStates(memory_states_max)
        self.before: dict[str, torch.Tensor] | None = None  # the memory before the first event not trained on
        self.next = 0  # place of the first event that no round has taken
        self.untrained = 0  # place of the first event that none has trained on
        self.fit_epochs = 0  # of the warm start, done
        self.fit_options: list[Any] = []  # of the warm start that was begun
        self.best: Best | None = None  # of the warm start, where it has a validation
        self.resumed: dict[str, Any] = {}  # marks of a checkpoint whose version the graph has not reached
        self.broken: BaseException | None = None  # what kept a failed round from being taken back
        self._options, self._start, self._clock = options, start, clock

    # ---- what events and rounds do

    def take(self, arrived: Arrived, device: torch.device | str) -> None:
        """Events that came, edges and vertices that went. Where it fails, the same may be taken again."""
        if self.memory is not None and len(arrived.vertices):
            self._forget(arrived.vertices, self.memory, device)
        self.table.remove(arrived.removed)
        self.table.append(arrived.events)
        self.negatives.drop(arrived.vertices)

    def _forget(self, vertices: Int64Array, memory: EventMemory, device: torch.device | str) -> None:
        """Vertices that went are forgotten in every state that is kept, and in the memory itself."""
        slots = need("torch", "train").from_numpy(vertices).to(device)
        now = memory.state()

        def forgotten(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            self.remember(state)
            memory.forget(slots)
            return memory.state()

        try:
            before = None if self.before is None else forgotten(self.before)
            states = [forgotten(state) for state in self.memory_states.states]
            forgotten(now)
        except BaseException:
            self.remember(now)
            raise
        self.before, self.memory_states.states = before, states

    def remember(self, state: dict[str, torch.Tensor] | None) -> None:
        """Puts the memory to a state, with room for the vertices that came since."""
        if self.memory is not None and state is not None:
            self.memory.load_state(state)
            self.memory.grow(self.graph.slot_count)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """What fails inside leaves weights, optimiser, memory, destinations, places, report and clock as they were.
        Caches go back as the next round begins.
        """
        memory, kept, training = self.memory, self.memory_states, self.model.training
        weights, optimizer = copied(self.model.state_dict()), copy.deepcopy(self.optimizer.state_dict())
        state = None if memory is None else memory.state()
        values = {name: getattr(self, name) for name in _VALUES}
        places, states, seen = list(kept.places), list(kept.states), self.negatives.seen
        rounds, epochs, seconds = len(self.report.rounds), len(self.report.epochs), dict(self._clock.seconds)
        try:
            yield
        except BaseException as error:
            self.broken = error
            self.model.load_state_dict(weights)
            self.model.train(training)
            self.optimizer.load_state_dict(optimizer)
            self.remember(state)
            for name, value in values.items():
                setattr(self, name, value)
            kept.places, kept.states, self.negatives.seen = places, states, seen
            del self.report.rounds[rounds:], self.report.epochs[epochs:]
            self._clock.seconds = seconds
            self.broken = None  # all is back
            raise

    # ---- checkpoints

    def saved(self) -> dict[str, Any]:
        """All of it, of plain values and tensors."""
        memory, table = self.memory, self.table
        return {
            "kind": "training",
            "options": self._options,
            "start": self._start,
            "history_end": table.history_end,
            "version": self.version,
            "fit": (self.fit_epochs, self.fit_options),
            "best": None if self.best is None else tuple(self.best),
            "next": tuple(table.mark(self.next)),
            "untrained": tuple(table.mark(self.untrained)),
            "before": self.before,
            "marks": [tuple(table.mark(place)) for place in self.memory_states.places],
            "states": self.memory_states.states,
            "negatives": need("torch", "train").from_numpy(self.negatives.seen.copy()),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": None if memory is None else memory.state(),
            "report": self.report.state(),
        }

    def load(self, state: dict[str, Any], path: Path | None) -> None:
        """What saved() gave, which lay at this path.

        Raises:  StoredStateInvalid for a checkpoint of something else, or one that the graph has left behind.
        """
        self._check_same(state, path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.remember(state["memory"])
        self.report = TrainingReport.of(state["report"])
        self.fit_epochs, self.fit_options = state["fit"][0], list(state["fit"][1])
        self.best = None if state["best"] is None else Best(*state["best"])
        self.before, self.memory_states.states = state["before"], list(state["states"])
        self.negatives.seen = state["negatives"].numpy()
        self._start = tuple(state["start"])
        self.version = int(state["version"])
        self.resumed = {name: state[name] for name in ("version", "next", "untrained", "marks")}
        self._place_resumed()

    def catch_up(self, arrived: Arrived, *, behind: bool) -> None:
        """Of a resumed training: what came is history already; behind: the graph is past the checkpoint's version."""
        self.table.remove(arrived.removed)
        self.table.append(arrived.events)
        if behind:
            self.negatives.drop(arrived.vertices)
        self._place_resumed()

    def _check_same(self, state: dict[str, Any], path: Path | None) -> None:
        def refuse(expected: str, got: str, advice: str = "give that graph, or another folder") -> NoReturn:
            raise StoredStateInvalid(f"[ContinuousTrainer] expected {expected}, got {got}; {advice}")

        if state.get("kind") != "training":
            refuse("a training's checkpoint", f"another file at {path}", "give another folder")
        theirs = state["options"]
        for name, mine in self._options.items():
            if theirs.get(name) != mine:
                got = f"{theirs.get(name)} in {path}"
                refuse(f"a checkpoint with {name} {mine}", got, "give the same options, or another folder")
        version, digest = state["start"]
        if self._start[0] == version and self._start[1] != digest:
            expected = f"the graph that the training in {path} began with"
            refuse(expected, f"one of version {version} with other content")
        if self.graph.version > state["version"] and self.memory is not None:
            expected = f"a graph of version {state['version']} or before, as the memory in {path} is"
            refuse(expected, f"version {self.graph.version}", "make the trainer first, then apply the rest")

    def _place_resumed(self) -> None:
        """Where the checkpoint's rounds had come to, in the table as it is; done when the graph is there."""
        self.next = self.table.place(Mark(*self.resumed["next"]))
        self.untrained = self.table.place(Mark(*self.resumed["untrained"]))
        self.memory_states.places = [self.table.place(Mark(*mark)) for mark in self.resumed["marks"]]
        if self.graph.version >= self.resumed["version"]:
            self.resumed = {}


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """A state_dict that later steps do not change."""
    return {name: value.detach().clone() for name, value in state.items()}
