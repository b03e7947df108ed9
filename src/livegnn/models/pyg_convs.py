"""PyG's convolutions, by exact type. A subclass may override any step, so it is never taken for its parent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr

from livegnn.models import ir, layers
from livegnn.models.pyg_context import EDGES, VERTEX_COUNT, WEIGHTS, Import, refuse, to_array
from livegnn.models.pyg_refused import REFUSED_AGGREGATIONS, REFUSED_CONVS

__all__ = ["CONVS", "Call", "convert_conv"]

Run: TypeAlias = Callable[[Any, str, ir.Value], Any]  # reads a row-local module, such as GINConv's nn


@dataclass(frozen=True)
class Call:
    """One call of a convolution: its rows, whether it is given the graph's weights, and its other arguments."""

    x: ir.Value
    weighted: bool
    aggregate: layers.Aggregate
    others: dict[str, Any]
    where: str
    name: str
    run: Run


_OVERRIDES = ("forward", "propagate", "message", "aggregate", "update", "message_and_aggregate", "edge_update")


def convert_conv(
    conv: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, run: Run
) -> ir.Value:
    """The value of a convolution's call.

    Raises: ModelUnsupported naming the layer, its type and the reason.
    """
    kind = type(conv)
    where = f"{name} ({kind.__name__})" if name else kind.__name__
    if kind not in CONVS:
        raise refuse(where, *_why_not(kind))
    _check_options(conv, where)
    call = _bind(conv, name, where, args, kwargs, run)
    result: ir.Value = record.name(CONVS[kind](conv, call), where)
    return result


def _why_not(kind: type) -> tuple[str, str]:
    supported = [base for base in kind.__mro__[1:] if base in CONVS]
    if supported:
        return (
            f"it is a subclass of {supported[0].__name__} and may compute something else",
            f"use {supported[0].__name__} itself",
        )
    if kind.__name__ in REFUSED_CONVS and kind.__module__.startswith("torch_geometric."):
        return REFUSED_CONVS[kind.__name__], "see docs/models.md for the layers supported"
    return "its code is not known to livegnn", "see docs/models.md for the layers supported"


def _check_options(conv: Any, where: str) -> None:
    if conv.flow != "source_to_target":
        raise refuse(where, f"flow={conv.flow!r} sends messages against the edges", "turn the edges round instead")
    if conv.node_dim not in (-2, 0):
        raise refuse(where, f"node_dim={conv.node_dim} is not a row per vertex", "use node_dim=-2")
    if conv.decomposed_layers != 1:
        raise refuse(where, f"decomposed_layers={conv.decomposed_layers} is not read", "set decomposed_layers=1")
    if getattr(conv, "cached", False):
        raise refuse(where, "cached=True keeps the first graph for ever", "set cached=False")
    changed = [each for each in _OVERRIDES if each in vars(conv)]
    if changed:
        raise refuse(where, f"its {changed[0]} was replaced on the object", "use the layer as PyG has it")
    hooks = [key for key, value in vars(conv).items() if key.endswith("_hooks") and key in _MESSAGE_HOOKS and value]
    if hooks or conv.explain:
        raise refuse(where, f"it has {hooks[0] if hooks else 'explain'} set, which may change its result", "remove it")


_MESSAGE_HOOKS = {
    f"_{step}_forward{when}_hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("", "_pre")
}


def _bind(conv: Any, name: str, where: str, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Call:
    try:
        bound = inspect.signature(type(conv).forward).bind(conv, *args, **kwargs)
    except TypeError as error:
        raise refuse(where, f"it is called in a way that it does not accept ({error})", "mend the call") from None
    bound.apply_defaults()
    given = {key: value for key, value in list(bound.arguments.items())[1:] if value is not None}
    x, edges, weight = given.pop("x", None), given.pop("edge_index", None), given.pop("edge_weight", None)
    size = given.pop("size", None)
    if isinstance(x, (tuple, list)):
        if len(x) != 2 or x[0] is not x[1]:
            raise refuse(where, "it is given different rows for sources and targets", "pass one row per vertex")
        x = x[0]
    if not isinstance(x, ir.Value):
        raise refuse(where, "its first argument is not one row per vertex", "pass the features or a layer's output")
    if edges is not EDGES:
        raise refuse(where, "its edges are not the graph's own edge_index", "change the graph, not the model's copy")
    if weight is not None and weight is not WEIGHTS:
        raise refuse(where, "its edge_weight is computed inside the model", "give the weights to the graph instead")
    if size is not None and tuple(size) != (VERTEX_COUNT, VERTEX_COUNT):
        raise refuse(where, "it is given size, as for two kinds of vertices", "leave size out")
    return Call(x, weight is WEIGHTS, _aggregate(conv, where), given, where, name, run)


_AGGREGATIONS: dict[type, layers.Aggregate] = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
}


def _aggregate(conv: Any, where: str) -> layers.Aggregate:
    kind = type(conv.aggr_module)
    if kind in _AGGREGATIONS:
        return _AGGREGATIONS[kind]
    reason = REFUSED_AGGREGATIONS.get(kind.__name__, "this aggregation is not known to livegnn")
    raise refuse(
        where, f"aggr={conv.aggr!r} ({kind.__name__}): {reason}", "train it with aggr='sum', 'mean', 'max' or 'min'"
    )


def _normalised(call: Call, x: ir.Value, self_loops: bool, fill: float = 1.0) -> ir.Propagate:
    """The degree-normalised aggregate of `x`."""
    if call.aggregate == "mean":
        raise _no_normalised_mean(call)
    return layers.gcn_propagate(x, call.weighted, self_loops, fill, call.aggregate)


def _no_normalised_mean(call: Call) -> Exception:
    return refuse(call.where, "a degree-normalised mean is not supported", "train it with the default aggr='add'")


def _plain(call: Call, x: ir.Value) -> ir.Propagate:
    return layers.aggregate(x, call.aggregate, call.weighted, where=call.where)


def _weight(lin: Any) -> Any:
    return to_array(lin.weight)


def _gcn(conv: Any, call: Call) -> ir.Value:
    spec = layers.GCN(
        _weight(conv.lin),
        to_array(conv.bias),
        improved=conv.improved,
        self_loops=bool(conv.add_self_loops),
        normalize=conv.normalize,
        weighted=call.weighted,
        aggregate=call.aggregate,
    )
    if conv.normalize and call.aggregate == "mean":
        raise _no_normalised_mean(call)
    return spec.apply(call.x)


def _graph_conv(conv: Any, call: Call) -> ir.Value:
    rel = conv.lin_rel
    spec = layers.GraphConv(
        _weight(rel),
        _weight(conv.lin_root),
        to_array(rel.bias),
        aggregate=call.aggregate,
        weighted=call.weighted,
    )
    return spec.apply(call.x)


def _sage(conv: Any, call: Call) -> ir.Value:
    project = (_weight(conv.lin), to_array(conv.lin.bias)) if conv.project and hasattr(conv, "lin") else None
    spec = layers.SAGE(
        _weight(conv.lin_l),
        _weight(conv.lin_r) if conv.root_weight else None,
        to_array(conv.lin_l.bias),
        aggregate=call.aggregate,
        project=project,
        normalize=conv.normalize,
    )
    return spec.apply(call.x)


def _gin(conv: Any, call: Call) -> Any:
    a = _plain(call, call.x)
    y = ir.Combine(((1.0, a), (1.0 + float(conv.eps), call.x)))
    return call.run(conv.nn, f"{call.name}.nn", y)


def _sg(conv: Any, call: Call) -> ir.Value:
    x = call.x
    for _ in range(conv.K):
        x = _normalised(call, x, conv.add_self_loops)
    return ir.Linear(x, _weight(conv.lin), to_array(conv.lin.bias))


def _ssg(conv: Any, call: Call) -> ir.Value:
    x = call.x
    terms: list[tuple[float, ir.Value]] = [(float(conv.alpha), x)]
    for _ in range(conv.K):
        x = _normalised(call, x, conv.add_self_loops)
        terms.append(((1.0 - conv.alpha) / conv.K, x))
    return ir.Linear(ir.Combine(tuple(terms)), _weight(conv.lin), to_array(conv.lin.bias))


def _appnp(conv: Any, call: Call) -> ir.Value:
    h = call.x
    for _ in range(conv.K):
        if conv.normalize:
            a = _normalised(call, h, conv.add_self_loops)
        else:
            a = _plain(call, h)
        h = ir.Combine(((1.0 - conv.alpha, a), (float(conv.alpha), call.x)))
    return h


def _lg(conv: Any, call: Call) -> ir.Value:
    if conv.normalize:
        return _normalised(call, call.x, False)
    return _plain(call, call.x)


def _tag(conv: Any, call: Call) -> ir.Value:
    x = call.x
    bias = to_array(conv.bias)
    terms: list[tuple[float, ir.Value]] = []
    for hop, lin in enumerate(conv.lins):
        if hop:
            x = _normalised(call, x, False) if conv.normalize else _plain(call, x)
        terms.append((1.0, ir.Linear(x, _weight(lin), None if hop else bias)))
    return ir.Combine(tuple(terms))


def _mixhop(conv: Any, call: Call) -> ir.Value:
    x = call.x
    states: list[ir.Value] = []
    for hop, lin in enumerate(conv.lins):
        if hop:
            x = _normalised(call, x, conv.add_self_loops)
        states.append(x if isinstance(lin, torch.nn.Identity) else ir.Linear(x, _weight(lin)))
    y: ir.Value = ir.Concat(tuple(states[power] for power in conv.powers))
    return y if conv.bias is None else ir.Affine(y, np.ones(y.width, np.float32), to_array(conv.bias))


def _gcn2(conv: Any, call: Call) -> ir.Value:
    x_0 = call.others.get("x_0")
    if not isinstance(x_0, ir.Value):
        raise refuse(call.where, "its x_0 is not one row per vertex", "pass the first layer's rows")
    if conv.normalize:
        a: ir.Value = _normalised(call, call.x, conv.add_self_loops)
    else:
        a = _plain(call, call.x)
    alpha, beta = float(conv.alpha), float(conv.beta)
    if conv.weight2 is None:
        y = ir.Combine(((1.0 - alpha, a), (alpha, x_0)))
        return ir.Combine(((1.0 - beta, y), (beta, ir.Linear(y, to_array(conv.weight1).T))))
    near, first = ir.Combine(((1.0 - alpha, a),)), ir.Combine(((alpha, x_0),))
    return ir.Combine((
        (1.0 - beta, near),
        (beta, ir.Linear(near, to_array(conv.weight1).T)),
        (1.0 - beta, first),
        (beta, ir.Linear(first, to_array(conv.weight2).T)),
    ))  # fmt: skip


def _simple(conv: Any, call: Call) -> ir.Value:
    if conv.combine_root == "self_loop" and call.aggregate != "sum":
        raise refuse(
            call.where, f"a {call.aggregate} with added self-loops is not supported", "use combine_root='sum' or 'cat'"
        )
    a = _plain(call, call.x)
    if conv.combine_root == "cat":
        return ir.Concat((call.x, a))
    if conv.combine_root is None:
        return a
    return ir.Combine(((1.0, a), (1.0, call.x)))  # add_self_loops adds one of weight 1 whatever is there


CONVS: dict[Any, Callable[[Any, Call], Any]] = {
    pyg.GCNConv: _gcn,
    pyg.GraphConv: _graph_conv,
    pyg.SAGEConv: _sage,
    pyg.GINConv: _gin,
    pyg.SGConv: _sg,
    pyg.SSGConv: _ssg,
    pyg.APPNP: _appnp,
    pyg.LGConv: _lg,
    pyg.TAGConv: _tag,
    pyg.MixHopConv: _mixhop,
    pyg.GCN2Conv: _gcn2,
    pyg.SimpleConv: _simple,
}
