"""Which argument of a module's forward is what: features, edges, the edges' weights, attributes and types, or data.

A forward over several types of vertices takes the same things in dicts by type, or in one HeteroData.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.neighbor_sampler import EdgeIndex

from livegnn.models.pyg.context import refuse
from livegnn.models.pyg.pools import GRAPH_LEVEL

_FEATURES = ("x", "features", "feats", "feat", "h", "inputs", "input")
_EDGES = ("edge_index", "adj_t", "adj", "edges", "edge_indices")
_BLOCKS = ("adjs",)  # a NeighborSampler's (edge_index, e_id, size), one for each layer
_COLUMNS = {
    "weight": ("edge_weight", "edge_weights", "weight", "weights", "ew"),
    "attribute": ("edge_attr", "edge_attrs", "edge_attributes", "edge_features", "edge_feats", "edge_feat"),
    "type": ("edge_type", "edge_types", "etype", "etypes"),
}
_ALL_COLUMNS = tuple(name for known in _COLUMNS.values() for name in known)
_METHODS = ("full_forward", "forward_full", "inference", "encode", "embed", "get_embeddings", "get_emb")
_BATCHES = ("batch", "batch_index", "batch_idx", "batch_vector")
_HETERO_DATA = ("data", "batch", "hetero_data", "graph")
_EXTENTS = {"num_nodes": 0, "num_features": 1, "num_node_features": 1}  # of a Data, along x
_IN_DATA = ("x", "edge_index", "edge_weight", "edge_attr", "edge_type", "batch")

Use: TypeAlias = Literal["none", "optional", "required"]
Types: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]


@dataclass(frozen=True)
class Signature:
    """How to call a module: its forward's names for what livegnn supplies, and whether it must have them.

    Everything is called with these things in this order: features, edges, weights, attributes, types; None where the
    graph has none. A module with one row per graph is given the vertices' batch as a sixth. over: the types of vertices
    and edges by which the forward has dicts; each thing is then a tuple in their order. bare: a data object without
    attributes has None for them, as PyG's has; else a forward that reads them is refused.   features: whether it takes
    any; else the rows of its vertices are parameters.   blocks: the forward takes as many sampled blocks in place of
    the edges; each is then the whole graph.
    """

    edges: str | None = "edge_index"
    weight: str | None = None
    weights: Use = "none"
    attribute: str | None = None
    attributes: Use = "none"
    type: str | None = None
    types: Use = "none"
    batch: str | None = None
    data: bool = False
    bare: bool = False
    over: Types | None = None
    features: bool = True
    blocks: int | None = None

    def call(self, module: Any, *given: Any) -> Any:
        """The module's result in its own terms; data objects are stood in for."""
        given = self._by_type(given)
        return module(_DataView(given, self)) if self.data else self._call(module, *given)

    def run(self, module: Any, *given: Any) -> Any:
        """The same with a real data object."""
        given = self._by_type(given)
        if not self.data:
            return self._call(module, *given)
        columns = {name: each for name, each in zip(_IN_DATA, given, strict=False) if each is not None}
        if self.over is None:
            return module(Data(**{"edge_weight": None, **columns}))
        data = HeteroData()
        for name, by_type in columns.items():
            for key, column in by_type.items():
                data[key][name] = column
        return module(data)

    def _by_type(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Dicts by type, where there are types. A symbol in the place of a tuple is taken apart by index."""
        if self.over is None:
            return given
        keys = (self.over[0], *(self.over[1],) * 3)
        return tuple(
            None if columns is None else {key: columns[place] for place, key in enumerate(by)}
            for by, columns in zip(keys, given, strict=False)
        )

    def _call(self, module: Any, x: Any, edge_index: Any, *columns: Any) -> Any:
        if self.blocks is not None:
            count = x.size(0)
            edge_index = [EdgeIndex(edge_index, None, (count, count))] * self.blocks
        arguments = (x,) if self.edges is None else (x, edge_index) if self.features else (edge_index,)
        names = (self.weight, self.attribute, self.type, self.batch)
        given = zip(names, columns, strict=False)
        named = {name: each for name, each in given if name is not None and each is not None}
        return module(*arguments, **named)


class MethodForward(nn.Module):
    """A method of a module in the place of its forward, such as full_forward next to one over sampled blocks."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module, self.name)(*args, **kwargs)


class Means(nn.Module):
    """What a VGAE's encode gives in eval mode: the means, the first of the two things that its encoder returns."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.encoder(*args, **kwargs)[0]


class Embeddings(nn.Module):
    """A LightGCN's rows of users and items, from which it ranks pairs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, edge_index: Any, edge_weight: Any = None) -> Any:
        inner: Any = self.inner
        return inner.get_embedding(edge_index, edge_weight)


class _DataView:
    """What a forward(data) may read of a torch_geometric Data or HeteroData."""

    def __init__(self, given: tuple[Any, ...], signature: Signature) -> None:
        self._over_types = signature.over is not None
        none_allowed = () if self._over_types else ("edge_weight", "batch", *(("edge_attr",) if signature.bare else ()))
        columns = dict.fromkeys(none_allowed) | dict(zip(_IN_DATA, given, strict=False))
        for name, column in columns.items():
            if column is not None or name in none_allowed:
                setattr(self, f"{name}_dict" if self._over_types else name, column)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _EXTENTS and not self._over_types:
            return self.x.size(_EXTENTS[name])
        reads, readable = "the forward reads it", "x, edge_index, edge_weight, edge_attr and edge_type"
        if self._over_types:
            readable = "x_dict, edge_index_dict, edge_weight_dict and edge_attr_dict"
        elif name == "edge_attr":
            raise refuse("data.edge_attr", f"{reads}, and no layer states its width", "pass edge_width=")
        elif name in ("num_graphs", "batch_size", "ptr"):
            raise refuse(f"data.{name}", "the number of graphs is not fixed", "pool by data.batch, without size=")
        raise refuse(f"data.{name}", reads, f"read {readable} only")


def read_signature(module: nn.Module, *, graph_level: bool = False, over: Types | None = None) -> Signature:
    """The roles of the forward's parameters; the vertices' batch is one of them where a row per graph is wanted.

    Names over types may end in "_dict".

    Raises: ModelUnsupported naming a parameter without default that livegnn cannot supply.
    """
    parameters = _parameters_of(module)
    kind = type(module).__name__
    batch = None if over else next((name for name in list(parameters)[1:] if name in _BATCHES), None)
    if batch is not None and (graph_level or parameters[batch] is inspect.Parameter.empty):
        if not graph_level:
            raise refuse(f"{kind}.forward(..., {batch})", "vertices are pooled by it", GRAPH_LEVEL)
        del parameters[batch]
    required = [name for name, default in parameters.items() if default is inspect.Parameter.empty]
    names = list(parameters)
    if not names:  # forward(*args)
        return Signature(over=over)
    if len(required) == 1 and (required[0] in _HETERO_DATA if over else required[0] not in (*_FEATURES, *_EDGES)):
        read = Signature("edge_index", "edge_weight", "optional", "edge_attr", "optional", data=True, over=over)
        return read if over else dataclasses.replace(read, type="edge_type", types="optional")
    without = not over and names[0] in _EDGES and all(name in _ALL_COLUMNS for name in required[1:])
    edges = names[0] if without else _edges_of(names, required, kind, over)
    blocks = None if over or edges not in _BLOCKS else _block_count(module)
    others = names[1:] if without else names[2:]
    roles = {role: _named(others, known, over) for role, known in _COLUMNS.items() if not (over and role == "type")}
    for name in required:
        if name not in (names[0], edges, *roles.values()):
            of = "dicts of features, edges and the edges' weights and attributes"
            advice = "give this argument a default"
            if not over:
                of = "features, edges and the edges' weights, attributes and types"
                if not any(part in name for part in ("batch", "size", "num", "mask", "index", "label", "n_id")):
                    advice += ", or name it edge_weight if it is one weight per edge"
                if "type" in name:
                    advice = "put the types of vertices into a column of x, and read x[:, 0].long()"
                advice += _other_methods(module)
            raise refuse(f"{kind}.forward(..., {name})", f"livegnn supplies {of} only", advice)

    def use(role: str) -> tuple[str | None, Use]:
        name = roles.get(role)
        return name, "none" if name is None else "required" if name in required else "optional"

    columns = (*use("weight"), *use("attribute"), *use("type"))
    return Signature(edges, *columns, batch if graph_level else None, over=over, features=not without, blocks=blocks)


def _other_methods(module: nn.Module) -> str:
    """Advice to import another method of the module, where one takes features and edges alone."""
    found = []
    for name in _METHODS:
        method = getattr(module, name, None)
        parameters = list(inspect.signature(method).parameters.values()) if callable(method) else []
        required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
        if len(required) == 2 and required[1] in _EDGES and required[0] in _FEATURES:
            found.append(f"lg.from_pyg(module.{name})")
    return f", or import its method: {' or '.join(found)}" if found else ""


def _block_count(module: nn.Module) -> int:
    """The number of sampled blocks that a forward goes through: one for each convolution that it lists."""
    stated = getattr(module, "num_layers", None)
    if isinstance(stated, int):
        return stated
    lists = [each for each in module.modules() if isinstance(each, nn.ModuleList)]
    of_layers = [len(each) for each in lists if any(isinstance(inner, pyg.MessagePassing) for inner in each.modules())]
    layers = sum(isinstance(each, pyg.MessagePassing) for each in module.modules())
    return max(of_layers or map(len, lists), default=layers)


def _named(names: list[str], known: tuple[str, ...], over: Types | None) -> str | None:
    return next((name for name in names if (name.removesuffix("_dict") if over else name) in known), None)


def _edges_of(names: list[str], required: list[str], kind: str, over: Types | None) -> str | None:
    """The second parameter, where it takes the edges. Raises: ModelUnsupported for another order."""
    if over:
        if len(names) < 2:
            raise refuse(f"{kind}.forward({names[0]})", "it takes no edges", "use (x_dict, edge_index_dict)")
        return names[1]
    columns = [name for known in _COLUMNS.values() for name in known]
    if names[0] in (*_EDGES, *columns):
        raise refuse(f"{kind}.forward({names[0]}, ...)", "the features do not come first", "use (x, edge_index)")
    if len(required) > 1 and names[1] in columns:
        raise refuse(f"{kind}.forward(..., {names[1]}, ...)", "the edges do not come second", "use (x, edge_index)")
    return names[1] if len(required) > 1 or (len(names) > 1 and names[1] in (*_EDGES, *_BLOCKS)) else None


def _parameters_of(module: nn.Module) -> dict[str, Any]:
    """Name -> default of the forward's parameters, self left out; of an autoencoder, those of its encoder."""
    while type(module) in (pyg.GAE, Means):  # forward(*args) hands them on
        encoder: Any = module.encoder
        module = encoder
    if type(module) is MethodForward:
        return _listed(getattr(module.module, module.name))
    if type(module) is pyg.Sequential:
        sequential: Any = module
        return dict.fromkeys(sequential.signature.param_dict, inspect.Parameter.empty)
    return _listed(module.forward)


def _listed(forward: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, parameter in inspect.signature(forward).parameters.items():
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            result[name] = parameter.default
    return result
