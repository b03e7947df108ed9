"""PyG's convolutions that join several aggregations of one message: PNA and EGC."""

from __future__ import annotations

from typing import Any

from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import RowMatrix, Source, Target
from livegnn.models.messages import shift
from livegnn.models.pyg.context import refuse, to_array
from livegnn.models.pyg.convs.aggregation import VARIANCE_MIN, Aggregator, add_number
from livegnn.models.pyg.convs.call import BY_OPTION, Call, Conv, dense, side_by_side


def _pna(conv: Any, call: Call) -> ir.Value:
    """Per tower: post([x_i, scaled aggregates of pre([x_i, x_j, e])]); a first Linear of pre is taken apart."""
    call.attributes_only_if(conv.edge_dim is not None, "it has an edge_dim")
    edge = () if call.attributes is None else (dense(conv.edge_encoder, call.attributes),)
    size, towers = conv.F_in, []
    for tower in range(conv.towers):
        x = ir.Slice(call.x, tower * size, (tower + 1) * size) if conv.divide_input and conv.towers > 1 else call.x
        message = call.inner(f"pre_nns.{tower}", ir.Concat((Target(x), Source(x), *edge)))
        towers.append(call.inner(f"post_nns.{tower}", ir.Concat((x, call.gather(message)))))
    return dense(conv.lin, side_by_side(towers))


def _egc(conv: Any, call: Call) -> ir.Value:
    """Every head mixes `num_bases` projections under every aggregation, with weights from its own row."""
    symmetric = "symnorm" in conv.aggregators
    if conv.add_self_loops and not symmetric:
        raise refuse(
            call.where,
            "without 'symnorm' it adds self-loops up to the largest vertex that has an edge, and to no other",
            "train it with add_self_loops=False or with 'symnorm'",
        )
    bases = dense(conv.bases_lin, call.x)
    aggregator = call.aggregator(bases, loops=call.loops)
    joined = [_egc_aggregate(name, aggregator, bases, conv.add_self_loops) for name in conv.aggregators]
    mixed = side_by_side(joined)
    weights, size = dense(conv.comb_lin, call.x), conv.num_bases * len(conv.aggregators)
    heads = [RowMatrix(ir.Slice(weights, h * size, (h + 1) * size), mixed) for h in range(conv.num_heads)]
    return shift(side_by_side(heads), to_array(conv.bias))


def _egc_aggregate(name: str, aggregator: Aggregator, bases: ir.Value, self_loops: bool) -> ir.Value:
    if name == "symnorm":
        return ir.Propagate(bases, "gcn", False, self_loops)
    if name in ("var", "std"):
        variance = aggregator.variance()
        if name == "var":
            return variance
        excess = add_number(variance, -VARIANCE_MIN, aggregator.record)  # max(variance, c) = max(variance - c, 0) + c
        at_least = add_number(ir.Activation(excess, "relu"), VARIANCE_MIN, aggregator.record)
        return ir.Activation(at_least, "sqrt")
    return aggregator.simple(next(each for each in ir.AGGREGATES if each == name))


MULTI: dict[Any, Conv] = {
    pyg.PNAConv: Conv(
        _pna,
        "every aggregation and all five `scalers` with `deg` as trained; `towers`, `divide_input`, `pre_layers`, "
        "`post_layers`, `act`, `edge_dim`, `train_norm`; bit-exact with `pre_layers=1`, without softmax and, with "
        "edge attributes, without max, min and median",
        BY_OPTION,
    ),
    pyg.EGConv: Conv(
        _egc,
        "`aggregators` symnorm, sum, mean, min, max, var, std; `num_heads`, `num_bases`, `bias`; bit-exact with "
        "symnorm alone or `add_self_loops=False`; added self-loops need symnorm",
        BY_OPTION,
    ),
}
