"""Modules of users whose result is one row per edge: what the tests import."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import scatter


class Updating(nn.Module):
    """Any layers with edge attributes, between them updates of the edges' rows, and a classifier of edges."""

    def __init__(self, layer, width=8, updates=True, pairs="T"):
        super().__init__()
        self.width, self.updates, self.pairs = width, updates, pairs
        self.vertex, self.edge = nn.Linear(4, width), nn.Linear(3, width)
        self.layers = nn.ModuleList(layer(width) for _ in range(2))
        self.norms = nn.ModuleList(pyg.BatchNorm(width) for _ in range(2))
        self.change = nn.ModuleList(
            nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(2)
        )
        self.last = nn.Sequential(pyg.Linear(3 * width, 6), nn.ReLU(), nn.Dropout(0.5), pyg.Linear(6, 2))

    def forward(self, x, edge_index, edge_attr):
        u, v = edge_index
        x, e = self.vertex(x), self.edge(edge_attr)
        for layer, norm, change in zip(self.layers, self.norms, self.change, strict=True):
            x = 0.5 * (x + F.relu(norm(layer(x, edge_index, e))))
            if self.updates:
                e = e + change(torch.cat([x[u], x[v], e], dim=-1)) / 2
        ends = {"T": edge_index.T, "t": edge_index.t(), "transpose": edge_index.transpose(0, 1)}.get(self.pairs)
        both = x[edge_index].permute(1, 0, 2) if ends is None else x[ends]
        both = both.reshape(-1, 2 * self.width).relu()
        return self.last(torch.cat((both, e.view(-1, e.shape[1])), 1))


def gine(width):
    return pyg.GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), edge_dim=width)


def against(width):
    """Its messages go against the edges, and the edges' rows are made of both ends."""
    return pyg.GINEConv(nn.Linear(width, width), edge_dim=width, flow="target_to_source")


def pna(width):
    return pyg.PNAConv(
        width, width, ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"],
        deg=torch.tensor([1, 4, 3, 2]), edge_dim=width, towers=2,
    )  # fmt: skip


def gat(width, kind=pyg.GATConv, **options):
    return kind(width, width // 2, 2, edge_dim=width, add_self_loops=True, **options)


class Scored(nn.Module):
    """GCN, and a function of both ends' rows."""

    def __init__(self, score, **parts):
        super().__init__()
        self.conv, self.score = pyg.GCNConv(4, 6), score
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x, edge_index):
        z = self.conv(x, edge_index).relu()
        return self.score(self, z, z[edge_index[0]], z[edge_index[1]], edge_index)


class Directed(nn.Module):
    """Layers along the edges and against them, and rows at the ends of edges that are turned round."""

    def __init__(self, read=lambda x, e: x[e.T].flatten(1)):
        super().__init__()
        self.conv, self.back = pyg.DirGNNConv(pyg.SAGEConv(4, 6)), pyg.TransformerConv(6, 6, edge_dim=6)
        self.out, self.read = nn.Linear(12, 3), read

    def forward(self, x, edge_index):
        turned = edge_index.flip(0)
        x = self.conv(x, edge_index).relu()
        gap = (x[edge_index[0]] - x[edge_index[1]]).tanh()
        return self.out(self.read(self.back(x, turned, gap) + x, turned))


class Heads(nn.Module):
    """Rows of three dimensions at the ends of edges."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 6)

    def forward(self, x, edge_index):
        row, col = edge_index[0], edge_index[1]
        q = self.lin(x).view(-1, 2, 3)
        return (q[row, :] * q[col]).sum(dim=-1).softmax(dim=-1)


class Weighted(nn.Module):
    """GCN with weights or without, and the weight itself in the result."""

    def __init__(self, reads=True):
        super().__init__()
        self.conv, self.out, self.reads = pyg.GCNConv(4, 6), nn.Linear(6, 2), reads

    def forward(self, x, edge_index, edge_weight=None):
        h = self.conv(x, edge_index, edge_weight)
        rows = self.out(h[edge_index[0]] - h[edge_index[1]])
        return rows * edge_weight.unsqueeze(-1) if self.reads and edge_weight is not None else rows


class Computed(nn.Module):
    """Weights that a forward computes of columns and ends of edges, for layers along the edges and against them."""

    def __init__(self):
        super().__init__()
        self.edge, self.ends = nn.Linear(3, 1), nn.Linear(8, 1)
        self.gcn, self.back = pyg.GCNConv(4, 5), pyg.GCNConv(5, 5, flow="target_to_source")
        self.graph, self.out = pyg.GraphConv(5, 5), nn.Linear(11, 2)

    def forward(self, x, edge_index, edge_attr):
        u, v = edge_index
        weight = self.edge(edge_attr).squeeze(-1).sigmoid()
        gate = self.ends(torch.cat([x[u], x[v]], dim=-1)).squeeze(-1)
        h = self.gcn(x, edge_index, weight).relu()
        h = h + self.back(h, edge_index, weight) + self.back(h, edge_index.flip(0), weight)
        h = self.graph(h, edge_index.flip(0), gate) - self.graph(h, edge_index, gate)
        return self.out(torch.cat([h[u], h[v], weight.view(-1, 1)], dim=-1)) * gate.unsqueeze(-1)


class OfTypes(nn.Module):
    """The types of edges as rows of a table, in a layer against the edges and in the result."""

    def __init__(self):
        super().__init__()
        self.table, self.weight = nn.Embedding(3, 4), nn.Parameter(torch.rand(3))
        self.conv, self.back = pyg.GINEConv(nn.Linear(4, 4), flow="target_to_source"), pyg.GraphConv(4, 4)
        self.rgcn, self.out = pyg.RGCNConv(4, 4, 3), nn.Linear(12, 2)

    def forward(self, x, edge_index, edge_type):
        rows = self.table(edge_type)
        x = self.conv(x, edge_index, rows) + self.back(x, edge_index.flip(0), self.weight[edge_type])
        x = x.tanh() + self.rgcn(x, edge_index.flip(0), edge_type)
        return self.out(torch.cat([x[edge_index[0]], x[edge_index[1]], rows], dim=-1))


class OfTypesRecorded(OfTypes):
    """torch.fx cannot read it."""

    def forward(self, x, edge_index, edge_type):
        assert isinstance(x, torch.Tensor)
        return super().forward(x, edge_index, edge_type)


class WeightedAgainst(Weighted):
    """The same with messages against the edges, whose weights are the same."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(4, 6, flow="target_to_source")


class Recorded(Updating):
    """torch.fx cannot read it."""

    def forward(self, x, edge_index, edge_attr):
        assert isinstance(x, torch.Tensor)
        return super().forward(x, edge_index, edge_attr)


class Several(nn.Module):
    """A dict with rows of vertices, two results of edges, and a loss."""

    def __init__(self):
        super().__init__()
        self.conv, self.a, self.b = pyg.SAGEConv(4, 5), nn.Linear(10, 2), nn.Linear(10, 1)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).tanh()
        both = torch.cat([h[edge_index[0]], h[edge_index[1]]], dim=1)
        return {"rows": h, "kinds": self.a(both), "amount": self.b(both), "loss": h.pow(2).mean()}


class Scattering(Scored):
    """Sums of its own over edge_index: the whole module is followed through one run."""

    def forward(self, x, edge_index):
        z = self.conv(x, edge_index).relu()
        z = scatter(z[edge_index[0]], edge_index[1], 0, dim_size=x.size(0))
        return self.score(self, z, z, z, edge_index)


class ScatteringBack(Scored):
    """The same with sums at the sources of edges."""

    def forward(self, x, edge_index):
        z = self.conv(x, edge_index).relu()
        z = scatter(z[edge_index[1]] - z[edge_index[0]] / 2, edge_index[0], 0, dim_size=x.size(0), reduce="max")
        return self.score(self, z, z[edge_index[0]], z, edge_index.flip(0))


def paired(net, z, u, v, edge_index):
    return net.out(z[edge_index.T].reshape(-1, 12))


def unpacked(net, z, u, v, edge_index):
    source, target = z[edge_index]
    return net.out(torch.cat([source, target], dim=1)) - z[edge_index.t()[:, 1]][:, :2]


def mlp(net, z, u, v, edge_index):
    return net.out(torch.cat([u, v, (u - v).abs(), u * v], dim=-1)).sigmoid()


CASES = {
    "gine": lambda: Updating(gine),
    "gine without updates": lambda: Updating(gine, updates=False, pairs="t"),
    "gine, recorded": lambda: Recorded(gine, pairs="transpose"),
    "gine, against": lambda: Updating(against),
    "gine, against, recorded": lambda: Recorded(against),
    "gat, against": lambda: Updating(lambda width: gat(width, fill_value=0.5, flow="target_to_source")),
    "pna": lambda: Updating(pna, pairs=None),
    "gat": lambda: Updating(gat),
    "gatv2": lambda: Updating(lambda width: gat(width, pyg.GATv2Conv, fill_value="max", concat=True)),
    "transformer": lambda: Updating(lambda width: pyg.TransformerConv(width, 4, 2, edge_dim=width)),
    "dot product": lambda: Scored(lambda net, z, u, v, e: (u * v).sum(dim=-1)),
    "cosine": lambda: Scored(lambda net, z, u, v, e: (F.normalize(u, dim=-1) * F.normalize(v, dim=-1)).sum(-1)),
    "classifier": lambda: Scored(mlp, out=nn.Sequential(nn.Linear(24, 8), nn.LayerNorm(8), nn.ELU(), nn.Linear(8, 3))),
    "bilinear": lambda: Scored(lambda net, z, u, v, e: net.out(u, v), out=nn.Bilinear(6, 6, 2)),
    "log softmax": lambda: Scored(lambda net, z, u, v, e: F.log_softmax(net.out(u + v), -1), out=nn.Linear(6, 3)),
    "source alone": lambda: Scored(lambda net, z, u, v, e: net.out(u), out=nn.Linear(6, 1)),
    "pairs, followed": lambda: Scattering(paired, out=nn.Linear(12, 3)),
    "both ends, followed": lambda: Scattering(unpacked, out=nn.Linear(12, 2)),
    "pairs": lambda: Scored(paired, out=nn.Linear(12, 3)),
    "both ends": lambda: Scored(unpacked, out=nn.Linear(12, 2)),
    "pairs, followed back": lambda: ScatteringBack(paired, out=nn.Linear(12, 3)),
    "both ends, followed back": lambda: ScatteringBack(unpacked, out=nn.Linear(12, 2)),
    "both directions": Directed,
    "both directions, both ends": lambda: Directed(lambda x, e: x[e].permute(1, 0, 2).flatten(1)),
    "both directions, taken apart": lambda: Directed(lambda x, e: torch.cat([x[e[0]], x[e[1]].abs()], 1)),
    "computed": Computed,
    "types": OfTypes,
    "types, recorded": OfTypesRecorded,
    "heads": Heads,
    "weights": Weighted,
    "weights, against": WeightedAgainst,
    "weights in the layers": lambda: Weighted(reads=False),
}
