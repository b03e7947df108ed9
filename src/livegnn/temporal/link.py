"""Link prediction over events in order: scoring, training, metrics, negatives.

One mini-batch: the roots are the sources, the destinations and one negative destination per event, each at the event's
time -> inputs -> embeddings -> logits. Then, where the model has a memory, it observes the mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.errors import TrainingDiverged, UsageError, ValueInvalid
from livegnn.graph.checks import whole_number
from livegnn.optional import check_installed, need
from livegnn.temporal.checks import check_model
from livegnn.temporal.edge_types import destination_types
from livegnn.temporal.events import Events
from livegnn.temporal.loading import HopSource, InputLoader
from livegnn.types import Float32Array, Int64Array

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from livegnn.temporal.models.interface import TemporalModel

Progress = Callable[[int], None]  # events done so far
_TYPE_BITS, _SLOT_MASK = 32, (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class LinkScores:
    """How well events were separated from negatives: average precision, area under the ROC curve, mean reciprocal rank.

    NaN where there was no event.
    """

    ap: float
    auc: float
    mrr: float
    events: int


class Negatives:
    """Destinations to draw negatives from: those that events had so far and that are still vertices, by type.

    seen: (n,) int64, ascending: a slot, and its vertex type's code in the bits from 32 on.
    """

    def __init__(self) -> None:
        self.seen: Int64Array = np.zeros(0, np.int64)

    def add(self, dst: Int64Array, types: Int64Array | None = None) -> None:
        """Takes destinations of events in, and the codes of their types where vertices have types."""
        self.seen = np.union1d(self.seen, dst if types is None else dst | (types << _TYPE_BITS))

    def drop(self, slots: Int64Array) -> None:
        """These vertices were removed."""
        self.seen = self.seen[~np.isin(self.seen & _SLOT_MASK, slots)]

    def has(self, types: Int64Array | None = None) -> bool:
        """Whether there is any to draw, or one of each of these types."""
        if types is None:
            return len(self.seen) > 0
        return bool(np.isin(types, self.seen >> _TYPE_BITS).all())

    def draw(self, count: int, rng: np.random.Generator, types: Int64Array | None = None) -> Int64Array:
        """(count,) int64 slots, uniformly among all, or each among those of its type."""
        if not count:
            return self.seen[:0]
        if types is None:
            return self.seen[rng.integers(0, len(self.seen), count)]
        first, last = (np.searchsorted(self.seen, code << _TYPE_BITS) for code in (types, types + 1))
        return self.seen[rng.integers(first, last)] & _SLOT_MASK

    def __len__(self) -> int:
        return len(self.seen)


def cut(count: int, size: int) -> Iterator[slice]:
    """Parts of `size` events, the last one perhaps shorter."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def cut_evenly(count: int, size: int, first: int = 0) -> Iterator[slice]:
    """Mini-batches of at most `size` events, as few as will do, equal but for one event: a step on the few that were
    left over would move the weights as far as one on many. first: events of one before them, cut short on purpose, for
    random chunk scheduling (TGL)."""
    first = min(first, count)
    if first:
        yield slice(0, first)
    rest = count - first
    parts = -(-rest // size)
    for part in range(parts):
        yield slice(first + rest * part // parts, first + rest * (part + 1) // parts)


def link_loss(positive: Tensor, negative: Tensor, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy of the logits of events and of negatives, both signs added."""
    torch: Any = need("torch", "train")
    of = torch.nn.functional.binary_cross_entropy_with_logits
    loss = of(positive, torch.ones_like(positive), reduction=reduction)
    both: Tensor = loss + of(negative, torch.zeros_like(negative), reduction=reduction)
    return both


class LinkPass:
    """Goes over events with a model.

    Args:    loader: makes the inputs.  batch_size: events of a mini-batch.  mrr_candidates: destinations of the same
             mini-batch that the true one is ranked among.
    """

    def __init__(
        self, model: TemporalModel, loader: InputLoader, *, batch_size: int = 200, mrr_candidates: int = 20
    ) -> None:
        check_model("LinkPass", model)
        if not isinstance(loader, InputLoader):
            raise UsageError(f"[LinkPass] expected an InputLoader, got {type(loader).__name__}; make one of the graph")
        for name, number in (("batch_size", batch_size), ("mrr_candidates", mrr_candidates)):
            if whole_number("LinkPass", name, number) < 1:
                raise ValueInvalid(f"[LinkPass] expected {name} of at least 1, got {number}; give a whole number")
        if loader.graph.has_time and getattr(loader.sampler, "inclusive", False):
            raise UsageError(
                "[LinkPass] expected a sampler whose past ends before the event, got inclusive=True, with which events "
                "see themselves; make one without"
            )
        self.model, self.loader = model, loader
        self.batch_size, self.mrr_candidates = batch_size, mrr_candidates
        self._torch: Any = need("torch", "train")
        check_installed("sklearn", "train")  # scores() needs it: no engine, and no worker of a cluster's trainer

    def train(
        self,
        events: Events,
        negatives: Int64Array,
        optimizer: Optimizer,
        *,
        source: HopSource | None = None,
        first: int = 0,
        hidden: Int64Array | None = None,
        progress: Progress | None = None,
    ) -> float:
        """One pass with a step per mini-batch; returns the mean loss per event (binary cross-entropy, both signs).

        first: events of the first mini-batch, where that is to be a shorter one; the others are equal (cut_evenly()).
        hidden: ids of edges that no sample may hold, next to those of the mini-batch; for graphs without times.
        Raises:  TrainingDiverged where the loss is not finite; the model has then taken the steps before.
        """
        self.model.train()
        total = 0.0
        for part in cut_evenly(len(events), self.batch_size, first):
            batch = events.at(part)
            src, dst, other = self._embed(batch, negatives[part], source, hidden)
            with self.loader.clock.phase("model"):
                positive = self.score(batch.src, src, batch.dst, dst)
                loss: Any = link_loss(positive, self.score(batch.src, src, negatives[part], other))
                value = float(loss.detach())
                if not np.isfinite(value):
                    raise TrainingDiverged(
                        f"[train] expected a finite loss, got {value} at events {part.start} to {part.stop} of a pass; "
                        "lower the learning rate, or look at the features"
                    )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += value * len(batch)
            self._observe(batch, source)
            if progress is not None:
                progress(part.stop)
        return total / max(len(events), 1)

    def test(
        self,
        events: Events,
        negatives: Int64Array,
        rng: np.random.Generator,
        *,
        source: HopSource | None = None,
        hidden: Int64Array | None = None,
        progress: Progress | None = None,
    ) -> tuple[LinkScores, tuple[Float32Array, Float32Array]]:
        """Scores events in order; the memory moves on. Returns the scores, and both logits of each event."""
        self.model.eval()
        positive, negative, ranks = [], [], []
        with self._torch.no_grad():
            for part in cut(len(events), self.batch_size):
                batch = events.at(part)
                src, dst, other = self._embed(batch, negatives[part], source, hidden)
                with self.loader.clock.phase("model"):
                    logits = self.score(batch.src, src, batch.dst, dst)
                    positive.append(logits.float().cpu().numpy())
                    negative.append(self.score(batch.src, src, negatives[part], other).float().cpu().numpy())
                    ranks.append(self.reciprocal_ranks(batch, slice(0, len(batch)), src, dst, logits, rng))
                self._observe(batch, source)
                if progress is not None:
                    progress(part.stop)
        if not len(events):
            none = np.zeros(0, np.float32)
            return self.scores(none, none), (none, none)
        logits_of = np.concatenate(positive), np.concatenate(negative)
        return self.scores(*logits_of, float(np.concatenate(ranks).mean())), logits_of

    def scores(self, positive: Float32Array, negative: Float32Array, mrr: float = float("nan")) -> LinkScores:
        """Scores of logits, (n,) of events and (n,) of negatives. Source: scikit-learn's metrics.

        Raises:  TrainingDiverged where a logit is not finite.
        """
        if not len(positive):
            return LinkScores(float("nan"), float("nan"), float("nan"), 0)
        if not (np.isfinite(positive).all() and np.isfinite(negative).all()):
            raise TrainingDiverged("[test] expected finite scores, got others; the model has diverged, train it anew")
        logits = np.concatenate([positive, negative])
        truth = np.concatenate([np.ones(len(positive)), np.zeros(len(negative))])
        metrics: Any = need("sklearn.metrics", "train")
        ap = float(metrics.average_precision_score(truth, logits))
        auc = float(metrics.roc_auc_score(truth, logits))
        return LinkScores(ap, auc, mrr, len(positive))

    def observe(self, events: Events, source: HopSource | None = None, edge_x: Tensor | None = None) -> None:
        """Lets the memory take events in, a mini-batch at a time, without scoring them. edge_x: rows, if known."""
        if self.model.memory is not None:
            self.model.eval()
            for part in cut(len(events), self.batch_size):
                self._observe(events.at(part), source, None if edge_x is None else edge_x[part])

    def score(self, src: Int64Array, h_src: Tensor, dst: Int64Array, h_dst: Tensor) -> Tensor:
        """(n,) logits of links; in an undirected graph of the smaller slot with the larger, however they are given."""
        if self.loader.graph.undirected:
            turned = self._torch.from_numpy(src > dst).to(h_src.device)[:, None]
            h_src, h_dst = self._torch.where(turned, h_dst, h_src), self._torch.where(turned, h_src, h_dst)
        return self.model.score(h_src, h_dst)

    def _embed(
        self, batch: Events, negatives: Int64Array, source: HopSource | None, hidden: Int64Array | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        roots = np.concatenate([batch.src, batch.dst, negatives])
        without = None
        if not self.loader.graph.has_time:
            without = batch.edge_ids if hidden is None else np.union1d(batch.edge_ids, hidden)
        inputs = self.loader.load(roots, np.tile(batch.time, 3), source, without)
        with self.loader.clock.phase("model"):
            h = self.model.embed(inputs)
        n = len(batch)
        return h[:n], h[n : 2 * n], h[2 * n :]

    def _observe(self, batch: Events, source: HopSource | None, edge_x: Tensor | None = None) -> None:
        if self.model.memory is None:
            return
        if edge_x is None:
            edge_x = self.loader.edge_rows(batch, source)
        with self.loader.clock.phase("memory"), self._torch.no_grad():
            src, dst, time = (
                self._torch.from_numpy(c).to(self.loader.device) for c in (batch.src, batch.dst, batch.time)
            )
            self.model.memory.observe(src, dst, time, edge_x)

    def reciprocal_ranks(
        self, batch: Events, run: slice, src: Tensor, dst: Tensor, logits: Tensor, rng: np.random.Generator
    ) -> Float32Array:
        """1 / rank of each true destination among others of the mini-batch and of its type, each as it is at its own
        event's time.

        Args:    run: of the mini-batch's events, those that are ranked.  src: (r, d), theirs.  dst: (n, d), of the
                 whole mini-batch.  logits: (r,).
        """
        n, count = len(batch), self.mrr_candidates
        others = rng.integers(0, n, (n, count))[run]
        same = batch.dst[others] == batch.dst[run, None]
        if (types := destination_types(self.loader.graph, batch.edge_types)) is not None:
            same |= types[others] != types[run, None]
        places = self._torch.from_numpy(others).to(dst.device)
        ends = np.repeat(batch.src[run], count), batch.dst[others.reshape(-1)]
        flat = self.score(ends[0], src.repeat_interleave(count, 0), ends[1], dst[places.reshape(-1)])
        scores = flat.reshape(len(others), count)
        above = (scores > logits[:, None]).float() + 0.5 * (scores == logits[:, None]).float()
        above[self._torch.from_numpy(same).to(above.device)] = 0.0
        ranks: Float32Array = (1.0 / (1.0 + above.sum(1))).cpu().numpy()
        return ranks
