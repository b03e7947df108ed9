"""Functions and methods of torch on the rows of an own layer, with any number of dimensions.

A handler gets the layer's `Tracing`, the result of the real call, and the call's own arguments with `Traced` in place
of the tensors that are followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.edges import EdgeRelation, HeadDot, RowMatrix, Source, Target
from livegnn.models.messages import linear
from livegnn.models.pyg.context import Unfit, to_array
from livegnn.models.pyg.functions.infinite import finite
from livegnn.models.pyg.functions.registry import HANDLERS
from livegnn.models.pyg.own.edges import (
    SINGLE_EDGES,
    Tracing,
    as_mask,
    both,
    cat_ends,
    cat_rows,
    chosen,
    compared_ends,
    constant_rows,
    constant_with,
    left_of,
    of_type,
    on_edges_of,
    rows_left,
    written,
)
from livegnn.models.pyg.own.ends import both_ends, row_of_ends
from livegnn.models.pyg.own.rows import (
    EdgeChoice,
    EdgeMask,
    EdgeTypes,
    EndIds,
    InfiniteEntries,
    Places,
    Traced,
    columns,
    constant_like,
    mapped,
    prod,
    row_of,
    spread,
    times,
)
from livegnn.models.pyg.tables import lookup

_LEAST = 1e-37  # below every difference of two numbers that float32 can hold
SUMMED_INTO = ("index_add", "scatter_add", "scatter_reduce")
#: Functions of each number alone, or of whole rows of one dimension, that functions.py reads.
_EACH = {
    "abs", "relu", "selu", "silu", "sigmoid", "tanh", "relu6", "hardswish", "softsign", "exp", "logsigmoid", "expit",
    "leaky_relu", "elu", "celu", "gelu", "softplus", "mish", "tanhshrink", "clamp", "clip", "clamp_min", "hardtanh",
    "neg", "negative", "square", "dropout", "dropout1d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout",
}  # fmt: skip
_WHOLE_ROWS = {"prelu", "softmax", "log_softmax", "normalize", "layer_norm", "batch_norm"}
_SAME = {"contiguous", "clone", "detach", "requires_grad", "cpu", "nan_to_num", "to", "type_as", "type", "float",
         "double", "data", "alias", "to_dense"}  # fmt: skip
_RESHAPED = {"view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten", "view_as", "reshape_as"}


def _traced(x: Any) -> Traced:
    if not isinstance(x, Traced):
        raise Unfit("its argument is not one row per vertex or edge")
    return x


def _trail(result: Any) -> tuple[int, ...]:
    return tuple(result.shape[1:])


def _each(name: str) -> Callable[..., Any]:
    def handler(tracing: Tracing, result: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        x = _traced(input)
        if name in _WHOLE_ROWS and len(x.shape) != 1:
            if name == "softmax" and len(x.shape) > 1:
                return _softmax_of_blocks(x, args, kwargs)
            raise Unfit("it does not run over the columns of rows with one dimension", "flatten the rows first")
        return mapped(lambda value: HANDLERS[name](tracing.record, value, *args, **kwargs), x.shape, x)

    return handler


def _softmax_of_blocks(x: Traced, args: Any, kwargs: Any) -> Traced:
    dim = kwargs.get("dim", args[0] if args else None)
    if dim not in (-1, len(x.shape)):
        raise Unfit(f"dim={dim} does not run over the last dimension", "use dim=-1")
    last = x.shape[-1]

    def blocks(value: ir.Value) -> ir.Value:
        parts = [ir.Softmax(ir.Slice(value, at, at + last)) for at in range(0, value.width, last)]
        return parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))

    return mapped(blocks, x.shape, x)


def _same(tracing: Tracing, result: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    return input


def _reshaped(tracing: Tracing, result: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    x = _traced(input)
    if prod(_trail(result)) != x.value.width or not result.ndim:
        raise Unfit(f"the shape {tuple(result.shape)} is not one row per vertex or edge")
    return dataclasses.replace(x, shape=_trail(result))


def _rearranged(name: str) -> Callable[..., Any]:
    """transpose, permute, expand, repeat and what else moves or repeats columns."""

    def handler(tracing: Tracing, result: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        x = _traced(input)
        numbers = torch.arange(x.value.width).reshape(1, *x.shape)
        if name in ("expand", "repeat", "expand_as"):
            given = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            if len(given) != len(x.shape) + 1 and name != "expand_as":
                raise Unfit("it adds dimensions in front of the rows")
            sizes = (1, *result.shape[1:]) if name != "repeat" else (1, *given[1:])
            moved = numbers.expand(*sizes) if name != "repeat" else numbers.repeat(*sizes)
        else:
            moved = getattr(numbers, name)(*args, **kwargs)
        if moved.shape[0] != 1 or tuple(moved.shape[1:]) != _trail(result):
            raise Unfit("it moves the rows of vertices or edges", "keep their dimension first")
        index = moved.reshape(-1).numpy()
        return mapped(lambda value: columns(value, index), _trail(result), x)

    return handler


def _operands(tracing: Tracing, result: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """(rows or a flat constant) of both, the constant broadcast to the result's rows."""
    shape, count = _trail(result), len(result)
    for each in (a, b):
        if isinstance(each, Traced) and len(each.shape) != len(shape):
            raise Unfit("the rows of its operands do not stand next to each other")
    edges = next((each.edges for each in (a, b) if isinstance(each, Traced)), None)
    return tuple(each if isinstance(each, Traced) else _constant(tracing, each, edges, count, shape) for each in (a, b))  # type: ignore[return-value]


def _constant(tracing: Tracing, tensor: Any, edges: Any, count: int, shape: tuple[int, ...]) -> Any:
    """A constant as one flat row; as rows where it has others for added loops."""
    if isinstance(edges, EdgeChoice) and edges.added:
        rows = constant_rows(tracing, tensor, edges, shape)
        if not rows.even:
            return rows
    return row_of(tensor, count, shape, tracing.record)


def _is_number(x: Any, number: float) -> bool:
    if isinstance(x, (int, float)):
        return x == number
    return isinstance(x, torch.Tensor) and x.numel() == 1 and float(x) == number


def _add(tracing: Tracing, result: Any, input: Any, other: Any, *, alpha: float = 1) -> Any:
    a, b = _operands(tracing, result, input, other)
    shape = _trail(result)
    if isinstance(a, Traced) and isinstance(b, Traced):
        terms = ((1.0, a.shape), (float(alpha), b.shape))
        return mapped(
            lambda x, y: ir.Combine(tuple((c, spread(v, s, shape)) for (c, s), v in zip(terms, (x, y), strict=True))),
            shape, a, b,
        )  # fmt: skip
    rows, factor, shift = (a, 1.0, float(alpha) * b) if isinstance(a, Traced) else (b, float(alpha), a)
    if factor == 1.0 and not shift.any() and rows.shape == shape:
        return rows
    scale = np.full(prod(shape), factor)
    return mapped(lambda x: ir.Affine(spread(x, rows.shape, shape), scale, shift), shape, rows)


def _sub(tracing: Tracing, result: Any, input: Any, other: Any, *, alpha: float = 1) -> Any:
    return _add(tracing, result, input, other, alpha=-alpha)


def _mul(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
    shape = _trail(result)
    if not isinstance(input, Traced):
        input, other = other, input
    if isinstance(other, (int, float)) and not isinstance(other, bool):
        return _scaled(_traced(input), float(other))
    a, b = _operands(tracing, result, input, other)
    if isinstance(b, Traced):
        return times(a, b, shape)
    if (b == b[0]).all() and a.shape == shape:
        return _scaled(a, float(b[0]))
    zeros = np.zeros(prod(shape), np.float32)
    return mapped(lambda x: ir.Affine(spread(x, a.shape, shape), b, zeros), shape, a)


def _scaled(x: Traced, number: float) -> Traced:
    return x if number == 1 else mapped(lambda value: ir.Combine(((number, value),)), x.shape, x)


def _div(tracing: Tracing, result: Any, input: Any, other: Any, *, rounding_mode: None = None) -> Any:
    if not isinstance(other, Traced):
        return _mul(tracing, result, input, 1.0 / other)
    inverse = mapped(lambda value: ir.Activation(value, "reciprocal"), other.shape, other)
    return inverse if _is_number(input, 1) else _mul(tracing, result, input, inverse)


def _pow(tracing: Tracing, result: Any, input: Any, exponent: Any) -> Any:
    x = _traced(input)
    number = float(exponent) if isinstance(exponent, (int, float)) or torch.is_tensor(exponent) else None
    functions: dict[float | None, Callable[[ir.Value], ir.Value]] = {
        -0.5: tracing.reducer.inverse_root,
        0.5: lambda value: ir.Activation(value, "sqrt"),
        -1.0: lambda value: ir.Activation(value, "reciprocal"),
        1.0: lambda value: value,
        2.0: lambda value: ir.Multiply(value, value),
        3.0: lambda value: ir.Multiply(ir.Multiply(value, value), value),
    }
    if number not in functions:
        raise Unfit(f"the exponent {exponent} is not supported", "use -1, -0.5, 0.5, 2 or 3")
    return mapped(functions[number], x.shape, x)


def _power(exponent: float) -> Callable[..., Any]:
    return lambda tracing, result, input: _pow(tracing, result, input, exponent)


def _reciprocal(tracing: Tracing, result: Any, input: Any) -> Any:
    """1 / x; of the root of a degree, that degree's inverse root."""
    x = _traced(input)

    def inverse(value: ir.Value) -> ir.Value:
        if isinstance(value, ir.Activation) and value.kind == "sqrt":
            return tracing.reducer.inverse_root(value.x)
        return ir.Activation(value, "reciprocal")

    return mapped(inverse, x.shape, x)


def _rdiv(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
    inverse = _reciprocal(tracing, result, input)
    return inverse if _is_number(other, 1) else _mul(tracing, result, inverse, other)


def _logarithm(kind: str) -> Callable[..., Any]:
    return lambda tracing, result, input: mapped(lambda value: ir.Activation(value, kind), input.shape, _traced(input))


def _linear(tracing: Tracing, result: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    x = _traced(input)
    if not torch.is_tensor(weight) or weight.ndim != 2:
        raise Unfit("its weight is computed from the features")
    blocks = prod(x.shape[:-1])
    matrix = np.kron(np.eye(blocks), to_array(weight)) if blocks > 1 else to_array(weight)
    shift = None if bias is None else np.tile(to_array(bias), blocks)
    return mapped(lambda value: linear(value, matrix, shift), _trail(result), x)


def _matmul(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
    if not isinstance(other, Traced):
        if torch.is_tensor(other) and other.ndim <= 2:
            return _linear(tracing, result, input, other.reshape(len(other), -1).t())
        raise Unfit("its second factor is not a constant matrix")
    a, b = _traced(input), other
    if len(a.shape) == 2 and a.shape[0] == 1 and len(b.shape) == 2:
        return mapped(RowMatrix, _trail(result), a, b)
    if len(a.shape) == 2 and b.shape == (a.shape[1], 1):
        repeated = dataclasses.replace(b, shape=(1, a.shape[1]))
        whole = times(a, repeated, a.shape)
        return _over(tracing, whole, (1,), _trail(result), 1.0)
    raise Unfit("it is a product of two matrices for each row")


def _addmm(
    tracing: Tracing, result: Any, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1
) -> Any:
    y = _scaled(_matmul(tracing, result, mat1, mat2), float(alpha))
    return _add(tracing, result, y, input, alpha=beta)


def _dims(x: Traced, dim: Any) -> tuple[int, ...]:
    """The dimensions of a row that a reduction removes, from 0 on. Raises: Unfit for the rows' own."""
    given = (dim,) if isinstance(dim, int) else tuple(dim) if dim is not None else ()
    dims = tuple(each % (len(x.shape) + 1) for each in given)
    if not dims or 0 in dims:
        raise Unfit("it reduces over all vertices or edges, so one update would change every row")
    return tuple(each - 1 for each in dims)


def _over(tracing: Tracing, x: Traced, dims: tuple[int, ...], shape: tuple[int, ...], factor: float) -> Traced:
    """The sum over dimensions of a row, times a factor."""
    kept = np.arange(x.value.width).reshape(x.shape)
    kept = np.moveaxis(kept, dims, range(-len(dims), 0)).reshape(prod(shape), -1)
    matrix = np.zeros((len(kept), x.value.width))
    np.put_along_axis(matrix, kept, factor, 1)
    matrix = tracing.record.constant(matrix)
    in_blocks = factor == 1.0 and np.array_equal(kept.reshape(-1), np.arange(x.value.width))

    def summed(value: ir.Value) -> ir.Value:
        if in_blocks and isinstance(value, ir.Multiply) and value.a.width == value.b.width:
            return HeadDot(value.a, value.b, len(kept))
        if isinstance(value, ir.Affine) and not value.shift.any():
            return linear(value.x, tracing.record.constant(matrix * value.scale))
        return linear(value, matrix)

    return mapped(summed, shape, x)


def _sum(tracing: Tracing, result: Any, input: Any, dim: Any = None, keepdim: bool = False, **others: Any) -> Any:
    x = _traced(input)
    return _over(tracing, x, _dims(x, others.get("axis", dim)), _trail(result), 1.0)


def _mean(tracing: Tracing, result: Any, input: Any, dim: Any = None, keepdim: bool = False, **others: Any) -> Any:
    x = _traced(input)
    dims = _dims(x, others.get("axis", dim))
    return _over(tracing, x, dims, _trail(result), 1.0 / prod([x.shape[each] for each in dims]))


def _norm(tracing: Tracing, result: Any, input: Any, p: Any = 2, dim: Any = None, *args: Any, **others: Any) -> Any:
    x = _traced(input)
    if p not in (2, None, "fro"):
        raise Unfit(f"p={p} is not the Euclidean norm", "use p=2")
    squares = mapped(lambda value: ir.Multiply(value, value), x.shape, x)
    y = _over(tracing, squares, _dims(x, dim), _trail(result), 1.0)
    return mapped(lambda value: ir.Activation(value, "sqrt"), y.shape, y)


def _extreme(largest: bool) -> Callable[..., Any]:
    def handler(tracing: Tracing, result: Any, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, (Traced, torch.Tensor)):
            return _of_two(largest)(tracing, result, input, dim)
        x = _traced(input)
        values = result[0] if isinstance(result, tuple) else result
        (axis,) = _dims(x, dim)
        kept = np.moveaxis(np.arange(x.value.width).reshape(x.shape), axis, 0)

        def pick(value: ir.Value) -> ir.Value:
            parts = tuple(columns(value, each) for each in kept)
            return _largest(parts) if largest else _least(parts)

        y = mapped(pick, _trail(values), x)
        return (y, None) if isinstance(result, tuple) else y

    return handler


def _largest(parts: Sequence[ir.Value]) -> ir.Value:
    return ir.Maximum(tuple(parts))


def _least(parts: Sequence[ir.Value]) -> ir.Value:
    return ir.Combine(((-1.0, ir.Maximum(tuple(ir.Combine(((-1.0, each),)) for each in parts))),))


def _of_two(largest: bool) -> Callable[..., Any]:
    def handler(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
        pick = _largest if largest else _least
        return _joined(tracing, result, input, other, lambda x, y: pick((x, y)))

    return handler


def _cat(tracing: Tracing, result: Any, tensors: Any, dim: int = 0, **others: Any) -> Any:
    dim = others.get("axis", dim) % result.ndim
    if any(isinstance(each, EndIds) for each in tensors):
        return cat_ends(tracing, tensors, dim)
    if dim == 0:
        return cat_rows(tracing, tensors, _trail(result))
    first = next(each for each in tensors if isinstance(each, Traced))
    rows, index, start = [], [], 0
    for each in tensors:
        if not isinstance(each, Traced):
            shape = tuple(each.shape[1:])
            each = tracing.constant(first, row_of(each, len(result), shape, tracing.record), shape)
        rows.append(each)
        index.append(np.arange(start, start + each.value.width).reshape(each.shape))
        start += each.value.width
    order = np.concatenate(index, dim - 1).reshape(-1)
    return mapped(lambda *values: columns(ir.Concat(values), order), _trail(result), *rows)


def _stack(tracing: Tracing, result: Any, tensors: Any, dim: int = 0) -> Any:
    dim = dim % result.ndim
    if any(isinstance(each, EndIds) for each in tensors):
        return both_ends(tensors, dim)
    if dim == 0:
        raise Unfit("dim=0 puts a dimension in front of the rows", "stack by dim=1 or later")
    rows = []
    for each in map(_traced, tensors):
        shape = (*each.shape[: dim - 1], 1, *each.shape[dim - 1 :])
        rows.append(dataclasses.replace(each, shape=shape))
    return _cat(tracing, result, rows, dim)


def _pieces(name: str) -> Callable[..., Any]:
    """chunk and split along the last dimensions, and unbind."""

    def handler(tracing: Tracing, result: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        given = args if name == "unbind" else args[1:]
        axis = kwargs.get("dim", given[0] if given else 0)
        if isinstance(input, EndIds):
            if input.end is not None or axis != 0 or len(result) != 2:
                raise Unfit(SINGLE_EDGES)
            return tuple(map(input.of, (0, 1)))
        x = _traced(input)
        (axis,) = _dims(x, axis)
        numbers = np.arange(x.value.width).reshape(x.shape)
        found, start = [], 0
        for each in result:
            size = 1 if name == "unbind" else each.shape[axis + 1]
            index = np.take(numbers, range(start, start + size), axis).reshape(-1)
            found.append(mapped(lambda value, index=index: columns(value, index), _trail(each), x))
            start += size
        return tuple(found)

    return handler


def _getitem(tracing: Tracing, result: Any, input: Any, index: Any) -> Any:
    if isinstance(input, (tuple, list)):
        return input[index]
    parts = index if isinstance(index, tuple) else (index,)
    if isinstance(input, EndIds):
        return _picked_edges(tracing, input, parts)
    if isinstance(index, EndIds):
        return _lift(tracing, result, input, 0, index)
    more = torch.is_tensor(input) and len(result) > len(input)  # than a mask leaves
    if isinstance(index, Traced) and torch.is_tensor(input) and (index.whole or more):
        return _looked_up(tracing, result, input, index)
    if isinstance(parts[0], (EdgeMask, Places, Traced)) and all(each == slice(None) for each in parts[1:]):
        return _masked(tracing, result, input, parts[0])
    x = _traced(input)
    whole = parts[0] is Ellipsis or (isinstance(parts[0], slice) and parts[0] == slice(None))
    if not whole or not all(each is None or each is Ellipsis or isinstance(each, (int, slice)) for each in parts):
        raise Unfit("it picks rows, and the rows of a graph that changes are not fixed", "pick columns only")
    picked = np.arange(x.value.width).reshape(1, *x.shape)[parts]
    if picked.shape[:1] != (1,) or picked.shape[1:] != _trail(result):
        raise Unfit("it does not leave one row per vertex or edge", "pick columns only")
    return mapped(lambda value: columns(value, picked), _trail(result), x)


def _picked_edges(tracing: Tracing, ids: EndIds, parts: tuple[Any, ...]) -> EndIds:
    """edge_index[0], edge_index[:, mask], row[mask]. Raises: Unfit for other parts of a list of edges."""
    whole = all(each in (slice(None), Ellipsis) for each in parts[1:] if isinstance(each, slice | type(Ellipsis)))
    if ids.end is None:
        first = parts[0]
        if not isinstance(first, slice | type(Ellipsis)):
            ids = row_of_ends(ids, first)
        elif first not in (slice(None), Ellipsis):
            raise Unfit(SINGLE_EDGES)
        parts = parts[1:]
    masks = [each for each in parts if not isinstance(each, slice | type(Ellipsis))]
    if not whole or len(masks) > 1:
        raise Unfit(SINGLE_EDGES)
    return dataclasses.replace(ids, edges=left_of(tracing, ids.edges, as_mask(masks[0]))) if masks else ids


def _masked(tracing: Tracing, result: Any, input: Any, mask: Any) -> Any:
    """Rows of the edges, or of the vertices, that a truth picks."""
    truth = mask.mask if isinstance(mask, Places) else mask
    if isinstance(input, Traced) and isinstance(truth, Traced) and truth.edges is None:
        return chosen(input, truth)
    edge_mask = as_mask(truth)
    if isinstance(input, EdgeTypes):
        return EdgeTypes(left_of(tracing, input.edges, edge_mask))
    if not isinstance(input, Traced):
        input = constant_rows(tracing, input, edge_mask.edges, _trail(result))
    return rows_left(tracing, input, edge_mask)


def _looked_up(tracing: Tracing, result: Any, table: torch.Tensor, index: Traced) -> Traced:
    """Rows of a constant, named by whole numbers such as the types of edges."""
    if index.shape != () or not index.whole:
        raise Unfit("it picks rows by numbers that are not the ends of edges, nor the types of edges",
                    "index by edge_index[0], edge_index[1] or edge_type")  # fmt: skip
    flat = to_array(table).reshape(len(table), -1)
    return mapped(lambda value: lookup(tracing.record, value, flat), _trail(result), index)


def _lift(tracing: Tracing, result: Any, input: Any, dim: int, index: Any) -> Any:
    """Rows of vertices brought to the ends of edges."""
    if dim == 0 and isinstance(index, Traced) and torch.is_tensor(input):
        return _looked_up(tracing, result, input, index)
    if not isinstance(index, EndIds) or index.end is None:
        raise Unfit(
            "it picks rows by numbers that are not the ends of edges", "index by edge_index[0] or edge_index[1]"
        )
    ndim = len(input.shape) + (1 if isinstance(input, Traced) else 0)
    if dim % ndim != 0:
        raise Unfit(f"dim={dim} is not the rows' dimension", "use node_dim=0")
    if not isinstance(input, Traced):  # the same row for every vertex is the same for every edge
        row_of(input, len(input), tuple(input.shape[1:]), tracing.record)
        return None
    if input.edges is not None:
        raise Unfit("it brings rows of edges to the ends of edges", "aggregate them first")
    end = Source if index.end == 0 else Target
    return Traced(end(input.value), input.shape, index.edges, (input.value,) * index.edges.added)


def _scatter(kind: str | None) -> Callable[..., Any]:
    """index_add, scatter_add and scatter_reduce into zeros."""

    def handler(tracing: Tracing, result: Any, into: Any, dim: int, index: Any, src: Any, *args: Any, **kw: Any) -> Any:
        if isinstance(into, Traced) or not tracing.from_zeros:
            raise Unfit("it adds to rows that are not 0", "start from torch.zeros, and add afterwards")
        reduce = kind or str(kw.get("reduce", args[0] if args else "sum"))
        if reduce in ("amax", "amin", "mean") and kw.get("include_self", True):
            raise Unfit("include_self=True counts the 0 it starts from, too", "pass include_self=False")
        return scatter(tracing, result, src, index, reduce, dim)

    return handler


def scatter(tracing: Tracing, result: Any, src: Any, index: Any, reduce: str, dim: int = 0) -> Any:
    """torch_geometric.utils.scatter of rows of edges, by name of the reduction. Raises: Unfit."""
    kinds: dict[str, ir.Aggregate] = {"sum": "sum", "add": "sum", "mean": "mean", "max": "max", "amax": "max",
                                      "min": "min", "amin": "min"}  # fmt: skip
    if not isinstance(index, EndIds) or index.end is None:
        raise Unfit("it reduces by numbers that are not the ends of edges", "use index, or a row of edge_index")
    if reduce not in kinds:
        raise Unfit(f"it reduces by {reduce!r}", "use sum, mean, max or min")
    shape = _trail(result)
    if dim % (len(shape) + 1) != 0:
        raise Unfit(f"dim={dim} is not the rows' dimension", "use dim=0")
    if not isinstance(src, Traced):
        src = constant_rows(tracing, src, index.edges, tuple(src.shape[1:]))
    if src.edges != index.edges:
        raise Unfit("its rows are not of the edges whose ends it is given")
    if kinds[reduce] == "sum" and src.value.width == 1:
        degree = tracing.reducer.degree(src, index.end)
        if degree is not None:
            return degree
    return tracing.reducer.simple(src, kinds[reduce], index.end)


def _equal(equal: bool) -> Callable[..., Any]:
    def handler(tracing: Tracing, result: Any, input: Any, other: Any = float("inf")) -> Any:
        if isinstance(other, (int, float)) and abs(other) == float("inf"):
            return InfiniteEntries()
        for a, b in ((input, other), (other, input)):
            if isinstance(a, EdgeTypes) and equal:
                return of_type(a, b)
            if isinstance(a, EndIds):
                return compared_ends(a, b, equal=equal)
        differ = _joined(tracing, result, input, other, lambda a, b: ir.Maximum((_less(a, b), _less(b, a))))
        return _opposite(differ) if equal else differ

    return handler


def as_values(tracing: Tracing, given: Any) -> Any:
    """Types of edges, and masks by type, as one number per edge; the rest as it is."""
    if isinstance(given, (list, tuple)):
        return type(given)(as_values(tracing, each) for each in given)
    if isinstance(given, dict):
        return {key: as_values(tracing, each) for key, each in given.items()}
    if isinstance(given, EdgeTypes):
        return Traced(EdgeRelation(), (), given.edges, whole=True)
    if not isinstance(given, EdgeMask) or not given.own or given.relation is None or given.edges.added:
        return given
    kind = Source(constant_like(tracing.reducer.anchor, [float(given.relation)]))
    types = Traced(EdgeRelation(), (), given.edges)
    truth = _opposite(mapped(lambda x: ir.Maximum((_less(x, kind), _less(kind, x))), (), types))
    return truth if given.numbers is None else mapped(ir.Multiply, (), truth, given.numbers)


def _joined(tracing: Tracing, result: Any, a: Any, b: Any, function: Callable[..., ir.Value]) -> Traced:
    """A function of two rows, or of rows and a constant, column by column."""
    shape = _trail(result)
    like = a if isinstance(a, Traced) else _traced(b)
    a, b = (each if isinstance(each, Traced) else constant_with(tracing, each, like, shape) for each in (a, b))
    return mapped(lambda x, y: function(spread(x, a.shape, shape), spread(y, b.shape, shape)), shape, a, b)


def _less(a: ir.Value, b: ir.Value) -> ir.Value:
    return ir.Elementwise("less", (a, b))


def _opposite(truth: Traced) -> Traced:
    """1 where rows are 0, 0 where they are 1."""
    ones = np.ones(truth.value.width, np.float32)
    return mapped(lambda value: ir.Affine(value, -ones, ones), truth.shape, truth)


def _compared(*, turned: bool, or_equal: bool) -> Callable[..., Any]:
    """lt and le; gt and ge are turned. False where one of both has no value, as in torch."""

    def handler(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
        def less_or_equal(a: ir.Value, b: ir.Value) -> ir.Value:
            below = constant_like(tracing.reducer.anchor, np.full(a.width, -_LEAST))
            difference = ir.Combine(((1.0, b), (-1.0, a)))
            return _less(Source(below) if a.on_edges else below, difference)

        first, second = (other, input) if turned else (input, other)
        return _joined(tracing, result, first, second, less_or_equal if or_equal else _less)

    return handler


def _not(tracing: Tracing, result: Any, input: Any) -> Any:
    if isinstance(input, EdgeMask) or result.dtype != torch.bool:
        raise Unfit("it picks what another mask leaves out", "pick edges by row != col, or by their own numbers")
    return _opposite(_traced(input))


def _and(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
    if isinstance(input, EdgeMask) or isinstance(other, EdgeMask):
        return both(input, other)
    return _mul(tracing, result, input, other)


def _or(tracing: Tracing, result: Any, input: Any, other: Any) -> Any:
    return _joined(tracing, result, input, other, lambda a, b: ir.Maximum((a, b)))


def _places(tracing: Tracing, result: Any, input: Any, *, as_tuple: bool = False) -> Any:
    x = _traced(input)
    if x.shape != ():
        raise Unfit("it picks single entries", "pick whole rows")
    return (Places(x),) if as_tuple else Places(x)


def _filled(tracing: Tracing, result: Any, input: Any, mask: Any, value: Any) -> Any:
    """Rows with other numbers where a truth holds; where they are infinite it changes nothing, as a power of 0 is 0."""
    mask = mask[0] if isinstance(mask, tuple) and len(mask) == 1 else mask
    if isinstance(mask, InfiniteEntries):
        zero = not value.any() if torch.is_tensor(value) else _is_number(value, 0)
        if not zero:
            raise Unfit("it changes single entries", "of entries that are infinite it may write 0")
        return input
    shape = input.shape if isinstance(input, Traced) else tuple(input.shape[1:])
    return written(tracing, input, mask, value, shape)


def _where(tracing: Tracing, result: Any, condition: Any, input: Any = None, other: Any = None) -> Any:
    if input is None and other is None:
        return _places(tracing, result, condition, as_tuple=True)
    if isinstance(condition, InfiniteEntries):
        return _filled(tracing, result, other, condition, input)
    return written(tracing, other, condition, input, _trail(result))


def _pair(name: str) -> Callable[..., Any]:
    """A function of two rows with one dimension, such as their cosine, that is read between layers, too."""

    def handler(tracing: Tracing, result: Any, x1: Any, x2: Any, *args: Any, **kwargs: Any) -> Any:
        a, b = _traced(x1), _traced(x2)
        if len(a.shape) != 1 or a.shape != b.shape or _trail(result) != ():
            raise Unfit("it does not run over the columns of rows with one dimension", "flatten the rows first")
        return mapped(lambda x, y: HANDLERS[name](tracing.record, x, y, *args, **kwargs).value, (), a, b)

    return handler


def _bincount(tracing: Tracing, result: Any, input: Any, weights: Any = None, minlength: int = 0) -> Any:
    if not isinstance(input, EndIds) or input.end is None:
        raise Unfit("it counts numbers that are not the ends of edges", "count a row of edge_index")
    if minlength != tracing.vertices:
        raise Unfit("without minlength= it leaves out the vertices after the last one that has an edge",
                    "pass minlength=x.size(0)")  # fmt: skip
    rows = on_edges_of(tracing, input, [1.0], ()) if weights is None else weights
    return scatter(tracing, result, rows, input, "sum")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _each(name) for name in (*_EACH, *_WHOLE_ROWS)},
    **dict.fromkeys(_SAME, _same),
    "nan_to_num": lambda tracing, result, input, *numbers, **named: finite(input, *numbers, **named),
    **dict.fromkeys(_RESHAPED, _reshaped),
    **{name: _rearranged(name) for name in ("transpose", "permute", "expand", "expand_as", "repeat", "swapaxes")},
    **dict.fromkeys(("add", "radd"), _add),
    **dict.fromkeys(("sub", "subtract"), _sub),
    "rsub": lambda tracing, result, input, other: _add(tracing, result, other, input, alpha=-1),
    **dict.fromkeys(("mul", "rmul", "multiply"), _mul),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), _div),
    **dict.fromkeys(("rdiv", "rtruediv"), _rdiv),
    "pow": _pow,
    "rsqrt": _power(-0.5),
    "sqrt": _power(0.5),
    "reciprocal": _reciprocal,
    **{name: _logarithm(name) for name in ("log", "log1p")},
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    "addmm": _addmm,
    "sum": _sum,
    "mean": _mean,
    **dict.fromkeys(("norm", "vector_norm", "linalg_vector_norm"), _norm),
    "max": _extreme(True),
    "amax": _extreme(True),
    "min": _extreme(False),
    "amin": _extreme(False),
    "maximum": _of_two(True),
    "minimum": _of_two(False),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "stack": _stack,
    **{name: _pieces(name) for name in ("chunk", "split", "unbind")},
    "getitem": _getitem,
    "index_select": _lift,
    **dict.fromkeys(("index_add", "scatter_add"), _scatter("sum")),
    "scatter_reduce": _scatter(None),
    **dict.fromkeys(("eq", "isinf", "isnan"), _equal(True)),
    "ne": _equal(False),
    **dict.fromkeys(("lt", "less"), _compared(turned=False, or_equal=False)),
    **dict.fromkeys(("gt", "greater"), _compared(turned=True, or_equal=False)),
    **dict.fromkeys(("le", "less_equal"), _compared(turned=False, or_equal=True)),
    **dict.fromkeys(("ge", "greater_equal"), _compared(turned=True, or_equal=True)),
    **dict.fromkeys(("invert", "bitwise_not", "logical_not"), _not),
    **dict.fromkeys(("and", "rand", "bitwise_and", "logical_and"), _and),
    **dict.fromkeys(("or", "ror", "bitwise_or", "logical_or"), _or),
    "nonzero": _places,
    **dict.fromkeys(("masked_fill", "setitem"), _filled),
    "where": _where,
    **{name: _pair(name) for name in ("cosine_similarity", "pairwise_distance")},
    "bincount": _bincount,
}
