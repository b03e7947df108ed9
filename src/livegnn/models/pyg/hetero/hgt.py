"""PyG's layers that take rows of several vertex types in a dict: HGTConv."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import ByRelation, Gather, HeadDot, Source, Target
from livegnn.models.pyg.context import EDGES, Import, Marker, Relation, refuse, to_array
from livegnn.models.pyg.convs.aggregation import scale
from livegnn.models.pyg.convs.call import TO_FLOAT32, Exactness, dense
from livegnn.models.pyg.convs.relational import block_diagonal

Rows = dict[str, ir.Value]


def _dict_linear(lins: Any, rows: Rows) -> Rows:
    return {key: dense(lin, rows[key]) for key, lin in lins.lins.items() if key in rows}


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


def _rows(given: Any, where: str) -> Rows:
    rows = given.items() if isinstance(given, dict) else ()
    if not rows or not all(isinstance(value, ir.Value) and value.vertex_type is not None for _, value in rows):
        raise refuse(where, "it is not given rows by vertex type", "pass the forward's dicts, or a layer's output")
    return dict(given)


def _hgt(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str) -> Rows:
    """y[v] = s W gelu(sum over in-edges e of softmax(q_v . (K_r k_u) p_r / sqrt(D)) (V_r v_u)) + (1 - s) x[v], one
    softmax over the edges of all types r that lead to v; without the second term where the widths differ.
    """
    x = _rows(_argument(args, kwargs, 0, "x_dict"), where)
    edges = _argument(args, kwargs, 1, "edge_index_dict")
    relations = _relations(conv, edges, where)
    if conv.flow != "source_to_target" or conv.decomposed_layers != 1:
        raise refuse(where, "its options turn messages round or apart", "use the defaults")
    size, _heads = conv.out_channels, conv.heads
    kqv = _dict_linear(conv.kqv_lin, x)
    parts: dict[str, list[ir.Value]] = {
        name: [ir.Slice(rows, i * size, (i + 1) * size) for i in range(3)] for name, rows in kqv.items()
    }
    out: Rows = {}
    for name in x:
        into = {triple: relation for triple, relation in relations.items() if triple[2] == name}
        if name not in conv.dst_node_types:
            continue
        if not into:
            raise refuse(where, f"no edges lead to {name!r}, which its metadata says", "pass all edge types")
        out[name] = _attend(conv, parts, into, name, record)
    y = _dict_linear(conv.out_lin, {name: ir.Activation(rows, "gelu") for name, rows in out.items()})
    for name, rows in y.items():
        if rows.width == x[name].width:
            share = 1.0 / (1.0 + math.exp(-float(conv.skip[name])))
            record.rounded = True  # PyG takes the sigmoid in the module's own dtype
            y[name] = ir.Combine(((share, rows), (1.0 - share, x[name])))
    return y


def _relations(conv: Any, edges: Any, where: str) -> dict[tuple[str, str, str], Relation]:
    found: dict[tuple[str, str, str], Relation] = {}
    for triple, marker in edges.items() if isinstance(edges, dict) else ():
        if (
            isinstance(marker, Marker)
            and marker.what == EDGES.what
            and not marker.turned
            and marker.relation
            and triple in conv.edge_types_map
        ):
            found[triple] = marker.relation
    if not found or len(found) != len(edges):
        raise refuse(where, "it is not given the graph's own edges by type", "pass the forward's edge_index_dict")
    order = [conv.edge_types_map[triple] for triple in found]
    if order != sorted(order):
        raise refuse(where, "its edge types come in another order than its metadata's", "pass them in that order")
    return found


def _attend(
    conv: Any, parts: dict[str, list[ir.Value]], into: dict[tuple[str, str, str], Relation], name: str, record: Import
) -> ir.Value:
    heads, count = conv.heads, len(conv.edge_types)
    query = Target(scale(parts[name][1], 1.0 / math.sqrt(conv.out_channels // heads)))
    scores, messages = [], []
    for triple in into:
        key, _, value = parts[triple[0]]
        rows = [h * count + conv.edge_types_map[triple] for h in range(heads)]
        p = np.repeat(to_array(conv.p_rel["__".join(triple)])[0], conv.out_channels // heads)
        key = ir.Linear(key, _blocks(conv.k_rel, rows))
        scores.append(HeadDot(query, Source(ir.Affine(key, record.constant(p), np.zeros(len(p), np.float32))), heads))
        messages.append(Source(ir.Linear(value, _blocks(conv.v_rel, rows))))
    numbers = tuple(relation.number for relation in into.values())
    target = next(iter(into.values())).dst
    if len(numbers) == 1:
        return Gather(messages[0], "softmax", scores[0], heads, relation=numbers[0], target=target)
    message, score = ByRelation(tuple(messages), numbers), ByRelation(tuple(scores), numbers)
    return Gather(message, "softmax", score, heads, relation=numbers, target=target)


def _blocks(linear: Any, rows: list[int]) -> Any:
    """The weight of one matrix per head, (heads columns, heads columns)."""
    return block_diagonal(to_array(linear.weight)[rows].transpose(0, 2, 1))


@dataclass(frozen=True)
class OverTypes:
    """How a layer that takes dicts is read, and what docs/models.md says of it."""

    convert: Callable[[Any, tuple[Any, ...], dict[str, Any], Import, str], Rows]
    how: str
    exactness: Exactness


OVER_TYPES: dict[Any, OverTypes] = {
    pyg.HGTConv: OverTypes(
        _hgt,
        "`heads`; edge types in the order of its metadata; one softmax over the edges of all types (docs/hetero.md)",
        TO_FLOAT32,
    )
}
