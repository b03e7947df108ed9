"""What an import over vertex types refuses, and how it says so."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelError, ModelUnsupported

TO, PEER, BACK = ("A", "to", "B"), ("A", "peer", "A"), ("B", "back", "A")


class Over(nn.Module):
    """One HeteroConv and a forward of the test's own."""

    def __init__(self, convs, forward=None, aggr="sum"):
        super().__init__()
        self.conv, self.how = pyg.HeteroConv(convs, aggr), forward

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict) if self.how is None else self.how(self, x_dict, edge_index_dict)


def sage():
    return {TO: pyg.SAGEConv((4, 2), 3), PEER: pyg.SAGEConv(4, 3), BACK: pyg.SAGEConv((2, 4), 3)}


def refuses(module, *parts, error=ModelUnsupported, **options):
    with pytest.raises(error) as caught:
        lg.from_pyg(module, **options)
    message = str(caught.value)
    for part in ("[from_pyg] expected", "; ", *parts):
        assert part in message, message


@pytest.mark.filterwarnings("ignore:There exist node types")
@pytest.mark.parametrize(
    ("conv", "reason"),
    [
        (pyg.GCNConv(4, 3, add_self_loops=False), "norm gcn within one vertex type"),
        (pyg.TAGConv(4, 3), "it does not go from one type of vertex to another"),
        (pyg.PNAConv(4, 4, ["mean"], ["identity"], torch.tensor([0, 2])), "rows of one vertex type"),
        (pyg.AGNNConv(add_self_loops=False), "rows of the target's type"),
        (pyg.GatedGraphConv(4, 2), "docs/hetero.md names"),
        (pyg.ChebConv(4, 3, 2), "norm laplacian within one vertex type"),
        (pyg.ChebConv(4, 3, 2, normalization="rw"), "norm walk within one vertex type"),
        (pyg.RGCNConv(4, 3, 2), "it is not given the edge_type"),
    ],
)
def test_layers_between_two_types(conv, reason):
    refuses(Over({TO: conv}), type(conv).__name__, "conv.convs", reason, input_width=4)


def test_layers_for_other_kinds_of_types():
    refuses(pyg.HANConv(4, 4, (["A", "B"], [TO, BACK])), "a mean over all vertices")
    refuses(pyg.HEATConv(4, 4, 2, 2, 2, 2, 2), "forward(..., node_type)", metadata=(["A"], [PEER]))


def swapped(module, x_dict, edge_index_dict):
    return module.conv({"A": x_dict["B"], "B": x_dict["A"]}, edge_index_dict)


def other_edges(module, x_dict, edge_index_dict):
    edges = dict(edge_index_dict)
    return module.conv(x_dict, edges | {TO: edges[BACK]})


def mixed(module, x_dict, edge_index_dict):
    h = module.conv(x_dict, edge_index_dict)
    return {"A": h["A"] + h["B"]}


def over_rows(module, x_dict, edge_index_dict):
    h = module.conv(x_dict, edge_index_dict)
    return {"A": h["A"] - h["A"].mean(dim=0)}


def misnamed(module, x_dict, edge_index_dict):
    h = module.conv(x_dict, edge_index_dict)
    return {"A": h["B"]}


def nothing(module, x_dict, edge_index_dict):
    return {}


def pairs(module, x_dict, edge_index_dict):
    return (module.conv(x_dict, edge_index_dict)["A"], 1)


@pytest.mark.parametrize(
    ("forward", "reason", "error"),
    [
        (swapped, "not of the types of vertices that its edges join", ModelUnsupported),
        (other_edges, "not of the types of vertices that its edges join", ModelUnsupported),
        (mixed, "rows of one vertex type", ModelError),
        (over_rows, "it reduces over all vertices", ModelUnsupported),
        (misnamed, "rows of another type as 'A'", ModelUnsupported),
        (nothing, "it returns no rows", ModelUnsupported),
        (pairs, "it returns a tuple of 2 results; pass outputs=0 or outputs=1", ModelUnsupported),
    ],
)
def test_forwards_that_cannot_be_kept(forward, reason, error):
    with pytest.raises(error, match=reason):
        lg.from_pyg(Over(sage(), forward), input_width={"A": 4, "B": 2})


def test_joins_that_are_not_known():
    refuses(Over(sage() | {("B", "near", "B"): pyg.SAGEConv(2, 3)}, aggr=None), "it does not return rows")
    refuses(Over(sage() | {("B", "near", "B"): pyg.SAGEConv(2, 3)}, aggr="mul"), "its forward fails on a small graph")


def test_widths_that_no_layer_tells():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.HeteroConv({PEER: pyg.SimpleConv()})

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    refuses(Sums(), "width of the features of 'A'", "pass input_width={'A': ...}", error=ModelError)
    assert lg.from_pyg(Sums(), input_width={"A": 7}).input_widths == {"A": 7}
    assert lg.from_pyg(Sums(), input_width=7).output_widths == {"A": 7}
    refuses(Sums(), "input_width for vertex types ('A',), got 'B'", error=ModelError, input_width={"B": 7})
    refuses(nn.Linear(2, 2), "one input_width for one kind of vertex", error=ModelError, input_width={"A": 2})


@pytest.mark.parametrize("metadata", [3, (["A"],), (["A", "A"], [PEER]), (["A"], [TO]), (["A"], [("A", "A")])])
def test_bad_metadata(metadata):
    refuses(nn.Linear(2, 2), "expected metadata (vertex types, edge types", error=ModelError, metadata=metadata)


def test_arguments_that_are_not_supplied():
    class Clocked(Over):
        def forward(self, x_dict, edge_index_dict, time_dict):
            return self.conv(x_dict, edge_index_dict)

    refuses(Clocked(sage()), "Clocked.forward(..., time_dict)", "give this argument a default")

    class OnData(Over):
        def forward(self, data):
            return self.conv(data.x_dict, data.time_dict)

    refuses(OnData(sage()), "data.time_dict", input_width={"A": 4, "B": 2})
    refuses(Over(sage()), "a forward with edge_weight", error=ModelError, weighted=True)
    refuses(Over(sage()), "a forward with edge_attr", error=ModelError, edge_width=2)


def test_edge_types_in_another_order_than_hgt_needs():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.HGTConv({"A": 4, "B": 2}, 4, (["A", "B"], [TO, BACK]))

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, {triple: edge_index_dict[triple] for triple in (BACK, TO)})

    refuses(Turned(), "another order than its metadata's")
