"""Functions and methods on rows that a module's forward may call, by torch's name for them.

A handler gets symbols and constants as the function's own arguments and returns a symbol. Whatever has no handler, or
is called in another way, is refused by name.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from livegnn.models import ir
from livegnn.models.edges import EdgeWeight
from livegnn.models.layers import fold_batch_norm
from livegnn.models.messages import linear
from livegnn.models.pyg.constants import STATES
from livegnn.models.pyg.context import (
    BATCH,
    VERTEX_COUNT,
    WEIGHTS,
    Count,
    Flat,
    Import,
    Marker,
    Refusal,
    Unfit,
    is_symbol,
    refuse,
    to_array,
)
from livegnn.models.pyg.pools import BACK_TO_VERTICES, global_pool, pool_all, pool_batch
from livegnn.models.pyg.shapes import join
from livegnn.models.pyg.tables import join_tables

_NAMESPACES = (torch, F, operator, torch.Tensor, torch.special)


def canonical_name(function: Any) -> str | None:
    """torch's name of a function, without underscores of operators and in-place forms; None if it is not torch's."""
    raw = function if isinstance(function, str) else getattr(function, "__name__", None)
    if raw is None or function is global_pool:
        return raw
    if not isinstance(function, str):
        if raw == "__get__":
            return str(getattr(function.__self__, "__name__", None))
        if function is getattr:
            return "getattr"
        if all(getattr(space, raw, None) is not function for space in _NAMESPACES) and not _same_method(raw, function):
            return None
    name = str(raw).strip("_")
    return name[1:] if name in ("iadd", "isub", "imul", "itruediv", "ipow") else name


def _same_method(name: str, function: Any) -> bool:
    return any(getattr(space, name, None) == function for space in (torch, F, torch.Tensor))


def apply_function(name: str | None, label: str, args: Any, kwargs: Any, record: Import, where: str) -> Any:
    """The result of calling the function `name`; a Refusal, raised when read, if it is not supported."""
    whole = f"{label} in {where}"
    picks = name in ("getitem", "getattr")  # of a tuple may leave out what is refused
    for each in (*args, *kwargs.values()):
        for part in each if isinstance(each, (list, tuple)) and not picks else (each,):
            if isinstance(part, Refusal):
                return part
    handler = None if name is None else HANDLERS.get(name)
    if handler is None:
        return Refusal(refuse(whole, "this operation is not supported", "see docs/models.md for those that are"))
    flat = isinstance(args[0] if args else None, Flat) and name in _FLAT
    if flat:
        args = (args[0].value, *args[1:])
    try:
        inspect.signature(handler).bind(record, *args, **kwargs)
    except TypeError as error:
        return Refusal(refuse(whole, f"it is called in a way that is not supported ({error})", "see docs/models.md"))
    try:
        result = handler(record, *args, **kwargs)
    except Unfit as error:
        return Refusal(refuse(whole, error.reason, error.remedy))
    return record.name(Flat(result) if flat else result, f"{where}: {label}")


def _value(x: Any) -> ir.Value:
    if not isinstance(x, ir.Value):
        raise Unfit("its argument is not one row per vertex")
    return x


def _columns_only(dim: Any) -> None:
    if dim not in (1, -1):
        raise Unfit(f"dim={dim} does not run over the columns of each row", "use dim=-1")


def _number(x: Any) -> float | None:
    if isinstance(x, (bool, int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() == 1:
        return float(x)
    return None


def _row(x: Any, width: int) -> Any:
    if isinstance(x, torch.Tensor) and tuple(x.shape) in ((width,), (1, width)):
        return to_array(x).reshape(width)
    if is_symbol(x):
        raise Unfit("its operands do not fit each other row by row")
    raise Unfit(*_of_constant(x))


def _of_constant(x: Any) -> tuple[str, str]:
    """Why a constant is no row, and what to do."""
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) == 2 and shape[0] > 1:
        return (
            f"a constant of shape {shape} has a row for every vertex, and a new vertex would have none",
            "give its rows to the graph as columns of the features, and read these from x",
        )
    return f"a constant of shape {shape} is not one number per column", "see docs/models.md"


def _activation(input: Any, kind: str, param: float = 0.0) -> ir.Value:
    return ir.Activation(_value(input), kind, param)


def _unary(kind: str) -> Callable[..., Any]:
    return lambda record, input, inplace=False: _activation(input, kind)


def _mish(record: Import, input: Any, inplace: bool = False) -> Any:
    """x * tanh(softplus(x))."""
    return ir.Multiply(_value(input), ir.Activation(_activation(input, "softplus", 1.0), "tanh"))


def _gelu(record: Import, input: Any, approximate: str = "none") -> Any:
    return _activation(input, "gelu" if approximate == "none" else "gelu_tanh")


def _softplus(record: Import, input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    if threshold != 20:
        raise Unfit(f"threshold={threshold} is not the default", "use threshold=20")
    return _activation(input, "softplus", beta)


def _prelu(record: Import, input: Any, weight: torch.Tensor) -> Any:
    x = _value(input)
    return ir.PReLU(x, np.broadcast_to(to_array(weight), (x.width,)))


def _over_columns(kind: type[ir.Softmax | ir.LogSoftmax]) -> Callable[..., Any]:
    def handler(record: Import, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim == 0:
            raise Unfit("dim=0 runs over all vertices", "use dim=-1")
        _columns_only(dim)
        return kind(_value(input))

    return handler


def _dropout(record: Import, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training and p > 0:
        raise Unfit("it is random in eval mode too", "pass training=self.training")
    return input


def _clamp(record: Import, input: Any, min: Any = None, max: Any = None) -> Any:
    kinds = {(0, None): "relu", (0, 6): "relu6", (-1, 1): "hardtanh"}
    if is_symbol(min) or is_symbol(max) or (min, max) not in kinds:
        raise Unfit(f"the bounds {(min, max)} are not supported", "use -1 and 1, 0 and 6, or 0 and None")
    return _activation(input, kinds[min, max])


def _normalize(record: Import, input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: None = None) -> Any:
    _columns_only(dim)
    if p != 2:
        raise Unfit(f"p={p} is not the Euclidean norm", "use p=2")
    return ir.L2Normalize(_value(input), eps)


def _layer_norm(
    record: Import, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    x = _value(input)
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
    return ir.Affine(_value(input), record.constant(scale), record.constant(shift))


def _linear(record: Import, input: Any, weight: Any, bias: Any = None) -> Any:
    if is_symbol(weight) or is_symbol(bias):
        raise Unfit("its weight is computed from the features")
    return linear(_value(input), to_array(weight), to_array(bias))


def _matmul(record: Import, input: Any, other: Any) -> Any:
    if is_symbol(other) or getattr(other, "ndim", 0) != 2:
        raise Unfit("its second factor is not a constant matrix")
    return linear(_value(input), to_array(other).T)


def _addmm(record: Import, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = _matmul(record, mat1, mat2)
    return _add(record, _mul(record, product, alpha), _mul(record, input, beta) if is_symbol(input) else beta * input)


def _add(record: Import, input: Any, other: Any, *, alpha: float = 1) -> Any:
    if not isinstance(input, ir.Value):
        if alpha != 1:
            raise Unfit("alpha with a constant first operand is not supported")
        input, other = other, input
    x = _value(input)
    if isinstance(other, ir.Value):
        if other.width != x.width:
            raise Unfit(f"widths {x.width} and {other.width} differ")
        return ir.Combine(((1.0, x), (float(alpha), other)))
    number = _number(other)
    if number == 0:
        return x
    shift = _row(other, x.width) if number is None else np.full(x.width, number)
    return ir.Affine(x, record.constant(np.ones(x.width)), record.constant(float(alpha) * shift))


def _sub(record: Import, input: Any, other: Any, *, alpha: float = 1) -> Any:
    if isinstance(input, ir.Value):
        return _add(record, input, other, alpha=-alpha)
    return _add(record, _mul(record, other, -float(alpha)), input)


def _neg(record: Import, input: Any) -> Any:
    return ir.Combine(((-1.0, _value(input)),))


def _mul(record: Import, input: Any, other: Any) -> Any:
    if not isinstance(input, ir.Value):
        input, other = other, input
    x = _value(input)
    if isinstance(other, ir.Value):
        wide, narrow = (x, other) if x.width >= other.width else (other, x)
        if narrow.width not in (1, wide.width):
            raise Unfit(f"widths {x.width} and {other.width} differ")
        return ir.Multiply(wide, narrow)
    number = _number(other)
    if number is not None:
        return x if number == 1 else ir.Combine(((number, x),))
    return ir.Affine(x, record.constant(_row(other, x.width)), record.constant(np.zeros(x.width)))


def _div(record: Import, input: Any, other: Any, *, rounding_mode: None = None) -> Any:
    x = _value(input)
    number = _number(other)
    if number is not None:
        return ir.Combine(((1.0 / number, x),))
    return ir.Affine(x, record.constant(1.0 / _row(other, x.width)), record.constant(np.zeros(x.width)))


def _pow(record: Import, input: Any, exponent: Any) -> Any:
    if exponent not in (2, 3):
        raise Unfit(f"the exponent {exponent} is not supported", "use 2 or 3")
    x = _value(input)
    square = ir.Multiply(x, x)
    return square if exponent == 2 else ir.Multiply(square, x)


def _cat(record: Import, tensors: Any, dim: Any = 0, *, axis: Any = None) -> Any:
    _columns_only(dim if axis is None else axis)
    return ir.Concat(tuple(_value(each) for each in tensors))


_OVER_ROWS = "it does not reduce over a stack of layers; over rows it would mix vertices"


def _over_vertices(input: Any, dim: Any) -> bool:
    """Whether a reduction runs over all rows."""
    return isinstance(input, ir.Value) and (dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim) in (0, -2)


def _largest(values: tuple[Any, ...]) -> ir.Value:
    return ir.Maximum(tuple(map(_value, values)))


def _least(values: tuple[Any, ...]) -> ir.Value:
    negative = ir.Maximum(tuple(ir.Combine(((-1.0, _value(each)),)) for each in values))
    return ir.Combine(((-1.0, negative),))


def _extreme(pick: Callable[[tuple[Any, ...]], ir.Value], kind: str) -> Callable[..., Any]:
    """torch.max or torch.min: of two values, or of all rows."""

    def handler(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(input, ir.Value) and isinstance(dim, ir.Value):
            return pick((input, dim))
        indices = Refusal(refuse(f"the indices of a {kind}imum", "they are not supported", "use the values"))
        if _over_vertices(input, dim):
            return pool_all(record, input, kind), indices
        raise Unfit(_OVER_ROWS)

    return handler


def _sum(record: Import, input: Any, dim: Any = None, keepdim: bool = False, axis: Any = None) -> Any:
    if isinstance(input, (list, tuple)) and dim is None and axis is None:  # the built-in sum
        return ir.Combine(tuple((1.0, _value(each)) for each in input))
    dim = dim if axis is None else axis
    if _over_vertices(input, dim):
        return pool_all(record, input, "sum")
    raise Unfit(_OVER_ROWS)


def _mean(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if _over_vertices(input, dim):
        return pool_all(record, input, "mean")
    raise Unfit(_OVER_ROWS)


def _getitem(record: Import, input: Any, index: Any) -> Any:
    if isinstance(input, (list, tuple, dict)):
        return input[index]
    if index is BATCH:
        raise Unfit(BACK_TO_VERTICES, "keep what follows the pool row by row")
    if index in ((slice(None), None), (Ellipsis, None)) and (isinstance(input, Flat) or input is WEIGHTS):
        return _column(record, input)
    x = _value(input)
    if isinstance(index, tuple) and len(index) == 2 and index[0] in (slice(None), Ellipsis):
        columns = index[1]
        if columns == slice(None):
            return x
        if isinstance(columns, slice) and columns.step in (None, 1) and not is_symbol((columns.start, columns.stop)):
            start, stop, _ = columns.indices(x.width)
            return ir.Slice(x, start, stop)
        if isinstance(columns, int):
            if x.width == 1 and columns in (0, -1):
                return Flat(x)
            return Flat(ir.Slice(x, columns % x.width, columns % x.width + 1))
    raise Unfit("it picks rows, and the rows of a graph that changes are not fixed", "pick columns only")


def _chunk(record: Import, input: Any, chunks: int, dim: int = 0) -> Any:
    _columns_only(dim)
    x = _value(input)
    return _split(record, x, -(-x.width // chunks), dim)


def _split(record: Import, tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    _columns_only(dim)
    x = _value(tensor)
    sizes = split_size_or_sections
    if isinstance(sizes, int):
        sizes = [min(sizes, x.width - start) for start in range(0, x.width, sizes)]
    ends = np.cumsum(sizes)
    return tuple(ir.Slice(x, int(end) - int(size), int(end)) for end, size in zip(ends, sizes, strict=True))


def _column(record: Import, input: Any) -> ir.Value:
    """One number per row, or the graph's weights, as a column."""
    if input is WEIGHTS:
        record.weights_from.add("edge_weight")
        return EdgeWeight()
    return _value(input.value)


def _reshape(record: Import, input: Any, *shape: Any) -> Any:
    extents = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if input is WEIGHTS and extents == (-1, 1):
        return _column(record, input)
    if input is WEIGHTS and extents == (-1,):
        return input
    value = input.value if isinstance(input, Flat) else _value(input)
    rows = extents[:1] in ((-1,), (VERTEX_COUNT,))
    if rows and len(extents) == 2 and extents[1] == value.width:
        return value
    if rows and len(extents) == 1 and value.width == 1:
        return Flat(value)
    if extents == (VERTEX_COUNT, -1):
        return value
    raise Unfit(f"the shape {extents} is not one row per vertex")


def _squeeze(record: Import, input: Any, dim: Any = None) -> Any:
    x = _value(input)
    if x.width != 1 or dim not in (None, 1, -1):
        raise Unfit("it does not remove a single column", "squeeze dim=-1 of a row of width 1")
    return Flat(x)


def _flatten(record: Import, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return _value(input) if start_dim == 1 else _squeeze(record, input)


def _unsqueeze(record: Import, input: Any, dim: int) -> Any:
    if (isinstance(input, Flat) or input is WEIGHTS) and dim in (1, -1):
        return _column(record, input)
    raise Unfit("it does not turn a vector into a column")


def _same(record: Import, input: Any, **options: Any) -> Any:
    return input


def _cast(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
    given = [_type_of(each) for each in (*args, *kwargs.values())]
    wanted = _WHOLE if _is_whole(input) else _REAL
    other = next((each for each in given if each is not None and each not in wanted), None)
    if other is not None:
        raise Unfit(f"{other} would round the rows", f"stay in {'int64' if wanted is _WHOLE else 'float32'}")
    return input


_REAL = (torch.float32, torch.float64, "torch.FloatTensor", "torch.DoubleTensor")
_WHOLE = (torch.int64, "torch.LongTensor")


def _is_whole(input: Any) -> bool:
    return isinstance(input, Marker) and input.what != WEIGHTS.what


def _type_of(option: Any) -> Any:
    """The type that an argument of a cast asks for: its own, or that of a tensor to be like; None for a device."""
    if isinstance(option, torch.Tensor):
        return option.dtype
    if is_symbol(option):
        return torch.int64 if _is_whole(option) else torch.float32
    return option if isinstance(option, torch.dtype) or str(option).endswith("Tensor") else None


def _shape(record: Import, input: Any) -> Any:
    x = _value(input)
    return (Count(of=x), x.width)


def _size(record: Import, input: Any, dim: int | None = None) -> Any:
    shape = _shape(record, input)
    return shape if dim is None else shape[dim]


def _getattr(record: Import, input: Any, name: str, *default: Any) -> Any:
    if isinstance(input, tuple) and name == "values":  # of torch.max over a stack
        return input[0]
    if name in ("shape", "dtype", "device", "ndim", "requires_grad", "T", "mT"):
        return HANDLERS[name](record, input)
    raise Unfit(f"the attribute {name} is not supported")


_PLAIN: dict[str, Callable[..., Any]] = {
    **{
        kind: _unary(kind)
        for kind in ("abs", "relu", "selu", "silu", "sigmoid", "tanh", "relu6", "hardswish", "softsign", "exp")
    },
    **dict.fromkeys(("contiguous", "clone", "detach", "requires_grad", "cpu"), _same),
    **dict.fromkeys(("to", "type_as", "type"), _cast),
    **dict.fromkeys(("float", "double"), lambda record, input, memory_format=None: _cast(record, input, torch.float32)),
    "long": lambda record, input, memory_format=None: _cast(record, input, torch.int64),
    **dict.fromkeys(("dropout", "dropout1d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), _dropout),
    **dict.fromkeys(("add", "radd"), _add),
    **dict.fromkeys(("mul", "rmul", "multiply"), _mul),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), _div),
    **dict.fromkeys(("matmul", "mm"), _matmul),
    **dict.fromkeys(("cat", "concat", "concatenate", "hstack"), _cat),
    **dict.fromkeys(("view", "reshape"), _reshape),
    "logsigmoid": _unary("log_sigmoid"),
    "expit": _unary("sigmoid"),
    "leaky_relu": lambda record, input, negative_slope=0.01, inplace=False: _activation(
        input, "leaky_relu", negative_slope
    ),
    "elu": lambda record, input, alpha=1.0, inplace=False: _activation(input, "elu", alpha),
    "celu": lambda record, input, alpha=1.0, inplace=False: _activation(input, "celu", alpha),
    "gelu": _gelu,
    "softplus": _softplus,
    "prelu": _prelu,
    "mish": _mish,
    "tanhshrink": lambda record, input: ir.Combine(((1.0, _value(input)), (-1.0, _activation(input, "tanh")))),
    "softmax": _over_columns(ir.Softmax),
    "log_softmax": _over_columns(ir.LogSoftmax),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda record, input, min: _clamp(record, input, min),
    "hardtanh": lambda record, input, min_val=-1.0, max_val=1.0, inplace=False: _clamp(record, input, min_val, max_val),
    "normalize": _normalize,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "linear": _linear,
    "addmm": _addmm,
    "sub": _sub,
    "rsub": lambda record, input, other, *, alpha=1: _sub(record, other, input, alpha=alpha),
    **dict.fromkeys(("neg", "negative"), _neg),
    "square": lambda record, input: _pow(record, input, 2),
    "pow": _pow,
    "max": _extreme(_largest, "max"),
    "maximum": lambda record, input, other: _largest((input, other)),
    "min": _extreme(_least, "min"),
    "minimum": lambda record, input, other: _least((input, other)),
    "sum": _sum,
    "mean": _mean,
    "global_pool": pool_batch,
    "getitem": _getitem,
    "chunk": _chunk,
    "split": _split,
    "squeeze": _squeeze,
    "flatten": _flatten,
    "unsqueeze": _unsqueeze,
    "shape": _shape,
    "size": _size,
    **dict.fromkeys(
        ("dim", "ndim"), lambda record, input: 1 if isinstance(input, Flat) else len(_shape(record, input))
    ),
    "dtype": lambda record, input: torch.float32,
    "device": lambda record, input: torch.device("cpu"),
    "getattr": _getattr,
}
HANDLERS = join_tables(join(_PLAIN) | STATES)
_FLAT = {
    "relu", "sigmoid", "tanh", "softplus", "exp", "logsigmoid", "neg", "clone", "contiguous", "detach", "float",
    "dropout",
}  # fmt: skip
