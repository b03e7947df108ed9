"""PyG's convolutions, by exact type. A subclass may override any step, so it is never taken for its parent.

CONVS is the one registry; each family of convolutions has its own file.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute, EdgeWeight
from livegnn.models.pyg.context import (
    EDGES,
    TYPES,
    VERTEX_COUNT,
    WEIGHTS,
    Flat,
    Folded,
    Import,
    Marker,
    Refusal,
    Relation,
    is_symbol,
    refuse,
    refuse_cached,
)
from livegnn.models.pyg.convs.attention import ATTENTION
from livegnn.models.pyg.convs.call import BY_OPTION, TO_FLOAT32, Call, Conv, Exactness, Run
from livegnn.models.pyg.convs.edgewise import EDGEWISE
from livegnn.models.pyg.convs.linear import LINEAR
from livegnn.models.pyg.convs.multi import MULTI
from livegnn.models.pyg.convs.operators import OPERATORS
from livegnn.models.pyg.convs.relational import TYPED
from livegnn.models.pyg.convs.rewired import joined, settled
from livegnn.models.pyg.hetero.relation import convert_along
from livegnn.models.pyg.own.read import changes_nothing, convert_named, convert_own
from livegnn.models.pyg.own.typed import convert_along_types
from livegnn.models.pyg.refused import REFUSED_CONVS
from livegnn.models.turning import ends_changed, turned

CONVS: dict[Any, Conv] = {**LINEAR, **ATTENTION, **EDGEWISE, **TYPED, **MULTI, **OPERATORS}
#: Modules of torch_geometric.nn.conv whose own forward is read, operation by operation, with what the table says.
READ_THROUGH: dict[Any, tuple[str, str]] = {
    pyg.AntiSymmetricConv: (BY_OPTION, "as its `phi` is; `num_iters`, `epsilon`, `gamma`, `act`, `bias`"),
    pyg.DirGNNConv: (BY_OPTION, "as its `conv` is, along the edges and against them; `alpha`, `root_weight`"),
    pyg.HeteroConv: (
        BY_OPTION,
        "as its layers are, but means of messages with edge attributes are exact to float32; `aggr` sum, mean, max, "
        "min, cat; between two types SimpleConv, SAGEConv, GraphConv, GATConv, GATv2Conv, TransformerConv, GINConv, "
        "GINEConv, NNConv, CGConv, EdgeConv, ResGatedGraphConv, LEConv, GENConv, GMMConv, GeneralConv and own layers; "
        "within one type every layer that needs no `edge_type` (docs/hetero.md)",
    ),
}

#: Layers of torch_geometric.nn.conv that are followed through one run, as own layers are, with what the table says.
FOLLOWED: dict[Any, tuple[Exactness, str]] = {
    pyg.DNAConv: (
        TO_FLOAT32,
        "`heads`, `groups=1`, `normalize`, `add_self_loops`, `bias`; its rows are `torch.stack(layers, dim=1)`",
    ),
    pyg.PointNetConv: (
        TO_FLOAT32,
        "every aggregation; `local_nn`, `global_nn`, `add_self_loops`; `pos` of columns of `x`",
    ),
    pyg.PointTransformerConv: (TO_FLOAT32, "`pos_nn`, `attn_nn`, `add_self_loops`; `pos` of columns of `x`"),
    pyg.PointGNNConv: (TO_FLOAT32, "`mlp_h`, `mlp_f`, `mlp_g`; `pos` of columns of `x`"),
}

_OVERRIDES = ("forward", "propagate", "message", "aggregate", "update", "message_and_aggregate", "edge_update")


def convert_conv(conv: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, run: Run) -> Any:
    """The value of a convolution's call, or of a user's own layer; attention weights are refused where they are read.

    Raises: ModelUnsupported naming the layer, its type and the reason.
    """
    kind = type(conv)
    where = f"{name} ({kind.__name__})" if name else kind.__name__
    if kind in record.operators:
        return record.name(convert_named(conv, where, args, kwargs, record), where)
    if kind not in CONVS and kind not in FOLLOWED and kind.__module__.startswith("torch_geometric."):
        raise refuse(where, *_why_not(kind))
    _check_options(conv, where)
    kind = _as_base(kind)
    if kind not in CONVS:
        return record.name(follow_module(conv, name, where, called, (args, kwargs), record, run), where)
    given = _given(conv, where, args, kwargs)
    if _is_turned(conv):
        _refuse_half_turned(conv, kind, given, where)
    edges, asked = given.get("edge_index"), given.pop("return_attention_weights", None)
    call, relation, against = _bind(conv, given, (name, where, run, record))
    conv, convert = call.conv, CONVS[kind].convert
    record.against = against
    value = convert(conv, call) if relation is None else convert_along(conv, call, convert, relation)
    rows = (call.x, call.own, call.weight, call.attributes, *given.values())
    before = [each for each in rows if isinstance(each, ir.Value)]
    result: ir.Value = record.name(turned(value, before) if against else value, where)
    if not asked and (asked is None or kind in (pyg.GATConv, pyg.GATv2Conv)):
        return result
    reason = "its attention weights are one row per edge, not per vertex"
    return result, (edges, Refusal(refuse(where, reason, "use the first of its results alone")))


def follow_module(
    module: Any, name: str, where: str, call: Callable[..., Any], given: tuple[Any, ...], record: Import, run: Run
) -> Any:
    """What call(module, given) returns, followed through one run (own/). Raises: ModelUnsupported."""

    def nested(conv: Any, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return convert_conv(conv, path, args, kwargs, record, run)

    def checked(conv: Any, path: str) -> None:
        _check_options(conv, f"{path} ({type(conv).__name__})")

    def read(given: tuple[Any, ...]) -> Any:
        return convert_own(module, name, where, call, given, record, nested, checked)

    return convert_along_types(where, given, record, read)


def called(module: Any, given: tuple[Any, Any]) -> Any:
    """module(*args, **kwargs), given as a pair."""
    args, kwargs = given
    return module(*args, **kwargs)


def _as_base(kind: Any) -> Any:
    """The layer of PyG that a subclass without code of its own is; else the class itself."""
    base = next((each for each in kind.__mro__ if each in CONVS), kind)
    return base if kind is base or changes_nothing(kind, base) else kind


def refuse_unknown(module: Any, known: Collection[Any]) -> None:
    """Refuses the first convolution in `module` that is neither in CONVS nor among `known` others, by name."""
    for name, each in module.named_modules():
        kind = type(each)
        if isinstance(each, pyg.MessagePassing) and not any(
            kind in each for each in (CONVS, READ_THROUGH, FOLLOWED, known)
        ):
            raise refuse(f"{name} ({kind.__name__})" if name else kind.__name__, *_why_not(kind))


def _why_not(kind: type) -> tuple[str, str]:
    supported = [base for base in kind.__mro__[1:] if base in CONVS]
    if supported and not kind.__module__.startswith("torch_geometric."):
        return (
            f"it is a subclass of {supported[0].__name__} and may compute something else",
            f"use {supported[0].__name__} itself",
        )
    if kind.__name__ in REFUSED_CONVS and kind.__module__.startswith("torch_geometric."):
        return REFUSED_CONVS[kind.__name__], "see docs/models.md for the layers supported"
    return "its code is not known to livegnn", "see docs/models.md for the layers supported"


def _check_options(conv: Any, where: str) -> None:
    if conv.node_dim not in (-2, 0):
        raise refuse(where, f"node_dim={conv.node_dim} is not a row per vertex", "use node_dim=-2")
    if conv.decomposed_layers != 1:
        raise refuse(where, f"decomposed_layers={conv.decomposed_layers} is not read", "set decomposed_layers=1")
    if getattr(conv, "cached", False):
        raise refuse_cached(where)
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


def _given(conv: Any, where: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are not None, by the forward's own names."""
    try:
        bound = inspect.signature(type(conv).forward).bind(conv, *args, **kwargs)
    except TypeError as error:
        raise refuse(where, f"it is called in a way that it does not accept ({error})", "fix the call") from None
    bound.apply_defaults()
    return {key: value for key, value in list(bound.arguments.items())[1:] if value is not None}


def _refuse_half_turned(conv: Any, kind: Any, given: dict[str, Any], where: str) -> None:
    """Refuses a flow that a layer heeds for its messages alone."""
    fills = getattr(conv, "add_self_loops", False) and isinstance(getattr(conv, "fill_value", None), str)
    what = "weighs edges by degrees" if not CONVS[kind].turns else "fills self-loops with edge_attr"
    if CONVS[kind].turns and not (fills and "edge_attr" in given):
        return
    raise refuse(
        where,
        f"with flow='target_to_source' it {what} of the other direction than its messages have",
        "train it on edge_index.flip(0) with the default flow",
    )


def _is_turned(conv: Any) -> bool:
    """Whether a layer sends its messages from edge_index[1] to edge_index[0]."""
    return bool(conv.flow == "target_to_source")


def _bind(
    conv: Any, given: dict[str, Any], context: tuple[str, str, Run, Import]
) -> tuple[Call, Relation | None, bool]:
    """The call, the relation whose edges it is given as messages go along it, and whether they go against the edges.

    The relation is None where edges have no types of their own.
    """
    where = context[1]
    x, edges, weight = given.pop("x", None), given.pop("edge_index", None), given.pop("edge_weight", None)
    size, types = given.pop("size", None), given.pop("edge_type", None)
    attributes = _attributes(conv, given.pop("edge_attr", None), context[3], where)
    rewired = joined(edges, weight, where)
    if rewired is None and (not isinstance(edges, Marker) or edges.what != EDGES.what):
        raise refuse(where, "its edges are not the graph's own edge_index", "change the graph, not the model's copy")
    against = edges.turned != _is_turned(conv)
    if rewired is not None and rewired.norm is not None and rewired.turned != against:
        raise refuse(where, "its weights are normalised by degrees of the other direction", "let the layer normalise")
    relation = None if rewired is not None else _along(edges, conv, where)
    x, own = _ends(x, relation, where)
    if rewired is None:
        _of_relation((weight, attributes), None if relation is None else edges.relation, context[3], where)
    weight = _weights(weight, context[3], where) if rewired is None else rewired.weight
    if against:
        columns = (None if each is None else ends_changed(each, context[3].changed) for each in (weight, attributes))
        weight, attributes = columns
        rewired = None if rewired is None else dataclasses.replace(rewired, weight=weight)
    conv, rewired = settled(conv, rewired, attributes, where)
    if types is not None and types is not TYPES:
        raise refuse(where, "its edge_type is not the graph's own", "give the types to the graph instead")
    if size is not None:
        _refuse_size(size, where)
    for key in given:
        if key not in CONVS[_as_base(type(conv))].takes:
            raise refuse(where, f"its argument {key} is not read", f"leave {key} out")
    return Call(conv, x, own, weight, attributes, types is TYPES, given, *context, rewired), relation, against


def _along(edges: Marker, conv: Any, where: str) -> Relation | None:
    """The relation of edges that may be turned round. Refuses a flow that PyG has no use for between two types."""
    relation = edges.relation
    if relation is None:
        return None
    if _is_turned(conv) and relation.src != relation.dst:
        raise refuse(
            where,
            "flow='target_to_source' takes the rows of two types of vertices for each other's",
            "turn the edges round, by edge_index.flip(0), or give the graph the reverse edges as a type",
        )
    return Relation(relation.number, relation.dst, relation.src) if edges.turned else relation


def _weights(given: Any, record: Import, where: str) -> ir.Value | None:
    """A convolution's edge_weight: the graph's weights, or its attributes where these are one column, or computed."""
    if given is None:
        return None
    rows = EdgeWeight() if is_weights(given) else given.value if isinstance(given, Flat) else given
    if isinstance(rows, torch.Tensor):
        raise refuse(
            where,
            "its edge_weight has numbers of its own for single edges, and these come and go",
            "give the numbers to the graph as weight=, and take them as edge_weight",
        )
    if not isinstance(rows, ir.Value) or not rows.on_edges:
        raise refuse(
            where,
            "its edge_weight is not computed from the columns of its edges alone",
            "compute it from edge_attr or edge_weight, or give it to the graph",
        )
    if rows.width != 1:
        what = "the forward's edge_attr, which has" if isinstance(rows, EdgeAttribute) else "rows of"
        raise refuse(where, f"its edge_weight is {what} {rows.width} columns", "give it one number per edge")
    if isinstance(rows, EdgeAttribute):
        record.weights_from.add("edge_attr")
        return EdgeWeight()
    if is_weights(given):
        record.weights_from.add("edge_weight")
    return rows


def _refuse_size(size: Any, where: str) -> None:
    """Refuses another size than (number of vertices, number of vertices)."""
    if is_symbol(size) and not isinstance(size, (list, tuple)) and size != VERTEX_COUNT:
        raise refuse(
            where, "it is given a column of the edges as its third argument, which is size", "leave that argument out"
        )
    if not isinstance(size, (list, tuple)) or tuple(size) != (VERTEX_COUNT, VERTEX_COUNT):
        raise refuse(where, "it is given size, as for two kinds of vertices", "leave size out")


def _ends(x: Any, relation: Relation | None, where: str) -> tuple[ir.Value, ir.Value]:
    """The rows of a call's sources and targets."""
    pair = tuple(x) if isinstance(x, (tuple, list)) else (x, x)
    if any(isinstance(each, Folded) for each in pair):
        count = " times ".join(str(each) for each in pair[0].counts if each > 1)
        raise refuse(
            where,
            f"its rows hold every vertex {count} times, and edge_index names each vertex once",
            "call it with (heads or steps, vertices, columns), or with one row per vertex",
        )
    if len(pair) != 2 or (relation is None and pair[0] is not pair[1]):
        raise refuse(where, "it is given different rows for sources and targets", "pass one row per vertex")
    if not all(isinstance(each, ir.Value) and not each.on_edges for each in pair):
        raise refuse(where, "its first argument is not one row per vertex", "pass the features or a layer's output")
    wanted = (None, None) if relation is None else (relation.src, relation.dst)
    if tuple(each.vertex_type for each in pair) != wanted:
        raise refuse(
            where, "its rows are not of the types of vertices that its edges join", "pass the rows of both, as a pair"
        )
    return pair


def _of_relation(columns: tuple[Any, ...], relation: Relation | None, record: Import, where: str) -> None:
    """Refuses weights and attributes of other edges than the call's own."""
    for each in columns:
        if isinstance(each, Marker):
            found = {each.relation}
        else:
            value = each.value if isinstance(each, Flat) else each
            leaves = ir.walk(value) if isinstance(value, ir.Value) else []
            found = {record.attribute_relations.get(id(leaf)) for leaf in leaves if isinstance(leaf, EdgeAttribute)}
        if found - {relation}:
            raise refuse(where, "its edges and their weights or attributes are of different types", "fix the call")


def is_weights(given: Any) -> bool:
    return isinstance(given, Marker) and given.what == WEIGHTS.what


def _attributes(conv: Any, given: Any, record: Import, where: str) -> ir.Value | None:
    """A convolution's edge_attr as rows of edges."""
    if given is None:
        return None
    vector = is_weights(given) or isinstance(given, Flat)
    if is_weights(given):
        record.weights_from.add("edge_weight")
    rows = EdgeWeight() if is_weights(given) else given.value if isinstance(given, Flat) else given
    if not isinstance(rows, ir.Value) or not rows.on_edges:
        raise refuse(where, "its edge_attr is not one row per edge", "pass the graph's attributes")
    if vector and not CONVS[_as_base(type(conv))].vectors:
        raise refuse(where, "its edge_attr is one number per edge, not a row", "pass rows, such as edge_attr[:, None]")
    return rows
