"""Dated graphs with several types of vertices and edges: loaders and generators.

`alibaba_ecomm` has users and items. Each of its four kinds of behaviour is an edge type of its own, from user to item:
Click, Collect, Cart, Buy. CoPurchase is derived: two items that one user bought on one day are joined, both ways. The
source gives days, and no order within them but that of its rows: a day's behaviour comes first, then the co-purchases
that it made.
Features: see `_user_rows` and `_item_rows`. Invariant: events are in time order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from livegnn.datasets.folder import Arrays, Float32, Int64, int64, read
from livegnn.errors import DataMissing
from livegnn.graph import Graph, Updates

Int32 = npt.NDArray[np.int32]
Columns = tuple[Int64, Int64, Int32, Int64]  # src, dst, edge type, time

_BEHAVIOUR = ("Click", "Collect", "Cart", "Buy")
_EDGE_TYPES = (*(("User", name, "Item") for name in _BEHAVIOUR), ("Item", "CoPurchase", "Item"))
_BUY, _CO_PURCHASE = 3, 4
_CATEGORY_WIDTH, _BRAND_WIDTH = 16, 6


@dataclass(frozen=True, eq=False)
class TypedStream:
    """Edges of several types in time order, between vertices of several types, all there from the start.

    Args:     features: (V, F) float32 by vertex type.  edge_types: (src type, name, dst type), a code being a place.
              src, dst: (E,) int64 ids within the types that the edge's type joins.  edge_type: (E,) int32 codes.
              time: (E,) int64, rising, in the source's own unit.
    """

    name: str
    features: dict[str, Float32]
    edge_types: tuple[tuple[str, str, str], ...]
    src: Int64
    dst: Int64
    edge_type: Int32
    time: Int64
    description: str
    generated: bool = False

    @property
    def event_count(self) -> int:
        """Number of edges, E."""
        return len(self.src)

    def code(self, name: str) -> int:
        """The code of an edge type. Raises: DataMissing for a name that the stream does not have."""
        names = [edge_type[1] for edge_type in self.edge_types]
        if name not in names:
            raise DataMissing(f"[{self.name}] expected one of {', '.join(names)}, got {name!r}; choose one of those")
        return names.index(name)

    def graph(self, until: int = 0) -> Graph:
        """The graph after events [0, until), all vertices included."""
        parts = {key: np.flatnonzero(self.edge_type[:until] == code) for code, key in enumerate(self.edge_types)}
        src, dst, time = (
            {key: column[part] for key, part in parts.items()} for column in (self.src, self.dst, self.time)
        )
        return Graph(self.features, src, dst, time=time)

    def updates(self, begin: int, end: int) -> Updates:
        """Events [begin, end) as one batch."""
        batch = Updates()
        part = slice(begin, end)
        batch.add_edges(self.src[part], self.dst[part], time=self.time[part], edge_type=self.edge_type[part])
        return batch


def typed_names() -> tuple[str, ...]:
    """Every name that `load_typed` knows."""
    return ("alibaba_ecomm",)


def load_typed(name: str) -> TypedStream:
    """The real graph of that name.

    Raises:   DataMissing if the name is unknown or its files are not at hand (the message says where it looked).
    """
    _refuse_unknown(name)
    edges, vertices = read(name, "edges.npz"), read(name, "nodes.npz")
    users, items = _user_rows(vertices), _item_rows(vertices)
    src, dst = int64(edges["src"]), int64(edges["dst"]) - len(users)
    kind = np.asarray(edges["etype"], dtype=np.int32) - 1
    text = "Shopping on Taobao (Alibaba): what 1,500 users clicked, collected, carted and bought, day by day"
    return _stream(name, users, items, (src, dst, kind, int64(edges["t_day"])), text, generated=False)


def load_or_generate_typed(name: str, seed: int = 0) -> TypedStream:
    """The real graph if it is at hand, else a generated one of the same shape (`generated` says which).

    Raises:   DataMissing for an unknown name.
    """
    try:
        return load_typed(name)
    except DataMissing:
        return generate_typed(name, seed)


def generate_typed(name: str, seed: int = 0, scale: float = 1.0) -> TypedStream:
    """A generated stream of the shape of a real one, `scale` times its size; a function of (name, seed, scale) alone.

    Users have a few favourite categories each, and stay with them.

    Raises:   DataMissing for an unknown name.
    """
    _refuse_unknown(name)
    random = np.random.default_rng(seed)
    users, items, events = max(20, int(1_500 * scale)), max(120, int(36_224 * scale)), max(900, int(85_213 * scale))
    categories = max(6, items // 90)
    category = random.integers(0, categories, items)
    by_category = [np.flatnonzero(category == k) for k in range(categories)]
    favourites = random.integers(0, categories, (users, 3))
    src = np.minimum((random.random(events) ** 2 * users).astype(np.int64), users - 1)
    wanted = favourites[src, random.integers(0, 3, events)]
    liked = np.array(
        [random.choice(by_category[k]) if len(by_category[k]) else -1 for k in wanted.tolist()], dtype=np.int64
    )
    strays = (random.random(events) < 0.2) | (liked < 0)
    dst = np.where(strays, random.integers(0, items, events), liked)
    kind = random.choice(4, events, p=[0.68, 0.065, 0.175, 0.08]).astype(np.int32)
    time = np.sort(random.integers(18_057, 18_067, events)).astype(np.int64)
    vertices: Arrays = {
        "user_x": random.integers(-1, 5, (users, 5)).astype(np.float32),
        "user_stage": random.integers(0, 2, (users, 10)).astype(np.uint8),
        "item_cat": np.stack([np.zeros(items, np.int64), category, random.integers(0, 9, items)], axis=1),
        "item_price": random.lognormal(3.6, 1.2, items).astype(np.float32),
    }
    text = f"GENERATED shopping of the shape of {name} (seed {seed}): planted tastes, not real users"
    user_rows, item_rows = _user_rows(vertices), _item_rows(vertices)
    return _stream(name, user_rows, item_rows, (src, dst, kind, time), text, generated=True)


def _refuse_unknown(name: str) -> None:
    if name not in typed_names():
        raise DataMissing(f"[datasets] expected one of {', '.join(typed_names())}, got {name!r}; choose one of those")


def _stream(
    name: str, users: Float32, items: Float32, behaviour: Columns, text: str, *, generated: bool
) -> TypedStream:
    derived = _co_purchases(*behaviour)
    src, dst, time = (np.concatenate([behaviour[i], derived[i]]) for i in (0, 1, 3))
    kind = np.concatenate([behaviour[2], derived[2]])
    order = np.argsort(time, kind="stable")  # within a day: behaviour, then what follows from it
    features = {"User": users, "Item": items}
    return TypedStream(name, features, _EDGE_TYPES, src[order], dst[order], kind[order], time[order], text, generated)


def _co_purchases(src: Int64, dst: Int64, kind: Int32, time: Int64) -> Columns:
    """Both ways between any two items that one user bought on one day, once a user and day; in order of day, user."""
    bought = np.unique(np.stack([time, src, dst], axis=1)[kind == _BUY], axis=0)
    turns = np.flatnonzero((np.diff(bought[:, :2], axis=0) != 0).any(axis=1)) + 1
    parts: list[Int64] = []
    for basket in np.split(bought, turns):
        first, second = np.nonzero(~np.eye(len(basket), dtype=np.bool_))
        parts.append(np.stack([basket[first, 2], basket[second, 2], basket[first, 0]], axis=1))
    pairs = np.concatenate(parts)
    codes = np.full(len(pairs), _CO_PURCHASE, dtype=np.int32)
    return pairs[:, 0], pairs[:, 1], codes, pairs[:, 2]


def _user_rows(vertices: Arrays) -> Float32:
    """(users, 20): five scaled attributes, 0 where missing; five flags of what is missing; ten life stages."""
    raw = np.asarray(vertices["user_x"], dtype=np.float64)
    missing = ~(raw >= 0)
    scale = np.maximum(np.where(missing, 0.0, raw).max(axis=0), 1.0)
    stages = np.asarray(vertices["user_stage"], dtype=np.float64)
    return np.hstack([np.where(missing, 0.0, raw) / scale, missing, stages]).astype(np.float32)


def _item_rows(vertices: Arrays) -> Float32:
    """(items, 24): log price; a flag of a known brand; random signatures of category (16) and brand (6), 0 unknown."""
    price = np.log1p(np.asarray(vertices["item_price"], dtype=np.float64)) / 5.0
    codes = np.asarray(vertices["item_cat"], dtype=np.int64)
    category, brand = _signatures(codes[:, 1], _CATEGORY_WIDTH), _signatures(codes[:, 2], _BRAND_WIDTH)
    return np.hstack([price[:, None], (codes[:, 2] > 0)[:, None], category, brand]).astype(np.float32)


def _signatures(codes: Int64, width: int) -> npt.NDArray[np.float64]:
    values, place = np.unique(codes, return_inverse=True)
    table = np.random.default_rng(1).standard_normal((len(values), width)) / np.sqrt(width)
    table[values <= 0] = 0.0
    return np.asarray(table[place])
