"""An own layer's call as values: its arguments become tensors of a small graph, and its forward is followed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.edges import EdgeRelation, EdgeWeight
from livegnn.models.order import with_inputs
from livegnn.models.pyg.context import (
    EDGES,
    TYPES,
    WEIGHTS,
    Count,
    Flat,
    Import,
    Marker,
    Refusal,
    Rewired,
    Shaped,
    is_edges,
    refuse,
)
from livegnn.models.pyg.copies import private_copy
from livegnn.models.pyg.counted import counted
from livegnn.models.pyg.functions.turned import turn
from livegnn.models.pyg.layout import rows_of, shaped, symbol
from livegnn.models.pyg.own.rows import EdgeChoice, EdgeTypes, EndIds, Laid, LoopWeight, Traced, is_followed
from livegnn.models.pyg.own.tracing import EDGES as _EDGES
from livegnn.models.pyg.own.tracing import EDGES_OF_GRAPH, FollowedRun
from livegnn.models.pyg.own.tracing import VERTICES as _VERTICES
from livegnn.models.pyg.weighted import loop_rows

_UNREAD = "is not read"

Convert = Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]  # (module, name, args, kwargs)


def convert_own(
    conv: Any,
    name: str,
    where: str,
    call: Callable[[Any, Any], Any],
    given: tuple[Any, ...],
    record: Import,
    nested: Convert,
    checked: Callable[[Any, str], None],
) -> Any:
    """What call(layer, given) returns: rows, or a tuple, list or dict of such.

    Args:     nested: reads the call of a convolution inside the layer.   checked: refuses one by its options.
    Raises:   ModelUnsupported naming the user's method and line.
    """
    anchor = _anchor(given)
    anchor = record.rows if anchor is None else anchor
    if anchor is None:
        raise refuse(where, "it is not given one row per vertex", "pass the features or a layer's output")
    record.recorded = True
    layer = _copied(conv)

    def inner(run: FollowedRun, module: Any, path: str, args: Any, kwargs: Any) -> Any:
        path = f"{name}.{path}" if name else path
        handed = [_outward(each, run, where) for each in (args, kwargs)]
        return _inward(nested(module, path, *handed), where)

    def options(module: Any, path: str) -> None:
        checked(module, f"{name}.{path}" if name else path)

    run = FollowedRun(layer, record, where, anchor, inner, options)
    examples = _Examples(run, where).of(given)
    result = _outward(run.run(lambda: call(layer, examples)), run, where)
    return each_rows(result, lambda rows: _with_loop_weights(rows, record))


def _copied(conv: Any) -> Any:
    """A copy without hooks: those of a run that follows the module around it (a user's hooks are refused before)."""
    kept = [(each, each._forward_pre_hooks, each._forward_hooks) for each in conv.modules()]
    try:
        for each, before, after in kept:
            each._forward_pre_hooks, each._forward_hooks = type(before)(), type(after)()
        return private_copy(conv)
    finally:
        for each, before, after in kept:
            each._forward_pre_hooks, each._forward_hooks = before, after


def convert_named(conv: Any, where: str, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import) -> ir.Value:
    """A layer that the user has named an operator for: what the operator's layer gives for the first rows.

    Raises: ModelUnsupported, ModelError.
    """
    given = record.operators[type(conv)]
    layer = given if hasattr(given, "apply") else given(conv)
    if not hasattr(layer, "apply"):
        raise ModelError(
            f"[from_pyg] expected operators[{type(conv).__name__}] to be a layer, got {type(layer).__name__}; pass "
            "livegnn.verify.layer(operator), or a function from the module to one"
        )
    x = _anchor((args, kwargs))
    if x is None or not any(each is EDGES for each in (*args, *kwargs.values())):
        raise refuse(where, "it is not given one row per vertex and edge_index", "call it with the graph's own")
    if any(each is WEIGHTS for each in (*args, *kwargs.values())):
        record.weights_from.add("edge_weight")
    result: ir.Value = layer.apply(x)
    return result


def _anchor(given: Any) -> ir.Value | None:
    """The first rows of vertices in the arguments."""
    if isinstance(given, (tuple, list)):
        return next((found for each in given if (found := _anchor(each)) is not None), None)
    if isinstance(given, dict):
        return _anchor(tuple(given.values()))
    value = given.value if isinstance(given, Flat) else given.source if isinstance(given, Shaped) else given
    return value if isinstance(value, ir.Value) and not value.on_edges else None


class _Examples:
    """Tensors of a small graph in the place of symbols, each symbol the same tensor everywhere."""

    def __init__(self, run: FollowedRun, where: str) -> None:
        self.run, self.where = run, where
        self.made: dict[Any, torch.Tensor] = {}
        self.random = torch.Generator().manual_seed(7)

    def of(self, given: Any) -> Any:
        if isinstance(given, (tuple, list)):
            return type(given)(self.of(each) for each in given)
        if isinstance(given, dict):
            return {key: self.of(each) for key, each in given.items()}
        if isinstance(given, Count):
            return counted(_VERTICES, self.run.compared)
        if isinstance(given, Refusal):
            raise given.error
        if isinstance(given, Shaped) and given.axis != 0:
            raise refuse(self.where, "its rows are not the first dimension", "put the vertices' dimension first")
        if isinstance(given, Rewired) and is_edges(given) and given.loops == "keep":
            given = turn(EDGES) if given.turned else EDGES
        if not isinstance(given, (ir.Value, Marker, Flat, Shaped)):
            return given
        key = ("flat", id(given.value)) if isinstance(given, Flat) else id(given)
        if key not in self.made:
            self.made[key] = self.run.follow(*self.make(given))
        return self.made[key]

    def make(self, given: Any) -> tuple[torch.Tensor, Any]:
        if isinstance(given, Flat):
            tensor, symbol = self.make(given.value)
            return tensor[:, 0].clone(), Traced(symbol.value, (), symbol.edges)
        if isinstance(given, Shaped):
            rows = rows_of(given)
            shape = (_EDGES if rows.on_edges else _VERTICES, *given.index.shape)
            traced = Traced(rows, shape[1:], EdgeChoice() if rows.on_edges else None, whole=given.whole)
            rand = torch.randn(shape, generator=self.random)
            return (torch.zeros(shape, dtype=torch.int64) if given.whole else rand), traced
        if isinstance(given, ir.Value):
            count = _EDGES if given.on_edges else _VERTICES
            tensor = torch.rand(count, given.width, generator=self.random)  # as whole numbers, row 0 of any table
            return tensor, Traced(given, (given.width,), EdgeChoice() if given.on_edges else None)
        if is_edges(given):
            edges = torch.randint(0, _VERTICES, (2, _EDGES), generator=self.random)
            edges[:, :5] = torch.arange(_VERTICES - 5, _VERTICES)  # some self-loops, one of them the last vertex's
            return edges, dataclasses.replace(EDGES_OF_GRAPH, turned=given.turned)
        if given is WEIGHTS:
            self.run.record.weights_from.add("edge_weight")
            weights = torch.rand(_EDGES, generator=self.random) + 0.1
            return weights, Traced(EdgeWeight(), (), EdgeChoice())
        if given is TYPES:
            types = torch.randint(0, self.run.record.relations or 1, (_EDGES,), generator=self.random)
            return types, EdgeTypes(EdgeChoice())
        error = refuse(self.where, f"its argument {given.what} {_UNREAD}", f"leave {given.what} out")
        return torch.zeros(_VERTICES, dtype=torch.int64), Refusal(error)


def _inward(result: Any, where: str) -> Any:
    """What another convolution returns, as rows to follow."""
    if isinstance(result, (tuple, list)):
        return tuple(_inward(each, where) for each in result)
    if isinstance(result, (ir.Value, Flat, Shaped)):
        x = shaped(result)
        return Traced(rows_of(x), x.index.shape, EdgeChoice() if x.source.on_edges else None, whole=x.whole)
    return result


def _outward(result: Any, run: FollowedRun, where: str) -> Any:
    """What the layer returns, or hands to another convolution, as the rest of the import knows it."""
    if isinstance(result, (tuple, list)):
        return type(result)(_outward(each, run, where) for each in result)
    if isinstance(result, dict):
        return {key: _outward(each, run, where) for key, each in result.items()}
    if isinstance(result, EndIds):
        if result.edges == EdgeChoice() and result.end is None:
            return turn(EDGES) if result.turned else EDGES
        return Refusal(refuse(where, "it hands on edges with self-loops added or removed", "do that in the graph"))
    if isinstance(result, EdgeTypes) and result.edges == EdgeChoice():
        return TYPES
    if isinstance(result, Laid):
        return result.rows
    if not isinstance(result, Traced):
        if not is_followed(result) or isinstance(result, Refusal):
            return result
        return Refusal(refuse(where, "it returns what is of edges alone", "return rows of vertices"))
    if result.edges not in (None, EdgeChoice()):
        return Refusal(refuse(where, "it hands on rows of edges with self-loops added or removed",
                              "return rows of vertices"))  # fmt: skip
    if isinstance(result.value, EdgeWeight) and result.shape == ():
        return WEIGHTS
    if isinstance(result.value, EdgeRelation) and result.whole:
        return TYPES
    return symbol(Shaped(result.value, np.arange(result.value.width).reshape(result.shape), 0, result.whole))


def _with_loop_weights(rows: ir.Value, record: Import) -> ir.Value:
    """Rows with every weight of a vertex's last self-loop, that no normalised sum has taken up, as a value."""
    new: dict[int, ir.Value] = {}
    for value in ir.walk(rows):
        if isinstance(value, LoopWeight):
            new[id(value)] = loop_rows(EdgeWeight(), record.constant(value.fill))
        else:
            new[id(value)] = with_inputs(value, [new[id(each)] for each in value.inputs])
    return new[id(rows)]


def each_rows(symbol: Any, change: Callable[[ir.Value], ir.Value]) -> Any:
    """A symbol, or several, with its rows changed."""
    if isinstance(symbol, (tuple, list)):
        return type(symbol)(each_rows(each, change) for each in symbol)
    if isinstance(symbol, dict):
        return {key: each_rows(each, change) for key, each in symbol.items()}
    if isinstance(symbol, Flat):
        return Flat(change(symbol.value))
    if isinstance(symbol, Shaped):
        return dataclasses.replace(symbol, source=change(symbol.source))
    return change(symbol) if isinstance(symbol, ir.Value) else symbol


def changes_nothing(kind: type, base: type) -> bool:
    """Whether a subclass of a layer of PyG defines nothing that a call could reach."""
    for each in kind.__mro__[: kind.__mro__.index(base)]:
        written = f"{each.__module__}_{each.__name__}"  # the module of what PyG itself writes into a class
        names = {
            name for name, value in vars(each).items() if not str(getattr(value, "__module__", "")).startswith(written)
        }
        if names - _HARMLESS or not issubclass(each, base):
            return False
    return True


_HARMLESS = {
    "__init__", "reset_parameters", "__repr__", "__doc__", "__module__", "__annotations__", "__parameters__",
    "__orig_bases__", "__static_attributes__", "__firstlineno__", "_orig_propagate", "_orig_edge_updater",
    "_jinja_propagate", "_jinja_edge_updater",
}  # fmt: skip
