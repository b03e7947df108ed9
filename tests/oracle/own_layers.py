"""Layers as users write them: subclasses of MessagePassing and of PyG's layers, by name of what they try."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    degree,
    get_laplacian,
    remove_self_loops,
    scatter,
    softmax,
)


class TutorialGCN(MessagePassing):
    """The layer of PyG's tutorial on message passing."""

    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="add")
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        out = self.propagate(edge_index, x=x, norm=norm)
        out = out + self.bias
        return out

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class TutorialEdgeConv(MessagePassing):
    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="max")
        self.in_channels = in_channels
        self.mlp = nn.Sequential(
            nn.Linear(2 * in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels)
        )

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=1))


class Attention(MessagePassing):
    """GAT from scratch, with three dimensions; loops: whether self-loops are replaced, added or left."""

    def __init__(self, in_channels, out_channels, heads=2, loops="replaced"):
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.out, self.loops = heads, out_channels, loops
        self.lin = nn.Linear(in_channels, heads * out_channels)
        self.att = nn.Parameter(torch.zeros(1, heads, 2 * out_channels))

    def forward(self, x, edge_index):
        if self.loops == "replaced":
            edge_index, _ = remove_self_loops(edge_index)
        if self.loops != "left":
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.propagate(edge_index, x=self.lin(x).view(-1, self.heads, self.out), size=None)

    def message(self, x_i, x_j, index, size_i):
        alpha = (torch.cat([x_i, x_j], dim=-1) * self.att).sum(dim=-1)
        alpha = softmax(F.leaky_relu(alpha, 0.2), index, num_nodes=size_i)
        alpha = F.dropout(alpha, 0.5, training=self.training)
        return x_j * alpha.view(-1, self.heads, 1)

    def update(self, aggr_out):
        return aggr_out.view(-1, self.heads * self.out)


class DotAttention(MessagePassing):
    """A transformer with edge attributes."""

    def __init__(self, in_channels, out_channels, heads):
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.out, self.edge_dim = heads, out_channels, 3
        self.q, self.k, self.v = (nn.Linear(in_channels, out_channels * heads) for _ in range(3))
        self.e = nn.Linear(3, out_channels * heads)

    def forward(self, x, edge_index, edge_attr):
        q, k, v, e = (
            rows.view(-1, self.heads, self.out) for rows in (self.q(x), self.k(x), self.v(x), self.e(edge_attr))
        )
        return self.propagate(edge_index, q=q, k=k, v=v, edge_attr=e).mean(dim=1)

    def message(self, q_i, k_j, v_j, edge_attr, index, ptr, size_i):
        alpha = softmax((q_i * (k_j + edge_attr)).sum(-1) / self.out**0.5, index, ptr, size_i)
        return (v_j + edge_attr) * alpha.unsqueeze(-1)


class SoftmaxAndMore(MessagePassing):
    """Attention that is no attention of the engine: the message reads its weights twice."""

    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="add")
        self.score, self.lin = nn.Linear(in_channels, 1), nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.propagate(edge_index, x=self.lin(x), s=self.score(x))

    def message(self, x_j, s_j, s_i, index):
        return softmax(torch.tanh(s_j + s_i), index) * x_j + 0.5 * x_j


class WeightedLoops(MessagePassing):
    def __init__(self, in_channels, out_channels, aggr):
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index, edge_weight):
        edge_index, edge_weight = add_self_loops(edge_index, edge_weight, fill_value=0.5, num_nodes=x.size(0))
        return self.propagate(edge_index, x=self.lin(x), w=edge_weight)

    def message(self, x_j, w):
        return w.unsqueeze(-1) * x_j


class ScatterMean(MessagePassing):
    """GraphSAGE with an aggregate of its own and rows of both ends as a pair."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.left, self.right = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index, size=None):
        if isinstance(x, torch.Tensor):
            x = (x, x)
        out = self.left(x[1]) + self.right(self.propagate(edge_index, x=x, size=size))
        return F.normalize(out, p=2, dim=-1)

    def message(self, x_j):
        return x_j

    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs, index, dim=self.node_dim, dim_size=dim_size, reduce="mean")


class EdgeGIN(MessagePassing):
    """GIN with edge attributes, as molecule models have it."""

    def __init__(self, width):
        super().__init__(aggr="add")
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.eps = nn.Parameter(torch.Tensor([0.3]))
        self.edge_encoder = nn.Linear(3, width)

    def forward(self, x, edge_index, edge_attr):
        e = self.edge_encoder(edge_attr)
        return self.mlp((1 + self.eps) * x + self.propagate(edge_index, x=x, edge_attr=e))

    def message(self, x_j, edge_attr):
        return F.relu(x_j + edge_attr)

    def update(self, aggr_out):
        return aggr_out


class NeuralGraphFilter(MessagePassing):
    """NGCF: products of both ends' rows under a symmetric normalisation."""

    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="add")
        self.one, self.two = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        row, col = edge_index
        root = degree(col, x.size(0), x.dtype).rsqrt()
        root = root.masked_fill(root == float("inf"), 0)
        out = self.propagate(edge_index, x=x, norm=root[row] * root[col])
        return F.leaky_relu(out + self.one(x))

    def message(self, x_j, x_i, norm):
        return norm.view(-1, 1) * (self.one(x_j) + self.two(x_j * x_i))


class EdgeUpdate(MessagePassing):
    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="mean")
        self.gate, self.lin = nn.Linear(in_channels, 1), nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x), alpha=self.edge_updater(edge_index, x=x))

    def edge_update(self, x_i, x_j):
        return torch.sigmoid(self.gate(x_i) - self.gate(x_j))

    def message(self, x_j, alpha):
        return alpha * x_j


class Nested(MessagePassing):
    """Convolutions within a convolution, and several aggregations."""

    def __init__(self, in_channels, out_channels):
        super().__init__(aggr=["mean", "max", "std"])
        self.first, self.second = GCNConv(in_channels, out_channels), TutorialGCN(out_channels, out_channels)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.second(self.first(x, edge_index), edge_index))


class EdgeMatrix(MessagePassing):
    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="mean")
        self.in_channels, self.shape, self.edge_dim = in_channels, (in_channels, out_channels), 3
        self.nn = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, in_channels * out_channels))

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return torch.matmul(x_j.unsqueeze(1), self.nn(edge_attr).view(-1, *self.shape)).squeeze(1)


class OldGCN(MessagePassing):
    """PyG's GCNConv of years ago; end: whose degree it takes."""

    def __init__(self, in_channels, out_channels, end=1):
        super().__init__(aggr="add")
        self.weight, self.end = nn.Parameter(torch.zeros(in_channels, out_channels)), end

    def norm(self, edge_index, num_nodes, edge_weight, dtype):
        if edge_weight is None:
            edge_weight = torch.ones((edge_index.size(1),), dtype=dtype, device=edge_index.device)
        edge_index, edge_weight = add_remaining_self_loops(edge_index, edge_weight, 2, num_nodes)
        row, col = edge_index
        deg = torch.zeros(num_nodes, dtype=dtype).scatter_add_(0, edge_index[self.end], edge_weight)
        root = deg.pow(-0.5)
        root = torch.where(torch.isinf(root), torch.zeros_like(root), root)
        return edge_index, root[row] * edge_weight * root[col]

    def forward(self, x, edge_index, edge_weight=None):
        x = torch.matmul(x, self.weight)
        edge_index, norm = self.norm(edge_index, x.size(0), edge_weight, x.dtype)
        return self.propagate(edge_index, x=x, norm=norm)

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class PageRank(MessagePassing):
    """GPRGNN's propagation: a weighted sum of hops."""

    def __init__(self, hops):
        super().__init__(aggr="add")
        self.hops, self.temp = hops, nn.Parameter(torch.ones(hops + 1))

    def forward(self, x, edge_index, edge_weight=None):
        edge_index, norm = gcn_norm(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        hidden = x * self.temp[0]
        for k in range(self.hops):
            x = self.propagate(edge_index, x=x, norm=norm)
            hidden = hidden + self.temp[k + 1] * x
        return hidden

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Laplacian(MessagePassing):
    """A polynomial of the symmetric Laplacian."""

    def __init__(self, width):
        super().__init__(aggr="add")
        self.temp, self.lin = nn.Parameter(torch.ones(3)), nn.Linear(width, width)

    def forward(self, x, edge_index):
        edge_index, norm = get_laplacian(edge_index, normalization="sym", dtype=x.dtype, num_nodes=x.size(0))
        near = self.propagate(edge_index, x=self.lin(x), norm=norm)
        far = self.propagate(edge_index, x=near, norm=norm)
        return self.temp[0] * x + F.relu(self.temp[1]) * near + self.temp[2] * far

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class OnlyItsInit(GCNConv):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels, improved=True)


class DoubledGCN(GCNConv):
    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


class GatedGAT(GATConv):
    def message(self, x_j, alpha):
        return torch.sigmoid(x_j) * alpha.unsqueeze(-1)


class Stack(nn.Module):
    """Own layers inside a module of the user's."""

    def __init__(self, *layers):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), nn.BatchNorm1d(4)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = F.relu(layer(x, edge_index))
        return self.norm(x)


BIT_EXACT = {
    "tutorial": lambda: TutorialGCN(5, 4),
    "tutorial twice": lambda: Stack(TutorialGCN(5, 6), TutorialGCN(6, 4)),
    "weighted loops, sum": lambda: WeightedLoops(5, 4, "add"),
    "weighted loops, mean": lambda: WeightedLoops(5, 4, "mean"),
    "weighted loops, max": lambda: WeightedLoops(5, 4, "max"),
    "weighted loops, min": lambda: WeightedLoops(5, 4, "min"),
    "scatter mean": lambda: ScatterMean(5, 4),
    "GIN with attributes": lambda: EdgeGIN(5),
    "nested": lambda: Nested(5, 4),
    "old GCN": lambda: OldGCN(5, 4),
    "hops": lambda: PageRank(3),
    "Laplacian": lambda: Laplacian(4),
    "subclass without code": lambda: OnlyItsInit(5, 4),
    "subclass of GCN": lambda: DoubledGCN(5, 4),
    "attention": lambda: Attention(5, 4),
    "attention, loops left": lambda: Attention(5, 4, loops="left"),
}
TO_FLOAT32 = {
    "attention, loops added": lambda: Attention(5, 4, loops="added"),
    "tutorial's EdgeConv": lambda: TutorialEdgeConv(5, 4),
    "dot attention": lambda: DotAttention(5, 4, 2),
    "softmax and more": lambda: SoftmaxAndMore(5, 4),
    "NGCF": lambda: NeuralGraphFilter(5, 4),
    "edge update": lambda: EdgeUpdate(5, 4),
    "edge matrix": lambda: EdgeMatrix(5, 4),
    "subclass of GAT": lambda: GatedGAT(5, 4, heads=2),
    "subclass of GAT with attributes": lambda: GatedGAT(5, 4, heads=2, edge_dim=3),
}
OPTIONS = {"hops": {"input_width": 4}, "subclass of GAT with attributes": {"edge_width": 3}}
