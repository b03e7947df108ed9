"""Rows seen as matrices: what a forward does with three dimensions or more, of which one is that of the vertices.

A `Shaped` symbol knows which column of a row stands at each place of a tensor. So every operation that only moves
numbers is run by torch itself, on a small probe whose entries say which vertex and which column they are; its result
says where these went. Everything else becomes row-local values: slices, sums, softmaxes, products by heads.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.edges import HeadScale
from livegnn.models.pyg.constants import constant_of
from livegnn.models.pyg.context import (
    Count,
    Flat,
    Folded,
    Import,
    Marker,
    Refusal,
    Shaped,
    Unfit,
    is_symbol,
    refuse,
    to_array,
)
from livegnn.models.pyg.contraction import bmm, einsum, matmul
from livegnn.models.pyg.layout import applied, columns, example_rows, inverse, row_axes, shaped, split_off, symbol
from livegnn.models.pyg.statistics import STATISTICS
from livegnn.models.pyg.windows import WINDOWS, by_channel

Handler: TypeAlias = Callable[..., Any]

_VIEWS = (
    "view", "reshape", "view_as", "flatten", "unflatten", "permute", "transpose", "swapaxes", "swapdims", "movedim",
    "moveaxis", "t", "T", "mT", "squeeze", "unsqueeze", "expand", "expand_as", "repeat", "repeat_interleave", "tile",
    "flip", "roll", "narrow", "select", "getitem", "chunk", "split", "tensor_split", "unbind", "index_select",
    "stack", "cat", "concat", "concatenate", "hstack", "dstack", "column_stack", "ravel", "unfold", "diagonal",
    "gather", "take_along_dim", "broadcast_to", "rot90", "unsafe_chunk", "unsafe_split",
)  # fmt: skip
ELEMENTWISE = (
    "abs", "relu", "selu", "silu", "sigmoid", "tanh", "relu6", "hardswish", "softsign", "exp", "logsigmoid", "expit",
    "leaky_relu", "elu", "celu", "gelu", "softplus", "mish", "tanhshrink", "clamp", "clip", "clamp_min", "clamp_max",
    "hardtanh", "neg", "negative", "square", "pow", "sqrt", "rsqrt", "log", "log1p", "reciprocal", "sin", "cos",
    "contiguous", "clone", "detach", "requires_grad", "cpu", "float", "double", "to", "type", "type_as", "dropout",
    "dropout1d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "add", "radd", "sub", "rsub", "mul",
    "rmul", "multiply", "div", "truediv", "divide", "true_divide", "rdiv", "rtruediv", "maximum", "minimum", "fmax",
    "fmin", "where", "lt", "gt", "le", "ge", "eq", "ne", "less", "greater", "less_equal", "greater_equal", "not_equal",
    "and", "or", "invert", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not",
    "isinf", "isnan", "nan_to_num", "masked_fill", "lerp", "addcmul", "addcdiv", "log2", "log10", "exp2", "expm1",
    "absolute", "rpow", "rrelu", "threshold", "hardshrink", "softshrink", "hardsigmoid",
)  # fmt: skip
#: What reads or changes the form of rows alone, also of those under each other.
OF_FORM = (*_VIEWS, "shape", "size", "dim", "ndim", "dtype", "device", "getattr")
_CASTS = ("to", "type", "type_as")
_ON_LAST = ("linear", "rms_norm")
_ALONG = ("softmax", "log_softmax", "normalize")


def join(base: dict[str, Handler], more: dict[str, Handler]) -> dict[str, Handler]:
    """The handlers of plain rows, and those of rows of any shape, with `more`, where they cannot be used."""
    own: dict[str, Handler] = more | {name: _view(name) for name in _VIEWS}
    own |= {name: elementwise(name, base[name]) for name in ELEMENTWISE if name in base}
    own |= {name: _on_last(base[name]) for name in _ON_LAST if name in base}
    own |= {name: _along(name, base[name]) for name in _ALONG}
    own |= {"sum": _sum, "mean": _mean, "shape": _shape, "size": _size, "dim": _rank, "ndim": _rank}
    own |= {name: _extreme(least) for name, least in (("max", False), ("min", True))}
    own |= {name: _extreme_values(least) for name, least in (("amax", False), ("amin", True))}
    products: dict[str, Handler] = {"matmul": matmul, "bmm": bmm, "einsum": einsum}
    own |= {name: _product(handler, base["linear"]) for name, handler in products.items()}
    own |= WINDOWS | STATISTICS | {name: _norm_of_rows(name, base[name]) for name in ("layer_norm", "batch_norm")}
    return {name: _either(name, base.get(name), own.get(name)) for name in {**base, **own}}


def _either(name: str, base: Handler | None, own: Handler | None) -> Handler:
    """`base` for plain rows, `own` where there are others or `base` refuses."""

    def handler(record: Import, *args: Any, **kwargs: Any) -> Any:
        has_shapes = _has((Shaped, Folded), (args, kwargs))
        if base is None or (has_shapes and own is not None):
            assert own is not None
            return _called(own, record, args, kwargs)
        if own is None or has_shapes:
            if has_shapes and name not in ("dtype", "device", "getattr", "getitem"):
                raise Unfit("a vertex's row is a matrix or a vector of whole numbers here, for which it is not read")
            return _called(base, record, args, kwargs)
        try:
            return _called(base, record, args, kwargs)
        except Unfit as error:
            if not _has((ir.Value, Flat), (args, kwargs)):
                raise
            try:
                return _called(own, record, args, kwargs)
            except Unfit as other:
                raise (other if name in WINDOWS else error) from None

    return handler


def _called(handler: Handler, record: Import, args: Any, kwargs: Any) -> Any:
    try:
        inspect.signature(handler).bind(record, *args, **kwargs)
    except TypeError as error:
        raise Unfit(f"it is called in a way that is not supported ({error})", "see docs/models.md") from None
    return handler(record, *args, **kwargs)


def _has(kind: Any, value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has(kind, each) for each in value)
    if isinstance(value, dict):
        return any(_has(kind, each) for each in value.values())
    return isinstance(value, kind)


# ---- what only moves numbers


def _view(name: str) -> Handler:
    function = getattr(torch, name) if name.endswith(("stack", "cat", "concatenate")) or name == "concat" else None
    if function is None and name in ("T", "mT"):
        function = lambda x: getattr(x, name)  # noqa: E731
    if function is None:
        function = torch.Tensor.__getitem__ if name == "getitem" else getattr(torch.Tensor, name)

    def handler(record: Import, *args: Any, **kwargs: Any) -> Any:
        given = _found((args, kwargs))
        if name == "getitem" and isinstance(args[0], (list, tuple, dict)):
            return args[0][args[1]]
        if not given:
            raise Unfit("it has no rows of vertices")
        if len({each.whole for each in given}) != 1:
            raise Unfit("it joins whole numbers and others", "cast one of them after the embedding")
        probe = Probe(given)
        try:
            result = function(*probe.of(args), **probe.of(kwargs))
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            raise Unfit(f"it does not fit rows of shape {given[0].index.shape} ({_line(error)})") from error
        return probe.read(result)

    return handler


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _found(value: Any) -> list[Shaped]:
    """Every symbol of rows, in order."""
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _found(part)]
    if isinstance(value, dict):
        return _found(tuple(value.values()))
    if isinstance(value, Folded):
        return [value.rows]
    if _constant_numbers(value) is not None:
        return []
    return [shaped(value)] if isinstance(value, (ir.Value, Flat, Shaped)) else []


def _constant_numbers(value: Any) -> Any:
    """Whole numbers that are the same for all vertices, such as an index; None for anything else."""
    row = constant_of(value.source) if isinstance(value, Shaped) and value.whole else None
    return None if row is None else np.asarray(row, np.int64)[value.index]


class Probe:
    """Tensors of int64 that stand for symbols: entry = vertex * width + column of the sources side by side."""

    def __init__(self, given: Sequence[Shaped]) -> None:
        sources = {id(each.source): each.source for each in given}
        self.whole = given[0].whole
        self.source = next(iter(sources.values())) if len(sources) == 1 else ir.Concat(tuple(sources.values()))
        starts = np.cumsum([0, *(source.width for source in sources.values())]).tolist()
        self.start = dict(zip(sources, starts, strict=False))
        self.rows = example_rows(self.source)

    def of(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self.of(each) for each in value)
        if isinstance(value, dict):
            return {key: self.of(each) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(self.of(value.start), self.of(value.stop), value.step)
        if isinstance(value, Count):
            return self.rows * value.times
        if isinstance(value, Folded):
            return self.of(value.rows).flatten(value.place, value.place + 2)
        numbers = _constant_numbers(value)
        if numbers is not None:
            return torch.from_numpy(np.repeat(np.expand_dims(numbers, value.axis), self.rows, value.axis))
        if isinstance(value, (ir.Value, Flat, Shaped)):
            x = shaped(value)
            vertices = np.arange(self.rows).reshape([-1, *[1] * (x.index.ndim - x.axis)])
            at = np.expand_dims(x.index + self.start[id(x.source)], x.axis) + vertices * self.source.width
            return torch.from_numpy(np.ascontiguousarray(at, np.int64))
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            raise Unfit("it joins rows of vertices and constants", "add the constant instead")
        if is_symbol(value):
            raise Unfit("its operands do not fit each other row by row")
        return value

    def read(self, result: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return tuple(self.read(each) for each in result)
        at = result.numpy()
        for axis in range(at.ndim):
            many, rest = divmod(at.shape[axis], self.rows)
            if rest or not many:
                continue
            if many == 1 and (found := self.rows_along(at, axis)) is not None:
                return symbol(found)
            for before in (k for k in range(1, many + 1) if many > 1 and many % k == 0):
                apart = at.reshape(*at.shape[:axis], before, self.rows, many // before, *at.shape[axis + 1 :])
                if (found := self.rows_along(apart, axis + 1)) is not None:
                    return Folded(found)
        vertices = at // self.source.width
        if at.ndim == 0 or not (vertices == vertices.flat[0]).all():
            raise Unfit("what it makes has no dimension of its own for the vertices", "keep a row for every vertex")
        raise Unfit("it picks rows, and the rows of a graph that changes are not fixed", "pick columns only")

    def rows_along(self, at: Any, axis: int) -> Shaped | None:
        """The rows whose vertices lie along a dimension; None where they do not."""
        vertices, column = at // self.source.width, at % self.source.width
        wanted = np.arange(self.rows).reshape([-1, *[1] * (at.ndim - axis - 1)])
        index = column.take(0, axis)
        if (vertices == wanted).all() and (column == np.expand_dims(index, axis)).all():
            return Shaped(self.source, index, axis, self.whole)
        return None


# ---- column by column


def elementwise(name: str, base: Handler) -> Handler:
    """A function of each number alone, of operands of any shape."""

    def handler(record: Import, *args: Any, **kwargs: Any) -> Any:
        if name in _CASTS and isinstance(args[0], Shaped) and not args[0].whole:
            return applied(args[0], lambda rows: base(record, rows, *args[1:], **kwargs))
        symbols = {place: shaped(each) for place, each in enumerate(args) if isinstance(each, (ir.Value, Flat, Shaped))}
        if not symbols or _has((Shaped, Flat, ir.Value), kwargs):
            raise Unfit("its operands do not fit each other row by row")
        if any(each.whole for each in symbols.values()):
            raise Unfit(
                "it takes whole numbers, which are read as rows of an embedding or of one_hot alone",
                "leave the cast to integers out",
            )
        tensors = {place: each for place, each in enumerate(args) if _is_array(each)}
        if len(symbols) == 1 and not tensors:
            (place, x), given = next(iter(symbols.items())), list(args)
            return applied(x, lambda rows: base(record, *given[:place], rows, *given[place + 1 :], **kwargs))
        aligned = _Aligned(symbols, tensors)
        if name in ("mul", "rmul", "multiply") and len(symbols) == 2:
            return aligned.result(aligned.product(record, base))
        flat = aligned.flat()
        return aligned.result(base(record, *(flat.get(place, each) for place, each in enumerate(args)), **kwargs))

    return handler


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() > 1


class _Aligned:
    """Operands by their place, broadcast against each other as torch does, and laid out in one order of columns."""

    def __init__(self, symbols: dict[int, Shaped], tensors: dict[int, torch.Tensor]) -> None:
        places = {each.axis - each.index.ndim - 1 for each in symbols.values()}  # of the vertices, from the end
        if len(places) != 1:
            raise Unfit("its operands do not fit each other row by row")
        (place,) = places
        arrays = {key: each.detach().numpy() for key, each in tensors.items()}
        for key, each in arrays.items():
            if each.ndim >= -place:
                if each.shape[place] != 1:
                    raise Unfit(f"a constant of shape {each.shape} is not one number per column")
                arrays[key] = each.squeeze(place)
        self.symbols = symbols
        try:
            parts = [each.index for each in symbols.values()] + list(arrays.values())
            self.shape = np.broadcast_shapes(*(each.shape for each in parts))
        except ValueError as error:
            raise Unfit(f"its operands do not fit each other row by row ({error})") from error
        self.index = {key: np.broadcast_to(each.index, self.shape).ravel() for key, each in symbols.items()}
        self.arrays = {key: np.broadcast_to(each, self.shape).ravel() for key, each in arrays.items()}
        self.axis = len(self.shape) + 1 + place
        self.order = np.arange(math.prod(self.shape))
        for key, x in symbols.items():  # in the order in which one of them lies
            if x.source.width == len(self.order) and len(set(self.index[key].tolist())) == len(self.order):
                self.order = np.argsort(self.index[key])
                break

    def flat(self) -> dict[int, Any]:
        rows: dict[int, Any] = {key: columns(x.source, self.index[key][self.order]) for key, x in self.symbols.items()}
        return rows | {key: torch.from_numpy(each[self.order].copy()) for key, each in self.arrays.items()}

    def product(self, record: Import, base: Handler) -> ir.Value:
        """a * b, where one may be one number for several columns in a row."""
        (a, b) = sorted(self.symbols, key=lambda key: -len(set(self.index[key].tolist())))
        narrow, source = self.index[b][self.order], self.symbols[b].source
        starts = np.flatnonzero(np.diff(narrow, prepend=-1))
        each = len(narrow) // len(starts)
        if each > 1 and len(narrow) % len(starts) == 0 and (starts == np.arange(len(starts)) * each).all():
            wide = columns(self.symbols[a].source, self.index[a][self.order])
            factors = columns(source, narrow[starts])
            return ir.Multiply(wide, factors) if len(starts) == 1 else HeadScale(wide, factors, len(starts))
        flat = self.flat()
        result: ir.Value = base(record, flat[a], flat[b])
        return result

    def result(self, rows: Any) -> Any:
        return symbol(Shaped(rows, inverse(self.order).reshape(self.shape), self.axis))


# ---- over one dimension of the row


def _on_last(base: Handler) -> Handler:
    """A function of the last dimension, for each of the vectors along it."""

    def handler(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
        x = shaped(input)
        if x.whole or x.axis == x.index.ndim or _has((ir.Value, Shaped), (args, kwargs)):
            raise Unfit("it does not run over columns of the rows", "put the columns last")
        return _each(x, lambda rows: base(record, rows, *args, **kwargs))

    return handler


def _each(x: Shaped, function: Callable[[ir.Value], ir.Value]) -> Any:
    """A function of every vector along the last dimension."""
    parts = [function(columns(x.source, row)) for row in x.index.reshape(-1, x.index.shape[-1])]
    rows = parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))
    return symbol(Shaped(rows, np.arange(rows.width).reshape(*x.index.shape[:-1], -1), x.axis))


def _norm_of_rows(name: str, base: Handler) -> Handler:
    """A norm over the last dimensions of each row, or by channels with numbers of their own."""

    def over_last(record: Import, input: Any, normalized_shape: Any, *affine: Any, **options: Any) -> Any:
        x, count = shaped(input), len(tuple(normalized_shape))
        if x.axis > x.index.ndim - count:
            raise Unfit("it takes mean and deviation over all vertices", "normalise over the columns")
        flat = Shaped(x.source, x.index.reshape(*x.index.shape[: x.index.ndim - count], -1), x.axis)
        affine = tuple(each.reshape(-1) if isinstance(each, torch.Tensor) else each for each in affine)
        options = {key: each.reshape(-1) if torch.is_tensor(each) else each for key, each in options.items()}
        width = (math.prod(normalized_shape),)
        result = shaped(_on_last(base)(record, symbol(flat), width, *affine, **options))
        return symbol(Shaped(result.source, result.index.reshape(x.index.shape), x.axis))

    def by_channels(record: Import, input: Any, *given: Any, **options: Any) -> Any:
        def apply(rows: ir.Value, spread: Callable[[Any], Any]) -> ir.Value:
            tensors = [torch.from_numpy(spread(to_array(each))) if torch.is_tensor(each) else each for each in given]
            named = {
                key: torch.from_numpy(spread(to_array(each))) if torch.is_tensor(each) else each
                for key, each in options.items()
            }
            result: ir.Value = base(record, rows, *tensors, **named)
            return result

        return by_channel(shaped(input), apply)

    return over_last if name == "layer_norm" else by_channels


def _along(name: str, base: Handler) -> Handler:
    """Softmax and its kin along any dimension but the vertices'."""

    def handler(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
        x = shaped(input)
        dim = kwargs.pop("dim", None)
        if dim is None and name == "normalize":
            p, dim, args = (args[0] if args else 2.0), (args[1] if len(args) > 1 else 1), args[2:]
            kwargs = {"p": p, **kwargs}
        elif dim is None:
            if not args:
                raise Unfit("it names no dimension", "pass dim=-1")
            dim, args = args[0], args[1:]
        (axis,) = row_axes(x, dim)
        moved = Shaped(x.source, np.moveaxis(x.index, axis, -1), 0, x.whole)
        wide = moved.index.size // moved.index.shape[-1]
        if name != "normalize" and wide > 4 and wide > moved.index.shape[-1]:
            result = _softmax_of_slices(moved, name == "log_softmax")
        else:
            result = shaped(_each(moved, lambda rows: base(record, rows, *args, dim=-1, **kwargs)))
        return symbol(Shaped(result.source, np.moveaxis(result.index, -1, axis), x.axis))

    return handler


def _softmax_of_slices(x: Shaped, log: bool) -> Shaped:
    """exp(x - m) / sum exp(x - m) along the last dimension, with all others side by side."""
    slices = [columns(x.source, x.index[..., k].ravel()) for k in range(x.index.shape[-1])]
    largest = ir.Maximum(tuple(slices))
    below = [ir.Combine(((1.0, each), (-1.0, largest))) for each in slices]
    powers = [ir.Activation(each, "exp") for each in below]
    total = ir.Combine(tuple((1.0, each) for each in powers))
    if log:
        logarithm = ir.Activation(total, "log")
        parts: list[ir.Value] = [ir.Combine(((1.0, each), (-1.0, logarithm))) for each in below]
    else:
        parts = [ir.Elementwise("divide", (each, total)) for each in powers]
    width = parts[0].width
    index = np.arange(width)[:, None] + width * np.arange(len(parts))
    return Shaped(ir.Concat(tuple(parts)), index.reshape(x.index.shape), 0)


def _added(source: ir.Value, taken: Any) -> ir.Value:
    """The sum over the first dimension of columns."""
    cheap = all(len(row) == 1 or (np.diff(row) == 1).all() for row in taken) and len(taken) <= 32 and taken.size > 32
    if cheap or len(taken) <= 4:
        return ir.Combine(tuple((1.0, columns(source, row)) for row in taken))
    weight = np.zeros((taken.shape[1], source.width), np.float32)
    for row in taken:
        weight[np.arange(len(row)), row] += 1
    return ir.Linear(source, weight)


def _sum(
    record: Import, input: Any, dim: Any = None, keepdim: bool = False, axis: Any = None, dtype: Any = None
) -> Any:
    x = shaped(input)
    taken, made = split_off(x, dim if axis is None else axis, keepdim)
    return made(_added(x.source, taken))


def _mean(record: Import, input: Any, dim: Any = None, keepdim: bool = False, axis: Any = None) -> Any:
    x = shaped(input)
    taken, made = split_off(x, dim if axis is None else axis, keepdim)
    return made(ir.Combine(((1.0 / len(taken), _added(x.source, taken)),)))


def _extreme_values(least: bool) -> Handler:
    sign = -1.0 if least else 1.0

    def handler(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        x = shaped(input)
        taken, made = split_off(x, dim, keepdim)
        slices = [columns(x.source, row) for row in taken]
        if least:
            slices = [ir.Combine(((sign, each),)) for each in slices]
        largest: ir.Value = ir.Maximum(tuple(slices))
        return made(ir.Combine(((sign, largest),)) if least else largest)

    return handler


def _extreme(least: bool) -> Handler:
    values, kind = _extreme_values(least), "minimum" if least else "maximum"

    def handler(record: Import, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, (Shaped, Flat, ir.Value)):
            raise Unfit("its operands do not fit each other row by row", f"use torch.{kind}")
        indices = Refusal(refuse(f"the indices of a {kind}", "they are not supported", "use the values"))
        return values(record, input, dim, keepdim), indices

    return handler


def _product(handler: Handler, linear: Handler) -> Handler:
    last = _on_last(linear)

    def both(record: Import, *args: Any, **kwargs: Any) -> Any:
        if handler is not einsum and len(args) == 2 and isinstance(args[1], torch.Tensor) and args[1].ndim == 2:
            return last(record, args[0], args[1].T)
        return handler(record, *args, **kwargs)

    return both


# ---- what a forward asks about a shape


def _shape(record: Import, input: Any) -> Any:
    if isinstance(input, Marker):
        raise Unfit("its argument is not one row per vertex")
    if isinstance(input, Folded):
        shape, place = input.rows.index.shape, input.place
        many = Count(of=input.rows.source, times=math.prod(input.counts))
        return (*shape[:place], many, *shape[place + 2 :])
    x = shaped(input)
    return (*x.index.shape[: x.axis], Count(of=x.source), *x.index.shape[x.axis :])


def _size(record: Import, input: Any, dim: int | None = None) -> Any:
    shape = _shape(record, input)
    return shape if dim is None else shape[dim]


def _rank(record: Import, input: Any) -> int:
    return len(_shape(record, input))
