"""Graphs that data set classes of PyG and OGB download: their raw files, read without PyTorch.

Strategy: a class only fetches. Its raw files have the times that its processed ones leave out, so those are read here,
by NumPy. A root is what the class takes as `root`; the paths below it are the class's own.
"""

from __future__ import annotations

import gzip
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.datasets.folder import Int8, Int64, float32, int8, int64
from livegnn.errors import DataMissing
from livegnn.optional import need

_TIMEOUT_S = 30.0
Columns = dict[str, Any]  # arguments of an EventStream


@dataclass(frozen=True)
class Published:
    """A graph, the class that fetches it, and where its raw files lie below the root.

    Args:     files: the raw files that are read, all of them.   read: their folder -> columns of the stream.
    """

    module: str
    kind: str
    arguments: tuple[str, ...]
    folder: str
    files: tuple[str, ...]
    text: str
    read: Callable[[Path], Columns]

    def raw(self, root: Path) -> Path | None:
        """The folder of the raw files below a root; None where one of them is missing."""
        folder = root / self.folder
        return folder if all((folder / file).is_file() for file in self.files) else None


def cache_folder() -> Path:
    """Where downloads go: $XDG_CACHE_HOME/livegnn, else ~/.cache/livegnn."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "livegnn"


def fetch(name: str, known: Published) -> Path:
    """Lets the class download into the cache folder; returns the root. What breaks off leaves nothing behind.

    Raises:   DataMissing if the class is not installed or could not download.
    """
    root = cache_folder() / name
    part = root.with_name(f"{name}.part")
    maker = getattr(need(known.module, "ogb" if known.module.startswith("ogb") else "pyg"), known.kind)

    def process(self: Any) -> None:
        raise _Downloaded

    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        with _timeout(_TIMEOUT_S):
            if maker.__name__ == "PygNodePropPredDataset":
                type(maker.__name__, (maker,), {"process": process})(*known.arguments, root=str(part))
            else:
                type(maker.__name__, (maker,), {"process": process})(str(part), *known.arguments)
    except _Downloaded:
        pass
    except (Exception, SystemExit) as cause:  # whatever the class and its transport raise
        shutil.rmtree(part, ignore_errors=True)
        raise DataMissing(
            f"[datasets] expected {known.kind} to download {name}, got: {cause}; try again where there is a network"
        ) from cause
    if known.raw(part) is None:
        raise DataMissing(f"[datasets] expected {', '.join(known.files)} of {known.kind}, got none of them in {part}")
    shutil.rmtree(root, ignore_errors=True)
    part.rename(root)
    return root


class _Downloaded(Exception):
    """Ends a class's work when its files are there."""


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


# ---- files


def _numbers(path: Path, columns: Sequence[int] | None = None, skip: int = 0) -> npt.NDArray[np.float64]:
    """A matrix from a CSV file. Raises: DataMissing, naming the file."""
    try:
        return np.loadtxt(path, delimiter=",", usecols=columns, skiprows=skip, ndmin=2, encoding="utf-8")
    except ValueError as cause:
        raise DataMissing(
            f"[{path}] expected rows of numbers, got: {cause}; remove it and download it again"
        ) from cause


def _whole(path: Path, columns: Sequence[int] | None = None, skip: int = 0) -> Int64:
    """The same of whole numbers."""
    try:
        return np.loadtxt(
            path, np.int64, delimiter=",", usecols=columns, skiprows=skip, ndmin=2, encoding="utf-8", converters=_int
        )
    except ValueError as cause:
        raise DataMissing(f"[{path}] expected whole numbers, got: {cause}; remove it and download it again") from cause


def _int(text: str) -> int:
    return int(text) if text.lstrip("+-").isdecimal() else int(float(text))


def _by_time(src: Int64, dst: Int64, time: Int64, **more: Any) -> Columns:
    order = np.argsort(time, kind="stable")
    rows = {"src": src[order], "dst": dst[order], "time": time[order]}
    return rows | {name: values[order] for name, values in more.items()}


def _jodie(name: str) -> Callable[[Path], Columns]:
    def read(folder: Path) -> Columns:
        rows = _whole(folder / f"{name}.csv", (0, 1, 2), skip=1)
        users = int(rows[:, 0].max()) + 1
        columns = _by_time(int64(rows[:, 0]), int64(rows[:, 1] + users), int64(rows[:, 2]))
        return columns | {"vertex_count": int(columns["dst"].max()) + 1, "is_bipartite": True}

    return read


def _bitcoin_otc(folder: Path) -> Columns:
    path = folder / "soc-sign-bitcoinotc.csv"
    rows = _whole(path, (0, 1, 2, 3))
    traders, place = np.unique(rows[:, :2], return_inverse=True)
    ends = int64(place).reshape(-1, 2)
    rating = float32(rows[:, 2])
    return _by_time(ends[:, 0], ends[:, 1], int64(rows[:, 3]), weight=rating) | {"vertex_count": len(traders)}


def _elliptic(folder: Path) -> Columns:
    rows = _numbers(folder / "elliptic_txs_features.csv")
    ids, step = int64(rows[:, 0]), int64(rows[:, 1])
    order = np.argsort(ids)

    def places(wanted: Int64, path: Path) -> Int64:
        found = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
        if (ids[found] != wanted).any():
            raise DataMissing(
                f"[{path}] expected transactions of elliptic_txs_features.csv, got others; download again"
            )
        return int64(found)

    edges = folder / "elliptic_txs_edgelist.csv"
    ends = places(_whole(edges, skip=1).ravel(), edges).reshape(-1, 2)
    path = folder / "elliptic_txs_classes.csv"
    classes = np.loadtxt(path, str, delimiter=",", skiprows=1, ndmin=2, encoding="utf-8")
    labels = np.full(len(ids), -1, np.int8)
    known = {"1": 1, "2": 0}  # illicit, licit
    labels[places(int64(classes[:, 0].astype(np.int64)), path)] = [
        known.get(kind, -1) for kind in classes[:, 1].tolist()
    ]
    split = np.where(labels < 0, np.int8(-1), np.where(step < 35, np.int8(0), np.int8(2)))
    columns = _by_time(ends[:, 0], ends[:, 1], int64(step[ends].max(axis=1)))
    features = float32(rows[:, 2:])
    return columns | {"vertex_count": len(ids), "features": features, "labels": labels, "split": int8(split)}


def _arxiv(folder: Path) -> Columns:
    edges, year = _whole(folder / "edge.csv.gz"), _whole(folder / "node_year.csv.gz")[:, 0]
    labels = int8(_whole(folder / "node-label.csv.gz")[:, 0])
    split: Int8 = np.full(len(labels), -1, np.int8)
    for code, part in enumerate(("train", "valid", "test")):
        split[_whole(folder.parent / "split" / "time" / f"{part}.csv.gz")[:, 0]] = code
    columns = _by_time(int64(edges[:, 0]), int64(edges[:, 1]), int64(year[edges[:, 0]]))
    with gzip.open(folder / "node-feat.csv.gz", "rt") as file:
        features = np.loadtxt(file, np.float32, delimiter=",", ndmin=2)
    return columns | {"vertex_count": len(labels), "features": features, "labels": labels, "split": split}


_PYG, _OGB = "torch_geometric.datasets", "ogb.nodeproppred"
_PAGES = {
    "wikipedia": "Wikipedia edits, user to page",
    "reddit": "Reddit posts, user to subreddit",
    "mooc": "Actions of students in an online course, student to item",
    "lastfm": "Songs that users listened to, user to song",
}
PUBLISHED: dict[str, Published] = {
    f"jodie_{name}": Published(
        _PYG,
        "JODIEDataset",
        (name,),
        f"{name}/raw",
        (f"{name}.csv",),
        f"{text} (seconds since the first)",
        _jodie(name),
    )
    for name, text in _PAGES.items()
} | {
    "bitcoin_otc": Published(
        _PYG,
        "BitcoinOTC",
        (),
        "raw",
        ("soc-sign-bitcoinotc.csv",),
        "Ratings from -10 to 10 between Bitcoin traders (Unix seconds); below 0 is distrust",
        _bitcoin_otc,
    ),
    "elliptic_bitcoin": Published(
        _PYG,
        "EllipticBitcoinDataset",
        (),
        "raw",
        tuple(f"elliptic_txs_{part}.csv" for part in ("features", "edgelist", "classes")),
        "Bitcoin transactions and the flow of money between them (49 time steps of two weeks); label 1 illicit",
        _elliptic,
    ),
    "ogbn_arxiv": Published(
        _OGB,
        "PygNodePropPredDataset",
        ("ogbn-arxiv",),
        "ogbn_arxiv/raw",
        (
            *(f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "node_year")),
            *(f"../split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
        ),
        "Citations between papers on arXiv, dated by the citing one's year; 40 subjects in `labels`",
        _arxiv,
    ),
}
