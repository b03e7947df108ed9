"""Computed weights, attributes and types of edges where messages go against the edges: live against the module.

The modules are those of the tests along the edges. Each runs over the edges and over these turned round, side by side.
"""

import inspect

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from tests.oracle import test_oracle_import_computed as computed
from tests.oracle import test_oracle_import_edge_types as types
from tests.oracle import test_oracle_import_followed as followed
from tests.oracle.hetero_oracle import BUY, FOLLOW, METADATA, TRIPLES, WIDTHS, check_hetero
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero_own import Attending, Between, Gated
from tests.oracle.test_oracle_import_reversed import follow
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph

pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor")


class BothWays(nn.Module):
    """A module over edges that are turned round, less half of what it is over the edges."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index):
        return self.both(x, edge_index)

    def both(self, x, edge_index, *column):
        return self.inner(x, edge_index.flip(0), *column) - 0.5 * self.inner(x, edge_index, *column)


class OfAttributes(BothWays):
    def forward(self, x, edge_index, edge_attr):
        return self.both(x, edge_index, edge_attr)


class OfWeights(BothWays):
    def forward(self, x, edge_index, edge_weight):
        return self.both(x, edge_index, edge_weight)


class OfTypes(BothWays):
    def forward(self, x, edge_index, edge_type):
        return self.both(x, edge_index, edge_type)


class OfTypesAndAttributes(BothWays):
    def forward(self, x, edge_index, edge_type, edge_attr):
        return self.both(x, edge_index, edge_type, edge_attr)


def both_ways(inner):
    """The wrapper that takes the columns of edges that a module takes."""
    kinds = {tuple(inspect.signature(kind.forward).parameters)[3:]: kind for kind in BothWays.__subclasses__()}
    names = tuple(inspect.signature(inner.forward).parameters)[2:]
    if isinstance(inner, pyg.RGATConv):
        names = ("edge_type",) if inner.edge_dim is None else ("edge_type", "edge_attr")
    return kinds.get(names, BothWays)(inner)


CASES = {
    **{f"computed: {name}": (computed.made, name) for name in computed.CASES},
    **{f"types: {name}": (types.made, name) for name in types.CASES if name != "one-hot rows"},  # they stay float32
    **{f"followed: {name}": (followed.made, name) for name in followed.CASES},
}


@pytest.mark.parametrize("name", CASES)
def test_follows_a_stream(name):
    make, case = CASES[name]
    inner = make(case)
    module = both_ways(inner)
    options = {"edge_width": inner.width} if isinstance(module, OfAttributes) else {}
    model = follow(module, 5, weighted=isinstance(module, OfWeights), batches=2, input_width=5, **options)
    assert model.goes_back


class TypedDirections(nn.Module):
    """Own layers between two types, along the edges and against them, and within one type."""

    def __init__(self, kind):
        super().__init__()
        self.buy, self.bought = kind(5, 3, 6, "add"), kind(6, 5, 6, "add")
        self.follow = kind(5, 5, 6, "add")

    def forward(self, x_dict, edge_index_dict):
        user, item = x_dict["User"], x_dict["Item"]
        bought = self.buy((user, item), edge_index_dict[BUY]).relu()
        back = self.bought((bought, user), edge_index_dict[BUY].flip(0))
        return {"User": back + self.follow(user, edge_index_dict[FOLLOW][[1, 0]]), "Item": bought}


@pytest.mark.parametrize("kind", [Between, Gated, Attending])
def test_own_layers_over_vertex_types(kind):
    torch.manual_seed(0)
    module, rng = liven(TypedDirections(kind)), np.random.default_rng(5)
    model = lg.from_pyg(module, metadata=METADATA, input_width=WIDTHS)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    engine = lg.Engine(model, graph)
    for batch in range(5):
        engine.apply(random_typed_batch(rng, mirror, 8))
        check_hetero(engine, module, mirror, f"batch {batch}")


class Again(nn.Module):
    """The same computed weights along the edges and against them, each normalised by its own degrees."""

    def __init__(self):
        super().__init__()
        self.edge, self.convs = nn.Linear(2, 1), nn.ModuleList(pyg.GCNConv(4, 4) for _ in range(4))

    def forward(self, x, edge_index, edge_attr):
        weight = self.edge(edge_attr).sigmoid().squeeze(-1)
        for number, conv in enumerate(self.convs):
            x = x + conv(x, edge_index.flip(0) if number in (1, 2) else edge_index, weight).relu()
        return x


def test_degrees_of_both_directions():
    torch.manual_seed(0)
    follow(Again(), 4, edge_width=2)
