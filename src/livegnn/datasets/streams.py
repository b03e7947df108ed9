"""Graphs whose vertices are of one kind: loaders and generators.

`load` looks for files of our own form (folder.py), then for those that a class of PyG or OGB downloads (published.py).
Every loader returns an `EventStream` with int64 ids and contiguous arrays. Where no data is at hand,
`generate_like(name, seed)` makes a stream of the same shape with a planted pattern and says so (`generated`).
Invariant: a dated stream's events are in time order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.datasets.folder import Arrays, Float32, Int8, Int64, data_folder, float32, int8, int64, read
from livegnn.datasets.published import PUBLISHED, Published, cache_folder, fetch
from livegnn.errors import DataMissing


@dataclass(frozen=True, eq=False)
class EventStream:
    """Edges (src[i], dst[i]) at time[i], in time order; a static graph has time None.

    Args:     src, dst: (E,) int64 in [0, vertex_count).   time: (E,) int64, in the source's own unit.
              weight: (E,) float32 (an amount, a rating).   features: (V, F) float32.
              labels: (V,) int8, -1 where unknown.   split: (V,) or (S, V) int8, 0 where a label may train.
              is_bipartite: edges join two kinds of vertices, as users and pages; messages must flow both ways.
    """

    name: str
    src: Int64
    dst: Int64
    time: Int64 | None
    vertex_count: int
    description: str
    weight: Float32 | None = None
    features: Float32 | None = None
    labels: Int8 | None = None
    split: Int8 | None = None
    generated: bool = False
    is_bipartite: bool = False

    @property
    def event_count(self) -> int:
        """Number of edges, E."""
        return len(self.src)


def _dated(name: str, edges: Arrays, time: str, vertex_count: int, text: str, **columns: Any) -> EventStream:
    src, dst, times = (int64(edges[key]) for key in ("src", "dst", time))
    return EventStream(name, src, dst, times, vertex_count, text, **columns)


def _ethereum_phishing(name: str) -> EventStream:
    edges, vertices = read(name, "edges.npz"), read(name, "nodes.npz")
    text = (
        "Ethereum payments between accounts (ETH, Unix seconds); 445 accounts known for phishing, 445 known not to be"
    )
    columns = {"weight": float32(edges["amount"]), "labels": int8(vertices["y"]), "split": int8(vertices["split"])}
    return _dated(name, edges, "t", len(vertices["y"]), text, **columns)


def _bitcoin_otc(name: str) -> EventStream:
    edges = read(name, "edges.npz")
    text = PUBLISHED[name].text
    return _dated(name, edges, "t", len(edges["node_id"]), text, weight=float32(edges["rating"]))


def _jodie_wikipedia(name: str) -> EventStream:
    text = "Wikipedia edits, user to page (seconds since the first); users 0..8226, pages 8227..9226"
    return _dated(name, read(name, "edges.npz"), "t", 9227, text, is_bipartite=True)


def _tags_math_sx(name: str) -> EventStream:
    edges = read(name, "edges.npz")
    count = max(int(int64(edges[key]).max()) for key in ("src", "dst")) + 1
    text = "Tags on math.stackexchange questions, post to tag (milliseconds since the first); tags 0..1628, then posts"
    return _dated(name, edges, "t_ms", count, text, is_bipartite=True)


def _static(name: str, text: str) -> EventStream:
    file = read(name, "graph.npz")
    split = int8(file["split"]) if "split" in file else None
    features = float32(file["x"]) if "x" in file else _sparse_features(name)
    labels = int8(file["y"])
    src, dst = int64(file["src"]), int64(file["dst"])
    return EventStream(name, src, dst, None, len(labels), text, features=features, labels=labels, split=split)


def _sparse_features(name: str) -> Float32:
    stored: dict[str, Any] = read(name, "features.csr.npz")
    rows = np.zeros(stored["shape"], np.float32)
    rows[np.repeat(np.arange(len(rows)), np.diff(stored["indptr"])), stored["indices"]] = stored["data"]
    return rows


_DATED: dict[str, Callable[[str], EventStream]] = {
    "ethereum_phishing": _ethereum_phishing,
    "bitcoin_otc": _bitcoin_otc,
    "jodie_wikipedia": _jodie_wikipedia,
    "tags_math_sx": _tags_math_sx,
}
_STATIC = {
    "tolokers": "Crowd workers who did the same tasks, each undirected edge once; label 1 banned; ten splits (S, V)",
    "reddit_fraud": "Reddit users and subreddits; label 1 a banned user",
    "cora": "Citations between papers, each undirected edge once; 7 classes; split 0 train, 1 valid, 2 test",
    "amazon_computers": "Computers bought together, each undirected edge once; 10 classes",
}


def names() -> tuple[str, ...]:
    """Every name that `load` knows."""
    return tuple(dict.fromkeys((*_DATED, *_STATIC, *PUBLISHED)))


def downloadable() -> tuple[str, ...]:
    """The names that `load` can download, by a class of PyG or OGB."""
    return tuple(PUBLISHED)


def load(name: str, *, root: str | Path | None = None, download: bool = False) -> EventStream:
    """The real graph of that name: from the folder of the real data, else from the cache of downloads.

    Args:     root: read what a class of PyG or OGB holds, or downloaded, there; nowhere else is looked.
              download: where nothing is at hand, let that class download, into the cache (~/.cache/livegnn).
    Raises:   DataMissing if the name is unknown or its files are not at hand (the message says where it looked).
    """
    if name not in names():
        raise DataMissing(f"[datasets] expected one of {', '.join(names())}, got {name!r}; choose one of those")
    known = PUBLISHED.get(name)
    if root is not None:
        return _of_root(name, known, Path(root))
    folders = ", ".join(str(folder) for folder in _roots(name))
    missing = DataMissing(f"[datasets] expected {name} in {folders}, got no such files; set LIVEGNN_DATA")
    try:
        if name in _DATED:
            return _DATED[name](name)
        if name in _STATIC:
            return _static(name, _STATIC[name])
    except DataMissing as why:
        missing = why
    if known is None:
        raise missing
    for folder in _roots(name):
        if known.raw(folder) is not None:
            return _of_root(name, known, folder)
    if download:
        return _of_root(name, known, fetch(name, known))
    raise DataMissing(f"{missing}; or let {known.kind} fetch it, by download=True") from missing


def _roots(name: str) -> list[Path]:
    try:
        return [data_folder() / name, cache_folder() / name]
    except DataMissing:
        return [cache_folder() / name]


def _of_root(name: str, known: Published | None, root: Path) -> EventStream:
    if known is None:
        listed = ", ".join(PUBLISHED)
        raise DataMissing(
            f"[datasets] expected one of {listed} with root=, got {name!r}; no class of PyG or OGB has it"
        )
    raw = known.raw(root)
    if raw is None:
        place = f"{', '.join(known.files)} in {root / known.folder}"
        raise DataMissing(f"[datasets] expected {place}, got not all of them; give root= as {known.kind} has it")
    return EventStream(name=name, description=known.text, **known.read(raw))


def from_pyg(dataset: Any) -> EventStream:
    """The stream that an instance of a data set class holds: one of those that `load` downloads, or TemporalData.

    Args:     dataset: JODIEDataset, BitcoinOTC, EllipticBitcoinDataset, OGB's PygNodePropPredDataset of ogbn-arxiv; or
              any whose first graph is a TemporalData.
    Raises:   DataMissing if it is another, or its raw files are gone.

    The first four are read from the raw files, which have times where PyG's processed files have none.
    """
    kind, called = type(dataset).__name__, str(getattr(dataset, "name", ""))
    for name, known in PUBLISHED.items():
        if known.kind == kind and known.arguments in ((), (called,)):
            raw = Path(dataset.raw_dir)
            if all((raw / file).is_file() for file in known.files):
                return EventStream(name=name, description=known.text, **known.read(raw))
    data = dataset[0] if hasattr(dataset, "__getitem__") and len(dataset) == 1 else dataset
    if type(data).__name__ != "TemporalData":
        raise DataMissing(
            f"[datasets] expected the raw files of {', '.join(dict.fromkeys(p.kind for p in PUBLISHED.values()))}, or "
            f"TemporalData, got {kind} {called}".rstrip()
            + "; make a Graph of it: lg.Graph.from_pyg(data)"
        )
    src, dst, time = (int64(column.cpu().numpy()) for column in (data.src, data.dst, data.t))
    order = np.argsort(time, kind="stable")
    count = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
    bipartite = bool(len(src)) and int(dst.min()) > int(src.max())
    name = called or kind
    text = f"{kind} {called}".rstrip()
    return EventStream(name, src[order], dst[order], time[order], count, text, is_bipartite=bipartite)


def load_or_generate(name: str, seed: int = 0, *, download: bool = False) -> EventStream:
    """The real graph if it is at hand, else a generated one of the same shape (`generated` says which).

    Args:     download: as in `load`.
    Raises:   DataMissing if neither is possible.
    """
    try:
        return load(name, download=download)
    except DataMissing:
        if name not in _GENERATORS:
            raise
        return generate_like(name, seed)


def _crowd(random: np.random.Generator, count: int, size: int, skew: float) -> Int64:
    """`size` draws of ids in [0, count), id k with probability ~ (k + 1)^-skew (Zipf)."""
    share = np.arange(1, count + 1, dtype=np.float64) ** -skew
    edge = np.cumsum(share / share.sum())
    return np.minimum(np.searchsorted(edge, random.random(size)), count - 1).astype(np.int64)


def _in_time_order(
    time: npt.NDArray[np.float64], *columns: npt.NDArray[np.generic]
) -> tuple[Int64, list[npt.NDArray[np.generic]]]:
    order = np.argsort(time, kind="stable")
    return time[order].astype(np.int64), [column[order] for column in columns]


def _payments(name: str, seed: int, scale: float) -> EventStream:
    """Honest labelled accounts pay and are paid steadily; fraudulent ones collect from fresh victims, then cash out."""
    random = np.random.default_rng(seed)
    vertices, events = max(400, int(86_622 * scale)), max(1_500, int(106_083 * scale))
    known = max(40, int(445 * scale))
    fraud, honest = np.arange(known), np.arange(known, 2 * known)
    exits = np.arange(2 * known, 2 * known + max(4, known // 40))
    first_other = int(exits[-1]) + 1
    span = 1.0e8
    events_fraud, events_honest = int(events * 0.30), int(events * 0.25)
    events_rest = events - events_fraud - events_honest

    start = np.sort(random.random(known)) * 0.85 * span
    which = random.integers(0, known, events_fraud)
    victims = random.integers(first_other, vertices, events_fraud)
    collects = random.random(events_fraud) < 0.72
    f_src = np.where(collects, victims, fraud[which])
    f_dst = np.where(collects, fraud[which], random.choice(exits, events_fraud))
    f_time = start[which] + random.exponential(0.06 * span, events_fraud) + np.where(collects, 0.0, 0.02 * span)
    f_weight = random.lognormal(np.where(collects, 0.2, 1.2), 1.6)

    which = random.integers(0, known, events_honest)
    others = first_other + _crowd(random, vertices - first_other, events_honest, 0.5)
    gets = random.random(events_honest) < 0.62
    h_src, h_dst = np.where(gets, others, honest[which]), np.where(gets, honest[which], others)
    h_time = random.random(known)[which] * 0.6 * span + random.random(events_honest) * 0.4 * span
    h_weight = random.lognormal(0.6, 1.8, events_honest)

    r_src = first_other + _crowd(random, vertices - first_other, events_rest, 0.5)
    r_dst = random.integers(first_other, vertices, events_rest)
    time, (src, dst, weight) = _in_time_order(
        np.concatenate([f_time, h_time, random.random(events_rest) * span]),
        np.concatenate([f_src, h_src, r_src]),
        np.concatenate([f_dst, h_dst, r_dst]),
        np.concatenate([f_weight, h_weight, random.lognormal(0.4, 1.8, events_rest)]),
    )
    labels = np.full(vertices, -1, dtype=np.int8)
    labels[fraud], labels[honest] = 1, 0
    mistaken = random.random(2 * known) < 0.06  # labels are never perfect
    labels[: 2 * known] ^= mistaken.astype(np.int8)
    split = np.where(labels >= 0, (random.random(vertices) < 0.3).astype(np.int8), np.int8(-1)).astype(np.int8)
    text = f"GENERATED payments of the shape of {name} (seed {seed}): planted fraud, not real accounts"
    columns: dict[str, Any] = {"weight": float32(weight), "labels": labels, "split": split}
    return EventStream(name, int64(src), int64(dst), time, vertices, text, **columns, generated=True)


def _ratings(name: str, seed: int, scale: float) -> EventStream:
    """Traders rate each other; from a date of his own, a dishonest trader collects distrust."""
    random = np.random.default_rng(seed)
    vertices, events = max(100, int(5_881 * scale)), max(600, int(35_592 * scale))
    src = random.permutation(vertices)[_crowd(random, vertices, events, 0.8)]
    dst = random.permutation(vertices)[_crowd(random, vertices, events, 0.7)]
    dst = np.where(src == dst, (dst + 1) % vertices, dst)
    span = 1.6e8
    turns_bad = np.where(random.random(vertices) < 0.15, random.random(vertices) * span, np.inf)
    time = random.random(events) * span
    bad = (time > turns_bad[dst]) & (random.random(events) < 0.75) | (random.random(events) < 0.02)
    rating = np.where(bad, -random.integers(1, 11, events), np.minimum(random.geometric(0.45, events), 10))
    ordered, (src_o, dst_o, rating_o) = _in_time_order(time, src, dst, rating)
    text = f"GENERATED ratings of the shape of {name} (seed {seed}): planted distrust, not real traders"
    weight = float32(rating_o)
    return EventStream(name, int64(src_o), int64(dst_o), ordered, vertices, text, weight=weight, generated=True)


def _edits(name: str, seed: int, scale: float) -> EventStream:
    random = np.random.default_rng(seed)
    users, pages, events = max(80, int(8_227 * scale)), max(10, int(1_000 * scale)), max(800, int(157_474 * scale))
    src, dst = _crowd(random, users, events, 0.9), users + _crowd(random, pages, events, 0.8)
    time = np.sort(random.integers(0, 2_678_400, events)).astype(np.int64)
    text = f"GENERATED edits of the shape of {name} (seed {seed})"
    return EventStream(name, src, dst, time, users + pages, text, generated=True, is_bipartite=True)


def _tags(name: str, seed: int, scale: float) -> EventStream:
    random = np.random.default_rng(seed)
    tags, posts = max(20, int(1_629 * scale)), max(300, int(822_059 * scale))
    per_post = random.choice(np.arange(1, 6), posts, p=[0.30, 0.35, 0.20, 0.10, 0.05])
    post = np.repeat(np.arange(posts, dtype=np.int64), per_post)
    dst = _crowd(random, tags, len(post), 1.0)
    fresh = np.unique(post * tags + dst)
    post, dst = fresh // tags, fresh % tags
    time = np.sort(random.integers(0, 220_000_000_000, posts)).astype(np.int64)[post]
    text = f"GENERATED post-tag edges of the shape of {name} (seed {seed})"
    return EventStream(name, tags + post, dst, time, tags + posts, text, generated=True, is_bipartite=True)


_GENERATORS: dict[str, Callable[[str, int, float], EventStream]] = {
    "ethereum_phishing": _payments,
    "bitcoin_otc": _ratings,
    "jodie_wikipedia": _edits,
    "tags_math_sx": _tags,
}


def generate_like(name: str, seed: int = 0, scale: float = 1.0) -> EventStream:
    """A generated stream of the shape of a real one, `scale` times its size; a function of (name, seed, scale) alone.

    Raises:   DataMissing if there is no generator of that name.
    """
    if name not in _GENERATORS:
        raise DataMissing(
            f"[datasets] expected one of {', '.join(_GENERATORS)} to generate, got {name!r}; load the real one"
        )
    return _GENERATORS[name](name, seed, scale)
