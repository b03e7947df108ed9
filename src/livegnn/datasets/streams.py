"""Graphs whose vertices are of one kind: loaders and generators.

Every loader returns an `EventStream` with int64 ids and contiguous arrays. Where no data is at hand,
`generate_like(name, seed)` makes a stream of the same shape with a planted pattern and says so (`generated`).
Invariant: a dated stream's events are in time order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from livegnn.datasets.folder import Arrays, Float32, Int8, Int64, data_folder, float32, int64, read
from livegnn.errors import DataMissing

__all__ = ["EventStream", "generate_like", "load", "load_or_generate", "names"]


@dataclass(frozen=True, eq=False)
class EventStream:
    """Edges (src[i], dst[i]) at time[i], in time order; a static graph has time None.

    Args:     src, dst: (E,) int64 in [0, vertex_count).   time: (E,) int64, in the source's own unit.
              weight: (E,) float32 (an amount, a rating).   features: (V, F) float32.
              labels: (V,) int8, -1 where unknown.   split: (V,) or (S, V) int8, 0 where a label may train.
    """

    name: str
    src: Int64
    dst: Int64
    time: Int64 | None
    weight: Float32 | None
    features: Float32 | None
    labels: Int8 | None
    split: Int8 | None
    vertex_count: int
    description: str
    generated: bool = False

    @property
    def event_count(self) -> int:
        """Number of edges, E."""
        return len(self.src)


def _sparse_features(name: str) -> Float32:
    path = data_folder() / name / "features.csr.npz"
    if not path.is_file():
        raise DataMissing(f"[datasets] expected {path}, got no such file; set LIVEGNN_DATA to a folder that has it")
    with np.load(path) as stored:
        rows = np.zeros(stored["shape"], np.float32)
        rows[np.repeat(np.arange(len(rows)), np.diff(stored["indptr"])), stored["indices"]] = stored["data"]
    return rows


def _ethereum_phishing() -> EventStream:
    edges, vertices = read("ethereum_phishing", "edges.npz"), read("ethereum_phishing", "nodes.npz")
    labels = np.asarray(vertices["y"], dtype=np.int8)
    return EventStream(
        "ethereum_phishing",
        int64(edges["src"]),
        int64(edges["dst"]),
        int64(edges["t"]),
        float32(edges["amount"]),
        None,
        labels,
        np.asarray(vertices["split"], dtype=np.int8),
        len(labels),
        "Ethereum payments between accounts (ETH, Unix seconds); 445 accounts known for phishing, 445 known not to be",
    )


def _bitcoin_otc() -> EventStream:
    edges = read("bitcoin_otc", "edges.npz")
    return EventStream(
        "bitcoin_otc",
        int64(edges["src"]),
        int64(edges["dst"]),
        int64(edges["t"]),
        float32(edges["rating"]),
        None,
        None,
        None,
        len(edges["node_id"]),
        "Ratings from -10 to 10 between Bitcoin traders (Unix seconds); below 0 is distrust",
    )


def _jodie_wikipedia() -> EventStream:
    edges = read("jodie_wikipedia", "edges.npz")
    src, dst, time = (int64(edges[key]) for key in ("src", "dst", "t"))
    text = "Wikipedia edits, user to page (seconds since the first); users 0..8226, pages 8227..9226"
    return EventStream("jodie_wikipedia", src, dst, time, None, None, None, None, 9227, text)


def _tags_math_sx() -> EventStream:
    edges = read("tags_math_sx", "edges.npz")
    src, dst, time = (int64(edges[key]) for key in ("src", "dst", "t_ms"))
    count = int(max(src.max(), dst.max())) + 1
    text = "Tags on math.stackexchange questions, post to tag (milliseconds since the first); tags 0..1628, then posts"
    return EventStream("tags_math_sx", src, dst, time, None, None, None, None, count, text)


def _static(name: str, file: Arrays, features: Float32, text: str) -> EventStream:
    split = np.asarray(file["split"], dtype=np.int8) if "split" in file else None
    labels = np.asarray(file["y"], dtype=np.int8)
    return EventStream(
        name, int64(file["src"]), int64(file["dst"]), None, None, features, labels, split, len(labels), text
    )


def _tolokers() -> EventStream:
    file = read("tolokers", "graph.npz")
    text = "Crowd workers who did the same tasks, each undirected edge once; label 1 banned; ten splits (S, V)"
    return _static("tolokers", file, float32(file["x"]), text)


def _reddit_fraud() -> EventStream:
    file = read("reddit_fraud", "graph.npz")
    return _static("reddit_fraud", file, float32(file["x"]), "Reddit users and subreddits; label 1 a banned user")


def _cora() -> EventStream:
    text = "Citations between papers, each undirected edge once; 7 classes; split 0 train, 1 valid, 2 test"
    return _static("cora", read("cora", "graph.npz"), _sparse_features("cora"), text)


def _amazon_computers() -> EventStream:
    text = "Computers bought together, each undirected edge once; 10 classes"
    return _static(
        "amazon_computers", read("amazon_computers", "graph.npz"), _sparse_features("amazon_computers"), text
    )


_LOADERS: dict[str, Callable[[], EventStream]] = {
    "ethereum_phishing": _ethereum_phishing,
    "bitcoin_otc": _bitcoin_otc,
    "jodie_wikipedia": _jodie_wikipedia,
    "tags_math_sx": _tags_math_sx,
    "tolokers": _tolokers,
    "reddit_fraud": _reddit_fraud,
    "cora": _cora,
    "amazon_computers": _amazon_computers,
}


def names() -> tuple[str, ...]:
    """Every name that `load` knows."""
    return tuple(_LOADERS)


def load(name: str) -> EventStream:
    """The real graph of that name.

    Raises:   DataMissing if the name is unknown or its files are not at hand (the message says where it looked).
    """
    if name not in _LOADERS:
        raise DataMissing(f"[datasets] expected one of {', '.join(_LOADERS)}, got {name!r}; choose one of those")
    return _LOADERS[name]()


def load_or_generate(name: str, seed: int = 0) -> EventStream:
    """The real graph if it is at hand, else a generated one of the same shape (`generated` says which).

    Raises:   DataMissing if neither is possible.
    """
    try:
        return load(name)
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
    return EventStream(
        name, int64(src), int64(dst), time, float32(weight), None, labels, split, vertices, text, generated=True
    )


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
    return EventStream(
        name,
        int64(src_o),
        int64(dst_o),
        ordered,
        float32(rating_o),
        None,
        None,
        None,
        vertices,
        text,
        generated=True,
    )


def _edits(name: str, seed: int, scale: float) -> EventStream:
    random = np.random.default_rng(seed)
    users, pages, events = max(80, int(8_227 * scale)), max(10, int(1_000 * scale)), max(800, int(157_474 * scale))
    src, dst = _crowd(random, users, events, 0.9), users + _crowd(random, pages, events, 0.8)
    time = np.sort(random.integers(0, 2_678_400, events)).astype(np.int64)
    text = f"GENERATED edits of the shape of {name} (seed {seed})"
    return EventStream(name, src, dst, time, None, None, None, None, users + pages, text, generated=True)


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
    return EventStream(name, tags + post, dst, time, None, None, None, None, tags + posts, text, generated=True)


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
