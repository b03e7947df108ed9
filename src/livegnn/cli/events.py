"""The user's file of events: edges that come, go or change their weights, row by row, as batches of updates."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from livegnn import files
from livegnn.cli.console import Console
from livegnn.errors import ColumnMissing, DegreeNegative, RangeOverflow, UpdateError, ValueInvalid

if TYPE_CHECKING:
    from livegnn.graph import Graph, Updates

Ids = npt.NDArray[Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class ColumnNames:
    """Names of the columns of an events file; None leaves one out. op is read where there is one of that name."""

    src: str = "src"
    dst: str = "dst"
    op: str | None = None
    weight: str | None = None
    time: str | None = None


@dataclass(frozen=True, eq=False)
class EventRows:
    """Columns of the events file: add edges, remove them or set their weights, row by row."""

    table: files.Table
    src: Ids
    dst: Ids
    op: Ids | None = None
    weight: npt.NDArray[np.float32] | None = None
    time: npt.NDArray[np.int64] | None = None
    edge_type: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True, eq=False)
class KnownVertices:
    """Ids of the vertices, of which `features` is the file. advice: what to do about an id that is none of them."""

    ids: Ids
    features: Path
    advice: str = "fix the file"

    @classmethod
    def of(cls, count: int, ids: Ids | None, features: Path, id_option: str = "--id-column ") -> Self:
        """Vertices with ids, or numbered by their rows; id_option: how the user names the column of ids."""
        if ids is not None:
            return cls(ids, features)
        where = "; .npy has no such column" if features.suffix.lower() == ".npy" else ""
        advice = f"vertices are row numbers from 0, unless {id_option}NAME names the column of their ids{where}"
        return cls(np.arange(count, dtype=np.int64), features, advice)


def read_events(path: Path, columns: ColumnNames, known: KnownVertices) -> EventRows:
    """The events file, checked as far as it can be without the graph; errors name file, row and column."""
    table = files.read_table(path)
    src, dst = table.ids(columns.src), table.ids(columns.dst)
    for name, column in ((columns.src, src), (columns.dst, dst)):
        refuse_unknown(table, name, column, known)
    op_column = columns.op or ("op" if "op" in table.columns else None)
    op = None if op_column is None else table.ops(op_column)
    weight = None if columns.weight is None else table.float32(columns.weight)
    if op is not None and weight is None and (op == "set_weight").any():
        row = int(np.argmax(op == "set_weight"))
        raise ColumnMissing(table.error(row, str(op_column), "--weight-column with set_weight", "none"))
    time = None if columns.time is None else table.times(columns.time)
    return EventRows(table, src, dst, op, weight, time)


def read_edges(path: Path, columns: ColumnNames, known: KnownVertices) -> EventRows:
    """The file of edges that are there before the first event, which is one of events that all add."""
    edges = read_events(path, columns, known)
    if edges.op is not None and (edges.op != "add").any():
        row = int(np.argmax(edges.op != "add"))
        expected = "add in a file of edges"
        raise ValueInvalid(edges.table.error(row, columns.op or "op", expected, edges.op[row]))
    return edges


@dataclass(frozen=True, eq=False)
class UserFiles:
    """What the options --features, --edges and --events name. known: ids of the vertices; ids: where they are given."""

    features: npt.NDArray[np.float32]
    ids: Ids | None
    known: Ids
    edges: EventRows | None
    events: EventRows

    def graph(self, undirected: bool) -> Graph:
        """The graph before the first event, with the columns of the events; its vertices have no types."""
        import livegnn as lg

        rows, count = (self.events, 0) if self.edges is None else (self.edges, len(self.edges))
        columns = {"weight": rows.weight, "time": rows.time, "edge_type": rows.edge_type}
        given: dict[str, Any] = {name: values[:count] for name, values in columns.items() if values is not None}
        ids = None if self.ids is None else listed(self.ids)
        src, dst = listed(rows.src[:count]), listed(rows.dst[:count])
        return lg.Graph(self.features, src, dst, **given, ids=ids, undirected=undirected)


def read_files(options: argparse.Namespace, *, kind_column: str | None = None, times: bool) -> UserFiles:
    """The user's files, checked. times: whether the time column goes to the graph."""
    features, ids = files.read_features(options.features, options.id_column, kind_column)
    known = KnownVertices.of(len(features), ids, options.features)
    columns = ColumnNames(
        options.src_column,
        options.dst_column,
        options.op_column,
        options.weight_column,
        options.time_column if times else None,
    )
    events = read_events(options.events, columns, known)
    edges = None if options.edges is None else read_edges(options.edges, columns, known)
    if edges is not None and columns.time is not None and len(edges) and len(events):
        _refuse_two_clocks(edges.table, events.table, columns.time)
    return UserFiles(features, ids, known.ids, edges, events)


def _refuse_two_clocks(edges: files.Table, events: files.Table, name: str) -> None:
    """Raises ValueInvalid where one file has dates and the other has numbers, which count in another unit."""
    if edges.has_dates(name) != events.has_dates(name):
        expected = f"{'dates' if events.has_dates(name) else 'whole numbers'} as in {events.path}"
        raise ValueInvalid(edges.error(0, name, expected, edges.column(name)[:1].tolist()[0]))


def listed(ids: Ids) -> Any:
    """Ids as the library takes them: an array of whole numbers, or a list of strings."""
    return ids if ids.dtype.kind == "i" else ids.tolist()


def refuse_disorder(events: EventRows, name: str) -> None:
    """Raises ValueInvalid, naming the row, where column `name` goes back in time."""
    times = events.table.times(name)
    back = np.flatnonzero(times[1:] < times[:-1])
    if len(back):
        row = int(back[0]) + 1
        above, got = (str(value) for value in events.table.column(name)[row - 1 : row + 1])
        raise ValueInvalid(events.table.error(row, name, f"a time not before {above} (the row above)", got))


def refuse_unknown(table: files.Table, name: str, column: Ids, vertices: KnownVertices) -> None:
    """Raises ValueInvalid, naming the row, where a column has an id that is not known."""
    known, features = vertices.ids, vertices.features
    if column.dtype != known.dtype and len(column):
        whole = known.dtype.kind == "i"
        row = next((i for i, value in enumerate(column.tolist()) if not _is_whole(value)), 0) if whole else 0
        expected = f"vertex ids of the kind in {features} ({'whole numbers' if whole else 'strings'})"
        raise ValueInvalid(table.error(row, name, expected, column[row : row + 1].tolist()[0], vertices.advice))
    if known.dtype.kind == "i":
        wrong = ~np.isin(column, known)
    else:
        names = set(known.tolist())
        wrong = np.fromiter((value not in names for value in column.tolist()), dtype=np.bool_, count=len(column))
    if wrong.any():
        row = int(np.argmax(wrong))
        expected = f"a vertex of {features} ({len(known):,} rows)"
        raise ValueInvalid(table.error(row, name, expected, column[row : row + 1].tolist()[0], vertices.advice))


def _is_whole(value: object) -> bool:
    try:
        int(str(value))
    except ValueError:
        return False
    return True


def make_updates(events: EventRows, begin: int, end: int) -> Updates:
    """Rows [begin, end) as one batch: runs of equal ops become one call each, so that order is kept."""
    import livegnn as lg

    updates = lg.Updates()
    if events.op is None:
        _append(updates, events, "add", begin, end)
        return updates
    ops = events.op[begin:end]
    edges = np.flatnonzero(np.concatenate([[True], ops[1:] != ops[:-1], [True]])) + begin
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        _append(updates, events, str(events.op[first]), first, last)
    return updates


def _append(updates: Any, events: EventRows, op: str, first: int, last: int) -> None:
    src, dst = listed(events.src[first:last]), listed(events.dst[first:last])
    weight = None if events.weight is None else events.weight[first:last]
    edge_type = None if events.edge_type is None else events.edge_type[first:last]
    if op == "add":
        time = None if events.time is None else events.time[first:last]
        updates.add_edges(src, dst, weight=weight, time=time, edge_type=edge_type)
    elif op == "remove":
        updates.remove_edges(src, dst, edge_type=edge_type)
    else:
        updates.set_weights(src, dst, weight, edge_type=edge_type)


@dataclass(frozen=True)
class PlayedEvents:
    """How long each batch took, the making of it included, and whether Ctrl-C ended the play."""

    seconds: list[float]
    interrupted: bool


def play(
    console: Console,
    count: int,
    batch: int,
    apply: Callable[[int, int], Result],
    after: Callable[[int, Result], None] = lambda done, result: None,
) -> PlayedEvents:
    """apply(begin, end) of all batches, or of those before Ctrl-C; after(batches so far, its result) is not timed."""
    seconds: list[float] = []
    try:
        with console.progress(count, "events") as advance:
            for begin in range(0, count, batch):
                end = min(begin + batch, count)
                clock = time.perf_counter()
                result = apply(begin, end)
                seconds.append(time.perf_counter() - clock)
                after(len(seconds), result)
                advance(end, f"{end / sum(seconds):,.0f} events/s")
    except KeyboardInterrupt:
        return PlayedEvents(seconds, True)
    return PlayedEvents(seconds, False)


def apply_rows(apply: Callable[[Updates], Result], events: EventRows, begin: int, end: int) -> Result:
    """apply(rows [begin, end) as one batch); a refusal names the row of the file."""
    with rows_named(events, begin, end, "the batch"):
        return apply(make_updates(events, begin, end))


@contextmanager
def rows_named(events: EventRows, begin: int, end: int, what: str) -> Iterator[None]:
    """A refusal in the block, of `what` rows [begin, end) make, names the row of the file."""
    try:
        yield
    except UpdateError as cause:
        row = _bad_weight(events, begin, end, cause) if cause.update is None else begin + cause.update  # one each
        rows = f"rows {begin + 1} to {end}" if row is None else f"row {row + 1}"
        weight = ""
        if cause.update is None and row is not None and events.weight is not None:
            weight = f"weight {events.weight[row]:g}: "
        place = f"{events.table.path}, {rows}"
        raise cause.reworded(f"[{place}] {what} was refused: {weight}{cause}", where=place) from cause


def _bad_weight(events: EventRows, begin: int, end: int, cause: UpdateError) -> int | None:
    """The row whose weight a sum cannot take: the largest of those that it could be; None if it is none of them."""
    if events.weight is None or not isinstance(cause, DegreeNegative | RangeOverflow) or begin == end:
        return None
    weight = events.weight[begin:end]
    size = np.abs(weight) if isinstance(cause, RangeOverflow) else -weight
    at = np.zeros(end - begin, np.bool_)
    for ids in (events.src[begin:end], events.dst[begin:end]):
        at |= np.asarray(ids == cause.vertex, dtype=np.bool_)
    size = np.where(at, size, 0) if (size[at] > 0).any() else size
    return begin + int(np.argmax(size)) if size.max() > 0 else None
