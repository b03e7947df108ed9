"""Which argument of a module's forward is what: features, edges, edge weights, or one data object."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from livegnn.models.pyg_context import refuse

__all__ = ["Signature", "read_signature"]

_FEATURES = ("x", "features", "feats", "feat", "h", "inputs", "input")
_EDGES = ("edge_index", "adj_t", "adj", "edges", "edge_indices")
_WEIGHTS = ("edge_weight", "edge_weights", "weight", "weights", "ew")


@dataclass(frozen=True)
class Signature:
    """How to call a module. `weights`: whether its forward takes edge weights."""

    features: str
    edges: str | None
    weight: str | None
    weights: Literal["none", "optional", "required"]
    data: bool = False

    def call(self, module: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        """module(x, edge_index[, edge_weight]) in the module's own terms; data objects are stood in for."""
        if self.data:
            return module(_DataView(x, edge_index, edge_weight))
        return module(*self._arguments(x, edge_index), **self._weight(edge_weight))

    def run(self, module: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        """The same with a real data object."""
        if self.data:
            return module(Data(x=x, edge_index=edge_index, edge_weight=edge_weight))
        return module(*self._arguments(x, edge_index), **self._weight(edge_weight))

    def _arguments(self, x: Any, edge_index: Any) -> tuple[Any, ...]:
        return (x,) if self.edges is None else (x, edge_index)

    def _weight(self, edge_weight: Any) -> dict[str, Any]:
        return {} if self.weight is None or edge_weight is None else {self.weight: edge_weight}


class _DataView:
    """What a forward(data) may read of a torch_geometric Data."""

    def __init__(self, x: Any, edge_index: Any, edge_weight: Any) -> None:
        self.x, self.edge_index, self.edge_weight = x, edge_index, edge_weight
        self.batch = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(f"data.{name}", "the forward reads it", "read x, edge_index and edge_weight only")


def read_signature(module: nn.Module) -> Signature:
    """The roles of the forward's parameters.

    Raises: ModelUnsupported naming a parameter without default that livegnn cannot supply.
    """
    parameters = _parameters(module)
    kind = type(module).__name__
    required = [name for name, default in parameters.items() if default is inspect.Parameter.empty]
    names = list(parameters)
    if not names:  # forward(*args), as GAE has it: passed on
        return Signature("x", "edge_index", None, "none")
    if len(required) == 1 and required[0] not in _FEATURES:
        return Signature("x", "edge_index", "edge_weight", "optional", data=True)
    features = names[0]
    if features in _EDGES or features in _WEIGHTS:
        raise refuse(f"{kind}.forward({features}, ...)", "the features do not come first", "use (x, edge_index)")
    edges = names[1] if len(required) > 1 else None
    if edges is not None and (edges in _WEIGHTS or edges == "edge_attr" or edges == "batch"):
        raise refuse(f"{kind}.forward(..., {edges}, ...)", "the edges do not come second", "use (x, edge_index)")
    if edges is None and len(names) > 1 and names[1] in _EDGES:
        edges = names[1]
    weight = next((name for name in names[2:] if name in _WEIGHTS), None)
    for name in required:
        if name not in (features, edges, weight):
            raise refuse(
                f"{kind}.forward(..., {name})",
                "livegnn supplies features, edges and edge weights only",
                "give this argument a default, or name it edge_weight if it is one weight per edge",
            )
    if weight is None:
        return Signature(features, edges, None, "none")
    return Signature(features, edges, weight, "required" if weight in required else "optional")


def _parameters(module: nn.Module) -> dict[str, Any]:
    """Name -> default of the forward's parameters, self left out."""
    if type(module) is pyg.Sequential:
        sequential: Any = module
        return dict.fromkeys(sequential.signature.param_dict, inspect.Parameter.empty)
    result: dict[str, Any] = {}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            result[name] = parameter.default
    return result
