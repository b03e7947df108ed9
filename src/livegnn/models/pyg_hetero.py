"""Reads a module over several types of vertices: HeteroConv, HGTConv, to_hetero and forwards written around them.

The forward takes dicts of rows by vertex type and of edges by edge type. Reading, matching and comparing are those of
every import; here the dicts are taken apart into one symbol for each type, and the results put together again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute
from livegnn.models.model import Model
from livegnn.models.pyg_columns import edge_widths
from livegnn.models.pyg_context import Flat, Import, Marker, Refusal, Relation, refuse
from livegnn.models.pyg_convs import refuse_unknown
from livegnn.models.pyg_hetero_check import TypedColumns, as_typed_tensors, check_typed_import, typed_sample
from livegnn.models.pyg_hetero_signature import TypedSignature, Types, read_typed_signature
from livegnn.models.pyg_hetero_widths import find_widths
from livegnn.models.pyg_hgt import OVER_TYPES
from livegnn.models.pyg_import import prepared, variants
from livegnn.models.pyg_trace import read_forward

__all__ = ["import_over_types", "types_of"]


def types_of(module: nn.Module, metadata: Any) -> Types | None:
    """(vertex types, edge types) that a module is made for, in the order in which its layers name them.

    Returns: None for a module that knows one kind of vertex only.
    Raises:  ModelError for metadata that are none.
    """
    if metadata is not None:
        return _checked(metadata)
    vertices: dict[str, None] = {}
    edges: dict[tuple[str, str, str], None] = {}
    for each in module.modules():
        if isinstance(each, pyg.HeteroConv):
            edges |= dict.fromkeys(each.convs.keys())
        elif isinstance(each, (pyg.HGTConv, pyg.HANConv)):
            names, triples = (each.node_types, each.edge_types) if isinstance(each, pyg.HGTConv) else each.metadata
            vertices |= dict.fromkeys(names)
            edges |= dict.fromkeys(tuple(triple) for triple in triples)
        elif isinstance(each, torch.fx.GraphModule):
            for node in each.graph.nodes:
                if node.op == "call_method" and node.target == "get" and len(node.args) == 3:
                    (edges if isinstance(node.args[1], tuple) else vertices)[node.args[1]] = None
    for src, _, dst in edges:
        vertices |= {src: None, dst: None}
    return (tuple(vertices), tuple(edges)) if edges else None


def _checked(metadata: Any) -> Types:
    try:
        vertices, edges = tuple(metadata[0]), tuple(tuple(triple) for triple in metadata[1])
        fits = bool(vertices) and len({*vertices}) == len(vertices) and len({*edges}) == len(edges)
        for triple in edges:
            fits = fits and len(triple) == 3 and triple[0] in vertices and triple[2] in vertices
    except (TypeError, IndexError, KeyError):
        fits = False
    if not fits:
        raise ModelError(
            f"[from_pyg] expected metadata (vertex types, edge types (src, name, dst)), got {metadata!r}; pass "
            "HeteroData.metadata()"
        )
    return vertices, edges


def import_over_types(
    module: nn.Module,
    types: Types,
    check: bool,
    weighted: bool | None,
    input_width: int | Mapping[str, int] | None,
    edge_width: int | None,
) -> tuple[dict[bool, ir.Value], dict[int, str]]:
    """As import_module: ({weighted: output}, names by id), the outputs ByType.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    frozen = prepared(module)
    if isinstance(frozen, pyg.MessagePassing):
        refuse_unknown(frozen, OVER_TYPES)
    signature = read_typed_signature(frozen, types)
    record = Import()
    relations = _relations(types)
    given = dict.fromkeys(types[0], input_width) if isinstance(input_width, int) else dict(input_width or {})
    attributes = _attribute_width(frozen, signature, edge_width)
    markers = _markers(relations, signature, weighted=signature.weights != "none", attributes=attributes)
    widths = find_widths(frozen, signature, markers, given)
    columns = TypedColumns(types, widths, attributes=attributes)
    x = ir.Input(max(widths))
    record.name(x, "input")
    outputs: dict[bool, ir.Value] = {}
    for with_weights in variants(signature.weights, weighted, type(module).__name__):
        columns = dataclasses.replace(columns, weighted=with_weights)
        rows = tuple(ir.OfType(x, code, width) for code, width in enumerate(widths))
        markers = _markers(relations, signature, weighted=with_weights, attributes=attributes)
        outputs[with_weights] = _read(frozen, signature, rows, markers, columns, record)
        if check or record.recorded:
            check_typed_import(frozen, signature, outputs[with_weights], columns, record.rounded)
    if True in outputs and not _model(outputs[True], types).uses_weights:
        outputs = {False: outputs.get(False, outputs[True])}
    return outputs, dict(record.names)


def _model(output: ir.Value, types: Types) -> Model:
    return Model.from_output(output, vertex_types=types[0], edge_types=types[1])


def _relations(types: Types) -> list[Relation]:
    code = {name: place for place, name in enumerate(types[0])}
    return [Relation(number, code[src], code[dst]) for number, (src, _, dst) in enumerate(types[1])]


def _markers(
    relations: list[Relation], signature: TypedSignature, *, weighted: bool, attributes: int | None
) -> tuple[Any, ...]:
    """What the forward is given after the features: edges, weights and attributes by relation, and no types."""
    edges = tuple(Marker("edge_index", relation) for relation in relations)
    weights = tuple(Marker("edge_weight", relation) for relation in relations) if weighted else None
    rows = None if attributes is None else tuple(EdgeAttribute(attributes) for _ in relations)
    return edges, weights, rows, None


def _attribute_width(module: nn.Module, signature: TypedSignature, edge_width: int | None) -> int | None:
    kind = type(module).__name__
    if signature.attributes == "none":
        if edge_width:
            raise ModelError(
                f"[from_pyg] expected a forward with edge_attr, got {kind}'s without; leave edge_width out"
            )
        return None
    if edge_width is not None:
        return edge_width or None
    found = edge_widths(module, signature.attributes == "required")
    if not found and signature.attributes == "required":
        raise ModelError(
            f"[from_pyg] expected a layer that tells the edge attributes' width, got none in {kind}; pass edge_width="
        )
    return found[0] if found else None


def _read(
    module: nn.Module,
    signature: TypedSignature,
    rows: tuple[ir.OfType, ...],
    markers: tuple[Any, ...],
    columns: TypedColumns,
    record: Import,
) -> ir.ByType:
    attributes = markers[2] or ()
    for marker, each in zip(markers[0], attributes, strict=False):
        record.attribute_relations[id(each)] = marker.relation
        record.keep.append(each)
    example = as_typed_tensors(typed_sample(columns, 5, 12, seed=99), torch.float32)
    kind = type(module).__name__
    result = read_forward(module, signature.call, (rows, *markers), example, record, "")
    if isinstance(result, Refusal):
        raise result.error
    parts = result.items() if isinstance(result, dict) else [(None, result)]
    found: dict[int, ir.Value] = {}
    for name, each in parts:
        if each is None:
            continue
        value = each.value if isinstance(each, Flat) else each
        if isinstance(value, Refusal):
            raise value.error
        if not isinstance(value, ir.Value) or value.vertex_type is None:
            raise refuse(
                f"{kind}.forward",
                "it does not return rows of one vertex type, or a dict of them",
                "return one tensor, or a dict of tensors by vertex type",
            )
        if name is not None and columns.types[0].index(name) != value.vertex_type:
            raise refuse(f"{kind}.forward", f"it returns rows of another type as {name!r}", "mend the dict")
        found[value.vertex_type] = value
    if not found:
        raise refuse(f"{kind}.forward", "it returns no rows", "return a dict of tensors by vertex type")
    return ir.ByType(tuple(found[code] for code in sorted(found)))
