"""Products of rows seen as matrices: matmul, bmm, einsum, as dot products by heads and products by a row's own matrix.

y[z, a, b] = sum over k of left[z, a, k] right[z, b, k],  all of one vertex
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.edges import HeadDot, RowMatrix
from livegnn.models.pyg.context import Import, Shaped, Unfit, to_array
from livegnn.models.pyg.layout import columns, shaped, symbol


def matmul(record: Import, input: Any, other: Any) -> Any:
    """torch.matmul where the matrices are a vertex's own."""
    left, right = _rank(input), _rank(other)
    if min(left, right) < 2 or max(left, right) > 10:
        raise Unfit("it is not a product of matrices of each vertex", "use einsum")
    rank = max(left, right)
    batch = "abcdefgh"[: rank - 2]
    first = f"{batch[len(batch) - left + 2 :]}xk"
    second = f"{batch[len(batch) - right + 2 :]}ky"
    return _einsum(record, first, second, f"{batch}xy", input, other)


def bmm(record: Import, input: Any, mat2: Any) -> Any:
    """torch.bmm, one product for each vertex."""
    return matmul(record, input, mat2)


def einsum(record: Import, equation: Any, *operands: Any) -> Any:
    """torch.einsum of one or two operands."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    parts = equation.replace(" ", "").split("->") if isinstance(equation, str) else []
    inputs = parts[0].split(",") if parts else []
    if len(parts) != 2 or "." in equation or len(inputs) != len(given) or len(given) != 2:
        raise Unfit(f"the equation {equation!r} is not one of two operands with named dimensions and a result")
    if any(len(set(each)) != len(each) for each in (*inputs, parts[1])):
        raise Unfit(f"the equation {equation!r} repeats a dimension within an operand")
    return _einsum(record, inputs[0], inputs[1], parts[1], *given)


def _rank(x: Any) -> int:
    return x.ndim if isinstance(x, torch.Tensor) else shaped(x).index.ndim + 1


def _einsum(record: Import, first: str, second: str, out: str, a: Any, b: Any) -> Any:
    if any(_rank(x) != len(labels) for x, labels in ((a, first), (b, second))):
        raise Unfit("its equation does not fit the shapes of its operands")
    a, b = (x if isinstance(x, torch.Tensor) else shaped(x) for x in (a, b))
    if isinstance(a, torch.Tensor):
        a, b, first, second = b, a, second, first
    vertex = first[a.axis]
    if isinstance(b, Shaped) and second[b.axis] != vertex:
        raise Unfit("it multiplies rows of different vertices, so one update would change every row")
    if vertex not in out:
        raise Unfit(
            "it sums over all vertices, so one update would change every row, as attention over all vertices does",
            "keep one row per vertex",
        )
    sizes = dict(zip(first.replace(vertex, ""), a.index.shape, strict=True))
    if isinstance(b, torch.Tensor):
        b, second = _without(b, second, vertex)
    others = b.index.shape if isinstance(b, Shaped) else b.shape
    for label, extent in zip(second.replace(vertex, ""), others, strict=True):
        sizes[label] = max(sizes.get(label, 1), extent)
    first, second, wanted = (each.replace(vertex, "") for each in (first, second, out))
    index = _spread(a.index, first, sizes)
    if isinstance(b, Shaped):
        rows, order = _of_rows(a.source, index, first, b.source, _spread(b.index, second, sizes), second, wanted, sizes)
    else:
        rows, order = _of_constant(record, a.source, index, first, to_array(b), second, wanted), wanted
    place = np.arange(rows.width).reshape([sizes[label] for label in order])
    return symbol(Shaped(rows, place.transpose([order.index(label) for label in wanted]), out.index(vertex)))


def _without(b: torch.Tensor, labels: str, vertex: str) -> tuple[torch.Tensor, str]:
    """A constant without the vertices' dimension, along which it is one number."""
    if vertex in labels:
        if b.shape[labels.index(vertex)] != 1:
            raise Unfit(f"a constant of shape {tuple(b.shape)} has numbers for single vertices")
        b = b.squeeze(labels.index(vertex))
    return b, labels.replace(vertex, "")


def _spread(index: Any, labels: str, sizes: dict[str, int]) -> Any:
    try:
        return np.broadcast_to(index, [sizes[label] for label in labels])
    except ValueError as error:
        raise Unfit(f"its operands do not fit each other ({error})") from error


def _of_constant(
    record: Import, source: ir.Value, index: Any, first: str, b: Any, second: str, wanted: str
) -> ir.Value:
    """One linear map of the row."""
    record.constant(b)
    unit = np.zeros((*index.shape, source.width))
    np.put_along_axis(unit, index[..., None], 1.0, -1)
    weight = np.einsum(f"{first}Z,{second}->{wanted}Z", unit, b)
    return ir.Linear(source, weight.reshape(-1, source.width))


def _of_rows(
    a: ir.Value, i: Any, first: str, b: ir.Value, j: Any, second: str, wanted: str, sizes: dict[str, int]
) -> tuple[ir.Value, str]:
    """(rows, the order of their dimensions)."""
    batch = [each for each in first if each in second and each in wanted]
    summed = [each for each in first if each in second and each not in wanted]
    left = [each for each in first if each not in second]
    right = [each for each in second if each not in first]
    if any(each not in wanted for each in (*left, *right)):
        raise Unfit("it sums an operand alone", "sum it before the product")
    z, k = (math.prod(sizes[each] for each in group) for group in (batch, summed))
    i = i.transpose([first.index(each) for each in (*batch, *left, *summed)]).reshape(z, -1, k)
    j = j.transpose([second.index(each) for each in (*batch, *right, *summed)]).reshape(z, -1, k)
    if i.shape[1] > j.shape[1]:
        (a, i, left), (b, j, right) = (b, j, right), (a, i, left)
    order = "".join((*batch, *left, *right))
    if k == 1 or i.shape[1] == j.shape[1] == 1:
        shape = (z, i.shape[1], j.shape[1], k)
        i, j = np.broadcast_to(i[:, :, None], shape), np.broadcast_to(j[:, None], shape)
        x, y = columns(a, i), columns(b, j)
        return (ir.Multiply(x, y) if k == 1 else HeadDot(x, y, x.width // k)), order
    parts = [RowMatrix(columns(a, i[at, row]), columns(b, j[at].T)) for at in range(z) for row in range(i.shape[1])]
    return (parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))), order
