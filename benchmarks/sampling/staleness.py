"""What a sampler that lags behind costs in accuracy (Helios, Figure 18): a GraphSAGE user-page link predictor on real
edits, trained on samples as of each edit, judged on samples of a graph that misses the last seconds or events.

A case is an edit and, for the same user, the page of another edit, so that both pages are drawn by popularity. The
model sees what the user edited last and who else did, and who edited the page last. Only the lag differs between rows:
cases and trained models are the same. Expected: no lag does better than none, beyond noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import livegnn as lg
from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.sampling.check import check_samples
from livegnn import datasets
from livegnn.cli.demo.experiment import evaluate

LAGS = (
    ("0", "s", 0), ("1 s", "s", 1), ("10 s", "s", 10), ("1 min", "s", 60), ("10 min", "s", 600), ("1 h", "s", 3600),
    ("1 day", "s", 86_400), ("1 event", "events", 1), ("10 events", "events", 10), ("100 events", "events", 100),
    ("1000 events", "events", 1000),
)  # fmt: skip
SEEDS, TRAIN_SHARE, WIDTH, HIDDEN = 5, 0.7, 32, 32
NOISE = 0.005  # of a mean AUC
USER_QUERY = lg.query().out().sample(10, by="top_k").in_().sample(5, by="top_k")
PAGE_QUERY = lg.query().in_().sample(10, by="top_k")

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cases:
    """For event event[i], in order: its user and pages[i] = (the page that was edited, another one)."""

    event: Int64
    user: Int64
    pages: Int64


@dataclass(frozen=True)
class Samples:
    """Vertices by level, -1 where there are fewer; users (N, ...), pages (N, 2, ...). missed: events not seen, mean."""

    users: tuple[Int64, ...]
    pages: tuple[Int64, ...]
    missed: float
    oldest: float  # seconds since the first event not seen, mean
    lag_ms: tuple[float, float, float] | None


def run(options: Options, report: Report) -> None:
    """A row for each lag."""
    stream = datasets.load_or_generate("jodie_wikipedia")
    if options.tiny:
        stream = datasets.generate_like("jodie_wikipedia", scale=0.02)
    seeds = 1 if options.tiny else SEEDS
    origin = " (generated)" if stream.generated else ""
    report.heading(f"Accuracy against ingestion lag: jodie_wikipedia{origin}, {seeds} models (mean +- sd)")
    split = int(TRAIN_SHARE * stream.event_count)
    features = np.random.default_rng(2).standard_normal((stream.vertex_count, WIDTH), np.float32) / np.sqrt(WIDTH)
    train = _cases(stream, split // 7, split, 300 if options.tiny else 20_000, split, 3)
    test = _cases(stream, split, stream.event_count, 150 if options.tiny else 5_000, split, 4)
    report.progress(f"staleness: sampling {len(train.event):,} cases to train on")
    seen = _samples(stream, features, train, train.event, report)
    table = torch.from_numpy(np.vstack([features, np.zeros((1, WIDTH))]).astype(np.float32))  # row -1: nothing there
    models = [_trained(table, seen, seed, 1 if options.tiny else 6) for seed in range(seeds)]
    report.progress(f"staleness: {seeds} models trained")
    report.columns(("lag", "events missed", "oldest missed", "samples changed", "AUC", "AP", "AUC against lag 0"))
    fresh: Samples | None = None
    base: npt.NDArray[np.float64] | None = None
    for name, unit, size in LAGS:
        found = _samples(stream, features, test, _visible(stream, test.event, unit, size), report)
        fresh = fresh or found
        scores = np.array([_quality(model, table, found) for model in models])
        base = scores[:, 0] if base is None else base
        changed = _differ(found, fresh).mean()
        report.row(
            [name, f"{found.missed:,.1f}", f"{found.oldest:,.0f} s", f"{changed:.1%}", _pair(scores[:, 0]),
             _pair(scores[:, 1]), _pair(scores[:, 0] - base)]
        )  # fmt: skip
        if not options.tiny and (scores[:, 0] - base).mean() > NOISE:
            report.fail(f"[sampling_staleness] expected no better AUC with a lag of {name} than with none")
        report.progress(f"staleness: lag {name}: AUC {scores[:, 0].mean():.4f}")
    if fresh is not None and fresh.lag_ms is not None:
        median, p99, _ = fresh.lag_ms
        report.line(f"\nlivegnn's own lag while these events came in: median {median:.3f} ms, p99 {p99:.3f} ms.")


def _cases(stream: datasets.EventStream, begin: int, end: int, count: int, split: int, seed: int) -> Cases:
    """`count` events of [begin, end), each with the page of an event of the training part."""
    rng = np.random.default_rng(seed)
    event = np.sort(rng.choice(np.arange(begin, end), min(count, end - begin), replace=False))
    other = stream.dst[rng.integers(0, split, (len(event), 20))]
    page = stream.dst[event]
    pick = np.argmax(other != page[:, None], axis=1)  # the first one that is another page
    return Cases(event, stream.src[event], np.stack([page, other[np.arange(len(event)), pick]], axis=1))


def _visible(stream: datasets.EventStream, event: Int64, unit: str, size: int) -> Int64:
    """How many events the sampler has seen when event[i] is predicted."""
    if unit == "events":
        return np.maximum(event - size, 0)
    assert stream.time is not None
    if size == 0:
        return event
    return np.minimum(event, np.searchsorted(stream.time, stream.time[event] - size, side="right"))


def _samples(
    stream: datasets.EventStream, features: npt.NDArray[np.float32], cases: Cases, visible: Int64, report: Report
) -> Samples:
    """Each case sampled from the graph after its visible events; the sampler follows them."""
    time = stream.time
    assert time is not None
    at = int(visible[0])
    graph = lg.Graph(features, stream.src[:at], stream.dst[:at], time=time[:at])
    sampler = lg.PreSampler(graph, [USER_QUERY, PAGE_QUERY], seed=0, threads=1)
    users: list[list[Any]] = [[], []]
    pages: list[Any] = []
    for user, pair, until in zip(cases.user, cases.pages, visible.tolist(), strict=True):
        if until > at:
            updates = lg.Updates()
            updates.add_edges(stream.src[at:until], stream.dst[at:until], time=time[at:until])
            sampler.apply(updates)
            at = until
        of_user = sampler.sample(np.array([user]), query=1, features=False, edge_ids=False)
        users[0].append(of_user.hop(1)[0])
        users[1].append(of_user.hop(2)[0])
        pages.append(sampler.sample(pair, query=2, features=False, edge_ids=False).hop(1))
    lag = sampler.stats.lag_ms
    sampler.drop(2)
    check_samples("sampling_staleness", sampler, USER_QUERY, cases.user[-50:], report)
    sampler.close()
    missed = cases.event - visible
    oldest = np.where(missed > 0, time[cases.event] - time[np.minimum(visible, cases.event)], 0)
    levels = (cases.user, *(np.array(level, dtype=np.int64) for level in users))
    return Samples(levels, (cases.pages, np.array(pages)), float(missed.mean()), float(oldest.mean()), lag)


def _differ(found: Samples, fresh: Samples) -> npt.NDArray[np.bool_]:
    """Which cases have another sample than the fresh one, at any level."""
    pairs = [*zip(found.users, fresh.users, strict=True), *zip(found.pages, fresh.pages, strict=True)]
    count = len(fresh.users[0])
    return np.any([(a != b).reshape(count, -1).any(axis=1) for a, b in pairs], axis=0)


# ---- the model


class LinkPredictor(nn.Module):  # type: ignore[misc]
    """score(user, page) = <z_user, z_page> + b_page, GraphSAGE (mean) over what was sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.page_near, self.page_far = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.user_own, self.user_pages = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.page_own, self.page_users = nn.Linear(WIDTH, HIDDEN), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.bias = nn.Linear(WIDTH, 1)

    def forward(self, table: Any, users: tuple[Any, ...], pages: tuple[Any, ...]) -> Any:
        x, ids = [table[level] for level in users], users
        edited = torch.relu(self.page_near(x[1]) + self.page_far(_mean(x[2], ids[2])))
        z_user = self.user_own(x[0]) + self.user_pages(_mean(edited, ids[1]))
        y = [table[level] for level in pages]
        z_page = self.page_own(y[0]) + self.page_users(_mean(y[1], pages[1]))
        return (z_user[:, None] * z_page).sum(-1) + self.bias(y[0]).squeeze(-1)


def _mean(values: Any, ids: Any) -> Any:
    there = (ids >= 0).unsqueeze(-1)
    return (values * there).sum(-2) / there.sum(-2).clamp(min=1)


def _tensors(samples: Samples, rows: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (
        tuple(torch.from_numpy(level[rows]) for level in samples.users),
        tuple(torch.from_numpy(level[rows]) for level in samples.pages),
    )


def _trained(table: Any, samples: Samples, seed: int, epochs: int) -> LinkPredictor:
    """A model of that torch seed, after `epochs` rounds over the training cases."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = LinkPredictor()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    truth = torch.tensor([1.0, 0.0])
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(len(samples.users[0])), max(1, len(samples.users[0]) // 256)):
            scores = model(table, *_tensors(samples, rows))
            loss = nn.functional.binary_cross_entropy_with_logits(scores, truth.expand_as(scores))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def _quality(model: LinkPredictor, table: Any, samples: Samples) -> tuple[float, float]:
    """AUC and average precision."""
    with torch.inference_mode():
        scores = model(table, *_tensors(samples, slice(None))).numpy()
    judged = evaluate(scores.reshape(-1), np.tile([True, False], len(scores)))
    return judged.auc, judged.average_precision


def _pair(values: npt.NDArray[np.float64]) -> str:
    return f"{values.mean():.4f} +- {values.std():.4f}"
