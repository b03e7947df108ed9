"""Pools of a module's forward: from rows of vertices to rows of graphs.

A pooled row stands in the module as an `ir.Input` of its own, on which row-local operations go on as on any row;
`Pools` says what it is. The functions global_*_pool and PyG's aggregation modules decide by numbers of the tensors at
hand what they do. While a module is read, their inner step is therefore taken as one operation: `reading_pools`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function
from torch_geometric import nn as pyg
from torch_geometric.nn.pool import glob

from livegnn.models import ir
from livegnn.models.pyg.context import BATCH, Flat, Import, Pools, Unfit, refuse
from livegnn.models.pyg.refused import REFUSED_POOLS

POOLS = "it reduces over all vertices, so that one update would change every row"
GRAPH_LEVEL = (
    "if the module gives one row per graph, keep these live with lg.Readout.from_pyg(module, graph, batch), or take "
    "its parts from lg.graph_level_from_pyg(module)"
)
BACK_TO_VERTICES = "it gives rows of graphs back to vertices, so that one update would change every row of a graph"
_BY_BATCH = "pool by the forward's batch"

_KINDS = {"sum": "add", "add": "add", "mean": "mean", "max": "max", "amax": "max", "min": "min", "amin": "min"}
_AGGREGATIONS: dict[Any, str] = {
    pyg.SumAggregation: "sum",
    pyg.MeanAggregation: "mean",
    pyg.MaxAggregation: "max",
    pyg.MinAggregation: "min",
}

_EXACT_SUM = "the exact sum, rounded once"
_EXACT_MEAN = "the exact sum, divided by the count"
#: How each of PyG's pools and readouts is kept, by name.
SUPPORTED_POOLS: dict[str, str] = {
    "global_add_pool": _EXACT_SUM,
    "global_mean_pool": _EXACT_MEAN,
    "global_max_pool": "exact",
    "SumAggregation": _EXACT_SUM,
    "MeanAggregation": _EXACT_MEAN,
    "MaxAggregation": "exact",
    "MinAggregation": "exact: the maximum of the negative rows",
    "MultiAggregation": "`mode='cat'` of the four",
}


def global_pool(src: Any, index: Any, dim: int = 0, dim_size: Any = None, reduce: str = "sum") -> Any:
    """PyG's scatter, as one operation for code that follows tensors."""
    if has_torch_function((src, index)):
        return handle_torch_function(global_pool, (src, index), src, index, dim, dim_size, reduce)
    return _scatter(src, index, dim, dim_size, reduce)


_scatter = glob.scatter
_call = pyg.Aggregation.__call__
_patching = threading.Lock()


@contextlib.contextmanager
def reading_pools() -> Iterator[None]:
    """Makes every pool one step, in this thread and one import at a time; other threads' pools compute as ever."""
    reader = threading.get_ident()

    @functools.wraps(_call)
    def plain_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = nn.Module.__call__ if threading.get_ident() == reader else _call
        return chosen(self, *args, **kwargs)

    def plain_scatter(*args: Any, **kwargs: Any) -> Any:
        return (global_pool if threading.get_ident() == reader else _scatter)(*args, **kwargs)

    with _patching:
        kept = pyg.Aggregation.__call__, glob.scatter
        pyg.Aggregation.__call__, glob.scatter = plain_call, plain_scatter
        try:
            yield
        finally:
            pyg.Aggregation.__call__, glob.scatter = kept


def pool_batch(record: Import, src: Any, index: Any, dim: int = 0, dim_size: Any = None, reduce: str = "sum") -> Any:
    """The pooled row of scatter(src, batch, ...). Raises: Unfit."""
    pools = _pools(record)
    if index is not BATCH:
        raise Unfit("it pools by something else than the vertices' batch", _BY_BATCH)
    if dim_size is not None:
        raise Unfit("size= fixes the number of graphs", "leave it out")
    if reduce not in _KINDS:
        raise Unfit(f"it pools by {reduce!r}", "use add, mean, max or min")
    if isinstance(src, Flat):
        return Flat(pools.of(_KINDS[reduce], src.value))
    if dim not in (0, -2):
        raise Unfit(f"dim={dim} does not run over the vertices", "use dim=0")
    return pools.of(_KINDS[reduce], _rows(src))


def pool_all(record: Import, rows: ir.Value, reduce: str) -> ir.Value:
    """The pooled row of a reduction over all rows, in a forward of one graph. Raises: Unfit."""
    pools = _pools(record)
    if pools.batched:
        raise Unfit("it pools the vertices of all graphs together", _BY_BATCH)
    return pools.of(_KINDS[reduce], _rows(rows))


def pool_module(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str) -> Any:
    """The pooled row of an aggregation module called as aggregation(x, batch). Raises: ModelUnsupported."""
    names = ("x", "index", "ptr", "dim_size", "dim")
    given = dict(zip(names, args, strict=False)) | kwargs
    if record.pools is None:
        reason = REFUSED_POOLS.get(type(module).__name__)
        raise refuse(where, reason or POOLS, "keep one row per vertex" if reason else GRAPH_LEVEL)
    try:
        if given.get("ptr") is not None or not set(given) <= set(names):
            raise Unfit("it is not called as aggregation(x, batch)", _BY_BATCH)
        x, index, dim = given.get("x"), given.get("index"), given.get("dim", -2)
        return _module(module, x, index, dim, given.get("dim_size"), record, where)
    except Unfit as error:
        raise refuse(where, error.reason, error.remedy) from error


def _module(module: Any, x: Any, index: Any, dim: int, size: Any, record: Import, where: str) -> Any:
    kind = type(module)
    if kind in _AGGREGATIONS:
        if index is None and size is None and isinstance(x, ir.Value):
            return pool_all(record, x, _AGGREGATIONS[kind])
        return pool_batch(record, x, index, dim, size, _AGGREGATIONS[kind])
    if kind is pyg.MultiAggregation:
        if module.mode != "cat":
            raise Unfit(f"mode={module.mode!r} is not supported after a pool", "use mode='cat'")
        inner = [
            _module(each, x, index, dim, size, record, f"{type(each).__name__} in {where}") for each in module.aggrs
        ]
        return ir.Concat(tuple(_rows(each) for each in inner))
    reason = REFUSED_POOLS.get(kind.__name__, "this aggregation is not known to livegnn")
    raise refuse(where, reason, "use SumAggregation, MeanAggregation, MaxAggregation or MinAggregation")


def _pools(record: Import) -> Pools:
    if record.pools is None:
        raise Unfit(POOLS, GRAPH_LEVEL)
    return record.pools


def _rows(x: Any) -> ir.Value:
    if isinstance(x, torch.Tensor) or not isinstance(x, ir.Value):
        raise Unfit("what it pools is not one row per vertex")
    if x.on_edges:
        raise Unfit("it pools rows of edges, not of vertices", "pool rows of vertices")
    return x
