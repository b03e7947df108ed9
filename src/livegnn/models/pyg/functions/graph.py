"""PyG's functions on edge_index: what they leave of it is a `Rewired`, which convolutions read (convs/rewired.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from livegnn.models import ir
from livegnn.models.edges import EdgeWeight
from livegnn.models.messages import ones
from livegnn.models.pyg.context import EDGES, WEIGHTS, End, Flat, Import, Marker, Rewired, Unfit, is_symbol
from livegnn.models.pyg.functions.operands import number_of
from livegnn.models.pyg.rewired import present_sum
from livegnn.models.turning import turned

_WHOLE = "the whole graph is in its result, so that one update would change all of it"
EDGES_ADVICE = "give the layers the forward's own edge_index"
_REASONS: dict[str, tuple[str, str]] = {
    "to_undirected": (
        "it joins edges that are there twice or both ways, so that one edge does not say what its pair counts",
        "make the graph undirected, by to_undirected(data.edge_index) before lg.Graph.from_pyg or by "
        "lg.Graph(..., undirected=True), and leave the call out of the forward",
    ),
    "get_laplacian": (
        "its weights belong to no layer that livegnn reads",
        "use ChebConv, which makes its own Laplacian, or give the weights to the graph",
    ),
    "coalesce": ("it joins parallel edges, which the graph keeps", "coalesce the edges that the graph is made of"),
    "sort_edge_index": ("it sorts all edges", "leave it out: the order of the edges changes nothing"),
    "contains_self_loops": ("it asks about all edges, and " + _WHOLE, EDGES_ADVICE),
    "is_undirected": ("it asks about all edges, and " + _WHOLE, EDGES_ADVICE),
    "subgraph": ("it picks edges by vertices, and those of a graph that changes are not fixed", EDGES_ADVICE),
    "k_hop_subgraph": ("it picks edges by vertices, and those of a graph that changes are not fixed", EDGES_ADVICE),
    "negative_sampling": ("it is random", "keep it out of the forward; score pairs by engine.predict_edges"),
    "to_dense_adj": ("it makes one matrix of the graph, and " + _WHOLE, "use convolutions over edge_index"),
    "to_torch_coo_tensor": ("it makes a sparse matrix of edges that are not the graph's", EDGES_ADVICE),
    "spmm": ("its matrix is not made of the graph's edges", EDGES_ADVICE),
    "to_dense_batch": ("it lays out all vertices together, and " + _WHOLE, "keep one row per vertex"),
}


def _refused(name: str) -> Callable[..., Any]:
    def handler(record: Import, *args: Any, **kwargs: Any) -> Any:
        raise Unfit(*_REASONS[name])

    return handler


def edges_in(edge_index: Any) -> Rewired:
    """What the edges are by now. Raises: Unfit for anything but the graph's own edges."""
    if isinstance(edge_index, Rewired) and edge_index.what == EDGES.what:
        return edge_index
    if not isinstance(edge_index, Marker) or edge_index.what != EDGES.what:
        raise Unfit("its edges are not the graph's own edge_index", EDGES_ADVICE)
    if edge_index.relation is not None:
        raise Unfit("it changes the edges of one type", "leave self-loops to the layers")
    return Rewired(turned=edge_index.turned)


def _weight(given: Any, edges: Rewired) -> ir.Value | None:
    """The weights of the edges that the call is given, None without. Raises: Unfit for other columns than these."""
    if given is None:
        return None
    if edges.loops == "keep" and given is WEIGHTS:
        return EdgeWeight()
    if edges.loops == "keep" and isinstance(given, Flat) and given.value.on_edges:
        return given.value
    if isinstance(given, Rewired) and given.what == WEIGHTS.what and given.norm is None and given.loops == edges.loops:
        return given.weight
    raise Unfit("it is given a column of the edges that is not the graph's own edge_weight", "leave that column out")


def _pair(record: Import, edges: Rewired, weight: ir.Value | None) -> tuple[Any, Any]:
    """(edge_index, edge_weight or None)."""
    if isinstance(weight, EdgeWeight):
        record.weights_from.add("edge_weight")
    return edges, None if weight is None else replace(edges, what=WEIGHTS.what, weight=weight)


def _fill(given: Any, default: float = 1.0) -> float:
    number = default if given is None else number_of(given)
    if number is None:
        raise Unfit(f"fill_value={given!r} is not a number", "use a number")
    return number


def _add_self_loops(
    record: Import, edge_index: Any, edge_attr: Any = None, fill_value: Any = None, *_count: Any, **_counts: Any
) -> Any:
    edges = edges_in(edge_index)
    weight = _weight(edge_attr, edges)
    after = {"keep": "add", "drop": "replace"}.get(edges.loops)
    if after is None:
        raise Unfit("self-loops were added already", "add them once")
    fill = 1.0 if weight is None else _fill(fill_value)
    return _pair(record, replace(edges, loops=after, fill=fill), weight)


def _add_remaining_self_loops(
    record: Import, edge_index: Any, edge_attr: Any = None, fill_value: Any = None, *_count: Any, **_counts: Any
) -> Any:
    edges = edges_in(edge_index)
    weight = _weight(edge_attr, edges)
    return _pair(record, _remaining(edges, weight is not None, _fill(fill_value)), weight)


def _remaining(edges: Rewired, weighted: bool, fill: float) -> Rewired:
    """One self-loop for every vertex; with weights, that of an existing one stays."""
    if edges.loops == "add" or edges.loops == "replace":
        return replace(edges, loops="replace")
    if edges.loops == "drop" or not weighted:
        return replace(edges, loops="replace", fill=fill if weighted else 1.0)
    return replace(edges, loops="fill", fill=fill if edges.loops == "keep" else edges.fill)


def _remove_self_loops(record: Import, edge_index: Any, edge_attr: Any = None) -> Any:
    edges = edges_in(edge_index)
    weight = _weight(edge_attr, edges)
    return _pair(record, replace(edges, loops="drop", fill=1.0), weight)


def _gcn_norm(
    record: Import,
    edge_index: Any,
    edge_weight: Any = None,
    _count: Any = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: Any = None,
    **_counts: Any,
) -> Any:
    edges = edges_in(edge_index)
    weight = _weight(edge_weight, edges)
    record.rounded = record.rounded or weight is None  # weights of 1 are float32 without a dtype, whatever the rows are
    if add_self_loops:
        edges = _remaining(edges, weight is not None, 2.0 if improved else 1.0)
    edges, _ = _pair(record, edges, weight)
    turned = edges.turned != (flow == "target_to_source")
    return edges, replace(edges, what=WEIGHTS.what, weight=weight, norm="gcn", turned=turned)


def _degree(record: Import, index: Any, count: Any = None, dtype: Any = None, **counts: Any) -> Any:
    """The number of in-edges or of out-edges; vertices of the index are the edges' ends."""
    if not isinstance(index, End):
        raise Unfit("it counts something else than the ends of the graph's edges", "count a row of edge_index")
    if count is None and all(each is None for each in counts.values()):
        raise Unfit("without num_nodes it ends with the last vertex that has an edge", "pass x.size(0)")
    assert record.rows is not None
    count = present_sum(ones(record.rows), index.edges, record)
    return Flat(count if index.place == 1 else turned(count, [record.rows]))


def end_of(edge_index: Any, place: Any) -> Any:
    """edge_index[0] or edge_index[1]. Raises: Unfit for other parts of it."""
    if place not in (0, 1) or isinstance(place, bool) or is_symbol(place):
        raise Unfit("it picks edges, and the edges of a graph that changes are not fixed", EDGES_ADVICE)
    if isinstance(edge_index, Marker) and edge_index.relation is not None:
        raise Unfit(
            "rows at the ends of edges are not supported where vertices have types",
            "import the part before them, and score pairs by engine.predict_edges",
        )
    edges = edges_in(edge_index)
    return End(replace(edges, turned=False), int(place != edges.turned))


GRAPH: dict[str, Callable[..., Any]] = {
    **{f"utils.{name}": _refused(name) for name in _REASONS},
    "utils.add_self_loops": _add_self_loops,
    "utils.add_remaining_self_loops": _add_remaining_self_loops,
    "utils.remove_self_loops": _remove_self_loops,
    "utils.gcn_norm": _gcn_norm,
    "utils.degree": _degree,
}
