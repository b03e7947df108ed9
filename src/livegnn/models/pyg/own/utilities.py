"""PyG's own utilities as single steps of an own layer: softmax, scatter, degree, and what adds or removes self-loops.

A user's module holds them by any name. While an own layer is read, every module's name for one of them is bound to a
stand-in, which outside of that thread's reading calls the original.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch_geometric import utils

from livegnn.models import ir
from livegnn.models.edges import EdgeWeight
from livegnn.models.pyg.context import Unfit
from livegnn.models.pyg.own.edges import Tracing, constant_rows, extended, on_edges_of, without_loops
from livegnn.models.pyg.own.functions import scatter
from livegnn.models.pyg.own.matrices import made, product
from livegnn.models.pyg.own.rows import EdgeChoice, EndIds, LoopWeight, Traced, constant_like, constant_row, row_of
from livegnn.models.pyg.utilities import bind_all, bindings
from livegnn.models.pyg.weighted import loop_rows

_NUM_NODES = "without num_nodes= it leaves out the vertices after the last one that has an edge"
_PASS_IT = "pass num_nodes=x.size(0)"


Given = dict[str, Any]  # the arguments of a call by PyG's names, defaults left out


def _softmax(tracing: Tracing, result: Any, given: Given) -> Any:
    src, index = given["src"], given.get("index")
    if not isinstance(index, EndIds) or index.end is None or given.get("ptr") is not None:
        raise Unfit("its groups are not the in-edges of a vertex", "pass index")
    if not isinstance(src, Traced):
        src = constant_rows(tracing, src, index.edges, tuple(src.shape[1:]))
    if given.get("dim", 0) % (len(src.shape) + 1) != 0 or src.edges != index.edges:
        raise Unfit("its scores are not rows of the edges whose targets it is given")
    return tracing.reducer.softmax(src, index.end)


def _scatter(tracing: Tracing, result: Any, given: Given) -> Any:
    return scatter(tracing, result, given["src"], given["index"], given.get("reduce", "sum"), given.get("dim", 0))


def _degree(tracing: Tracing, result: Any, given: Given) -> Any:
    index = given["index"]
    if not isinstance(index, EndIds) or index.end is None:
        raise Unfit("it counts numbers that are not the ends of edges", "pass a row of edge_index")
    return scatter(tracing, result, on_edges_of(tracing, index, [1.0], ()), index, "sum")


def _edges_in(given: Given) -> EndIds:
    edge_index = given["edge_index"]
    if not isinstance(edge_index, EndIds) or edge_index.end is not None:
        raise Unfit("its edges are not the graph's own edge_index", "change the graph, not the model's copy")
    return edge_index


def _remove(tracing: Tracing, result: Any, given: Given) -> Any:
    ids, edge_attr = _edges_in(given), given.get("edge_attr")
    edges = without_loops(tracing, ids.edges)
    if edge_attr is None:
        return replace(ids, edges=edges), None
    return replace(ids, edges=edges), replace(_rows(tracing, edge_attr, ids.edges), edges=edges, loops=())


def _rows(tracing: Tracing, edge_attr: Any, edges: EdgeChoice) -> Traced:
    """The rows of edges that a utility is given. Raises: Unfit for those of others."""
    if not isinstance(edge_attr, Traced):
        return constant_rows(tracing, edge_attr, edges, tuple(edge_attr.shape[1:]))
    if edge_attr.edges != edges:
        raise Unfit("its rows are not those of its edges", "pass the rows of the same edges")
    return edge_attr


def _add(tracing: Tracing, result: Any, given: Given) -> Any:
    ids, edge_attr = _edges_in(given), given.get("edge_attr")
    before = ids.edges
    if given.get("num_nodes") is None:
        raise Unfit(_NUM_NODES, _PASS_IT)
    edges = extended(tracing, before, 0, 1)
    if edge_attr is None:
        return replace(ids, edges=edges), None
    plain = _rows(tracing, edge_attr, before)
    loop, even = _fill(tracing, plain, given.get("fill_value"), 0 if ids.turned else 1)
    rows = Traced(plain.value, plain.shape, edges, (*plain.loops, loop), even and plain.even)
    return replace(ids, edges=edges), rows


def _fill(tracing: Tracing, rows: Traced, fill_value: Any, end: int) -> tuple[ir.Value, bool]:
    """The rows of added loops, as PyG's compute_loop_attr makes them of edges with this end, and whether all other
    edges' are the same.
    """
    if isinstance(fill_value, Traced):
        raise Unfit("its fill_value is computed from the features", "use a number, 'mean' or 'add'")
    if not isinstance(fill_value, str):
        row = row_of(1.0 if fill_value is None else fill_value, 1, rows.shape, tracing.record)
        known = constant_row(rows.value)
        return constant_like(tracing.reducer.anchor, row), known is not None and bool((known == row).all())
    kinds: dict[str, ir.Aggregate] = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
    if fill_value not in kinds:
        raise Unfit(f"fill_value={fill_value!r} is not supported", "use a number, 'mean' or 'add'")
    edges = rows.edges
    if not isinstance(edges, EdgeChoice) or edges.added or edges.masks:
        return tracing.reducer.simple(rows, kinds[fill_value], end).value, False
    return tracing.reducer.gathered(rows.value, kinds[fill_value], edges, end), False


def _add_remaining(tracing: Tracing, result: Any, given: Given) -> Any:
    """One loop for every vertex in the place of its own ones, whose rows it keeps from the last of them."""
    ids, edge_attr, fill_value = _edges_in(given), given.get("edge_attr"), given.get("fill_value")
    before = ids.edges
    if before.added or edge_attr is None or not before.own:
        return _replace(tracing, result, given)
    if not isinstance(edge_attr, Traced):
        return _keep_constant(tracing, result, given)
    if given.get("num_nodes") is None:
        raise Unfit(_NUM_NODES, _PASS_IT)
    if before.masks:
        raise Unfit("it keeps a vertex's last self-loop of those that a mask has left", "pick the edges afterwards")
    edges = extended(tracing, without_loops(tracing, before), 0, 1)
    if not isinstance(edge_attr.value, EdgeWeight) or isinstance(fill_value, str) or before.relation is not None:
        left = replace(edge_attr, edges=without_loops(tracing, before), loops=())
        others, _ = _fill(tracing, left, fill_value, 0 if ids.turned else 1)
        rows = (loop_rows(edge_attr.value, others, before.relation),)
        return replace(ids, edges=edges), Traced(edge_attr.value, edge_attr.shape, edges, rows, even=False)
    weight = LoopWeight(1.0 if fill_value is None else float(fill_value))
    return replace(ids, edges=edges), Traced(edge_attr.value, edge_attr.shape, edges, (weight,), even=False)


def _replace(tracing: Tracing, result: Any, given: Given) -> Any:
    """One loop for every vertex in the place of all: with the rows of those that were added last, if any were."""
    before, edge_attr = _edges_in(given), given.get("edge_attr")
    edges = without_loops(tracing, before.edges)
    rows = None if edge_attr is None else _rows(tracing, edge_attr, before.edges)
    if before.edges.masks and before.edges.added:
        raise Unfit("it keeps those of the added self-loops that a mask has left", "add them after the mask")
    left = None if rows is None else replace(rows, edges=edges, loops=())
    ids, made = _add(tracing, result, {**given, "edge_index": replace(before, edges=edges), "edge_attr": left})
    if rows is None or not rows.loops:
        return ids, made
    return ids, replace(made, loops=(rows.loops[-1],), even=rows.even)


def _keep_constant(tracing: Tracing, result: Any, given: Given) -> Any:
    """The same where all edges have one constant row: so do the loops of vertices with self-loops of their own."""
    before = _edges_in(given)
    edges = without_loops(tracing, before.edges)
    plain = _rows(tracing, given["edge_attr"], before.edges)
    left = replace(plain, edges=edges)
    ids, rows = _add(tracing, result, {**given, "edge_index": replace(before, edges=edges), "edge_attr": left})
    if rows.even:
        return ids, rows
    reducer = tracing.reducer
    own = ((1.0, reducer.count(before.edges)), (-1.0, reducer.count(edges)))
    constant = constant_like(reducer.anchor, constant_row(rows.value))
    loop = ir.Elementwise("where", (ir.Combine(own), constant, rows.loops[0]))
    return ids, replace(rows, loops=(loop,))


def _to_matrix(tracing: Tracing, result: Any, given: Given) -> Any:
    if given.get("edge_attr") is None:
        raise Unfit("without edge_attr it joins parallel edges into one", "pass edge_attr, one number for each edge")
    return made(tracing, result, given["edge_index"], given["edge_attr"])


_STEPS: dict[Callable[..., Any], Callable[..., Any]] = {
    utils.softmax: _softmax,
    utils.scatter: _scatter,
    utils.degree: _degree,
    utils.remove_self_loops: _remove,
    utils.add_self_loops: _add,
    utils.add_remaining_self_loops: _add_remaining,
    utils.to_torch_coo_tensor: _to_matrix,
    utils.spmm: lambda tracing, result, given: product(
        tracing, result, given["src"], given["other"], given.get("reduce", "sum")
    ),
}
_lock = threading.RLock()
_reading = threading.local()


@contextlib.contextmanager
def utilities_as_steps(step: Callable[..., Any]) -> Iterator[None]:
    """Makes this thread's calls of the utilities step(handler, original, args, kwargs)."""
    with _lock:
        outer = getattr(_reading, "step", None)
        kept: list[tuple[dict[str, Any], str, Any]] = []
        try:
            _reading.step = step
            if outer is None:
                kept = _bind_all({id(each): _stand_in(each, handler) for each, handler in _STEPS.items()})
            yield
        finally:
            _reading.step = outer
            for names, name, original in kept:
                names[name] = original


def _stand_in(original: Callable[..., Any], handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        step = getattr(_reading, "step", None)
        return original(*args, **kwargs) if step is None else step(handler, original, args, kwargs)

    return call


def _bind_all(stand_ins: dict[int, Callable[..., Any]]) -> list[tuple[dict[str, Any], str, Any]]:
    """Binds every module's names for these functions anew, also where a forward's reading has bound them; what else
    that has bound is the function itself again. Returns: (names, name, what it was) of each.
    """
    others = [module for name, module in [*sys.modules.items()] if not name.startswith("livegnn.")]
    spaces = [getattr(module, "__dict__", None) for module in others]
    return bind_all([space for space in spaces if isinstance(space, dict)], bindings(stand_ins))
