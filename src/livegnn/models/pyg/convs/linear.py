"""PyG's convolutions whose messages are the sources' rows, weighted or normalised by degrees."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric import nn as pyg

from livegnn.models import ir, layers
from livegnn.models.messages import shift
from livegnn.models.pyg import weighted
from livegnn.models.pyg.context import refuse, to_array
from livegnn.models.pyg.convs.call import BIT_EXACT, BY_OPTION, Call, Conv, added, dense
from livegnn.models.pyg.weighted import is_graphs


def normalised(call: Call, x: ir.Value, self_loops: bool, fill: float = 1.0) -> ir.Value:
    """The degree-normalised aggregate of `x`."""
    if call.rewired is not None:
        return call.gather(x)
    if call.aggregate == "mean":
        raise _no_normalised_mean(call)
    return weighted.normalised(x, call.weight, call.record, self_loops=self_loops, fill=fill, reduce=call.aggregate)


def _no_normalised_mean(call: Call) -> Exception:
    return refuse(call.where, "a degree-normalised mean is not supported", "train it with the default aggr='add'")


def _plain(call: Call, x: ir.Value) -> ir.Value:
    return call.gather(x, weight=call.weight)


def _hop(call: Call, x: ir.Value, self_loops: bool) -> ir.Value:
    """The normalised aggregate of `x`, or without the convolution's `normalize` the plain one."""
    return normalised(call, x, self_loops) if call.conv.normalize else _plain(call, x)


def _weight(lin: Any) -> Any:
    return to_array(lin.weight)


def _gcn(conv: Any, call: Call) -> ir.Value:
    if call.rewired is not None:
        return shift(call.gather(ir.Linear(call.x, _weight(conv.lin))), to_array(conv.bias))
    spec = layers.GCN(
        _weight(conv.lin),
        to_array(conv.bias),
        improved=conv.improved,
        self_loops=bool(conv.add_self_loops),
        normalize=conv.normalize,
        weighted=call.weight is not None,
        aggregate=call.aggregate,
    )
    if conv.normalize and call.aggregate == "mean":
        raise _no_normalised_mean(call)
    if is_graphs(call.weight):
        return spec.apply(call.x)
    x = ir.Linear(call.x, _weight(conv.lin))
    loops, fill = bool(conv.add_self_loops), 2.0 if conv.improved else 1.0
    return shift(normalised(call, x, loops, fill) if conv.normalize else _plain(call, x), to_array(conv.bias))


def _graph_conv(conv: Any, call: Call) -> ir.Value:
    a = _plain(call, call.x)
    return added(dense(conv.lin_rel, a), dense(conv.lin_root, call.own))


def _sage(conv: Any, call: Call) -> ir.Value:
    project = conv.project and hasattr(conv, "lin")
    source = ir.Activation(dense(conv.lin, call.x), "relu") if project else call.x
    y = dense(conv.lin_l, call.gather(source))
    if conv.root_weight:
        y = added(y, dense(conv.lin_r, call.own))
    return ir.L2Normalize(y) if conv.normalize else y


def _gin(conv: Any, call: Call) -> ir.Value:
    a = _plain(call, call.x)
    y = ir.Combine(((1.0, a), (1.0 + float(conv.eps), call.own)))
    return call.inner("nn", y)


def _sg(conv: Any, call: Call) -> ir.Value:
    x = call.x
    for _ in range(conv.K):
        x = normalised(call, x, conv.add_self_loops)
    return dense(conv.lin, x)


def _ssg(conv: Any, call: Call) -> ir.Value:
    x = call.x
    terms: list[tuple[float, ir.Value]] = [(float(conv.alpha), x)]
    for _ in range(conv.K):
        x = normalised(call, x, conv.add_self_loops)
        terms.append(((1.0 - conv.alpha) / conv.K, x))
    return dense(conv.lin, ir.Combine(tuple(terms)))


def _appnp(conv: Any, call: Call) -> ir.Value:
    h = call.x
    for _ in range(conv.K):
        a = _hop(call, h, conv.add_self_loops)
        h = ir.Combine(((1.0 - conv.alpha, a), (float(conv.alpha), call.x)))
    return h


def _lg(conv: Any, call: Call) -> ir.Value:
    return _hop(call, call.x, False)


def _tag(conv: Any, call: Call) -> ir.Value:
    x = call.x
    bias = to_array(conv.bias)
    terms: list[tuple[float, ir.Value]] = []
    for hop, lin in enumerate(conv.lins):
        if hop:
            x = _hop(call, x, False)
        terms.append((1.0, ir.Linear(x, _weight(lin), None if hop else bias)))
    return ir.Combine(tuple(terms))


def _cheb(conv: Any, call: Call) -> ir.Value:
    call.sum_only("a Laplacian's terms")
    if not is_graphs(call.weight):
        raise refuse(
            call.where,
            "its Laplacian divides by sums of weights over out-edges, which are kept of the graph's own weights alone",
            "give the weights to the graph as edge_weight",
        )
    largest = _lambda_max(call)
    if conv.normalization is None and largest is None and len(conv.lins) > 1:
        raise refuse(
            call.where,
            "normalization=None without a lambda_max takes the largest degree of the whole graph for its scale, so one "
            "update would change every row",
            "write the lambda_max it was trained with into the forward, as a number",
        )
    spec = layers.Cheb(
        [_weight(lin) for lin in conv.lins],
        to_array(conv.bias),
        normalization=conv.normalization,
        lambda_max=largest,
        weighted=call.weight is not None,
    )
    return spec.apply(call.x)


def _lambda_max(call: Call) -> float | None:
    """The constant that a ChebConv is given, if any."""
    given = call.others.get("lambda_max")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < float("inf"):
        raise refuse(
            call.where,
            "its lambda_max is not one number above 0, the same for every graph",
            "leave it out, or write the number into the forward",
        )
    return float(given)


def _mixhop(conv: Any, call: Call) -> ir.Value:
    x = call.x
    states: list[ir.Value] = []
    for hop, lin in enumerate(conv.lins):
        if hop:
            x = normalised(call, x, conv.add_self_loops)
        states.append(x if isinstance(lin, torch.nn.Identity) else ir.Linear(x, _weight(lin)))
    return shift(ir.Concat(tuple(states[power] for power in conv.powers)), to_array(conv.bias))


def _gcn2(conv: Any, call: Call) -> ir.Value:
    x_0 = call.first_rows()
    a = _hop(call, call.x, conv.add_self_loops)
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
        return ir.Concat((call.own, a))
    if conv.combine_root is None:
        return a
    root = call.x if conv.combine_root == "self_loop" else call.own
    return added(a, root)  # add_self_loops adds one of weight 1 whatever is there


LINEAR: dict[Any, Conv] = {
    pyg.SimpleConv: Conv(
        _simple,
        "every aggregation; edge weights; `combine_root`; a softmax is exact to float32",
        BY_OPTION,
    ),
    pyg.GCNConv: Conv(
        _gcn,
        "degree-normalised sum, max, min or median; all of `improved`, `add_self_loops`, `bias`; `normalize=False` "
        "with sum, mean, max, min or median",
        BIT_EXACT,
    ),
    pyg.SAGEConv: Conv(
        _sage,
        "every aggregation; `root_weight`, `project`, `normalize`; two widths where one kind of rows is passed; a "
        "softmax is exact to float32",
        BY_OPTION,
    ),
    pyg.GraphConv: Conv(
        _graph_conv,
        "every aggregation; edge weights; a softmax is exact to float32",
        BY_OPTION,
    ),
    pyg.ChebConv: Conv(
        _cheb,
        "`K` hops, `bias`, `normalization` 'sym' and 'rw' with edge weights of at least 0, None with a `lambda_max`; "
        "`lambda_max` a number in the forward",
        takes=("lambda_max",),
        turns=False,
    ),
    pyg.TAGConv: Conv(_tag, "`K` hops, `normalize`", BIT_EXACT),
    pyg.GINConv: Conv(
        _gin,
        "every aggregation; `nn` any row-local module; `eps`, `train_eps`; a softmax is exact to float32",
        BY_OPTION,
    ),
    pyg.SGConv: Conv(_sg, "degree-normalised sums, `K` hops, `add_self_loops`"),
    pyg.SSGConv: Conv(_ssg, "degree-normalised sums, `K` hops, `alpha`, `add_self_loops`"),
    pyg.APPNP: Conv(_appnp, "`K` hops, `alpha`, `add_self_loops`, `normalize`"),
    pyg.GCN2Conv: Conv(_gcn2, "`alpha`, `theta`, `shared_weights`, `normalize`", takes=("x_0",)),
    pyg.LGConv: Conv(_lg, "degree-normalised or plain sum"),
    pyg.MixHopConv: Conv(_mixhop, "`powers`, `add_self_loops`"),
}
