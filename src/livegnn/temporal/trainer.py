"""ContinuousTrainer: ingest, test, train, advance the memory, checkpoint, publish; round after round.

docs/training.md says what a round is. Everything random is drawn from (seed, round, epoch), so that a trainer which was
killed and started again repeats what the other would have done.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from livegnn.errors import StoredStateInvalid, UsageError, ValueInvalid
from livegnn.extras import need
from livegnn.graph import Graph, Updates
from livegnn.temporal.checkpoint import read_checkpoint, write_checkpoint
from livegnn.temporal.events import Arrived, EventFeed, Events, EventTable
from livegnn.temporal.link import LinkPass, LinkScores, Negatives
from livegnn.temporal.loading import Fetches, HopSource, InputLoader, LiveSampler
from livegnn.temporal.publish import Publisher, publisher_of
from livegnn.temporal.replay import MemoryStates
from livegnn.temporal.report import EpochReport, RoundReport, TrainingReport

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
        _check_options(batch_size, epochs, replay, train_every, chunks, learning_rate)
        self._torch: Any = need("torch", "train")
        self.model, self.graph, self.sampler = model.to(device), graph, sampler
        self.epochs, self.replay, self.chunks, self.seed = epochs, replay, chunks, seed
        self.train_every = train_every
        self.report = TrainingReport()
        self._loader = InputLoader(
            graph, sampler, vertex_features=vertex_features, edge_features=edge_features, device=device
        )
        self._loader.check(model)
        self._pass = LinkPass(model, self._loader, batch_size=batch_size, mrr_candidates=mrr_candidates)
        self._optimizer = self._torch.optim.Adam(model.parameters(), lr=learning_rate)
        self._options = repr(
            (type(model).__name__, batch_size, epochs, replay, train_every, chunks, learning_rate, seed)
        )
        self._states = MemoryStates(memory_states_max)
        self._negatives = Negatives()
        self._publishers: list[Publisher] = []
        self._progress = progress
        self._round_lock = threading.Lock()
        self._background: _Background | None = None
        self._caches: list[Any] = [c for c in (vertex_features, edge_features) if hasattr(c, "checkpoint")]
        self._fit_epochs = 0  # of the warm start, done
        self._cold = False  # whether caches that were saved are still to be read
        self._best: _Best | None = None  # of the warm start, where it has a validation
        self._next = 0  # place of the first event that no round has taken
        self._untrained = 0  # place of the first event that none has trained on
        self._before: dict[str, torch.Tensor] | None = None  # the memory before that event
        self._resume_version, self._resume_edge_id, self._resume_untrained = (
            -1,
            0,
            0,
        )  # where a checkpoint is, should the graph not be there yet
        self._path = None if folder is None else Path(folder) / "checkpoint.pt"
        self._writer = _tensorboard(folder) if tensorboard else None
        with graph._lock:
            self._table = EventTable(Events.of(graph))
            self._feed = EventFeed(graph)
            self._version = graph.version
        if model.memory is not None:
            model.memory.reset(graph.slot_count)
        if self._path is not None and self._path.exists():
            self._resume(self._path)

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
        with self._round_lock:
            if self.rounds:
                return self.report.rounds[0]
            with self._reading() as (source, version, arrived):
                self._take(arrived)
                return self._warm_start(source, version, epochs or self.epochs, validation, patience)

    def take_as_trained(self) -> RoundReport:
        """In place of fit(), for a model that is trained already: its memory observes every event of the graph.

        Raises:  UsageError without events or after a round.
        """
        with self._round_lock:
            if self.rounds:
                raise UsageError("[take_as_trained] expected a trainer before its first round, got one after it")
            with self._reading() as (source, version, arrived):
                self._take(arrived)
                return self._take_history(source, version, 0, _NAN)

    def run(self, stream: Iterable[Updates]) -> Iterator[RoundReport]:
        """Applies each batch of a stream to the graph, and does a round on it; yields the round's report.

        A resumed trainer takes the same stream from the start: batches that its checkpoint has seen are applied, and
        not trained on again.
        Raises:  UpdateError where a batch is refused; then nothing of it is applied.
        """
        for updates in stream:
            with self._loader.clock.phase("ingest"):
                self.graph.apply(updates)
            if self.graph.version > self._resume_version:
                yield self.round()
            else:
                self._catch_up()

    def round(self) -> RoundReport:
        """One round on the events that came since the last one: test, train, advance, checkpoint, publish."""
        with self._round_lock:
            if not self.rounds:
                raise UsageError("[round] expected a trainer after fit(), got one before it; call fit() first")
            with self._reading() as (source, version, arrived):
                self._take(arrived)
                self._warm_caches()
                return self._one_round(source, version)

    def start(self, *, events_min: int = 1000, poll_s: float = 0.05) -> None:
        """Rounds in a thread of their own, each when at least events_min events wait, until stop()."""
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
        StaticLinks' module), or a callable (model, report). The model is published at once if a round is done.
        """
        publisher = publisher_of(target, self.model)
        self._publishers.append(publisher)
        if self.rounds:
            publisher(self.model, self.report.rounds[-1])

    def close(self) -> None:
        """Stops the thread, and follows the graph no more."""
        self.stop()
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
                arrived, version = self._feed.take(), self.graph.version
                source = stack.enter_context(self.sampler.pin()) if self.graph.has_time else self.sampler
                if self.model.memory is not None:
                    self.model.memory.grow(self.graph.slot_count)
            yield source, version, arrived

    def _take(self, arrived: Arrived) -> None:
        self._table.remove(arrived.removed)
        self._table.append(arrived.events)
        memory = self.model.memory
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

    def _catch_up(self) -> None:
        """Of a resumed trainer: what came is history already."""
        arrived = self._feed.take()
        self._table.remove(arrived.removed)
        self._table.append(arrived.events)
        self._place_resumed()

    def _warm_caches(self) -> None:
        """Of a resumed trainer, before its first round, when the graph has the edges that its caches held."""
        if self._cold and self._path is not None:
            for number, cache in enumerate(self._caches):
                if (saved := self._path.with_name(f"cache-{number}.npz")).exists():
                    cache.load(saved)
        self._cold = False

    def _place_resumed(self) -> None:
        """Where the checkpoint's rounds had come to, in the table as it is."""
        self._next = self._table.place_of_id(self._resume_edge_id)
        self._untrained = self._table.place_of_id(self._resume_untrained)
        self._negatives.add(self._table.destinations(0, self._next))

    def _last_edge_id(self) -> int:
        """The id of the last event that a round has taken, -1 before the first."""
        return self._table.edge_id(self._next - 1) if self._next else -1

    # ---- the warm start

    def _warm_start(
        self, source: HopSource, version: int, epochs: int, validation: float, patience: int | None
    ) -> RoundReport:
        everything = self._table.between(0, len(self._table)).in_time_order()
        if not len(everything):
            raise UsageError("[fit] expected a graph with edges, got none; add the first part of the events")
        self._negatives.add(self._table.destinations(0, len(self._table)))
        held = int(len(everything) * validation)
        events, later = (
            everything.at(slice(0, len(everything) - held)),
            everything.at(slice(len(everything) - held, None)),
        )
        loss = self.report.epochs[-1].loss if self.report.epochs else float("nan")
        for epoch in range(self._fit_epochs, epochs):
            if patience is not None and self._best is not None and self._best.since >= patience:
                break
            self._begin_epoch(0, epoch)
            if self.model.memory is not None:
                self.model.memory.reset(self.graph.slot_count)
            loss = self._train(events, 0, epoch, source, f"epoch {epoch + 1} of {epochs}")
            scores = self._validate(later, source) if held else None
            self._note_epoch(0, epoch, len(events), loss, scores)
            self._fit_epochs = epoch + 1
            if scores is not None:
                if self._best is None or scores.ap > self._best.ap:
                    self._best = _Best(scores.ap, _copied(self.model.state_dict()), 0)
                else:
                    self._best = self._best._replace(since=self._best.since + 1)
            self._save()
        if self._best is not None:
            self.model.load_state_dict(self._best.weights)
            self._best = None
        return self._take_history(source, version, len(events), loss)

    def _take_history(self, source: HopSource, version: int, trained: int, loss: float) -> RoundReport:
        """Ends the warm start: every event is old, and observed under the weights of now."""
        count = len(self._table)
        self._negatives.add(self._table.destinations(0, count))
        self._advance_through_history(source, count)
        self._next = self._untrained = count
        self._before = None if self.model.memory is None else self.model.memory.state()
        return self._end_round(RoundReport(0, version, trained, 0, loss, _NAN, _NAN, _NAN, {}))

    def _validate(self, later: Events, source: HopSource) -> LinkScores:
        rng = self._rng(0, 0, _VALIDATION)
        return self._pass.test(later, self._negatives.draw(len(later), rng), rng, source=source)[0]

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
            self._pass.observe(self._table.between(first, first + size), source)

    # ---- a round

    def _one_round(self, source: HopSource, version: int) -> RoundReport:
        number, first, last = self.rounds, self._next, len(self._table)
        events = self._table.between(first, last).in_time_order()
        memory = self.model.memory
        self._negatives.add(self._table.destinations(first, last))
        self._begin_epoch(number, -1)
        rng = self._rng(number, 0, _TEST)
        negatives = self._negatives.draw(len(events), rng)
        scores, _ = self._pass.test(events, negatives, rng, source=source, progress=self._shown("test", len(events)))
        self._next = last
        loss, replayed = _NAN, 0
        if self.train_every and number % self.train_every == 0:
            loss, replayed = self._fine_tune(number, source)
            self._untrained = last
            self._before = None if memory is None else memory.state()
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

    def _train(self, events: Events, number: int, epoch: int, source: HopSource, what: str) -> float:
        negatives = self._negatives.draw(len(events), self._rng(number, epoch, _NEGATIVES))
        size, first = self._pass.batch_size, None
        if self.chunks > 1:
            piece = int(self._rng(number, epoch, _CHUNK).integers(1, self.chunks + 1))
            first = max(1, size * piece // self.chunks)
        shown = self._shown(what, len(events))
        return self._pass.train(events, negatives, self._optimizer, source=source, first=first, progress=shown)

    def _end_round(self, report: RoundReport) -> RoundReport:
        self._version = report.version
        seconds = self._loader.clock.take()
        report = RoundReport(**{**_fields(report), "seconds": seconds})
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
        for cache in self._caches:
            if epoch < 1:
                cache.checkpoint()
            else:
                cache.restore()
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
        memory = self.model.memory
        state = {
            "options": self._options,
            "version": self._version,
            "next_edge_id": self._last_edge_id() + 1,
            "fit_epochs": self._fit_epochs,
            "best": None if self._best is None else tuple(self._best),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "memory": None if memory is None else memory.state(),
            "untrained_edge_id": self._table.edge_id(self._untrained) if self._untrained < self._next else None,
            "before": self._before,
            "places": self._states.places,
            "states": self._states.states,
            "report": self.report.state(),
        }
        write_checkpoint(self._path, state)
        for number, cache in enumerate(self._caches):
            cache.save(self._path.with_name(f"cache-{number}.npz"))

    def _resume(self, path: Path) -> None:
        state = read_checkpoint(path, "ContinuousTrainer")
        if state["options"] != self._options:
            raise StoredStateInvalid(
                f"[ContinuousTrainer] expected a checkpoint of {self._options}, got one of {state['options']} in "
                f"{path}; give the same options, or another folder"
            )
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self.model.memory is not None:
            self.model.memory.load_state(state["memory"])
        self._states.places, self._states.states = list(state["places"]), list(state["states"])
        self.report = TrainingReport.of(state["report"])
        self._fit_epochs = int(state["fit_epochs"])
        self._best = None if state["best"] is None else _Best(*state["best"])
        self._resume_version = self._version = int(state["version"])
        self._resume_edge_id = int(state["next_edge_id"])
        untrained = state["untrained_edge_id"]
        self._resume_untrained = self._resume_edge_id if untrained is None else int(untrained)
        self._before = state["before"]
        self._place_resumed()
        self._cold = True


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


def _fields(report: RoundReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in RoundReport.__slots__}


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in state.items()}


def _tensorboard(folder: str | Path | None) -> Any:
    if folder is None:
        raise UsageError("[ContinuousTrainer] expected folder= with tensorboard=True, got none; give one")
    need("tensorboard", "train")
    return need("torch.utils.tensorboard", "train").SummaryWriter(log_dir=str(folder))


def _check_options(
    batch_size: int, epochs: int, replay: float, train_every: int, chunks: int, learning_rate: float
) -> None:
    if isinstance(train_every, bool) or not isinstance(train_every, int) or train_every < 0:
        raise ValueInvalid(f"[ContinuousTrainer] expected train_every from 0 on, got {train_every!r}; 1 trains always")
    for name, value in (("batch_size", batch_size), ("epochs", epochs), ("chunks", chunks)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueInvalid(f"[ContinuousTrainer] expected {name} of at least 1, got {value!r}; give a whole number")
    for name, number in (("replay", replay), ("learning_rate", learning_rate)):
        if not math.isfinite(number) or number < 0:
            raise ValueInvalid(f"[ContinuousTrainer] expected {name} from 0 on, got {number!r}; give a finite number")
