"""ContinuousTrainer: ingest, test, train, advance the memory, checkpoint, publish; round after round.

docs/training.md says what a round is. Everything random is drawn from (seed, round, epoch), so that a trainer which was
killed and started again repeats what the other would have done. What rounds change is the TrainingState.
"""

from __future__ import annotations

import math
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from livegnn.errors import InvariantBroken, LiveGnnError, StorageFailed, UsageError, ValueInvalid
from livegnn.graph import Graph, Updates
from livegnn.graph.checks import as_seconds, finite_float, flag, shown
from livegnn.optional import need
from livegnn.stored import made_folder
from livegnn.temporal.caches.stats import HitCounts, hit_counts, hit_rates
from livegnn.temporal.checkpoint import fitting, read_checkpoint, writable_folder, write_checkpoint
from livegnn.temporal.checks import check_from_zero, check_whole, checked_parts
from livegnn.temporal.edge_types import EdgeTypes, destination_types, edge_codes
from livegnn.temporal.engine import TemporalEngine
from livegnn.temporal.events import Arrived, EventFeed, Events, EventTable, joined
from livegnn.temporal.link import LinkPass, LinkScores
from livegnn.temporal.loading import EdgeColumn, Fetches, HopSource, InputLoader, VertexFeatures
from livegnn.temporal.publish import Publisher, publisher_of
from livegnn.temporal.replay import Run
from livegnn.temporal.report import EpochReport, RoundReport, TrainingReport
from livegnn.temporal.sampler import TemporalSampler
from livegnn.temporal.training_state import Best, TrainingState, copied
from livegnn.types import Int64Array

if TYPE_CHECKING:
    import torch

    from livegnn.temporal.models.interface import EventMemory, TemporalModel

Progress = Callable[[str, int, int], None]  # what is done, events so far, events in all
_NAN = float("nan")
_TEST, _REPLAY, _NEGATIVES, _CHUNK, _VALIDATION = range(5)  # what numbers are drawn for


class ContinuousTrainer:
    """Trains a model on the events of a graph, and again on what comes.

    Args:    model: a TemporalModel, trained in place.  sampler: TemporalSampler of the graph, of the model's hops.
             vertex_features, edge_features, edge_columns: as InputLoader.  edge_types: edges of these types are events;
             all unless given.
             batch_size: events of a mini-batch.  epochs: passes of a round.  replay: old events per new one and epoch.
             train_every: rounds of which the last trains, on the events of all; 0: none trains, all test.
             chunks: of a mini-batch, for random chunk scheduling; at most batch_size.  learning_rate: of Adam.
             mrr_candidates: destinations that the true one is ranked among.  memory_states_max: kept for replay, of
             a model with memory. With train_every=0 epochs is that of fit() alone, and replay has no effect.
             folder: where checkpoints go; one that is there is continued.  device: of the model and its inputs.
             tensorboard: writes curves to the folder, too.  progress: called with what is done, and how far it is.
    Raises:  ValueInvalid, UsageError, WidthMismatch; StoredStateInvalid for a folder of another training.
    Cost:    docs/training.md.  Source: GNNFlow, sections 3 and 6.1.
    """

    def __init__(
        self,
        model: TemporalModel,
        graph: Graph,
        sampler: TemporalSampler,
        *,
        vertex_features: VertexFeatures = None,
        edge_features: Fetches | None = None,
        edge_columns: Sequence[EdgeColumn] = ("attr",),
        edge_types: EdgeTypes | None = None,
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
        device = checked_parts("ContinuousTrainer", model, graph, sampler, device, live=True)
        tensorboard = flag("ContinuousTrainer", "tensorboard", tensorboard)
        numbers = {"batch_size": batch_size, "epochs": epochs, "chunks": chunks, "mrr_candidates": mrr_candidates}
        from_zero = {"train_every": train_every, "memory_states_max": memory_states_max, "seed": seed}
        reals = {"replay": replay, "learning_rate": learning_rate}
        _check_options(numbers, from_zero, reals, model, progress)
        self._torch: Any = need("torch", "train")
        self.graph, self.sampler = graph, sampler.twin()  # its calls are counted here alone
        self.model = model
        self.epochs, self.replay, self.chunks, self.seed = epochs, replay, chunks, seed
        self.train_every = train_every
        self._loader = InputLoader(
            graph,
            self.sampler,
            vertex_features=vertex_features,
            edge_features=edge_features,
            edge_columns=edge_columns,
            device=device,
        )
        self.edge_types = edge_codes("ContinuousTrainer", graph, edge_types)
        self.edge_columns = self._loader.edge_columns
        self._loader.check(model)
        self._path = None  # of the checkpoint
        if folder is not None:
            self._path = writable_folder("ContinuousTrainer", "folder", folder) / "checkpoint.pt"
        self._writer: Any = _tensorboard(folder) if tensorboard else None
        model.to(device)
        self._pass, self._memory = self._worked_by(model, batch_size, mrr_candidates)
        self._optimizer = self._torch.optim.Adam(model.parameters(), lr=learning_rate)
        options = {
            **numbers,
            **from_zero,
            **reals,
            "model": str(getattr(model, "config", type(model).__name__)),
            "sampler": str(self.sampler.options),
            **_given_only(self.edge_types, self.edge_columns),
        }
        self._publishers: list[Publisher] = []
        self._progress = progress
        self._round_lock = threading.Lock()
        self._background: _Background | None = None
        self._closed = False
        self._caches: list[Any] = [rows for rows in self._loader.sources if hasattr(rows, "checkpoint")]
        self._begin(options, memory_states_max)

    def _worked_by(self, model: TemporalModel, batch_size: int, candidates: int) -> tuple[LinkPass, EventMemory | None]:
        """What goes over events, and what holds the memory: here the model itself."""
        return LinkPass(model, self._loader, batch_size=batch_size, mrr_candidates=candidates), model.memory

    def _begin(self, options: dict[str, Any], memory_states_max: int) -> None:
        """Before the first round, or where the folder's checkpoint is."""
        self._marked = False  # whether the caches have a checkpoint of the round that is under way, or failed
        self._arrived: list[Arrived] = []  # what the feed gave and the state has not taken in yet
        self._cold = False  # whether caches that were saved are still to be read
        stored, graph = None, self.graph
        if self._path is not None and os.path.lexists(self._path):
            stored = read_checkpoint(self._path, "ContinuousTrainer")
        with graph.host.lock:
            ids_end = int(graph.host.store.next_edge_id)
            history_end = ids_end if stored is None else stored.get("history_end", ids_end)
            self._state = TrainingState(
                self.model,
                self._optimizer,
                graph,
                memory=self._memory,
                options=options,
                table=EventTable(Events.of(graph, self.edge_types), history_end),
                start=(graph.version, "" if self._path is None else str(graph.digest())),
                memory_states_max=memory_states_max,
                clock=self._loader.clock,
            )
            self._feed = EventFeed(graph, self.edge_types)
        try:
            if stored is not None:
                with fitting(self._path, "ContinuousTrainer"), self._state.all_or_nothing():
                    self._state.load(stored, self._path)
                self._cold = True
            elif self._memory is not None:
                self._memory.reset(graph.slot_count)
        except BaseException:
            self._feed.close()
            raise

    # ---- training

    @property
    def report(self) -> TrainingReport:
        """What was done so far."""
        return self._state.report

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
        self._refuse_closed()
        if not 0.0 <= finite_float("fit", "validation", validation) < 1.0 or (patience is not None and not validation):
            raise ValueInvalid(
                f"[fit] expected validation in [0, 1), and patience with a validation alone, got {validation} and "
                f"{patience}; leave patience out, or hold some events back"
            )
        count = self.epochs if epochs is None else epochs
        check_whole("ContinuousTrainer", 1, epochs=count, patience=1 if patience is None else patience)
        with self._round_lock:
            if self.rounds:
                return self.report.rounds[0]
            options = [count, validation, patience]
            if self._state.fit_epochs and self._state.fit_options != options:
                raise UsageError(
                    "[fit] expected epochs, validation and patience as when it was begun, "
                    f"{self._state.fit_options}, got {options}; give those, or another folder"
                )
            self._state.fit_options = options
            with self._reading() as (source, version):
                return self._warm_start(source, version, count, validation, patience)

    def take_as_trained(self) -> RoundReport:
        """In place of fit(), for a model that is trained already: its memory observes every event of the graph.

        Raises:  UsageError without events or after a round.
        """
        self._refuse_closed()
        with self._round_lock:
            if self.rounds:
                raise UsageError("[take_as_trained] expected a trainer before its first round, got one after it")
            with self._reading() as (source, version):
                return self._take_history(source, version, 0, _NAN)

    def run(self, stream: Iterable[Updates]) -> Iterator[RoundReport]:
        """Applies each batch of a stream to the graph, and does a round on it; yields the round's report.

        A resumed trainer takes the stream that comes after its graph's version: batches up to its checkpoint's version
        are applied, and not trained on again.
        A round that fails has applied its batch: call round() again, or run() with the rest of the stream.
        Raises:  UsageError before fit(), UpdateError where a batch is refused: then nothing of it is applied. Else as
                 round().
        """
        return self._run(_batches(stream))

    def _run(self, stream: Iterable[Updates]) -> Iterator[RoundReport]:
        for updates in stream:
            self._refuse_closed()
            self._refuse_before_fit("run")
            with self._loader.clock.phase("ingest"):
                self.graph.apply(updates)
            with self._round_lock:
                caught_up = self._catch_up()
            if not caught_up:
                yield self.round()

    def round(self) -> RoundReport:
        """One round on the events that came since the last one: test, train, advance, checkpoint, publish.

        Where it fails before its checkpoint is written, all is as before it, and the next round takes its events.
        Raises:  UsageError before fit(), or where the checkpoint cannot be written; TrainingDiverged; what a target of
                 publish_to() raises, after the round, which stands: the other targets have the model.
        """
        self._refuse_closed()
        with self._round_lock:
            self._refuse_before_fit("round")
            self._catch_up()
            if self._state.resumed:
                raise UsageError(
                    f"[round] expected a graph of version {self._state.resumed['version']}, as the checkpoint is, got "
                    f"{self.graph.version}; apply the stream up to there first"
                )
            with self._reading() as (source, version):
                self._warm_caches()
                return self._one_round(source, version)

    def start(self, *, events_min: int = 1000, poll_s: float = 0.05) -> None:
        """Rounds in a thread of their own, each when at least events_min events wait, until stop()."""
        self._refuse_closed()
        check_whole("ContinuousTrainer", 1, events_min=events_min)
        if (seconds := as_seconds(poll_s)) is None or seconds < 0:
            raise ValueInvalid(f"[start] expected poll_s from 0 on, got {shown(poll_s)}; give seconds")
        self._refuse_before_fit("start")
        if self._background is not None:
            raise UsageError("[start] expected a trainer that is not running, got one that is; call stop() first")
        self._background = _Background(self, events_min, seconds)

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
        for name in ("edge_types", "edge_columns") if isinstance(target, TemporalEngine) else ():
            mine, theirs = getattr(self, name), getattr(target, name)
            if mine != theirs:
                raise UsageError(
                    f"[publish_to] expected an engine of the trainer's {name}, {mine}, got one of {theirs}; make it so"
                )
        publisher = publisher_of(target, self.model)
        with self._round_lock:
            if self.rounds and not self._state.resumed:
                publisher(self.model, self.report.rounds[-1])
            self._publishers.append(publisher)  # one that took no model is not asked again

    def close(self) -> None:
        """Stops the thread, and follows the graph no more. Raises what ended the thread, if something did."""
        try:
            self.stop()  # before it counts as closed: the thread may be about to begin a round
        finally:
            self._closed = True
            self._feed.close()
            if self._writer is not None:
                self._writer.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UsageError(
                "[ContinuousTrainer] expected an open trainer, got one that was closed and gets no events; make a "
                "new one"
            )
        if self._state.broken is not None:
            raise InvariantBroken(
                "[ContinuousTrainer] expected a training as its last round left it, got one of which a failed round "
                "could not be taken back; make a new trainer on its folder"
            ) from self._state.broken

    def _refuse_before_fit(self, where: str) -> None:
        if not self.rounds:
            raise UsageError(f"[{where}] expected a trainer after fit(), got one before it; call fit() first")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    # ---- what a round reads

    @contextmanager
    def _reading(self) -> Iterator[tuple[HopSource, int]]:
        """One version of the graph; the events up to it are taken in. Torch's generators, which epochs seed, are given
        back as they were.
        """
        cuda = self._torch.cuda
        with ExitStack() as stack:
            devices = range(cuda.device_count()) if cuda.is_available() else []
            stack.enter_context(self._torch.random.fork_rng(devices=devices))
            with self.graph.host.lock:
                source = stack.enter_context(self._held())
                self._arrived.append(self._feed.take())
                version = self.graph.version
                if self._memory is not None:
                    self._memory.grow(self.graph.slot_count)
            while self._arrived:
                self._state.take(self._arrived[0], self._loader.device)
                del self._arrived[0]
            self._counted = self._hit_counts()
            yield source, version

    def _hit_counts(self) -> HitCounts:
        """Of the caches, since they were made."""
        *vertices, edges = self._loader.sources
        return hit_counts(vertices, edges)

    def _held(self) -> AbstractContextManager[HopSource]:
        """What samples the version of now while a round reads it. The caller holds the graph's lock."""
        return self.sampler.pin() if self.graph.has_time else nullcontext(self.sampler)

    # ---- the warm start

    def _warm_start(
        self, source: HopSource, version: int, epochs: int, validation: float, patience: int | None
    ) -> RoundReport:
        everything = self._state.table.between(0, len(self._state.table)).in_time_order()
        if not len(everything):
            raise UsageError("[fit] expected a graph with edges, got none; add the first part of the events")
        events, later = everything.parted(len(everything) - int(len(everything) * validation))
        loss = self.report.epochs[-1].loss if self.report.epochs else _NAN
        for epoch in range(self._state.fit_epochs, epochs):
            if patience is not None and self._state.best is not None and self._state.best.since >= patience:
                break
            with self._state.all_or_nothing():
                self._see(everything)
                loss = self._warm_epoch(events, later, epoch, epochs, source)
                self._save()
        return self._take_history(source, version, len(events), loss)

    def _warm_epoch(self, events: Events, later: Events, epoch: int, epochs: int, source: HopSource) -> float:
        self._begin_epoch(0, epoch)
        if self._memory is not None:
            self._memory.reset(self.graph.slot_count)
        loss = self._train(events, 0, epoch, source, f"epoch {epoch + 1} of {epochs}", later.edge_ids)
        scores = None
        if len(later):
            rng = self._rng(0, 0, _VALIDATION)
            negatives = self._negatives(later, rng)
            scores, _ = self._pass.test(later, negatives, rng, source=source, hidden=later.edge_ids)
            if self._state.best is None or scores.ap > self._state.best.ap:
                self._state.best = Best(scores.ap, copied(self.model.state_dict()), 0)
            else:
                self._state.best = self._state.best._replace(since=self._state.best.since + 1)
        self._note_epoch(0, epoch, len(events), loss, scores)
        self._state.fit_epochs = epoch + 1
        return loss

    def _take_history(self, source: HopSource, version: int, trained: int, loss: float) -> RoundReport:
        """Ends the warm start: every event is old, and observed under the weights of now."""
        count = len(self._state.table)
        with self._state.all_or_nothing():
            if self._state.best is not None:
                self.model.load_state_dict(self._state.best.weights)
                self._state.best = None
            self._see(self._state.table.between(0, count))
            self._advance_through_history(source, count)
            self._state.next = self._state.untrained = count
            self._state.before = None if self._memory is None else self._memory.state()
            report = self._end_round(RoundReport(0, version, trained, 0, loss, _NAN, _NAN, _NAN, {}))
        return self._publish(report)

    def _advance_through_history(self, source: HopSource, count: int) -> None:
        """The memory of all events under the weights as they are now, and its states on the way, for replay."""
        memory = self._memory
        if memory is None:
            return
        memory.reset(self.graph.slot_count)
        self._state.memory_states.clear()
        pieces = max(1, self._state.memory_states.states_max // 2)
        size = max(1, math.ceil(count / pieces / self._pass.batch_size)) * self._pass.batch_size
        for first in range(0, count, size):
            self._state.memory_states.add(first, memory.state())
            self._pass.observe(self._state.table.between(first, first + size).in_time_order(), source)

    # ---- a round

    def _one_round(self, source: HopSource, version: int) -> RoundReport:
        number, first, last = self.rounds, self._state.next, len(self._state.table)
        events = self._state.table.between(first, last).in_time_order()
        with self._state.all_or_nothing():
            self._see(events)
            self._begin_epoch(number, -1)
            rng = self._rng(number, 0, _TEST)
            negatives = self._negatives(events, rng)
            shown = self._shown("test", len(events))
            scores, _ = self._pass.test(events, negatives, rng, source=source, hidden=events.edge_ids, progress=shown)
            self._state.next = last
            loss, replayed = _NAN, 0
            if self.train_every and number % self.train_every == 0:
                loss, replayed = self._fine_tune(number, source)
                self._state.untrained = last
                self._state.before = None if self._memory is None else self._memory.state()
            report = self._end_round(
                RoundReport(number, version, len(events), replayed, loss, scores.ap, scores.auc, scores.mrr, {})
            )
        return self._publish(report)

    def _fine_tune(self, number: int, source: HopSource) -> tuple[float, int]:
        """Trains on the events that none has trained on; the loss, and how many old events were trained on besides."""
        first, memory = self._state.untrained, self._memory
        events = self._state.table.between(first, self._state.next).in_time_order()
        loss, replayed = _NAN, 0
        for epoch in range(self.epochs if len(events) else 0):
            self._begin_epoch(number, epoch)
            runs, total = self._runs(events, first, number, epoch), 0.0
            for part, state in runs:
                self._state.remember(state)
                total += len(part) * self._train(part, number, epoch, source, f"epoch {epoch + 1} of {self.epochs}")
            trained = sum(len(part) for part, _ in runs)
            replayed, loss = replayed + trained - len(events), total / trained
            self._note_epoch(number, epoch, trained, loss, None)
        if memory is not None and self._state.before is not None:
            self._state.remember(self._state.before)
            self._state.memory_states.add(first, self._state.before)
            self._pass.observe(events, source)
        return loss, replayed

    def _runs(self, events: Events, first: int, number: int, epoch: int) -> list[Run]:
        """What one epoch trains on: these events, and old ones."""
        before = self._state.before
        rng, count = self._rng(number, epoch, _REPLAY), round(self.replay * len(events))
        if before is None:
            return [Run(joined(self._state.table.draw(count, first, rng), events).in_time_order(), None)]
        runs = self._state.memory_states.draw(self._state.table, first, count, self._pass.batch_size, rng)
        return [*runs, Run(events, before)]

    def _train(
        self,
        events: Events,
        number: int,
        epoch: int,
        source: HopSource,
        what: str,
        hidden: Int64Array | None = None,
    ) -> float:
        negatives = self._negatives(events, self._rng(number, epoch, _NEGATIVES))
        size, first = self._pass.batch_size, 0
        if self.chunks > 1:
            piece = int(self._rng(number, epoch, _CHUNK).integers(1, self.chunks + 1))
            first = max(1, size * piece // self.chunks)
        shown = self._shown(what, len(events))
        return self._pass.train(
            events, negatives, self._optimizer, source=source, first=first, hidden=hidden, progress=shown
        )

    def _end_round(self, report: RoundReport) -> RoundReport:
        """The round is in the report and in the folder; what fails here still undoes it."""
        self._state.version = report.version
        rates = hit_rates(self._counted, self._hit_counts())
        report = replace(report, seconds=self._loader.clock.take(), hit_rates=rates)
        self.report.rounds.append(report)
        self._save()
        return report

    def _publish(self, report: RoundReport) -> RoundReport:
        """Hands over the model of a round that stands, whatever happens here."""
        self._marked = False
        try:
            with self._loader.clock.phase("publish"):
                self._hand_over(report, [*self._publishers, *([] if self._writer is None else [self._write_curves])])
        finally:
            report.seconds.update(self._loader.clock.take())
        return report

    def _hand_over(self, report: RoundReport, publishers: list[Publisher]) -> None:
        """To every target, also behind one that fails.

        Raises:  what the first to fail raised, the others' errors as its notes.
        """
        failed: list[Exception] = []
        for publisher in publishers:
            try:
                publisher(self.model, report)
            except Exception as error:
                failed.append(error)
        if failed:
            failed[0].add_note(
                f"[publish] round {report.round} stands, {len(failed)} of {len(publishers)} targets did not take its "
                "model and are given that of the next round"
            )
            for other in failed[1:]:
                failed[0].add_note(f"[publish] another target: {type(other).__name__}: {other}")
            raise failed[0]

    def _write_curves(self, model: TemporalModel, report: RoundReport) -> None:
        for name in ("ap", "auc", "mrr", "loss"):
            self._writer.add_scalar(f"round/{name}", getattr(report, name), report.round)

    def _note_epoch(self, number: int, epoch: int, events: int, loss: float, scores: LinkScores | None) -> None:
        rest = () if scores is None else (scores.ap, scores.auc)
        self.report.epochs.append(EpochReport(number, epoch, events, loss, *rest))

    # ---- chance, and progress

    def _see(self, events: Events) -> None:
        self._state.negatives.add(events.dst, destination_types(self.graph, events.edge_types))

    def _negatives(self, events: Events, rng: np.random.Generator) -> Int64Array:
        """A destination of the same type for each event."""
        return self._state.negatives.draw(len(events), rng, destination_types(self.graph, events.edge_types))

    def _rng(self, number: int, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, number, epoch + 1, purpose))

    def _begin_epoch(self, number: int, epoch: int) -> None:
        """Dropout and samples of an epoch follow from its name alone; caches begin it as they began the round, and so
        they begin the round that comes after one that failed.
        """
        for cache in self._caches:
            if self._marked:
                cache.restore()
            else:
                cache.checkpoint()
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
        """The checkpoint's rename is the last that happens: what the caches held changes no number."""
        if self._path is None:
            return
        with self._loader.clock.phase("checkpoint"):
            try:
                made_folder("ContinuousTrainer", self._path.parent)
                for number, cache in enumerate(self._caches):
                    cache.save(self._path.with_name(f"cache-{number}.npz"))
                write_checkpoint(self._path, self._state.saved(), "ContinuousTrainer")
            except (LiveGnnError, OSError) as cause:
                raise StorageFailed(
                    f"[ContinuousTrainer] expected to write a checkpoint to {self._path}, got {cause}; the round was "
                    "taken back: make room, or the folder writable, and call it again"
                ) from cause

    def _catch_up(self) -> bool:
        """Of a resumed trainer: what came up to the checkpoint's version is history already. Whether all was such.

        Raises:  UsageError where a memory would have to know what lies before that version and what behind.
        """
        if not self._state.resumed:
            return False
        with self.graph.host.lock:
            behind = self.graph.version > self._state.resumed["version"]
            if behind and self.model.memory is not None:
                raise UsageError(
                    f"[round] expected to get version {self._state.resumed['version']}, as the checkpoint is, got "
                    f"the graph at {self.graph.version} already; make the trainer anew, and let run() apply the stream"
                )
            self._arrived.append(self._feed.take())
        while self._arrived:
            self._state.catch_up(self._arrived[0], behind=behind)
            del self._arrived[0]
        if not self._state.resumed and self.rounds:
            self._hand_over(self.report.rounds[-1], self._publishers)
        return not behind

    def _warm_caches(self) -> None:
        """Of a resumed trainer, before its first round, when the graph has the edges that its caches held."""
        if self._cold and self._path is not None:
            for number, cache in enumerate(self._caches):
                if (saved := self._path.with_name(f"cache-{number}.npz")).exists():
                    cache.load(saved)
        self._cold = False


def _batches(stream: object) -> Iterable[Updates]:
    if isinstance(stream, Updates):
        raise UsageError("[run] expected batches, got one Updates; put it into a list")
    if not isinstance(stream, Iterable):
        raise UsageError(f"[run] expected batches, got {type(stream).__name__}; give a list of Updates, or yield them")
    return stream


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
        except Exception as error:  # raised by stop()
            self._error = error

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def _tensorboard(folder: str | Path | None) -> Any:
    if folder is None:
        raise UsageError("[ContinuousTrainer] expected folder= with tensorboard=True, got none; give one")
    need("tensorboard", "train")
    return need("torch.utils.tensorboard", "train").SummaryWriter(log_dir=str(folder))


def _given_only(edge_types: list[int], edge_columns: tuple[EdgeColumn, ...]) -> dict[str, Any]:
    """Options that checkpoints of livegnn 0.1 do not have: those that differ from its behaviour."""
    columns = {} if edge_columns == ("attr",) else {"edge_columns": list(edge_columns)}
    return columns | ({"edge_types": edge_types} if edge_types else {})


def _check_options(
    from_one: dict[str, int], from_zero: dict[str, int], reals: dict[str, float], model: TemporalModel, progress: object
) -> None:
    """Raises: ValueInvalid, DtypeInvalid; UsageError for options that do not go together."""
    if progress is not None and not callable(progress):
        raise UsageError(
            f"[ContinuousTrainer] expected progress as a callable(what, done, count), got {shown(progress)}; leave it "
            "out, or give a function"
        )
    check_whole("ContinuousTrainer", 1, **from_one)
    check_whole("ContinuousTrainer", 0, **from_zero)
    check_from_zero("ContinuousTrainer", **reals)
    batch_size, chunks, replay = from_one["batch_size"], from_one["chunks"], reals["replay"]
    if chunks > batch_size:
        raise ValueInvalid(
            f"[ContinuousTrainer] expected at most as many chunks as a mini-batch has events, {batch_size}, got "
            f"{chunks}; give fewer"
        )
    if replay > 0 and from_zero["memory_states_max"] == 0 and getattr(model, "memory", None) is not None:
        raise UsageError(
            f"[ContinuousTrainer] expected memory_states_max of at least 1 with replay={replay} and a model with "
            "memory, got 0, and nothing to replay from; give more, or leave replay out"
        )
