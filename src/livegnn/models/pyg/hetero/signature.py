"""How a forward over several types of vertices is called: which argument is the dict of what, or one HeteroData."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn
from torch_geometric.data import HeteroData

from livegnn.models.pyg.context import refuse
from livegnn.models.pyg.signature import Use, parameters_of, role_of

__all__ = ["TypedSignature", "Types", "read_typed_signature"]

Types: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]

_DATA = ("data", "batch", "hetero_data", "graph")


@dataclass(frozen=True)
class TypedSignature:
    """How to call a module with dicts by type; `types` are their keys, in order.

    Everything is called with five things: tuples of features by vertex type, of edges, weights and attributes by edge
    type, and None; None where the graph has none.
    """

    types: Types
    weight: str | None = None
    weights: Use = "none"
    attribute: str | None = None
    attributes: Use = "none"
    data: bool = False

    def call(self, module: Any, *given: Any) -> Any:
        """The module's result in its own terms; data objects are stood in for."""
        dicts = self._dicts(given)
        return module(_HeteroDataView(dicts)) if self.data else self._call(module, dicts)

    def run(self, module: Any, *given: Any) -> Any:
        """The same with a real data object."""
        dicts = self._dicts(given)
        if not self.data:
            return self._call(module, dicts)
        data = HeteroData()
        for name, columns in dicts.items():
            for key, column in columns.items():
                data[key][name] = column
        return module(data)

    def _dicts(self, given: tuple[Any, ...]) -> dict[str, dict[Any, Any]]:
        """By type, in dicts named as in HeteroData. A symbol in the place of a tuple is taken apart by index."""
        names = ("x", "edge_index", "edge_weight", "edge_attr")
        keys = (self.types[0], *(self.types[1],) * 3)
        return {
            name: {key: columns[place] for place, key in enumerate(by)}
            for name, by, columns in zip(names, keys, given[:4], strict=True)
            if columns is not None
        }

    def _call(self, module: Any, dicts: dict[str, dict[Any, Any]]) -> Any:
        pairs = ((self.weight, "edge_weight"), (self.attribute, "edge_attr"))
        named = {name: dicts[column] for name, column in pairs if name is not None and column in dicts}
        return module(dicts["x"], dicts["edge_index"], **named)


class _HeteroDataView:
    """What a forward(data) may read of a torch_geometric HeteroData."""

    def __init__(self, dicts: dict[str, dict[Any, Any]]) -> None:
        for name, columns in dicts.items():
            setattr(self, f"{name}_dict", columns)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(
            f"data.{name}",
            "the forward reads it",
            "read x_dict, edge_index_dict, edge_weight_dict and edge_attr_dict only",
        )


def read_typed_signature(module: nn.Module, types: Types) -> TypedSignature:
    """The roles of the forward's parameters, with "_dict" at the end of their names or without.

    Raises: ModelUnsupported naming a parameter without default that livegnn cannot supply.
    """
    parameters = parameters_of(module)
    kind = type(module).__name__
    required = [name for name, default in parameters.items() if default is inspect.Parameter.empty]
    names = list(parameters)
    if not names:  # forward(*args), as HeteroConv has it
        return TypedSignature(types)
    if len(required) == 1 and required[0] in _DATA:
        return TypedSignature(types, "edge_weight", "optional", "edge_attr", "optional", data=True)
    roles = {name: role_of(name.removesuffix("_dict")) for name in names[2:]}
    for place, name in enumerate(names):
        if name in required and place > 1 and roles[name] not in ("weight", "attribute"):
            raise refuse(
                f"{kind}.forward(..., {name})",
                "livegnn supplies dicts of features, edges and the edges' weights and attributes only",
                "give this argument a default",
            )
    if len(names) < 2:
        raise refuse(f"{kind}.forward({', '.join(names)})", "it takes no edges", "use (x_dict, edge_index_dict)")
    found = {role: name for name, role in reversed(roles.items()) if role is not None}

    def use(name: str | None) -> Use:
        return "none" if name is None else "required" if name in required else "optional"

    weight, attribute = found.get("weight"), found.get("attribute")
    return TypedSignature(types, weight, use(weight), attribute, use(attribute))
