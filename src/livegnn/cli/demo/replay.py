"""Streams a story through live engines and judges every way of serving predictions at the same moments.

Ways (NeutronRT, Table IV): live (every batch, exact), periodic (a full run now and then, stale between), sampled with
fan-outs (fresh, part of the neighbours), retrained (a new model now and then, full runs on the graph as it is: the
upper bound). The clock covers making the batch and engine.apply; the full PyG run is timed without making its tensors.
Sampled engines are brought up to date at the judging moments only, which does not change what they are judged on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.cli.demo import experiment as st
from livegnn.optional import need

LIVE, RETRAINED, PERIODIC = "live", "retrained", "periodic"


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """batch: events; checkpoints: judging moments; refreshes: full runs of `periodic`; retrainings: trainings of
    `retrained`, the first one included; singles: of the last events, about as many are applied one by one."""

    batch: int = 50
    checkpoints: int = 20
    refreshes: int = 4
    retrainings: int = 5
    fanouts: tuple[int, ...] = (5, 10, 20)
    epochs: int = 60
    retrain: bool = True
    singles: int = 0


@dataclass(eq=False)
class TimedBatches:
    """Batches of one kind: the seconds of each, its updates, and how many predictions it changed."""

    seconds: list[float] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Played:
    """What happened: batches, seconds of full PyG runs, scores at each checkpoint."""

    options: PlayOptions
    events_done: list[int] = field(default_factory=list)  # at each checkpoint
    truths: list[st.Bool] = field(default_factory=list)
    scores: dict[str, list[st.Float32]] = field(default_factory=dict)
    refreshed_at: list[int] = field(default_factory=list)
    retrained_at: list[int] = field(default_factory=list)
    batches: TimedBatches = field(default_factory=TimedBatches)
    singles: TimedBatches = field(default_factory=TimedBatches)  # of one event each
    full_seconds: list[float] = field(default_factory=list)
    deviation_max: float = 0.0  # largest |live - PyG| over the largest |PyG|, over all checkpoints
    event: int = 0
    interrupted: bool = False

    def curve(self, way: str, pooled: int = 1) -> list[st.Quality]:
        """Quality of one way at each checkpoint, each over the cases of the last `pooled` checkpoints."""
        rows: list[st.Quality] = []
        for end in range(1, len(self.truths) + 1):
            begin = max(0, end - pooled)
            scores = np.concatenate(self.scores[way][begin:end])
            rows.append(st.evaluate(scores, np.concatenate(self.truths[begin:end])))
        return rows


def make_engine(story: st.Story, trained: st.Trained, fanout: int | None = None) -> Any:
    """An engine on the graph as of the story's start; fanout chooses the sampled strategy."""
    src, dst = story.stream.src[: story.start], story.stream.dst[: story.start]
    graph = lg.Graph(st.features_at(story, story.start), src, dst, undirected=True)
    model = lg.from_pyg(trained.module)
    if fanout is None:
        return lg.Engine(model, graph)
    return lg.Engine(model, graph, strategy="sampled", fanout=fanout)


def make_updates(story: st.Story, live: st.LiveFeatures, begin: int, end: int, touched: st.Int64) -> Any:
    """Events [begin, end) as one batch: new vertices, changed features, new edges."""
    updates = lg.Updates()
    known, seen = int(story.seen[begin]), int(story.seen[end])
    if seen > known:
        fresh = np.arange(known, seen, dtype=np.int64)
        updates.add_vertices(fresh, live.rows(fresh))
    old = touched[touched < known]
    if len(old):
        updates.set_features(old, live.rows(old))
    updates.add_edges(story.stream.src[begin:end], story.stream.dst[begin:end])
    return updates


class Player:
    """One pass over the streamed part of a story; `run` may be interrupted and leaves what was done in `played`."""

    def __init__(self, story: st.Story, trained: st.Trained, options: PlayOptions) -> None:
        self.story, self.trained, self.options = story, trained, options
        self.played = Played(options, event=story.start)
        self.engine = make_engine(story, trained)
        self._sampled = {f"sampled {k}": make_engine(story, trained, k) for k in options.fanouts}
        self._sampled_event = story.start
        self._live = st.LiveFeatures(story)
        self._live.absorb(0, story.start)
        self._stale: st.Float32 = np.zeros(0, dtype=np.float32)
        self._newest = trained
        ways = [LIVE, PERIODIC, *self._sampled, *([RETRAINED] if options.retrain else [])]
        self.played.scores = {way: [] for way in ways}

    def run(self, on_batch: Callable[[Played], None]) -> Played:
        """Streams to the end; on_batch is called after every batch. KeyboardInterrupt ends the pass early."""
        story, options = self.story, self.options
        moments = _spread(range(story.start, story.event_count, options.batch), options.checkpoints)
        refresh, retrain = set(_spread(moments, options.refreshes)), set(_spread(moments, options.retrainings))
        try:
            for begin in range(story.start, story.event_count, options.batch):
                if begin in moments:
                    self._judge(begin, begin in refresh, begin in retrain)
                end = min(begin + options.batch, story.event_count)
                if begin < story.event_count - options.singles:
                    self._apply(begin, end)
                else:
                    for event in range(begin, end):
                        self._apply(event, event + 1, self.played.singles)
                on_batch(self.played)
            if story.task == "labels":
                self._judge(story.event_count, False, False)
        except KeyboardInterrupt:
            self.played.interrupted = True
            if not self.played.retrained_at:
                self.played.scores.pop(RETRAINED, None)  # it would only repeat the others
            least = min(len(rows) for rows in self.played.scores.values())
            every: list[list[Any]] = [*self.played.scores.values(), self.played.truths, self.played.events_done]
            for rows in every:
                del rows[least:]
        return self.played

    def _apply(self, begin: int, end: int, kind: TimedBatches | None = None) -> None:
        """Events [begin, end) as one batch, noted among those of its kind; by default the batches."""
        kind = self.played.batches if kind is None else kind
        touched = self._live.absorb(begin, end)
        clock = time.perf_counter()
        updates = make_updates(self.story, self._live, begin, end, touched)
        changes = self.engine.apply(updates)
        kind.seconds.append(time.perf_counter() - clock)
        kind.updates.append(len(updates))
        kind.changed.append(len(changes.vertices))
        self.played.event = end

    def _judge(self, event: int, refresh: bool, retrain: bool) -> None:
        story, played, torch = self.story, self.played, need("torch", "pyg")
        ids, truth = st.cases_at(story, event, self.options.batch)
        seen = int(story.seen[event])
        inputs = torch.from_numpy(self._live.rows(slice(0, seen))), st.edge_index(story, event)
        full = self._timed_full_run(inputs)
        live = np.asarray(self.engine.embeddings(np.arange(seen, dtype=np.int64)))
        played.deviation_max = max(played.deviation_max, float(np.abs(live - full).max() / np.abs(full).max()))
        if refresh:
            self._stale = st.scores_of(full)
            played.refreshed_at.append(event)
        played.events_done.append(event)
        played.truths.append(truth)
        self._keep(LIVE, st.scores_of(live), ids)
        self._keep(PERIODIC, self._stale, ids)
        self._judge_sampled(event, ids, seen)
        if self.options.retrain:
            if retrain and event > story.start:
                self._newest = st.train(story, event, epochs=self.options.epochs)
                played.retrained_at.append(event)
            self._keep(RETRAINED, st.scores_of(st.run_pyg(self._newest.module, *inputs)), ids)

    def _judge_sampled(self, event: int, ids: st.Int64, seen: int) -> None:
        begin = self._sampled_event
        if event > begin and self._sampled:
            touched = np.unique(
                np.concatenate([self.story.stream.src[begin:event], self.story.stream.dst[begin:event]])
            )
            for engine in self._sampled.values():
                engine.apply(make_updates(self.story, self._live, begin, event, touched))
        self._sampled_event = event
        known = ids[ids < seen]
        for way, engine in self._sampled.items():
            scores = np.zeros(seen, dtype=np.float32)
            if len(known):
                scores[known] = st.scores_of(np.asarray(engine.embeddings(known)))
            self._keep(way, scores, ids)

    def _keep(self, way: str, scores: st.Float32, ids: st.Int64) -> None:
        self.played.scores[way].append(st.pick(scores, ids, self.trained.base_score))

    def _timed_full_run(self, inputs: tuple[Any, Any]) -> st.Float32:
        if not self.played.full_seconds:
            st.run_pyg(self.trained.module, *inputs)  # first call pays for warm-up; not counted
        clock = time.perf_counter()
        full = st.run_pyg(self.trained.module, *inputs)
        self.played.full_seconds.append(time.perf_counter() - clock)
        return full


def _spread(items: Sequence[int], count: int) -> list[int]:
    """`count` of the items, evenly spread, the first one among them; all of them if there are fewer."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]
