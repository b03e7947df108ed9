"""Types of edges that a forward or an own layer computes with: tables, one-hot rows, comparisons, weights by type."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

import livegnn as lg
from livegnn.errors import ColumnMissing, ModelUnsupported
from livegnn.models import ir
from livegnn.models.compile_layout import sums_sources
from livegnn.models.edges import Gather
from livegnn.testing import check_engine, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven

TYPES = 3


class Typed(nn.Module):
    """A convolution whose weights or attributes `how` makes of edge_type."""

    def __init__(self, how, conv, **inside):
        super().__init__()
        self.how, self.conv = how, conv
        for name, each in inside.items():
            setattr(self, name, each)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, self.how(self, edge_type))


class Own(MessagePassing):
    """An own layer whose message reads edge_type."""

    def __init__(self, how, aggr="add", **inside):
        super().__init__(aggr=aggr)
        self.how, self.lin = how, nn.Linear(5, 4)
        for name, each in inside.items():
            setattr(self, name, each)

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=self.lin(x), edge_type=edge_type)

    def message(self, x_j, x_i, edge_type, index):
        return self.how(self, x_j, x_i, edge_type, index)


class Heat(nn.Module):
    """Types of vertices are the first column of the features."""

    def __init__(self, **options):
        super().__init__()
        self.conv = pyg.HEATConv(4, 4, TYPES, TYPES, 3, 2, 3, **options)

    def forward(self, x, edge_index, edge_type, edge_attr):
        return self.conv(x[:, 1:], edge_index, x[:, 0].long(), edge_type, edge_attr)


def rand(*shape):
    return nn.Parameter(torch.rand(*shape))


def rgat(**options):
    conv = pyg.RGATConv(5, 4, TYPES, heads=2, **options)
    nn.init.normal_(conv.l2)  # PyG leaves it as it finds it in memory
    return conv


BETWEEN = {
    "an embedding as attributes": lambda: Typed(
        lambda net, t: net.table(t), pyg.GINEConv(nn.Linear(5, 3), edge_dim=4), table=nn.Embedding(4, 4)
    ),
    "an embedding as weights": lambda: Typed(
        lambda net, t: net.table(t).squeeze(-1).exp(), pyg.GCNConv(5, 3), table=nn.Embedding(TYPES, 1)
    ),
    "a parameter as weights": lambda: Typed(lambda net, t: torch.sigmoid(net.w[t]), pyg.GCNConv(5, 3), w=rand(TYPES)),
    "a parameter as attributes": lambda: Typed(
        lambda net, t: net.w[t.long()], pyg.GATv2Conv(5, 3, edge_dim=2), w=rand(TYPES, 2)
    ),
    "one-hot rows": lambda: Typed(lambda net, t: F.one_hot(t, 5).float(), pyg.GATConv(5, 3, edge_dim=5)),
    "a comparison": lambda: Typed(lambda net, t: (t == 1).float(), pyg.GraphConv(5, 3)),
    "numbers": lambda: Typed(lambda net, t: 1 / (1 + t.float()), pyg.GraphConv(5, 3, aggr="mean")),
}
WITHIN = {
    "a table": lambda: Own(lambda net, x_j, x_i, t, i: (x_j + net.table(t)).relu(), table=nn.Embedding(TYPES, 4)),
    "a matrix by type": lambda: Own(
        lambda net, x_j, x_i, t, i: torch.bmm(x_j.unsqueeze(1), net.w[t]).squeeze(1), w=rand(TYPES, 4, 2)
    ),
    "a matrix by einsum": lambda: Own(
        lambda net, x_j, x_i, t, i: torch.einsum("ei,eio->eo", x_j, torch.index_select(net.w, 0, t)),
        aggr="mean",
        w=rand(TYPES, 4, 2),
    ),
    "a factor": lambda: Own(lambda net, x_j, x_i, t, i: x_j * net.w[t].view(-1, 1), w=rand(TYPES)),
    "one-hot columns": lambda: Own(lambda net, x_j, x_i, t, i: torch.cat([x_j, F.one_hot(t, 4).float()], -1)),
    "attention": lambda: Own(
        lambda net, x_j, x_i, t, i: x_j * softmax((x_j * x_i).sum(-1) + net.w[t], i).unsqueeze(-1), w=rand(TYPES)
    ),
    "a mask": lambda: Own(lambda net, x_j, x_i, t, i: x_j * (t == 1).view(-1, 1)),
    "a choice": lambda: Own(lambda net, x_j, x_i, t, i: torch.where((t == 1).unsqueeze(-1), x_j, -x_i)),
    "a dot product by einsum": lambda: Own(
        lambda net, x_j, x_i, t, i: torch.einsum("ehc,ehc->eh", x_j.view(-1, 2, 2), x_i.view(-1, 2, 2))
    ),
    "heads by einsum": lambda: Own(
        lambda net, x_j, x_i, t, i: torch.einsum("ehc,hcd->ehd", x_j.view(-1, 2, 2), net.w).flatten(1), w=rand(2, 2, 3)
    ),
    "a product of matrices": lambda: Own(
        lambda net, x_j, x_i, t, i: (x_j.view(-1, 2, 2) @ x_i.view(-1, 2, 2)).flatten(1), aggr="max"
    ),
}
OF_PYG = {
    "RGAT across relations": rgat,
    "RGAT across relations, additive": lambda: rgat(mod="additive", num_bases=2),
    "RGAT across relations, by products": lambda: rgat(
        attention_mode="multiplicative-self-attention", dim=2, mod="f-scaled", edge_dim=2
    ),
}
CASES = {**BETWEEN, **WITHIN, **OF_PYG}


HEAT = {
    "two heads": {"heads": 2},
    "mean of heads": {"heads": 3, "concat": False, "bias": False},
    "without root": {"root_weight": False},
    "against the edges": {"flow": "target_to_source"},
}


def made(name):
    torch.manual_seed(len(name))
    return liven(CASES[name](), len(name))


def by_pyg(module, mirror, dtype):
    features, src, dst, _, live = mirror.arrays()
    attributes, types = mirror.columns()
    twin = copy.deepcopy(module).to(dtype).eval()
    given = [torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst])), torch.tensor(types).long()]
    given += [] if attributes is None else [torch.tensor(attributes, dtype=dtype)]
    original = torch.Tensor.float
    try:
        torch.Tensor.float = lambda each: each.to(dtype)
        with torch.no_grad():
            return twin(*given).numpy()[live]
    finally:
        torch.Tensor.float = original


@pytest.mark.parametrize("name", CASES)
def test_follows_a_stream(name):
    """The import itself compares with the module on random graphs."""
    module = made(name)
    model = lg.from_pyg(module)
    assert model.input_width == 5
    rng = np.random.default_rng(len(name))
    types = 0 if not model.uses_types else TYPES
    graph, mirror = random_graph(rng, 5, False, vertices=14, attr_width=model.attribute_width or 0, types=types)
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 4, 12, 30)):
        mirror.types = types
        engine.apply(random_batch(rng, mirror, size))
        note = f"{name}, version {batch + 1}"
        check_engine(engine, mirror, note)
        mirror.types = TYPES
        truth, plain = (by_pyg(module, mirror, dtype) for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, note, on_edges=True)


@pytest.mark.parametrize("name", ["a table", "a matrix by type", "a factor", "a mask", "an embedding as weights"])
def test_messages_of_sources_and_types_are_sums(name):
    found = [each for each in ir.walk(lg.from_pyg(made(name)).output) if isinstance(each, Gather)]
    assert found
    assert all(sums_sources(each) for each in found if each.reduce != "newest")


@pytest.mark.parametrize("name", HEAT)
def test_heat_follows_updates(name):
    """PyG fails on types of vertices that it has no weights for, so that random features do not do here."""
    torch.manual_seed(1)
    module, rng = liven(Heat(**HEAT[name])), np.random.default_rng(3)
    x, (src, dst) = rng.standard_normal((12, 5)).astype(np.float32), rng.integers(0, 12, (2, 30))
    x[:, 0] = rng.integers(0, TYPES, 12)
    rows, types = rng.standard_normal((30, 2)).astype(np.float32), rng.integers(0, TYPES, 30)
    engine = lg.Engine(lg.from_pyg(module), lg.Graph(x, src, dst, edge_attr=rows, edge_type=types), threads=1)
    for _ in range(5):
        updates, v = lg.Updates(), int(rng.integers(12))
        x[v] = rng.standard_normal(5)
        x[v, 0] = rng.integers(TYPES)
        updates.set_features(v, x[v])
        ends, kind, row = rng.integers(0, 12, 2), int(rng.integers(TYPES)), rng.standard_normal(2).astype(np.float32)
        updates.add_edge(*map(int, ends), edge_type=kind, edge_attr=row)
        src, dst, types = np.append(src, ends[0]), np.append(dst, ends[1]), np.append(types, kind)
        rows = np.vstack([rows, row])
        engine.apply(updates)
        engine.verify()
        given = torch.tensor(np.stack([src, dst])), torch.tensor(types)
        with torch.no_grad():
            truth = copy.deepcopy(module).double()(torch.tensor(x).double(), *given, torch.tensor(rows).double())
            plain = module(torch.tensor(x), *given, torch.tensor(rows))
        check_rows(engine.embeddings(range(12)), truth.numpy(), plain.numpy(), name, on_edges=True)


def test_a_graph_without_types_is_refused():
    model = lg.from_pyg(made("a parameter as weights"))
    assert model.uses_types
    with pytest.raises(ColumnMissing, match="expected edge types, which the model reads"):
        lg.Engine(model, lg.Graph(np.zeros((3, 5), np.float32), [0, 1], [1, 2]))


def test_types_that_are_computed_are_no_rows_of_a_table():
    with pytest.raises(ModelUnsupported, match="not the ends of edges, nor the types of edges"):
        lg.from_pyg(Own(lambda net, x_j, x_i, t, i: x_j * net.w[2 * t].view(-1, 1), w=rand(6)))


def test_types_of_vertices_are_a_column():
    class Given(Heat):
        def forward(self, x, edge_index, edge_type, edge_attr):
            return self.conv(x, edge_index, torch.zeros(len(x), dtype=torch.int64), edge_type, edge_attr)

    with pytest.raises(ModelUnsupported, match=r"put the types into a column of x, and pass x\[:, 0\].long\(\)"):
        lg.from_pyg(Given())


class Molecule(MessagePassing):
    """Atoms and bonds are whole numbers among the columns."""

    def __init__(self):
        super().__init__(aggr="add")
        self.atoms, self.bonds, self.lin = nn.Embedding(5, 4), nn.Embedding(TYPES, 4), nn.Linear(3, 4)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=self.atoms(x[:, 0].long()) + self.lin(x[:, 1:]), edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return (x_j + self.bonds(edge_attr[:, 0].long())).relu()


def test_tables_inside_an_own_layer():
    torch.manual_seed(0)
    module, rng = liven(Molecule()), np.random.default_rng(5)
    x, (src, dst) = rng.standard_normal((9, 4)).astype(np.float32), rng.integers(0, 9, (2, 25))
    rows = rng.integers(0, TYPES, (25, 2)).astype(np.float32)
    x[:, 0] = rng.integers(0, 5, 9)
    engine = lg.Engine(lg.from_pyg(module, input_width=4, edge_width=2), lg.Graph(x, src, dst, edge_attr=rows))
    x[3, 0], updates = 4, lg.Updates()
    updates.set_features(3, x[3])
    engine.apply(updates)
    with torch.no_grad():
        want = module(torch.tensor(x), torch.tensor(np.stack([src, dst])), torch.tensor(rows))
    np.testing.assert_allclose(engine.embeddings(range(9)), want.numpy(), rtol=1e-5, atol=1e-5)
    engine.verify()
