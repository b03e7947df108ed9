"""Functions over the columns of each row: norms, softmax, matrices, and columns picked or put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegnn.models import ir
from livegnn.models.layers import fold_batch_norm
from livegnn.models.messages import linear
from livegnn.models.pyg.context import Import, Unfit, is_symbol, to_array
from livegnn.models.pyg.functions.operands import columns_only, value_of
from livegnn.models.pyg.functions.rows import add, multiply


def _over_columns(kind: type[ir.Softmax | ir.LogSoftmax]) -> Callable[..., Any]:
    def handler(record: Import, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim == 0:
            raise Unfit("dim=0 runs over all vertices", "use dim=-1")
        columns_only(dim)
        return kind(value_of(input))

    return handler


def _normalize(record: Import, input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None) -> Any:
    columns_only(dim)
    if p != 2:
        raise Unfit(f"p={p} is not the Euclidean norm", "use p=2")
    return ir.L2Normalize(value_of(input), eps)


def _layer_norm(
    record: Import, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    x = value_of(input)
    if tuple(normalized_shape) != (x.width,):
        raise Unfit(f"it normalises over {tuple(normalized_shape)}", "normalise over the columns")
    return ir.LayerNorm(x, to_array(weight), to_array(bias), eps)


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


def _linear(record: Import, input: Any, weight: Any, bias: Any = None) -> Any:
    if is_symbol(weight) or is_symbol(bias):
        raise Unfit("its weight is computed from the features")
    return linear(value_of(input), to_array(weight), to_array(bias))


def _matmul(record: Import, input: Any, other: Any) -> Any:
    if is_symbol(other) or getattr(other, "ndim", 0) != 2:
        raise Unfit("its second factor is not a constant matrix")
    return linear(value_of(input), to_array(other).T)


def _addmm(record: Import, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = _matmul(record, mat1, mat2)
    return add(
        record, multiply(record, product, alpha), multiply(record, input, beta) if is_symbol(input) else beta * input
    )


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


COLUMNS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("matmul", "mm"), _matmul),
    **dict.fromkeys(("cat", "concat", "concatenate", "hstack"), _cat),
    "softmax": _over_columns(ir.Softmax),
    "log_softmax": _over_columns(ir.LogSoftmax),
    "normalize": _normalize,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "linear": _linear,
    "addmm": _addmm,
    "chunk": _chunk,
    "split": _split,
}
