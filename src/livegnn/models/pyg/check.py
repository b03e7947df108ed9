"""Compares an imported model with its module on random graphs before it is accepted.

A graph whose vertices have no types is here one of a single type without a name: everything is in tuples by type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from livegnn.errors import ModelMismatch
from livegnn.models import ir
from livegnn.models.pyg.context import EXAMPLE_VERTICES
from livegnn.models.pyg.copies import private_copy, unchanged
from livegnn.models.pyg.signature import Signature, Types
from livegnn.models.truth import EdgeList, true_rows

_SIZES = ((1, 0), (1, 2), (2, 3), (9, 30), (23, 90))  # vertices, edges, of each type at least
_LARGE = ((300, 2_000), (6_000, 40_000))  # besides, where a recording may have fixed what a run took from shapes
_BUSY_MAX = 24  # vertices with edges, where a table fixes how many vertices there are
_ONE_THREAD = 1_000  # vertices; beyond, PyG's "last" of several self-loops depends on its threads
_TOLERANCE_EXACT = 1e-9  # both sides in float64: only the order of sums differs
_TOLERANCE_ROUNDED = 2e-5  # a folded norm or another computed constant was rounded to float32 (2^-24 each)
_TOLERANCE_FLOAT32 = 2e-2  # the module in float32 against itself in float64: coarse, finds what depends on the dtype
_NAMELESS: Types = (("",), (("", "", ""),))

_MISREAD = "the forward does something that the import misread: report it, or rewrite it with supported operations"
_WITHOUT_EDGES = "the forward does something else without edges, as `if edge_index.numel() == 0` does: take that out"

#: (features, edge_index, weights, attributes, types, and of several graphs the batch), each by type, or None.
Sample: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Columns:
    """What a module is given: features by type, weights or none, attributes of a width, types below a number.

    widths: of the features.   batch: whether it is given the vertices' graphs.   flat: whether the attributes, of width
    1, are given as a vector.   bare: whether a Data without attributes says so by None, as PyG's does.   as_weights:
    whether the model reads the attributes as weights.   over: the types of vertices and edges by which it has dicts.
    whole: whether features and attributes are integers.   small: whether all of them are 0 or 1.
    categories: columns that name rows of a table, with the number of its rows; -1 - column of the attributes.
    positive: whether attributes are above 0, as weights are.
    tables: parameters that are the features.   vertices: how many these fix.
    """

    widths: tuple[int, ...]
    weighted: bool = False
    attributes: int | None = None
    types: int | None = None
    batch: bool = False
    flat: bool = False
    bare: bool = False
    as_weights: bool = False
    over: Types | None = None
    whole: bool = False
    small: bool = False
    categories: tuple[tuple[int, int], ...] = ()
    tables: tuple[str, ...] = ()
    vertices: int | None = None
    positive: bool = False


Form: TypeAlias = Literal["any", "without self-loops", "without isolated vertices"]
OTHER_FORMS: tuple[Form, ...] = ("without self-loops", "without isolated vertices")


def sample(columns: Columns, vertices: int, edges: int, seed: int, form: Form = "any") -> Sample:
    """A graph with self-loops, parallel edges and isolated vertices, unless its form leaves one out; types differ in
    size.

    Floats are float64 that float32 holds. Weights are between 0.1 and 3, never 1. Vertices beyond two thirds of the
    range have no edges but self-loops.
    """
    rng = np.random.default_rng([20240229, seed, vertices])
    names, triples = columns.over or _NAMELESS
    counts = {name: vertices + 2 * (place % 3) for place, name in enumerate(names)}
    most = _BUSY_MAX if columns.vertices else vertices * 3
    reach = {name: min(most, max(1, (2 * count + 2) // 3)) for name, count in counts.items()}
    ends, weights = [], []
    for source, _, target in triples:
        src, dst = rng.integers(0, reach[source], edges), rng.integers(0, reach[target], edges)
        loops = rng.integers(0, counts[source], edges // 6 if source == target else 0)
        doubled = rng.integers(0, edges, edges // 5) if edges else np.zeros(0, np.int64)
        src = np.concatenate([src, loops, src[doubled], loops[: len(loops) // 2]])
        dst = np.concatenate([dst, loops, dst[doubled], loops[: len(loops) // 2]])
        if vertices > _ONE_THREAD and source == target:
            single = _single_loops(src, dst)
            src, dst = src[single], dst[single]
        if form == "without self-loops" and source == target:
            src, dst = src[src != dst], dst[src != dst]
        if form == "without isolated vertices":
            each = np.arange(max(counts[source], counts[target]))
            src, dst = (np.concatenate([each % counts[name], rows]) for name, rows in ((source, src), (target, dst)))
        ends.append(np.stack([src, dst]))
        weights.append(_float32(rng.uniform(0.1, 3.0, len(src))))
    shapes = zip(counts.values(), columns.widths, strict=True)
    features = tuple(_float32(rng.standard_normal(shape)) for shape in shapes)
    attributes = types = None
    if columns.attributes is not None:
        drawn = (lambda shape: rng.uniform(0.1, 3.0, shape)) if columns.positive else rng.standard_normal
        attributes = tuple(_float32(drawn((len(rows), columns.attributes))) for rows in weights)
    if columns.small or columns.whole or columns.categories:
        features, attributes = _in_categories(columns, features, attributes, rng)
    if columns.types is not None:
        types = tuple(rng.integers(0, columns.types, len(rows)) for rows in weights)
    return features, tuple(ends), tuple(weights) if columns.weighted else None, attributes, types


def _in_categories(columns: Columns, features: Any, attributes: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """The columns that name rows of tables drawn among these; where all are integers, the others are 0 or 1."""
    if columns.small or columns.whole:
        features, attributes = (
            None if parts is None else tuple(rng.integers(0, 2, each.shape).astype(np.float64) for each in parts)
            for parts in (features, attributes)
        )
    for key, count in columns.categories:
        for each in features if key >= 0 else attributes or ():
            each[:, key if key >= 0 else -1 - key] = rng.integers(0, count, len(each))
    return features, attributes


def _single_loops(src: Any, dst: Any) -> Any:
    """The positions of all edges but repeated self-loops."""
    loops = np.flatnonzero(src == dst)
    kept = loops[np.unique(src[loops], return_index=True)[1]]
    return np.sort(np.concatenate([np.flatnonzero(src != dst), kept]))


def _float32(array: Any) -> Any:
    return array.astype(np.float32).astype(np.float64)


def divides(output: ir.Value) -> bool:
    """Whether rows are divided by, which may be 0: there the engine has 0, and the module no value, or an infinite."""
    return any(
        (isinstance(each, ir.Elementwise) and each.kind == "divide")
        or (isinstance(each, ir.Activation) and each.kind in ("reciprocal", "log"))
        for each in ir.walk(output)
    )


def samples(columns: Columns, *, recorded: bool, zeros: bool = False) -> Iterator[tuple[Sample, str]]:
    """Graphs of several sizes and, for a run that was followed, forms, with what a message calls each.

    zeros: also one where some features are 0.
    """
    large = _LARGE if recorded and columns.over is None else ()
    fixed = tuple((columns.vertices, edges) for _, edges in _SIZES) if columns.vertices else None
    for seed, (vertices, edges) in enumerate(fixed or _SIZES + large):
        given = sample(columns, vertices, edges, seed)
        yield given, f"a graph of {sizes_of(given)}"
    for seed, form in enumerate(OTHER_FORMS if recorded else (), len(_SIZES)):
        given = sample(columns, columns.vertices or 23, 90, seed, form)
        yield given, f"a graph {form} of {sizes_of(given)}"
    if zeros:
        given = sample(columns, columns.vertices or 23, 90, len(_SIZES))
        for rows in given[0]:
            rows[::3] = 0
        yield given, f"a graph of {sizes_of(given)}, some of whose features are 0"


def sizes_of(given: Sample) -> str:
    """The numbers of vertices and edges, for messages."""
    return f"{sum(map(len, given[0]))} vertices and {sum(pairs.shape[1] for pairs in given[1])} edges"


def _as_tensors(columns: Columns, given: Sample, dtype: Any) -> tuple[Any, ...]:
    """A sample as the module is given it: tensors, floats of `dtype`; in tuples by type only where there are types."""
    if columns.flat:
        given = (*given[:3], tuple(rows[:, 0] for rows in given[3]), *given[4:])

    if columns.whole:
        given = tuple(
            tuple(each.astype(np.int64) for each in parts) if parts is not None and place in (0, 3) else parts
            for place, parts in enumerate(given)
        )

    def tensor(array: Any) -> Any:
        return torch.tensor(array, dtype=dtype if array.dtype.kind == "f" else torch.int64)

    tensors = [None if parts is None else tuple(map(tensor, parts)) for parts in given]
    return tuple(tensors if columns.over else (None if parts is None else parts[0] for parts in tensors))


def example(columns: Columns, seed: int = 99) -> tuple[Any, ...]:
    """A small graph, or two, as float32 tensors; a table fixes the vertices, and its graph is smaller."""
    vertices = 7 if columns.vertices else EXAMPLE_VERTICES
    given = sample(columns, vertices, 20 if columns.vertices else 415, seed)
    batch = (np.arange(vertices) // (vertices // 2 + 1),)
    return _as_tensors(columns, (*given, batch) if columns.batch else given, torch.float32)


def runs(module: nn.Module, signature: Signature, columns: Columns) -> bool:
    """Whether the module itself runs on a small graph with such columns."""
    try:
        with torch.no_grad(), unchanged(module):
            signature.run(module, *example(columns))
    except Exception:  # a wrong width fails in as many ways as there are modules
        return False
    return True


_CAST = (torch.float64, torch.int64, torch.int32, torch.bool)  # what a cast to float32 leaves in float64
_FACTORIES = (torch.zeros, torch.ones, torch.full, torch.empty, torch.eye)


class _KeepsFloat64(TorchFunctionMode):
    """Casts to float32 leave the rows of a float64 copy as they are: x.float() is there for other inputs.

    New tensors are of float64 where they would be of float32.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES:
            fractions = func is not torch.full or not isinstance(args[1] if len(args) > 1 else 0.0, int)
            default = torch.float64 if fractions else None
            return func(*args, **{**kwargs, "dtype": _double(kwargs.get("dtype") or default)})
        kept = args[0].dtype if args and isinstance(args[0], torch.Tensor) else None
        if func == torch.Tensor.float and kept in _CAST:
            return args[0].double()
        if func in (torch.Tensor.to, torch.Tensor.type) and kept in _CAST:
            args, kwargs = [_double(each) for each in args], {key: _double(each) for key, each in kwargs.items()}
        return func(*args, **kwargs)


def _double(option: Any) -> Any:
    names: dict[Any, Any] = {torch.float32: torch.float64, "torch.FloatTensor": "torch.DoubleTensor"}
    names[torch.FloatTensor] = torch.DoubleTensor
    return names.get(option, option) if isinstance(option, (torch.dtype, str, type(torch.FloatTensor))) else option


def _computing_in(dtype: Any) -> AbstractContextManager[object]:
    """Where a module's copy of `dtype` is run without gradients."""
    stack = ExitStack()
    stack.enter_context(torch.no_grad())
    if dtype == torch.float64:
        stack.enter_context(_KeepsFloat64())
    return stack


def check_import(
    module: nn.Module,
    signature: Signature,
    columns: Columns,
    graphs: Iterable[tuple[Sample, str]],
    expected: Callable[[Sample], dict[str | None, Any]],
    *,
    rounded: bool,
    row: str = "vertex",
    take: Callable[[Any], list[Any]] = lambda result: [result],
) -> None:
    """Runs a float64 copy of `module` on graphs, and compares its rows with the model's.

    Per row, max |got - want| must stay within a tolerance times max |want|.

    Args:   expected: the model's rows by the name of their type; None for those of a module without types.
            row: what a row is of.
            take: of what the module returns, the results that are side by side in the model's rows.
    Raises: ModelMismatch with the numbers.
    """
    double = private_copy(module).double()
    kind = type(module).__name__
    for given, where in graphs:
        want = _run(double, signature, columns, given, torch.float64, where)
        if want is None:
            continue
        single = _run(module, signature, columns, given, torch.float32, where)
        parts = [*zip(take(want), take(single), strict=True)]
        for name, got in expected(given).items():
            advice = _MISREAD if any(pairs.shape[1] for pairs in given[1]) else _WITHOUT_EDGES
            here, start = where if name is None else f"{name!r} on {where}", 0
            for place, pair in enumerate(parts):
                wanted, rounds = (_matrix(each, name, len(got)) for each in pair)
                stop = got.shape[1] if place == len(parts) - 1 else start + wanted.shape[1]
                tolerance = _TOLERANCE_ROUNDED if rounded else _TOLERANCE_EXACT
                read, undefined = got[:, start:stop], ~np.isfinite(wanted)
                if any((rows == 0).all(axis=1).any() for rows in given[0]):  # it may have divided by 0
                    read, rounds, wanted = (np.where(undefined, 0.0, each) for each in (read, rounds, wanted))
                _compare(read, wanted, tolerance, here, (kind, row, advice))
                _compare(rounds, wanted, _TOLERANCE_FLOAT32, f"float32 on {here}", (kind, row, _MISREAD))
                start = stop


def modelled(output: ir.Value, columns: Columns, given: Sample) -> Any:
    """The model's rows on a sample, the vertices of one type after those of another."""
    features, ends, weights, attributes, types = given[:5]
    weights = tuple(rows[:, 0] for rows in attributes) if columns.as_weights else weights
    names, triples = columns.over or _NAMELESS
    first = dict(zip(names, np.cumsum([0, *map(len, features)]).tolist(), strict=False))
    rows = np.concatenate([np.pad(x, ((0, 0), (0, max(columns.widths) - x.shape[1]))) for x in features])
    src = np.concatenate([pairs[0] + first[triple[0]] for pairs, triple in zip(ends, triples, strict=True)])
    dst = np.concatenate([pairs[1] + first[triple[2]] for pairs, triple in zip(ends, triples, strict=True)])
    vertex_types = None
    if columns.over is not None:
        types = (np.repeat(np.arange(len(triples)), [pairs.shape[1] for pairs in ends]),)
        vertex_types = np.repeat(np.arange(len(names)), [len(x) for x in features])
    weight, rows_of_edges, kinds = (
        None if each is None else np.concatenate(each) for each in (weights, attributes, types)
    )
    return true_rows(output, rows, EdgeList(src, dst, weight, rows_of_edges, kinds, vertex_types))


def _run(module: nn.Module, signature: Signature, columns: Columns, given: Sample, dtype: Any, where: str) -> Any:
    """What the module returns; None where it cannot run without edges or on a single vertex."""
    with _computing_in(dtype), unchanged(module):
        tensors = _as_tensors(columns, given, dtype)
        start = 0
        for table in map(module.get_parameter, columns.tables):
            table.copy_(tensors[0][start : start + len(table)])
            start += len(table)
        try:
            return signature.run(module, *tensors)
        except Exception as error:
            single = sum(map(len, given[0])) == 1  # .squeeze() makes a vector of its row
            if single or not any(pairs.shape[1] for pairs in given[1]):  # some of PyG's layers cannot
                return None
            widths = "pass input_width={type: width} if widths were misread, or " if columns.over else ""
            raise ModelMismatch(
                f"[from_pyg] expected {type(module).__name__} to run on {where}, got {type(error).__name__}: {error}; "
                f"{widths}make it run on any graph"
            ) from error


def _matrix(result: Any, name: str | None, count: int) -> Any:
    """The rows of a type in float64; a forward that returns no dict has those of one type alone."""
    rows = (result[name] if isinstance(result, dict) else result).detach().to(torch.float64).numpy()
    width = -1 if rows.size else 1
    return rows.reshape(count, width) if rows.ndim < 2 else rows  # .squeeze() leaves less of a single vertex


def _compare(got: Any, want: Any, tolerance: float, where: str, texts: tuple[str, str, str]) -> None:
    """Fails unless every row is within the tolerance; texts: of the module, of a row, and what to do.

    Raises: ModelMismatch with the numbers.
    """
    kind, row, advice = texts
    if got.shape != want.shape:
        raise ModelMismatch(
            f"[from_pyg] expected {kind}'s output of shape {want.shape} on {where}, got {got.shape}; "
            "rewrite the forward with supported operations"
        )
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    error = np.where(same, 0.0, np.abs(np.where(same, 0.0, got) - np.where(same, 0.0, want)))
    scale = np.abs(np.where(np.isfinite(want), want, 0.0))
    limit = tolerance * np.maximum(scale.max(axis=1, keepdims=True, initial=0.0), 1e-3 * scale.max(initial=0.0))
    wrong = ~(error <= limit)
    if wrong.any():
        v, column = (int(each) for each in np.argwhere(wrong)[0])
        raise ModelMismatch(
            f"[from_pyg] expected {kind}'s output {want[v, column]:.9g} at {row} {v}, column {column} of {where}, "
            f"got {got[v, column]:.9g} (relative tolerance {tolerance:g}); {advice}"
        )
