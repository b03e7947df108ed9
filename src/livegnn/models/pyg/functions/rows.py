"""Functions of each number alone: activations and arithmetic of rows, numbers and constants per column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Unfit, is_symbol, to_array
from livegnn.models.pyg.functions.operands import activation, number_of, row_of, value_of


def _unary(kind: str) -> Callable[..., Any]:
    return lambda record, input, inplace=False: activation(input, kind)


def _mish(record: Import, input: Any, inplace: bool = False) -> Any:
    """x * tanh(softplus(x))."""
    return ir.Multiply(value_of(input), ir.Activation(activation(input, "softplus", 1.0), "tanh"))


def _gelu(record: Import, input: Any, approximate: str = "none") -> Any:
    return activation(input, "gelu" if approximate == "none" else "gelu_tanh")


def _softplus(record: Import, input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    if threshold != 20:
        raise Unfit(f"threshold={threshold} is not the default", "use threshold=20")
    return activation(input, "softplus", beta)


def _prelu(record: Import, input: Any, weight: torch.Tensor) -> Any:
    x = value_of(input)
    return ir.PReLU(x, np.broadcast_to(to_array(weight), (x.width,)))


def _dropout(record: Import, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training and p > 0:
        raise Unfit("it is random in eval mode too", "pass training=self.training")
    return input


def _clamp(record: Import, input: Any, min: Any = None, max: Any = None) -> Any:
    kinds = {(0, None): "relu", (0, 6): "relu6", (-1, 1): "hardtanh"}
    if is_symbol(min) or is_symbol(max) or (min, max) not in kinds:
        raise Unfit(f"the bounds {(min, max)} are not supported", "use -1 and 1, 0 and 6, or 0 and None")
    return activation(input, kinds[min, max])


def add(record: Import, input: Any, other: Any, *, alpha: float = 1) -> Any:
    if not isinstance(input, ir.Value):
        if alpha != 1:
            raise Unfit("alpha with a constant first operand is not supported")
        input, other = other, input
    x = value_of(input)
    if isinstance(other, ir.Value):
        if other.width != x.width:
            raise Unfit(f"widths {x.width} and {other.width} differ")
        return ir.Combine(((1.0, x), (float(alpha), other)))
    number = number_of(other)
    if number == 0:
        return x
    shift = row_of(other, x.width) if number is None else np.full(x.width, number)
    return ir.Affine(x, record.constant(np.ones(x.width)), record.constant(float(alpha) * shift))


def _sub(record: Import, input: Any, other: Any, *, alpha: float = 1) -> Any:
    if isinstance(input, ir.Value):
        return add(record, input, other, alpha=-alpha)
    return add(record, multiply(record, other, -float(alpha)), input)


def _neg(record: Import, input: Any) -> Any:
    return ir.Combine(((-1.0, value_of(input)),))


def multiply(record: Import, input: Any, other: Any) -> Any:
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
        return x if number == 1 else ir.Combine(((number, x),))
    return ir.Affine(x, record.constant(row_of(other, x.width)), record.constant(np.zeros(x.width)))


def _div(record: Import, input: Any, other: Any, *, rounding_mode: None = None) -> Any:
    x = value_of(input)
    number = number_of(other)
    if number is not None:
        return ir.Combine(((1.0 / number, x),))
    return ir.Affine(x, record.constant(1.0 / row_of(other, x.width)), record.constant(np.zeros(x.width)))


def _pow(record: Import, input: Any, exponent: Any) -> Any:
    if exponent not in (2, 3):
        raise Unfit(f"the exponent {exponent} is not supported", "use 2 or 3")
    x = value_of(input)
    square = ir.Multiply(x, x)
    return square if exponent == 2 else ir.Multiply(square, x)


ROWS: dict[str, Callable[..., Any]] = {
    **{
        kind: _unary(kind)
        for kind in ("abs", "relu", "selu", "silu", "sigmoid", "tanh", "relu6", "hardswish", "softsign", "exp")
    },
    **dict.fromkeys(("dropout", "dropout1d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), _dropout),
    **dict.fromkeys(("add", "radd"), add),
    **dict.fromkeys(("mul", "rmul", "multiply"), multiply),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), _div),
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
    "mish": _mish,
    "tanhshrink": lambda record, input: ir.Combine(((1.0, value_of(input)), (-1.0, activation(input, "tanh")))),
    **dict.fromkeys(("clamp", "clip"), _clamp),
    "clamp_min": lambda record, input, min: _clamp(record, input, min),
    "hardtanh": lambda record, input, min_val=-1.0, max_val=1.0, inplace=False: _clamp(record, input, min_val, max_val),
    "sub": _sub,
    "rsub": lambda record, input, other, *, alpha=1: _sub(record, other, input, alpha=alpha),
    **dict.fromkeys(("neg", "negative"), _neg),
    "square": lambda record, input: _pow(record, input, 2),
    "pow": _pow,
}
