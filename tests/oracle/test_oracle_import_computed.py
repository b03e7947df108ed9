"""Weights and attributes that a forward computes from the edges' own columns: as in PyG, at import and on live engines,
and a function of the graph bit for bit where weights only make sums.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

import livegnn as lg
from livegnn.errors import ModelUnsupported
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.hetero_oracle import FOLLOW, TRIPLES, WIDTHS, check_hetero
from tests.oracle.pyg_oracle import EXACT, ROUNDED, assert_equal, liven
from tests.oracle.test_oracle_import_exactness import recomputes
from tests.oracle.test_oracle_import_own import by_pyg
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph


class OfAttributes(nn.Module):
    """Layers along edges whose weights, or attributes, `how` makes of the forward's edge_attr."""

    def __init__(self, how, *convs, width=3, **inside):
        super().__init__()
        self.how, self.convs, self.width = how, nn.ModuleList(convs), width
        for name, module in inside.items():
            setattr(self, name, module)

    def layers(self, x, edge_index, given):
        for conv in self.convs[:-1]:
            x = torch.nn.functional.elu(conv(x, edge_index, given))
        return self.convs[-1](x, edge_index, given)

    def forward(self, x, edge_index, edge_attr):
        return self.layers(x, edge_index, self.how(self, edge_attr))


class OfWeights(OfAttributes):
    def forward(self, x, edge_index, edge_weight):
        return self.layers(x, edge_index, self.how(self, edge_weight))


class Rewiring(OfAttributes):
    """The same, with self-loops and degrees of the weights made by PyG's functions."""

    def __init__(self, rewire, *convs):
        super().__init__(sigmoid, *convs, lin=nn.Linear(3, 1))
        self.rewire = rewire

    def forward(self, x, edge_index, edge_attr):
        return self.layers(x, *self.rewire(edge_index, self.how(self, edge_attr), x.size(0)))


def sigmoid(net, edge_attr):
    return torch.sigmoid(net.lin(edge_attr)).squeeze(-1)


def one_number(net, edge_weight):
    return torch.sigmoid(net.lin(edge_weight.view(-1, 1))).view(-1)


def by_sigmoid(*convs):
    return OfAttributes(sigmoid, *convs, lin=nn.Linear(3, 1))


def gcn(**options):
    return pyg.GCNConv(5, 6, **options), pyg.GCNConv(6, 3, **options)


class Remaining(MessagePassing):
    """An own layer whose loops keep the attributes of the last self-loop edge, or take the mean of the others'."""

    def __init__(self, fill):
        super().__init__(aggr="add")
        self.fill, self.lin = fill, nn.Linear(3, 5)

    def forward(self, x, edge_index, edge_attr):
        edge_index, edge_attr = add_remaining_self_loops(edge_index, self.lin(edge_attr), self.fill, x.size(0))
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return x_j * edge_attr


#: Weights that only make sums: bit-exact.
SUMS = {
    "gcn": lambda: by_sigmoid(*gcn()),
    "gcn improved": lambda: by_sigmoid(*gcn(improved=True)),
    "gcn without self-loops": lambda: by_sigmoid(*gcn(add_self_loops=False)),
    "gcn not normalised": lambda: by_sigmoid(*gcn(normalize=False)),
    "mean of the columns": lambda: OfAttributes(lambda net, a: (a * a).mean(-1), *gcn()),
    "a column": lambda: OfAttributes(lambda net, a: a[:, 0], pyg.GraphConv(5, 4), pyg.GraphConv(4, 3, aggr="mean")),
    "a column's exponential": lambda: OfAttributes(lambda net, a: torch.exp(-a[:, 1]), *gcn()),
    "a product with a vector": lambda: OfAttributes(
        lambda net, a: torch.exp(a @ net.w), *gcn(), w=nn.Parameter(torch.rand(3))
    ),
    "an inverse": lambda: OfAttributes(lambda net, a: 1 / (1 + a[:, 0].abs()), pyg.GatedGraphConv(5, 2)),
    "scaled by constants": lambda: OfAttributes(lambda net, a: (((a - 0.5) / 2) ** 2).sum(1), pyg.TAGConv(5, 3)),
    "softplus of a column": lambda: OfAttributes(
        lambda net, a: nn.functional.softplus(net.lin(a))[:, 0], pyg.ARMAConv(5, 3, 2, 2), lin=nn.Linear(3, 1)
    ),
    "hops": lambda: by_sigmoid(pyg.GCNConv(5, 3), pyg.APPNP(2, 0.1), pyg.SGConv(3, 3, K=2), pyg.MixHopConv(3, 3)),
    "le": lambda: by_sigmoid(pyg.LEConv(5, 4), pyg.LGConv(), pyg.WLConvContinuous(), pyg.SSGConv(4, 3, 0.2)),
    "pdn": lambda: OfAttributes(lambda net, a: a, pyg.PDNConv(5, 4, 3, 6), pyg.PDNConv(4, 3, 3, 6)),
    "remaining loops to sums": lambda: Rewiring(
        lambda e, w, n: add_remaining_self_loops(e, w, 0.5, n), pyg.GraphConv(5, 4), pyg.GraphConv(4, 3)
    ),
    "renewed loops": lambda: Rewiring(
        lambda e, w, n: add_self_loops(*remove_self_loops(e, w), 2.0, n), *gcn(add_self_loops=False)
    ),
    "own loops keep rows": lambda: OfAttributes(lambda net, a: a, Remaining(0.5), Remaining("add")),
    "gcn_norm": lambda: Rewiring(lambda e, w, n: gcn_norm(e, w, n), *gcn(normalize=False)),
}
#: The same of edge_weight.
OF_WEIGHTS = {
    "scaled weights": lambda: OfWeights(lambda net, w: w * 0.5, *gcn()),
    "logarithms of weights": lambda: OfWeights(lambda net, w: torch.log1p(w), pyg.GraphConv(5, 4), pyg.GraphConv(4, 3)),
    "a function of weights": lambda: OfWeights(one_number, *gcn(), lin=nn.Linear(1, 1)),
}
#: What is computed again edge by edge.
GATHERED = {
    "own loops of means": lambda: OfAttributes(lambda net, a: a, Remaining("mean")),
    "max": lambda: by_sigmoid(pyg.GraphConv(5, 4, aggr="max"), pyg.GCNConv(4, 3, aggr="max")),
    "median": lambda: by_sigmoid(pyg.GCNConv(5, 4, aggr="median"), pyg.GCNConv(4, 3, aggr="min", add_self_loops=False)),
    "attention": lambda: OfAttributes(
        lambda net, a: net.lin(a).relu(),
        pyg.GATConv(5, 4, edge_dim=2),
        pyg.GATv2Conv(4, 3, edge_dim=2),
        lin=nn.Linear(3, 2),
    ),
    "attention, a number": lambda: OfAttributes(
        lambda net, a: net.lin(a).tanh(), pyg.GATConv(5, 3, edge_dim=2, fill_value=0.25), lin=nn.Linear(3, 2)
    ),
    "attention, a row": lambda: OfAttributes(
        lambda net, a: a, pyg.GATv2Conv(5, 3, edge_dim=3, fill_value=torch.tensor([0.25, -1.0, 2.0]))
    ),
    "attention, extremes": lambda: OfAttributes(
        lambda net, a: a,
        pyg.GATConv(5, 3, edge_dim=3, fill_value="max"),
        pyg.GATConv(3, 3, edge_dim=3, fill_value="add"),
    ),
}
ATTENTION_OF_WEIGHTS = {
    "attention of a weight": lambda: OfWeights(
        lambda net, w: w, pyg.GATConv(5, 4, edge_dim=1), pyg.GATv2Conv(4, 3, edge_dim=1)
    ),
    "attention of a column": lambda: OfWeights(
        lambda net, w: w.unsqueeze(-1),
        pyg.GATConv(5, 4, edge_dim=1, fill_value=0.75),
        pyg.TransformerConv(4, 3, edge_dim=1),
    ),
}
CASES = {**SUMS, **OF_WEIGHTS, **GATHERED, **ATTENTION_OF_WEIGHTS}


def made(name):
    torch.manual_seed(len(name))
    return liven(CASES[name](), len(name))


def imported(module):
    return lg.from_pyg(module, input_width=5, edge_width=None if isinstance(module, OfWeights) else module.width)


@pytest.mark.parametrize("name", CASES)
def test_at_import(name):
    module = made(name)
    rtol = ROUNDED if "attention" in name else EXACT  # GATConv's weights of attributes are folded
    width = None if isinstance(module, OfWeights) else module.width
    model = assert_equal(module, rtol=rtol, input_width=5, edge_width=width)
    assert model.weights == ("required" if isinstance(module, OfWeights) else "none")
    assert recomputes(model) == (name in GATHERED or name in ATTENTION_OF_WEIGHTS)


def live(name, vertices=16):
    module = made(name)
    model = imported(module)
    rng = np.random.default_rng(len(name))
    graph, mirror = random_graph(rng, 5, model.uses_weights, vertices=vertices, **graph_columns(model))
    return module, lg.Engine(model, graph, threads=1), mirror, rng


@pytest.mark.parametrize("name", CASES)
def test_follows_a_stream(name):
    module, engine, mirror, rng = live(name)
    for batch, size in enumerate((1, 4, 12, 30)):
        engine.apply(random_batch(rng, mirror, size))
        note = f"{name}, version {batch + 1}"
        check_engine(engine, mirror, note)
        truth, plain = (by_pyg(module, engine.model, mirror, dtype) for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, note, on_edges=True)


@pytest.mark.parametrize("name", [*SUMS, *OF_WEIGHTS])
def test_sums_are_a_function_of_the_graph(name):
    """Edges that come, go and change leave the bits of an engine that was made of what is there, in another order."""
    _, engine, mirror, rng = live(name)
    n, weighted = len(mirror.rows), mirror.weighted
    for _ in range(4):
        updates = lg.Updates()
        for _ in range(9):
            u, v = (int(each) for each in rng.integers(0, n, 2))
            v = u if rng.random() < 0.4 else v
            row = None if weighted else rng.standard_normal(3, np.float32)
            w = float(np.float32(rng.uniform(0.1, 2)))
            updates.add_edge(u, v, **({"weight": w} if weighted else {"edge_attr": row}))
            mirror.add_edge(u, v, w, row)
        gone = int(rng.choice(sorted(mirror.edges)))
        u, v, _ = mirror.edges[gone]
        updates.remove_edge(u, v)
        del mirror.edges[mirror.newest(u, v)]
        engine.apply(updates)
    features, src, dst, weight, _ = mirror.arrays()
    order = np.lexsort((rng.random(len(src)), np.where(src == dst, -1, 0)))
    loops = np.flatnonzero(src == dst)
    order[: len(loops)] = loops  # of a vertex's self-loops the newest stays the newest
    columns = {"weight": weight[order]} if weighted else {"edge_attr": mirror.columns()[0][order]}
    fresh = lg.Engine(
        engine.model, lg.Graph(features, src[order], dst[order], **columns), threads=1, scales=engine.scales
    )
    assert fresh.recompute().tobytes() == engine.recompute().tobytes()


class MayHave(OfAttributes):
    def forward(self, x, edge_index, edge_weight=None):
        return self.layers(x, edge_index, None if edge_weight is None else self.how(self, edge_weight))


def test_weights_that_a_forward_may_do_without():
    model = assert_equal(MayHave(lambda net, w: torch.exp(-w), *gcn()), input_width=5)
    assert model.weights == "optional"


def test_one_number_an_edge_is_an_attribute_of_attention_with_loops():
    """A graph that keeps a 1-D edge_attr as weights gives the same as one that keeps it as a column."""
    torch.manual_seed(0)
    module = liven(OfAttributes(lambda net, a: a, pyg.GATConv(5, 4, edge_dim=1), pyg.GATv2Conv(4, 3, edge_dim=1)))
    model = lg.from_pyg(module, edge_width=1)
    rng = np.random.default_rng(0)
    x, src, dst = rng.standard_normal((9, 5), np.float32), rng.integers(0, 9, 30), rng.integers(0, 9, 30)
    numbers = rng.standard_normal(30).astype(np.float32)
    data = pyg_data(x, src, dst, numbers)
    flat, column = lg.Graph.from_pyg(data), lg.Graph(x, src, dst, edge_attr=numbers[:, None])
    assert flat.weight_column == "edge_attr"
    rows = [lg.Engine(model, graph, threads=1).embeddings(range(9)) for graph in (flat, column)]
    with torch.no_grad():
        want = module.double()(data.x.double(), data.edge_index, data.edge_attr.double()).numpy()
    for got in rows:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def pyg_data(x, src, dst, edge_attr):
    return Data(x=torch.tensor(x), edge_index=torch.tensor(np.stack([src, dst])), edge_attr=torch.tensor(edge_attr))


def test_a_laplacian_of_computed_weights_is_refused():
    with pytest.raises(ModelUnsupported, match="sums of weights over out-edges"):
        imported(by_sigmoid(pyg.ChebConv(5, 3, 2)))


def test_weights_of_single_edges_are_refused():
    with pytest.raises(ModelUnsupported, match="numbers of its own for single edges, and these come and go"):
        imported(OfAttributes(lambda net, a: net.w, pyg.GCNConv(5, 3), w=nn.Parameter(torch.rand(3))))


class OverTypes(nn.Module):
    """Weights of every type of edges by one network; GCN and attention with loops within a type."""

    def __init__(self):
        super().__init__()
        self.lin, self.attributes = nn.Linear(2, 1), nn.Linear(2, 2)
        self.first = pyg.HeteroConv({triple: self.conv(triple) for triple in TRIPLES})
        self.second = pyg.GATv2Conv(6, 3, edge_dim=2)

    def conv(self, triple):
        return pyg.GCNConv(5, 6) if triple == FOLLOW else pyg.GraphConv((WIDTHS[triple[0]], WIDTHS[triple[2]]), 6)

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        weights = {key: torch.sigmoid(self.lin(rows)).squeeze(-1) for key, rows in edge_attr_dict.items()}
        h = self.first(x_dict, edge_index_dict, edge_weight_dict=weights)
        users = self.second(h["User"].relu(), edge_index_dict[FOLLOW], self.attributes(edge_attr_dict[FOLLOW]))
        return {**h, "User": users}


def test_over_vertex_types():
    torch.manual_seed(0)
    module, rng = liven(OverTypes()), np.random.default_rng(4)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES, attr_width=2)
    engine = lg.Engine(lg.from_pyg(module, edge_width=2), graph, threads=1)
    for number in range(6):
        engine.apply(random_typed_batch(rng, mirror, int(rng.integers(1, 25))))
        check_hetero(engine, module, mirror, f"after batch {number}", columns=("attr",))
