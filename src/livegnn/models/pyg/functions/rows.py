"""Functions of each number alone: activations and arithmetic of rows, numbers and constants per column."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Unfit, is_symbol, to_array
from livegnn.models.pyg.functions.infinite import chosen, finite, is_infinite, negated, never
from livegnn.models.pyg.functions.operands import (
    activation,
    broadcast,
    constant_columns,
    number_of,
    row_of,
    scaled,
    value_of,
    widened,
)


def _unary(kind: str) -> Callable[..., Any]:
    return lambda record, input, inplace=False: activation(input, kind)


def _mish(record: Import, input: Any, inplace: bool = False) -> Any:
    """x * tanh(softplus(x))."""
    return ir.Multiply(value_of(input), ir.Activation(activation(input, "softplus", 1.0), "tanh"))


def _gelu(record: Import, input: Any, approximate: str = "none") -> Any:
    return activation(input, "gelu" if approximate == "none" else "gelu_tanh")


def _softplus(record: Import, input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + e^(beta x)) / beta; x itself where beta x is above the threshold, or above 20, where both are x."""
    y = activation(input, "softplus", beta)
    if threshold >= 20:
        return y
    over = _less(record, threshold, scaled(value_of(input), beta))
    return where(record, over, input, y)


def _prelu(record: Import, input: Any, weight: torch.Tensor) -> Any:
    x = value_of(input)
    return ir.PReLU(x, np.broadcast_to(to_array(weight), (x.width,)))


def _rrelu(
    record: Import,
    input: Any,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Any:
    if training:
        raise Unfit("it is random in eval mode too", "pass training=self.training")
    return activation(input, "leaky_relu", (lower + upper) / 2)


def _dropout(record: Import, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training and p > 0:
        raise Unfit("it is random in eval mode too", "pass training=self.training")
    return input


def _clamp(record: Import, input: Any, min: Any = None, max: Any = None) -> Any:
    kinds: dict[tuple[float | None, float | None], str] = {(0, None): "relu", (0, 6): "relu6", (-1, 1): "hardtanh"}
    bounds = number_of(min) if min is not None else None, number_of(max) if max is not None else None
    plain = bounds[0] is not None and (max is None or bounds[1] is not None)
    if plain and bounds in kinds:
        return activation(input, kinds[bounds])
    x = value_of(input)
    x = x if min is None else largest(record, (x, min))
    return x if max is None else least(record, (x, max))


def _threshold(record: Import, input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    return where(record, _less(record, threshold, input), input, value)


def _hardshrink(record: Import, input: Any, lambd: float = 0.5) -> Any:
    return where(record, _less(record, lambd, activation(input, "abs")), input, 0)


def _softshrink(record: Import, input: Any, lambd: float = 0.5) -> Any:
    return ir.Combine(((1.0, value_of(input)), (-1.0, _clamp(record, input, -lambd, lambd))))


def _hardsigmoid(record: Import, input: Any, inplace: bool = False) -> Any:
    return _clamp(record, add(record, scaled(value_of(input), 1 / 6), 0.5), 0, 1)


# ---- arithmetic


def add(record: Import, input: Any, other: Any, *, alpha: float = 1) -> Any:
    """input + alpha * other, one of them rows."""
    if not isinstance(input, ir.Value):
        scale = float(alpha)
        return add(record, scaled(value_of(other), scale), input)
    x = input
    if isinstance(other, ir.Value):
        width = max(x.width, other.width)
        return ir.Combine(((1.0, widened(x, width)), (float(alpha), widened(other, width))))
    number = number_of(other)
    if number == 0:
        return x
    x = x if number is not None else widened(x, _width_of(other, x))
    shift = row_of(other, x.width) if number is None else np.full(x.width, number)
    return ir.Affine(x, record.constant(np.ones(x.width)), record.constant(float(alpha) * shift))


def _width_of(constant: Any, x: ir.Value) -> int:
    """The columns of a constant row where `x` is one column; else x's own."""
    alone = x.width == 1 and isinstance(constant, torch.Tensor) and constant.ndim and constant.numel() > 1
    return constant.shape[-1] if alone else x.width


def _sub(record: Import, input: Any, other: Any, *, alpha: float = 1) -> Any:
    if isinstance(input, ir.Value):
        return add(record, input, other, alpha=-alpha)
    return add(record, multiply(record, other, -float(alpha)), input)


def _neg(record: Import, input: Any) -> Any:
    return ir.Combine(((-1.0, value_of(input)),))


def multiply(record: Import, input: Any, other: Any) -> Any:
    """input * other, one of them rows."""
    if not isinstance(input, ir.Value):
        input, other = other, input
    x = value_of(input)
    if isinstance(other, ir.Value):
        wide, narrow = (x, other) if x.width >= other.width else (other, x)
        if narrow.width not in (1, wide.width):
            raise Unfit(f"widths {x.width} and {other.width} differ")
        return ir.Multiply(wide, narrow)
    number = number_of(other)
    if number is not None:
        return scaled(x, number)
    x = widened(x, _width_of(other, x))
    return ir.Affine(x, record.constant(row_of(other, x.width)), record.constant(np.zeros(x.width)))


def divide(record: Import, input: Any, other: Any, *, rounding_mode: Any = None) -> Any:
    """input / other, one of them rows; 0 where rows are divided by 0, as the engine has it."""
    if rounding_mode is not None:
        raise Unfit(f"rounding_mode={rounding_mode!r} rounds the rows", "leave rounding_mode out")
    if isinstance(other, ir.Value):
        if isinstance(input, ir.Value):
            return ir.Elementwise("divide", (input, other))
        return multiply(record, ir.Activation(other, "reciprocal"), input)
    x = value_of(input)
    number = number_of(other)
    if number is not None:
        if number == 0:
            raise Unfit("it divides by 0")
        return scaled(x, 1.0 / number)
    x = widened(x, _width_of(other, x))
    return ir.Affine(x, record.constant(1.0 / row_of(other, x.width)), record.constant(np.zeros(x.width)))


def power(record: Import, input: Any, exponent: Any) -> Any:
    """input ** exponent with a constant exponent, or a constant above 0 to the power of rows.

    Where the exponent is no whole number, only what is above 0 has a power; the others get 0.
    """
    if isinstance(exponent, ir.Value):
        base = number_of(input)
        if base is None or base <= 0:
            raise Unfit("its exponent depends on the rows, and its base is not one number above 0", "use torch.exp")
        return activation(scaled(exponent, math.log(base)), "exp")
    x, p = value_of(input), number_of(exponent)
    if p is None or not math.isfinite(p):
        raise Unfit("its exponent is not one number", "use one number")
    if p < 0:
        return ir.Activation(power(record, x, -p), "reciprocal")
    if p == 0:
        return constant_columns(x, np.ones(x.width), record)
    if p == 0.5:
        return ir.Activation(x, "sqrt")
    if p == int(p) and p <= 64:
        return _whole_power(x, int(p))
    grown = ir.Activation(scaled(ir.Activation(x, "log"), p), "exp")
    return where(record, _less(record, 0, x), grown, 0)


def _whole_power(x: ir.Value, p: int) -> ir.Value:
    half = x if p == 1 else _whole_power(x, p // 2)
    if p == 1:
        return x
    square = ir.Multiply(half, half)
    return ir.Multiply(square, x) if p % 2 else square


def _logarithm(base: float) -> Callable[..., Any]:
    return lambda record, input: scaled(activation(input, "log"), 1.0 / math.log(base))


def _rsqrt(record: Import, input: Any) -> Any:
    return ir.Activation(activation(input, "sqrt"), "reciprocal")


def _addcmul(record: Import, input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    product = multiply(record, tensor1, tensor2) if is_symbol((tensor1, tensor2)) else tensor1 * tensor2
    return add(record, input, product, alpha=value)


def _addcdiv(record: Import, input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    quotient = divide(record, tensor1, tensor2) if is_symbol((tensor1, tensor2)) else tensor1 / tensor2
    return add(record, input, quotient, alpha=value)


def _lerp(record: Import, input: Any, end: Any, weight: Any) -> Any:
    return add(record, input, multiply(record, _sub(record, end, input), weight))


# ---- comparisons and what is chosen by them: columns of 0 and 1


def _less(record: Import, input: Any, other: Any) -> Any:
    return ir.Elementwise("less", broadcast((input, other), record))


def _at_most(record: Import, input: Any, other: Any) -> Any:
    return negated(_less(record, other, input))


def _unequal(record: Import, input: Any, other: Any) -> Any:
    if is_infinite(other):  # no row of the engine's is infinite, nor without a value
        return negated(never(record, input))
    if input is other:  # where it has no value
        return never(record, input)
    a, b = _less(record, input, other), _less(record, other, input)
    return ir.Combine(((1.0, a), (1.0, b)))


def _equal(record: Import, input: Any, other: Any) -> Any:
    return never(record, input) if is_infinite(other) else negated(_unequal(record, input, other))


def is_truth(x: Any) -> bool:
    """Whether rows hold 0 and 1 alone, as comparisons give them."""
    if isinstance(x, ir.Elementwise):
        return x.kind == "less" or (x.kind in ("minimum", "where") and all(is_truth(each) for each in x.xs))
    if isinstance(x, ir.Affine):
        return is_truth(x.x) and bool((x.scale == -1).all() and (x.shift == 1).all())
    if isinstance(x, ir.Combine):  # a < b or b < a
        return len(x.terms) == 2 and all(
            c == 1 and isinstance(each, ir.Elementwise) and each.kind == "less" for c, each in x.terms
        )
    if isinstance(x, ir.Maximum):
        return all(is_truth(each) for each in x.xs)
    constant = isinstance(x, ir.Linear) and not x.weight.any()
    return constant and (x.bias is None or bool(np.isin(x.bias, (0, 1)).all()))


def _logic(combine: Callable[..., Any]) -> Callable[..., Any]:
    """and, or, not of columns of 0 and 1."""

    def handler(record: Import, input: Any, *other: Any) -> Any:
        if not all(is_truth(each) for each in (input, *other)):
            raise Unfit("its arguments are not comparisons of rows", "compare with numbers first")
        return combine(record, input, *other)

    return handler


def where(record: Import, condition: Any, input: Any, other: Any) -> Any:
    """input where the condition holds, else other."""
    if not isinstance(condition, ir.Value):
        raise Unfit("its condition is not computed from the rows", "compare rows with numbers")
    picks = chosen(record, condition, input, other)
    at, a, b = broadcast((condition if isinstance(picks, bool) else picks, input, other), record)
    if isinstance(picks, bool):
        return widened(a if picks else b, max(at.width, a.width, b.width))
    return ir.Elementwise("where", (at, a, b))


def _masked_fill(record: Import, input: Any, mask: Any, value: Any) -> Any:
    return where(record, mask, value, input)


def _setitem(record: Import, input: Any, index: Any, value: Any) -> Any:
    """What rows are after input[index] = value, index a comparison of them."""
    if not is_truth(index):
        raise Unfit("it changes rows that are not chosen by a comparison", "use torch.where on columns")
    return where(record, index, value, input)


def largest(record: Import, operands: tuple[Any, ...]) -> ir.Value:
    """The largest of rows, numbers and constants, column by column."""
    columns = broadcast(operands, record)
    width = max(each.width for each in columns)
    return ir.Maximum(tuple(widened(each, width) for each in columns))


def least(record: Import, operands: tuple[Any, ...]) -> ir.Value:
    """The least of rows, numbers and constants, column by column."""
    columns = broadcast(operands, record)
    least_yet = columns[0]
    for each in columns[1:]:
        least_yet = ir.Elementwise("minimum", (least_yet, each))
    return least_yet


ROWS: dict[str, Callable[..., Any]] = {
    **{
        kind: _unary(kind)
        for kind in ("abs", "relu", "selu", "silu", "sigmoid", "tanh", "relu6", "hardswish", "softsign", "exp")
    },
    **{kind: _unary(kind) for kind in ("sqrt", "log", "log1p", "reciprocal")},
    **dict.fromkeys(("dropout", "dropout1d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), _dropout),
    **dict.fromkeys(("add", "radd"), add),
    **dict.fromkeys(("mul", "rmul", "multiply"), multiply),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), divide),
    "rtruediv": lambda record, input, other: divide(record, other, input),
    "rdiv": lambda record, input, other: divide(record, other, input),
    "absolute": _unary("abs"),
    "logsigmoid": _unary("log_sigmoid"),
    "expit": _unary("sigmoid"),
    "leaky_relu": lambda record, input, negative_slope=0.01, inplace=False: activation(
        input, "leaky_relu", negative_slope
    ),
    "elu": lambda record, input, alpha=1.0, inplace=False: activation(input, "elu", alpha),
    "celu": lambda record, input, alpha=1.0, inplace=False: activation(input, "celu", alpha),
    "gelu": _gelu,
    "softplus": _softplus,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "mish": _mish,
    "tanhshrink": lambda record, input: ir.Combine(((1.0, value_of(input)), (-1.0, activation(input, "tanh")))),
    "threshold": _threshold,
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
    "hardsigmoid": _hardsigmoid,
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda record, input, min: _clamp(record, input, min),
    "clamp_max": lambda record, input, max: _clamp(record, input, None, max),
    "hardtanh": lambda record, input, min_val=-1.0, max_val=1.0, inplace=False: _clamp(record, input, min_val, max_val),
    **dict.fromkeys(("sub", "subtract"), _sub),
    "rsub": lambda record, input, other, *, alpha=1: _sub(record, other, input, alpha=alpha),
    **dict.fromkeys(("neg", "negative"), _neg),
    "square": lambda record, input: power(record, input, 2),
    "pow": power,
    "rpow": lambda record, input, other: power(record, other, input),
    "rsqrt": _rsqrt,
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "exp2": lambda record, input: activation(scaled(value_of(input), math.log(2)), "exp"),
    "expm1": lambda record, input: add(record, activation(input, "exp"), -1),
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    **dict.fromkeys(("lt", "less"), _less),
    **dict.fromkeys(("gt", "greater"), lambda record, input, other: _less(record, other, input)),
    **dict.fromkeys(("le", "less_equal"), _at_most),
    **dict.fromkeys(("ge", "greater_equal"), lambda record, input, other: _at_most(record, other, input)),
    "eq": _equal,
    **dict.fromkeys(("ne", "not_equal"), _unequal),
    **dict.fromkeys(("isinf", "isnan"), never),
    "nan_to_num": lambda record, input, *numbers, **named: finite(value_of(input), *numbers, **named),
    **dict.fromkeys(("and", "logical_and", "bitwise_and"), _logic(lambda record, a, b: least(record, (a, b)))),
    **dict.fromkeys(("or", "logical_or", "bitwise_or"), _logic(lambda record, a, b: largest(record, (a, b)))),
    **dict.fromkeys(("invert", "logical_not", "bitwise_not"), _logic(lambda record, a: negated(a))),
    "where": where,
    "setitem": _setitem,
    "masked_fill": _masked_fill,
}
