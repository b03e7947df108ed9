"""PyTorch's functions on stand-ins (tracer), imported only when a function calls one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from livegnn.verify import expr as ex
from livegnn.verify.tracer import TraceError, Tracer, clip, combine, join, power, product, reduce, repeat

__all__ = ["function"]


def _linear(x: Any, weight: Any, bias: Any = None) -> Tracer:
    result = product(x, weight.T)
    return result if bias is None else combine("add", result, bias)


def _leaky_relu(x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Tracer:
    return combine("where", combine("less", 0.0, x), x, combine("mul", x, negative_slope))


def _elu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Tracer:
    below = combine("mul", combine("sub", combine("exp", combine("minimum", x, 0.0)), 1.0), alpha)
    return combine("where", combine("less", 0.0, x), x, below)


def _reduction(kind: str) -> Callable[..., Tracer]:
    def reduced(x: Any, dim: Any = None, keepdim: bool = False) -> Tracer:
        return reduce(kind, x, dim, keepdim)

    return reduced


def _norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tracer:
    if p not in (2, "fro"):
        raise TraceError(f"it takes a norm of order {p}; only 2 is known")
    return combine("sqrt", reduce("sum", combine("mul", x, x), dim, keepdim))


def _binary(op: str) -> Callable[..., Tracer]:
    return lambda a, b: combine(op, a, b)


def _swapped(op: str) -> Callable[..., Tracer]:
    return lambda a, b: combine(op, b, a)


def _filled(number: float) -> Callable[..., Tracer]:
    return lambda x: Tracer(x.run, ex.constant([number] * x.expr.width), x.layout)


_TABLE: dict[str, Callable[..., Tracer]] = {
    "linear": _linear,
    "matmul": product,
    "mm": product,
    "relu": lambda x, inplace=False: combine("maximum", x, 0.0),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "dropout": lambda x, p=0.5, training=False, inplace=False: _kept(x, training),
    "exp": lambda x: combine("exp", x),
    "log": lambda x: combine("log", x),
    "sqrt": lambda x: combine("sqrt", x),
    "rsqrt": lambda x: combine("div", 1.0, combine("sqrt", x)),
    "tanh": lambda x: combine("tanh", x),
    "sigmoid": lambda x: combine("sigmoid", x),
    "abs": lambda x: combine("abs", x),
    "neg": lambda x: combine("neg", x),
    "reciprocal": lambda x: combine("div", 1.0, x),
    "square": lambda x: combine("mul", x, x),
    "pow": power,
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "where": lambda condition, a, b: combine("where", condition, a, b),
    "clamp": lambda x, min=None, max=None: clip(x, min, max),
    "clip": lambda x, min=None, max=None: clip(x, min, max),
    "cat": lambda tensors, dim=0: join(list(tensors), dim),
    "concat": lambda tensors, dim=0: join(list(tensors), dim),
    "repeat_interleave": lambda x, repeats, dim=None: repeat(x, repeats, dim),
    "ones_like": _filled(1.0),
    "zeros_like": _filled(0.0),
    "sum": _reduction("sum"),
    "mean": _reduction("mean"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "prod": _reduction("product"),
    "norm": _norm,
}
_OPERATORS: dict[str, Callable[..., Tracer]] = {
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "div": _binary("div"),
    "true_divide": _binary("div"),
    "gt": _swapped("less"),
    "ge": _swapped("less_equal"),
    "lt": _binary("less"),
    "le": _binary("less_equal"),
    "eq": _binary("equal"),
    "rsub": _swapped("sub"),
    "__rsub__": _swapped("sub"),
    "__rtruediv__": _swapped("div"),
    "__rdiv__": _swapped("div"),
    "__radd__": _swapped("add"),
    "__rmul__": _swapped("mul"),
}
_HOMES = (torch, F, torch.Tensor, torch.special, torch.linalg)


def _kept(x: Any, training: bool) -> Tracer:
    if training:
        raise TraceError("it drops out at random; put the module into eval mode")
    if not isinstance(x, Tracer):
        raise TraceError("it applies dropout to a constant")
    return x


def _found() -> dict[Any, Callable[..., Tracer]]:
    found: dict[Any, Callable[..., Tracer]] = {}
    for name, made in (_TABLE | _OPERATORS).items():
        for home in _HOMES:
            if hasattr(home, name):
                found[getattr(home, name)] = made
    return found


_FUNCTIONS = _found()


def function(called: Any, args: Any, options: Any) -> Tracer:
    """A PyTorch function on stand-ins. Raises: TraceError for one that is not known."""
    if called not in _FUNCTIONS:
        raise TraceError(f"it calls torch's {getattr(called, '__name__', called)}, which a symbolic run does not know")
    given = {name: value for name, value in options.items() if value is not None or name not in ("out", "dtype")}
    return _FUNCTIONS[called](*args, **given)
