"""The demo's experiment: train on the first part of time, stream the rest, judge predictions as time goes on.

Strategy: vertices are numbered in order of first appearance, so that a batch brings new vertices with the next ids. The
features of a vertex are counters of its own events (LiveFeatures), so every event is one edge and two feature updates.
Two tasks share the code: known vertices ("labels": which accounts are fraudulent; half of the known ones train, the
other half judges) and coming events ("next_event": will the next rating be distrust; judged before it is applied).
Invariant: a prediction judged at event c has seen events [0, c) only, features included.
Source of the protocol: NeutronRT, Table IV and VI.A, with dated events in place of a random tenth.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from livegnn.datasets import EventStream
from livegnn.errors import DataMissing
from livegnn.optional import need

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Story:
    """A stream made ready: events [0, start) train the model, [start, event_count) are streamed.

    seen[i] is the number of vertices named by events [0, i); first[v] is the event that first names v.
    """

    stream: EventStream
    task: Literal["labels", "next_event"]
    start: int
    truth: npt.NDArray[np.int8]  # labels: one for each vertex, -1 unknown; next_event: one for each event
    train_ids: Int64  # labels only: the known vertices that train; the others judge
    judge_ids: Int64
    first: Int64
    seen: Int64
    seed: int

    @property
    def event_count(self) -> int:
        """Number of events of the whole stream."""
        return self.stream.event_count

    @property
    def feature_width(self) -> int:
        """Number of features of a vertex."""
        return 8 if self.has_signs else 6

    @property
    def has_signs(self) -> bool:
        """Whether events have weights below 0, which are counted apart."""
        return self.stream.weight is not None and bool((self.stream.weight < 0).any())


@dataclass(frozen=True)
class Quality:
    """How well scores rank and decide: area under the ROC curve, average precision, accuracy; over `count` cases."""

    auc: float
    average_precision: float
    accuracy: float
    count: int


@dataclass(frozen=True, eq=False)
class Trained:
    """A PyG module in eval mode; base_score is the log-odds of the training truth, given to a vertex never scored."""

    module: Any
    base_score: float
    seconds: float
    example_count: int


def prepare(stream: EventStream, seed: int = 0, start: float = 0.5) -> Story:
    """A story from a dated stream with labels (which vertices?) or signed weights (is the next one negative?).

    Raises:   DataMissing if the stream has neither.
    """
    if stream.time is None or (stream.labels is None and stream.weight is None):
        raise DataMissing(f"[demo] expected a dated stream with labels or ratings, got {stream.name}; choose another")
    stream, first = _number_by_appearance(stream)
    start_event = int(stream.event_count * start)
    seen = np.zeros(stream.event_count + 1, dtype=np.int64)
    np.maximum.accumulate(np.maximum(stream.src, stream.dst) + 1, out=seen[1:])
    none = np.zeros(0, dtype=np.int64)
    if stream.labels is None:
        assert stream.weight is not None
        truth = (stream.weight < 0).astype(np.int8)
        return Story(stream, "next_event", start_event, truth, none, none, first, seen, seed)
    known = np.flatnonzero(stream.labels >= 0)
    trains = np.random.default_rng(seed).permutation(len(known)) < len(known) // 2
    return Story(stream, "labels", start_event, stream.labels, known[trains], known[~trains], first, seen, seed)


def _number_by_appearance(stream: EventStream) -> tuple[EventStream, Int64]:
    named = np.stack([stream.src, stream.dst], axis=1).ravel()
    ids, place = np.unique(named, return_index=True)
    order = np.argsort(place)
    old_ids, first = ids[order], place[order] // 2
    new_id = np.full(stream.vertex_count, -1, dtype=np.int64)
    new_id[old_ids] = np.arange(len(old_ids))
    labels = None if stream.labels is None else stream.labels[old_ids]
    numbered = replace(
        stream, src=new_id[stream.src], dst=new_id[stream.dst], labels=labels, split=None, vertex_count=len(old_ids)
    )
    return numbered, first.astype(np.int64)


class LiveFeatures:
    """Counters of each vertex's own events, kept up to date as events arrive.

    x[v] = log(1 + c[v]) / 2     c: of v's in-events, then of its out-events: count, sum and largest weight;
                                    or with signs: count, count below 0, sum above 0, sum below 0
    """

    def __init__(self, story: Story) -> None:
        self._stream = story.stream
        self._half = story.feature_width // 2
        self._signed = story.has_signs
        self._counters: Float64 = np.zeros((story.stream.vertex_count, story.feature_width))

    def absorb(self, begin: int, end: int) -> Int64:
        """Counts events [begin, end); returns the vertices that they name, sorted, unique."""
        weight = self._stream.weight
        w = np.ones(end - begin) if weight is None else weight[begin:end].astype(np.float64)
        src, dst = self._stream.src[begin:end], self._stream.dst[begin:end]
        for side, ids in ((0, dst), (self._half, src)):
            np.add.at(self._counters[:, side], ids, 1.0)
            if self._signed:
                np.add.at(self._counters[:, side + 1], ids, (w < 0).astype(np.float64))
                np.add.at(self._counters[:, side + 2], ids, np.maximum(w, 0.0))
                np.add.at(self._counters[:, side + 3], ids, np.maximum(-w, 0.0))
            else:
                np.add.at(self._counters[:, side + 1], ids, w)
                np.maximum.at(self._counters[:, side + 2], ids, w)
        return np.unique(np.concatenate([src, dst]))

    def rows(self, ids: Int64 | slice) -> Float32:
        """Features of the given vertices, float32 (k, F)."""
        return (np.log1p(self._counters[ids]) / 2.0).astype(np.float32)


def features_at(story: Story, event: int) -> Float32:
    """Features of the vertices named by events [0, event), float32 (seen[event], F)."""
    live = LiveFeatures(story)
    live.absorb(0, event)
    return live.rows(slice(0, int(story.seen[event])))


def edge_index(story: Story, event: int) -> Any:
    """PyG's edge_index of events [0, event), both ways."""
    torch = need("torch", "pyg")
    one = torch.from_numpy(np.stack([story.stream.src[:event], story.stream.dst[:event]]))
    back = one[:, one[0] != one[1]].flip(0)  # a self-loop is one edge, not two, as in an undirected lg.Graph
    return torch.cat([one, back], dim=1)


def train(story: Story, until: int | None = None, *, epochs: int = 60) -> Trained:
    """Trains the module on what events [0, until) show; the judging half of the known vertices is never touched."""
    torch = need("torch", "pyg")
    need("torch_geometric.nn", "pyg")
    from livegnn.cli.demo.net import FraudNet

    until = story.start if until is None else until
    begin = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(story.seed)
        module = FraudNet(story.feature_width)
        cases = _label_cases(story, until) if story.task == "labels" else _event_cases(story, until)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=5e-4)
        module.train()
        for _ in range(epochs):
            optimizer.zero_grad()
            for x, edge_index, ids, truth in cases:
                loss = torch.nn.functional.cross_entropy(module(x, edge_index)[ids], truth)
                (loss / len(cases)).backward()
            optimizer.step()
    module.eval()
    truth = torch.cat([case[3] for case in cases]).numpy()
    share = float(np.clip(truth.mean(), 1e-3, 1 - 1e-3))
    return Trained(module, float(np.log(share / (1 - share))), time.perf_counter() - begin, len(truth))


def _label_cases(story: Story, until: int) -> list[tuple[Any, ...]]:
    """One graph: the two-hop surroundings of the training vertices, which is all that two layers read."""
    torch = need("torch", "pyg")
    utils = need("torch_geometric.utils", "pyg")
    ids = story.train_ids[story.first[story.train_ids] < until]
    x = torch.from_numpy(features_at(story, until))
    near, edges, place, _ = utils.k_hop_subgraph(
        torch.from_numpy(ids), 2, edge_index(story, until), relabel_nodes=True, num_nodes=len(x)
    )
    truth = torch.from_numpy(story.truth[ids].astype(np.int64))
    return [(x[near], edges, place, truth)]


def _event_cases(story: Story, until: int, count: int = 8) -> list[tuple[Any, ...]]:
    """`count` past moments, each judged by the events up to the next moment."""
    torch = need("torch", "pyg")
    cases: list[tuple[Any, ...]] = []
    moments = np.linspace(until * 0.2, until, count + 1).astype(np.int64)
    for now, later in itertools.pairwise(moments):
        x = torch.from_numpy(features_at(story, int(now)))
        dst = story.stream.dst[now:later]
        keep = dst < len(x)
        truth = torch.from_numpy(story.truth[now:later][keep].astype(np.int64))
        cases.append((x, edge_index(story, int(now)), torch.from_numpy(dst[keep]), truth))
    return cases


def run_pyg(module: Any, x: Any, edge_index: Any) -> Float32:
    """Float32 (V, 2) of one full forward by PyG: what a user does without livegnn."""
    with need("torch", "pyg").inference_mode():
        result: Float32 = module(x, edge_index).numpy()
    return result


def scores_of(outputs: Float32) -> Float32:
    """Log-odds of class 1: outputs[:, 1] - outputs[:, 0]."""
    return outputs[:, 1] - outputs[:, 0]


def cases_at(story: Story, event: int, window: int) -> tuple[Int64, Bool]:
    """The vertices judged at `event` and their truth: known ones seen so far, or ends of the next `window` events."""
    if story.task == "labels":
        ids = story.judge_ids[story.first[story.judge_ids] < event]
        return ids, story.truth[ids] == 1
    end = min(event + window, story.event_count)
    return story.stream.dst[event:end], story.truth[event:end] == 1


def pick(scores: Float32, ids: Int64, base_score: float) -> Float32:
    """Scores of ids; a vertex that the scores do not know gets base_score."""
    known = ids < len(scores)
    picked = np.full(len(ids), base_score, dtype=np.float32)
    picked[known] = scores[ids[known]]
    return picked


def evaluate(scores: Float32, truth: Bool) -> Quality:
    """AUC (ties count half), average precision and accuracy at score 0; NaN where only one class is present."""
    count, positives = len(truth), int(truth.sum())
    accuracy = float(((scores > 0) == truth).mean()) if count else float("nan")
    if positives in (0, count):
        return Quality(float("nan"), float("nan"), accuracy, count)
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]  # equal scores share the mean of their ranks
    auc = (ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * (count - positives))
    levels, level = np.unique(-scores, return_inverse=True)
    hits = np.cumsum(np.bincount(level, weights=truth, minlength=len(levels)))
    shown = np.cumsum(np.bincount(level, minlength=len(levels)))
    steps = np.diff(hits, prepend=0.0)
    return Quality(float(auc), float((steps * hits / shown).sum() / positives), accuracy, count)
