"""The symbolic run: the user's own function is called with stand-ins for arrays that write down what is done to them.

A stand-in (`Tracer`) answers Python's operators, and the functions and methods of NumPy and PyTorch that `_FUNCTIONS`
lists by name. Whatever it cannot write down raises TraceError with the reason: a branch on a value, a shape that
depends on the number of rows, a function that mixes rows. Nothing is guessed.

A stand-in has a layout: "rows" (N, w); "flat" (N,), a column without its dimension; "row" (w,), what is left after a
reduction over the edges of a neighbourhood.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.errors import LiveGnnError
from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr

Layout: TypeAlias = Literal["rows", "flat", "row"]


class TraceError(Exception):
    """The function does something that cannot be written down; the message says what."""


def trace(function: Callable[..., Any], arguments: Mapping[str, Expr], *, edges: Expr | None = None) -> Expr:
    """The expression that `function(**arguments)` computes.

    Args:     arguments: one expression for each parameter.   edges: the one that has a row per edge, for functions of a
                  whole neighbourhood.
    Raises:   TraceError with the reason, where the function cannot be written down.
    """
    try:
        made = _lifted(function(**{name: Tracer(each, "rows", edges) for name, each in arguments.items()}), edges)
    except TraceError:
        raise
    except LiveGnnError as error:
        raise TraceError(str(error)) from error
    except Exception as error:  # the user's code, given something that is not quite an array
        raise TraceError(f"{type(error).__name__}: {error}") from error
    if made.layout == "flat":
        raise TraceError("it returns shape (N,); keep the column: keepdims=True or x[:, None]")
    if edges is not None and made.expr.per_edge:
        raise TraceError("it returns a row per edge; reduce over axis 0")
    return made.expr


class Tracer(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands in for an array (see the module's docstring). edges: the neighbourhood's variable, if there is one."""

    def __init__(self, expr: Expr, layout: Layout, edges: Expr | None) -> None:
        self.expr, self.layout, self.edges = expr, layout, edges

    # ---- what arrays say about themselves

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return 2 if self.layout == "rows" else 1

    @property
    def shape(self) -> tuple[Any, ...]:
        """The width as a number; the number of rows as a stand-in, where it has a meaning."""
        if self.layout == "row":
            return (self.expr.width,)
        count = _RowCount() if self.edges is None else self.over_edges("count_edges")
        return (count, self.expr.width) if self.layout == "rows" else (count,)

    def size(self, axis: int | None = None) -> Any:
        """torch's spelling of shape."""
        return self.shape if axis is None else self.shape[axis]

    def __len__(self) -> int:
        raise TraceError("len() must be a number; write x.shape[0]")

    def __bool__(self) -> bool:
        raise TraceError("it branches on a value; use np.where")

    def __iter__(self) -> Any:
        raise TraceError("it loops over rows; use functions of whole arrays")

    def __float__(self) -> float:
        raise TraceError("it turns an array into a number")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TraceError("it asks for the numbers of an array")

    __hash__ = object.__hash__

    # ---- what is done to them

    def __getitem__(self, key: Any) -> Tracer:
        return _index(self, key)

    def __getattr__(self, name: str) -> Any:
        if name in ("copy", "clone", "contiguous", "float", "double"):
            return lambda *_: self
        if name in _FUNCTIONS and name != "where":  # whose arguments a method takes in another order
            return functools.partial(_FUNCTIONS[name], self)
        raise AttributeError(f"an array of a symbolic run has no {name}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "reduce" and ufunc.__name__ in _REDUCED and set(options) <= {"axis", "keepdims"}:
            return reduce(_REDUCED[ufunc.__name__], inputs[0], **{"axis": 0, **options})
        if isinstance(inputs[0], Tracer) and any(each is inputs[0] for each in options.get("out", ())):  # x += y
            del options["out"]
        if method != "__call__" or options:
            raise _unknown(f"numpy.{ufunc.__name__} with {method} {sorted(options)}")
        return _function("numpy.", ufunc)(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return _function("numpy.", function)(*args, **options)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
        given = {name: each for name, each in (options or {}).items() if each is not None or name not in _UNSET}
        return _function("torch's ", function)(*args, **given)

    def over_edges(self, op: str) -> Tracer:
        """A reduction over the edges of the neighbourhood."""
        if self.edges is None:
            raise TraceError("it mixes rows (axis 0); only nbr_ctx and aggregate may, others treat each row alone")
        if op == "count_edges" or self.expr.per_edge:
            return Tracer(ex.over_edges(op, self.edges if op == "count_edges" else self.expr), "row", self.edges)
        repeated = Tracer(self.expr, "row", self.edges)  # the same row for every edge
        if op == "product_edges":
            raise TraceError("it multiplies a constant once per edge")
        return combine("mul", repeated, self.over_edges("count_edges")) if op == "sum_edges" else repeated


class _RowCount:
    """The number of rows of a batch: a function that treats each row alone has no use for it."""

    def __getattr__(self, name: str) -> Any:
        raise TraceError("it uses the number of rows; build constants with np.ones_like(x[:, :1])")


def _lifted(value: Any, edges: Expr | None) -> Tracer:
    """A stand-in for a number, an array or a tensor that the function holds. Raises: TraceError."""
    if isinstance(value, Tracer):
        return value
    array = _constant_array(value)
    return Tracer(ex.constant(array), "row" if array.ndim < 2 else "rows", edges)


def _all_lifted(values: Sequence[Any]) -> list[Tracer]:
    edges = next(value.edges for value in values if isinstance(value, Tracer))
    return [_lifted(value, edges) for value in values]


def _constant_array(value: Any) -> np.ndarray[Any, Any]:
    """A float64 copy of a constant. Raises: TraceError for what is not real numbers."""
    if type(value).__module__.startswith("torch"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TraceError(f"it uses a constant of type {type(value).__name__}")
    return array.astype(np.float64)


def _joined_layout(values: Sequence[Tracer]) -> Layout:
    layouts = {value.layout for value in values if value.expr.op != "constant" or value.layout != "row"}
    scalars = all(value.expr.width == 1 for value in values if value.layout == "row")
    if "flat" in layouts:
        if "rows" in layouts or not scalars:
            raise TraceError("it joins shapes (N,) and (N, w); keep the column: keepdims=True or x[:, None]")
        return "flat"
    return "rows" if "rows" in layouts else "row"


def combine(op: str, *values: Any) -> Tracer:
    """An elementwise operation on stand-ins and constants."""
    tracers = _all_lifted(values)
    made = ex.elementwise(op, *(each.expr for each in tracers))
    return Tracer(made, _joined_layout(tracers), tracers[0].edges)


def _power(base: Any, exponent: Any) -> Tracer:
    """Powers by whole numbers and halves; others through exp and log."""
    if isinstance(exponent, Tracer) or np.ndim(exponent) != 0:
        raise TraceError("it raises to a power that is not one number; write np.exp(p * np.log(x))")
    doubled = 2.0 * float(exponent)
    if doubled != round(doubled) or abs(doubled) > 16:
        raise TraceError(f"it raises to the power {exponent}; whole numbers and halves up to 8 are known")
    factors = [combine("sqrt", base)] * (int(abs(doubled)) % 2) + [base] * (int(abs(doubled)) // 2)
    if not factors:
        return combine("add", combine("mul", base, 0.0), 1.0)
    result: Tracer = functools.reduce(lambda a, b: combine("mul", a, b), factors)
    return combine("div", 1.0, result) if doubled < 0 else result


def _product(x: Any, weight: Any) -> Tracer:
    """x @ W with W (w, out) a constant; with W (w,) the result is flat."""
    if not isinstance(x, Tracer):
        raise TraceError("it multiplies a constant by rows from the left; write x @ W.T")
    if isinstance(weight, Tracer):
        raise TraceError("it multiplies rows by rows; write (a * b).sum(axis=1, keepdims=True)")
    if x.layout == "flat":
        raise TraceError("it multiplies a flat column by a matrix; keep the column: x[:, None]")
    array = _constant_array(weight)
    flat = array.ndim == 1 and x.layout == "rows"
    made = ex.matmul(x.expr, array[:, None] if array.ndim == 1 else array)
    return Tracer(made, "flat" if flat else x.layout, x.edges)


def _linear(x: Any, weight: Any, bias: Any = None) -> Tracer:
    result = _product(x, weight.T)
    return result if bias is None else combine("add", result, bias)


def reduce(kind: str, x: Tracer, axis: Any, keepdims: bool = False) -> Tracer:
    """sum, mean, max, min or product over columns or edges."""
    if isinstance(axis, tuple) and len(axis) == 1:
        axis = axis[0]
    if axis is None or not isinstance(axis, int | np.integer):
        raise TraceError(f"it reduces over axis {axis}; name one axis")
    axis = int(axis) % x.ndim
    if x.layout != "row" and axis == 0:
        if kind == "mean":
            return combine("div", x.over_edges("sum_edges"), x.over_edges("count_edges"))
        return x.over_edges(f"{kind}_edges")
    if x.layout == "flat":
        raise TraceError("it reduces a flat column over columns")
    if kind == "product":
        raise TraceError("it multiplies the columns of a row")
    made = ex.over_columns({"mean": "sum"}.get(kind, kind) + "_columns", x.expr)
    if kind == "mean":
        made = ex.elementwise("div", made, ex.constant(float(x.expr.width)))
    return Tracer(made, "row" if x.layout == "row" else ("rows" if keepdims else "flat"), x.edges)


def _reduction(kind: str) -> Callable[..., Tracer]:
    def reduced(x: Any, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tracer:
        return reduce(kind, x, axis if dim is None else dim, keepdims or keepdim)

    return reduced


def _norm(x: Any, ord: Any = None, *where: Any, p: Any = None, **options: Any) -> Tracer:
    order = ord if p is None else p
    if order not in (None, 2, "fro"):
        raise TraceError(f"it takes a norm of order {order}; only 2 is known")
    return combine("sqrt", _FUNCTIONS["sum"](combine("mul", x, x), *where, **options))


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tracer:
    """Between two bounds, either of which may be None."""
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is not None:
        x = combine("maximum", x, low)
    return x if high is None else combine("minimum", x, high)


def join(values: Sequence[Any], axis: Any = 0, *, dim: Any = None) -> Tracer:
    """Columns side by side."""
    tracers, axis = _all_lifted(values), axis if dim is None else dim
    layouts = {each.layout for each in tracers}
    if layouts not in ({"rows"}, {"row"}) or int(axis) % tracers[0].ndim != tracers[0].ndim - 1:
        raise TraceError("it joins arrays other than (N, a) and (N, b) side by side (axis=1)")
    return Tracer(ex.concat([each.expr for each in tracers]), tracers[0].layout, tracers[0].edges)


def _repeat(x: Tracer, repeats: int, axis: Any = None, *, dim: Any = None) -> Tracer:
    """Every column some times in a row."""
    axis = axis if dim is None else dim
    if axis is None or int(axis) % x.ndim != x.ndim - 1 or x.layout == "flat":
        raise TraceError("it repeats along an axis other than the columns")
    columns = [column for column in range(x.expr.width) for _ in range(int(repeats))]
    return Tracer(ex.take(x.expr, columns), x.layout, x.edges)


def _filled(x: Tracer, number: Any, dtype: Any = None) -> Tracer:
    return Tracer(ex.constant(np.full(x.expr.width, float(number))), x.layout, x.edges)


def relu(x: Any, inplace: bool = False) -> Any:
    """Of arrays or stand-ins, as the next two."""
    return np.maximum(x, 0.0)


def leaky_relu(x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x where it is above 0, slope x elsewhere."""
    return np.where(x > 0, x, x * negative_slope)


def elu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where it is above 0, alpha (exp(x) - 1) elsewhere."""
    return np.where(x > 0, x, (np.exp(np.minimum(x, 0.0)) - 1.0) * alpha)


def _dropout(x: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tracer:
    if training:
        raise TraceError("it drops out at random; put the module into eval mode")
    if not isinstance(x, Tracer):
        raise TraceError("it applies dropout to a constant")
    return x


def _index(x: Tracer, key: Any) -> Tracer:
    keys = key if isinstance(key, tuple) else (key,)
    everything = slice(None)
    if x.layout == "flat" and keys in ((everything, None), (Ellipsis, None)):
        return Tracer(x.expr, "rows", x.edges)
    if x.layout == "row" and keys in ((None,), (None, everything), (None, Ellipsis)):
        return x
    if x.layout == "rows":
        if len(keys) != 2 or keys[0] not in (everything, Ellipsis):
            raise TraceError("it picks single rows; only columns may be picked: x[:, a:b]")
        keys = keys[1:]
    if x.layout == "flat" or len(keys) != 1 or keys[0] is None:
        raise TraceError("it indexes in a way that is not known; pick columns: x[:, a:b]")
    columns = np.arange(x.expr.width)[keys[0]]
    made = ex.take(x.expr, np.atleast_1d(columns).tolist())
    return Tracer(made, "flat" if columns.ndim == 0 and x.layout == "rows" else x.layout, x.edges)


# ---- the functions of NumPy and PyTorch, which have one name for one thing where both have it

_PLAIN = {  # operation -> its names; "~" before those whose operands come the other way round
    "neg": "neg negative",
    "abs": "abs absolute fabs",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "add": "add ~__radd__",
    "sub": "sub subtract ~rsub ~__rsub__",
    "mul": "mul multiply ~__rmul__",
    "div": "div divide true_divide ~__rdiv__ ~__rtruediv__",
    "maximum": "maximum fmax",
    "minimum": "minimum fmin",
    "less": "less lt ~greater ~gt",
    "less_equal": "less_equal le ~greater_equal ~ge",
    "equal": "equal eq",
    "and": "logical_and bitwise_and",
    "or": "logical_or bitwise_or",
    "not": "logical_not invert",
    "where": "where",
}
_FUNCTIONS: dict[str, Callable[..., Tracer]] = {
    "positive": lambda x: x,
    "square": lambda x: combine("mul", x, x),
    "reciprocal": lambda x: combine("div", 1.0, x),
    "rsqrt": lambda x: combine("div", 1.0, combine("sqrt", x)),
    "expm1": lambda x: combine("sub", combine("exp", x), 1.0),
    "log1p": lambda x: combine("log", combine("add", x, 1.0)),
    "sign": lambda x: combine("sub", combine("less", 0.0, x), combine("less", x, 0.0)),
    "relu": relu,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "dropout": _dropout,
    "linear": _linear,
    "hstack": lambda arrays: join(arrays, -1),
    "full_like": _filled,
    "ones_like": lambda x, dtype=None: _filled(x, 1.0),
    "zeros_like": lambda x, dtype=None: _filled(x, 0.0),
    **dict.fromkeys(("not_equal", "ne"), lambda a, b: combine("not", combine("equal", a, b))),
    **dict.fromkeys(("power", "float_power", "pow"), _power),
    **dict.fromkeys(("matmul", "mm", "dot"), _product),
    **dict.fromkeys(("clip", "clamp"), _clip),
    **dict.fromkeys(("concatenate", "concat", "cat"), join),
    **dict.fromkeys(("repeat", "repeat_interleave"), _repeat),
    **dict.fromkeys(("norm", "linalg_norm"), _norm),
    **{name: _reduction(name.removeprefix("a")) for name in ("sum", "mean", "max", "amax", "min", "amin")},
    "prod": _reduction("product"),
}
for _op, _names in _PLAIN.items():
    for _name in _names.split():
        _plain = functools.partial(combine, _op)
        _FUNCTIONS[_name.strip("~")] = (lambda a, b, plain=_plain: plain(b, a)) if _name.startswith("~") else _plain
_REDUCED = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "product"}
_NOT_ALIKE = ("max", "min", "equal")  # PyTorch means other things by these
_UNSET = ("out", "dtype")


def _function(library: str, called: Any) -> Callable[..., Tracer]:
    name = getattr(called, "__name__", str(called))
    if name not in _FUNCTIONS or (library.startswith("torch") and name in _NOT_ALIKE):
        raise _unknown(f"{library}{name}")
    return _FUNCTIONS[name]


def _unknown(what: str) -> TraceError:
    return TraceError(f"it calls {what}, which a symbolic run does not know")
