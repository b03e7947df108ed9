"""ContinuousTrainer: ingest, test, train, advance the memory, checkpoint, publish; round after round.

docs/training.md says what a round is. Everything random is drawn from (seed, round, epoch), so that a trainer which was
killed and started again repeats what the other would have done.
"""

from __future__ import annotations

import copy
import math
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from livegnn.errors import StoredStateInvalid, UsageError, ValueInvalid
from livegnn.extras import need
from livegnn.graph import Graph, Updates
from livegnn.temporal.checkpoint import read_checkpoint, write_checkpoint
from livegnn.temporal.events import Arrived, EventFeed, Events, EventTable, Mark
from livegnn.temporal.link import LinkPass, LinkScores, Negatives
from livegnn.temporal.loading import Fetches, HopSource, InputLoader, LiveSampler
from livegnn.temporal.publish import Publisher, publisher_of
from livegnn.temporal.replay import MemoryStates
from livegnn.temporal.report import EpochReport, RoundReport, TrainingReport
from livegnn.types import Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.interface import TemporalModel

__all__ = ["ContinuousTrainer"]

Progress = Callable[[str, int, int], None]  # what is done, events so far, events in all
_NAN = float("nan")
_TEST, _REPLAY, _NEGATIVES, _CHUNK, _VALIDATION = range(5)  # what numbers are drawn for


class _Plan(NamedTuple):
    """What one epoch trains on: runs of events, each after the memory is put to a state (None: left as it is)."""

    parts: list[tuple[Events, dict[str, torch.Tensor] | None]]
    replayed: int


class _Best(NamedTuple):
    """The best weights of the warm start so far, by the validation's average precision, and the epochs since."""

    ap: float
    weights: dict[str, torch.Tensor]
    since: int


class ContinuousTrainer:
    """Trains a model on the events of a graph, and again on what comes.

    Args:    model: a TemporalModel, trained in place.  sampler: TemporalSampler of the graph, of the model's hops.
             vertex_features, edge_features: FeatureCache, or None to read the graph.
             batch_size: events of a mini-batch.  epochs: passes of a round.  replay: old events per new one and epoch.
             train_every: rounds of which the last trains, on the events of all; 0: none trains, all test.
             chunks: of a mini-batch, for random chunk scheduling.  learning_rate: of Adam.
             mrr_candidates: destinations that the true one is ranked among.  memory_states_max: kept for replay.
             folder: where checkpoints go; one that is there is continued.  device: of the model and its inputs.
             tensorboard: writes curves to the folder, too.  progress: called with what is done, and how far it is.
    Raises:  ValueInvalid, UsageError, WidthMismatch; StoredStateInvalid for a folder of another training.
    Cost:    docs/training.md.  Source: GNNFlow, sections 3 and 6.1.
    """

    def __init__(
        self,
        model: TemporalModel,
        graph: Graph,
        sampler: LiveSampler,
        *,
        vertex_features: Fetches | None = None,
        edge_features: Fetches | None = None,
        batch_size: int = 200,
        epochs: int = 3,
        replay: float = 0.0,
        train_every: int = 1,
        chunks: int = 1,
        learning_rate: float = 1e-3,
        mrr_candidates: int = 20,
        memory_states_max: int = 16,
        folder: str | Path | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
        tensorboard: bool = False,
        progress: Progress | None = None,
    ) -> None:
        numbers = {"batch_size": batch_size, "epochs": epochs, "chunks": chunks, "mrr_candidates": mrr_candidates}
        _check_options(numbers, {"train_every": train_every, "memory_states_max": memory_states_max, "seed": seed})
        _check_reals({"replay": replay, "learning_rate": learning_rate})
        self._torch: Any = need("torch", "train")
        self.graph, self.sampler = graph, sampler.twin()  # its calls are counted here alone
        self.model = _moved(model, device)
        self.epochs, self.replay, self.chunks, self.seed = epochs, replay, chunks, seed
        self.train_every = train_every
        self.report = TrainingReport()
        self._loader = InputLoader(
            graph, self.sampler, vertex_features=vertex_features, edge_features=edge_features, device=device
        )
        self._loader.check(model)
        self._pass = LinkPass(model, self._loader, batch_size=batch_size, mrr_candidates=mrr_candidates)
        self._optimizer = self._torch.optim.Adam(model.parameters(), lr=learning_rate)
        self._options = {
            **numbers,
            "train_every": train_every,
            "memory_states_max": memory_states_max,
            "seed": seed,
            "replay": replay,
            "learning_rate": learning_rate,
            "model": str(getattr(model, "config", type(model).__name__)),
            "sampler": str(self.sampler.options),
        }
        self._states = MemoryStates(memory_states_max)
        self._negatives = Negatives()
        self._publishers: list[Publisher] = []
        self._progress = progress
        self._round_lock = threading.Lock()
        self._background: _Background | None = None
        self._caches: list[Any] = [c for c in (vertex_features, edge_features) if hasattr(c, "checkpoint")]
        self._path = None if folder is None else Path(folder) / "checkpoint.pt"
        self._writer = _tensorboard(folder) if tensorboard else None
        self._begin()

    def _begin(self) -> None:
        """Before the first round, or where the folder's checkpoint is."""
        self._marked = False  # whether the caches have a checkpoint of this round
        self._cold = False  # whether caches that were saved are still to be read
        self._fit_epochs = 0  # of the warm start, done
        self._fit_options: list[Any] = []  # of the warm start that was begun
        self._best: _Best | None = None  # of the warm start, where it has a validation
        self._next = 0  # place of the first event that no round has taken
        self._untrained = 0  # place of the first event that none has trained on
        self._before: dict[str, torch.Tensor] | None = None  # the memory before that event
        self._resumed: dict[str, Any] = {}  # marks of a checkpoint whose version the graph has not reached
        stored, graph = None, self.graph
        if self._path is not None and self._path.exists():
            stored = read_checkpoint(self._path, "ContinuousTrainer")
        with graph._lock:
            ids_end = int(graph._store.next_edge_id)
            self._table = EventTable(
                Events.of(graph), ids_end if stored is None else stored.get("history_end", ids_end)
            )
            self._feed = EventFeed(graph)
            self._version = graph.version
            self._start = (graph.version, "" if self._path is None else str(graph.digest()))
        try:
            if self.model.memory is not None:
                self.model.memory.reset(graph.slot_count)
            if stored is not None:
                self._resume(stored, self._path)
        except BaseException:
            self._feed.close()
            raise

    # ---- training

    @property
    def rounds(self) -> int:
        """Rounds done, the warm start included."""
        return len(self.report.rounds)

    def fit(self, epochs: int | None = None, *, validation: float = 0.0, patience: int | None = None) -> RoundReport:
        """The warm start: trains on every event that the graph has now. A trainer that was resumed goes on, or is done.

        Args:    epochs: passes, by default the trainer's.  validation: share of the last events that are tested on
                 after each epoch, and not trained on.  patience: epochs without a better validation before it ends
                 early; the best weights are kept.
        Raises:  UsageError without events or after a round; ValueInvalid.
        """
        if not 0.0 <= validation < 1.0 or (patience is not None and (patience < 1 or validation == 0.0)):
            raise ValueInvalid(
                f"[fit] expected validation in [0, 1), and patience from 1 with a validation, got {validation} and "
                f"{patience}; leave patience out, or hold some events back"
            )
        count = self.epochs if epochs is None else epochs
        _check_options({"epochs": count}, {})
        with self._round_lock, self._own_chance():
            if self.rounds:
                return self.report.rounds[0]
            options = [count, validation, patience]
            if self._fit_epochs and self._fit_options != options:
                raise UsageError(
                    f"[fit] expected epochs, validation and patience as when it was begun, {self._fit_options}, got "
                    f"{options}; give those, or another folder"
                )
            self._fit_options = options
            with self._reading() as (source, version, arrived):
                self._take(arrived)
                return self._warm_start(source, version, count, validation, patience)

    def take_as_trained(self) -> RoundReport:
        """In place of fit(), for a model that is trained already: its memory observes every event of the graph.

        Raises:  UsageError without events or after a round.
        """
        with self._round_lock, self._own_chance():
            if self.rounds:
                raise UsageError("[take_as_trained] expected a trainer before its first round, got one after it")
            with self._reading() as (source, version, arrived):
                self._take(arrived)
                return self._take_history(source, version, 0, _NAN)

    def run(self, stream: Iterable[Updates]) -> Iterator[RoundReport]:
        """Applies each batch of a stream to the graph, and does a round on it; yields the round's report.

        A resumed trainer takes the stream that comes after its graph's version: batches up to its checkpoint's version
        are applied, and not trained on again.
        Raises:  UpdateError where a batch is refused; then nothing of it is applied.
        """
        for updates in stream:
            with self._loader.clock.phase("ingest"):
                self.graph.apply(updates)
            with self._round_lock:
                caught_up = self._catch_up()
            if not caught_up:
                yield self.round()

    def round(self) -> RoundReport:
        """One round on the events that came since the last one: test, train, advance, checkpoint, publish.

        Where it fails, weights, memory and events are as before it, and the next round takes them.
        Raises:  UsageError before fit(); TrainingDiverged; what a target of publish_to() raises, after the round.
        """
        with self._round_lock, self._own_chance():
            if not self.rounds:
                raise UsageError("[round] expected a trainer after fit(), got one before it; call fit() first")
            self._catch_up()
            if self._resumed:
                raise UsageError(
                    f"[round] expected a graph of version {self._resumed['version']}, as the checkpoint is, got "
                    f"{self.graph.version}; apply the stream up to there first"
                )
            with self._reading() as (source, version, arrived):
                self._take(arrived)
                self._warm_caches()
                return self._one_round(source, version)

    def start(self, *, events_min: int = 1000, poll_s: float = 0.05) -> None:
        """Rounds in a thread of their own, each when at least events_min events wait, until stop()."""
        if not self.rounds:
            raise UsageError("[start] expected a trainer after fit(), got one before it; call fit() first")
        if self._background is not None:
            raise UsageError("[start] expected a trainer that is not running, got one that is; call stop() first")
        self._background = _Background(self, events_min, poll_s)

    def stop(self) -> None:
        """Ends the thread after the round that it is in. Raises what ended it before, if something did."""
        background, self._background = self._background, None
        if background is not None:
            background.stop()

    def publish_to(self, target: Any) -> None:
        """Every round from now on ends with the model's being handed over: to a TemporalEngine, an Engine (of a
        StaticLinks' module), or a callable (model, report). The model is published at once if a round is done; it waits
        for a round that is under way, and must not be called from inside one.
        """
        publisher = publisher_of(target, self.model)
        with self._round_lock:
            self._publishers.append(publisher)
            if self.rounds and not self._resumed:
                publisher(self.model, self.report.rounds[-1])

    def close(self) -> None:
        """Stops the thread, and follows the graph no more. Raises what ended the thread, if something did."""
        try:
            self.stop()
        finally:
            self._feed.close()
            if self._writer is not None:
                self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what a round reads

    @contextmanager
    def _reading(self) -> Iterator[tuple[HopSource, int, Arrived]]:
        """One version of the graph, and the events up to it."""
        with ExitStack() as stack:
            with self.graph._lock:
                source = stack.enter_context(self.sampler.pin()) if self.graph.has_time else self.sampler
                arrived, version = self._feed.take(), self.graph.version
                if self.model.memory is not None:
                    self.model.memory.grow(self.graph.slot_count)
            yield source, version, arrived

    def _take(self, arrived: Arrived) -> None:
        self._table.remove(arrived.removed)
        self._table.append(arrived.events)
        memory = self.model.memory
        self._negatives.drop(arrived.vertices)
        if memory is None or not len(arrived.vertices):
            return
        slots = self._torch.from_numpy(arrived.vertices).to(self._loader.device)
        now = memory.state()

        def forgotten(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            self._remember(state)
            memory.forget(slots)
            return memory.state()

        if self._before is not None:
            self._before = forgotten(self._before)
        self._states.states = [forgotten(state) for state in self._states.states]
        self._remember(forgotten(now))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What fails inside leaves weights, optimiser, memory and places as they were."""
        memory = self.model.memory
        weights, optimizer = _copied(self.model.state_dict()), copy.deepcopy(self._optimizer.state_dict())
        state = None if memory is None else memory.state()
        places = (self._next, self._untrained, self._before, list(self._states.places), list(self._states.states))
        seen, rounds, epochs = self._negatives.seen, len(self.report.rounds), len(self.report.epochs)
        try:
            yield
        except BaseException:
            self.model.load_state_dict(weights)
            self._optimizer.load_state_dict(optimizer)
            self._remember(state)
            self._next, self._untrained, self._before, self._states.places, self._states.states = places
            self._negatives.seen = seen
            del self.report.rounds[rounds:], self.report.epochs[epochs:]
            self._loader.clock.take()
            raise

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        """Torch's generators, which epochs seed, are given back as they were."""
        cuda = self._torch.cuda
        with self._torch.random.fork_rng(devices=range(cuda.device_count()) if cuda.is_available() else []):
            yield

    # ---- the warm start

    def _warm_start(
        self, source: HopSource, version: int, epochs: int, validation: float, patience: int | None
    ) -> RoundReport:
        everything = self._table.between(0, len(self._table)).in_time_order()
        if not len(everything):
            raise UsageError("[fit] expected a graph with edges, got none; add the first part of the events")
        self._negatives.add(everything.dst)
        held = int(len(everything) * validation)
        events, later = (
            everything.at(slice(0, len(everything) - held)),
            everything.at(slice(len(everything) - held, None)),
        )
        loss = self.report.epochs[-1].loss if self.report.epochs else _NAN
        for epoch in range(self._fit_epochs, epochs):
            if patience is not None and self._best is not None and self._best.since >= patience:
                break
            with self._all_or_nothing():
                loss = self._warm_epoch(events, later, epoch, epochs, source)
            self._save()
        if self._best is not None:
            self.model.load_state_dict(self._best.weights)
            self._best = None
        return self._take_history(source, version, len(events), loss)

    def _warm_epoch(self, events: Events, later: Events, epoch: int, epochs: int, source: HopSource) -> float:
        self._begin_epoch(0, epoch)
        if self.model.memory is not None:
            self.model.memory.reset(self.graph.slot_count)
        loss = self._train(events, 0, epoch, source, f"epoch {epoch + 1} of {epochs}", later.edge_ids)
        scores = None
        if len(later):
            rng = self._rng(0, 0, _VALIDATION)
            negatives = self._negatives.draw(len(later), rng)
            scores, _ = self._pass.test(later, negatives, rng, source=source, hidden=later.edge_ids)
            if self._best is None or scores.ap > self._best.ap:
                self._best = _Best(scores.ap, _copied(self.model.state_dict()), 0)
            else:
                self._best = self._best._replace(since=self._best.since + 1)
        self._note_epoch(0, epoch, len(events), loss, scores)
        self._fit_epochs = epoch + 1
        return loss

    def _take_history(self, source: HopSource, version: int, trained: int, loss: float) -> RoundReport:
        """Ends the warm start: every event is old, and observed under the weights of now."""
        count = len(self._table)
        with self._all_or_nothing():
            self._negatives.add(self._table.between(0, count).dst)
            self._advance_through_history(source, count)
            self._next = self._untrained = count
            self._before = None if self.model.memory is None else self.model.memory.state()
        return self._end_round(RoundReport(0, version, trained, 0, loss, _NAN, _NAN, _NAN, {}))

    def _advance_through_history(self, source: HopSource, count: int) -> None:
        """The memory of all events under the weights as they are now, and its states on the way, for replay."""
        memory = self.model.memory
        if memory is None:
            return
        memory.reset(self.graph.slot_count)
        self._states.clear()
        pieces = max(1, self._states.states_max // 2)
        size = max(1, math.ceil(count / pieces / self._pass.batch_size)) * self._pass.batch_size
        for first in range(0, count, size):
            self._states.add(first, memory.state())
            self._pass.observe(self._table.between(first, first + size).in_time_order(), source)

    # ---- a round

    def _one_round(self, source: HopSource, version: int) -> RoundReport:
        number, first, last = self.rounds, self._next, len(self._table)
        events = self._table.between(first, last).in_time_order()
        with self._all_or_nothing():
            self._negatives.add(events.dst)
            self._begin_epoch(number, -1)
            rng = self._rng(number, 0, _TEST)
            negatives = self._negatives.draw(len(events), rng)
            shown = self._shown("test", len(events))
            scores, _ = self._pass.test(events, negatives, rng, source=source, hidden=events.edge_ids, progress=shown)
            self._next = last
            loss, replayed = _NAN, 0
            if self.train_every and number % self.train_every == 0:
                loss, replayed = self._fine_tune(number, source)
                self._untrained = last
                self._before = None if self.model.memory is None else self.model.memory.state()
        return self._end_round(
            RoundReport(number, version, len(events), replayed, loss, scores.ap, scores.auc, scores.mrr, {})
        )

    def _fine_tune(self, number: int, source: HopSource) -> tuple[float, int]:
        """Trains on the events that none has trained on; the loss, and how many old events were trained on besides."""
        first, memory = self._untrained, self.model.memory
        events = self._table.between(first, self._next).in_time_order()
        loss, replayed = _NAN, 0
        for epoch in range(self.epochs if len(events) else 0):
            self._begin_epoch(number, epoch)
            plan = self._plan(events, first, number, epoch)
            total = 0.0
            for part, state in plan.parts:
                self._remember(state)
                total += len(part) * self._train(part, number, epoch, source, f"epoch {epoch + 1} of {self.epochs}")
            trained = sum(len(part) for part, _ in plan.parts)
            replayed, loss = replayed + plan.replayed, total / trained
            self._note_epoch(number, epoch, trained, loss, None)
        if memory is not None and self._before is not None:
            self._remember(self._before)
            self._states.add(first, self._before)
            self._pass.observe(events, source)
        return loss, replayed

    def _remember(self, state: dict[str, torch.Tensor] | None) -> None:
        """Puts the memory to a state, with room for the vertices that came since."""
        if self.model.memory is not None and state is not None:
            self.model.memory.load_state(state)
            self.model.memory.grow(self.graph.slot_count)

    def _plan(self, events: Events, first: int, number: int, epoch: int) -> _Plan:
        before = self._before
        rng, count = self._rng(number, epoch, _REPLAY), round(self.replay * len(events))
        if before is None:
            old = self._table.draw(count, first, rng)
            mixed = Events(*(np.concatenate(pair) for pair in zip(old.columns(), events.columns(), strict=True)))
            return _Plan([(mixed.in_time_order(), None)], len(old))
        runs = self._states.draw(self._table, first, count, self._pass.batch_size, rng)
        parts = [(run.events, run.memory) for run in runs]
        return _Plan([*parts, (events, before)], sum(len(run.events) for run in runs))

    def _train(
        self,
        events: Events,
        number: int,
        epoch: int,
        source: HopSource,
        what: str,
        hidden: Int64Array | None = None,
    ) -> float:
        negatives = self._negatives.draw(len(events), self._rng(number, epoch, _NEGATIVES))
        size, first = self._pass.batch_size, None
        if self.chunks > 1:
            piece = int(self._rng(number, epoch, _CHUNK).integers(1, self.chunks + 1))
            first = max(1, size * piece // self.chunks)
        shown = self._shown(what, len(events))
        return self._pass.train(
            events, negatives, self._optimizer, source=source, first=first, hidden=hidden, progress=shown
        )

    def _end_round(self, report: RoundReport) -> RoundReport:
        self._version = report.version
        seconds = self._loader.clock.take()
        report = replace(report, seconds=seconds)
        self.report.rounds.append(report)
        with self._loader.clock.phase("checkpoint"):
            self._save()
        with self._loader.clock.phase("publish"):
            for publisher in self._publishers:
                publisher(self.model, report)
        seconds.update(self._loader.clock.take())
        if self._writer is not None:
            for name in ("ap", "auc", "mrr", "loss"):
                self._writer.add_scalar(f"round/{name}", getattr(report, name), report.round)
        return report

    def _note_epoch(self, number: int, epoch: int, events: int, loss: float, scores: LinkScores | None) -> None:
        rest = () if scores is None else (scores.ap, scores.auc)
        self.report.epochs.append(EpochReport(number, epoch, events, loss, *rest))

    # ---- chance, and progress

    def _rng(self, number: int, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, number, epoch + 1, purpose))

    def _begin_epoch(self, number: int, epoch: int) -> None:
        """Dropout and samples of an epoch follow from its name alone; caches begin it as they began the round."""
        begins_round = epoch < 0 or (number == 0 and epoch == 0) or not self._marked
        for cache in self._caches:
            if begins_round:
                cache.checkpoint()
            else:
                cache.restore()
        self._marked = True
        name = zlib.crc32(repr((self.seed, number, epoch)).encode())
        self._torch.manual_seed(name)
        self.sampler.calls = name << 20

    def _shown(self, what: str, count: int) -> Callable[[int], None] | None:
        if self._progress is None:
            return None
        progress, number = self._progress, self.rounds
        return lambda done: progress(f"round {number}, {what}", done, count)

    # ---- checkpoints

    def _save(self) -> None:
        if self._path is None:
            return
        memory, table = self.model.memory, self._table
        state = {
            "kind": "training",
            "options": self._options,
            "start": self._start,
            "history_end": table.history_end,
            "version": self._version,
            "fit": (self._fit_epochs, self._fit_options),
            "best": None if self._best is None else tuple(self._best),
            "next": tuple(table.mark(self._next)),
            "untrained": tuple(table.mark(self._untrained)),
            "before": self._before,
            "marks": [tuple(table.mark(place)) for place in self._states.places],
            "states": self._states.states,
            "negatives": self._torch.from_numpy(self._negatives.seen.copy()),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "memory": None if memory is None else memory.state(),
            "report": self.report.state(),
        }
        write_checkpoint(self._path, state)
        for number, cache in enumerate(self._caches):
            cache.save(self._path.with_name(f"cache-{number}.npz"))

    def _resume(self, state: dict[str, Any], path: Path | None) -> None:
        self._check_same(state, path)
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self.model.memory is not None:
            self.model.memory.load_state(state["memory"])
            self.model.memory.grow(self.graph.slot_count)
        self.report = TrainingReport.of(state["report"])
        self._fit_epochs, self._fit_options = state["fit"][0], list(state["fit"][1])
        self._best = None if state["best"] is None else _Best(*state["best"])
        self._before, self._states.states = state["before"], list(state["states"])
        self._negatives.seen = state["negatives"].numpy()
        self._start = tuple(state["start"])
        self._version = int(state["version"])
        self._cold = True
        self._resumed = {name: state[name] for name in ("version", "next", "untrained", "marks")}
        self._place_resumed()

    def _check_same(self, state: dict[str, Any], path: Path | None) -> None:
        """Raises: StoredStateInvalid for a checkpoint of something else, or one that the graph has left behind."""
        if state.get("kind") != "training":
            raise StoredStateInvalid(
                f"[ContinuousTrainer] expected a training's checkpoint, got another file at {path}"
            )
        theirs = state["options"]
        differing = [name for name, mine in self._options.items() if theirs.get(name) != mine]
        if differing:
            name = differing[0]
            raise StoredStateInvalid(
                f"[ContinuousTrainer] expected a checkpoint with {name} {self._options[name]}, got {theirs.get(name)} "
                f"in {path}; give the same options, or another folder"
            )
        version, digest = state["start"]
        if self._start[0] == version and self._start[1] != digest:
            raise StoredStateInvalid(
                f"[ContinuousTrainer] expected the graph that the training in {path} began with, got one of version "
                f"{version} with other content; give that graph, or another folder"
            )
        if self.graph.version > state["version"] and self.model.memory is not None:
            raise StoredStateInvalid(
                f"[ContinuousTrainer] expected a graph of version {state['version']} or before, as the memory in "
                f"{path} is, got version {self.graph.version}; make the trainer first, then apply the rest"
            )

    def _catch_up(self) -> bool:
        """Of a resumed trainer: what came up to the checkpoint's version is history already. Whether all was such.

        Raises:  UsageError where a memory would have to know what lies before that version and what behind.
        """
        if not self._resumed:
            return False
        with self.graph._lock:
            behind = self.graph.version > self._resumed["version"]
            if behind and self.model.memory is not None:
                raise UsageError(
                    f"[round] expected to hear of version {self._resumed['version']}, as the checkpoint is, got the "
                    f"graph at {self.graph.version} already; make the trainer anew, and let run() apply the stream"
                )
            arrived = self._feed.take()
        self._table.remove(arrived.removed)
        self._table.append(arrived.events)
        if behind:
            self._negatives.drop(arrived.vertices)
        self._place_resumed()
        if not self._resumed:
            for publisher in self._publishers:
                publisher(self.model, self.report.rounds[-1])
        return not behind

    def _place_resumed(self) -> None:
        """Where the checkpoint's rounds had come to, in the table as it is; done when the graph is there."""
        self._next = self._table.place(Mark(*self._resumed["next"]))
        self._untrained = self._table.place(Mark(*self._resumed["untrained"]))
        self._states.places = [self._table.place(Mark(*mark)) for mark in self._resumed["marks"]]
        if self.graph.version >= self._resumed["version"]:
            self._resumed = {}

    def _warm_caches(self) -> None:
        """Of a resumed trainer, before its first round, when the graph has the edges that its caches held."""
        if self._cold and self._path is not None:
            for number, cache in enumerate(self._caches):
                if (saved := self._path.with_name(f"cache-{number}.npz")).exists():
                    cache.load(saved)
        self._cold = False


class _Background:
    """The thread of start()."""

    def __init__(self, trainer: ContinuousTrainer, events_min: int, poll_s: float) -> None:
        self._trainer, self._events_min, self._poll_s = trainer, events_min, poll_s
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="livegnn-trainer", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._ended.wait(self._poll_s):
                if self._trainer._feed.waiting >= self._events_min:
                    self._trainer.round()
        except Exception as error:  # told to whoever calls stop()
            self._error = error

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in state.items()}


def _tensorboard(folder: str | Path | None) -> Any:
    if folder is None:
        raise UsageError("[ContinuousTrainer] expected folder= with tensorboard=True, got none; give one")
    need("tensorboard", "train")
    return need("torch.utils.tensorboard", "train").SummaryWriter(log_dir=str(folder))


def _moved(model: TemporalModel, device: Any) -> TemporalModel:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as cause:
        raise ValueInvalid(
            f"[ContinuousTrainer] expected a device that is at hand, got {device!r} ({cause}); give another"
        ) from cause


def _check_options(from_one: dict[str, Any], from_zero: dict[str, Any]) -> None:
    for least, numbers in ((1, from_one), (0, from_zero)):
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueInvalid(
                    f"[ContinuousTrainer] expected {name} of at least {least}, got {value!r}; give a whole number"
                )


def _check_reals(numbers: dict[str, float]) -> None:
    for name, number in numbers.items():
        if not math.isfinite(number) or number < 0:
            raise ValueInvalid(f"[ContinuousTrainer] expected {name} from 0 on, got {number!r}; give a finite number")
