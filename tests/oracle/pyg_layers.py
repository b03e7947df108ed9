"""One layer of every supported convolution of PyG; where options decide on its exactness, one of each kind."""

import torch
from torch import nn
from torch_geometric import nn as pyg

DEGREES = torch.tensor([1, 3, 2])


class WithFirst(nn.Module):
    """For layers that read the first layer's rows, too."""

    def __init__(self, conv):
        super().__init__()
        self.lin, self.conv = nn.Linear(4, 4), conv

    def forward(self, x, edge_index):
        return self.conv(self.lin(x), x, edge_index)


class OfVertexTypes(nn.Module):
    """Types of vertices are the first column of the features."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.HEATConv(3, 4, 2, 2, 3, 2, 3, heads=2)

    def forward(self, x, edge_index, edge_type, edge_attr):
        return self.conv(x[:, 1:], edge_index, x[:, 0].long(), edge_type, edge_attr)


def pna(**options):
    return pyg.PNAConv(4, 4, ["mean", "std"], ["identity", "linear"], DEGREES, **options)


#: Where options decide, one layer of each kind: without a Gather, and with one.
LAYERS = {
    pyg.SimpleConv: [lambda: pyg.SimpleConv("mean"), lambda: pyg.SimpleConv("softmax")],
    pyg.GCNConv: [lambda: pyg.GCNConv(4, 3)],
    pyg.SAGEConv: [lambda: pyg.SAGEConv(4, 3, aggr="std"), lambda: pyg.SAGEConv(4, 3, aggr="softmax")],
    pyg.GraphConv: [
        lambda: pyg.GraphConv(4, 3, aggr="median"),
        lambda: pyg.GraphConv(4, 3, aggr="softmax"),
    ],
    pyg.ChebConv: [lambda: pyg.ChebConv(4, 3, 3)],
    pyg.TAGConv: [lambda: pyg.TAGConv(4, 3)],
    pyg.GINConv: [lambda: pyg.GINConv(nn.Linear(4, 3)), lambda: pyg.GINConv(nn.Linear(4, 3), aggr="softmax")],
    pyg.SGConv: [lambda: pyg.SGConv(4, 3)],
    pyg.SSGConv: [lambda: pyg.SSGConv(4, 3, 0.1)],
    pyg.APPNP: [lambda: pyg.APPNP(2, 0.1)],
    pyg.GCN2Conv: [lambda: WithFirst(pyg.GCN2Conv(4, 0.1))],
    pyg.LGConv: [lambda: pyg.LGConv()],
    pyg.MixHopConv: [lambda: pyg.MixHopConv(4, 3)],
    pyg.GATConv: [lambda: pyg.GATConv(4, 3, heads=2), lambda: pyg.GATConv(4, 3, edge_dim=2)],
    pyg.GATv2Conv: [lambda: pyg.GATv2Conv(4, 3)],
    pyg.TransformerConv: [lambda: pyg.TransformerConv(4, 3)],
    pyg.AGNNConv: [lambda: pyg.AGNNConv()],
    pyg.SuperGATConv: [lambda: pyg.SuperGATConv(4, 3)],
    pyg.FeaStConv: [lambda: pyg.FeaStConv(4, 3)],
    pyg.GINEConv: [
        lambda: pyg.GINEConv(nn.Linear(4, 3), edge_dim=2),
        lambda: pyg.GINEConv(nn.Linear(4, 3), edge_dim=2, aggr="median"),
    ],
    pyg.NNConv: [
        lambda: pyg.NNConv(4, 3, nn.Linear(2, 12)),
        lambda: pyg.NNConv(4, 3, nn.Linear(2, 12), aggr="min"),
    ],
    pyg.CGConv: [lambda: pyg.CGConv(4)],
    pyg.ResGatedGraphConv: [lambda: pyg.ResGatedGraphConv(4, 3)],
    pyg.EdgeConv: [lambda: pyg.EdgeConv(nn.Linear(8, 3)), lambda: pyg.EdgeConv(pyg.MLP([8, 3, 3], norm=None))],
    pyg.FAConv: [lambda: WithFirst(pyg.FAConv(4))],
    pyg.PDNConv: [lambda: pyg.PDNConv(4, 3, 2, 5)],
    pyg.GMMConv: [lambda: pyg.GMMConv(4, 3, 2, 5), lambda: pyg.GMMConv(4, 3, 2, 5, aggr="max")],
    pyg.GeneralConv: [lambda: pyg.GeneralConv(4, 3), lambda: pyg.GeneralConv(4, 3, attention=True)],
    pyg.GENConv: [lambda: pyg.GENConv(4, 3, aggr="mean"), lambda: pyg.GENConv(4, 3)],
    pyg.RGCNConv: [lambda: pyg.RGCNConv(4, 3, 2)],
    pyg.FastRGCNConv: [lambda: pyg.FastRGCNConv(4, 3, 2)],
    pyg.HEATConv: [OfVertexTypes],
    pyg.RGATConv: [
        lambda: pyg.RGATConv(4, 3, 2, attention_mechanism="within-relation"),
        lambda: pyg.RGATConv(4, 3, 2, attention_mechanism="within-relation", edge_dim=2),
    ],
    pyg.FiLMConv: [lambda: pyg.FiLMConv(4, 3)],
    pyg.PNAConv: [pna, lambda: pna(pre_layers=2)],
    pyg.EGConv: [lambda: pyg.EGConv(4, 4, num_heads=2), lambda: pyg.EGConv(4, 4, ["symnorm", "max"], num_heads=2)],
    pyg.GatedGraphConv: [lambda: pyg.GatedGraphConv(4, 2), lambda: pyg.GatedGraphConv(4, 2, aggr="softmax")],
    pyg.ARMAConv: [lambda: pyg.ARMAConv(4, 3)],
    pyg.LEConv: [lambda: pyg.LEConv(4, 3), lambda: pyg.LEConv(4, 3, aggr="softmax")],
    pyg.ClusterGCNConv: [lambda: pyg.ClusterGCNConv(4, 3)],
    pyg.WLConvContinuous: [lambda: pyg.WLConvContinuous()],
    pyg.MFConv: [lambda: pyg.MFConv(4, 3, 2), lambda: pyg.MFConv(4, 3, 2, aggr="softmax")],
}
