"""Layers whose messages go against the edges, by any way that PyG has for it: live against the module.

After every batch the engine's rows are the module's in float64, and bit for bit those from scratch.
"""

import copy
import inspect

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, scatter, softmax

import livegnn as lg
from livegnn.models.pyg.convs.registry import CONVS
from livegnn.testing import random_batch, random_graph
from tests.oracle.hetero_oracle import BOUGHT, BUY, FOLLOW, METADATA, TRIPLES, WIDTHS, check_hetero
from tests.oracle.own_layers import BIT_EXACT as OWN
from tests.oracle.own_layers import OPTIONS
from tests.oracle.pyg_layers import LAYERS
from tests.oracle.pyg_oracle import liven
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph

WAYS = {
    "flip": lambda e: e.flip(0),
    "flip by a list": lambda e: torch.flip(e, dims=[0]),
    "flipud": lambda e: e.flipud(),
    "picked": lambda e: e[[1, 0]],
    "picked by a tensor": lambda e: e[torch.tensor([1, 0])],
    "index_select": lambda e: e.index_select(0, torch.tensor([1, 0])),
    "stacked": lambda e: torch.stack([e[1], e[0]], dim=0),
    "three times": lambda e: e.flip(0)[[1, 0]].flip(0),
}


class Turned(nn.Module):
    """A layer over edges that are turned round in the forward; both: over the others, too."""

    def __init__(self, layer, turn=WAYS["flip"], both=False):
        super().__init__()
        self.layer, self.turn, self.both = layer, turn, both

    def forward(self, x, edge_index):
        y = self.layer(x, self.turn(edge_index))
        return y - 0.5 * self.layer(x, edge_index) if self.both else y


def follow(module, width, *, weighted=False, seed=1, batches=3, **options):
    """Streams of updates, live against the module; returns the model."""
    liven(module)
    model, truth = lg.from_pyg(module, **options), copy.deepcopy(module).double()
    rng = np.random.default_rng(seed)
    typed = model.uses_types or "edge_type" in inspect.signature(module.forward).parameters
    columns = {"attr_width": model.attribute_width or 0, "types": 2 if typed else 0}
    graph, mirror = random_graph(rng, width, weighted, vertices=15, **columns)
    engine = lg.Engine(model, graph)
    for batch in range(batches + 1):
        if batch:
            engine.apply(random_batch(rng, mirror, 7))
        x, src, dst, weight, live = mirror.arrays()
        place = np.full(len(x), -1)
        place[live] = np.arange(len(live))
        given = [torch.tensor(x[live]).double(), torch.tensor(np.stack([place[src], place[dst]]))]
        rows, kinds = mirror.columns()
        named = {} if rows is None else {"edge_attr": torch.tensor(rows).double()}
        named |= {} if kinds is None else {"edge_type": torch.tensor(kinds).long()}
        if weighted and model.weights != "none":
            named["edge_weight"] = torch.tensor(weight).double()
        with torch.no_grad():
            want = truth(*given, **named).numpy().reshape(len(live), -1)
        got = engine.embeddings(live)
        np.testing.assert_allclose(got, want, rtol=3e-4, atol=3e-4 * max(1.0, np.abs(want).max()), err_msg=f"{batch}")
        np.testing.assert_array_equal(got, engine.recompute()[live])
        engine.verify()
    return model


def flowing(layer):
    """The layer with every convolution's messages from edge_index[1] to edge_index[0]."""
    for each in layer.modules():
        if isinstance(each, pyg.MessagePassing):
            each.flow = "target_to_source"
    return layer


OF_VERTEX_TYPES = pyg.HEATConv  # on a column of whole numbers: test_oracle_import_edge_types.py
CASES = [(kind, at) for kind in LAYERS if kind is not OF_VERTEX_TYPES for at in range(len(LAYERS[kind]))]


@pytest.mark.parametrize(("kind", "at"), CASES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_every_layer_by_its_flow(kind, at):
    torch.manual_seed(0)
    layer = flowing(LAYERS[kind][at]())
    if not CONVS[kind].turns or (kind is pyg.GATConv and at == 1):  # PyG turns its messages alone
        with pytest.raises(lg.errors.ModelUnsupported, match=r"train it on edge_index.flip\(0\) with the default flow"):
            lg.from_pyg(layer, input_width=4)
        return
    model = follow(layer, 4, input_width=4)
    forward = lg.from_pyg(liven(LAYERS[kind][at]()), input_width=4)
    assert model.uses_edges == forward.uses_edges, "it is as exact as the layer along the edges"


def takes_edges_alone(kind):
    others = (pyg.GINEConv, pyg.NNConv, pyg.PDNConv, pyg.GMMConv, pyg.RGCNConv, pyg.FastRGCNConv, OF_VERTEX_TYPES)
    return kind not in others


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", [each for each in LAYERS if takes_edges_alone(each)], ids=lambda each: each.__name__)
def test_every_layer_by_its_edges(kind, both):
    torch.manual_seed(0)
    layer = LAYERS[kind][0]()
    if kind not in (pyg.RGATConv, pyg.FiLMConv):
        follow(Turned(layer, both=both), 4, input_width=4)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_turn_edges(way):
    torch.manual_seed(0)
    for layer in (pyg.GCNConv(4, 3), OWN["tutorial"]()):
        module = Turned(layer, WAYS[way], both=True)
        follow(module, 4 if isinstance(layer, pyg.GCNConv) else 5)


class TurnedWeights(Turned):
    def forward(self, x, edge_index, edge_weight):
        return self.layer(x, self.turn(edge_index), edge_weight)


@pytest.mark.parametrize("name", [name for name in OWN if "attributes" not in name])
def test_own_layers(name):
    torch.manual_seed(0)
    weighted = name.startswith("weighted")
    width = 4 if name == "Laplacian" else OPTIONS.get(name, {}).get("input_width", 5)
    turned = TurnedWeights(OWN[name]()) if weighted else Turned(OWN[name](), both=True)
    for module in (turned, flowing(OWN[name]())):
        follow(module, width, weighted=weighted, input_width=width)


@pytest.mark.parametrize("conv", ["gcn", "sage", "gat", "gin", "gatv2"])
def test_dir_gnn_conv(conv):
    torch.manual_seed(0)
    makes = {
        "gcn": lambda: pyg.GCNConv(4, 3),
        "sage": lambda: pyg.SAGEConv(4, 3, aggr="max"),
        "gat": lambda: pyg.GATConv(4, 3),
        "gatv2": lambda: pyg.GATv2Conv(4, 3),
        "gin": lambda: pyg.GINConv(nn.Linear(4, 3)),
    }
    follow(pyg.DirGNNConv(makes[conv](), alpha=0.3, root_weight=conv not in ("gin",)), 4, input_width=4)


class Directed(nn.Module):
    """The layers of "Edge Directionality Improves Learning on Heterophilic Graphs", by flow and by stacked ends."""

    def __init__(self):
        super().__init__()
        self.along = pyg.SAGEConv(4, 5, root_weight=False)
        self.against = pyg.SAGEConv(4, 5, root_weight=False, flow="target_to_source")
        self.own, self.a, self.b = nn.Linear(4, 5), pyg.GATConv(5, 4), pyg.GATConv(5, 4)
        self.alpha = nn.Parameter(torch.tensor([0.4]))

    def forward(self, x, edge_index):
        x = self.own(x) + (1 - self.alpha) * self.along(x, edge_index) + self.alpha * self.against(x, edge_index)
        turned = torch.stack([edge_index[1], edge_index[0]], dim=0)
        return (1 - self.alpha) * self.a(x.relu(), edge_index) + self.alpha * self.b(x.relu(), turned)


def test_both_directions_in_one_model():
    torch.manual_seed(0)
    follow(Directed(), 4, batches=6)


class DirectedNorm(pyg.MessagePassing):
    """D_out^-1/2 A D_in^-1/2, and its transpose; degrees at both ends."""

    def __init__(self):
        super().__init__(aggr="add")
        self.lin, self.back = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x, edge_index):
        row, col = edge_index
        out, into = degree(row, x.size(0)).pow(-0.5), degree(col, x.size(0)).pow(-0.5)
        out, into = out.masked_fill(out == float("inf"), 0), into.masked_fill(into == float("inf"), 0)
        norm = out[row] * into[col]
        y = self.propagate(edge_index, x=self.lin(x), norm=norm)
        return y + self.propagate(edge_index[[1, 0]], x=self.back(x), norm=norm)

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class AtSources(pyg.MessagePassing):
    """Every reduction at the sources of edges, written out."""

    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        x, count = self.lin(x), x.size(0)
        total = torch.zeros_like(x).index_add(0, row, edge_weight.view(-1, 1) * x[col])
        most = scatter((x[col] - x[row]).tanh(), row, dim=0, dim_size=count, reduce="max")
        share = softmax((x[row] * x[col]).sum(-1, keepdim=True), row, num_nodes=count)
        attended = scatter(share * x[col], row, dim=0, dim_size=count, reduce="sum")
        return torch.cat([total, most, attended, self.propagate(torch.stack([col, row]), x=x)], dim=-1)

    def message(self, x_j):
        return x_j


class FilledLoops(pyg.MessagePassing):
    """Loops that take the mean of their vertex's other edges, of edges that are turned round."""

    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x, edge_index, edge_weight):
        edges, weight = add_self_loops(edge_index.flip(0), edge_weight, fill_value="mean", num_nodes=x.size(0))
        return self.propagate(edges, x=self.lin(x), weight=weight)

    def message(self, x_j, weight):
        return weight.view(-1, 1) * x_j


@pytest.mark.parametrize(
    ("module", "weighted"), [(DirectedNorm, False), (AtSources, True), (FilledLoops, True)], ids=lambda each: str(each)
)
def test_own_layers_over_both_ends(module, weighted):
    torch.manual_seed(0)
    follow(module(), 4, weighted=weighted, batches=6)


class Rewired(nn.Module):
    """What a forward does to edges that are turned round, before or after."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.plain, self.gcn = pyg.GraphConv(4, 3), pyg.GCNConv(4, 3, normalize=False)
        self.back = pyg.GCNConv(4, 3, normalize=False, flow="target_to_source")

    def forward(self, x, edge_index, edge_weight=None):
        return self.how(self, x, edge_index, edge_weight)


def normalised(net, x, e, w):
    e, w = gcn_norm(e.flip(0), w, x.size(0))
    return net.gcn(x, e, w)


def normalised_by_flow(net, x, e, w):
    e, w = gcn_norm(e, w, x.size(0), flow="target_to_source")
    return net.back(x, e, w)


REWIRED = {
    "loops added": lambda net, x, e, w: net.plain(x, add_self_loops(e.flip(0), num_nodes=x.size(0))[0]),
    "loops added before": lambda net, x, e, w: net.plain(x, add_self_loops(e, num_nodes=x.size(0))[0][[1, 0]]),
    "loops left": lambda net, x, e, w: net.plain(x, add_remaining_self_loops(e.flip(0), num_nodes=x.size(0))[0]),
    "normalised": normalised,
    "normalised by flow": normalised_by_flow,
    "weighted": lambda net, x, e, w: net.plain(x, e.flip(0), w),
    "degrees": lambda net, x, e, w: x * degree(e[0], len(x)).view(-1, 1) + degree(e.flip(0)[0], len(x)).view(-1, 1),
}


@pytest.mark.parametrize("how", REWIRED)
def test_edges_that_a_forward_changes(how):
    torch.manual_seed(0)
    weighted = how in ("normalised", "normalised by flow", "weighted")
    follow(Rewired(REWIRED[how]), 4, weighted=weighted, input_width=4)


class TypedDirections(nn.Module):
    """Edges between two types, along them and turned round; within one type by the layer's flow."""

    def __init__(self):
        super().__init__()
        self.buy, self.bought = pyg.SAGEConv((5, 3), 4), pyg.SAGEConv((4, 5), 6, aggr="max")
        self.follow = pyg.GCNConv(5, 6, flow="target_to_source")
        self.seen = pyg.GATConv((3, 5), 6, add_self_loops=False)

    def forward(self, x_dict, edge_index_dict):
        user, item = x_dict["User"], x_dict["Item"]
        bought = self.buy((user, item), edge_index_dict[BUY]).relu()
        back = self.bought((bought, user), edge_index_dict[BUY].flip(0))
        back = back + self.follow(user, edge_index_dict[FOLLOW])
        return {"User": back + self.seen((item, user), edge_index_dict[BUY][[1, 0]]), "Item": bought}


@pytest.mark.parametrize("options", [{}, {"state": "compact"}, {"mode": "on_demand"}], ids=str)
def test_typed_graphs(options):
    torch.manual_seed(0)
    module = liven(TypedDirections())
    model = lg.from_pyg(module, metadata=METADATA, input_width=WIDTHS)
    rng = np.random.default_rng(2)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    engine = lg.Engine(model, graph, **options)
    for batch in range(6):
        engine.apply(random_typed_batch(rng, mirror, 8))
        check_hetero(engine, module, mirror, f"batch {batch}")


def test_flow_between_types_is_refused():
    turned = pyg.SAGEConv((5, 3), 4, flow="target_to_source")
    module = pyg.HeteroConv({BUY: turned, BOUGHT: pyg.SAGEConv((3, 5), 4)})
    with pytest.raises(lg.errors.ModelUnsupported, match=r"turn the edges round, by edge_index.flip\(0\)"):
        lg.from_pyg(module)
