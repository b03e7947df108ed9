"""PyG's convolutions whose messages are computed edge by edge: from both ends' rows, or from the edge's attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import Gather, HeadDot, RowMatrix, Source, Target
from livegnn.models.messages import block_rows, linear, mean_of_heads, ones, shift
from livegnn.models.pyg import weighted
from livegnn.models.pyg.context import refuse, to_array
from livegnn.models.pyg.convs.aggregation import add_number, scale
from livegnn.models.pyg.convs.call import BIT_EXACT, BY_OPTION, TO_FLOAT32, Call, Conv, added, dense
from livegnn.models.pyg.convs.linear import normalised
from livegnn.models.pyg.modules import convert_local, message_norm
from livegnn.models.pyg.weighted import inverse_root, times_weight


def ends(call: Call) -> tuple[ir.Value, ir.Value]:
    """(the target's row, the source's row) on every edge."""
    return Target(call.own), Source(call.x)


def _gine(conv: Any, call: Call) -> ir.Value:
    edge = call.needed_attributes()
    edge = edge if conv.lin is None else dense(conv.lin, edge)
    a = call.gather(ir.Activation(added(Source(call.x), edge), "relu"))
    return call.inner("nn", ir.Combine(((1.0, a), (1.0 + float(conv.eps), call.own))))


def _nn_conv(conv: Any, call: Call) -> ir.Value:
    y = call.gather(RowMatrix(Source(call.x), call.inner("nn", call.needed_attributes())))
    if conv.root_weight:
        y = added(y, dense(conv.lin, call.own))
    return shift(y, to_array(conv.bias))


def _cg(conv: Any, call: Call) -> ir.Value:
    call.attributes_only_if(conv.dim != 0, "its dim is above 0")
    z = ir.Concat((*ends(call), *(() if call.attributes is None else (call.attributes,))))
    gate = ir.Activation(dense(conv.lin_f, z), "sigmoid")
    y = call.gather(ir.Multiply(gate, ir.Activation(dense(conv.lin_s, z), "softplus", 1.0)))
    if conv.bn is not None:
        y = convert_local(conv.bn, (y,), {}, call.record, call.where)
    return added(y, call.own)


def _res_gated(conv: Any, call: Call) -> ir.Value:
    call.attributes_only_if(conv.edge_dim is not None, "it has an edge_dim")
    edge = () if call.attributes is None else (call.attributes,)
    key = dense(conv.lin_key, ir.Concat((Target(call.own), *edge)))
    query = dense(conv.lin_query, ir.Concat((Source(call.x), *edge)))
    value = dense(conv.lin_value, ir.Concat((Source(call.x), *edge)))
    gate = call.inner("act", added(key, query))
    y = call.gather(ir.Multiply(value, gate))
    if conv.root_weight:
        y = added(y, dense(conv.lin_skip, call.own))
    return shift(y, to_array(conv.bias))


def _edge_conv(conv: Any, call: Call) -> ir.Value:
    target, source = ends(call)
    pair = ir.Concat((target, ir.Combine(((1.0, source), (-1.0, target)))))
    return call.gather(call.inner("nn", pair))


def _fa(conv: Any, call: Call) -> ir.Value:
    """eps x_0[v] + sum over edges of tanh(a x[u] + b x[v]) w_uv x[u], w as GCN's if `normalize`."""
    x_0 = call.first_rows()
    call.sum_only("it")
    if conv.normalize == (call.weight is not None):
        raise refuse(call.where, "it takes edge_weight if normalize=False, and only then", "fix the call")
    alpha = added(Source(dense(conv.att_l, call.x)), Target(dense(conv.att_r, call.x)))
    gate = ir.Activation(alpha, "tanh")
    if conv.normalize:
        ends_of = call.aggregator(
            ones(call.x), loops=call.loops
        )  # loops are replaced: without weights each counts once
        factor = inverse_root(ends_of.simple("sum"), call.record)
        y: ir.Value = Gather(ir.Multiply(Source(ir.Multiply(call.x, factor)), gate), "sum", loops=call.loops)
        y = ir.Multiply(y, factor)
    else:
        assert call.weight is not None
        y = Gather(ir.Multiply(Source(call.x), ir.Multiply(gate, call.weight)), "sum")
    return y if conv.eps == 0 else ir.Combine(((1.0, y), (float(conv.eps), x_0)))


def _pdn(conv: Any, call: Call) -> ir.Value:
    call.sum_only("it")
    x = dense(conv.lin, call.x)
    if call.attributes is None:
        if not conv.normalize:
            call.needed_attributes()
        return shift(normalised(call, x, conv.add_self_loops), to_array(conv.bias))
    weight = call.inner("mlp", call.attributes)
    if not conv.normalize:
        return shift(Gather(times_weight(x, weight), "sum"), to_array(conv.bias))
    y = weighted.normalised(x, weight, call.record, self_loops=conv.add_self_loops)
    return shift(y, to_array(conv.bias))


def _gmm(conv: Any, call: Call) -> ir.Value:
    """Gaussians of the attributes, exp(sum over d of -1/2 (e[d] - mu[k, d])^2 / (1e-15 + sigma[k, d]^2))."""
    edge = call.needed_attributes()
    mu, sigma = to_array(conv.mu), to_array(conv.sigma)
    mu, sigma = mu.reshape(-1, conv.dim), sigma.reshape(-1, conv.dim)
    spread = np.tile(np.eye(conv.dim), (len(mu), 1))  # kernels, or inputs times outputs times kernels
    difference = ir.Linear(edge, call.record.constant(spread), -mu.reshape(-1))
    inverse = call.record.constant(block_rows(-0.5 / (1e-15 + sigma**2)))
    exponent = ir.Linear(ir.Multiply(difference, difference), inverse)
    gaussian = ir.Activation(exponent, "exp")
    g = to_array(conv.g)
    if not conv.separate_gaussians:
        message = RowMatrix(gaussian, Source(ir.Linear(call.x, g.T)))
    else:
        kernels = g.reshape(-1, conv.kernel_size)  # one row per input and output
        message = RowMatrix(Source(call.x), ir.Linear(gaussian, block_rows(kernels)))
    y = call.gather(message)
    if conv.root_weight:
        y = added(y, dense(conv.root, call.own))
    return shift(y, to_array(conv.bias))


def _general(conv: Any, call: Call) -> ir.Value:
    call.attributes_only_if(conv.in_edge_channels is not None, "it has in_edge_channels")

    def message_from(source: Any, target: Any) -> ir.Value:
        x, own = (call.x, call.own) if source is Source else (call.own, call.x)
        terms: list[tuple[float, ir.Value]] = [(1.0, source(dense(conv.lin_msg, x)))]
        if not conv.directed_msg:
            terms.append((1.0, target(dense(conv.lin_msg_i, own))))
        if call.attributes is not None:
            terms.append((1.0, dense(conv.lin_edge, call.attributes)))
        return terms[0][1] if len(terms) == 1 else ir.Combine(tuple(terms))

    message = message_from(Source, Target)
    if not conv.attention:
        y = call.gather(message)
    else:
        call.sum_only("softmax attention")
        if conv.attention_type == "dot_product":
            other = message_from(Target, Source)
            alpha = scale(HeadDot(other, message, conv.heads), 1.0 / float(conv.scaler))
        else:
            alpha = linear(message, block_rows(to_array(conv.att_msg)[0]))
        y = Gather(message, "softmax", ir.Activation(alpha, "leaky_relu", 0.2), conv.heads)
    y = mean_of_heads(y, conv.heads)
    root = call.own if isinstance(conv.lin_self, torch.nn.Identity) else dense(conv.lin_self, call.own)
    y = added(y, root)
    return ir.L2Normalize(y) if conv.normalize_l2 else y


def _gen(conv: Any, call: Call) -> ir.Value:
    source = dense(conv.lin_src, call.x) if hasattr(conv, "lin_src") else call.x
    message: ir.Value = source
    if call.attributes is not None:
        edge = dense(conv.lin_edge, call.attributes) if hasattr(conv, "lin_edge") else call.attributes
        message = added(Source(source), edge)
    y = call.gather(add_number(ir.Activation(message, "relu"), float(conv.eps), call.record))
    if hasattr(conv, "lin_aggr_out"):
        y = dense(conv.lin_aggr_out, y)
    if hasattr(conv, "msg_norm"):
        y = message_norm(conv.msg_norm, call.own, y)
    root = dense(conv.lin_dst, call.own) if hasattr(conv, "lin_dst") else call.own
    y = added(y, root)
    for position in range(len(conv.mlp)):
        y = call.inner(f"mlp.{position}", y)
    return y


EDGEWISE: dict[Any, Conv] = {
    pyg.GINEConv: Conv(
        _gine,
        "every aggregation; `nn` any row-local module; `eps`, `train_eps`, `edge_dim`; softmax, max, min and median "
        "are exact to float32",
        BY_OPTION,
    ),
    pyg.NNConv: Conv(
        _nn_conv,
        "every aggregation; `nn` any row-local module of the attributes; `root_weight`, `bias`; softmax, max and "
        "min are exact to float32",
        BY_OPTION,
    ),
    pyg.CGConv: Conv(_cg, "every aggregation; `dim`, `batch_norm`, `bias`", TO_FLOAT32),
    pyg.ResGatedGraphConv: Conv(_res_gated, "every aggregation; `act`, `edge_dim`, `root_weight`, `bias`", TO_FLOAT32),
    pyg.EdgeConv: Conv(
        _edge_conv,
        "every aggregation; `nn` any row-local module: bit-exact if it is one Linear (and no softmax), else exact to "
        "float32; a first Linear is taken apart into one per end",
        BY_OPTION,
    ),
    pyg.FAConv: Conv(_fa, "`eps`, `add_self_loops`, `normalize`", TO_FLOAT32, takes=("x_0",)),
    pyg.PDNConv: Conv(
        _pdn,
        "`normalize`, `add_self_loops`, `bias`",
        BIT_EXACT,
    ),
    pyg.GMMConv: Conv(
        _gmm,
        "every aggregation; `kernel_size`, `separate_gaussians`, `root_weight`, `bias`; softmax, max, min and median "
        "are exact to float32",
        BY_OPTION,
    ),
    pyg.GeneralConv: Conv(
        _general,
        "`heads`, `skip_linear`, `directed_msg`, `in_edge_channels`, `attention` of both types, `l2_normalize`; every "
        "aggregation without attention; bit-exact without attention and softmax and, with edge attributes, "
        "without max, min and median",
        BY_OPTION,
    ),
    pyg.GENConv: Conv(
        _gen,
        "every aggregation, softmax and power mean with `t` and `p` learnt or not; `msg_norm`, `edge_dim`, `norm` "
        "batch, layer or none; bit-exact without softmax and, with edge attributes, without max, min and median",
        BY_OPTION,
    ),
}
