"""The symbolic run: the user's own function is called with stand-ins for arrays that write down what is done to them.

A stand-in (`Tracer`) answers Python's operators, NumPy's functions and, if the function is written for it, PyTorch's
(numpy_ops, torch_ops). Whatever it cannot write down raises TraceError with the reason: a branch on a value, a shape
that depends on the number of rows, a function that mixes rows. Nothing is guessed.

A stand-in has a layout: "rows" (N, w); "flat" (N,), a column without its dimension; "row" (w,), what is left after a
reduction over the edges of a neighbourhood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.verify import expr as ex
from livegnn.verify.expr import Expr

__all__ = ["SymbolicRun", "TraceError", "Tracer"]

Layout: TypeAlias = Literal["rows", "flat", "row"]


class TraceError(Exception):
    """The function does something that cannot be written down; the message says what."""


@dataclass(eq=False)
class SymbolicRun:
    """One symbolic run: the neighbourhood's variable, if there is one, functions on stand-ins, and what the run met."""

    edges: Expr | None
    numpy: Any  # the module of NumPy's functions on stand-ins
    torch: Callable[[], Any]  # the same of PyTorch's, which is imported where a function calls PyTorch
    library: str = "numpy"
    single: bool = False  # a float32 tensor is among the constants


class Tracer:
    """Stands in for an array. See the module's docstring."""

    __array_priority__ = 1000.0

    def __init__(self, run: SymbolicRun, expr: Expr, layout: Layout) -> None:
        self.run, self.expr, self.layout = run, expr, layout

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
        count = _RowCount() if self.run.edges is None else self._over_edges("count_edges")
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

    # ---- Python's operators

    def __add__(self, other: Any) -> Tracer:
        return combine("add", self, other)

    def __radd__(self, other: Any) -> Tracer:
        return combine("add", other, self)

    def __sub__(self, other: Any) -> Tracer:
        return combine("sub", self, other)

    def __rsub__(self, other: Any) -> Tracer:
        return combine("sub", other, self)

    def __mul__(self, other: Any) -> Tracer:
        return combine("mul", self, other)

    def __rmul__(self, other: Any) -> Tracer:
        return combine("mul", other, self)

    def __truediv__(self, other: Any) -> Tracer:
        return combine("div", self, other)

    def __rtruediv__(self, other: Any) -> Tracer:
        return combine("div", other, self)

    def __pow__(self, other: Any) -> Tracer:
        return power(self, other)

    def __neg__(self) -> Tracer:
        return combine("neg", self)

    def __pos__(self) -> Tracer:
        return self

    def __abs__(self) -> Tracer:
        return combine("abs", self)

    def __lt__(self, other: Any) -> Tracer:
        return combine("less", self, other)

    def __le__(self, other: Any) -> Tracer:
        return combine("less_equal", self, other)

    def __gt__(self, other: Any) -> Tracer:
        return combine("less", other, self)

    def __ge__(self, other: Any) -> Tracer:
        return combine("less_equal", other, self)

    def __eq__(self, other: object) -> Tracer:  # type: ignore[override]
        return combine("equal", self, other)

    def __ne__(self, other: object) -> Tracer:  # type: ignore[override]
        return combine("not", combine("equal", self, other))

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Tracer:
        return combine("and", self, other)

    def __or__(self, other: Any) -> Tracer:
        return combine("or", self, other)

    def __invert__(self) -> Tracer:
        return combine("not", self)

    def __matmul__(self, other: Any) -> Tracer:
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Tracer:
        raise TraceError("it multiplies a constant by rows from the left; write x @ W.T")

    def __getitem__(self, key: Any) -> Tracer:
        return _index(self, key)

    # ---- methods of arrays and tensors

    def sum(self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tracer:
        """Sum over columns (axis 1 or -1) or over the edges of a neighbourhood (axis 0)."""
        return reduce("sum", self, axis if dim is None else dim, keepdims or keepdim)

    def mean(self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tracer:
        """Mean over columns or edges."""
        return reduce("mean", self, axis if dim is None else dim, keepdims or keepdim)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tracer:
        """Maximum over columns or edges."""
        return reduce("max", self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tracer:
        """Minimum over columns or edges."""
        return reduce("min", self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False, *, dim: Any = None, keepdim: bool = False) -> Tracer:
        """Product over edges."""
        return reduce("product", self, axis if dim is None else dim, keepdims or keepdim)

    amax, amin = max, min

    def clip(self, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Tracer:
        """Between two bounds, either of which may be None."""
        return clip(self, low if min is None else min, high if max is None else max)

    clamp = clip

    def repeat_interleave(self, repeats: int, dim: Any = None) -> Tracer:
        """Every column some times in a row."""
        return repeat(self, repeats, dim)

    def repeat(self, repeats: int, axis: Any = None) -> Tracer:
        """Every column some times in a row, in NumPy's spelling."""
        return repeat(self, repeats, axis)

    def __getattr__(self, name: str) -> Any:
        if name in ("exp", "log", "sqrt", "tanh", "sigmoid", "abs"):
            return lambda: combine(name, self)
        if name == "relu":
            return lambda: combine("maximum", self, 0.0)
        if name == "square":
            return lambda: combine("mul", self, self)
        if name == "pow":
            return lambda exponent: power(self, exponent)
        if name in ("copy", "clone", "contiguous", "float", "double"):
            return lambda *_: self
        raise AttributeError(f"an array of a symbolic run has no {name}")

    # ---- protocols

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TraceError("it asks for the numbers of an array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self.run.numpy.ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self.run.numpy.function(function, args, options)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
        flat = [part for each in args for part in (each if isinstance(each, list | tuple) else (each,))]
        run = run_of(flat)
        run.library = "torch"
        return run.torch().function(function, args, options or {})

    # ---- inside

    def _over_edges(self, op: str) -> Tracer:
        edges = self.run.edges
        if edges is None:
            raise TraceError("it mixes rows (axis 0); only nbr_ctx and aggregate may, others treat each row alone")
        if op == "count_edges":
            return Tracer(self.run, ex.over_edges(op, edges), "row")
        if self.expr.per_edge:
            return Tracer(self.run, ex.over_edges(op, self.expr), "row")
        repeated = Tracer(self.run, self.expr, "row")  # the same row for every edge
        count = self._over_edges("count_edges")
        if op == "sum_edges":
            return repeated * count
        if op == "product_edges":
            raise TraceError("it multiplies a constant once per edge")
        return repeated


class _RowCount:
    """The number of rows of a batch: a function that treats each row alone has no use for it."""

    def __getattr__(self, name: str) -> Any:
        raise TraceError("it uses the number of rows; build constants with np.ones_like(x[:, :1])")


def run_of(values: Sequence[Any]) -> SymbolicRun:
    """The run that the stand-ins among the values belong to."""
    return next(value.run for value in values if isinstance(value, Tracer))


def lift(run: SymbolicRun, value: Any) -> Tracer:
    """A stand-in for a number, an array or a tensor that the function holds. Raises: TraceError."""
    if isinstance(value, Tracer):
        return value
    value = constant_array(run, value)
    return Tracer(run, ex.constant(value), "row" if np.ndim(value) < 2 else "rows")


def constant_array(run: SymbolicRun, value: Any) -> Any:
    """A float64 copy of a constant. Raises: TraceError for what is not real numbers."""
    if type(value).__module__.startswith("torch"):
        run.library = "torch"
        run.single = run.single or str(getattr(value, "dtype", "")) == "torch.float32"
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
    run = run_of(values)
    tracers = [lift(run, value) for value in values]
    return Tracer(run, ex.elementwise(op, *(each.expr for each in tracers)), _joined_layout(tracers))


def power(base: Any, exponent: Any) -> Tracer:
    """Powers by whole numbers and halves; others through exp and log."""
    if isinstance(exponent, Tracer) or np.ndim(exponent) != 0:
        raise TraceError("it raises to a power that is not one number; write np.exp(p * np.log(x))")
    doubled = 2.0 * float(exponent)
    if doubled != round(doubled) or abs(doubled) > 16:
        raise TraceError(f"it raises to the power {exponent}; whole numbers and halves up to 8 are known")
    root, whole = int(abs(doubled)) % 2, int(abs(doubled)) // 2
    result: Any = combine("sqrt", base) if root else None
    for _ in range(whole):
        result = base if result is None else combine("mul", result, base)
    if result is None:
        return combine("add", combine("mul", base, 0.0), 1.0)
    return combine("div", 1.0, result) if doubled < 0 else result


def product(x: Any, weight: Any) -> Tracer:
    """x @ W with W (w, out) a constant; with W (w,) the result is flat."""
    if not isinstance(x, Tracer):
        raise TraceError("it multiplies a constant by rows from the left; write x @ W.T")
    if isinstance(weight, Tracer):
        raise TraceError("it multiplies rows by rows; write (a * b).sum(axis=1, keepdims=True)")
    if x.layout == "flat":
        raise TraceError("it multiplies a flat column by a matrix; keep the column: x[:, None]")
    array = constant_array(x.run, weight)
    if array.ndim == 1:
        made = Tracer(x.run, ex.matmul(x.expr, array[:, None]), x.layout)
        return made if x.layout == "row" else Tracer(x.run, made.expr, "flat")
    return Tracer(x.run, ex.matmul(x.expr, array), x.layout)


def clip(x: Any, low: Any, high: Any) -> Tracer:
    """The elementwise bounds."""
    if low is not None:
        x = combine("maximum", x, low)
    return x if high is None else combine("minimum", x, high)


def reduce(kind: str, x: Tracer, axis: Any, keepdims: bool) -> Tracer:
    """sum, mean, max, min or product over columns or edges."""
    if isinstance(axis, tuple) and len(axis) == 1:
        axis = axis[0]
    if axis is None or not isinstance(axis, int | np.integer):
        raise TraceError(f"it reduces over axis {axis}; name one axis")
    axis = int(axis) % x.ndim
    if x.layout != "row" and axis == 0:
        if kind == "mean":
            return x._over_edges("sum_edges") / x._over_edges("count_edges")
        return x._over_edges(f"{kind}_edges")
    if x.layout == "flat":
        raise TraceError("it reduces a flat column over columns")
    if kind == "product":
        raise TraceError("it multiplies the columns of a row")
    made = ex.over_columns({"mean": "sum"}.get(kind, kind) + "_columns", x.expr)
    if kind == "mean":
        made = ex.elementwise("div", made, ex.constant(float(x.expr.width)))
    layout: Layout = "row" if x.layout == "row" else ("rows" if keepdims else "flat")
    return Tracer(x.run, made, layout)


def join(values: Sequence[Any], axis: Any) -> Tracer:
    """Columns side by side."""
    run = run_of(values)
    tracers = [lift(run, value) for value in values]
    layouts = {each.layout for each in tracers}
    if layouts not in ({"rows"}, {"row"}) or int(axis) % tracers[0].ndim != tracers[0].ndim - 1:
        raise TraceError("it joins arrays other than (N, a) and (N, b) side by side (axis=1)")
    return Tracer(run, ex.concat([each.expr for each in tracers]), tracers[0].layout)


def repeat(x: Tracer, times: int, axis: Any) -> Tracer:
    """Every column `times` times in a row."""
    if axis is None or int(axis) % x.ndim != x.ndim - 1 or x.layout == "flat":
        raise TraceError("it repeats along an axis other than the columns")
    columns = [column for column in range(x.expr.width) for _ in range(int(times))]
    return Tracer(x.run, ex.take(x.expr, columns), x.layout)


def _index(x: Tracer, key: Any) -> Tracer:
    keys = key if isinstance(key, tuple) else (key,)
    everything = slice(None)
    if x.layout == "flat" and keys in ((everything, None), (Ellipsis, None)):
        return Tracer(x.run, x.expr, "rows")
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
    return Tracer(x.run, made, "flat" if columns.ndim == 0 and x.layout == "rows" else x.layout)
