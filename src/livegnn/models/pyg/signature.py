"""Which argument of a module's forward is what: features, edges, the edges' weights, attributes and types, or data."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from livegnn.models.pyg.context import refuse
from livegnn.models.pyg.pools import GRAPH_LEVEL

__all__ = ["Means", "Signature", "Use", "parameters_of", "read_signature", "role_of"]

_FEATURES = ("x", "features", "feats", "feat", "h", "inputs", "input")
_EDGES = ("edge_index", "adj_t", "adj", "edges", "edge_indices")
_WEIGHTS = ("edge_weight", "edge_weights", "weight", "weights", "ew")
_ATTRIBUTES = ("edge_attr", "edge_attrs", "edge_attributes", "edge_features", "edge_feats", "edge_feat")
_TYPES = ("edge_type", "edge_types", "etype", "etypes")
_BATCHES = ("batch", "batch_index", "batch_idx", "batch_vector")

Use: TypeAlias = Literal["none", "optional", "required"]


def role_of(name: str) -> str | None:
    """What a parameter of this name is given besides features and edges: "weight", "attribute", "type" or None."""
    roles = {"weight": _WEIGHTS, "attribute": _ATTRIBUTES, "type": _TYPES}
    return next((role for role, names in roles.items() if name in names), None)


@dataclass(frozen=True)
class Signature:
    """How to call a module: its forward's names for what livegnn supplies, and whether it must have them.

    Everything is called with these things in this order: features, edges, weights, attributes, types; None where the
    graph has none. A module with one row per graph is given the vertices' batch as a sixth. bare: a data object
    without attributes has None for them, as PyG's has; else a forward that reads them is refused.
    """

    features: str
    edges: str | None
    weight: str | None
    weights: Use
    data: bool = False
    attribute: str | None = None
    attributes: Use = "none"
    type: str | None = None
    types: Use = "none"
    batch: str | None = None
    bare: bool = False

    def call(self, module: Any, *given: Any) -> Any:
        """The module's result in its own terms; data objects are stood in for."""
        return module(_DataView(*given, bare=self.bare)) if self.data else self._call(module, *given)

    def run(self, module: Any, *given: Any) -> Any:
        """The same with a real data object."""
        if not self.data:
            return self._call(module, *given)
        names = ("x", "edge_index", "edge_weight", "edge_attr", "edge_type", "batch")
        columns = {name: each for name, each in zip(names, given, strict=False) if each is not None}
        return module(Data(**{"edge_weight": None, **columns}))

    def _call(self, module: Any, x: Any, edge_index: Any, *columns: Any) -> Any:
        arguments = (x,) if self.edges is None else (x, edge_index)
        names = (self.weight, self.attribute, self.type, self.batch)
        given = zip(names, columns, strict=False)
        named = {name: each for name, each in given if name is not None and each is not None}
        return module(*arguments, **named)


class Means(nn.Module):
    """What a VGAE's encode gives in eval mode: the means, the first of the two things that its encoder returns."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.encoder(*args, **kwargs)[0]


class _DataView:
    """What a forward(data) may read of a torch_geometric Data."""

    def __init__(
        self,
        x: Any,
        edge_index: Any,
        edge_weight: Any,
        edge_attr: Any,
        edge_type: Any,
        batch: Any = None,
        *,
        bare: bool = False,
    ) -> None:
        self.x, self.edge_index, self.edge_weight, self.batch = x, edge_index, edge_weight, batch
        if edge_attr is not None or bare:
            self.edge_attr = edge_attr
        if edge_type is not None:
            self.edge_type = edge_type

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "edge_attr":
            raise refuse("data.edge_attr", "the forward reads it, and no layer states its width", "pass edge_width=")
        if name in ("num_graphs", "batch_size", "ptr"):
            raise refuse(f"data.{name}", "the number of graphs is not fixed", "pool by data.batch, without size=")
        raise refuse(
            f"data.{name}", "the forward reads it", "read x, edge_index, edge_weight, edge_attr and edge_type only"
        )


def read_signature(module: nn.Module, *, graph_level: bool = False) -> Signature:
    """The roles of the forward's parameters; the vertices' batch is one of them where a row per graph is wanted.

    Raises: ModelUnsupported naming a parameter without default that livegnn cannot supply.
    """
    parameters = parameters_of(module)
    kind = type(module).__name__
    batch = next((name for name in list(parameters)[1:] if name in _BATCHES), None)
    if batch is not None and (graph_level or parameters[batch] is inspect.Parameter.empty):
        if not graph_level:
            raise refuse(f"{kind}.forward(..., {batch})", "vertices are pooled by it", GRAPH_LEVEL)
        del parameters[batch]
    required = [name for name, default in parameters.items() if default is inspect.Parameter.empty]
    names = list(parameters)
    if not names:  # forward(*args)
        return Signature("x", "edge_index", None, "none")
    if len(required) == 1 and required[0] not in _FEATURES:
        return Signature(
            "x", "edge_index", "edge_weight", "optional", True, "edge_attr", "optional", "edge_type", "optional"
        )
    features = names[0]
    if features in (*_EDGES, *_WEIGHTS, *_ATTRIBUTES, *_TYPES):
        raise refuse(f"{kind}.forward({features}, ...)", "the features do not come first", "use (x, edge_index)")
    edges = names[1] if len(required) > 1 else None
    if edges is not None and edges in (*_WEIGHTS, *_ATTRIBUTES, *_TYPES):
        raise refuse(f"{kind}.forward(..., {edges}, ...)", "the edges do not come second", "use (x, edge_index)")
    if edges is None and len(names) > 1 and names[1] in _EDGES:
        edges = names[1]
    weight, attribute, kind_of_edge = (
        next((name for name in names[2:] if name in known), None) for known in (_WEIGHTS, _ATTRIBUTES, _TYPES)
    )
    for name in required:
        if name not in (features, edges, weight, attribute, kind_of_edge):
            raise refuse(
                f"{kind}.forward(..., {name})",
                "livegnn supplies features, edges and the edges' weights, attributes and types only",
                "give this argument a default, or name it edge_weight if it is one weight per edge",
            )

    def use(name: str | None) -> Use:
        return "none" if name is None else "required" if name in required else "optional"

    columns = (attribute, use(attribute), kind_of_edge, use(kind_of_edge))
    return Signature(features, edges, weight, use(weight), False, *columns, batch if graph_level else None)


def parameters_of(module: nn.Module) -> dict[str, Any]:
    """Name -> default of the forward's parameters, self left out; of an autoencoder, those of its encoder."""
    while type(module) in (pyg.GAE, Means):  # forward(*args) hands them on
        encoder: Any = module.encoder
        module = encoder
    if type(module) is pyg.Sequential:
        sequential: Any = module
        return dict.fromkeys(sequential.signature.param_dict, inspect.Parameter.empty)
    result: dict[str, Any] = {}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            result[name] = parameter.default
    return result
