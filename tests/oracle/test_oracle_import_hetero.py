"""Imports over vertex types equal PyG in float64, run by the independent reference: every layer between two types and
within one, every way to write the forward.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData

import livegnn as lg
from livegnn.models.pyg.check import Columns, sample
from livegnn.reference.evaluate import evaluate
from tests.oracle.pyg_oracle import EXACT, ROUNDED, liven

pytestmark = pytest.mark.filterwarnings("ignore:There exist node types")  # A sends and hears nothing

BETWEEN, PEER = ("A", "to", "B"), ("A", "peer", "A")
TYPES = (("A", "B"), (BETWEEN, PEER))


def assert_equal(module, widths=(4, 4), *, rtol=EXACT, weighted=False, types=TYPES, **options):
    """from_pyg(module) by the reference gives the module's float64 output on several graphs; returns the model."""
    liven(module)
    model = lg.from_pyg(module, **options)
    truth = copy.deepcopy(module).double()
    columns = Columns(widths, weighted, model.attribute_width, over=types)
    for seed, size in enumerate(((1, 0), (3, 6), (6, 20))):
        features, ends, weights, attributes, _ = sample(columns, *size, seed)
        x = dict(zip(types[0], map(torch.tensor, features), strict=True))
        edges = dict(zip(types[1], map(torch.tensor, ends), strict=True))
        named = {}
        for key, rows in (("edge_weight_dict", weights), ("edge_attr_dict", attributes)):
            if rows is not None:
                named[key] = dict(zip(types[1], map(torch.tensor, rows), strict=True))
        with torch.no_grad():
            want = truth(x, edges, **named)
        got = _reference(model, features, ends, weights, attributes, types)
        first = 0
        for code, name in enumerate(types[0]):
            rows = got[first : first + len(features[code])]
            first += len(rows)
            expected = want.get(name) if isinstance(want, dict) else want if name in model.output_widths else None
            if expected is None:
                assert name not in model.output_widths
                continue
            width = model.output_widths[name]
            np.testing.assert_allclose(rows[:, :width], expected.numpy(), rtol=rtol, atol=rtol)
            assert not rows[:, width:].any()
    return model


def _reference(model, features, ends, weights, attributes, types):
    """The reference on slots, types numbered as the model numbers them."""
    names, triples = types
    first = dict(zip(names, np.cumsum([0, *map(len, features)]).tolist(), strict=False))
    wide = max(x.shape[1] for x in features)
    rows = np.concatenate([np.pad(x, ((0, 0), (0, wide - x.shape[1]))) for x in features])
    known = {triple: number for number, triple in enumerate(model.edge_types)}
    src, dst = (
        np.concatenate([pairs[end] + first[triple[2 * end]] for pairs, triple in zip(ends, triples, strict=True)])
        for end in (0, 1)
    )
    return evaluate(
        model.to_arrays(),
        rows[:, : model.input_width],
        src,
        dst,
        None if weights is None else np.concatenate(weights),
        attributes=None if attributes is None else np.concatenate(attributes),
        types=np.repeat([known.get(triple, 99) for triple in triples], [pairs.shape[1] for pairs in ends]),
        vertex_types=np.repeat(
            [model.vertex_types.index(name) if name in model.vertex_types else 99 for name in names],
            [len(x) for x in features],
        ),
    )


class One(nn.Module):
    """One convolution between A and B, or within A."""

    def __init__(self, conv, triple, attributes):
        super().__init__()
        self.conv, self.attributes = pyg.HeteroConv({triple: conv}), attributes

    def forward(self, x_dict, edge_index_dict, edge_attr_dict=None):
        if self.attributes:
            return self.conv(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
        return self.conv(x_dict, edge_index_dict)


PLAIN = {
    "Simple": lambda: pyg.SimpleConv(),
    "Simple cat": lambda: pyg.SimpleConv(combine_root="cat"),
    "Simple sum": lambda: pyg.SimpleConv("mean", combine_root="sum"),
    "SAGE": lambda: pyg.SAGEConv((4, 4), 3, aggr=["max", "std"], project=True, normalize=True),
    "SAGE shared": lambda: pyg.SAGEConv(4, 3),
    "Graph": lambda: pyg.GraphConv((4, 4), 3, aggr="mean"),
    "GAT": lambda: pyg.GATConv((4, 4), 3, heads=2, add_self_loops=False, residual=True),
    "GAT shared": lambda: pyg.GATConv(4, 3, add_self_loops=False),
    "GATv2": lambda: pyg.GATv2Conv((4, 4), 3, heads=2, add_self_loops=False, residual=True),
    "GATv2 shared": lambda: pyg.GATv2Conv(4, 3, share_weights=True, add_self_loops=False),
    "Transformer": lambda: pyg.TransformerConv((4, 4), 3, heads=2, beta=True),
    "GIN": lambda: pyg.GINConv(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), train_eps=True),
    "Edge": lambda: pyg.EdgeConv(nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))),
    "ResGated": lambda: pyg.ResGatedGraphConv((4, 4), 3),
    "LE": lambda: pyg.LEConv((4, 4), 3),
    "GEN": lambda: pyg.GENConv((4, 4), 3, norm="layer", msg_norm=True),
    "General": lambda: pyg.GeneralConv((4, 4), 3, heads=2, directed_msg=False, l2_normalize=True),
    "General attention": lambda: pyg.GeneralConv((4, 4), 3, attention=True, attention_type="dot_product"),
}
ATTRIBUTED = {
    "GAT": lambda: pyg.GATConv((4, 4), 3, edge_dim=2, add_self_loops=False),
    "GATv2": lambda: pyg.GATv2Conv((4, 4), 3, edge_dim=2, add_self_loops=False),
    "Transformer": lambda: pyg.TransformerConv((4, 4), 3, edge_dim=2, heads=2, concat=False),
    "GINE": lambda: pyg.GINEConv(nn.Linear(4, 3), edge_dim=2),
    "NN": lambda: pyg.NNConv((4, 4), 3, nn.Linear(2, 12)),
    "CG": lambda: pyg.CGConv((4, 4), dim=2),
    "ResGated": lambda: pyg.ResGatedGraphConv((4, 4), 3, edge_dim=2),
    "GMM": lambda: pyg.GMMConv((4, 4), 3, 2, 3),
}
WITHIN = {
    "GCN": lambda: pyg.GCNConv(4, 3),
    "GCN max": lambda: pyg.GCNConv(4, 3, aggr="max"),
    "GAT": lambda: pyg.GATConv(4, 3, heads=2),
    "TAG": lambda: pyg.TAGConv(4, 3),
    "Cheb": lambda: pyg.ChebConv(4, 3, 3),
    "PNA": lambda: pyg.PNAConv(4, 4, ["mean", "std"], ["identity", "linear"], torch.tensor([0, 2, 3])),
    "Gated": lambda: pyg.GatedGraphConv(4, 2),
    "SG": lambda: pyg.SGConv(4, 3, 2),
    "APPNP": lambda: pyg.APPNP(2, 0.1),
    "ARMA": lambda: pyg.ARMAConv(4, 3),
    "AGNN": lambda: pyg.AGNNConv(),
    "Cluster": lambda: pyg.ClusterGCNConv(4, 3, diag_lambda=0.5),
    "FeaSt": lambda: pyg.FeaStConv(4, 3),
    "MF": lambda: pyg.MFConv(4, 3, max_degree=3),
    "EG": lambda: pyg.EGConv(4, 4, num_heads=2, num_bases=2),
    "MixHop": lambda: pyg.MixHopConv(4, 3),
    "LG": lambda: pyg.LGConv(),
    "Anti": lambda: pyg.AntiSymmetricConv(4),
}


@pytest.mark.parametrize("triple", [BETWEEN, PEER])
@pytest.mark.parametrize("name", PLAIN)
def test_layers_between_two_types_and_within_one(name, triple):
    assert_equal(One(PLAIN[name](), triple, False), input_width=4, rtol=ROUNDED)


@pytest.mark.parametrize("triple", [BETWEEN, PEER])
@pytest.mark.parametrize("name", ATTRIBUTED)
def test_layers_that_read_attributes(name, triple):
    model = assert_equal(One(ATTRIBUTED[name](), triple, True), input_width=4, edge_width=2, rtol=ROUNDED)
    assert model.attribute_width == 2


@pytest.mark.parametrize("name", WITHIN)
def test_layers_within_a_type(name):
    assert_equal(One(WITHIN[name](), PEER, False), input_width=4, rtol=ROUNDED)


class Layers(nn.Module):
    def __init__(self, aggr):
        super().__init__()
        make = lambda size: pyg.HeteroConv(  # noqa: E731
            {BETWEEN: pyg.GraphConv((-1, -1), size), PEER: pyg.SAGEConv(-1, size), BACK: pyg.SAGEConv((-1, -1), size)},
            aggr,
        )
        self.first, self.second = make(5), make(3)

    def forward(self, x_dict, edge_index_dict):
        h = self.first(x_dict, edge_index_dict)
        return self.second({name: rows.relu() for name, rows in h.items()}, edge_index_dict)


BACK = ("B", "back", "A")
THREE = (("A", "B"), (BETWEEN, PEER, BACK))


def made(module, widths):
    """Runs the module once, so that lazy layers have their weights."""
    x = {name: torch.zeros(2, width) for name, width in zip(THREE[0], widths, strict=True)}
    module.eval()(x, {triple: torch.zeros(2, 0, dtype=torch.long) for triple in THREE[1]})
    return module


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min", "cat"])
def test_lazy_layers_tell_the_widths(aggr):
    model = assert_equal(made(Layers(aggr), (4, 2)), (4, 2), types=THREE)
    assert model.input_widths == {"A": 4, "B": 2}


class Rich(nn.Module):
    """Norms, dropout, residuals, functions: what a trained network is made of, before to_hetero."""

    def __init__(self):
        super().__init__()
        self.encode = pyg.Linear(-1, 6)
        self.first, self.second = pyg.SAGEConv((-1, -1), 6), pyg.GATConv((-1, -1), 6, add_self_loops=False)
        self.norm, self.layer_norm = pyg.BatchNorm(6), nn.LayerNorm(6)
        self.drop, self.act, self.head = nn.Dropout(0.5), nn.PReLU(), nn.Linear(6, 3)

    def forward(self, x, edge_index):
        h = self.encode(x).relu()
        h = h + self.drop(self.norm(self.first(h, edge_index)).relu())
        h = self.act(self.layer_norm(self.second(h, edge_index)))
        return self.head(h).log_softmax(dim=-1)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_to_hetero(aggr):
    module = made(pyg.to_hetero(Rich(), (list(THREE[0]), list(THREE[1])), aggr), (4, 2))

    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x_dict, edge_index_dict):
            return self.inner(x_dict, edge_index_dict)

    model = assert_equal(ByName(), (4, 2), types=THREE, rtol=ROUNDED)
    assert model.input_widths == {"A": 4, "B": 2}
    assert model.output_widths == {"A": 3, "B": 3}


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_hgt(heads):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = pyg.HGTConv({"A": 4, "B": 2}, 4, THREE, heads)
            self.second = pyg.HGTConv(4, 4, THREE, heads)

        def forward(self, x_dict, edge_index_dict):
            return self.second(self.first(x_dict, edge_index_dict), edge_index_dict)

    assert_equal(Net(), (4, 2), types=THREE, rtol=ROUNDED)
    assert_equal(Net().first, (4, 2), types=THREE, rtol=ROUNDED)


def test_a_type_that_no_edge_leads_to_has_no_output():
    metadata = (["A", "B"], [BETWEEN])
    model = assert_equal(
        pyg.HGTConv({"A": 4, "B": 2}, 4, metadata), (4, 2), types=(("A", "B"), (BETWEEN,)), rtol=ROUNDED
    )
    assert model.output_widths == {"B": 4}


@pytest.mark.parametrize("default", [True, False])
def test_weights(default):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.HeteroConv({BETWEEN: pyg.GraphConv((4, 2), 3), PEER: pyg.GCNConv(4, 3)})

    class Needs(Net):
        def forward(self, x_dict, edge_index_dict, edge_weight_dict):
            return self.conv(x_dict, edge_index_dict, edge_weight_dict)

    class May(Net):
        def forward(self, x_dict, edge_index_dict, edge_weight_dict=None):
            named = {} if edge_weight_dict is None else {"edge_weight_dict": edge_weight_dict}
            return self.conv(x_dict, edge_index_dict, **named)

    model = assert_equal((May if default else Needs)(), (4, 2), weighted=True)
    assert model.weights == ("optional" if default else "required")


def test_one_result_and_columns_of_it():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lins = nn.ModuleDict({"A": nn.Linear(4, 3), "B": nn.Linear(2, 3)})
            self.conv = pyg.HeteroConv({BETWEEN: pyg.SAGEConv((3, 3), 4), PEER: pyg.SAGEConv(3, 4)})
            self.head = nn.Linear(4, 1)

        def forward(self, x_dict, edge_index_dict):
            h = {name: self.lins[name](x).tanh() for name, x in x_dict.items()}
            return self.head(self.conv(h, edge_index_dict)["B"])

    model = assert_equal(Net(), (4, 2))
    assert model.output_widths == {"B": 1}
    assert model.input_widths == {"A": 4, "B": 2}


def test_a_forward_that_takes_data():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.HeteroConv({BETWEEN: pyg.SAGEConv((4, 2), 3), PEER: pyg.GCNConv(4, 3)})

        def forward(self, data):
            return self.conv(data.x_dict, data.edge_index_dict)

    module = liven(Net())
    model, data = lg.from_pyg(module), HeteroData()
    rng = np.random.default_rng(0)
    data["A"].x, data["B"].x = (torch.tensor(rng.normal(size=s), dtype=torch.float32) for s in ((3, 4), (2, 2)))
    data[BETWEEN].edge_index, data[PEER].edge_index = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[2], [0]])
    engine = lg.Engine(model, lg.Graph.from_pyg(data))
    with torch.no_grad():
        want = module(data)
    for name in ("A", "B"):
        got = engine.embeddings(range(len(want[name])), vertex_type=name)
        np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-6)


def test_metadata_where_no_layer_tells_types():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.lin = pyg.SAGEConv((4, 2), 3), nn.Linear(4, 2)

        def forward(self, x_dict, edge_index_dict):
            return {"A": self.lin(x_dict["A"]), "B": self.conv((x_dict["A"], x_dict["B"]), edge_index_dict[BETWEEN])}

    model = assert_equal(Net(), (4, 2), metadata=(["A", "B"], [BETWEEN]))
    assert model.edge_types == (BETWEEN,)
