"""Reads a module over several types of vertices: HeteroConv, HGTConv, to_hetero and forwards written around them.

The forward takes dicts of rows by vertex type and of edges by edge type. Reading, matching and comparing are those of
every import; here the dicts are taken apart into one symbol for each type, and the results put together again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError, ModelUnsupported
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute
from livegnn.models.pyg.check import Columns, check_import, divides, modelled, samples
from livegnn.models.pyg.context import Flat, Import, Marker, Refusal, Relation, refuse
from livegnn.models.pyg.convs.registry import refuse_unknown
from livegnn.models.pyg.hetero.hgt import OVER_TYPES
from livegnn.models.pyg.hetero.widths import find_widths
from livegnn.models.pyg.outputs import at, name_of
from livegnn.models.pyg.signature import Types, read_signature
from livegnn.models.pyg.steps import columns_of, prepared, read_symbols
from livegnn.models.pyg.variants import Options, Reading, VariantReader


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


def import_over_types(module: nn.Module, types: Types, options: Options) -> tuple[Reading[ir.ByType], Import]:
    """As import_module, the outputs ByType.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    frozen, record = prepared(module, options), Import(operators=options.operators)
    if isinstance(frozen, pyg.MessagePassing):
        refuse_unknown(frozen, OVER_TYPES)
    signature = read_signature(frozen, over=types)
    width = options.input_width
    given = width if isinstance(width, Mapping) else {} if width is None else dict.fromkeys(types[0], width)

    def widths(columns: Columns) -> list[tuple[int, ...]]:
        return [find_widths(frozen, signature, _markers(columns, types, signature.weights != "none"), given)]

    columns, choice = columns_of(frozen, signature, options, widths)
    x: ir.Input = record.name(ir.Input(max(columns.widths)), "input")

    several, paths = options.outputs == "all" or isinstance(options.outputs, list), list[Any]()

    def read(columns: Columns) -> ir.ByType:
        rows = tuple(ir.OfType(x, code, width) for code, width in enumerate(columns.widths))
        markers = _markers(columns, types, columns.weighted)
        for marker, each in zip(markers[0], markers[2] or (), strict=False):
            attribute = each.value if isinstance(each, Flat) else each
            record.attribute_relations[id(attribute)] = marker.relation
            record.keep.append(attribute)
        result = read_symbols(frozen, signature, (rows, *markers), columns, record)
        if several:
            paths[:] = _paths_of(result, options.outputs, types[0], frozen)
            return _side_by_side(result, paths, types[0], frozen, record)
        return _by_type(_one_of(result, options.outputs, types[0], frozen), types[0], frozen)

    def compare(output: ir.ByType, columns: Columns) -> None:
        def expected(given: tuple[Any, ...]) -> dict[str | None, Any]:
            parts = np.split(modelled(output, columns, given), np.cumsum([len(x) for x in given[0]]))
            return {types[0][code]: parts[code][:, :width] for code, width in widths_out.items()}

        widths_out = {part.vertex_type: part.width for part in output.parts if part.vertex_type is not None}
        columns = dataclasses.replace(columns, positive=record.positive)
        graphs = samples(columns, recorded=record.recorded, zeros=divides(output))

        def take(result: Any) -> list[Any]:
            if several:
                return [at(result, path) for path in paths]
            return [result if options.outputs is None else at(result, options.outputs)]

        check_import(frozen, signature, columns, graphs, expected, rounded=record.rounded, take=take)

    reader = VariantReader(frozen, signature, record, read, compare, lambda output: output)
    return reader.all(columns, choice, options), record


def _markers(columns: Columns, types: Types, weighted: bool) -> tuple[Any, ...]:
    """What the forward is given after the features: edges, weights and attributes by relation, and no types."""
    code = {name: place for place, name in enumerate(types[0])}
    relations = [Relation(number, code[src], code[dst]) for number, (src, _, dst) in enumerate(types[1])]
    edges = tuple(Marker("edge_index", relation) for relation in relations)
    weights = tuple(Marker("edge_weight", relation) for relation in relations) if weighted else None
    width = columns.attributes
    rows: Any = None if width is None else tuple(EdgeAttribute(width) for _ in relations)
    return edges, weights, tuple(map(Flat, rows)) if rows and columns.flat else rows, None


def _one_of(result: Any, asked: Any, names: tuple[str, ...], module: nn.Module) -> Any:
    """The result that is asked for, of several. Raises: ModelUnsupported where it is not decided, or there is none."""
    where = f"{type(module).__name__}.forward"
    by_type = isinstance(result, dict) and {*result} <= {*names}
    if asked is None and isinstance(result, (tuple, list, dict)) and not by_type:
        keys = [*result] if isinstance(result, dict) else [*range(len(result))]
        choices = " or ".join(f"outputs={key!r}" for key in keys)
        raise refuse(where, f"it returns a {type(result).__name__} of {len(keys)} results", f"pass {choices}")
    if asked is None:
        return result
    try:
        return at(result, asked)
    except (LookupError, TypeError) as error:
        raise refuse(where, f"it has no result {asked!r}", "pass an index or key that it has as outputs=") from error


def _paths_of(result: Any, asked: Any, names: tuple[str, ...], module: nn.Module) -> list[Any]:
    """The results that are asked for, by index, key or path; of "all" those with rows by type."""
    if asked != "all":
        return [*asked]
    found = []
    for path in result if isinstance(result, dict) else range(len(result)) if isinstance(result, (tuple, list)) else ():
        try:
            _by_type(at(result, path), names, module)
        except ModelUnsupported:  # a loss, or None
            continue
        found.append(path)
    return found


def _side_by_side(
    result: Any, paths: list[Any], names: tuple[str, ...], module: nn.Module, record: Import
) -> ir.ByType:
    """Several results, column by column for each type; `record.outputs` gets the columns. Raises: ModelUnsupported."""
    where, outputs, start = f"{type(module).__name__}.forward", dict[str, tuple[int, int]](), 0
    parts: dict[int | None, list[ir.Value]] = {}
    for path in paths:
        found = _by_type(_one_of(result, path, names, module), names, module).parts
        if len({each.width for each in found}) != 1 or (parts and {each.vertex_type for each in found} != {*parts}):
            reason = f"its result {path!r} has other columns, or other types, than those next to it"
            raise refuse(where, reason, "keep it alone, by its index or key as outputs=")
        for each in found:
            parts.setdefault(each.vertex_type, []).append(each)
        outputs[name_of(path if isinstance(path, tuple) else (path,))] = start, start + found[0].width
        start += found[0].width
    if not parts:
        raise refuse(where, "it returns no rows", "return a dict of tensors by vertex type")
    record.outputs = outputs
    whole = tuple(each[0] if len(each) == 1 else ir.Concat(tuple(each)) for each in parts.values())
    joined: ir.ByType = record.name(ir.ByType(whole), f"{where}: outputs side by side")
    return joined


def _by_type(result: Any, names: tuple[str, ...], module: nn.Module) -> ir.ByType:
    """What a forward returns, by the numbers of the types. Raises: ModelUnsupported."""
    where = f"{type(module).__name__}.forward"
    found: dict[int, ir.Value] = {}
    for name, each in result.items() if isinstance(result, dict) else [(None, result)]:
        if each is None:
            continue
        value = each.value if isinstance(each, Flat) else each
        if isinstance(value, Refusal):
            raise value.error
        if not isinstance(value, ir.Value) or value.vertex_type is None:
            raise refuse(
                where,
                "it does not return rows of one vertex type, or a dict of them",
                "return one tensor, or a dict of tensors by vertex type",
            )
        if name is not None and names.index(name) != value.vertex_type:
            raise refuse(where, f"it returns rows of another type as {name!r}", "fix the dict")
        found[value.vertex_type] = value
    if not found:
        raise refuse(where, "it returns no rows", "return a dict of tensors by vertex type")
    return ir.ByType(tuple(found[code] for code in sorted(found)))
