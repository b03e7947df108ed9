"""What a feature cache reads from: arrays in memory or mapped from a file, a graph, or any object with rows(ids).

A source is the truth; the cache holds copies. `local` sources are read while a batch of a graph is applied: their
changed rows are read again with that batch. Others are read over a network perhaps, where waiting for an answer inside
a batch could be waiting for ever: their changed rows are forgotten before anyone looks, and read when next asked for.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np

from livegnn import _native
from livegnn.errors import (
    DtypeInvalid,
    EdgeMissing,
    EdgeOffloaded,
    FileMissing,
    StorageFailed,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph import Graph
from livegnn.graph.updates import VertexType
from livegnn.stored import file_path
from livegnn.temporal.checks import check_graph
from livegnn.types import AnyArray, BoolArray, Int64Array


@runtime_checkable
class FeatureSource(Protocol):
    """Any place that rows come from: a table of another process, a database.

    rows(ids): ids (k,) int64, each once, in [0, row_count) -> (k, row_width) array or CPU tensor, of `dtype` if the
    object has one, else float32; row i for ids[i]. row_count may grow. What it raises leaves the cache as it was.
    """

    @property
    def row_width(self) -> int:
        """d, at least 0."""

    @property
    def row_count(self) -> int:
        """Rows there are now."""

    def rows(self, ids: Int64Array) -> Any:
        """The rows of ids."""


class RowSource(ABC):
    """A FeatureSource as the cache sees it. graph: what it is a view of; edges: of its edges, not its vertices."""

    local: bool = True
    graph: Graph | None = None
    edges: bool = False
    row_width: int
    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Rows there are now."""

    @property
    def in_memory(self) -> AnyArray | None:
        """The array itself, where reading it costs no more than reading a copy would."""
        return None

    @abstractmethod
    def read(self, ids: Int64Array) -> AnyArray:
        """(k, row_width) of dtype, C-contiguous; ids unique and within row_count."""

    def mapped(self) -> AnyArray | None:
        """The array to gather from, in place of read(), or None."""
        return None

    def present(self, ids: Int64Array) -> BoolArray:
        """Which of the ids have rows now; any int64 are taken."""
        return (ids >= 0) & (ids < self.row_count)

    def refuse(self, where: str, given: int, row: int) -> NoReturn:
        """Says that this id has no row."""
        raise ValueInvalid(
            f"[{where}] expected ids from 0 to {self.row_count - 1}, got {given} at row {row}; "
            "fix the ids, or give a source with more rows (resize)"
        )

    def lock(self) -> AbstractContextManager[Any]:
        """Held before the cache's own lock and as long, so that all rows of a fetch are of one version."""
        return nullcontext()


class _ArrayRows(RowSource):
    """A (N, d) array; a memory map is a tier below, read in one batch like any other.

    Touching a page that its file has no more ends the process. So the file's length is looked at before each read; one
    that is cut during a read is not found out (docs/feature-cache.md).
    """

    def __init__(self, array: AnyArray) -> None:
        self._array, self._map = array, _map_of(array)
        self._map_bytes = 0 if self._map is None else self._map.size()
        self.row_width, self.dtype = int(array.shape[1]), array.dtype

    @property
    def row_count(self) -> int:
        return len(self._array)

    @property
    def in_memory(self) -> AnyArray | None:
        return None if self._map is not None else self._array

    def mapped(self) -> AnyArray | None:
        self._refuse_shorter()
        return self._array

    def read(self, ids: Int64Array) -> AnyArray:
        self._refuse_shorter()
        return np.take(self._array, ids, axis=0)

    def _refuse_shorter(self) -> None:
        if self._map is not None and (now := self._map.size()) < self._map_bytes:
            name = getattr(self._array, "filename", None) or "of the array"
            raise StorageFailed(
                f"[FeatureCache] expected the mapped file {name} to keep its {self._map_bytes} bytes, got {now}; write "
                "a new file and resize(features=...) to it, and change no file that is mapped"
            )


def _map_of(array: AnyArray) -> mmap.mmap | None:
    """The memory map that an array's bytes lie in, or None."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


class _RowsOfGraph(RowSource):
    """Rows that a graph holds; they are read under its lock."""

    graph: Graph

    def __init__(self, graph: Graph, row_width: int) -> None:
        self.graph, self.row_width, self.dtype = graph, row_width, np.dtype(np.float32)

    def lock(self) -> AbstractContextManager[Any]:
        return self.graph.host.lock


class _VertexRows(_RowsOfGraph):
    """Features by slot, of one type; of all types rows of the widest type's width, filled with zeros."""

    def __init__(self, graph: Graph, vertex_type: VertexType | None) -> None:
        schema = graph.host.schema
        self._code = -1 if vertex_type is None else schema.vertex_code("FeatureCache", vertex_type)
        super().__init__(graph, graph.feature_width if vertex_type is None else schema.widths[self._code])

    @property
    def row_count(self) -> int:
        return self.graph.slot_count

    def read(self, ids: Int64Array) -> AnyArray:
        if self._code >= 0 and (types := self.graph.host.store.slot_types(ids) != self._code).any():
            self.refuse("fetch", int(ids[types][0]), int(np.argmax(types)))
        return self.graph.host.store.features(ids, self.row_width)

    def present(self, ids: Int64Array) -> BoolArray:
        live = self.graph.host.store.live()
        inside = super().present(ids)
        inside[inside] = live[ids[inside]]
        if self._code >= 0:
            inside[inside] = self.graph.host.store.slot_types(ids[inside]) == self._code
        return inside

    def refuse(self, where: str, given: int, row: int) -> NoReturn:
        of_type = "" if self._code < 0 else self.graph.host.schema.of_type(self._code)
        raise VertexUnknown(
            f"[{where}] expected slots of live vertices{of_type}, below {self.row_count} (version "
            f"{self.graph.version}), got {given} at row {row}; add the vertex first"
        )


class _EdgeRows(_RowsOfGraph):
    """Attributes by edge id."""

    edges = True

    @property
    def row_count(self) -> int:
        return self.graph.host.store.next_edge_id

    def read(self, ids: Int64Array) -> AnyArray:
        try:
            return _native.edge_attrs(self.graph.host.store, ids)
        except (EdgeMissing, EdgeOffloaded):
            self._refuse_offloaded("fetch", ids)
            raise

    def present(self, ids: Int64Array) -> BoolArray:
        return _native.edges_there(self.graph.host.store, ids).astype(np.bool_)

    def refuse(self, where: str, given: int, row: int) -> NoReturn:
        if 0 <= given < self.row_count:
            self._refuse_offloaded(where, np.array([given]))
        raise EdgeMissing(
            f"[{where}] expected ids of edges that are there, below {self.row_count} (version {self.graph.version}), "
            f"got {given} at row {row}; add the edge first"
        )

    def _refuse_offloaded(self, where: str, ids: Int64Array) -> None:
        """Where edges lie in files, an edge that is not in memory may be one of them."""
        away = self.graph.offloaded
        if away.count:
            given = int(ids[np.argmin(self.present(ids))])
            raise EdgeOffloaded(
                f"[{where}] expected ids of edges in memory, got {given}, which was removed or lies in a file with the "
                f"{away.count} before {away.before}; call graph.reload() first"
            )


class _ObjectRows(RowSource):
    """A user's FeatureSource; what it answers is checked, every time."""

    local = False

    def __init__(self, source: FeatureSource) -> None:
        self._source = source
        self.row_width = int(source.row_width)
        self.dtype = _checked_dtype(np.dtype(getattr(source, "dtype", np.float32)))

    @property
    def row_count(self) -> int:
        return int(self._source.row_count)

    def read(self, ids: Int64Array) -> AnyArray:
        rows = np.asarray(self._source.rows(ids))
        expected = (len(ids), self.row_width)
        if rows.shape != expected:
            raise WidthMismatch(f"[fetch] expected rows of shape {expected} from the source, got {rows.shape}; fix it")
        if rows.dtype != self.dtype:
            raise DtypeInvalid(f"[fetch] expected {self.dtype} rows from the source, got {rows.dtype}; convert them")
        return np.ascontiguousarray(rows)


def _checked_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype in (np.float32, np.float16):
        return dtype
    raise DtypeInvalid(f"[FeatureCache] expected float32 or float16 features, got {dtype}; convert them")


def edge_source(graph: Graph) -> RowSource:
    """The attributes of a graph's edges, by edge id. Raises: UsageError."""
    check_graph("of_edges", graph)
    return _EdgeRows(graph, graph.attr_width)


def source_of(features: object, vertex_type: VertexType | None = None) -> RowSource:
    """The source that `features` means. Raises: DtypeInvalid, WidthMismatch, ValueInvalid, UsageError."""
    if isinstance(features, RowSource):
        return features
    if isinstance(features, Graph):
        return _VertexRows(features, vertex_type)
    if vertex_type is not None:
        raise UsageError(
            f"[FeatureCache] expected vertex_type= with a Graph, got one with a {type(features).__name__}; leave it out"
        )
    if isinstance(features, str | PathLike):
        return _array_rows(_mapped_file(features))
    device = getattr(features, "device", None)
    if hasattr(features, "detach") and getattr(device, "type", "cpu") == "cpu":
        return _array_rows(_tensor_array(features))
    if isinstance(features, np.ndarray):
        return _array_rows(features)
    if isinstance(features, FeatureSource) and device is None:
        return _ObjectRows(features)
    where = f" on {device}" if hasattr(features, "detach") else ""
    raise UsageError(
        "[FeatureCache] expected features as an array or tensor in main memory, the path of a .npy file, a Graph, or "
        f"an object with rows(ids), row_width and row_count; got {type(features).__name__}{where}; convert them"
    )


def _mapped_file(path: str | PathLike[str]) -> AnyArray:
    """The array of a .npy file. Raises: UsageError for another kind of file; FileMissing; StorageFailed."""
    place = file_path("FeatureCache", path)
    try:
        found: Any = np.load(place, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as cause:
        raise FileMissing(
            f"[FeatureCache] expected a .npy file at {place}, got no such file; look at the path"
        ) from cause
    except OSError as cause:
        raise StorageFailed(f"[FeatureCache] expected to read {place}, got {cause.strerror!r}; look at it") from cause
    except (ValueError, EOFError) as cause:
        raise UsageError(
            f"[FeatureCache] expected a .npy file of numbers at {path}, got another ({cause}); write one with "
            "numpy.save"
        ) from cause
    if not isinstance(found, np.ndarray):
        found.close()
        raise UsageError(
            f"[FeatureCache] expected a .npy file of one array at {path}, got several (.npz); write one with numpy.save"
        )
    return found


def _tensor_array(tensor: Any) -> AnyArray:
    try:
        found: AnyArray = tensor.detach().numpy()
    except TypeError as cause:  # a type that NumPy does not have, as bfloat16
        raise DtypeInvalid(
            f"[FeatureCache] expected float32 or float16 features, got {tensor.dtype}; convert them"
        ) from cause
    return found


def _array_rows(array: AnyArray) -> RowSource:
    if array.ndim != 2:
        raise WidthMismatch(f"[FeatureCache] expected features of shape (N, d), got {array.shape}; reshape them")
    _checked_dtype(array.dtype)
    if not array.flags.c_contiguous:
        raise ValueInvalid(
            "[FeatureCache] expected features whose rows lie one after another (C order), got another layout; "
            "pass numpy.ascontiguousarray(features)"
        )
    return _ArrayRows(array)
