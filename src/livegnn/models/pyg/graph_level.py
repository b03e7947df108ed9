"""Imports a module with one row per graph: reads it, cuts it at its pools, and compares the parts with the module.

The forward's result is row-local in the pooled rows, and every pooled row is a pool of rows of vertices that do not
depend on pooled rows: then a batch of updates changes a graph's row through the rows of its vertices alone. Anything
else is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from torch import nn

from livegnn.models import edges, ir, stored
from livegnn.models.graph_level import GraphLevel, PoolPart
from livegnn.models.model import Model
from livegnn.models.order import with_inputs
from livegnn.models.pyg.check import (
    OTHER_FORMS,
    Columns,
    Form,
    Sample,
    check_import,
    divides,
    modelled,
    sample,
    sizes_of,
)
from livegnn.models.pyg.context import Import, Pools, refuse
from livegnn.models.pyg.outputs import Wanted
from livegnn.models.pyg.pools import BACK_TO_VERTICES
from livegnn.models.pyg.signature import read_signature
from livegnn.models.pyg.steps import (
    columns_of,
    in_categories,
    plain_symbols,
    prepared,
    read_symbols,
    shapes_in,
    widths_of,
)
from livegnn.models.pyg.variants import Options, Reading, VariantReader
from livegnn.models.truth import EdgeList, true_rows

_GRAPHS = (((9, 30),), ((2, 3), (9, 30), (1, 0), (23, 90)), ((1, 2), (1, 0), (5, 8)))  # vertices, edges of each graph


@dataclass(frozen=True)
class _Parts:
    rows: ir.Value
    pools: tuple[PoolPart, ...]
    head: ir.Value

    @property
    def bare(self) -> bool:
        """Whether nothing follows the pools."""
        return isinstance(self.head, ir.Input)


def import_graph_level(module: nn.Module, options: Options) -> GraphLevel:
    """The parts of `module`.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    frozen, record, kind = prepared(module, options), Import(operators=options.operators), type(module).__name__
    signature = read_signature(frozen, graph_level=True)
    wanted = Wanted(options.outputs, f"{kind}.forward", "graph")
    batched = signature.batch is not None or signature.data
    columns, choice = columns_of(frozen, signature, options, widths_of(frozen, options), batch=batched)
    symbols = plain_symbols(columns, record)

    def read(columns: Columns) -> _Parts:
        record.pools = Pools(batched)
        result = read_symbols(frozen, signature, symbols(columns), columns, record)
        shapes = shapes_in(result, frozen, signature, columns)
        return _cut(wanted.of(result, record, shapes), record.pools, record, kind)

    def compare(parts: _Parts, columns: Columns) -> None:
        columns = in_categories(columns, record)

        def expected(given: Sample) -> dict[str | None, Any]:
            rows = modelled(parts.rows, columns, given)
            batch = given[5][0] if columns.batch else np.zeros(len(rows), np.int64)
            return {None: true_rows(parts.head, _pooled(rows, parts.pools, batch), _NO_EDGES)}

        graphs = _graphs(columns, record.recorded, divides(parts.rows) or divides(parts.head))
        check_import(
            frozen, signature, columns, graphs, expected, rounded=record.rounded, row="graph", take=wanted.take
        )

    reader = VariantReader(frozen, signature, record, read, compare, lambda parts: parts.rows)
    return _joined(reader.all(columns, choice, options), record, kind)


def _joined(reading: Reading[_Parts], record: Import, kind: str) -> GraphLevel:
    """One model with and without weights; what follows the pools must be the same."""
    with_weights, without = reading.outputs.get(True), reading.outputs.get(False)
    parts = with_weights or without
    assert parts is not None
    if (
        with_weights is not None
        and without is not None
        and not (with_weights.pools == without.pools and _same(with_weights.head, without.head))
    ):
        raise refuse(
            f"{kind}.forward", "its pools, or what follows them, differ with weights", "pass weighted=True or False"
        )
    unweighted = without.rows if with_weights is not None and without is not None else None
    model = Model.from_output(
        parts.rows,
        unweighted=unweighted,
        names=record.names,
        weights_from=reading.weights_from,
        refused=reading.refused,
    )
    head = None if parts.bare else Model.from_output(parts.head, names=record.names)
    return GraphLevel(model, parts.pools, head)


def _same(one: ir.Value, other: ir.Value) -> bool:
    (shape, arrays), (other_shape, others) = (stored.to_arrays(each, None, None, {}) for each in (one, other))
    return shape == other_shape and all(np.array_equal(array, others[name]) for name, array in arrays.items())


def _cut(result: ir.Value, pools: Pools, record: Import, kind: str) -> _Parts:
    """The parts on either side of the pools. Raises: ModelUnsupported where they cannot be separated."""
    where = f"{kind}.forward"
    values = ir.walk(result)
    pooled = [value for value in values if id(value) in pools.sources]
    if not pooled:
        raise refuse(where, "it returns a row per vertex", "import it with lg.from_pyg(module)")
    _refuse_mixed(values, pools, record, kind)
    sources: list[ir.Value] = []
    for value in pooled:
        _, rows = pools.sources[id(value)]
        _refuse_fed_back(rows, pools, record, kind)
        if all(rows is not each for each in sources):
            sources.append(rows)
    start = dict(zip(map(id, sources), np.cumsum([0, *(rows.width for rows in sources)]).tolist(), strict=False))
    layout: list[PoolPart] = []
    for value in pooled:
        pool, rows = pools.sources[id(value)]
        layout.append(cast(PoolPart, (pool, start[id(rows)], start[id(rows)] + rows.width)))
    output = sources[0] if len(sources) == 1 else ir.Concat(tuple(sources))
    head = _head(result, values, pooled, record)
    return _Parts(record.name(output, f"{where}: rows that are pooled"), tuple(layout), head)


def _head(result: ir.Value, values: list[ir.Value], pooled: list[ir.Value], record: Import) -> ir.Value:
    """`result` as a function of the pooled rows side by side."""
    joined = isinstance(result, ir.Concat) and all(a is b for a, b in zip(result.inputs, pooled, strict=False))
    if joined and len(result.inputs) == len(pooled):
        return ir.Input(result.width)  # the pools themselves, as they are
    row = ir.Input(sum(value.width for value in pooled))
    record.name(row, "pooled rows")
    new: dict[int, ir.Value] = {}
    start = 0
    for value in pooled:
        new[id(value)] = row if len(pooled) == 1 else ir.Slice(row, start, start + value.width)
        start += value.width
    for value in values:
        if id(value) not in new:
            new[id(value)] = with_inputs(value, [new[id(each)] for each in value.inputs])
            record.name(new[id(value)], record.names.get(id(value), "after the pools"))
    return new[id(result)]


def _refuse_mixed(values: list[ir.Value], pools: Pools, record: Import, kind: str) -> None:
    """Refuses a result that reads rows of vertices next to those of graphs, or sends these along edges."""
    of_vertices: dict[int, bool] = {}
    of_graphs: dict[int, bool] = {}
    for value in values:
        pooled = id(value) in pools.sources
        of_graphs[id(value)] = pooled or any(of_graphs[id(each)] for each in value.inputs)
        if of_graphs[id(value)] and (value.on_edges or isinstance(value, ir.Propagate | edges.Gather)):
            name = record.names.get(id(value), f"{kind}.forward")
            raise refuse(name, "it sends rows of graphs along edges", "pool after all convolutions")
        leaf = not value.inputs and not pooled
        of_vertices[id(value)] = leaf or any(of_vertices[id(each)] for each in value.inputs)
        if of_graphs[id(value)] and of_vertices[id(value)]:
            raise refuse(
                record.names.get(id(value), f"{kind}.forward"),
                "it joins rows of vertices with rows of graphs",
                "use what is pooled alone after the pool",
            )


def _refuse_fed_back(rows: ir.Value, pools: Pools, record: Import, kind: str) -> None:
    """Refuses rows of vertices that depend on a pool."""
    depends: set[int] = set()
    for value in ir.walk(rows):
        if id(value) in pools.sources:
            depends.add(id(value))
        elif any(id(each) in depends for each in value.inputs):
            raise refuse(
                record.names.get(id(value), f"{kind}.forward"), BACK_TO_VERTICES, "pool after all convolutions"
            )
    if depends:
        raise refuse(f"{kind}.forward", "it pools what is pooled already", "pool rows of vertices once")


# ---- the comparison


_NO_EDGES = EdgeList(np.empty(0, np.int64), np.empty(0, np.int64))


def _graphs(columns: Columns, recorded: bool, zeros: bool) -> Iterator[tuple[Sample, str]]:
    """Several graphs as one, as PyG's loaders make them, with their batch: no vertex is of graph 1. Without a batch,
    the same ones by one. Of a run that was followed, of every form; zeros: also some where some features are 0.
    """
    last = _GRAPHS[1] if columns.batch else _GRAPHS[1][-1:]
    for seed, sizes in enumerate(_GRAPHS if columns.batch else [(each,) for many in _GRAPHS for each in many]):
        given = _as_one(columns, sizes, seed)
        yield given, f"{len(sizes)} graphs of {sizes_of(given)}"
    for seed, form in enumerate(OTHER_FORMS if recorded else (), 20):
        given = _as_one(columns, last, seed, form)
        yield given, f"{len(last)} graphs {form} of {sizes_of(given)}"
    if zeros:
        given = _as_one(columns, last, 22)
        given[0][0][::3] = 0
        yield given, f"{len(last)} graphs of {sizes_of(given)}, some of whose features are 0"


def _as_one(columns: Columns, sizes: Sequence[tuple[int, int]], seed: int, form: Form = "any") -> Sample:
    """Graphs of these numbers of vertices and edges as one, with their batch."""
    parts = [sample(columns, vertices, edges, seed + 7 * i, form) for i, (vertices, edges) in enumerate(sizes)]
    starts = np.cumsum([0, *(vertices for vertices, _ in sizes)])
    ends = np.concatenate([part[1][0] + start for part, start in zip(parts, starts, strict=False)], axis=1)
    features, weights, attributes, types = (
        None if parts[0][place] is None else (np.concatenate([part[place][0] for part in parts]),)
        for place in (0, 2, 3, 4)
    )
    batch = np.repeat([0, *range(2, len(sizes) + 1)], [vertices for vertices, _ in sizes])
    return features, (ends,), weights, attributes, types, *(((batch,),) if columns.batch else ())


def _pooled(rows: Any, pools: tuple[PoolPart, ...], batch: Any) -> Any:
    """Rows of graphs in float64, 0 for one without vertices."""
    result = np.zeros((int(batch.max()) + 1, sum(stop - start for _, start, stop in pools)))
    for graph in np.unique(batch):
        own = rows[batch == graph]
        reduce = {"add": own.sum(axis=0), "mean": own.mean(axis=0), "max": own.max(axis=0)}
        result[graph] = np.concatenate([reduce[kind][start:stop] for kind, start, stop in pools])
    return result
