"""Link prediction on dated graphs, one loop for every contender: data and splits, negatives, epochs, scores.

Split in time, 70 / 15 / 15 percent of the events. One negative destination per event, drawn from the destinations that
events had by the end of the split: anew in each training epoch, once by seed for validation and test. Transductive: all
test events; inductive: those with a vertex that no training event had. Features are the same for all contenders:
a seeded random signature per vertex where a model reads vertex features, the rating, scaled, as the edge's where there
is one, else a single 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

from livegnn import datasets

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

SIGNATURE_WIDTH = 32
POINTS = 20  # of the learning curve, in each epoch
EVENTS_MAX = {"tags_math_sx": 200_000}
UNITS = {"tags_math_sx": 60_000, "bitcoin_otc": 60}  # minutes: in float32 the cosine of 1e8 is rounding


@dataclass(frozen=True, eq=False)
class Data:
    """Events in time order, the first at time 0, in UNITS. edge_x: (E, 1); x: (V, SIGNATURE_WIDTH).

    splits: the first event of validation, of test, and the number of events.
    """

    name: str
    src: Int64
    dst: Int64
    time: Int64
    edge_x: Float32
    x: Float32
    splits: tuple[int, int, int]
    unseen: npt.NDArray[np.bool_]

    @property
    def vertex_count(self) -> int:
        return len(self.x)


@dataclass(frozen=True, slots=True)
class Batch:
    """n events and a negative destination for each. ids: places among all events, which are the edges' ids."""

    src: Int64
    dst: Int64
    negative: Int64
    time: Int64
    ids: Int64


@dataclass(frozen=True, slots=True)
class Budget:
    """What both sides may spend, and their common shape."""

    epochs: int
    batch: int = 200
    width: int = 64
    heads: int = 2
    fanout: int = 10
    dropout: float = 0.0
    rate: float = 1e-3
    snapshots: int = 3


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one epoch. Seconds: of training, then of validation and test."""

    epoch: int
    loss: float
    validation_ap: float
    test_ap: float
    test_auc: float
    inductive_ap: float
    inductive_auc: float
    train_seconds: float
    test_seconds: float


@dataclass(frozen=True, slots=True)
class Point:
    """Of the learning curve: a stretch of training events, scored before their steps. Trained, seconds: so far."""

    epoch: int
    trained: int  # events
    seconds: float
    loss: float
    ap: float


class Contender(Protocol):
    """A model with its own way to find neighbours."""

    module: nn.Module

    def begin(self) -> None:
        """Forgets the events of the last pass."""

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(n,) logits of the events and (n,) of their negatives, from what was before them."""

    def observe(self, batch: Batch) -> None:
        """Takes the events in, after they were scored and, in training, after the step."""


def load(name: str, events_max: int | None = None) -> Data:
    """A real graph, cut to its first events where it is large; a generated one of its shape if it is not at hand."""
    stream = datasets.load_or_generate(name)
    if stream.time is None:
        raise ValueError(f"[temporal_contest] expected a dated graph, got {name}; choose another")
    count = min(events_max or EVENTS_MAX.get(name, stream.event_count), stream.event_count)
    src, dst = stream.src[:count], stream.dst[:count]
    when = (stream.time[:count] - stream.time[0]) // UNITS.get(name, 1)
    edge_x = np.zeros((count, 1), np.float32)
    if name == "bitcoin_otc" and stream.weight is not None:
        edge_x[:, 0] = stream.weight[:count] / 10
    vertices = int(max(src.max(), dst.max())) + 1
    x = np.random.default_rng(7).standard_normal((vertices, SIGNATURE_WIDTH)).astype(np.float32)
    splits = (int(count * 0.70), int(count * 0.85), count)
    seen = np.zeros(vertices, np.bool_)
    seen[src[: splits[0]]] = seen[dst[: splits[0]]] = True
    return Data(name, src, dst, when, edge_x, x, splits, ~(seen[src] & seen[dst]))


def play(contender: Contender, data: Data, budget: Budget, seed: int) -> Iterator[tuple[Scores, list[Point]]]:
    """Trains and tests, epoch by epoch."""
    first, second, end = data.splits
    optimizer = torch.optim.Adam(contender.module.parameters(), lr=budget.rate)
    for epoch in range(budget.epochs):
        begin = time.perf_counter()
        contender.begin()
        contender.module.train()
        points = _train(contender, data, _negatives(data, 0, first, first, (seed, epoch)), budget, optimizer, epoch)
        trained = time.perf_counter()
        loss = float(np.mean([point.loss for point in points]))
        contender.module.eval()
        validation = _test(contender, data, _negatives(data, first, second, second, (seed, -1)), first, budget)
        test = _test(contender, data, _negatives(data, second, end, end, (seed, -2)), second, budget)
        new = np.tile(data.unseen[second:], 2)
        rates = (*_rates(*validation)[:1], *_rates(*test), *_rates(test[0][new], test[1][new]))
        yield Scores(epoch, loss, *rates, trained - begin, time.perf_counter() - trained), points


def _negatives(data: Data, begin: int, end: int, known: int, seed: tuple[int, int]) -> Int64:
    rng = np.random.default_rng((seed[0], seed[1] + 1000, 11))
    return rng.choice(np.unique(data.dst[:known]), end - begin)


def _batches(data: Data, negatives: Int64, begin: int, budget: Budget) -> Iterator[Batch]:
    for low in range(begin, begin + len(negatives), budget.batch):
        part = slice(low, min(low + budget.batch, begin + len(negatives)))
        drawn = negatives[part.start - begin : part.stop - begin]
        yield Batch(data.src[part], data.dst[part], drawn, data.time[part], np.arange(part.start, part.stop))


def _train(
    contender: Contender,
    data: Data,
    negatives: Int64,
    budget: Budget,
    optimizer: torch.optim.Optimizer,
    epoch: int,
) -> list[Point]:
    begin, points = time.perf_counter(), []
    losses: list[float] = []
    logits: tuple[list[Tensor], list[Tensor]] = ([], [])
    for batch in _batches(data, negatives, 0, budget):
        positive, negative = contender.logits(batch)
        loss = (nn.functional.softplus(-positive) + nn.functional.softplus(negative)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        contender.observe(batch)
        losses.append(float(loss.detach()))
        logits[0].append(positive.detach())
        logits[1].append(negative.detach())
        done = int(batch.ids[-1]) + 1
        if done >= len(negatives) * (len(points) + 1) / POINTS:
            seconds = time.perf_counter() - begin
            points.append(Point(epoch, done, seconds, float(np.mean(losses)), _rates(*_joined(*logits))[0]))
            losses, logits = [], ([], [])
    return points


@torch.no_grad()
def _test(
    contender: Contender, data: Data, negatives: Int64, begin: int, budget: Budget
) -> tuple[Float32, npt.NDArray[np.bool_]]:
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    for batch in _batches(data, negatives, begin, budget):
        for kept, logits in zip(found, contender.logits(batch), strict=True):
            kept.append(logits)
        contender.observe(batch)
    return _joined(*found)


def _joined(positive: list[Tensor], negative: list[Tensor]) -> tuple[Float32, npt.NDArray[np.bool_]]:
    """Logits of the events, then of their negatives; which of them are events."""
    logits = torch.cat([*positive, *negative]).numpy()
    return logits, np.arange(len(logits)) < len(logits) // 2


def _rates(logits: Float32, truth: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Average precision and area under the ROC curve."""
    if not len(logits):
        return float("nan"), float("nan")
    return float(average_precision_score(truth, logits)), float(roc_auc_score(truth, logits))
