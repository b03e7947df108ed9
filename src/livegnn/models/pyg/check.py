"""Compares an imported model with its module on random graphs before it is accepted."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from livegnn.errors import ModelMismatch
from livegnn.models import ir
from livegnn.models.pyg.signature import Signature
from livegnn.models.truth import EdgeList, true_rows

__all__ = [
    "TOLERANCE_EXACT",
    "TOLERANCE_FLOAT32",
    "TOLERANCE_ROUNDED",
    "Columns",
    "as_given",
    "as_tensors",
    "check_import",
    "compare",
    "computing_in",
    "edge_list",
    "sample",
]

_SIZES = ((1, 0), (1, 2), (2, 3), (9, 30), (23, 90))  # vertices, edges
_LARGE = ((300, 2_000), (6_000, 40_000))  # besides, where a recording may have fixed what a run took from shapes
TOLERANCE_EXACT = 1e-9  # both sides in float64: only the order of sums differs
TOLERANCE_ROUNDED = 2e-5  # a folded norm or another computed constant was rounded to float32 (2^-24 each)
TOLERANCE_FLOAT32 = 2e-2  # the module in float32 against itself in float64: coarse, finds what depends on the dtype


@dataclass(frozen=True)
class Columns:
    """What a module is given: features of `width`, weights or none, attributes of a width, types below a number.

    batch: whether it is given the vertices' graphs.   flat: whether the attributes, of width 1, are given as a vector.
    bare: whether a Data without attributes says so by None, as PyG's does.   as_weights: whether the model reads the
    attributes as weights.
    """

    width: int
    weighted: bool = False
    attributes: int | None = None
    types: int | None = None
    batch: bool = False
    flat: bool = False
    bare: bool = False
    as_weights: bool = False


def sample(columns: Columns, vertices: int, edges: int, seed: int) -> tuple[Any, Any, Any, Any, Any]:
    """(features, edge_index, weights, attributes, types) with self-loops, parallel edges and isolated vertices.

    Floats are float64 that float32 holds. Weights are between 0.1 and 3, never 1. Vertices beyond two thirds of the
    range have no edges but self-loops.
    """
    rng = np.random.default_rng([20240229, seed, vertices])
    reach = max(1, (2 * vertices + 2) // 3)
    src, dst = rng.integers(0, reach, edges), rng.integers(0, reach, edges)
    loops = rng.integers(0, vertices, edges // 6)
    doubled = rng.integers(0, edges, edges // 5) if edges else np.zeros(0, np.int64)
    src = np.concatenate([src, loops, src[doubled], loops[: len(loops) // 2]])
    dst = np.concatenate([dst, loops, dst[doubled], loops[: len(loops) // 2]])
    weight = rng.uniform(0.1, 3.0, len(src))
    features = _float32(rng.standard_normal((vertices, columns.width)))
    attributes = None if columns.attributes is None else _float32(rng.standard_normal((len(src), columns.attributes)))
    types = None if columns.types is None else rng.integers(0, columns.types, len(src))
    return features, np.stack([src, dst]), _float32(weight) if columns.weighted else None, attributes, types


def _float32(array: Any) -> Any:
    return array.astype(np.float32).astype(np.float64)


def edge_list(columns: Columns, given: tuple[Any, ...]) -> EdgeList:
    """The edges of a sample as the model reads them."""
    _, (src, dst), weight, attributes, types = given
    return EdgeList(src, dst, attributes[:, 0] if columns.as_weights else weight, attributes, types)


def as_given(columns: Columns, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """A sample as the module is given it."""
    return (*given[:3], given[3][:, 0], *given[4:]) if columns.flat else given


def as_tensors(given: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """The same as tensors, floats of `dtype`."""
    return tuple(
        None if each is None else torch.tensor(each, dtype=dtype if each.dtype.kind == "f" else torch.int64)
        for each in given
    )


class _KeepsFloat64(TorchFunctionMode):
    """Casts to float32 leave the rows of a float64 copy as they are: x.float() is there for other inputs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == torch.Tensor.float and args[0].dtype == torch.float64:
            return args[0]
        if func in (torch.Tensor.to, torch.Tensor.type) and args[0].dtype == torch.float64:
            args, kwargs = [_double(each) for each in args], {key: _double(each) for key, each in kwargs.items()}
        return func(*args, **kwargs)


def _double(option: Any) -> Any:
    names: dict[Any, Any] = {torch.float32: torch.float64, "torch.FloatTensor": "torch.DoubleTensor"}
    return names.get(option, option) if isinstance(option, (torch.dtype, str)) else option


def computing_in(dtype: Any) -> AbstractContextManager[object]:
    """Where a module's copy of `dtype` is run without gradients."""
    stack = ExitStack()
    stack.enter_context(torch.no_grad())
    if dtype == torch.float64:
        stack.enter_context(_KeepsFloat64())
    return stack


def check_import(
    module: nn.Module, signature: Signature, output: ir.Value, columns: Columns, rounded: bool, *, recorded: bool
) -> None:
    """Runs `output` and a float64 copy of `module` on graphs of several sizes.

    Per row, max |got - want| must stay within a tolerance times max |want|.

    Raises: ModelMismatch with the numbers.
    """
    double = copy.deepcopy(module).double()
    tolerance = TOLERANCE_ROUNDED if rounded else TOLERANCE_EXACT
    for seed, (vertices, edges) in enumerate(_SIZES + _LARGE if recorded else _SIZES):
        given = sample(columns, vertices, edges, seed)
        features, edge_index = given[:2]
        got = true_rows(output, features, edge_list(columns, given))
        given = as_given(columns, given)
        want = _run(double, signature, given, torch.float64)
        if want is None:
            continue
        size = f"{vertices} vertices and {edge_index.shape[1]} edges"
        compare(got, want, tolerance, f"a graph of {size}", type(module).__name__)
        single = _run(module, signature, given, torch.float32)
        compare(single, want, TOLERANCE_FLOAT32, f"float32 on a graph of {size}", type(module).__name__)


def _run(module: nn.Module, signature: Signature, given: tuple[Any, ...], dtype: Any) -> Any:
    features, edge_index = given[:2]
    with computing_in(dtype):
        try:
            result = signature.run(module, *as_tensors(given, dtype))
        except Exception as error:
            if edge_index.shape[1] == 0:  # some of PyG's layers cannot run without edges; there is nothing to compare
                return None
            raise ModelMismatch(
                f"[from_pyg] expected {type(module).__name__} to run on a graph of {len(features)} vertices and "
                f"{edge_index.shape[1]} edges, got {type(error).__name__}: {error}; make it run on any graph"
            ) from error
    rows = result.detach().to(torch.float64).numpy()
    return rows.reshape(len(features), -1) if rows.ndim == 1 else rows


def compare(got: Any, want: Any, tolerance: float, where: str, kind: str, *, row: str = "vertex") -> None:
    """Fails unless every row is within the tolerance. Raises: ModelMismatch with the numbers."""
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
            f"got {got[v, column]:.9g} (relative tolerance {tolerance:g}); "
            "the forward does something that the import misread: report it, or rewrite it with supported operations"
        )
