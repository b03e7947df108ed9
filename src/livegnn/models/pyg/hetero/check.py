"""Compares an imported model over vertex types with its module on random graphs before it is accepted."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from livegnn.errors import ModelMismatch
from livegnn.models import ir
from livegnn.models.pyg.check import (
    TOLERANCE_EXACT,
    TOLERANCE_FLOAT32,
    TOLERANCE_ROUNDED,
    as_tensors,
    compare,
    computing_in,
)
from livegnn.models.pyg.hetero.signature import TypedSignature, Types
from livegnn.models.truth import EdgeList, true_rows

__all__ = ["TypedColumns", "as_typed_tensors", "check_typed_import", "typed_sample"]

_SIZES = ((1, 0), (1, 2), (3, 5), (9, 30))  # vertices of a type at least, edges of a type


@dataclass(frozen=True)
class TypedColumns:
    """What a module is given: features of a width for each vertex type, weights or none, attributes of a width.

    flat, bare, as_weights: as those of Columns.
    """

    types: Types
    widths: tuple[int, ...]
    weighted: bool = False
    attributes: int | None = None
    flat: bool = False
    bare: bool = False
    as_weights: bool = False


Sample = tuple[Any, Any, Any, Any, None]


def typed_sample(columns: TypedColumns, vertices: int, edges: int, seed: int) -> Sample:
    """(features by vertex type, edge_index, weights and attributes by edge type, None).

    With self-loops within a type, parallel edges and vertices without edges; types differ in size.
    """
    rng = np.random.default_rng([20240301, seed, vertices])
    names, triples = columns.types
    counts = {name: vertices + 2 * (place % 3) for place, name in enumerate(names)}
    features = tuple(
        _float32(rng.standard_normal((counts[name], w))) for name, w in zip(names, columns.widths, strict=True)
    )
    ends, weights, attributes = [], [], []
    for src, _, dst in triples:
        pairs = rng.integers(0, [[max(1, counts[src] * 3 // 4)], [max(1, counts[dst] * 3 // 4)]], (2, edges))
        pairs = np.concatenate([pairs, pairs[:, : edges // 5]], axis=1)
        if src == dst:
            loops = rng.integers(0, counts[src], (1, edges // 6))
            pairs = np.concatenate([pairs, np.repeat(loops, 2, axis=0)], axis=1)
        ends.append(pairs.astype(np.int64))
        weights.append(_float32(rng.uniform(0.1, 3.0, pairs.shape[1])))
        attributes.append(_float32(rng.standard_normal((pairs.shape[1], columns.attributes or 0))))
    rows = None if columns.attributes is None else tuple(attributes)
    return features, tuple(ends), tuple(weights) if columns.weighted else None, rows, None


def _float32(array: Any) -> Any:
    return array.astype(np.float32).astype(np.float64)


def as_typed_tensors(columns: TypedColumns, given: Sample, dtype: Any) -> tuple[Any, ...]:
    """The same as tensors, floats of `dtype`, as the module is given them."""
    if columns.flat:
        given = (*given[:3], tuple(rows[:, 0] for rows in given[3]), None)
    return tuple(None if each is None else as_tensors(each, dtype) for each in given)


def check_typed_import(
    module: nn.Module, signature: TypedSignature, output: ir.ByType | ir.Value, columns: TypedColumns, rounded: bool
) -> None:
    """Runs `output` and a float64 copy of `module` on graphs of several sizes; the rules are check_import's.

    Raises: ModelMismatch with the numbers.
    """
    double = copy.deepcopy(module).double()
    tolerance = TOLERANCE_ROUNDED if rounded else TOLERANCE_EXACT
    widths = {part.vertex_type: part.width for part in getattr(output, "parts", ())}
    for seed, (vertices, edges) in enumerate(_SIZES):
        given = typed_sample(columns, vertices, edges, seed)
        want = _run(double, signature, columns, given, torch.float64)
        if want is None:
            continue
        single = _run(module, signature, columns, given, torch.float32)
        rows = _evaluate(output, given, columns)
        first = 0
        for code, name in enumerate(columns.types[0]):
            last = first + len(given[0][code])
            if code in widths:
                where = f"{name!r} on a graph of {edges} edges or more of each type"
                kind = type(module).__name__
                compare(rows[first:last, : widths[code]], want[name], tolerance, where, kind)
                compare(single[name], want[name], TOLERANCE_FLOAT32, f"float32, {where}", kind)
            first = last


def _evaluate(output: ir.Value, given: Sample, columns: TypedColumns) -> Any:
    """The model's rows, the vertices of one type after those of another."""
    features, ends, weights, attributes, _ = given
    weights = tuple(rows[:, 0] for rows in attributes) if columns.as_weights else weights
    names, triples = columns.types
    first = dict(zip(names, np.cumsum([0, *(len(x) for x in features)]).tolist(), strict=False))
    rows = np.concatenate([np.pad(x, ((0, 0), (0, max(columns.widths) - x.shape[1]))) for x in features])
    src = np.concatenate([pairs[0] + first[triple[0]] for pairs, triple in zip(ends, triples, strict=True)])
    dst = np.concatenate([pairs[1] + first[triple[2]] for pairs, triple in zip(ends, triples, strict=True)])
    edges = EdgeList(
        src,
        dst,
        None if weights is None else np.concatenate(weights),
        None if attributes is None else np.concatenate(attributes),
        np.repeat(np.arange(len(triples)), [pairs.shape[1] for pairs in ends]),
        np.repeat(np.arange(len(names)), [len(x) for x in features]),
    )
    return true_rows(output, rows, edges)


def _run(module: nn.Module, signature: TypedSignature, columns: TypedColumns, given: Sample, dtype: Any) -> Any:
    """{vertex type: rows in float64}; None where the module cannot run without edges."""
    with computing_in(dtype):
        try:
            result = signature.run(module, *as_typed_tensors(columns, given, dtype))
        except Exception as error:
            if all(pairs.shape[1] == 0 for pairs in given[1]):
                return None
            raise ModelMismatch(
                f"[from_pyg] expected {type(module).__name__} to run on any graph of its types, got "
                f"{type(error).__name__}: {error}; pass input_width={{type: width}} if widths were misread, or fix it"
            ) from error
    if not isinstance(result, dict):
        return _Always(_matrix(result))
    return {name: _matrix(rows) for name, rows in result.items() if rows is not None}


class _Always:
    """The one result of a forward that returns rows of one type, under every name."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __getitem__(self, _: str) -> Any:
        return self.rows


def _matrix(rows: Any) -> Any:
    rows = rows.detach().to(torch.float64).numpy()
    return rows.reshape(len(rows), -1) if rows.ndim == 1 else rows
