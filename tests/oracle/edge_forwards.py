"""Modules of users that take edge_index apart in a forward, without message passing of PyG: what the tests import."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    degree,
    get_laplacian,
    scatter,
    softmax,
    spmm,
    to_torch_coo_tensor,
)


class EdgeNetwork(nn.Module):
    """Attributes that a forward computes of both ends of the edges, for the next layer."""

    def __init__(self, recorded=False):
        super().__init__()
        self.node, self.edge, self.norm = nn.Linear(4, 8), nn.Linear(3, 8), nn.BatchNorm1d(8)
        self.update = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 8))
        self.first, self.second = pyg.GINEConv(nn.Linear(8, 8)), pyg.GINEConv(nn.Linear(8, 5))
        self.recorded = recorded

    def forward(self, x, edge_index, edge_attr):
        if self.recorded:
            assert isinstance(x, torch.Tensor)  # torch.fx gives up here
        src, dst = edge_index
        x, edge_attr = self.node(x), self.edge(edge_attr)
        x = self.first(x, edge_index, edge_attr)
        edge_attr = edge_attr + self.update(torch.cat([x[src], x[dst], edge_attr], -1)) / 2
        return self.second(x, edge_index, self.norm(edge_attr))


class Gated(nn.Module):
    """Attributes times a score of both ends, by index_select."""

    def __init__(self):
        super().__init__()
        self.node, self.edge, self.conv = nn.Linear(4, 8), nn.Linear(3, 8), pyg.GINEConv(nn.Linear(8, 5))

    def forward(self, x, edge_index, edge_attr):
        x = self.node(x)
        source, target = x.index_select(0, edge_index[0]), torch.index_select(x, 0, edge_index[1])
        gate = torch.sigmoid((source * target).sum(-1, keepdim=True))
        return self.conv(x, edge_index, gate * self.edge(edge_attr))


class Written(nn.Module):
    """A forward of one function how(x, edge_index, edge_weight), between two linear layers."""

    def __init__(self, how, width=4):
        super().__init__()
        self.first, self.last, self.how = nn.Linear(width, 6), nn.Linear(6, 3), how

    def forward(self, x, edge_index):
        return self.last(self.how(self.first(x).tanh(), edge_index, None))


class Weighted(Written):
    def forward(self, x, edge_index, edge_weight):
        return self.last(self.how(self.first(x).tanh(), edge_index, edge_weight))


class Typed(Written):
    def forward(self, x, edge_index, edge_type):
        return self.last(self.how(self.first(x).tanh(), edge_index, edge_type))


class Nested(nn.Module):
    """A layer that computes with edges inside a plain module, among PyG's layers."""

    def __init__(self, how):
        super().__init__()
        self.conv, self.layer, self.norm = pyg.GCNConv(4, 6), Written(how, 6), nn.BatchNorm1d(3)

    def forward(self, x, edge_index):
        return self.norm(self.layer(self.conv(x, edge_index).relu(), edge_index))


def counted(x, edge_index, _):
    """Degrees by ones that are summed, and a product by index_add_."""
    row, col = edge_index
    deg = torch.zeros(x.size(0), dtype=x.dtype).scatter_add_(0, col, torch.ones(col.size(0), dtype=x.dtype))
    scale = deg.clamp(min=1).pow(-0.5)
    scale[scale == float("inf")] = 0
    norm = (scale[row] * scale[col]).unsqueeze(-1)
    return torch.zeros_like(x).index_add_(0, col, x[row] * norm)


def attended(x, edge_index, _):
    row, col = edge_index[0], edge_index[1]
    score = F.leaky_relu((x.index_select(0, row) * x.index_select(0, col)).sum(-1), 0.2)
    return scatter(softmax(score, col, num_nodes=x.size(0)).view(-1, 1) * x[row], col, dim=0, dim_size=x.size(0))


def looped(x, edge_index, edge_weight):
    """Loops joined by hand, with the weights of theirs."""
    loops = torch.arange(x.size(0)).unsqueeze(0).repeat(2, 1)
    edges = torch.cat([edge_index, loops], dim=1)
    weight = torch.cat([edge_weight, torch.full((x.size(0),), 0.5, dtype=x.dtype)])
    row, col = edges
    total = scatter(weight, col, dim_size=x.size(0), reduce="sum")
    return scatter(x[row] * (weight / total[col]).view(-1, 1), col, dim_size=x.size(0), reduce="sum")


def looped_first(x, edge_index, _):
    """Loops in front of the edges, each with a number of its vertex."""
    every = torch.arange(x.size(0))
    row, col = torch.cat([every, edge_index[0]]), torch.cat([every, edge_index[1]])
    weight = torch.cat([x[:, 0].sigmoid(), torch.ones(edge_index.size(1), dtype=x.dtype)])
    return scatter(x[row] * weight.view(-1, 1), col, dim_size=x.size(0), reduce="mean")


def looped_twice(x, edge_index, edge_weight):
    """The Laplacian, and twice the identity on top."""
    edges, norm = get_laplacian(edge_index, edge_weight, "sym", dtype=x.dtype, num_nodes=x.size(0))
    edges, norm = add_self_loops(edges, -norm, fill_value=2.0, num_nodes=x.size(0))
    row, col = edges
    largest = scatter(x[row] * norm.view(-1, 1), col, dim_size=x.size(0), reduce="max")
    return largest + scatter(x[row] * norm.view(-1, 1), col, dim_size=x.size(0), reduce="sum")


def unlooped(x, edge_index, edge_weight):
    """Self-loops left out by hand, then loops of all vertices."""
    mask = edge_index[0] != edge_index[1]
    edges, weight = edge_index[:, mask], edge_weight[mask]
    every = torch.arange(x.size(0))
    edges = torch.cat([edges, torch.stack([every, every])], dim=1)
    weight = torch.cat([weight, weight.new_ones(x.size(0))])
    edges, norm = gcn_norm(edges, weight, x.size(0), add_self_loops=False, dtype=x.dtype)
    row, col = edges
    return scatter(norm.view(-1, 1) * x[row], col, dim_size=x.size(0))


def thresholded(x, edge_index, _):
    """Edges of similar ends alone, their scores normalised; the largest, too."""
    row, col = edge_index
    score = F.cosine_similarity(x[row], x[col])
    mask = score >= 0.1
    row, col, score = row[mask], col[mask], score[mask]
    total = scatter(score, col, dim_size=x.size(0), reduce="sum")
    alpha = softmax(score / (total[col] + 1e-8), col, num_nodes=x.size(0)).view(-1, 1)
    best = scatter(x[row], col, dim_size=x.size(0), reduce="max")
    return (
        best
        + scatter(alpha * x[row], col, dim_size=x.size(0))
        + scatter(x[row], col, dim_size=x.size(0), reduce="mean")
    )


def zeroed(x, edge_index, edge_weight):
    """Small weights set to 0, and rows of vertices with a large norm made shorter."""
    weight = torch.where(edge_weight > 1, edge_weight, torch.zeros_like(edge_weight))
    y = scatter(weight.view(-1, 1) * x[edge_index[0]], edge_index[1], dim_size=x.size(0))
    size = y.norm(dim=1)
    long = torch.where(size > 1)
    factor = torch.ones_like(size)
    factor[long] = 1 / size[long]
    return y * factor.unsqueeze(-1)


def columns_of_truths(x, edge_index, _):
    """Truths with one column, next to rows with several, of edges and of vertices."""
    rows = x[edge_index[0]]
    score = (rows * x[edge_index[1]]).sum(-1, keepdim=True)
    y = scatter(torch.where(score > 0.1, rows, -rows), edge_index[1], dim_size=x.size(0))
    size = y.norm(dim=1, keepdim=True)
    return torch.where(size > 1, y / size, y).masked_fill(size > 2, 0.25)


def typed(x, edge_index, edge_type):
    """A sum for each of two types of edges."""
    y = x
    for kind in range(2):
        row, col = edge_index[:, edge_type == kind]
        count = degree(col, x.size(0), dtype=x.dtype).clamp(min=1)
        y = y + (kind + 1) * scatter(x[row], col, dim_size=x.size(0)) / count.view(-1, 1)
    return y


def sparse(x, edge_index, edge_weight):
    """D^-1/2 (A + I) D^-1/2 x by torch's sparse matrices, targets as rows."""
    every = torch.arange(x.size(0))
    edges = torch.cat([edge_index, torch.stack([every, every])], 1)
    weight = torch.cat([edge_weight, torch.ones(x.size(0), dtype=x.dtype)])
    size = (x.size(0), x.size(0))
    total = torch.sparse.sum(torch.sparse_coo_tensor(edges, weight, size).t(), dim=1).to_dense()
    scale = total.pow(-0.5)
    adj = torch.sparse_coo_tensor(edges, scale[edges[0]] * weight * scale[edges[1]], size).t().coalesce()
    return torch.sparse.mm(adj, adj @ x) + 0.5 * adj @ x


def converted(x, edge_index, edge_weight):
    """PyG's own conversion and product."""
    adj = to_torch_coo_tensor(edge_index, edge_weight, size=(x.size(0), x.size(0)))
    return spmm(adj.t(), x)


class LayerOnChanged(nn.Module):
    """Layers of PyG over edges that the forward has made: their own code is followed."""

    def __init__(self):
        super().__init__()
        self.gat, self.graph = pyg.GATConv(4, 3, heads=2), pyg.GraphConv(6, 5, aggr="max")

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        edges = edge_index[:, row != col]
        y = self.gat(x, torch.cat([edges, torch.arange(x.size(0)).repeat(2, 1)], dim=1)).relu()
        return self.graph(y, edge_index, edge_weight.exp())


def both_ways(how):
    """The same computation over the edges and over these turned round."""
    return lambda x, edge_index, column: how(x, edge_index, column) - how(x, edge_index.flip(0), column) / 2


def out_of_matrix(x, edge_index, edge_weight):
    """Products with a matrix and its transpose, and what is read of a transpose's places."""
    size = (x.size(0), x.size(0))
    adj = torch.sparse_coo_tensor(edge_index, edge_weight, size)
    turned = adj.t().coalesce()
    (col, row), weight = turned.indices(), turned.values().view(-1, 1)
    gap = scatter(weight * (x[row] - x[col] / 2), col, dim_size=x.size(0))
    return adj @ x + torch.sparse.mm(adj.t(), x) / 2 + gap * adj.sum(1).to_dense().view(-1, 1)


class Convolved(nn.Module):
    """A convolution with a kernel of 1 over the vertices, seen as the steps of a sequence; edges' rows are so, too."""

    def __init__(self):
        super().__init__()
        self.last = nn.Conv1d(4, 3, kernel_size=1)

    def forward(self, x, edge_index):
        row, col = edge_index
        rows = (x[row] - x[col]).unsqueeze(0).permute((0, 2, 1)).relu().permute((0, 2, 1)).squeeze(0)
        y = scatter(rows, col, dim_size=x.size(0)).unsqueeze(0)
        return self.last(y.transpose(1, 2)).squeeze(0).t().log_softmax(dim=1)


def bounded(x, edge_index, _):
    """Rows that are made no longer than 1: a maximum with a constant, on either side."""
    y = scatter(x[edge_index[0]], edge_index[1], dim_size=x.size(0))
    size = y.norm(dim=1, keepdim=True)
    return y / torch.max(torch.ones(y.size()), size) + torch.min(y, torch.full_like(y, 0.25))


def loops_of_a_type(x, edge_index, edge_type):
    """Of edges of one type a vertex's loop keeps the score of its last self-loop of that type."""
    mask = edge_type == 1
    edges = edge_index[:, mask]
    score = (x[edges[0]] * x[edges[1]]).sum(-1).sigmoid()
    edges, score = add_remaining_self_loops(edges, score, fill_value=0.5, num_nodes=x.size(0))
    return scatter(score.view(-1, 1) * x[edges[0]], edges[1], dim_size=x.size(0))


class AttendedAgainst(nn.Module):
    """Layers with their own loops, on edges that are turned round and have rows of both ends."""

    def __init__(self):
        super().__init__()
        self.gat = pyg.GATConv(4, 3, heads=2, edge_dim=2, fill_value="mean")
        self.flows = pyg.GATv2Conv(6, 5, edge_dim=2, flow="target_to_source", add_self_loops=False)
        self.edge = nn.Linear(8, 2)

    def forward(self, x, edge_index):
        rows = self.edge(torch.cat([x[edge_index[0]], x[edge_index[1]]], 1))
        return self.flows(self.gat(x, edge_index.flip(0), rows).relu(), edge_index, rows)


#: Modules that are followed, or whose layers are.
FOLLOWED = {
    "counted": lambda: Written(counted),
    "counted, nested": lambda: Nested(counted),
    "attended": lambda: Written(attended),
    "attended, nested": lambda: Nested(attended),
    "loops joined": lambda: Weighted(looped),
    "loops joined in front": lambda: Written(looped_first),
    "loops added twice": lambda: Weighted(looped_twice),
    "loops left out": lambda: Weighted(unlooped),
    "a threshold": lambda: Written(thresholded),
    "columns of truths": lambda: Written(columns_of_truths),
    "zeroed": lambda: Weighted(zeroed),
    "sparse": lambda: Weighted(sparse),
    "sparse, converted": lambda: Weighted(converted),
    "types": lambda: Typed(typed),
    "layers on changed edges": LayerOnChanged,
    "counted, both ways": lambda: Written(both_ways(counted)),
    "attended, both ways": lambda: Written(both_ways(attended)),
    "loops joined, both ways": lambda: Weighted(both_ways(looped)),
    "loops joined in front, both ways": lambda: Written(both_ways(looped_first)),
    "loops added twice, both ways": lambda: Weighted(both_ways(looped_twice)),
    "loops left out, both ways": lambda: Weighted(both_ways(unlooped)),
    "a threshold, both ways": lambda: Written(both_ways(thresholded)),
    "sparse, both ways": lambda: Weighted(both_ways(sparse)),
    "sparse, out of the matrix": lambda: Weighted(out_of_matrix),
    "types, both ways": lambda: Typed(both_ways(typed)),
    "attended against": AttendedAgainst,
    "convolved": Convolved,
    "bounded": lambda: Written(bounded),
    "loops of a type": lambda: Typed(loops_of_a_type),
}
#: Rows of edges in the forward itself, handed to PyG's layers.
VALUES = {
    "edge network": EdgeNetwork,
    "edge network, recorded": lambda: EdgeNetwork(recorded=True),
    "gated": Gated,
}
