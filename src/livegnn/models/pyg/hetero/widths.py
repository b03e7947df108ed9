"""The features' width of every vertex type: stated by the first layer that each type's rows come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx, nn
from torch_geometric import nn as pyg
from torch_geometric.utils._trim_to_layer import TrimToLayer

from livegnn.errors import ModelError
from livegnn.models.pyg.columns import stated_widths
from livegnn.models.pyg.convs.registry import refuse_unknown
from livegnn.models.pyg.hetero.hgt import OVER_TYPES
from livegnn.models.pyg.signature import Signature
from livegnn.models.pyg.trace import partial_graph

# A convolution's linear layers by whose rows they take, where in_channels does not say it (lazily made layers).
_OF_SOURCE = ("lin_l", "lin_rel", "lin_src", "lin_key", "lin_msg", "lin")
_OF_TARGET = ("lin_r", "lin_root", "lin_dst", "lin_query", "lin_self", "lin")
_SAME_WIDTH = ("relu", "relu_", "elu", "gelu", "leaky_relu", "tanh", "sigmoid", "silu", "dropout", "clone", "float",
               "contiguous", "detach", "to", "normalize", "layer_norm", "selu", "celu", "softplus")  # fmt: skip


class _RowsOfType:
    """Stands for the features of one type, as they are or under functions that keep their width."""

    def __init__(self, code: int) -> None:
        self.code = code


def find_widths(
    module: nn.Module, signature: Signature, markers: tuple[Any, ...], given: Mapping[str, int]
) -> tuple[int, ...]:
    """The width of each vertex type's features; `given` ones go first.

    Raises: ModelError naming the type whose width no layer states.
    """
    names = signature.over[0] if signature.over else ()
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ModelError(f"[from_pyg] expected input_width for vertex types {names}, got {unknown[0]!r}; fix the dict")
    found = {names.index(name): int(width) for name, width in given.items()}
    if len(found) < len(names):
        rows = tuple(_RowsOfType(code) for code in range(len(names)))
        root, graph = partial_graph(module, signature.call, (rows, *markers))
        _follow(root, graph, (rows, *markers), found)
    if len(found) < len(names):
        refuse_unknown(module, OVER_TYPES)
    missing = [name for code, name in enumerate(names) if code not in found]
    if missing:
        raise ModelError(
            f"[from_pyg] expected a layer that states the width of the features of {missing[0]!r}, got none in "
            f"{type(module).__name__}; pass input_width={{{missing[0]!r}: ...}}"
        )
    return tuple(found[code] for code in range(len(names)))


def _follow(root: nn.Module, graph: fx.Graph, given: tuple[Any, ...], found: dict[int, int]) -> None:
    """Notes the widths of the layers that features come to."""
    env: dict[fx.Node, Any] = {}
    inputs = iter(given)
    for node in graph.nodes:
        if node.op == "placeholder":
            env[node] = next(inputs, None)
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: env.get(each))
        env[node] = None
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        first = args[0] if args else next(iter(kwargs.values()), None)
        if node.op == "call_module":
            layer = root.get_submodule(str(node.target))
            if type(layer) is TrimToLayer:
                env[node] = tuple(args[3:6])
                continue
            _note(layer, first, found)
            env[node] = first if isinstance(first, _RowsOfType) and not stated_widths(layer) else None
        elif name == "get_dict":
            env[node] = first
        elif name in ("getitem", "get") and isinstance(first, (tuple, dict)):
            env[node] = first.get(args[1]) if isinstance(first, dict) else first[args[1]]
        elif name in _SAME_WIDTH and isinstance(first, _RowsOfType):
            env[node] = first


def _note(layer: nn.Module, rows: Any, found: dict[int, int]) -> None:
    if isinstance(rows, dict):
        lins: Any = layer.kqv_lin.lins if isinstance(layer, pyg.HGTConv) else {}
        for name, each in rows.items():
            if isinstance(each, _RowsOfType) and name in lins:
                found.setdefault(each.code, int(lins[name].weight.shape[1]))
        return
    pair = rows if isinstance(rows, tuple) else (rows, rows)
    for place, each in enumerate(pair[:2]):
        width = _width(layer, place) if isinstance(each, _RowsOfType) else None
        if width is not None:
            found.setdefault(each.code, width)


def _width(layer: nn.Module, place: int) -> int | None:
    """The width that a layer takes of its sources (place 0) or targets (1); None if it does not say."""
    stated = getattr(layer, "in_channels", None)
    if isinstance(stated, (tuple, list)):
        stated = stated[place]
    if isinstance(stated, int) and stated > 0:
        return stated
    if isinstance(layer, pyg.MessagePassing):
        for key in _OF_SOURCE if place == 0 else _OF_TARGET:
            width = getattr(getattr(layer, key, None), "in_channels", None)
            if isinstance(width, int) and width > 0:
                return width
    return next(iter(stated_widths(layer)), None)
