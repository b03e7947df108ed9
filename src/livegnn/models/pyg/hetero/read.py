"""Reads a module over several types of vertices: HeteroConv, HGTConv, to_hetero and forwards written around them.

The forward takes dicts of rows by vertex type and of edges by edge type. Reading, matching and comparing are those of
every import; here the dicts are taken apart into one symbol for each type, and the results put together again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute
from livegnn.models.pyg.context import Flat, Import, Marker, Refusal, Relation, refuse
from livegnn.models.pyg.convs.registry import refuse_unknown
from livegnn.models.pyg.hetero.check import TypedColumns, as_typed_tensors, check_typed_import, typed_sample
from livegnn.models.pyg.hetero.hgt import OVER_TYPES
from livegnn.models.pyg.hetero.signature import TypedSignature, Types, read_typed_signature
from livegnn.models.pyg.hetero.widths import find_widths
from livegnn.models.pyg.steps import prepared
from livegnn.models.pyg.trace import read_forward
from livegnn.models.pyg.variants import Choice, Reading, VariantReader, attribute_choices, takes_attributes

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
) -> tuple[Reading[ir.ByType], dict[int, str]]:
    """As import_module, the outputs ByType.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    frozen = prepared(module)
    if isinstance(frozen, pyg.MessagePassing):
        refuse_unknown(frozen, OVER_TYPES)
    signature = read_typed_signature(frozen, types)
    record = Import()
    given = dict.fromkeys(types[0], input_width) if isinstance(input_width, int) else dict(input_width or {})
    columns, choice = _columns_of(frozen, signature, given, edge_width)
    x = ir.Input(max(columns.widths))
    record.name(x, "input")

    def read(columns: TypedColumns, compared: bool) -> ir.ByType:
        rows = tuple(ir.OfType(x, code, width) for code, width in enumerate(columns.widths))
        output = _read(frozen, signature, rows, columns, record)
        as_weights = takes_attributes(record.weights_from, type(module).__name__)
        if compared and (check or record.recorded):
            here = dataclasses.replace(columns, as_weights=as_weights)
            check_typed_import(frozen, signature, output, here, record.rounded)
        return output

    reader = VariantReader(frozen, signature, record, read, partial(_runs, frozen, signature), lambda output: (output,))
    return reader.all(columns, choice, weighted), dict(record.names)


def _columns_of(
    module: nn.Module, signature: TypedSignature, given: Mapping[str, int], edge_width: int | None
) -> tuple[TypedColumns, Choice]:
    """The first columns with which the module runs."""
    choices = attribute_choices(module, signature, edge_width)
    tries = []
    for each in choices:
        known = TypedColumns(signature.types, (), signature.weights != "none", each.width, each.flat, edge_width == 0)
        widths = find_widths(module, signature, _markers(known), given)
        columns = dataclasses.replace(known, widths=widths, weighted=signature.weights == "required")
        tries.append((columns, each))
        if _runs(module, signature, columns):
            return tries[-1]
    if edge_width is None and signature.attributes == "required" and len(choices) == 1:
        raise ModelError(
            f"[from_pyg] expected a layer that states the edge attributes' width, got none in {type(module).__name__}; "
            "pass edge_width="
        )
    return tries[-1] if choices[0].guessed else tries[0]


def _runs(module: nn.Module, signature: TypedSignature, columns: TypedColumns) -> bool:
    try:
        with torch.no_grad():
            signature.run(module, *as_typed_tensors(columns, typed_sample(columns, 5, 12, seed=99), torch.float32))
    except Exception:  # a wrong width fails in as many ways as there are modules
        return False
    return True


def _relations(types: Types) -> list[Relation]:
    code = {name: place for place, name in enumerate(types[0])}
    return [Relation(number, code[src], code[dst]) for number, (src, _, dst) in enumerate(types[1])]


def _markers(columns: TypedColumns) -> tuple[Any, ...]:
    """What the forward is given after the features: edges, weights and attributes by relation, and no types."""
    relations, width = _relations(columns.types), columns.attributes
    edges = tuple(Marker("edge_index", relation) for relation in relations)
    weights = tuple(Marker("edge_weight", relation) for relation in relations) if columns.weighted else None
    rows: Any = None if width is None else tuple(EdgeAttribute(width) for _ in relations)
    return edges, weights, tuple(map(Flat, rows)) if rows and columns.flat else rows, None


def _read(
    module: nn.Module,
    signature: TypedSignature,
    rows: tuple[ir.OfType, ...],
    columns: TypedColumns,
    record: Import,
) -> ir.ByType:
    markers = _markers(columns)
    for marker, each in zip(markers[0], markers[2] or (), strict=False):
        attribute = each.value if isinstance(each, Flat) else each
        record.attribute_relations[id(attribute)] = marker.relation
        record.keep.append(attribute)
    example = as_typed_tensors(columns, typed_sample(columns, 5, 12, seed=99), torch.float32)
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
            raise refuse(f"{kind}.forward", f"it returns rows of another type as {name!r}", "fix the dict")
        found[value.vertex_type] = value
    if not found:
        raise refuse(f"{kind}.forward", "it returns no rows", "return a dict of tensors by vertex type")
    return ir.ByType(tuple(found[code] for code in sorted(found)))
