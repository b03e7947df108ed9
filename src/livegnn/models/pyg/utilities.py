"""PyG's functions on edge_index that a forward may call between layers, each taken as one operation while it is read.

They are plain Python and decide by the numbers of the tensors at hand. So `reading_utilities` puts stand-ins in their
place, in every Python module, since a forward may call helpers of other files; what they become is in
functions/graph.py.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch_geometric.utils as utils
from torch import fx, nn
from torch.overrides import handle_torch_function, has_torch_function
from torch_geometric.nn.conv.gcn_conv import gcn_norm

#: What is read, or refused with its own reason (functions/graph.py).
NAMES = (
    "add_self_loops", "add_remaining_self_loops", "remove_self_loops", "degree", "get_laplacian", "to_undirected",
    "coalesce", "sort_edge_index", "contains_self_loops", "is_undirected", "subgraph", "k_hop_subgraph",
    "negative_sampling", "to_dense_adj", "to_dense_batch", "to_torch_coo_tensor", "spmm",
)  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(utils, name) for name in NAMES} | {"gcn_norm": gcn_norm}
_WITHOUT = {"livegnn", "torch", "numpy", "scipy", "sympy", "networkx", *sys.stdlib_module_names}  # of PyG's functions
_patching = threading.Lock()
_last: list[tuple[list[Any], list[dict[str, Any]]]] = [([], [])]  # modules that were loaded, and globals of most
_bound: dict[int, Callable[..., Any]] = {}  # by id of what stands in for it while a forward is read


def _stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def operation(*args: Any, **kwargs: Any) -> Any:
        given = tuple(
            each for each in (*args, *kwargs.values()) if isinstance(each, fx.Proxy) or hasattr(each, "shape")
        )
        if has_torch_function(given):
            return handle_torch_function(operation, given, *args, **kwargs)
        return function(*args, **kwargs)

    return operation


STAND_INS: dict[str, Callable[..., Any]] = {name: _stand_in(each) for name, each in _FUNCTIONS.items()}
_names = {id(each): f"utils.{name}" for name, each in STAND_INS.items()}


def bindings(stand_ins: Mapping[int, Callable[..., Any]]) -> dict[int, Callable[..., Any]]:
    """By id of what a name may be bound to, what is to be in its place: stand-ins, which are given by the ids of the
    functions, and the function itself for what else stands in while a forward is read.
    """
    return {**stand_ins, **{bound: stand_ins.get(id(each), each) for bound, each in [*_bound.items()]}}


def bind_all(
    spaces: Iterable[dict[str, Any]], chosen: Mapping[int, Callable[..., Any]]
) -> list[tuple[dict[str, Any], str, Any]]:
    """Binds names in these namespaces anew. chosen: as of bindings(). Returns: (space, name, what it was) of each."""
    holding = [space for space in spaces if not chosen.keys().isdisjoint(map(id, [*space.values()]))]
    kept = [(space, name, each) for space in holding for name, each in [*space.items()] if id(each) in chosen]
    for space, name, each in kept:
        space[name] = chosen[id(each)]
    return kept


def name_of_utility(function: Any) -> str | None:
    """The handler's name of a stand-in; None for another function."""
    return _names.get(id(function))


@contextlib.contextmanager
def reading_utilities(module: nn.Module) -> Iterator[None]:
    """Makes every call of a utility by the user's code one step, in this thread and one import at a time."""
    reader = threading.get_ident()
    chosen = {id(each): _for_thread(reader, each, STAND_INS[name]) for name, each in _FUNCTIONS.items()}
    spaces = {id(space): space for space in _namespaces(module)}
    with _patching:
        kept = bind_all(spaces.values(), chosen)
        _bound.update((id(chosen[id(each)]), each) for each in _FUNCTIONS.values())
        try:
            yield
        finally:
            _bound.clear()
            for space, key, each in kept:
                space[key] = each


def _for_thread(reader: int, function: Callable[..., Any], stand_in: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if threading.get_ident() == reader else function)(*args, **kwargs)

    return call


def _namespaces(module: nn.Module) -> Iterator[dict[str, Any]]:
    """The globals of all modules that may hold a function of PyG, and of forwards that were written outside of any."""
    for each in module.modules():
        for kind in type(each).__mro__:
            yield getattr(vars(kind).get("forward"), "__globals__", {})
    yield from _globals_of_modules()


def _globals_of_modules() -> list[dict[str, Any]]:
    """Those of the last call, where that found the same modules: most calls do, and there are thousands of modules."""
    loaded = [*sys.modules.items()]
    modules = [module for _, module in loaded]
    before, spaces = _last[0]
    if len(before) != len(modules) or not all(map(operator.is_, before, modules)):
        kept = (module for name, module in loaded if name.partition(".")[0] not in _WITHOUT)
        of_kept = (getattr(module, "__dict__", None) for module in kept)
        spaces = [each for each in of_kept if isinstance(each, dict)]
        _last[0] = modules, spaces
    return spaces
