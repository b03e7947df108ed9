"""Windows of a vertex's own row: convolutions and pools over its time steps, layers or columns.

The vertices may lie along the batch, or along a dimension that a kernel of extent 1 passes over, as traffic models have
them: (batches, channels, vertices, steps). A convolution is one linear map for each window. Its results lie window by
window, so that the windows of the next layer are runs of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Shaped, Unfit, is_symbol, to_array
from livegnn.models.pyg.functions.operands import constant_columns
from livegnn.models.pyg.layout import columns, inverse, row_axes, shaped, symbol, with_constant

Handler: TypeAlias = Callable[..., Any]

_RUNS_MAX = 16  # of columns in a window; with more, one product of the whole row is cheaper than picking them
_WEIGHTS_MAX = 1 << 22  # of that product
_MODES = {"zeros": "constant", "circular": "wrap", "replicate": "edge", "reflect": "reflect"}


def _numbers(given: Any, dims: int) -> list[int]:
    """One whole number for each dimension."""
    found = [given] * dims if isinstance(given, int) else list(given)
    return found * dims if len(found) == 1 else found


def _padded(index: Any, sides: Sequence[tuple[int, int]], mode: str = "zeros") -> Any:
    """The last dimensions of an index with padding; -1 for a 0."""
    if not any(map(any, sides)):
        return index
    width = [(0, 0)] * (index.ndim - len(sides)) + list(sides)
    return np.pad(index, width, mode=_MODES[mode], **({"constant_values": -1} if mode == "zeros" else {}))  # type: ignore[call-overload]


def _windows(index: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """(..., places, kernel): every window over the last dimensions of an index. Raises: Unfit where there is none."""
    dims = len(kernel)
    spans = [gap * (size - 1) + 1 for size, gap in zip(kernel, dilation, strict=True)]
    if any(span > extent for span, extent in zip(spans, index.shape[index.ndim - dims :], strict=True)):
        raise Unfit(f"its window of {tuple(spans)} is larger than its argument")
    axes = tuple(range(index.ndim - dims, index.ndim))
    found = np.lib.stride_tricks.sliding_window_view(index, spans, axes)
    front = (slice(None),) * (index.ndim - dims)
    return found[(*front, *(slice(None, None, each) for each in (*stride, *dilation)))]


# ---- convolutions


class _Kernel:
    """A kernel without the dimension along which the vertices lie, and an argument's columns as it sees them."""

    def __init__(self, input: Any, weight: Any, dims: int, options: dict[str, Any]) -> None:
        x, self.weight = shaped(input), to_array(weight)
        rank, self.axis = x.index.ndim + 1, x.axis
        first = rank - dims
        if x.whole or rank not in (dims + 1, dims + 2):
            raise Unfit(f"its argument has {rank} dimensions, not {dims + 1} or {dims + 2}")
        if x.axis == first - 1:
            raise Unfit(
                "its channels are the vertices, so one update would change every row",
                "put the vertices into the first dimension, or along a kernel of extent 1",
            )
        self.stride, self.dilation = (_numbers(options[key], dims) for key in ("stride", "dilation"))
        self.sides = _sides(options["padding"], self.weight.shape[2:], self.dilation)
        if x.axis >= first:
            self.leave_out(x.axis - first)
        self.source, index = x.source, x.index
        self.batched = rank == dims + 2 and x.axis > 0
        self.index = _padded(index if self.batched else index[None], self.sides, options.get("mode", "zeros"))

    def leave_out(self, place: int) -> None:
        """Drops a dimension of extent 1. Raises: Unfit for another."""
        if self.weight.shape[2 + place] != 1 or self.stride[place] != 1 or any(self.sides[place]):
            raise Unfit(
                "its kernel runs over the vertices, whose order a graph does not have", "use a kernel of extent 1 there"
            )
        self.weight = self.weight.squeeze(2 + place)
        for each in (self.stride, self.dilation, self.sides):
            del each[place]

    def windows(self) -> Any:
        """(batches, places.., channels, kernel..)"""
        kernel = self.weight.shape[2:]
        found = _windows(self.index, kernel, self.stride, self.dilation)
        return np.moveaxis(found, 1, 1 + len(kernel))


def _sides(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    if padding == "same":
        whole = [gap * (size - 1) for size, gap in zip(kernel, dilation, strict=True)]
        return [(each // 2, each - each // 2) for each in whole]
    numbers = _numbers(0 if padding == "valid" else padding, len(kernel))
    return [(each, each) for each in numbers]


def _convolution(dims: int) -> Handler:
    def handler(
        record: Import,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
    ) -> Any:
        if is_symbol(weight) or is_symbol(bias):
            raise Unfit("its weight is computed from the features")
        options = {"stride": stride, "padding": padding, "dilation": dilation, "mode": padding_mode}
        kernel = _Kernel(input, weight, dims, options)
        found = kernel.windows()
        places = found.shape[: found.ndim - kernel.weight.ndim + 1]
        taken = found.reshape(-1, groups, found.shape[len(places)] // groups, *found.shape[len(places) + 1 :])
        taken = taken.reshape(len(taken), groups, -1)
        outputs = len(kernel.weight)
        matrix = kernel.weight.reshape(groups, outputs // groups, -1)
        rows = _mapped(record, kernel.source, taken, matrix, None if bias is None else to_array(bias))
        index = np.moveaxis(np.arange(rows.width).reshape(*places, outputs), -1, 1)
        return symbol(Shaped(rows, index if kernel.batched else index[0], kernel.axis))

    return handler


def _mapped(record: Import, source: ir.Value, taken: Any, matrix: Any, bias: Any) -> ir.Value:
    """y[place, o] = matrix[group of o] source[taken[place, group]] + bias[o]; -1 takes a 0."""
    groups, outputs = matrix.shape[0], matrix.shape[0] * matrix.shape[1]
    runs = max(int((np.diff(each[each >= 0]) != 1).sum()) + 1 for each in taken.reshape(-1, taken.shape[-1]))
    if runs > _RUNS_MAX and len(taken) * outputs * source.width <= _WEIGHTS_MAX:
        weight = np.zeros((len(taken), groups, matrix.shape[1], source.width))
        for place, group in np.ndindex(len(taken), groups):
            known = taken[place, group] >= 0
            np.add.at(weight[place, group].T, taken[place, group][known], matrix[group][:, known].T)
        shift = None if bias is None else np.tile(bias, len(taken))
        return ir.Linear(source, weight.reshape(-1, source.width), shift)
    parts: list[ir.Value] = []
    for place, group in np.ndindex(len(taken), groups):
        known = taken[place, group] >= 0
        own = None if bias is None else bias.reshape(groups, -1)[group]
        if known.any():
            parts.append(ir.Linear(columns(source, taken[place, group][known]), matrix[group][:, known], own))
        else:
            parts.append(constant_columns(source, np.zeros(matrix.shape[1]) if own is None else own, record))
    return parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))


# ---- pools


def _pool(dims: int, kind: str) -> Handler:
    def handler(
        record: Import,
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        dilation: Any = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        return_indices: bool = False,
    ) -> Any:
        if ceil_mode or return_indices:
            raise Unfit("ceil_mode and return_indices are not read", "leave them out")
        kernel = _numbers(kernel_size, dims)
        steps = kernel if stride is None or stride == [] else _numbers(stride, dims)
        sides = [(each, each) for each in _numbers(padding, dims)]
        return _pooled(record, shaped(input), kernel, steps, sides, _numbers(dilation, dims), kind, count_include_pad)

    return handler


def _pooled(
    record: Import,
    x: Shaped,
    kernel: list[int],
    stride: list[int],
    sides: list[tuple[int, int]],
    dilation: list[int],
    kind: str,
    padded: bool,
) -> Any:
    first = x.index.ndim + 1 - len(kernel)
    if x.whole or first < 0:
        raise Unfit("its argument has too few dimensions")
    if x.axis >= first:
        place = x.axis - first
        if kernel[place] != 1 or stride[place] != 1 or any(sides[place]):
            raise Unfit("it runs over the vertices, whose order a graph does not have", "pool each vertex's own row")
        for each in (kernel, stride, sides, dilation):
            del each[place]
    index = _padded(x.index, sides)
    if not kernel:
        return symbol(x)
    found = _windows(index, kernel, stride, dilation)
    shape = found.shape[: index.ndim]
    found = found.reshape(*shape, -1)
    counts = (found >= 0).sum(-1).ravel()
    if kind == "max":  # a number twice changes no maximum
        found = np.where(found < 0, found.max(-1, keepdims=True), found)
        slices = [columns(x.source, found[..., k].ravel()) for k in range(found.shape[-1])]
        return symbol(Shaped(ir.Maximum(tuple(slices)), np.arange(len(counts)).reshape(shape), x.axis))
    y = with_constant(record, x, found)
    slices = [columns(y.source, y.index[..., k].ravel()) for k in range(found.shape[-1])]
    over = np.full(len(counts), found.shape[-1]) if padded else np.maximum(counts, 1)
    total = ir.Combine(tuple((1.0, each) for each in slices))
    mean = ir.Affine(total, record.constant(1.0 / over), np.zeros(len(over), np.float32))
    return symbol(Shaped(mean, np.arange(len(over)).reshape(shape), x.axis))


def _adaptive(dims: int, kind: str) -> Handler:
    """Pools into a given number of windows of equal size."""

    def handler(record: Import, input: Any, output_size: Any, return_indices: bool = False) -> Any:
        x = shaped(input)
        extents = [*x.index.shape[: x.axis], None, *x.index.shape[x.axis :]][x.index.ndim + 1 - dims :]
        kernel = []
        for extent, wanted in zip(extents, _numbers(output_size, dims), strict=True):
            if extent is not None and (wanted is None or extent % wanted == 0):
                kernel.append(1 if wanted is None else extent // wanted)
            else:
                raise Unfit(f"output_size={output_size} makes no windows of equal size of each vertex's own row")
        gaps, sides = [1] * dims, [(0, 0)] * dims
        return _pooled(record, x, kernel, [*kernel], sides, gaps, kind, True)

    return handler


# ---- norms and slopes by channel, the second dimension of what torch calls a batch


def by_channel(x: Shaped, function: Callable[[ir.Value, Callable[[Any], Any]], ir.Value]) -> Any:
    """A function of columns, given what spreads an array of one number a channel over them. Raises: Unfit."""
    if x.whole or x.index.ndim < 1:
        raise Unfit("its argument is not rows of numbers")
    if x.axis == 1:
        raise Unfit(
            "it has numbers of its own for each vertex, and a new vertex would have none",
            "put the columns into the second dimension",
        )
    place = 1 if x.axis > 1 else 0
    channel = np.arange(x.index.shape[place]).reshape([-1, *[1] * (x.index.ndim - place - 1)])
    order = np.argsort(x.index.ravel(), kind="stable")  # in the order in which the columns lie
    channels = np.broadcast_to(channel, x.index.shape).ravel()[order]
    rows = function(columns(x.source, x.index.ravel()[order]), lambda array: np.asarray(array)[channels])
    return symbol(Shaped(rows, inverse(order).reshape(x.index.shape), x.axis))


def _prelu(record: Import, input: Any, weight: Any) -> Any:
    slopes, x = to_array(weight).reshape(-1), shaped(input)
    if len(slopes) == 1:
        slopes = np.repeat(slopes, x.source.width)
        return symbol(Shaped(ir.PReLU(x.source, slopes), x.index, x.axis))
    return by_channel(x, lambda rows, spread: ir.PReLU(rows, spread(slopes)))


def group_norm(
    record: Import, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """torch.nn.functional.group_norm of (vertices, channels, ...)."""
    x = shaped(input)
    if x.whole or x.axis != 0 or x.index.ndim < 1:
        raise Unfit("its statistics run over all vertices, so one update would change every row", "use (vertices, ...)")
    parts = [ir.LayerNorm(columns(x.source, each), None, None, eps) for each in x.index.reshape(num_groups, -1)]
    y = Shaped(ir.Concat(tuple(parts)), np.arange(x.index.size).reshape(x.index.shape), 0)
    if weight is None:
        return symbol(y)
    scale, shift = to_array(weight), np.zeros(len(weight)) if bias is None else to_array(bias)
    return by_channel(y, lambda rows, spread: ir.Affine(rows, spread(scale), spread(shift)))


# ---- numbers put around and left out


def _pad(record: Import, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    x = shaped(input)
    modes = {"constant": "zeros"} | {name: name for name in _MODES if name != "zeros"}
    sides = [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    places = [each + x.index.ndim + 1 - len(sides) for each in range(len(sides))]
    if mode not in modes or any(min(each) < 0 for each in sides) or min(places, default=0) < 0:
        raise Unfit(f"pad={tuple(pad)} with mode={mode!r} is not supported", "pad by numbers of at least 0")
    if any(any(side) for place, side in zip(places, sides, strict=True) if place == x.axis):
        raise Unfit("it adds rows that are no vertices", "pad each vertex's own row")
    kept = [side for place, side in zip(places, sides, strict=True) if place != x.axis]
    return symbol(with_constant(record, x, _padded(x.index, kept, modes[mode]), float(value or 0.0)))


def _triangle(upper: bool) -> Handler:
    def handler(record: Import, input: Any, diagonal: int = 0) -> Any:
        x = shaped(input)
        row_axes(x, (-2, -1))
        inside = np.ones(x.index.shape[-2:], bool)
        inside = np.triu(inside, diagonal) if upper else np.tril(inside, diagonal)
        return symbol(with_constant(record, x, np.where(inside, x.index, -1)))

    return handler


WINDOWS: dict[str, Handler] = {
    "conv1d": _convolution(1),
    "conv2d": _convolution(2),
    "max_pool1d": _pool(1, "max"),
    "max_pool2d": _pool(2, "max"),
    "avg_pool1d": _pool(1, "mean"),
    "avg_pool2d": _pool(2, "mean"),
    "adaptive_avg_pool1d": _adaptive(1, "mean"),
    "adaptive_avg_pool2d": _adaptive(2, "mean"),
    "adaptive_max_pool1d": _adaptive(1, "max"),
    "prelu": _prelu,
    "group_norm": group_norm,
    "pad": _pad,
    "triu": _triangle(True),
    "tril": _triangle(False),
}
