"""NumPy's functions on stand-ins (tracer)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegnn.verify import expr as ex
from livegnn.verify.tracer import TraceError, Tracer, clip, combine, join, lift, power, product, reduce, repeat, run_of

__all__ = ["function", "ufunc"]

_UFUNCS: dict[Any, Callable[..., Tracer]] = {
    np.power: power,
    np.float_power: power,
    np.matmul: product,
    np.square: lambda x: combine("mul", x, x),
    np.reciprocal: lambda x: combine("div", 1.0, x),
    np.positive: lambda x: x,
    np.greater: lambda a, b: combine("less", b, a),
    np.greater_equal: lambda a, b: combine("less_equal", b, a),
    np.not_equal: lambda a, b: combine("not", combine("equal", a, b)),
    np.sign: lambda x: combine("sub", combine("less", 0.0, x), combine("less", x, 0.0)),
    np.expm1: lambda x: combine("sub", combine("exp", x), 1.0),
    np.log1p: lambda x: combine("log", combine("add", x, 1.0)),
}
_PLAIN = {
    np.negative: "neg",
    np.absolute: "abs",
    np.fabs: "abs",
    np.exp: "exp",
    np.log: "log",
    np.sqrt: "sqrt",
    np.tanh: "tanh",
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.divide: "div",
    np.maximum: "maximum",
    np.minimum: "minimum",
    np.fmax: "maximum",
    np.fmin: "minimum",
    np.less: "less",
    np.less_equal: "less_equal",
    np.equal: "equal",
    np.logical_and: "and",
    np.logical_or: "or",
    np.logical_not: "not",
}
_REDUCED = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.multiply: "product"}


def _refused(name: str) -> TraceError:
    return TraceError(f"it calls numpy.{name}, which a symbolic run does not know")


def ufunc(called: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Tracer:
    """A ufunc on stand-ins. Raises: TraceError for one that is not known."""
    if method == "reduce" and called in _REDUCED and set(options) <= {"axis", "keepdims"}:
        return reduce(_REDUCED[called], inputs[0], options.get("axis", 0), bool(options.get("keepdims", False)))
    if method != "__call__" or options:
        raise _refused(f"{called.__name__} with {method} {sorted(options)}")
    if called in _PLAIN:
        return combine(_PLAIN[called], *inputs)
    if called in _UFUNCS:
        return _UFUNCS[called](*inputs)
    raise _refused(called.__name__)


def _reduction(kind: str) -> Callable[..., Tracer]:
    def reduced(x: Any, axis: Any = None, keepdims: bool = False) -> Tracer:
        return reduce(kind, x, axis, keepdims)

    return reduced


def _where(condition: Any, a: Any, b: Any) -> Tracer:
    return combine("where", condition, a, b)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tracer:
    return clip(x, a_min if min is None else min, a_max if max is None else max)


def _concatenate(arrays: Any, axis: Any = 0) -> Tracer:
    return join(list(arrays), axis)


def _filled(number: float) -> Callable[..., Tracer]:
    def like(x: Tracer, dtype: Any = None) -> Tracer:
        return Tracer(x.run, ex.constant(np.full(x.expr.width, number)), x.layout)

    return like


def _full_like(x: Tracer, fill_value: Any, dtype: Any = None) -> Tracer:
    return _filled(float(fill_value))(x)


def _norm(x: Tracer, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tracer:
    if ord not in (None, 2):
        raise _refused(f"linalg.norm of order {ord}")
    return combine("sqrt", reduce("sum", combine("mul", x, x), axis, keepdims))


def _columns(arrays: Any) -> Tracer:
    tracers = [each for each in arrays if isinstance(each, Tracer)]
    return join([lift(run_of(tracers), each) for each in arrays], -1)


_FUNCTIONS: dict[Any, Callable[..., Tracer]] = {
    np.sum: _reduction("sum"),
    np.mean: _reduction("mean"),
    np.max: _reduction("max"),
    np.amax: _reduction("max"),
    np.min: _reduction("min"),
    np.amin: _reduction("min"),
    np.prod: _reduction("product"),
    np.where: _where,
    np.clip: _clip,
    np.concatenate: _concatenate,
    np.hstack: _columns,
    np.repeat: lambda a, repeats, axis=None: repeat(a, repeats, axis),
    np.ones_like: _filled(1.0),
    np.zeros_like: _filled(0.0),
    np.full_like: _full_like,
    np.dot: product,
    np.linalg.norm: _norm,
}


def function(called: Any, args: Any, options: Any) -> Tracer:
    """A NumPy function on stand-ins. Raises: TraceError for one that is not known."""
    if called not in _FUNCTIONS:
        raise _refused(getattr(called, "__name__", str(called)))
    return _FUNCTIONS[called](*args, **options)
