"""DistributedTrainer: one step of all workers is one step of a single process with all their events.

A global mini-batch of `batch_size` events is cut into even runs, one a worker. Each worker samples, fetches, embeds and
scores its run; the gradients of the sum of losses over all events, divided by how many there are, are added up over the
workers, and every worker takes the same step of its own copy of the model. Then the memory, where there is one,
observes the whole mini-batch. All of it is bulk-synchronous: a worker without events in a mini-batch takes part in each
exchange. The trainer listens to the partition: before the next pass the memory forgets vertices that batches removed.

Invariants: weights and optimizer state are equal on all workers, bit for bit; a report is, too.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from livegnn.distributed.exchange import Exchange
from livegnn.distributed.features import (
    Cached,
    RemoteEdgeRows,
    RemoteRows,
    RemoteVertexRows,
    WorkerCache,
    check_worker_caches,
)
from livegnn.distributed.graph_part import BatchEffect, Partition, check_dated
from livegnn.distributed.ray_group import check_picklable
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.sampling import RemoteSampler
from livegnn.errors import TrainingDiverged, UsageError
from livegnn.graph import Graph
from livegnn.graph.checks import shown
from livegnn.optional import need
from livegnn.temporal.caches.stats import HitCounts, hit_counts, hit_rates
from livegnn.temporal.checks import (
    check_from_zero,
    check_model,
    check_share,
    check_whole,
    checked_device,
    checked_parts,
)
from livegnn.temporal.edge_types import destination_types
from livegnn.temporal.events import Events
from livegnn.temporal.link import LinkPass, LinkScores, Negatives, cut, cut_evenly, link_loss
from livegnn.temporal.loading import Clock, EdgeColumn, Fetches, InputLoader
from livegnn.temporal.report import EpochReport
from livegnn.temporal.sampler import TemporalSampler
from livegnn.types import Float32Array, Int64Array

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.optim import Optimizer

    from livegnn.distributed.memory import PartitionedMemory
    from livegnn.temporal.models.interface import TemporalModel


def run_of(start: int, stop: int, rank: int, size: int) -> slice:
    """The run of places [start, stop) that a worker takes; lengths differ by at most 1, and by turns who has more."""
    count = stop - start
    turn = start // max(count, 1) % size
    return slice(start + (count * rank + turn) // size, start + (count * (rank + 1) + turn) // size)


class Ranking(NamedTuple):
    """Ranks each true destination among others of its mini-batch.

    rng: draws them, alike on every worker.  candidates: so many for each.
    """

    rng: np.random.Generator
    candidates: int


class DistributedTrainer:
    """Trains a temporal model over parts of one graph. Every worker makes one, with equal arguments, and equal calls.

    Args:    model: trained in place; weights of worker 0 are taken.  partition, exchange: this worker's.  sampler: of
             the model's hops.  vertex_features, edge_features: WorkerCache, Cached, or None to ask their owners.
             edge_columns: as InputLoader.
             batch_size: events of a global mini-batch.  epochs: of fit().  learning_rate: of Adam.
             optimizer: makes another one of the parameters.  device: of the model and its inputs.  seed: of negatives,
             dropout and drawn samples.
    Raises:  ValueInvalid, WidthMismatch, ModelUnsupported.
    Source:  GNNFlow, section 4.4.
    """

    def __init__(
        self,
        model: TemporalModel,
        partition: Partition,
        sampler: RemoteSampler,
        exchange: Exchange,
        *,
        vertex_features: Fetches | WorkerCache | None = None,
        edge_features: Fetches | WorkerCache | None = None,
        edge_columns: Sequence[EdgeColumn] = ("attr",),
        batch_size: int = 600,
        epochs: int = 1,
        learning_rate: float = 1e-3,
        optimizer: Callable[[Iterable[torch.nn.Parameter]], Optimizer] | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        _check_options(batch_size, epochs, learning_rate, seed)
        check_model("DistributedTrainer", model)
        device = checked_device("DistributedTrainer", device)
        self._torch: Any = need("torch", "distributed")
        self.model, self.partition, self.sampler = model.to(device), partition, sampler
        self.exchange, self.batch_size, self.epochs, self.seed = exchange, batch_size, epochs, seed
        self._vertex_rows = _rows(vertex_features, RemoteVertexRows(partition, exchange, device), device)
        self._edge_rows = _rows(edge_features, RemoteEdgeRows(partition, exchange, sampler, device), device)
        self._remote_edges = self._edge_rows.remote if isinstance(self._edge_rows, Cached) else self._edge_rows
        self._caches = [rows for rows in (self._vertex_rows, self._edge_rows) if isinstance(rows, Cached)]
        self._marked = False  # whether the caches have a checkpoint
        self._loader = InputLoader(
            partition.graph,
            sampler,
            vertex_features=self._vertex_rows,
            edge_features=self._edge_rows,
            edge_columns=edge_columns,
            feature_widths=partition.feature_widths,
            device=device,
        )
        self._loader.check(model)
        self._pass = LinkPass(model, self._loader, batch_size=batch_size)
        self._parameters = list(model.parameters())
        self._optimizer = made_optimizer("DistributedTrainer", optimizer, self._parameters, learning_rate)
        self._negatives = Negatives()  # destinations that fit() has seen and that are still vertices
        self._removed: list[Int64Array] = []  # vertices that the memory has yet to forget
        self._fits = 0
        self.memory: PartitionedMemory | None = None
        if model.memory is not None:
            from livegnn.distributed.memory import PartitionedMemory

            self.memory = PartitionedMemory(model, exchange, partition.keepers_of)
            self._reset_memory()
        partition.listen(self)
        self.report = DistributedReport()
        self._targets = 0
        self._share_weights()

    # ---- training

    def fit(self, events: Events, *, epochs: int | None = None, validation: float = 0.0) -> DistributedReport:
        """Trains on events in order of (time, edge id); every worker gives all of them and takes its run of each batch.

        Each call draws negatives, dropout and samples of its own; live destinations alone are drawn.

        Args:    events: of edges that the graph has.  validation: share of the last ones that are tested on after each
                 epoch, and not trained on.
        Raises:  UsageError without events to train on; ValueInvalid.
        """
        check_share("fit", "validation", validation)
        count_of_epochs = self.epochs if epochs is None else epochs
        check_whole("DistributedTrainer", 1, epochs=count_of_epochs)
        ordered = events.in_time_order()
        count = len(ordered) - int(len(ordered) * validation)
        if not count:
            raise UsageError("[fit] expected events to train on, got none; give the edges of the graph")
        known, later = ordered.parted(count)
        live = ordered.at(self.partition.is_live(ordered.dst))
        self._negatives.add(live.dst, self._types_to(live))
        self._fits += 1
        for epoch in range(count_of_epochs):
            self._begin_epoch(epoch)
            self._reset_memory()
            negatives = self._drawn("fit", known, epoch, 0)
            loss = self.train_once(known, negatives)
            scores = self.test(later, epoch=epoch) if len(later) else None
            rest = () if scores is None else (scores.ap, scores.auc)
            self.report.epochs.append(EpochReport(0, epoch, count, loss, *rest))
        self._reset_memory()
        self.observe(ordered)
        return self._measured()

    def train_once(self, events: Events, negatives: Int64Array, *, first: int = 0) -> float:
        """One pass with a step per global mini-batch; the mean loss per event. events: in order; memory moves on.

        Args:    first: events of the first mini-batch, where that is to be a shorter one.
        Raises:  TrainingDiverged, on every worker, where the loss is not finite.
        """
        self._make_room()
        self.model.train()
        total = 0.0
        for part in cut_evenly(len(events), self.batch_size, first):
            total += self._step(events, negatives, part)
        return total / max(len(events), 1)

    def test(
        self,
        events: Events,
        *,
        negatives: Int64Array | None = None,
        epoch: int = 0,
        ranking: Ranking | None = None,
    ) -> LinkScores:
        """Scores events in order, each against a negative; the memory moves on. The same result on every worker.

        Args:    negatives: (n,) slots, drawn from the live destinations that fit() has seen unless given.
                 ranking: for the mean reciprocal rank, which is NaN without.
        Raises:  UsageError without destinations to draw from; TrainingDiverged where a logit is not finite.
        """
        return self._pass.scores(*self.tested(events, negatives=negatives, epoch=epoch, ranking=ranking))

    def tested(
        self,
        events: Events,
        *,
        negatives: Int64Array | None = None,
        epoch: int = 0,
        ranking: Ranking | None = None,
    ) -> tuple[Float32Array, Float32Array, float]:
        """What test() scores: (n,) logits of events, (n,) of negatives, and the mean reciprocal rank.

        Raises:  UsageError as test().
        """
        if negatives is None:
            negatives = self._drawn("test", events, epoch, 1)
        self._make_room()
        self.model.eval()
        none = np.zeros(0, np.float32)
        positive, negative, ranks = [none], [none], [none]
        with self._torch.no_grad():
            for part in cut(len(events), self.batch_size):
                mine = self._run(part)
                batch, others = events.at(mine), negatives[mine]
                src, dst, other = self._embed(batch, others)
                logits = self._pass.score(batch.src, src, batch.dst, dst)
                positive.append(self._gathered(logits))
                negative.append(self._gathered(self._pass.score(batch.src, src, others, other)))
                if ranking is not None:
                    ranks.append(self._ranks(events.at(part), mine, part, src, dst, logits, ranking))
                self._observe(events, part)
        mrr = math.nan if ranking is None or not len(events) else float(np.concatenate(ranks).mean())
        return np.concatenate(positive), np.concatenate(negative), mrr

    def observe(self, events: Events) -> None:
        """Lets the memory take events in, a global mini-batch at a time, without scoring them."""
        if self.memory is None:
            return
        self._make_room()
        self.model.eval()
        for part in cut(len(events), self.batch_size):
            self._observe(events, part)

    def changed(self, changes: BatchEffect) -> None:
        """The changes of a batch, from the partition."""
        self._negatives.drop(changes.slots_gone)
        if self.memory is not None:
            self._removed.append(changes.slots_gone)

    def _reset_memory(self) -> None:
        if self.memory is not None:
            self.memory.reset(self.partition.graph.slot_count)
            self._removed.clear()

    def _make_room(self) -> None:
        """Room in the memory for vertices that came since; those that went are forgotten. All workers together."""
        if self.memory is None:
            return
        self.memory.grow(self.partition.graph.slot_count)
        gone = np.unique(np.concatenate([np.zeros(0, np.int64), *self._removed]))
        if len(gone):
            self.memory.forget(gone)
        self._removed.clear()

    def _drawn(self, where: str, events: Events, epoch: int, use: int) -> Int64Array:
        """(n,) live destinations, of each event's type where vertices have types; named by the call of fit(), the epoch
        and what they are for.
        """
        types = self._types_to(events)
        if not self._negatives.has(types):
            raise UsageError(
                f"[{where}] expected live destinations that fit() has seen, to draw negatives from, got none; "
                "call fit() first, or give test() negatives="
            )
        rng = np.random.default_rng((self.seed, epoch, use, self._fits - 1))
        return self._negatives.draw(len(events), rng, types)

    def _types_to(self, events: Events) -> Int64Array | None:
        return destination_types(self.partition.graph, events.edge_types)

    # ---- a step

    def _run(self, part: slice) -> slice:
        """This worker's run of a global mini-batch."""
        return run_of(part.start, part.stop, self.exchange.rank, self.exchange.size)

    def _step(self, events: Events, negatives: Int64Array, part: slice) -> float:
        """The sum of losses over a global mini-batch; one step of the optimizer."""
        mine = self._run(part)
        batch, others = events.at(mine), negatives[mine]
        src, dst, other = self._embed(batch, others)
        with self._loader.clock.phase("model"):
            positive = self._pass.score(batch.src, src, batch.dst, dst)
            negative = self._pass.score(batch.src, src, others, other)
            loss = link_loss(positive, negative, reduction="sum")
            self._optimizer.zero_grad()
            if loss.requires_grad:
                (loss / (part.stop - part.start)).backward()
        total = self._add_gradients(float(loss.detach()))
        if not math.isfinite(total):
            raise TrainingDiverged(
                f"[train] expected a finite loss, got {total} at events {part.start} to {part.stop} of a pass; lower "
                "the learning rate, or look at the features"
            )
        with self._loader.clock.phase("model"):
            self._optimizer.step()
        self._observe(events, part)
        return total

    def _embed(self, batch: Events, negatives: Int64Array) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings of this worker's run, perhaps an empty one: of sources, destinations and negatives."""
        roots = np.concatenate([batch.src, batch.dst, negatives])
        self._targets += len(roots)
        inputs = self._loader.load(roots, np.tile(batch.time, 3))
        if self.memory is not None:
            with self._loader.clock.phase("memory"):
                inputs = self.memory.bring(inputs)
        if not len(batch):
            none = self._torch.zeros(0, self.model.out_width, device=self._loader.device)
            return none, none, none
        with self._loader.clock.phase("model"):
            h, n = self.model.embed(inputs), len(batch)
            return h[:n], h[n : 2 * n], h[2 * n :]

    def _ranks(
        self, batch: Events, mine: slice, part: slice, src: Tensor, dst: Tensor, logits: Tensor, ranking: Ranking
    ) -> Float32Array:
        """Reciprocal ranks of all events of a global mini-batch, in order: candidates may be those of other workers."""
        every = self._torch.from_numpy(self._gathered(dst)).to(dst.device)
        run = slice(mine.start - part.start, mine.stop - part.start)
        self._pass.mrr_candidates = ranking.candidates
        mine_of = self._pass.reciprocal_ranks(batch, run, src, every, logits, ranking.rng)
        return np.concatenate(self.exchange.gather(mine_of))

    def _observe(self, events: Events, part: slice) -> None:
        if self.memory is None:
            return
        mine = self._run(part)
        batch = events.at(mine)
        if isinstance(self._remote_edges, RemoteEdgeRows):
            self._remote_edges.expect(batch.edge_ids, batch.dst)
        edge_x = self._loader.edge_rows(batch)
        with self._loader.clock.phase("memory"), self._torch.no_grad():
            self.memory.observe(batch, np.arange(mine.start, mine.stop), edge_x)

    def _add_gradients(self, loss: float) -> float:
        """Gradients become their sums over the workers, in one exchange; returns the sum of the losses.

        As in one process, a parameter that no worker's loss reaches keeps none, and so does one that is frozen.
        """
        with self._loader.clock.phase("gradients"):
            trained = [p for p in self._parameters if p.requires_grad]
            parts = [self._torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
            reached = [float(p.grad is not None) for p in trained]
            last = self._torch.tensor([*reached, loss], device=self._parameters[0].device)
            total = self.exchange.sum(self._torch.cat([*(part.reshape(-1) for part in parts), last]))
            reached_by = total[-len(last) : -1].tolist()
            start = 0
            for parameter, workers in zip(trained, reached_by, strict=True):
                stop = start + parameter.numel()
                grad = total[start:stop].reshape(parameter.shape).to(parameter.dtype, copy=True)
                parameter.grad = grad if workers else None
                start = stop
        return float(total[-1])

    # ---- all together

    def begin(self, name: int, *, again: bool) -> None:
        """Dropout and drawn samples follow from a name, below 2**32, and the worker's number; those of worker 0 are one
        process's. again: caches begin as they did for the last name that was not, if they have seen one.
        """
        self._mark_caches(again=again and self._marked)
        self._torch.manual_seed(name + self.exchange.rank)
        self.sampler.calls = (name << 20) + (self.exchange.rank << 52)

    def taken_steps(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights, and the optimizer's state."""
        return self.model.state_dict(), self._optimizer.state_dict()

    def load_steps(self, weights: Mapping[str, Tensor], optimizer: dict[str, Any]) -> None:
        """What taken_steps() gave; alike on every worker."""
        self.model.load_state_dict(weights)
        self._optimizer.load_state_dict(optimizer)

    def load_memory(self, own: dict[str, Tensor], slot_count: int) -> None:
        """What became of this worker's rows by now; batches before are in it."""
        assert self.memory is not None
        self.memory.load_own(own, slot_count)
        self._removed.clear()

    def hit_counts(self) -> HitCounts:
        """Of this worker's caches, since they were made."""
        return hit_counts([self._vertex_rows], self._edge_rows)

    @property
    def clock(self) -> Clock:
        """Seconds of this worker by phase, waiting included."""
        return self._loader.clock

    def _begin_epoch(self, epoch: int) -> None:
        """Dropout and drawn samples of an epoch follow from its name and the worker's; caches begin it as the first."""
        self._mark_caches(again=epoch > 0)
        name = zlib.crc32(repr((self.seed, self._fits, epoch, self.exchange.rank)).encode())
        self._torch.manual_seed(name)
        self.sampler.calls = name << 24

    def _mark_caches(self, *, again: bool) -> None:
        for cache in self._caches:
            if again:
                cache.restore()
            else:
                cache.checkpoint()
        self._marked = True

    def _share_weights(self) -> None:
        """Worker 0's weights and buffers, on every worker."""
        with self._torch.no_grad():
            for value in self.model.state_dict().values():
                given = value if self.exchange.rank == 0 else self._torch.zeros_like(value)
                value.copy_(self.exchange.sum(given))

    def _gathered(self, logits: Tensor) -> Float32Array:
        """What a global mini-batch has, logits or embeddings, in order."""
        return np.concatenate(self.exchange.gather(logits.float().cpu().numpy()))

    def _measured(self) -> DistributedReport:
        report, sampler = self.report, self.sampler
        numbers = [np.array([number]) for number in (sampler.seconds, self._targets, sampler.targets_served)]
        of_all = [np.concatenate(self.exchange.gather(number)) for number in numbers]
        report.sampling_seconds, report.targets, report.targets_served = of_all
        report.seconds = dict(self._loader.clock.seconds)
        counts = self.hit_counts()
        every = self.exchange.gather(np.array(list(counts.values()), np.int64).reshape(1, -1, 2))
        report.hit_rates = hit_rates({}, dict(zip(counts, np.concatenate(every).sum(axis=0).tolist(), strict=True)))
        return report


def check_training(
    model: TemporalModel, graph: Graph, sampler: TemporalSampler, options: Mapping[str, Any], validation: float
) -> None:
    """Refuses what DistributedTrainer or its fit() would, for a caller who has yet to start workers."""
    check_dated("train", graph)
    checked_parts("train", model, graph, sampler, "cpu", live=True)
    if not graph.edge_count:
        raise UsageError("[train] expected a graph with edges to train on, got none; add the first part of the events")
    known = inspect.signature(DistributedTrainer).parameters
    names = [name for name, parameter in known.items() if parameter.kind is parameter.KEYWORD_ONLY]
    if unknown := sorted(set(options) - set(names)):
        raise UsageError(f"[train] expected options among {', '.join(names)}, got {', '.join(unknown)}; leave them out")
    given = {name: options.get(name, known[name].default) for name in names}
    check_worker_caches("train", given["vertex_features"], given["edge_features"])
    _check_options(*(given[name] for name in ("batch_size", "epochs", "learning_rate", "seed")))
    check_share("train", "validation", validation)
    device = checked_device("train", given["device"])
    loader = InputLoader(graph, sampler, edge_columns=given["edge_columns"], device=device)
    loader.check(model)
    LinkPass(model, loader, batch_size=given["batch_size"])
    if model.memory is not None:
        from livegnn.distributed.memory import check_memory

        check_memory(model)
    made_optimizer("train", given["optimizer"], list(model.parameters()), given["learning_rate"])
    advice = "give a class of torch.optim, or a function or functools.partial of a module"
    check_picklable("train", "an optimizer=", given["optimizer"], advice)


def _rows(given: Fetches | WorkerCache | None, remote: RemoteRows, device: torch.device | str) -> Fetches:
    """What features are read from."""
    if given is None:
        return remote
    return given.over(remote, device) if isinstance(given, WorkerCache) else given


def made_optimizer(
    where: str,
    make: Callable[[Iterable[torch.nn.Parameter]], Optimizer] | None,
    parameters: list[torch.nn.Parameter],
    learning_rate: float,
) -> Optimizer:
    """What `make` makes of the parameters, by default Adam. Raises: UsageError where that is no optimizer."""
    torch: Any = need("torch", "distributed")
    if not parameters:
        raise UsageError(f"[{where}] expected a model with parameters to train, got one without; give it some")
    if make is None:
        adam: Optimizer = torch.optim.Adam(parameters, lr=learning_rate)
        return adam
    try:
        made: object = make(parameters)
    except (TypeError, ValueError, AttributeError) as cause:
        raise UsageError(
            f"[{where}] expected optimizer as a callable(parameters), got {shown(make)} ({cause}); give a class of "
            "torch.optim, or a function that makes one"
        ) from cause
    if not isinstance(made, torch.optim.Optimizer):
        raise UsageError(
            f"[{where}] expected an optimizer= that makes a torch.optim.Optimizer, got {type(made).__name__} of it; "
            "return the optimizer"
        )
    optimizer: Optimizer = made
    return optimizer


def _check_options(batch_size: int, epochs: int, learning_rate: float, seed: int) -> None:
    check_whole("DistributedTrainer", 1, batch_size=batch_size, epochs=epochs)
    check_whole("DistributedTrainer", 0, seed=seed)
    check_from_zero("DistributedTrainer", learning_rate=learning_rate)
