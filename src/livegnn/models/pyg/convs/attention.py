"""PyG's convolutions with softmax attention over a vertex's in-edges.

A score's parts that depend on one end alone are computed per vertex and brought to the edge. Dropout of the attention
is the identity in eval mode.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.attention_layers import GAT, Fill, GATv2
from livegnn.models.edges import Gather, HeadDot, RowMatrix, Source, Target
from livegnn.models.messages import block_rows, filled, mean_of_heads, shift
from livegnn.models.pyg.context import refuse, to_array
from livegnn.models.pyg.convs.aggregation import scale
from livegnn.models.pyg.convs.call import BY_OPTION, TO_FLOAT32, Call, Conv, added, dense


def per_head(att: Any) -> Any:
    """The weight of sum over c of att[h, c] x[h, c], from an attention parameter (1, h, c)."""
    return block_rows(to_array(att)[0])


def _fill(conv: Any, call: Call) -> tuple[Fill, ir.Value | None]:
    """(what a loop's attributes are, the attributes): the Gather fills in the graph's own by "mean" or a number.

    PyG reads a fill only where there are attributes.
    """
    if call.attributes is None or not conv.add_self_loops:
        return "mean", call.attributes
    fill = "sum" if conv.fill_value == "add" else conv.fill_value
    if isinstance(fill, str):
        if fill not in ("mean", "sum", "max", "min"):
            raise refuse(
                call.where, f"fill_value={fill!r} is not supported", "use 'mean', 'add', 'max', 'min' or a number"
            )
    else:
        fill = call.record.constant(to_array(torch.as_tensor(fill)).reshape(-1))
    if call.raw_attributes() and isinstance(fill, str) and fill == "mean":
        return "mean", call.attributes
    if call.raw_attributes() and not isinstance(fill, str) and len(fill) == 1:
        return float(fill[0]), call.attributes
    return "mean", filled(call.attributes, fill)


def _gat(conv: Any, call: Call) -> ir.Value:
    call.sum_only("softmax attention")
    shared, read = conv.lin is not None, conv.lin_edge is not None
    fill, attributes = _fill(conv, call) if read else ("mean", call.attributes)
    layer = GAT(
        to_array(conv.lin.weight if shared else conv.lin_src.weight),
        to_array(conv.att_src)[0],
        to_array(conv.att_dst)[0],
        to_array(conv.bias),
        weight_edge=to_array(conv.lin_edge.weight) if read else None,
        att_edge=to_array(conv.att_edge)[0] if read else None,
        weight_target=None if shared else to_array(conv.lin_dst.weight),
        concat=conv.concat,
        slope=float(conv.negative_slope),
        self_loops=conv.add_self_loops,
        fill=fill,
        residual=None if conv.res is None else to_array(conv.res.weight),
    )
    if read and call.attributes is not None:
        call.record.constant(layer.folded_edge_weight())
    return layer.over(call.x, attributes, call.own)


def _gatv2(conv: Any, call: Call) -> ir.Value:
    call.sum_only("softmax attention")
    if call.attributes is not None and conv.lin_edge is None:
        raise refuse(call.where, "it is given edge_attr without an edge_dim", "leave edge_attr out")
    fill, attributes = _fill(conv, call)
    layer = GATv2(
        to_array(conv.lin_l.weight),
        to_array(conv.att)[0],
        to_array(conv.bias),
        weight_target=None if conv.share_weights else to_array(conv.lin_r.weight),
        bias_source=to_array(conv.lin_l.bias),
        bias_target=to_array(conv.lin_r.bias),
        weight_edge=None if conv.lin_edge is None else to_array(conv.lin_edge.weight),
        concat=conv.concat,
        slope=float(conv.negative_slope),
        self_loops=conv.add_self_loops,
        fill=fill,
        residual=None if conv.res is None else to_array(conv.res.weight),
    )
    return layer.over(call.x, attributes, call.own)


def _transformer(conv: Any, call: Call) -> ir.Value:
    call.sum_only("softmax attention")
    call.attributes_only_if(conv.lin_edge is not None, "it has an edge_dim")
    query = scale(dense(conv.lin_query, call.own), 1.0 / math.sqrt(conv.out_channels))
    key: ir.Value = Source(dense(conv.lin_key, call.x))
    value: ir.Value = Source(dense(conv.lin_value, call.x))
    if call.attributes is not None:
        edge = dense(conv.lin_edge, call.attributes)
        key, value = added(key, edge), added(value, edge)
    y: ir.Value = Gather(value, "softmax", HeadDot(Target(query), key, conv.heads), conv.heads)
    if not conv.concat:
        y = mean_of_heads(y, conv.heads)
    if not conv.root_weight:
        return y
    root = dense(conv.lin_skip, call.own)
    if conv.lin_beta is None:
        return added(y, root)
    difference = ir.Combine(((1.0, y), (-1.0, root)))
    beta = ir.Activation(dense(conv.lin_beta, ir.Concat((y, root, difference))), "sigmoid")
    return ir.Combine(((1.0, y), (-1.0, ir.Multiply(difference, beta))))


def _agnn(conv: Any, call: Call) -> ir.Value:
    call.sum_only("softmax attention")
    unit = ir.L2Normalize(call.x)
    score = HeadDot(Target(scale(unit, conv.beta)), Source(unit))
    return Gather(Source(call.x), "softmax", score, 1, call.loops)


def _super_gat(conv: Any, call: Call) -> ir.Value:
    call.sum_only("softmax attention")
    h = dense(conv.lin, call.x)
    if conv.attention_type == "MX":
        product = ir.Activation(HeadDot(Target(h), Source(h), conv.heads), "sigmoid")
        ends = added(Source(ir.Linear(h, per_head(conv.att_l))), Target(ir.Linear(h, per_head(conv.att_r))))
        alpha: ir.Value = ir.Multiply(ends, product)
    else:
        alpha = HeadDot(Target(scale(h, 1.0 / math.sqrt(conv.out_channels))), Source(h), conv.heads)
    score = ir.Activation(alpha, "leaky_relu", float(conv.negative_slope))
    y: ir.Value = Gather(Source(h), "softmax", score, conv.heads, call.loops)
    return shift(y if conv.concat else mean_of_heads(y, conv.heads), to_array(conv.bias))


def _feast(conv: Any, call: Call) -> ir.Value:
    """sum over h of softmax(u (x_j - x_i) + c)[h] W_h x_j: the attention runs over the heads of one edge."""
    u, h = dense(conv.u, call.x), dense(conv.lin, call.x)
    ends = ((1.0, Source(shift(u, to_array(conv.c)))), (-1.0, Target(u)))
    message = RowMatrix(ir.Softmax(ir.Combine(ends)), Source(h))
    y = call.aggregator(message, loops=call.loops).of(conv.aggr_module)
    return shift(y, to_array(conv.bias))


ATTENTION: dict[Any, Conv] = {
    pyg.GATConv: Conv(
        _gat,
        "`heads`, `concat`, `negative_slope`, `add_self_loops`, `edge_dim` with `fill_value` 'mean' or a number, "
        "`residual`, `bias`; two widths where one kind of rows is passed; bit-exact without `edge_dim`, "
        "with a slope from 0 to 1",
        BY_OPTION,
        vectors=True,
    ),
    pyg.GATv2Conv: Conv(_gatv2, "the options of GATConv and `share_weights`", TO_FLOAT32, vectors=True),
    pyg.TransformerConv: Conv(_transformer, "`heads`, `concat`, `beta`, `edge_dim`, `root_weight`, `bias`", TO_FLOAT32),
    pyg.AGNNConv: Conv(_agnn, "`add_self_loops`, `requires_grad`", TO_FLOAT32),
    pyg.SuperGATConv: Conv(
        _super_gat, "`attention_type` MX and SD in eval mode, `heads`, `concat`, `add_self_loops`, `bias`", TO_FLOAT32
    ),
    pyg.FeaStConv: Conv(_feast, "`heads`, `add_self_loops`, `bias`; every aggregation", TO_FLOAT32),
}
