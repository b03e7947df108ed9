"""Modules with one row per graph: how their forward may pool, the parts that come out, and what is refused."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.nn.pool import glob
from torch_geometric.utils import contains_self_loops

import livegnn as lg
from livegnn.errors import DtypeInvalid, ModelError, ModelMismatch, ModelUnsupported, UsageError, WidthMismatch
from livegnn.models.pyg import pools


class Net(nn.Module):
    """Two convolutions, then whatever a test does with their rows."""

    def __init__(self, how=None):
        super().__init__()
        torch.manual_seed(3)
        self.one, self.two, self.how = pyg.GCNConv(4, 6), pyg.SAGEConv(6, 6), how
        self.sum, self.multi = pyg.SumAggregation(), pyg.MultiAggregation(["mean", "min"])
        self.last, self.wide = nn.Linear(6, 3), nn.Linear(12, 3)

    def rows(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)

    def forward(self, x, edge_index, batch):
        return self.how(self, self.rows(x, edge_index), edge_index, batch)


class OneGraph(Net):
    """A forward of one graph, which is given no batch."""

    def forward(self, x, edge_index):
        return self.how(self, self.rows(x, edge_index))


class OfData(Net):
    def forward(self, data):
        return self.how(self, self.rows(data.x, data.edge_index), data)


def averaged(net, h, e, batch):
    return net.last(global_mean_pool(h, batch))


@pytest.mark.parametrize(
    ("how", "pools", "head_width"),
    [
        (averaged, [("mean", 0, 6)], 6),
        (lambda net, h, e, b: net.last(net.sum(h, b)), [("add", 0, 6)], 6),
        (lambda net, h, e, b: net.last(pyg.pool.global_max_pool(h, batch=b, size=None)), [("max", 0, 6)], 6),
        (lambda net, h, e, b: global_add_pool(h, b), [("add", 0, 6)], None),
        (
            lambda net, h, e, b: net.wide(torch.cat([global_mean_pool(h, b), global_max_pool(h, b)], dim=1)),
            [("mean", 0, 6), ("max", 0, 6)],
            12,
        ),
        (
            lambda net, h, e, b: torch.cat([global_add_pool(h, b), global_add_pool(h.relu(), b)], dim=1),
            [("add", 0, 6), ("add", 6, 12)],
            None,
        ),
        (lambda net, h, e, b: global_add_pool(h, b) - global_add_pool(h, b) * 0.5, [("add", 0, 6)], 6),  # pooled once
        (lambda net, h, e, b: net.wide(net.multi(h, b)), [("mean", 0, 6), ("max", 6, 12)], 12),  # min: max of -h
    ],
)
def test_what_is_pooled(how, pools, head_width):
    parts = lg.graph_level_from_pyg(Net(how))
    assert parts.model.output_width == max(stop for _, _, stop in parts.pools)
    assert list(parts.pools) == pools
    assert (parts.head and parts.head.input_width) == head_width


def test_head_reads_the_pools_in_the_order_of_the_module():
    def swapped(net, h, e, b):
        first, second = global_max_pool(h, b), global_mean_pool(h, b)
        return torch.cat([second, first], dim=1)

    assert lg.graph_level_from_pyg(Net(swapped)).pools == (("mean", 0, 6), ("max", 0, 6))


def test_one_call_keeps_a_classifier_of_graphs_live():
    def classify(net, h, e, b):
        return F.log_softmax(net.wide(torch.cat([global_mean_pool(h, b), global_max_pool(h, b)], dim=1)), dim=-1)

    module = Net(classify).eval()
    x, edges = torch.randn(5, 4), torch.tensor([[0, 1, 3], [1, 2, 4]])
    graph = lg.Graph(x.numpy(), *edges.numpy())
    readout = lg.Readout.from_pyg(module, graph, [0, 0, 0, 1, 1], threads=1)
    updates = lg.Updates()
    updates.add_edge(4, 3)
    readout.engine.apply(updates)
    with torch.no_grad():
        want = module(x, torch.cat([edges, torch.tensor([[4], [3]])], dim=1), torch.tensor([0, 0, 0, 1, 1]))
    np.testing.assert_allclose(readout.rows(), want, rtol=1e-5, atol=1e-6)
    assert readout.predict().tolist() == want.argmax(dim=1).tolist()
    assert readout.pooled().shape == (2, 12)
    readout.verify()


@pytest.mark.parametrize(
    "how",
    [
        lambda net, h: net.last(global_mean_pool(h, None)),
        lambda net, h: net.last(h.mean(dim=0, keepdim=True)),
        lambda net, h: net.last(h.sum(0)),
        lambda net, h: net.last(h.max(dim=0)[0]),
        lambda net, h: net.last(h.min(dim=0).values),
        lambda net, h: net.last(net.sum(h)),
    ],
)
def test_a_forward_without_batch_is_of_one_graph(how):
    module = OneGraph(how).eval()
    x, edges = torch.randn(4, 4), torch.tensor([[0, 1], [1, 2]])
    readout = lg.Readout.from_pyg(module, lg.Graph(x.numpy(), *edges.numpy()))
    with torch.no_grad():
        np.testing.assert_allclose(readout.rows()[0], module(x, edges).reshape(-1), rtol=1e-5, atol=1e-6)


def test_a_forward_of_data_reads_its_batch():
    parts = lg.graph_level_from_pyg(OfData(lambda net, h, data: net.last(global_add_pool(h, data.batch))))
    assert parts.pools == (("add", 0, 6),)


def test_sequential_and_functions_kept_as_attributes():
    net = pyg.Sequential(
        "x, edge_index, batch",
        [(pyg.GCNConv(4, 3), "x, edge_index -> x"), nn.ReLU(), (global_max_pool, "x, batch -> x"), nn.Linear(3, 2)],
    )
    assert lg.graph_level_from_pyg(net).pools == (("max", 0, 3),)


def test_weights_are_read_where_the_graph_has_them():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.GCNConv(4, 3)

        def forward(self, x, edge_index, edge_weight=None, batch=None):
            return global_mean_pool(self.conv(x, edge_index, edge_weight), batch)

    class Depends(Weighted):
        def forward(self, x, edge_index, edge_weight=None, batch=None):
            pooled = super().forward(x, edge_index, edge_weight, batch)
            return pooled if edge_weight is None else pooled.relu()

    assert lg.graph_level_from_pyg(Weighted()).model.weights == "optional"
    assert lg.graph_level_from_pyg(Weighted(), weighted=False).model.weights == "none"
    with pytest.raises(ModelUnsupported, match="differ with weights; pass weighted="):
        lg.graph_level_from_pyg(Depends())
    assert lg.graph_level_from_pyg(Depends(), weighted=True).head is not None


def test_a_forward_that_must_be_recorded():
    def how(net, h, e, b):
        if h.sum().item() > 1e30:  # fx cannot decide this; a recording can
            return h
        return averaged(net, h, e, b)

    with pytest.raises(ModelUnsupported, match="sum in Net: it reduces over all vertices"):
        lg.graph_level_from_pyg(Net(how))  # what decides reads all vertices

    def by_shape(net, h, e, b):
        width = sum(1 for _ in range(int(h.shape[1])))  # fx refuses to iterate over it
        return net.wide(torch.cat([net.sum(h, b), global_max_pool(h, b)], dim=1)) / width

    assert lg.graph_level_from_pyg(Net(by_shape)).pools == (("add", 0, 6), ("max", 0, 6))


# ---- what is refused


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (lambda net, h, e, b: h, "Net.forward: it returns a row per vertex; import it with lg.from_pyg(module)"),
        (lambda net, h, e, b: (global_add_pool(h, b), h), "it returns a tuple"),
        (lambda net, h, e, b: global_add_pool(h + global_add_pool(h, b)[b], b), "it gives rows of graphs back to"),
        (lambda net, h, e, b: h - global_mean_pool(h, b)[b], "it gives rows of graphs back to vertices"),
        (lambda net, h, e, b: global_add_pool(net.two(global_add_pool(h, b), e), b), "two (SAGEConv): it gives rows"),
        (lambda net, h, e, b: net.two(global_add_pool(h, b), e), "sends rows of graphs along edges"),
        (lambda net, h, e, b: h + global_add_pool(h, b), "add: it joins rows of vertices with rows of graphs"),
        (lambda net, h, e, b: global_add_pool(global_add_pool(h, b), b), "it pools what is pooled already"),
        (lambda net, h, e, b: global_add_pool(h, b, 4), "size= fixes the number of graphs; leave it out"),
        (lambda net, h, e, b: global_add_pool(h, e), "it pools by something else than the vertices' batch"),
        (lambda net, h, e, b: global_add_pool(h, None), "it pools the vertices of all graphs together"),
        (lambda net, h, e, b: net.sum(h), "sum (SumAggregation): it pools the vertices of all graphs together"),
        (lambda net, h, e, b: net.sum(h, ptr=b), "it is not called as aggregation(x, batch)"),
        (lambda net, h, e, b: net.sum(h, b, dim=1), "dim=1 does not run over the vertices"),
        (lambda net, h, e, b: h.mean(dim=0, keepdim=True), "it pools the vertices of all graphs together"),
        (lambda net, h, e, b: F.normalize(global_add_pool(h, b), dim=0), "dim=0"),
    ],
)
def test_operations_that_are_refused(how, reason):
    with pytest.raises(ModelUnsupported) as caught:
        lg.graph_level_from_pyg(Net(how))
    assert reason in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("pool", "call", "reason"),
    [
        (pyg.SortAggregation(2), lambda p, h, e, b: p(h, b), "it sorts a graph's vertices"),
        (pyg.Set2Set(6, 2), lambda p, h, e, b: p(h, b), "again and again by a softmax"),
        (pyg.AttentionalAggregation(nn.Linear(6, 1)), lambda p, h, e, b: p(h, b), "a softmax over all vertices"),
        (pyg.SoftmaxAggregation(), lambda p, h, e, b: p(h, b), "a softmax over all vertices"),
        (pyg.MedianAggregation(), lambda p, h, e, b: p(h, b), "medians over a graph's vertices are not pooled"),
        (pyg.MultiAggregation(["mean", "std"]), lambda p, h, e, b: p(h, b), "StdAggregation in pool (Multi"),
        (pyg.MultiAggregation(["mean", "max"], mode="sum"), lambda p, h, e, b: p(h, b), "mode='sum'"),
        (pyg.TopKPooling(6), lambda p, h, e, b: p(h, e, None, b)[0], "another, smaller graph of each graph"),
        (pyg.SAGPooling(6), lambda p, h, e, b: p(h, e, None, b)[0], "another, smaller graph of each graph"),
        (pyg.GraphNorm(6), lambda p, h, e, b: global_add_pool(p(h, b), b), "its statistics run over all vertices"),
    ],
)
def test_pools_that_are_refused(pool, call, reason):
    net = Net(lambda net, h, e, b: call(net.pool, h, e, b))
    net.pool = pool
    with pytest.raises(ModelUnsupported) as caught:
        lg.graph_level_from_pyg(net)
    assert reason in str(caught.value), str(caught.value)
    assert "pool (" in str(caught.value)


def test_data_does_not_tell_the_number_of_graphs():
    with pytest.raises(
        ModelUnsupported, match=r"data\.num_graphs: the number of graphs is not fixed; pool by data.batch"
    ):
        lg.graph_level_from_pyg(OfData(lambda net, h, data: global_add_pool(h, data.batch, data.num_graphs)))


def test_from_pyg_names_the_call_to_use():
    with pytest.raises(ModelUnsupported, match=r"lg\.Readout\.from_pyg\(module, graph, batch\)"):
        lg.from_pyg(Net(averaged))
    with pytest.raises(ModelUnsupported, match=r"mean in OfData: .*lg\.Readout\.from_pyg"):
        lg.from_pyg(OfData(lambda net, h, data: global_mean_pool(h, data.batch)))


def test_what_the_import_misread_is_found_by_the_comparison(monkeypatch):
    monkeypatch.setitem(pools._KINDS, "mean", "add")
    with pytest.raises(ModelMismatch, match="at graph 0, column 0 of 1 graphs"):
        lg.graph_level_from_pyg(Net(averaged))


def test_bad_arguments_leave_the_graph_alone():
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1])
    with pytest.raises(UsageError, match="livegnn Graph, got Engine"):
        lg.Readout.from_pyg(Net(averaged), lg.Engine(lg.Model([lg.layers.LG()], input_width=4), graph))
    with pytest.raises(ModelError, match=r"expected a torch.nn.Module, got int"):
        lg.graph_level_from_pyg(3)
    attached = len(graph.host.consumers)
    for groups, kind in (([0, 1], WidthMismatch), ([0.5] * 4, DtypeInvalid)):
        with pytest.raises(kind):
            lg.Readout.from_pyg(Net(averaged), graph, groups)
    assert len(graph.host.consumers) == attached
    typed = lg.Graph({"a": np.eye(2, dtype=np.float32)}, {("a", "to", "a"): [0]}, {("a", "to", "a"): [1]})
    with pytest.raises(ModelUnsupported, match="one kind of vertex"):
        lg.Readout.from_pyg(Net(averaged), typed)


def test_pools_compute_as_ever_after_an_import_and_after_a_failed_one():
    before = glob.scatter, pyg.Aggregation.__call__
    lg.graph_level_from_pyg(Net(averaged))
    with pytest.raises(ModelUnsupported):
        lg.graph_level_from_pyg(Net(lambda net, h, e, b: h))
    assert (glob.scatter, pyg.Aggregation.__call__) == before
    assert global_add_pool(torch.ones(3, 1), torch.tensor([0, 0, 2])).tolist() == [[2.0], [0.0], [1.0]]


class LoopsDecide(pyg.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return out if contains_self_loops(edge_index) else out * 2

    def message(self, x_j):
        return x_j


def test_graphs_of_every_form_are_compared():
    class Pooled(nn.Module):
        def __init__(self, conv, before):
            super().__init__()
            self.lin, self.conv, self.before = nn.Linear(5, 5), conv, before

        def forward(self, x, edge_index, batch):
            return global_add_pool(self.conv(self.lin(self.before(x)), edge_index), batch)

    with pytest.raises(ModelUnsupported, match="it picks self-loops alone"):
        lg.graph_level_from_pyg(Pooled(LoopsDecide(), lambda x: x))
    with pytest.raises(ModelMismatch, match="some of whose features are 0"):
        lg.graph_level_from_pyg(
            Pooled(pyg.SAGEConv(5, 5), lambda x: x + torch.sigmoid(1 / x.norm(dim=1, keepdim=True)))
        )
