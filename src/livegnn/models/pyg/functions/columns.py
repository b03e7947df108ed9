"""Functions over the columns of each row: norms, sums, softmax, matrices, and columns picked or put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.edges import HeadDot
from livegnn.models.layers import fold_batch_norm
from livegnn.models.messages import linear
from livegnn.models.pyg.context import VERTEX_COUNT, Flat, Import, Unfit, is_symbol, to_array
from livegnn.models.pyg.functions.operands import broadcast, columns_only, constant_columns, scaled, value_of, widened
from livegnn.models.pyg.functions.rows import add, divide, largest, multiply, power


def _over_columns(kind: type[ir.Softmax | ir.LogSoftmax]) -> Callable[..., Any]:
    def handler(record: Import, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim == 0:
            raise Unfit("dim=0 runs over all vertices", "use dim=-1")
        columns_only(dim)
        return kind(value_of(input))

    return handler


# ---- one number per row


def over_columns(input: Any, dim: Any) -> bool:
    """Whether a reduction runs over the columns of rows."""
    return isinstance(input, ir.Value) and (dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim) in (
        1,
        -1,
    )


def kept(column: ir.Value, keepdim: bool) -> Any:
    """One number per row, as a column or as a vector."""
    return column if keepdim else Flat(column)


def sum_columns(x: ir.Value) -> ir.Value:
    """The sum of each row, one column."""
    if isinstance(x, ir.Multiply) and x.b.width == x.a.width:
        return HeadDot(x.a, x.b)
    return x if x.width == 1 else linear(x, np.ones((1, x.width)))


def mean_columns(x: ir.Value) -> ir.Value:
    return scaled(sum_columns(x), 1.0 / x.width)


def fold_columns(x: ir.Value, join: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """The columns of each row joined to one, half by half."""
    while x.width > 1:
        half = x.width // 2
        joined = join(ir.Slice(x, 0, half), ir.Slice(x, half, 2 * half))
        x = ir.Concat((joined, ir.Slice(x, 2 * half, x.width))) if x.width % 2 else joined
    return x


def extreme_columns(x: ir.Value, kind: str) -> ir.Value:
    """The largest ("max") or least ("min") number of each row, one column."""
    if kind == "max":
        return fold_columns(x, lambda a, b: ir.Maximum((a, b)))
    return fold_columns(x, lambda a, b: ir.Elementwise("minimum", (a, b)))


def _centred(record: Import, x: ir.Value) -> ir.Value:
    return ir.Combine(((1.0, x), (-1.0, widened(mean_columns(x), x.width))))


def _variance(record: Import, input: Any, dim: Any, unbiased: Any, correction: Any, keepdim: bool) -> ir.Value:
    x = value_of(input)
    if isinstance(dim, bool):
        raise Unfit("it runs over all rows", "pass dim=-1")
    columns_only(dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim)
    less = correction if correction is not None else 1 if unbiased else 0
    if x.width - less <= 0:
        raise Unfit("rows of one column have no variance")
    centred = _centred(record, x)
    return scaled(HeadDot(centred, centred), 1.0 / (x.width - less))


def _var(
    record: Import, input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> Any:
    return kept(_variance(record, input, dim, unbiased, correction, keepdim), keepdim)


def _std(
    record: Import, input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> Any:
    return kept(ir.Activation(_variance(record, input, dim, unbiased, correction, keepdim), "sqrt"), keepdim)


def _length(record: Import, x: ir.Value, p: Any) -> ir.Value:
    """The p-norm of each row, one column."""
    if p in (2, 2.0, None, "fro"):
        return ir.Activation(HeadDot(x, x), "sqrt")
    size = ir.Activation(x, "abs")
    if p == 1:
        return sum_columns(size)
    if p in (math.inf, -math.inf):
        return extreme_columns(size, "max" if p > 0 else "min")
    if isinstance(p, (int, float)) and p > 0:
        total = sum_columns(power(record, size, p))
        return value_of(power(record, total, 1.0 / p))
    raise Unfit(f"p={p} is not supported", "use a number above 0")


def _norm(
    record: Import, input: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None, out: None = None
) -> Any:
    x = value_of(input)
    if not over_columns(x, dim):
        raise Unfit("it takes the norm of all rows together, so that one update would change every row", "pass dim=-1")
    return kept(_length(record, x, p), keepdim)


def _normalize(record: Import, input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None) -> Any:
    columns_only(dim)
    x = value_of(input)
    if p == 2:
        return ir.L2Normalize(x, eps)
    return divide(record, x, largest(record, (_length(record, x, p), eps)))


def _logsumexp(record: Import, input: Any, dim: Any, keepdim: bool = False) -> Any:
    if not over_columns(input, dim):
        raise Unfit(f"dim={dim} does not run over the columns of each row", "use dim=-1")
    first, rest = ir.Slice(input, 0, 1), ir.Slice(ir.LogSoftmax(input), 0, 1)
    return kept(ir.Combine(((1.0, first), (-1.0, rest))), keepdim)


def _cosine(record: Import, x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    columns_only(dim)
    a, b = value_of(x1), value_of(x2)
    return Flat(HeadDot(ir.L2Normalize(a, eps), ir.L2Normalize(b, eps)))


# ---- norms of rows


def _layer_norm(
    record: Import, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    x = value_of(input)
    if tuple(normalized_shape) != (x.width,):
        raise Unfit(f"it normalises over {tuple(normalized_shape)}", "normalise over the columns")
    return ir.LayerNorm(x, to_array(weight), to_array(bias), eps)


def _rms_norm(record: Import, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight; without an eps that of float32, which a float64 copy has not."""
    x = value_of(input)
    if tuple(normalized_shape) != (x.width,):
        raise Unfit(f"it normalises over {tuple(normalized_shape)}", "normalise over the columns")
    record.rounded = record.rounded or eps is None
    square = scaled(HeadDot(x, x), 1.0 / x.width)
    root = ir.Activation(add(record, square, torch.finfo(torch.float32).eps if eps is None else eps), "sqrt")
    y = ir.Elementwise("divide", (x, root))
    return y if weight is None else multiply(record, y, weight)


def _group_norm(
    record: Import, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    x = value_of(input)
    size = x.width // num_groups
    groups = [ir.Slice(x, k * size, (k + 1) * size) for k in range(num_groups)]
    y: Any = ir.Concat(tuple(ir.LayerNorm(each, None, None, eps) for each in groups))
    y = y if weight is None else multiply(record, y, weight)
    return y if bias is None else add(record, y, bias)


def _batch_norm(
    record: Import,
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if running_mean is None or running_var is None:
        raise Unfit(
            "without running statistics it normalises over all vertices even in eval mode",
            "train it with track_running_stats=True",
        )
    if training:
        raise Unfit("it takes its statistics over all vertices", "pass training=self.training")
    mean, var = to_array(running_mean), to_array(running_var)
    scale, shift = fold_batch_norm(mean, var, to_array(weight), to_array(bias), eps)
    return ir.Affine(value_of(input), record.constant(scale), record.constant(shift))


# ---- matrices


def _linear(record: Import, input: Any, weight: Any, bias: Any = None) -> Any:
    if is_symbol(weight) or is_symbol(bias):
        raise Unfit("its weight is computed from the features")
    return linear(value_of(input), to_array(weight), to_array(bias))


def _matmul(record: Import, input: Any, other: Any) -> Any:
    if isinstance(input, ir.Value) and isinstance(other, ir.Value) and not input.on_edges:
        raise Unfit(
            "it multiplies rows of all vertices with one another, so that one update would change every row",
            "keep to products with constant matrices",
        )
    if is_symbol(other) or getattr(other, "ndim", 0) not in (1, 2):
        raise Unfit("its second factor is not a constant matrix")
    if other.ndim == 1:
        return Flat(linear(value_of(input), to_array(other)[None]))
    return linear(value_of(input), to_array(other).T)


def _addmm(record: Import, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = _matmul(record, mat1, mat2)
    return add(
        record, multiply(record, product, alpha), multiply(record, input, beta) if is_symbol(input) else beta * input
    )


def _bilinear(record: Import, input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """y[o] = input1' weight[o] input2 + bias[o]."""
    a, b, matrices = value_of(input1), value_of(input2), to_array(weight)
    outputs, rows, columns = matrices.shape
    mapped = linear(a, matrices.transpose(0, 2, 1).reshape(outputs * columns, rows))
    y = HeadDot(mapped, b if outputs == 1 else ir.Concat((b,) * outputs), outputs)
    return y if bias is None else add(record, y, bias)


def _cumsum(record: Import, input: Any, dim: int) -> Any:
    columns_only(dim)
    x = value_of(input)
    return linear(x, np.tril(np.ones((x.width, x.width))))


# ---- columns picked and put together


def _cat(record: Import, tensors: Any, dim: Any = 0, *, axis: Any = None) -> Any:
    columns_only(dim if axis is None else axis)
    return ir.Concat(tuple(value_of(each) for each in tensors))


def _chunk(record: Import, input: Any, chunks: int, dim: int = 0) -> Any:
    columns_only(dim)
    x = value_of(input)
    return _split(record, x, -(-x.width // chunks), dim)


def _split(record: Import, tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    columns_only(dim)
    x = value_of(tensor)
    sizes = split_size_or_sections
    if isinstance(sizes, int):
        sizes = [min(sizes, x.width - start) for start in range(0, x.width, sizes)]
    ends = np.cumsum(sizes)
    return tuple(ir.Slice(x, int(end) - int(size), int(end)) for end, size in zip(ends, sizes, strict=True))


def _unbind(record: Import, input: Any, dim: int = 0) -> Any:
    columns_only(dim)
    x = value_of(input)
    return tuple(Flat(ir.Slice(x, column, column + 1)) for column in range(x.width))


def pick_columns(x: ir.Value, columns: list[int]) -> ir.Value:
    """The columns in this order."""
    run = columns == [*range(columns[0], columns[0] + len(columns))]
    return ir.Slice(x, columns[0], columns[-1] + 1) if run else linear(x, np.eye(x.width)[columns])


def _index_select(record: Import, input: Any, dim: int, index: Any) -> Any:
    columns_only(dim)
    if is_symbol(index):
        raise Unfit("which columns it picks depends on the rows")
    return pick_columns(value_of(input), index.reshape(-1).tolist())


def _narrow(record: Import, input: Any, dim: int, start: int, length: int) -> Any:
    columns_only(dim)
    return ir.Slice(value_of(input), start % value_of(input).width, start % value_of(input).width + length)


def _flip(record: Import, input: Any, *axes: Any, dims: Any = None) -> Any:
    given = axes if dims is None else dims
    given = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    columns_only(given[0] if len(given) == 1 else given)
    x = value_of(input)
    return linear(x, np.eye(x.width)[::-1])


def _pad(record: Import, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant" or len(pad) != 2 or min(pad) < 0:
        raise Unfit(f"pad={tuple(pad)} with mode={mode!r} is not supported", "pad columns with a constant")
    x = value_of(input)
    sides = [constant_columns(x, np.full(size, value or 0.0), record) if size else None for size in pad]
    return ir.Concat(tuple(each for each in (sides[0], x, sides[1]) if each is not None))


def _repeat(record: Import, input: Any, *sizes: Any) -> Any:
    given = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if len(given) != 2 or given[0] != 1:
        raise Unfit(f"the repeats {given} are not of columns", "repeat columns only")
    return ir.Concat((value_of(input),) * given[1])


def _expand(record: Import, input: Any, *sizes: Any) -> Any:
    given = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if len(given) != 2 or not (given[0] in (-1, VERTEX_COUNT) or record.recorded):  # a recording is compared
        raise Unfit(f"the shape {given} is not one row per vertex", "expand columns only")
    x = value_of(input)
    return x if given[1] == -1 else widened(x, given[1])


def _repeat_interleave(record: Import, input: Any, repeats: Any, dim: Any = None) -> Any:
    columns_only(dim)
    x = value_of(input)
    if not isinstance(repeats, int):
        raise Unfit("its repeats are not one number", "repeat every column equally often")
    return linear(x, np.repeat(np.eye(x.width), repeats, axis=0))


def _glu(record: Import, input: Any, dim: int = -1) -> Any:
    columns_only(dim)
    x = value_of(input)
    half = x.width // 2
    return ir.Multiply(ir.Slice(x, 0, half), ir.Activation(ir.Slice(x, half, x.width), "sigmoid"))


def _distance(record: Import, x1: Any, x2: Any, p: Any = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    a, b = broadcast((x1, x2), record)
    return kept(_length(record, value_of(add(record, add(record, a, b, alpha=-1), eps)), p), keepdim)


COLUMNS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("matmul", "mm"), _matmul),
    **dict.fromkeys(("cat", "concat", "concatenate", "hstack"), _cat),
    "softmax": _over_columns(ir.Softmax),
    "log_softmax": _over_columns(ir.LogSoftmax),
    "normalize": _normalize,
    "norm": _norm,
    **dict.fromkeys(
        ("linalg_norm", "linalg_vector_norm"),
        lambda record, input, ord=2, dim=None, keepdim=False, dtype=None: _norm(record, input, ord, dim, keepdim),
    ),
    "var": _var,
    "std": _std,
    "logsumexp": _logsumexp,
    "cosine_similarity": _cosine,
    "pairwise_distance": _distance,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "linear": _linear,
    "addmm": _addmm,
    "bilinear": _bilinear,
    "cumsum": _cumsum,
    "chunk": _chunk,
    "split": _split,
    "unbind": _unbind,
    "index_select": _index_select,
    "narrow": _narrow,
    **dict.fromkeys(("flip", "fliplr"), _flip),
    "pad": _pad,
    **dict.fromkeys(("repeat", "tile"), _repeat),
    "expand": _expand,
    "expand_as": lambda record, input, other: widened(value_of(input), value_of(other).width),
    "repeat_interleave": _repeat_interleave,
    "glu": _glu,
}
