"""What `livegnn sample` plays: a graph, the events that follow, the query, the seeds. Everything is read and checked
before anything is played.

A data set brings a graph with types. The user's files give one without types of vertices, where --type-column has whole
numbers; or, with --vertex-type-column, one with types, where --type-column has names. An edge type then joins the types
of its ends, as in ("User", "Click", "Item").
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import livegnn as lg
from livegnn import datasets, files
from livegnn.cli.arguments import loaded
from livegnn.cli.console import Console
from livegnn.cli.events import EventRows, Ids, UserFiles, apply_rows, listed, read_files
from livegnn.errors import DataMissing, DtypeInvalid, QueryInvalid, UsageError, ValueInvalid
from livegnn.sampling.queries.expiry import Ttl
from livegnn.sampling.queries.hop import EdgeTypeName

PAPER_QUERY = (
    "g.V('User', ID).alias('Seed').OutV('Click').sample(25).by('Random')"
    ".OutV('CoPurchase').sample(10).by('TopK').values"
)
_INT32_MAX = 2**31 - 1
Triple = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class EventSource:
    """The graph before the first event, and how events [begin, end) are given to apply, as one batch."""

    title: str
    graph: lg.Graph
    query: lg.sampling.Query
    event_count: int
    play: Callable[[Callable[[lg.Updates], int], int, int], int]


def open_source(options: argparse.Namespace, console: Console) -> EventSource:
    """The source that the options name: the user's files, or a data set. The query is read before either."""
    if options.features is None:
        return _of_dataset(options, read_query(options.query or PAPER_QUERY), console)
    if options.query is None:
        raise UsageError("[sample] expected --query with files of your own, got none; see docs/queries.md")
    query = read_query(options.query)
    _refuse_missing_columns(options, query)
    return _of_files(options, query)


def named_files(options: argparse.Namespace) -> list[Path]:
    """What --seeds and --query read, where they name files."""
    query = options.query or ""
    seeds = [] if options.seeds.isdecimal() else [Path(options.seeds)]
    return [*seeds, Path(query[1:])] if query.startswith("@") else seeds


def read_query(text: str) -> lg.sampling.Query:
    """A query from its text, its JSON, or @FILE with either. Raises: QueryInvalid, DataMissing."""
    if text.startswith("@"):
        path = Path(text[1:])
        if not path.is_file():
            raise DataMissing(f"[--query {text}] expected a file, got nothing there; check the path")
        text = "".join(files.read_lines(path))
    return lg.sampling.Query.from_json(text) if text.lstrip().startswith("{") else lg.sampling.Query.parse(text)


def read_ttl(texts: list[str] | None) -> Ttl:
    """Durations from DURATION or TYPE=DURATION, each once. Raises: ValueInvalid."""
    if not texts:
        return None
    found: dict[EdgeTypeName, int] = {}
    for text in texts:
        name, _, duration = text.rpartition("=")
        if not duration.isdecimal():
            raise ValueInvalid(f"[--ttl {text}] expected DURATION or TYPE=DURATION, got {duration!r}; fix it")
        key = int(name) if name.isdecimal() else name or None
        if key in found:
            raise ValueInvalid(f"[--ttl {text}] expected each type once, got it again; leave one out")
        found[key] = int(duration)
    return found


def check_seeds(text: str) -> None:
    """Refuses what no graph has seeds for. Raises: DataMissing, ValueInvalid."""
    if text.isdecimal() and not int(text):
        raise ValueInvalid(f"[--seeds {text}] expected at least one seed, got none; name how many")
    if not text.isdecimal() and not Path(text).is_file():
        raise DataMissing(f"[--seeds {text}] expected a file or a number, got neither; check the path")


def read_seeds(text: str, graph: lg.Graph, vertex_type: str | None, seed: int) -> Ids:
    """Seeds from a file with one id a line, or so many vertices of the type, drawn at random.

    Raises:   DataMissing, ValueInvalid naming the row.
    """
    check_seeds(text)
    there = graph.vertices(vertex_type)
    if text.isdecimal():
        if not len(there):
            raise ValueInvalid(f"[--seeds {text}] expected a graph with vertices to draw from, got none; load some")
        return np.random.default_rng(seed).permutation(there)[: int(text)]
    path = Path(text)
    lines = [line.strip() for line in files.read_lines(path)]
    lines = [line for line in lines if line]
    known = {str(vertex): vertex for vertex in there.tolist()}
    for row, line in enumerate(lines):
        if line not in known:
            kind = "" if vertex_type is None else f" of type {vertex_type!r}"
            raise ValueInvalid(f"[{path}, row {row + 1}] expected a vertex{kind}, got {line!r}; fix the file")
    if not lines:
        raise ValueInvalid(f"[{path}] expected ids, one a line, got an empty file; name some")
    return np.array([known[line] for line in lines], dtype=there.dtype)


# ---- a data set


def _of_dataset(options: argparse.Namespace, query: lg.sampling.Query, console: Console) -> EventSource:
    name = options.dataset
    load = None if options.generated else lambda: datasets.load_typed(name)
    stream = loaded(load, lambda: datasets.generate_typed(name, options.seed), console)

    def play(apply: Callable[[lg.Updates], int], begin: int, end: int) -> int:
        return apply(stream.updates(begin, end))

    return EventSource(stream.description, stream.graph(), query, stream.event_count, play)


# ---- files


def _refuse_missing_columns(options: argparse.Namespace, query: lg.sampling.Query) -> None:
    """Raises QueryInvalid, naming the option, where a query asks for what no option gives the graph."""
    typed = options.vertex_type_column is not None
    needs: list[tuple[object, bool, str, str]] = [
        (query.vertex_type, typed, "vertices of a type", "--vertex-type-column NAME, or write g.V(ID)")
    ]
    for hop in query.hops:
        named = None if isinstance(hop.edge_type, int) else hop.edge_type
        kind = hop.edge_type if isinstance(hop.edge_type, int) else None
        has_type, has_time, has_weight = (
            column is not None for column in (options.type_column, options.time_column, options.weight_column)
        )
        needs += [
            (named, typed, "edge types with names", "--vertex-type-column NAME, as they join types of vertices"),
            (named or kind, has_type or named == "to", "edges with types", "--type-column NAME"),
            (hop.by if hop.by == "top_k" else None, has_time, "edges with times", "--time-column NAME"),
            (hop.by if hop.by == "weighted" else None, has_weight, "edges with weights", "--weight-column NAME"),
        ]
    for asked, there, expected, advice in needs:
        if asked is not None and not there:
            raise QueryInvalid(f"[--query] expected {expected} for {asked!r}, got files without; pass {advice}")


def _of_files(options: argparse.Namespace, query: lg.sampling.Query) -> EventSource:
    given = read_files(options, kind_column=options.vertex_type_column, times=True)
    if options.vertex_type_column is not None:
        graph, events = _typed(options, given)
    else:
        if options.type_column is not None:  # whole numbers
            edges = None if given.edges is None else _numbered(given.edges, options.type_column)
            given = replace(given, edges=edges, events=_numbered(given.events, options.type_column))
        graph, events = given.graph(options.undirected), given.events

    def play(apply: Callable[[lg.Updates], int], begin: int, end: int) -> int:
        return apply_rows(apply, events, begin, end)

    title = f"{options.events}, on the vertices of {options.features}"
    return EventSource(title, graph, query, len(events), play)


def _numbered(events: EventRows, name: str) -> EventRows:
    """The rows with edge types, which are whole numbers."""
    numbers = events.table.int64(name)
    wrong = (numbers < 0) | (numbers > _INT32_MAX)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueInvalid(events.table.error(row, name, "an edge type from 0 to 2^31 - 1", int(numbers[row])))
    return replace(events, edge_type=numbers.astype(np.int32))


def _typed(options: argparse.Namespace, files_given: UserFiles) -> tuple[lg.Graph, EventRows]:
    """A graph with types; ids are those of the files, and all different."""
    known, edges, events = files_given.known, files_given.edges, files_given.events
    column = options.vertex_type_column
    kinds = [str(kind) for kind in files.read_table(options.features).column(column).tolist()]
    if not all(kinds):
        raise ValueInvalid(
            f"[{options.features}, row {kinds.index('') + 1}, column {column}] expected a type, got ''; fix the file"
        )
    kind_of = dict(zip(known.tolist(), kinds, strict=True))
    if len(kind_of) < len(known):
        raise ValueInvalid(
            f"[{options.features}] expected ids that are all different, also between types, got {len(known):,} rows"
            f" with {len(kind_of):,} ids; fix the file"
        )
    triples: dict[Triple, int] = {}
    if edges is not None:
        edges = replace(edges, edge_type=_codes(edges, options.type_column, kind_of, triples))
    events = replace(events, edge_type=_codes(events, options.type_column, kind_of, triples))
    names = np.array(kinds, dtype=object)
    rows = {kind: np.flatnonzero(names == kind) for kind in dict.fromkeys(kinds)}
    given: dict[str, Any] = {"src": {}, "dst": {}}
    for triple, code in triples.items():
        part = events if edges is None else edges
        chosen = np.zeros(0, np.int64) if edges is None else np.flatnonzero(part.edge_type == code)
        columns = {"src": part.src, "dst": part.dst, "weight": part.weight, "time": part.time}
        for name, values in columns.items():
            if values is not None:
                some = values[chosen]
                given.setdefault(name, {})[triple] = some if some.dtype.kind != "O" else some.tolist()
    labels = {kind: listed(known[part]) for kind, part in rows.items()}
    shown = {kind: np.ascontiguousarray(files_given.features[part]) for kind, part in rows.items()}
    return lg.Graph(shown, **given, ids=labels, undirected=options.undirected), events


def _codes(events: EventRows, name: str | None, kind_of: dict[Any, str], triples: dict[Triple, int]) -> Any:
    """The edge types of rows by code; new ones are appended to `triples`."""
    names: list[Any] = ["to"] * len(events) if name is None else events.table.column(name).tolist()
    codes = np.empty(len(events), dtype=np.int32)
    for row, (src, label, dst) in enumerate(zip(events.src.tolist(), names, events.dst.tolist(), strict=True)):
        if not isinstance(label, str) or not label:
            raise DtypeInvalid(events.table.error(row, str(name), "the name of an edge type", label))
        codes[row] = triples.setdefault((kind_of[src], label, kind_of[dst]), len(triples))
    return codes
