"""What cannot be kept exact is refused with the layer's name and the reason."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.nn.aggr import PowerMeanAggregation
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops

from livegnn.errors import ModelError, ModelMismatch, ModelUnsupported
from livegnn.models.pyg.entry import from_pyg


class OwnGCN(pyg.GCNConv):
    def message(self, x_j, edge_weight):
        return torch.asinh(super().message(x_j, edge_weight))


LINE = OwnGCN.message.__code__.co_firstlineno + 1


class OwnConv(pyg.MessagePassing):
    """step: what each edge's message goes through."""

    def __init__(self, step, aggr="add"):
        super().__init__(aggr=aggr)
        self.step, self.ids = step, nn.Parameter(torch.randn(7, 4))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, edges=edge_index)

    def message(self, x_j, index, edges):
        return self.step(x_j, index, edges)


class FewLoops(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(add_self_loops(edge_index)[0], x=x)


class Wrap(nn.Module):
    """A module around one layer, so that the layer has a name."""

    def __init__(self, layer, forward=None):
        super().__init__()
        self.layer, self.lin, self.how = layer, nn.Linear(4, 4), forward

    def forward(self, x, edge_index, edge_weight=None):
        if self.how is not None:
            return self.how(self, self.lin(x), edge_index, edge_weight)
        return self.layer(self.lin(x), edge_index)


def refuses(module, *parts, **options):
    with pytest.raises(ModelUnsupported) as caught:
        from_pyg(module, **options)
    message = str(caught.value)
    for part in ("[from_pyg] expected", "; ", *parts):
        assert part in message, message


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (pyg.GATConv(4, 4, aggr="max"), "softmax attention with aggr='max' is not supported"),
        (pyg.GATv2Conv(4, 4, aggr="mean"), "softmax attention with aggr='mean'"),
        (pyg.TransformerConv(4, 4, edge_dim=3), "it needs edge_attr if it has an edge_dim"),
        (pyg.DNAConv(4), "Feature shape must be [num_nodes, num_layers, channels]"),
        (pyg.ChebConv(4, 4, 2, normalization=None), "without a lambda_max takes the largest degree of the whole graph"),
        (pyg.ChebConv(4, 4, 2, aggr="max"), "a Laplacian's terms with aggr='max'"),
        (pyg.ResGatedGraphConv(4, 4, edge_dim=2), "it needs edge_attr if it has an edge_dim"),
        (pyg.GINEConv(nn.Linear(4, 4)), "it is not given the edge_attr that it reads; pass edge_attr"),
        (pyg.NNConv(4, 4, nn.Linear(4, 16)), "it is not given the edge_attr"),
        (pyg.CGConv(4, 2), "it needs edge_attr if its dim is above 0"),
        (pyg.GeneralConv(4, 4, 2), "it needs edge_attr if it has in_edge_channels"),
        (pyg.RGCNConv(4, 4, 2), "it is not given the edge_type that it reads; pass edge_type"),
        (pyg.FastRGCNConv(4, 4, 2), "it is not given the edge_type"),
        (pyg.RGATConv(4, 4, 2), "it is not given the edge_type that it reads; pass edge_type"),
        (pyg.RGATConv(4, 4, 1, mod="f-additive"), "asks of every attention weight whether it is 0"),
        (pyg.FiLMConv(4, 4, 2), "it is not given the edge_type"),
        (pyg.EGConv(4, 4, ["max"], 2), "self-loops up to the largest vertex that has an edge"),
        (pyg.SAGEConv(4, 4, aggr=PowerMeanAggregation(p=2.0, clamp_min=None)), "powers of numbers below 0"),
        (pyg.SAGEConv(4, 4, aggr=PowerMeanAggregation(p=0.0)), "p=0 divides by 0"),
        (pyg.GatedGraphConv(3, 2), "its input of width 4 is wider than its output"),
        (pyg.ClusterGCNConv(4, 4, add_self_loops=False), "fails unless every vertex has one self-loop"),
        (pyg.ClusterGCNConv(4, 4, aggr="max"), "it with aggr='max' is not supported"),
        (pyg.ARMAConv(4, 4, aggr="mean"), "a degree-normalised mean"),
        (
            OwnGCN(4, 4),
            f"OwnGCN.message, line {LINE} (return torch.asinh(super().message(x_j, edge_weight))): asinh: this",
        ),
        (OwnConv(lambda x, i, e: x.cumsum(0)), "cumsum: this operation is not supported"),
        (OwnConv(lambda x, i, e: x[:5]), "it picks rows, and the rows of a graph that changes are not fixed"),
        (OwnConv(lambda x, i, e: x - x.mean(0)), "it reduces over all vertices or edges"),
        (OwnConv(lambda x, i, e: x * torch.arange(len(x))[:, None]), "numbers of its own for each vertex or edge"),
        (OwnConv(lambda x, i, e: x / 0 if x[0, 0] > 9 else x), "it picks rows"),
        (OwnConv(lambda x, i, e: x @ torch.ones(3, 3)), "it fails on a small graph (RuntimeError: mat1 and mat2"),
        (OwnConv(lambda x, i, e: x, "mul"), "aggr='mul' (MulAggregation): products cannot be undone"),
        (FewLoops(), "without num_nodes= it leaves out the vertices after the last one that has an edge"),
        (pyg.GCNConv(4, 4, cached=True), "cached=True keeps the first graph for ever; set cached=False"),
        (pyg.SGConv(4, 4, cached=True), "set cached=False"),
        (pyg.APPNP(2, 0.1, cached=True), "set cached=False"),
        (pyg.ChebConv(4, 4, 2, flow="target_to_source"), "degrees of the other direction than its messages have"),
        (pyg.GCNConv(4, 4, node_dim=1), "node_dim=1"),
        (pyg.GCNConv(4, 4, decomposed_layers=2), "decomposed_layers=2 is not read; set decomposed_layers=1"),
        (pyg.GCNConv(4, 4, aggr="mean"), "a degree-normalised mean"),
        (pyg.SAGEConv(4, 4, aggr="mul"), "aggr='mul' (MulAggregation): products cannot be undone"),
        (pyg.SAGEConv(4, 4, aggr="lstm"), "depends on the order of the edges"),
        (pyg.SAGEConv(4, 4, aggr=["mean", "mul"]), "(MulAggregation): products cannot be undone"),
        (pyg.SAGEConv(4, 4, aggr=pyg.QuantileAggregation(0.9)), "of quantiles the engine keeps the lower median"),
        (pyg.SimpleConv("mean", combine_root="self_loop"), "mean with added self-loops"),
    ],
)
def test_layers(layer, reason):
    refuses(Wrap(layer), f"layer ({type(layer).__name__})", reason)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (pyg.LayerNorm(4), "mode='graph' takes mean and deviation over all vertices even in eval mode"),
        (pyg.GraphNorm(4), "all vertices even in eval mode"),
        (pyg.InstanceNorm(4), "all vertices even in eval mode"),
        (pyg.PairNorm(), "all vertices even in eval mode"),
        (pyg.MeanSubtractionNorm(), "all vertices even in eval mode"),
        (pyg.GraphSizeNorm(), "number of vertices"),
        (pyg.DiffGroupNorm(4, 2), "groups are not supported"),
        (nn.BatchNorm1d(4, track_running_stats=False), "without running statistics"),
        (pyg.BatchNorm(4, track_running_stats=False), "without running statistics"),
        (nn.LSTM(4, 4), "it runs over the vertices one after the other"),
        (nn.Softmax(dim=0), "dim=0 runs over all vertices"),
        (nn.MultiheadAttention(4, 1), "its attention runs over all vertices"),
        (pyg.AttentionalAggregation(nn.Linear(4, 1)), "its weights are a softmax over all vertices"),
    ],
)
def test_modules(layer, reason):
    refuses(Wrap(layer, lambda net, x, e, w: net.layer(x)), f"layer ({type(layer).__name__})", reason)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [(pyg.GPSConv(4, pyg.GCNConv(4, 4)), "its attention runs over all vertices")],
)
def test_layers_that_hold_layers(layer, reason):
    refuses(Wrap(layer), f"layer ({type(layer).__name__})", reason)


class OnColumns(nn.Module):
    """A module that may take everything an edge has."""

    def __init__(self, layer, how):
        super().__init__()
        self.layer, self.lin, self.how = layer, nn.Linear(4, 4), how

    def forward(self, x, edge_index, edge_weight, edge_attr, edge_type):
        return self.how(self, self.lin(x), edge_index, edge_weight, edge_attr, edge_type)


@pytest.mark.parametrize(
    ("layer", "how", "reason"),
    [
        (
            pyg.GCNConv(4, 4),
            lambda net, x, e, w, a, t: net.layer(x, e, a),
            "its edge_weight is the forward's edge_attr",
        ),
        (pyg.GCNConv(4, 4), lambda net, x, e, w, a, t: net.layer(x, e[:, t.sort()[1]]), "sort: this operation is not"),
        (pyg.GCNConv(4, 4), lambda net, x, e, w, a, t: net.lin(a), "computed from edge_attr alone"),
        (pyg.GCNConv(4, 4), lambda net, x, e, w, a, t: net.layer(net.lin(a), e), "first argument is not one row per"),
        (
            pyg.GINEConv(nn.Linear(4, 4)),
            lambda net, x, e, w, a, t: net.layer(x, e, w),
            "its edge_attr is one number per edge, not a row",
        ),
        (pyg.GINEConv(nn.Linear(4, 4)), lambda net, x, e, w, a, t: net.layer(x, e, x), "not one row per edge"),
        (
            pyg.GATConv(4, 4, edge_dim=4, fill_value="mul"),
            lambda net, x, e, w, a, t: net.layer(x, e, a),
            "fill_value='mul' is not supported; use 'mean', 'add', 'max', 'min' or a number",
        ),
        (
            pyg.GATConv(4, 4),
            lambda net, x, e, w, a, t: net.layer(x, e, return_attention_weights=True)[1][1],
            "its attention weights are one row per edge",
        ),
        (
            pyg.TransformerConv(4, 4),
            lambda net, x, e, w, a, t: x * net.layer(x, e, return_attention_weights=False)[1][1],
            "use the first of its results alone",
        ),
        (pyg.TransformerConv(4, 4), lambda net, x, e, w, a, t: net.layer(x, e, a), "needs edge_attr if it has an edge"),
        (pyg.GATv2Conv(4, 4), lambda net, x, e, w, a, t: net.layer(x, e, a), "edge_attr without an edge_dim"),
        (pyg.FastRGCNConv(4, 4, 2, aggr="max"), lambda net, x, e, w, a, t: net.layer(x, e, t), "use RGCNConv"),
        (pyg.FAConv(4), lambda net, x, e, w, a, t: net.layer(x, x, e, w), "edge_weight if normalize=False"),
        (
            pyg.SuperGATConv(4, 4),
            lambda net, x, e, w, a, t: net.layer(x, e, batch=x),
            "its argument batch is not read; leave batch out",
        ),
    ],
)
def test_columns_of_edges(layer, how, reason):
    refuses(OnColumns(layer, how), reason, edge_width=4, input_width=4)


def test_widths_of_attributes():
    with pytest.raises(ModelError, match=r"got GCNConv's without; leave edge_width out"):
        from_pyg(pyg.GCNConv(4, 4), edge_width=3)

    class Untold(nn.Module):
        def forward(self, x, edge_index, edge_attr):
            return x + (edge_attr @ torch.ones(5, 3)).sum()

    with pytest.raises(ModelError, match=r"states the edge attributes' width, got none in Untold; pass edge_width="):
        from_pyg(Untold(), input_width=3)


@pytest.mark.parametrize("norm", ["layer_norm", "graph_norm", "instance_norm", "pair_norm"])
@pytest.mark.parametrize("kind", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_global_norms_in_models_of_pyg(kind, norm):
    refuses(kind(4, 4, 2, norm=norm), "norm", "all vertices even in eval mode")


def test_norms_inside_an_mlp_are_named():
    refuses(Wrap(pyg.GINConv(pyg.MLP([4, 4, 4], norm="graph_norm"))), "layer.nn.norms.0 (GraphNorm)")
    refuses(Wrap(pyg.EdgeConv(nn.LSTM(8, 4))), "layer.nn (LSTM): it runs over the vertices one after the other")
    refuses(Wrap(pyg.GENConv(4, 4, norm="instance")), "layer.mlp.1 (InstanceNorm1d): this module is not supported")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (lambda net, x, e, w: x - x.mean(dim=0), "mean in Wrap: it reduces over all vertices, so that one update"),
        (lambda net, x, e, w: x.sum(dim=0, keepdim=True) + x, "sum in Wrap"),
        (lambda net, x, e, w: x[:1] + x, "getitem in Wrap: it picks rows"),
        (lambda net, x, e, w: F.dropout(x), "it is random in eval mode too; pass training=self.training"),
        (lambda net, x, e, w: F.softmax(x, dim=0), "dim=0"),
        (lambda net, x, e, w: F.normalize(x, p=-1.0), "p=-1.0 is not supported"),
        (lambda net, x, e, w: x.sort(dim=0)[0], "sort in Wrap: dim=0 runs over all vertices"),
        (lambda net, x, e, w: x @ x.t(), "it multiplies rows of different vertices"),
        (lambda net, x, e, w: x.T @ x, "as attention over all vertices does; keep one row per vertex"),
        (lambda net, x, e, w: x[e[0]][:5] + x[e[1]][:5], "getitem in Wrap: it picks rows"),
        (lambda net, x, e, w: torch.cat([x, x], dim=0), "a tensor that holds every vertex several times"),
        (lambda net, x, e, w: x.to(torch.float16), "would round the rows"),
        (
            lambda net, x, e, w: pyg.global_mean_pool(x, None),
            "mean in Wrap: it reduces over all vertices, so that one update",
        ),
        (lambda net, x, e, w: pyg.global_max_pool(x, None), "lg.Readout.from_pyg(module, graph, batch)"),
        (lambda net, x, e, w: x / x.size(0), "Wrap"),
        (lambda net, x, e, w: x if x.max() > 0 else -x, "max in Wrap"),
        (lambda net, x, e, w: net.layer(x, e, w.asinh()), "asinh: this operation is not supported"),
        (lambda net, x, e, w: net.layer(x, e, w + x[:, 0]), "it joins rows of vertices and of edges"),
        (lambda net, x, e, w: net.layer((x, x.relu()), e), "different rows for sources and targets"),
        (lambda net, x, e, w: net.layer(x, e, size=(3, 3)), "size"),
        (lambda net, x, e, w: net.layer(x, e, edge_attr=w), "a way that it does not accept"),
        (
            lambda net, x, e, w: (x, x),
            "it returns a tuple of 0: 4 columns per vertex, 1: 4 columns per vertex; pass outputs=0 ",
        ),
        (lambda net, x, e, w: {"x": x, "y": x}, "it returns a dict of 'x': 4 columns per vertex"),
    ],
)
def test_operations(how, reason):
    refuses(Wrap(pyg.GraphConv(4, 4), how), reason, weighted=True)


class Demanding(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(4, 4)

    def forward(self, x, edge_index, batch):
        return self.conv(x, edge_index)


def test_arguments_that_livegnn_cannot_supply():
    refuses(Demanding(), "Demanding.forward(..., batch)", "lg.Readout.from_pyg(module, graph, batch)")


class ReadsAttributes(Demanding):
    def forward(self, data):
        return self.conv(data.x, data.edge_index) + data.pos


def test_data_that_livegnn_cannot_supply():
    refuses(ReadsAttributes(), "data.pos", "read x, edge_index, edge_weight, edge_attr and edge_type only")


def test_modules_that_hide_what_they_do():
    hooked = Wrap(pyg.GCNConv(4, 4))
    hooked.layer.register_forward_hook(lambda module, args, result: 2 * result)
    refuses(hooked, "layer (GCNConv)", "hook")
    hooked = Wrap(pyg.GCNConv(4, 4))
    hooked.layer.register_message_forward_hook(lambda module, args, result: 2 * result)
    refuses(hooked, "layer (GCNConv)", "hook")
    refuses(pyg.GCN(-1, 4, 2), "convs.0.lin (Linear)", "lazy parameters")
    normed = Wrap(pyg.SAGEConv(4, 4))
    nn.utils.parametrizations.weight_norm(normed.lin)
    refuses(normed, "lin (ParametrizedLinear)", "remove_parametrizations")
    patched = Wrap(nn.Linear(4, 4), lambda net, x, e, w: net.layer(x))
    patched.layer.forward = lambda x: x
    refuses(patched, "layer (Linear)", "its forward was replaced")
    patched = Wrap(pyg.GraphConv(4, 4))
    patched.layer.message = lambda x_j, edge_weight: x_j * 2
    refuses(patched, "layer (GraphConv)", "its message was replaced")


class Unseen(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.convs = nn.Linear(4, 4), [pyg.GCNConv(4, 4)]

    def forward(self, x, edge_index):
        return self.convs[0](self.lin(x), edge_index)


def test_layers_in_a_plain_list():
    refuses(
        Unseen(),
        "GCNConv: it is made in the forward, or kept where PyTorch does not see it",
        "keep several in a ModuleList",
    )


class Random(Unseen):
    def forward(self, x, edge_index):
        return self.lin(x) + torch.randn(4)


def test_a_forward_that_is_random():
    with pytest.raises(ModelMismatch, match="Random"):
        from_pyg(Random())


class Lies(nn.Module):
    """Runs on a small graph as it does on no other."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(4, 4)

    def forward(self, x, edge_index):
        h = x.relu() if len(x) < 20 else x.relu() * 2.0
        return self.conv(x, edge_index) + h


def test_the_comparison_catches_what_tracing_misses():
    with pytest.raises(ModelMismatch, match=r"expected Lies's output .* at vertex \d+, column \d+ of a graph of"):
        from_pyg(Lies())


def test_what_is_no_module():
    with pytest.raises(ModelError, match=r"expected a torch.nn.Module, got int"):
        from_pyg(3)
    with pytest.raises(ModelError, match="pass input_width="):
        from_pyg(pyg.LGConv())
    with pytest.raises(ModelError, match="leave weighted out"):
        from_pyg(pyg.SAGEConv(3, 3), weighted=True)
    with pytest.raises(ModelError, match="weighted as True, False or None, got 'yes'"):
        from_pyg(pyg.GCNConv(3, 3), weighted="yes")
    broken = pyg.SAGEConv(3, 3)
    broken.lin_l.weight.data[0, 0] = torch.nan
    with pytest.raises(ModelError, match="finite weights"):
        from_pyg(broken)


def test_the_module_is_not_changed():
    module = pyg.GIN(4, 5, 2, 3, dropout=0.5, jk="cat")
    module.train()
    module.convs[0].eval()
    before = copy.deepcopy(module.state_dict())
    flags = {name: each.training for name, each in module.named_modules()}
    keys = {name: set(vars(each)) for name, each in module.named_modules()}
    from_pyg(module)
    assert {name: each.training for name, each in module.named_modules()} == flags
    assert {name: set(vars(each)) for name, each in module.named_modules()} == keys
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert all(each.requires_grad and each.grad is None for each in module.parameters())
    assert all(not each._forward_hooks for each in module.modules())


def test_a_bare_layer_is_named_by_its_type():
    refuses(pyg.DNAConv(4), "got DNAConv: ")


class Branching(nn.Module):
    """Turns its output round where the graph's size says so."""

    def __init__(self, decide):
        super().__init__()
        self.conv, self.decide = pyg.SAGEConv(4, 2), decide

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return -h if self.decide(x, edge_index) else h


@pytest.mark.parametrize(
    "decide",
    [
        lambda x, edge_index: x.size(0) > 1000,
        lambda x, edge_index: x.shape[0] // 10 >= 100,
        lambda x, edge_index: edge_index.size(1) < 5000,
        lambda x, edge_index: min(3, edge_index.shape[1]) == 3,
    ],
)
def test_a_branch_on_the_size_of_the_graph_is_refused(decide):
    with pytest.raises(ModelUnsupported, match="decides by the number of vertices or edges"):
        from_pyg(Branching(decide))


def test_a_size_that_fx_does_not_see_is_found_by_a_large_graph():
    with pytest.raises(ModelMismatch, match="a graph of 6000 vertices"):
        from_pyg(Branching(lambda x, edge_index: len(x) > 2000))


def without_edges(net, x, edge_index, edge_weight):
    if edge_index.numel() == 0:
        return 2 * x
    return net.layer(x, edge_index)


def test_a_forward_that_does_something_else_without_edges():
    with pytest.raises(ModelMismatch, match=r"as `if edge_index\.numel\(\) == 0` does: take that out"):
        from_pyg(Wrap(pyg.GCNConv(4, 4), without_edges))


class OverTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(4, 4)

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict["user"], edge_index_dict["user", "knows", "user"])


def test_dicts_by_type_without_layers_that_name_the_types():
    refuses(OverTypes(), "if the forward takes dicts by type, pass metadata=data.metadata() to from_pyg")
    model = from_pyg(OverTypes(), metadata=(["user"], [("user", "knows", "user")]))
    assert model.vertex_types == ("user",)


class Seeds(Wrap):
    def forward(self, x, edge_index, batch_size):
        return self.layer(x, edge_index)[:batch_size]


def test_a_number_is_no_column_of_the_edges():
    with pytest.raises(ModelUnsupported) as caught:
        from_pyg(Seeds(pyg.GCNConv(4, 4)))
    assert str(caught.value).endswith("give this argument a default")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (
            lambda net, x, e, w: nn.Linear(4, 2)(x),
            "Linear: it is made in the forward, or kept where PyTorch does not see",
        ),
        (lambda net, x, e, w: net.layer(x, torch.cat([e, e], dim=1)), "it computes with edge_index"),
        (lambda net, x, e, w: x * e[0].size(0), "size in Wrap"),
        (lambda net, x, e, w: net.layer(x, utils.to_undirected(e)), "make the graph undirected"),
        (lambda net, x, e, w: net.layer(x, utils.coalesce(e)), "coalesce the edges that the graph is made of"),
        (lambda net, x, e, w: x * utils.degree(e[0]).view(-1, 1), "degree"),
        (lambda net, x, e, w: net.layer(x, e.flip(1)), "into another order, but not what goes with them; use flip(0)"),
        (lambda net, x, e, w: net.layer(x, e[[0, 0]]), "the edges of a graph that changes are not fixed"),
        (lambda net, x, e, w: net.layer(x, torch.stack([e[1], e[1]])), "it makes other edges than the graph's"),
        (lambda net, x, e, w: net.layer(x, gcn_norm(e)[0].flip(0), gcn_norm(e)[1]), "degrees of the other direction"),
        (lambda net, x, e, w: x * utils.degree(e[1]).view(-1, 1), "it ends with the last vertex that has an edge"),
        (lambda net, x, e, w: net.layer(x, gcn_norm(e)[0], gcn_norm(e)[1]), "normalises what was changed before"),
        (lambda net, x, e, w: net.layer(x, utils.remove_self_loops(e)[0], w), "its weights are not those of its edges"),
        (lambda net, x, e, w: net.layer(x, utils.add_self_loops(utils.add_self_loops(e)[0])[0]), "added already"),
    ],
)
def test_what_a_forward_does_to_its_edges(how, reason):
    refuses(Wrap(pyg.GCNConv(4, 4), how), reason, weighted=True)
