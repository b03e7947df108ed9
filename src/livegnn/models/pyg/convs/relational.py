"""PyG's convolutions that distinguish edges by their type: one reduction per relation."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import ByRelation, EdgeRelation, Gather, RowMatrix, Source, Target
from livegnn.models.messages import mean_of_heads, ones, shift
from livegnn.models.pyg.context import Shaped, refuse, to_array
from livegnn.models.pyg.convs.aggregation import simple_name
from livegnn.models.pyg.convs.call import BIT_EXACT, BY_OPTION, TO_FLOAT32, Call, Conv, added, dense
from livegnn.models.pyg.layout import columns
from livegnn.models.pyg.tables import lookup


def _types_needed(call: Call) -> None:
    if not call.types:
        raise refuse(call.where, "it is not given the edge_type that it reads", "pass edge_type")


def block_diagonal(blocks: Any) -> Any:
    """(b, i, o) to the matrix (b i, b o) with the blocks on its diagonal."""
    count, rows, columns = blocks.shape
    weight = np.zeros((count, rows, count, columns))
    weight[np.arange(count), :, np.arange(count)] = blocks
    return weight.reshape(count * rows, count * columns)


def _rgcn(conv: Any, call: Call) -> ir.Value:
    """sum over r of W_r a_r + root x + b; with bases B, sum over k of B_k (sum over r of comp[r, k] a_r)."""
    _types_needed(call)
    if type(conv) is pyg.FastRGCNConv and simple_name(conv.aggr_module) not in ("sum", "mean"):
        raise refuse(call.where, f"aggr={conv.aggr!r} is not one that PyG runs here", "use RGCNConv")
    parts = [call.gather(call.x, relation=r) for r in range(conv.num_relations)]
    weight = to_array(conv.weight)
    if conv.num_bases is not None:
        comp = to_array(conv.comp)
        parts = [
            ir.Combine(tuple((float(comp[r, k]), part) for r, part in enumerate(parts))) for k in range(conv.num_bases)
        ]
    elif conv.num_blocks is not None:
        weight = np.stack([block_diagonal(each) for each in weight])
    stacked = np.concatenate(list(weight)).T
    y: ir.Value = ir.Linear(ir.Concat(tuple(parts)), stacked, to_array(conv.bias))
    return y if conv.root is None else added(y, ir.Linear(call.x, to_array(conv.root).T))


def _relation_weights(conv: Any, call: Call) -> list[Any]:
    """W_r of RGATConv, (heads out, in) each."""
    if conv.num_bases is not None:
        att, basis = to_array(conv.att), to_array(conv.basis)
        return [call.record.constant(np.tensordot(each, basis, 1)).T for each in att]
    weight = to_array(conv.weight)
    return [(block_diagonal(each) if conv.num_blocks is not None else each).T for each in weight]


def _rgat(conv: Any, call: Call) -> ir.Value:
    _refuse_rgat(conv, call)
    _types_needed(call)
    parts = [_rgat_relation(conv, call, ir.Linear(call.x, weight)) for weight in _relation_weights(conv, call)]
    heads, numbers = conv.heads * conv.dim, tuple(range(len(parts)))
    if conv.attention_mechanism == "across-relation" and len(parts) > 1:
        message = ByRelation(tuple(Source(rows) for rows, _ in parts), numbers)
        score = ByRelation(tuple(each for _, each in parts), numbers)
        terms: list[ir.Value] = [Gather(message, "softmax", score, heads, relation=numbers)]
    else:
        terms = []
        for number, (rows, each) in enumerate(parts):
            terms.append(Gather(Source(rows), "softmax", each, heads, relation=number))
    if conv.mod == "additive":
        scale = np.tile(to_array(conv.w), heads)
        plain = [ir.Propagate(rows, relation=number) for number, (rows, _) in enumerate(parts)]
        terms += [ir.Affine(each, scale, np.zeros(each.width, np.float32)) for each in plain]
    y: ir.Value = added(*terms)
    if conv.mod in ("scaled", "f-scaled"):
        degree = call.aggregator(ones(call.x)).simple("sum")
        if conv.mod == "f-scaled":
            y = ir.Multiply(y, degree)
        else:
            hidden = ir.Activation(ir.Linear(degree, to_array(conv.l1).T, to_array(conv.b1)[0]), "relu")
            factor = ir.Linear(hidden, to_array(conv.l2).T, to_array(conv.b2)[0])
            y = ir.Multiply(y, ir.Concat((factor,) * (conv.heads * conv.dim)))
    if not conv.concat:
        y = mean_of_heads(y, conv.heads)
    return shift(y, to_array(conv.bias))


def _refuse_rgat(conv: Any, call: Call) -> None:
    call.sum_only("softmax attention")
    if conv.mod == "f-additive":
        raise refuse(
            call.where, "mod='f-additive' asks of every attention weight whether it is 0", "train it with another mod"
        )
    call.attributes_only_if(conv.lin_edge is not None, "it has an edge_dim")


def _rgat_relation(conv: Any, call: Call, h: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(the sources' rows, the scores) of one relation's attention, heads times dim blocks of columns."""
    query: ir.Value = Target(ir.Linear(h, to_array(conv.q).T))
    key: ir.Value = Source(ir.Linear(h, to_array(conv.k).T))
    terms = [query, key]
    if call.attributes is not None:
        weight = to_array(conv.e).T @ to_array(conv.lin_edge.weight)
        terms.append(ir.Linear(call.attributes, call.record.constant(weight)))
    if conv.attention_mode == "additive-self-attention":
        score: ir.Value = ir.Activation(added(*terms), "leaky_relu", float(conv.negative_slope))
    else:
        score = ir.Multiply(*terms[:2])
        score = score if len(terms) == 2 else ir.Multiply(score, terms[2])
    size, dim = conv.out_channels, conv.dim
    rows: ir.Value = h
    if dim > 1:  # every head's message once per dim
        rows = ir.Concat(tuple(ir.Slice(h, i * size, (i + 1) * size) for i in range(conv.heads) for _ in range(dim)))
    return rows, score


def _heat(conv: Any, call: Call) -> ir.Value:
    """Attention of both ends, the edge's type and its attributes; rows are transformed by their vertices' types."""
    call.sum_only("softmax attention")
    _types_needed(call)
    kinds = call.others.get("node_type")
    if not isinstance(kinds, Shaped) or not kinds.whole or kinds.index.ndim:
        raise refuse(
            call.where,
            "its node_type is not a whole number that the graph has for each vertex",
            "put the types into a column of x, and pass x[:, 0].long()",
        )
    slope, weight = float(conv.negative_slope), to_array(conv.hetero_lin.weight)
    column = columns(kinds.source, kinds.index)
    chosen = lookup(call.record, column, np.eye(len(weight)))
    h: ir.Value = RowMatrix(chosen, ir.Linear(call.x, np.concatenate([each.T for each in weight])))
    if conv.hetero_lin.bias is not None:
        h = added(h, ir.Linear(chosen, to_array(conv.hetero_lin.bias).T))
    by_type = ir.Activation(
        lookup(call.record, EdgeRelation(), to_array(conv.edge_type_emb.weight)), "leaky_relu", slope
    )
    edge = ir.Activation(dense(conv.edge_attr_emb, call.needed_attributes()), "leaky_relu", slope)
    score = ir.Activation(dense(conv.att, ir.Concat((Target(h), Source(h), by_type, edge))), "leaky_relu", slope)
    message = dense(conv.lin, ir.Concat((Source(h), edge)))
    repeated = message if conv.heads == 1 else ir.Concat((message,) * conv.heads)
    y: ir.Value = Gather(repeated, "softmax", score, conv.heads)
    y = y if conv.concat else mean_of_heads(y, conv.heads)
    if not conv.root_weight:
        return y
    return added(y, ir.Concat((h,) * conv.heads) if conv.concat and conv.heads > 1 else h)


def _film(conv: Any, call: Call) -> ir.Value:
    """sum over r of the aggregate of act(gamma_r(x_i) * W_r x_j + beta_r(x_i)), and the same of x_i itself."""

    def modulated(film: ir.Value, rows: ir.Value) -> ir.Value:
        size = conv.out_channels
        parts: list[ir.Value] = [ir.Slice(film, 0, size), ir.Slice(film, size, 2 * size)]
        beta, gamma = [Target(part) for part in parts] if rows.on_edges else parts
        y: ir.Value = added(ir.Multiply(rows, gamma), beta)
        return y if conv.act is None else call.inner("act", y)

    several = conv.num_relations > 1
    if several:
        _types_needed(call)
    terms = [modulated(call.inner("film_skip", call.x), dense(conv.lin_skip, call.x))]
    for r, layer in enumerate(conv.lins):
        message = modulated(call.inner(f"films.{r}", call.x), Source(dense(layer, call.x)))
        terms.append(call.gather(message, relation=r if several else None))
    return added(*terms)


_RGCN = "`num_relations`, `num_bases`, `num_blocks`, `root_weight`, `bias`; "
TYPED: dict[Any, Conv] = {
    pyg.RGCNConv: Conv(
        _rgcn, _RGCN + "mean, sum, max, min or median per relation, as PyG computes it without pyg_lib", BIT_EXACT
    ),
    pyg.FastRGCNConv: Conv(_rgcn, _RGCN + "mean or sum per relation", BIT_EXACT),
    pyg.RGATConv: Conv(
        _rgat,
        "both `attention_mechanism`s and `attention_mode`s, `heads`, `dim`, `concat`, `edge_dim`, `num_bases`, "
        "`num_blocks`, `mod` None, additive, scaled and f-scaled; bit-exact within relations, or of one relation, with "
        "additive-self attention and without `edge_dim`",
        BY_OPTION,
    ),
    pyg.HEATConv: Conv(
        _heat,
        "`heads`, `concat`, `root_weight`, `bias`; `node_type` a column of `x` as whole numbers",
        TO_FLOAT32,
        takes=("node_type",),
    ),
    pyg.FiLMConv: Conv(_film, "every aggregation; `num_relations`, `nn`, `act`", TO_FLOAT32),
}
