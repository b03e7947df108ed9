"""A graph neural network as data: a small directed acyclic graph of values.

A value is one row per vertex. Every value but two kinds is *row-local*: row v depends on row v of its inputs alone.
The exceptions are `Propagate`, which sums rows along edges, and `Gather` (`livegnn.models.edges`), which reduces
messages computed edge by edge; between the ends of an edge and a `Gather`, values are one row per edge. Over a graph
whose vertices have types, a value is of one type, and only vertices of that type have a row (`OfType`). So a model's
receptive field, its affected sets and its exact incremental form can all be read off this structure, with no code of
the model's author in the way.

Invariants: values are immutable and compared by identity; arrays are C-contiguous, read-only, finite float32; widths
are checked when a value is made, so a model that exists is well-formed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ModelError, WidthMismatch

FloatArray: TypeAlias = NDArray[np.float32]
Norm: TypeAlias = Literal["sum", "mean", "gcn", "laplacian", "walk", "difference"]
Reduce: TypeAlias = Literal["sum", "max", "min", "median"]  # the members of the native Reduce
Aggregate: TypeAlias = Literal[Reduce, "mean"]
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)

#: Every elementwise function, with what its one parameter means ("" where it has none). Formulas: docs/models.md.
#: sqrt and log1p are of max(x, 0); log is 0 for what is not above 0, reciprocal 0 for 0.
ACTIVATIONS: dict[str, str] = {
    **dict.fromkeys(("relu", "selu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "relu6"), ""),
    **dict.fromkeys(("hardtanh", "hardswish", "softsign", "log_sigmoid", "exp", "abs"), ""),
    **dict.fromkeys(("sqrt", "log1p", "log", "reciprocal"), ""),
    **{"leaky_relu": "slope", "elu": "alpha", "celu": "alpha", "softplus": "beta"},
}

#: Every function of several values, column by column, with their number.
ELEMENTWISE: dict[str, int] = {"minimum": 2, "divide": 2, "less": 2, "where": 3}


def frozen_array(array: Any, where: str, shape: tuple[int | None, ...]) -> FloatArray:
    """A read-only C-contiguous float32 copy of `array`, checked for shape (None = any) and for finite values.

    Raises: WidthMismatch for another shape, ModelError for NaN, infinity or values beyond float32.
    """
    source = np.asarray(array)
    if source.dtype.kind not in "fiu":
        raise ModelError(f"[{where}] expected real numbers, got dtype {source.dtype}; pass float32 arrays")
    with np.errstate(over="ignore"):
        result = np.array(source, dtype=np.float32, order="C", copy=True)
    wanted = tuple("any" if extent is None else extent for extent in shape)
    fits = result.ndim == len(shape) and all(
        want is None or want == got for want, got in zip(shape, result.shape, strict=True)
    )
    if not fits:
        raise WidthMismatch(f"[{where}] expected shape {wanted}, got {result.shape}; check the layer's widths")
    if not np.isfinite(result).all():
        raise ModelError(f"[{where}] expected finite weights, got NaN or infinity; retrain or fix the weights")
    result.flags.writeable = False
    return result


def _finite(number: float, where: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ModelError(f"[{where}] expected a finite number, got {value}; fix the layer's options")
    return value


@dataclass(frozen=True, eq=False)
class Value:
    """One row of `width` float32 numbers per vertex; `inputs` are the values it is computed from."""

    width: int = field(init=False)
    inputs: tuple[Value, ...] = field(init=False, repr=False)
    on_edges: bool = field(init=False, repr=False)  # one row per edge, not per vertex
    vertex_type: int | None = field(init=False, repr=False)  # the only one that has rows; None: every vertex has

    def _define(
        self,
        width: int,
        inputs: Sequence[Value],
        *,
        on_edges: bool | None = None,
        vertex_type: int | Literal["inputs"] | None = "inputs",
        **arrays: Any,
    ) -> None:
        """on_edges: None for a row-local value, which stands where all its inputs do.

        vertex_type: "inputs" for a row-local value, whose inputs are all of one type.
        """
        where = type(self).__name__
        for value in inputs:
            if not isinstance(value, Value):
                raise ModelError(
                    f"[{where}] expected values as inputs, got {type(value).__name__}; apply a layer first"
                )
        if on_edges is None:
            on_edges = any(value.on_edges for value in inputs)
            if not all(value.on_edges == on_edges for value in inputs):
                raise ModelError(
                    f"[{where}] expected rows of edges or rows of vertices, got both; take a vertex's row to the edge "
                    "with Source or Target first"
                )
        if vertex_type == "inputs":
            vertex_type = None if on_edges else _same_type(inputs, where)
        if width < 1:
            raise WidthMismatch(f"[{where}] expected a width of at least 1, got {width}; check the layer's widths")
        own = {"width": int(width), "inputs": tuple(inputs), "on_edges": on_edges, "vertex_type": vertex_type}
        for name, given in {**own, **arrays}.items():
            object.__setattr__(self, name, given)


@dataclass(frozen=True, eq=False)
class Input(Value):
    """The features: h[v] = x[v]. A model has exactly one."""

    features: int

    def __post_init__(self) -> None:
        self._define(self.features, ())


@dataclass(frozen=True, eq=False)
class OfType(Value):
    """The features of the vertices of one type: h[v] = x[v], first `columns` columns, for v of type `code` alone.

    Types are numbered as the model numbers them (`Model.vertex_types`).
    """

    x: Input
    code: int
    columns: int

    def __post_init__(self) -> None:
        if not isinstance(self.x, Input):
            raise ModelError(f"[OfType] expected the model's Input, got {type(self.x).__name__}; pass ir.Input")
        if not self.code >= 0 or not 1 <= self.columns <= self.x.width:
            raise WidthMismatch(
                f"[OfType] expected a type from 0 and 1 to {self.x.width} columns, got {self.code} and {self.columns}; "
                "make the Input as wide as the widest type"
            )
        self._define(self.columns, (self.x,), vertex_type=self.code)


@dataclass(frozen=True, eq=False)
class ByType(Value):
    """y[v] = parts[t][v] for v of type t, zeros from that part's width on; zeros for types without a part.

    The output of a model over vertex types.
    """

    parts: tuple[Value, ...]

    def __post_init__(self) -> None:
        codes = [part.vertex_type for part in self.parts]
        if not codes or None in codes or len(set(codes)) != len(codes):
            raise ModelError(f"[ByType] expected one value for each of some vertex types, got {codes}; fix the parts")
        parts = tuple(self.parts)
        self._define(max(part.width for part in parts), parts, on_edges=False, vertex_type=None, parts=parts)


@dataclass(frozen=True, eq=False)
class Linear(Value):
    """y = W x + b, with weight (out, in) as torch's Linear keeps it and bias (out,) or None."""

    x: Value
    weight: FloatArray
    bias: FloatArray | None = None

    def __post_init__(self) -> None:
        weight = frozen_array(self.weight, "Linear.weight", (None, self.x.width))
        out = weight.shape[0]
        bias = None if self.bias is None else frozen_array(self.bias, "Linear.bias", (out,))
        self._define(out, (self.x,), weight=weight, bias=bias)


@dataclass(frozen=True, eq=False)
class Activation(Value):
    """y = f(x) elementwise; `kind` is a key of ACTIVATIONS, `param` the parameter named there."""

    x: Value
    kind: str
    param: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ACTIVATIONS:
            raise ModelError(f"[Activation] expected one of {', '.join(ACTIVATIONS)}, got {self.kind!r}; choose one")
        param = _finite(self.param, f"Activation {self.kind}")
        if self.kind in ("celu", "softplus") and param <= 0:
            name = ACTIVATIONS[self.kind]
            raise ModelError(f"[Activation] expected {self.kind}'s {name} above 0, got {param}; fix the layer")
        self._define(self.x.width, (self.x,), param=param)


@dataclass(frozen=True, eq=False)
class PReLU(Value):
    """y = x where x > 0, slope * x elsewhere, with one slope per column (w,)."""

    x: Value
    slope: FloatArray

    def __post_init__(self) -> None:
        self._define(self.x.width, (self.x,), slope=frozen_array(self.slope, "PReLU.slope", (self.x.width,)))


@dataclass(frozen=True, eq=False)
class Affine(Value):
    """y = scale * x + shift per column, both (w,). An eval-mode BatchNorm is one of these."""

    x: Value
    scale: FloatArray
    shift: FloatArray

    def __post_init__(self) -> None:
        shape = (self.x.width,)
        scale = frozen_array(self.scale, "Affine.scale", shape)
        self._define(self.x.width, (self.x,), scale=scale, shift=frozen_array(self.shift, "Affine.shift", shape))


@dataclass(frozen=True, eq=False)
class LayerNorm(Value):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and (biased) variance of each row alone."""

    x: Value
    weight: FloatArray | None = None
    bias: FloatArray | None = None
    eps: float = 1e-5

    def __post_init__(self) -> None:
        shape = (self.x.width,)
        weight = None if self.weight is None else frozen_array(self.weight, "LayerNorm.weight", shape)
        bias = None if self.bias is None else frozen_array(self.bias, "LayerNorm.bias", shape)
        self._define(self.x.width, (self.x,), weight=weight, bias=bias, eps=_positive(self.eps, "LayerNorm.eps"))


@dataclass(frozen=True, eq=False)
class L2Normalize(Value):
    """y = x / max(||x||_2, eps) per row."""

    x: Value
    eps: float = 1e-12

    def __post_init__(self) -> None:
        self._define(self.x.width, (self.x,), eps=_positive(self.eps, "L2Normalize.eps"))


@dataclass(frozen=True, eq=False)
class Combine(Value):
    """y = sum of coef * value over `terms`, all of one width."""

    terms: tuple[tuple[float, Value], ...]

    def __post_init__(self) -> None:
        terms = tuple((_finite(coef, "Combine"), value) for coef, value in self.terms)
        values = [value for _, value in terms]
        self._define(_same_width(values, "Combine"), values, terms=terms)


@dataclass(frozen=True, eq=False)
class Multiply(Value):
    """y = a * b elementwise; b may have width 1 and is then repeated over the columns of a."""

    a: Value
    b: Value

    def __post_init__(self) -> None:
        if self.b.width not in (1, self.a.width):
            raise WidthMismatch(
                f"[Multiply] expected a second factor of width {self.a.width} or 1, got {self.b.width}; check them"
            )
        self._define(self.a.width, (self.a, self.b))


@dataclass(frozen=True, eq=False)
class Concat(Value):
    """y = the rows of all `xs` side by side."""

    xs: tuple[Value, ...]

    def __post_init__(self) -> None:
        self._define(sum(x.width for x in self.xs), self.xs, xs=tuple(self.xs))


@dataclass(frozen=True, eq=False)
class Maximum(Value):
    """y = the elementwise maximum of all `xs`."""

    xs: tuple[Value, ...]

    def __post_init__(self) -> None:
        self._define(_same_width(self.xs, "Maximum"), self.xs, xs=tuple(self.xs))


@dataclass(frozen=True, eq=False)
class Elementwise(Value):
    """y = kind(xs) column by column; `kind` is a key of ELEMENTWISE.

    minimum(a, b); divide(a, b) = a / b, 0 where b is 0; less(a, b) = 1 where a < b, else 0; where(c, a, b) = a where c
    is not 0, else b. An input of width 1 is repeated over the columns.
    """

    kind: str
    xs: tuple[Value, ...]

    def __post_init__(self) -> None:
        if self.kind not in ELEMENTWISE or len(self.xs) != ELEMENTWISE[self.kind]:
            wanted = ", ".join(f"{kind} of {count} values" for kind, count in ELEMENTWISE.items())
            raise ModelError(f"[Elementwise] expected {wanted}, got {self.kind!r} of {len(self.xs)}; choose one")
        full = [x for x in self.xs if x.width != 1] or self.xs
        self._define(_same_width(full, f"Elementwise {self.kind}"), self.xs, xs=tuple(self.xs))


@dataclass(frozen=True, eq=False)
class Slice(Value):
    """y = columns start to stop (exclusive) of x."""

    x: Value
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop <= self.x.width:
            raise WidthMismatch(
                f"[Slice] expected 0 <= start < stop <= {self.x.width}, got {self.start}:{self.stop}; check the columns"
            )
        self._define(self.stop - self.start, (self.x,))


@dataclass(frozen=True, eq=False)
class Lookup(Value):
    """y = row i of table, i the number x without its fraction; zeros where the table has no such row."""

    x: Value
    table: FloatArray

    def __post_init__(self) -> None:
        table = frozen_array(self.table, "Lookup.table", (None, None))
        if self.x.width != 1 or not 0 < len(table) <= 2**24:
            raise WidthMismatch(
                f"[Lookup] expected one number a row and 1 to {2**24} rows in the table, got {self.x.width} and "
                f"{len(table)}; float32 counts no further"
            )
        self._define(table.shape[1], (self.x,), table=table)


@dataclass(frozen=True, eq=False)
class Softmax(Value):
    """y = exp(x - max x) / sum exp(x - max x) over the columns of each row."""

    x: Value

    def __post_init__(self) -> None:
        self._define(self.x.width, (self.x,))


@dataclass(frozen=True, eq=False)
class LogSoftmax(Value):
    """y = x - max x - log sum exp(x - max x) over the columns of each row."""

    x: Value

    def __post_init__(self) -> None:
        self._define(self.x.width, (self.x,))


@dataclass(frozen=True, eq=False)
class Propagate(Value):
    """Sum (or extremum) of in-neighbours' rows, the one value that is not row-local.

    sum:  a[v] = sum over edges (u, v) of w_uv x[u], with w_uv = 1 unless `weighted`; parallel edges and self-loop edges
          are ordinary edges. With `self_loops`, self-loop edges leave the sum, and L_v x[v] joins it (see gcn).
    mean: that sum divided by max(number of in-edges of v, 1); the count ignores weights.
    gcn:  a[v] = s_v * (sum over edges (u, v) of w_uv s_u x[u] + L_v s_v x[v]),  s_v = d_v^-1/2, 0 where d_v = 0,
          d_v = sum over those edges of w_uv + L_v.
          With `self_loops`, self-loop edges leave both sums and L_v = 1 if not weighted; if weighted, L_v is the weight
          of v's self-loop edge with the largest id, `fill` where v has none.
          Without, self-loop edges are ordinary and L_v = 0.
    laplacian: a[v] = s_v * sum over edges (u, v), u != v, of w_uv s_u x[u],  s_v = d_v^-1/2, 0 where d_v = 0,
          d_v = sum over edges (v, t), t != v, of w_vt: the out-degree. Weights below 0 are refused by the engine.
    walk: a[v] = sum over edges (u, v), u != v, of w_uv x[u] / d_u with the same d; 0 / 0 is 0.
    difference: a[v] = sum over edges (u, v), u != v, of w_uv x[u], minus d_v x[v]. Weights may be below 0.

    With a `relation`, only edges of that type count, for the mean and the degrees, too. Rows of one vertex type need
    one, and `target` is the type of the vertices that it leads to (default: the same); norms but sum and mean
    stay within a type.
    With `reduce` "max", "min" or "median" the largest, smallest or middle term of each column (of two the smaller one)
    takes the place of the sum; 0 where there is no term. Norm sum or gcn only (s_v is not negative, so it may stay
    outside).
    With `reversed` messages go against the edges: all of this as if every edge (u, v) were (v, u).

    Source: Kipf and Welling 2017; torch_geometric.nn.conv.gcn_conv.gcn_norm, torch_geometric.utils.get_laplacian.
    """

    x: Value
    norm: Norm = "sum"
    weighted: bool = False
    self_loops: bool = False
    fill: float = 1.0
    reduce: Reduce = "sum"
    relation: int | None = None
    target: int | None = None
    reversed: bool = False

    def __post_init__(self) -> None:
        reduces = get_args(Reduce)
        if self.reduce not in reduces:
            raise ModelError(f"[Propagate] expected reduce {_any_of(reduces)}, got {self.reduce!r}; choose one")
        if self.norm not in get_args(Norm):
            raise ModelError(f"[Propagate] expected norm {_any_of(get_args(Norm))}, got {self.norm!r}; choose one")
        if self.reduce != "sum" and self.norm not in ("sum", "gcn"):
            raise ModelError(
                f"[Propagate] expected norm sum or gcn with reduce {self.reduce}, got {self.norm}; leave it out"
            )
        if self.x.on_edges:
            raise ModelError("[Propagate] expected rows of vertices, got rows of edges; use Gather")
        if self.self_loops and self.norm != "gcn" and (self.norm, self.reduce) != ("sum", "sum"):
            raise ModelError(
                f"[Propagate] expected self_loops with norm gcn or a sum, got {self.norm} and {self.reduce}; leave them"
            )
        fill = _finite(self.fill, "Propagate.fill")
        target = self.x.vertex_type if self.target is None else self.target
        if (target is None) != (self.x.vertex_type is None) or (target is not None and self.relation is None):
            raise ModelError(
                "[Propagate] expected a relation, and a target where rows are of one vertex type, got "
                f"relation={self.relation}, target={self.target} and rows of type {self.x.vertex_type}; name both"
            )
        if (self.norm not in ("sum", "mean") or self.self_loops) and target != self.x.vertex_type:
            raise ModelError(
                f"[Propagate] expected norm {self.norm} within one vertex type, got {self.x.vertex_type} to {target}; "
                "use a sum"
            )
        self._define(self.x.width, (self.x,), vertex_type=target, fill=fill, target=target)


def propagate(
    x: Value, aggregate: str, weighted: bool = False, *, relation: int | None = None, where: str = "layer"
) -> Propagate:
    """In-neighbours' rows of `x` by an aggregate; where nothing comes in, 0.

    Raises: ModelError for another aggregate.
    """
    if aggregate == "mean":
        return Propagate(x, "mean", weighted, relation=relation)
    for reduce in get_args(Reduce):
        if aggregate == reduce:
            return Propagate(x, weighted=weighted, reduce=reduce, relation=relation)
    raise ModelError(f"[{where}] expected aggregate {_any_of(AGGREGATES)}, got {aggregate!r}; choose one")


def _any_of(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _positive(number: float, where: str) -> float:
    value = _finite(number, where)
    if value < 0:
        raise ModelError(f"[{where}] expected a number not below 0, got {value}; fix the layer's options")
    return value


def _same_type(values: Sequence[Value], where: str) -> int | None:
    types = {value.vertex_type for value in values}
    if len(types) > 1:
        raise ModelError(
            f"[{where}] expected rows of one vertex type, got types {sorted(types, key=str)}; join them along edges"
        )
    return types.pop() if types else None


def _same_width(values: Sequence[Value], where: str) -> int:
    if not values:
        raise ModelError(f"[{where}] expected at least one value, got none; pass the values to join")
    widths = [value.width for value in values]
    if len(set(widths)) != 1:
        raise WidthMismatch(f"[{where}] expected values of one width, got {widths}; check the layers before it")
    return widths[0]


class HasInputs(Protocol):
    """One step of a computation, as a value: it names the steps before it."""

    @property
    def inputs(self) -> tuple[Any, ...]: ...


Step = TypeVar("Step", bound=HasInputs)


def walk(*outputs: Step) -> list[Step]:
    """Every value that `outputs` depend on, themselves included, each once and after its inputs.

    The order is a function of the structure alone: inputs from left to right, depth first.
    """
    order: list[Step] = []
    done: set[int] = set()
    stack: list[tuple[Step, bool]] = [(output, False) for output in reversed(outputs)]
    while stack:
        value, inputs_done = stack.pop()
        if id(value) in done:
            continue
        if inputs_done:
            done.add(id(value))
            order.append(value)
        else:
            stack.append((value, True))
            stack.extend((each, False) for each in reversed(value.inputs) if id(each) not in done)
    return order
