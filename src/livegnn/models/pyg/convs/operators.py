"""PyG's other convolutions: recurrent ones, and sums along edges with factors and weights of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import Gather, RowMatrix, Source, Target
from livegnn.models.messages import ones, shift
from livegnn.models.pyg.context import refuse, to_array
from livegnn.models.pyg.convs.call import BIT_EXACT, BY_OPTION, TO_FLOAT32, Call, Conv, added, dense
from livegnn.models.pyg.convs.linear import normalised


def gru_cell(cell: Any, x: ir.Value, h: ir.Value) -> ir.Value:
    """torch.nn.GRUCell.

    r, z = sigmoid(W_i x + b_i + W_h h + b_h);  n = tanh(W_in x + b_in + r (W_hn h + b_hn));  h' = n + z (h - n).
    """
    size = cell.hidden_size
    from_x = ir.Linear(x, to_array(cell.weight_ih), to_array(cell.bias_ih))
    from_h = ir.Linear(h, to_array(cell.weight_hh), to_array(cell.bias_hh))

    def gate(k: int) -> ir.Value:
        terms = ((1.0, ir.Slice(from_x, k * size, (k + 1) * size)), (1.0, ir.Slice(from_h, k * size, (k + 1) * size)))
        return ir.Activation(ir.Combine(terms), "sigmoid")

    reset, update = gate(0), gate(1)
    recurrent = ir.Multiply(ir.Slice(from_h, 2 * size, 3 * size), reset)
    new = ir.Activation(added(ir.Slice(from_x, 2 * size, 3 * size), recurrent), "tanh")
    kept = ir.Multiply(ir.Combine(((1.0, h), (-1.0, new))), update)
    return added(new, kept)


def _gated(conv: Any, call: Call) -> ir.Value:
    h, size = call.x, conv.out_channels
    if h.width > size:
        raise refuse(call.where, f"its input of width {h.width} is wider than its output", "make out_channels larger")
    if h.width < size:  # columns of zeros follow
        h = ir.Linear(h, np.eye(size, h.width, dtype=np.float32))
    for weight in to_array(conv.weight):
        h = gru_cell(conv.rnn, call.gather(ir.Linear(h, weight.T), weight=call.weight), h)
    return h


def _arma(conv: Any, call: Call) -> ir.Value:
    """The mean over stacks k of h_k[T];  h_k[t] = act(P (W_k h_k[t-1]) + V_k x + b_k), P as in GCN without loops."""
    stacks = []
    root_weight, bias = to_array(conv.root_weight), to_array(conv.bias)
    for k in range(conv.num_stacks):
        h = call.x
        for t in range(conv.num_layers):
            own = 0 if conv.shared_weights else t
            weight = to_array(conv.init_weight if t == 0 else conv.weight[0 if conv.shared_weights else t - 1])[k]
            a = normalised(call, ir.Linear(h, weight.T), False)
            root = ir.Linear(call.x, root_weight[own, k].T, None if bias is None else bias[own, k, 0])
            h = added(a, root)
            h = h if conv.act is None else call.inner("act", h)
        stacks.append(h)
    return stacks[0] if len(stacks) == 1 else ir.Combine(tuple((1.0 / len(stacks), each) for each in stacks))


def _le(conv: Any, call: Call) -> ir.Value:
    ends = ((1.0, Source(dense(conv.lin1, call.x))), (-1.0, Target(dense(conv.lin2, call.own))))
    y = call.gather(ir.Combine(ends), weight=call.weight)
    return added(y, dense(conv.lin3, call.own))


def _cluster_gcn(conv: Any, call: Call) -> ir.Value:
    """W (m + lambda x / d) + V x, m the mean over v and its other in-neighbours, d their number."""
    call.sum_only("it")
    if not conv.add_self_loops:
        raise refuse(call.where, "add_self_loops=False fails unless every vertex has one self-loop", "set it to True")
    call.record.rounded = True  # PyG takes 1 / d in float32 whatever the module's dtype is
    y: ir.Value = Gather(Source(call.x), "mean", loops="replace")
    if conv.diag_lambda != 0:
        degree = call.aggregator(ones(call.x), loops="replace").simple("sum")
        own = ir.Multiply(call.x, ir.Activation(degree, "reciprocal"))
        y = ir.Combine(((1.0, y), (float(conv.diag_lambda), own)))
    return added(dense(conv.lin_out, y), dense(conv.lin_root, call.x))


def _wl_continuous(conv: Any, call: Call) -> ir.Value:
    degree = call.aggregator(ones(call.x), weight=call.weight).simple("sum")
    y = ir.Multiply(call.gather(call.x, weight=call.weight), ir.Activation(degree, "reciprocal"))
    return ir.Combine(((0.5, call.x), (0.5, y)))


def _mf(conv: Any, call: Call) -> ir.Value:
    """W_d a + b_d + V_d x with d the number of in-edges, `max_degree` at most; one of all products is kept per row."""
    count = conv.max_degree + 1
    degree = call.aggregator(ones(call.x)).simple("sum")
    top = ir.Affine(degree, np.zeros(1, np.float32), np.full(1, -conv.max_degree, np.float32))
    low = ir.Maximum((ir.Combine(((-1.0, degree),)), top))  # -min(degree, max_degree)
    distance = ir.Activation(ir.Linear(low, np.ones((count, 1), np.float32), np.arange(count)), "abs")
    chosen = ir.Activation(shift(ir.Combine(((-1.0, distance),)), np.ones(count)), "relu")
    biased = conv.lins_l[0].bias is not None
    left = ir.Linear(
        call.gather(call.x),
        np.concatenate([to_array(each.weight) for each in conv.lins_l]),
        np.concatenate([to_array(each.bias) for each in conv.lins_l]) if biased else None,
    )
    right = ir.Linear(call.x, np.concatenate([to_array(each.weight) for each in conv.lins_r]))
    return RowMatrix(chosen, added(left, right))


OPERATORS: dict[Any, Conv] = {
    pyg.GatedGraphConv: Conv(
        _gated, "every aggregation; `num_layers`, `bias`; edge weights; bit-exact without softmax", BY_OPTION
    ),
    pyg.ARMAConv: Conv(
        _arma, "degree-normalised sums; `num_stacks`, `num_layers`, `shared_weights`, `act`, `bias`", BIT_EXACT
    ),
    pyg.LEConv: Conv(
        _le, "every aggregation; edge weights; exact to float32 with softmax, or weights and no sum or mean", BY_OPTION
    ),
    pyg.ClusterGCNConv: Conv(
        _cluster_gcn,
        "`diag_lambda`, `bias`; `add_self_loops`, or one self-loop for every vertex by the forward",
        TO_FLOAT32,
        turns=False,
    ),
    pyg.WLConvContinuous: Conv(_wl_continuous, "edge weights", BIT_EXACT, turns=False),
    pyg.MFConv: Conv(_mf, "every aggregation; `max_degree`, `bias`; bit-exact without softmax", BY_OPTION),
}
