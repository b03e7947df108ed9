"""Small forwards in the style of public code, whose parts between the layers are local to each vertex.

Each class takes (x, edge_index) with five features. `WIDTHS` names those that take others.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg


class Layers(nn.Module):
    """Three layers of width 8, for what follows them."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(5, 8), pyg.SAGEConv(8, 8), pyg.GCNConv(8, 8)])
        self.out = nn.Linear(8, 3)

    def layers(self, x, edge_index):
        found = []
        for conv in self.convs:
            x = F.elu(conv(x, edge_index))
            found.append(x)
        return found


# ---- dimensions in front of the vertices'


class MeanOfStack(Layers):
    def forward(self, x, edge_index):
        return self.out(torch.stack(self.layers(x, edge_index), 0).mean(0))


class PermutedStack(Layers):
    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index)).permute(1, 0, 2)
        return self.out(h.reshape(h.size(0), 3, 8).max(dim=1).values)


class IndexedStack(Layers):
    """The stack is picked by layer."""

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=0)
        total = h[0]
        for k in range(1, len(self.convs)):
            total = total + h[k] / (k + 1)
        return self.out(total) + self.out(h[[0, 2]].sum(0)) + self.out(h[1:].mean(0)[: x.size(0)])


class WeightedStack(Layers):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3))
        self.logits = nn.ParameterList([nn.Parameter(torch.tensor(float(k))) for k in range(3)])

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=0)
        mixed = (F.softmax(self.weights, dim=0).view(-1, 1, 1) * h).sum(dim=0)
        powers = sum(torch.sigmoid(each) ** (k + 1) * h[k] for k, each in enumerate(self.logits))
        return self.out(mixed) + torch.einsum("l,lnc->nc", self.weights, h)[:, :3] + self.out(powers)


class OneBatch(Layers):
    """A batch of one in front, as traffic models have it."""

    def __init__(self):
        super().__init__()
        self.norm, self.lin = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x, edge_index):
        h = x.unsqueeze(0)
        for conv in self.convs:
            h = self.norm(self.lin(conv(h, edge_index).relu()) + 0.5)
        return self.out(h).squeeze(0)


class BatchedGate(nn.Module):
    """A gated unit over rows of shape (batches, vertices, columns)."""

    def __init__(self):
        super().__init__()
        self.conv_z, self.conv_h = pyg.GCNConv(5, 6), pyg.GCNConv(5, 6)
        self.lin_z, self.lin_h = nn.Linear(12, 6), nn.Linear(12, 6)

    def gate(self, x, edge_index, h=None):
        if h is None:
            h = torch.zeros(x.shape[0], x.shape[1], 6).to(x.device)
        z = torch.sigmoid(self.lin_z(torch.cat([self.conv_z(x, edge_index), h], dim=2)))
        new = torch.tanh(self.lin_h(torch.cat([self.conv_h(x, edge_index), h * z], dim=2)))
        return z * h + (1 - z) * new

    def forward(self, x, edge_index):
        h = self.gate(x.unsqueeze(0), edge_index)
        return self.gate(x[None], edge_index, h)[0]


class TimeFirst(nn.Module):
    """Four steps of two columns each; one convolution over all steps at once, then a network over time."""

    def __init__(self):
        super().__init__()
        self.conv, self.other = pyg.GCNConv(2, 6), pyg.ChebConv(6, 6, K=2)
        self.gru, self.out = nn.GRU(6, 5), nn.Linear(5, 3)

    def forward(self, x, edge_index):
        steps = x.view(x.size(0), 4, 2).permute(1, 0, 2)
        h = self.other(self.conv(steps, edge_index).relu(), edge_index).tanh()
        _, last = self.gru(h)
        return self.out(last[-1])


class Transposed(Layers):
    """x.t() and back; a convolution of one step over rows as channels."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(8, 8, kernel_size=1)

    def forward(self, x, edge_index):
        h = self.layers(x, edge_index)[-1]
        h = (h.t() * 2).T
        h = self.mix(h.transpose(0, 1).unsqueeze(0)).squeeze(0).t()
        return self.out(h)


# ---- over layers of one vertex


class LayerAttention(Layers):
    """nn.MultiheadAttention over the layers of each vertex, batch first."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=1)
        mixed, weights = self.attention(h, h, h)
        return self.out(mixed.mean(dim=1)) + (weights @ self.out(h)).sum(1)


class LayerAttentionFirst(Layers):
    """The same with the layers first, with one query and without weights."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, kdim=8, vdim=8, add_bias_kv=True)

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index))
        mixed, _ = self.attention(h[-1:], h, h, need_weights=False)
        return self.out(mixed.squeeze(0))


class LayerTransformer(Layers):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=12, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.cls = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=1)
        h = torch.cat([self.cls.expand(h.size(0), -1, -1), h], dim=1)
        return self.out(self.encoder(h)[:, 0])


class NormedFirst(Layers):
    """Layers first, norms first, a final norm."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 4, 12, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)

    def forward(self, x, edge_index):
        return self.out(self.encoder(torch.stack(self.layers(x, edge_index))).mean(0))


class ScaledDotProduct(Layers):
    """F.scaled_dot_product_attention with heads, written as public code has it."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=1)
        n, length, width = h.shape
        q, k, v = (f(h).view(n, length, 2, width // 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(n, length, width).sum(dim=1))


class Recurrent(Layers):
    def __init__(self):
        super().__init__()
        self.lstm, self.score = nn.LSTM(8, 4, bidirectional=True, batch_first=True), nn.Linear(8, 1)

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=1)
        alpha, _ = self.lstm(h)
        alpha = self.score(alpha).squeeze(-1).softmax(dim=-1)
        return self.out((h * alpha.unsqueeze(-1)).sum(dim=1))


class Highway(Layers):
    def __init__(self):
        super().__init__()
        self.gates = nn.ModuleList([nn.Linear(16, 8) for _ in range(2)])

    def forward(self, x, edge_index):
        h, *others = self.layers(x, edge_index)
        for gate, new in zip(self.gates, others, strict=True):
            t = torch.sigmoid(gate(torch.cat([h, new], -1)))
            h = torch.lerp(h, new, t)
        return self.out(h)


class Gumbel(Layers):
    """Softmax gates over experts, the best two kept by a mask."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(5, 3)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 6), nn.SiLU(), nn.Linear(6, 3)) for _ in range(3)])

    def forward(self, x, edge_index):
        h = self.layers(x, edge_index)[-1]
        gate = F.softmax(self.gate(x), dim=-1)
        y = torch.stack([expert(h) for expert in self.experts], dim=1)
        return torch.einsum("ne,nec->nc", gate, y) + (gate.unsqueeze(-1) * y).sum(dim=-2)


class PreNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(5, 8)
        self.norms, self.ffs = nn.ModuleList(), nn.ModuleList()
        self.convs, self.scales = nn.ModuleList(), nn.ParameterList()
        for _ in range(2):
            self.norms.append(nn.LayerNorm(8))
            self.convs.append(pyg.SAGEConv(8, 8))
            self.ffs.append(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8)))
            self.scales.append(nn.Parameter(torch.full((8,), 0.1)))
        self.register_buffer("pe", torch.randn(8))

    def forward(self, x, edge_index):
        h = self.enc(x) + self.pe
        for norm, conv, ff, scale in zip(self.norms, self.convs, self.ffs, self.scales, strict=True):
            h = h + scale * conv(norm(h), edge_index)
            h = h + ff(F.layer_norm(h, h.shape[-1:]))
        return h


class Encodings(Layers):
    """Positional encodings are columns of the features; their signs do not matter."""

    def __init__(self):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2))
        self.rho = nn.Linear(6, 8)

    def forward(self, x, edge_index):
        pe = x[:, 2:].unsqueeze(-1)
        pe = self.phi(pe) + self.phi(-pe)
        pe = self.rho(pe.reshape(pe.shape[0], -1))
        return self.out(pe + self.layers(x, edge_index)[-1])


class Masks(Layers):
    """A feature says which vertices are known."""

    def forward(self, x, edge_index):
        known = (x[:, 0] > 0).unsqueeze(-1)
        h = torch.where(known, x, torch.zeros_like(x))
        y = self.out(self.layers(h, edge_index)[-1])
        y = torch.where(known.expand_as(y), y, y.clamp(min=0.1))
        return y * known + (~known) * 0.5 + torch.where(x[:, 1:2] < 0.3, 1.0, y.mean(-1, keepdim=True))


class Powers(Layers):
    """Hops with coefficients of polynomials and a tensor of temperatures."""

    def __init__(self):
        super().__init__()
        self.temp = nn.Parameter(torch.tensor([0.5, 1.0, -0.2]))
        self.prop = pyg.LGConv()

    def forward(self, x, edge_index):
        hops = [x]
        for _ in range(2):
            hops.append(self.prop(hops[-1], edge_index))
        coefficients = torch.cumprod(torch.relu(self.temp), dim=0)
        total = torch.zeros_like(x)
        for k, hop in enumerate(hops):
            total += coefficients[k] * hop
        return torch.stack([total, *hops], dim=-1).mean(dim=-1)


class Maxout(Layers):
    def __init__(self):
        super().__init__()
        self.pool, self.mean = nn.MaxPool1d(2), nn.AvgPool1d(4, stride=2)

    def forward(self, x, edge_index):
        h = self.layers(x, edge_index)[-1]
        a = self.pool(h.unsqueeze(1)).squeeze(1)
        b = F.max_pool1d(h.view(-1, 2, 4), kernel_size=4).flatten(1)
        c = F.adaptive_avg_pool1d(h.unsqueeze(1), 1).squeeze(-1)
        return torch.cat([a, b, c, self.mean(h.unsqueeze(1)).flatten(1)], dim=1)


class Capsules(Layers):
    """Dynamic routing of a vertex's own capsules."""

    def forward(self, x, edge_index):
        u = F.normalize(self.layers(x, edge_index)[-1].view(-1, 4, 2), dim=2)
        c = u.mean(dim=1, keepdim=True)
        for _ in range(2):
            p = torch.softmax((u * c).sum(dim=2), dim=1)
            c = F.normalize((p.unsqueeze(2) * u).sum(dim=1, keepdim=True), dim=2)
        return torch.cat([c.squeeze(1), u.view(x.shape[0], -1)], 1)


# ---- rows folded into others


class FoldedHeads(Layers):
    """view(-1, C) lays heads under each other; a map and a norm follow, and view(-1, H * C) lays them back."""

    def __init__(self):
        super().__init__()
        self.head, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)

    def forward(self, x, edge_index):
        h = self.layers(x, edge_index)[-1].view(-1, 4)
        h = self.norm(F.relu(self.head(h)))
        return h.view(-1, 12)


class FoldedSteps(nn.Module):
    """Time steps are rows in between: (N * T, F) to a map, and back to (N, T, F) for a network over time."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(8, 8)
        self.embed, self.rnn, self.out = nn.Linear(2, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x, edge_index):
        n = x.shape[0]
        h = self.conv(x, edge_index).reshape(n * 4, 2)
        h = torch.tanh(self.embed(h)).reshape(n, 4, -1)
        y, (last, _) = self.rnn(h)
        return self.out(y[:, -1]) + self.out(last.squeeze(0))


class FoldedBatches(nn.Module):
    """(batches, vertices, steps, columns) seen as (batches * vertices, steps, columns) by a network over time."""

    def __init__(self):
        super().__init__()
        self.conv, self.rnn, self.out = pyg.GCNConv(4, 6), nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x, edge_index):
        h = x.view(1, -1, 2, 4).permute(0, 2, 1, 3)
        h = torch.relu(self.conv(h, edge_index)).permute(0, 2, 1, 3)
        b, n, t, f = h.shape
        y, _ = self.rnn(h.reshape(b * n, t, f))
        return self.out(y[:, -1, :].view(b, n, -1)).squeeze(0)


class HeadsAsRows(Layers):
    """Two halves of the heads under each other, head first."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 4))

    def forward(self, x, edge_index):
        h = self.layers(x, edge_index)[-1].view(-1, 2, 4).permute(1, 0, 2).reshape(-1, 4)
        h = self.mlp(h) + F.softmax(h, dim=-1)
        return h.view(2, -1, 4).permute(1, 0, 2).reshape(-1, 8)


# ---- a vertex's own time steps


class GatedTime(nn.Module):
    """A gated convolution over each vertex's own time steps, a graph convolution a step, and back."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = (nn.Conv2d(2, 6, (1, 3)) for _ in range(3))
        self.graph = pyg.ChebConv(6, 6, K=2)
        self.last, self.norm = nn.Conv2d(6, 6, (1, 2)), nn.BatchNorm2d(6)
        self.out = nn.Linear(12, 3)

    def forward(self, x, edge_index):
        x = x.view(1, -1, 5, 2).permute(0, 2, 1, 3)  # (batches, steps, vertices, columns)
        x = x.permute(0, 3, 2, 1)
        h = F.relu(self.one(x) * torch.sigmoid(self.two(x)) + self.three(x)).permute(0, 3, 2, 1)
        t = torch.zeros_like(h)
        for b in range(h.size(0)):
            for step in range(h.size(1)):
                t[b][step] = self.graph(h[b][step], edge_index)
        h = self.norm(self.last(F.relu(t).permute(0, 3, 2, 1)))
        return self.out(h.permute(0, 2, 1, 3).flatten(2).squeeze(0))


class DilatedTime(nn.Module):
    """Conv1d over (vertices, columns, steps), with dilation, padding, groups and skips, as WaveNets have it."""

    def __init__(self):
        super().__init__()
        self.start = nn.Conv1d(2, 6, 1)
        self.filters = nn.ModuleList([nn.Conv1d(6, 6, 2, dilation=2**k) for k in range(2)])
        self.gates = nn.ModuleList([nn.Conv1d(6, 6, 2, dilation=2**k, groups=3) for k in range(2)])
        self.convs = nn.ModuleList([pyg.GCNConv(6, 6) for _ in range(2)])
        self.skip, self.end = nn.Conv1d(6, 4, 1, bias=False), nn.Conv1d(4, 6, 3, padding=1, stride=2)

    def forward(self, x, edge_index):
        h, skip = self.start(x.view(x.size(0), 2, 5)), 0
        for f, g, conv in zip(self.filters, self.gates, self.convs, strict=True):
            residual = h
            h = torch.tanh(f(h)) * torch.sigmoid(g(h))
            s = self.skip(h)
            skip = s if isinstance(skip, int) else skip[..., -s.size(-1) :] + s
            h = torch.stack([conv(h[..., t], edge_index) for t in range(h.size(-1))], dim=-1)
            h = h + residual[..., -h.size(-1) :]
        return self.end(F.relu(skip)).flatten(1) + F.pad(h, (1, 0)).mean(-1)


class StepsAsFeatures(nn.Module):
    """(batches, vertices, columns, steps): a convolution for each step, a norm, and a map of the steps to the end."""

    def __init__(self):
        super().__init__()
        self.cheb = pyg.ChebConv(2, 4, K=2)
        self.time, self.residual = nn.Conv2d(4, 4, (1, 3), padding=(0, 1)), nn.Conv2d(2, 4, (1, 1))
        self.norm, self.final = nn.LayerNorm(4), nn.Conv2d(5, 3, kernel_size=(1, 4))

    def forward(self, x, edge_index):
        x = x.reshape(1, x.size(0), 2, 5)
        steps = [self.cheb(x[:, :, :, t], edge_index).unsqueeze(-1) for t in range(x.size(3))]
        h = F.relu(torch.cat(steps, dim=-1))
        h = self.time(h.permute(0, 2, 1, 3)) + self.residual(x.permute(0, 2, 1, 3))
        h = self.norm(F.relu(h).permute(0, 3, 2, 1))
        return self.final(h.reshape(1, 5, -1, 4))[:, :, :, -1].permute(0, 2, 1)[0]


class Windows(nn.Module):
    """Sliding windows of a vertex's own columns."""

    def __init__(self):
        super().__init__()
        self.lin, self.conv = nn.Linear(3, 4), pyg.SAGEConv(12, 3)

    def forward(self, x, edge_index):
        h = self.lin(x.unfold(1, 3, 1))
        return self.conv(h.reshape(x.size(0), -1), edge_index)


# ---- other ways of saying things


class TensorOfLayers(Layers):
    """A tensor made first, its layers written one by one."""

    def forward(self, x, edge_index):
        h = x.new_zeros(3, x.size(0), 8)
        for k, each in enumerate(self.layers(x, edge_index)):
            h[k] = each
        return self.out(h.sum(dim=0)) + self.out(h[-1])


class ColumnsWritten(Layers):
    def forward(self, x, edge_index):
        h = torch.zeros(x.size(0), 10)
        a, b, _ = self.layers(x, edge_index)
        h[:, :8] = a
        h[:, 8] = b[:, 0]
        h[:, -1] += b.sum(-1)
        return h


class OwnMatrix(nn.Module):
    """Matrices that no layer states: plain parameters."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(6))
        self.prop = pyg.SimpleConv(aggr="mean", combine_root="cat")

    def forward(self, x, edge_index):
        return self.prop(torch.addmm(self.bias, x, self.weight).relu(), edge_index)


class TwiceAsWide(nn.Module):
    """The first layer reads rows and neighbours side by side: its width is not the features'."""

    def __init__(self):
        super().__init__()
        self.prop, self.lin, self.more = pyg.SimpleConv(aggr="max"), nn.Linear(10, 16), nn.Linear(16, 3)

    def forward(self, x, edge_index):
        return self.more(self.lin(torch.cat([x, self.prop(x, edge_index) - x], dim=1)).relu())


class Polynomial(nn.Module):
    """Outer products of a row with itself, the upper half."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = pyg.GCNConv(5, 4), nn.Linear(16, 3)
        self.register_buffer("upper", torch.triu(torch.ones(4, 4)))

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        y = torch.einsum("bi,bj->bij", h, h) * self.upper
        return self.lin(y.view(y.size(0), -1)) + torch.tril(h.unsqueeze(2) @ h.unsqueeze(1)).sum(-1)[:, :3]


class FeatureAttention(Layers):
    """Squeeze and excitation over columns, a temperature, a clamp of norms, statistics of each row."""

    def __init__(self):
        super().__init__()
        self.squeeze, self.excite = nn.Linear(8, 2), nn.Linear(2, 8)
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, x, edge_index):
        h = self.layers(x, edge_index)[0]
        s = torch.sigmoid(self.excite(F.relu(self.squeeze(h))))
        mean, deviation = h.mean(-1, keepdim=True), h.std(-1, keepdim=True)
        h = (h - mean) / (deviation + 1e-5) * s
        h = h * torch.clamp(1.0 / (h.norm(dim=-1, keepdim=True) + 1e-6), max=1.0)
        return F.log_softmax(self.out(h) / self.temperature.exp(), dim=-1)


class Moments(Layers):
    """var_mean, quantiles by sorting a vertex's own layers, the middle one."""

    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=1)
        deviation, mean = torch.var_mean(h, dim=1, unbiased=False)
        return torch.cat([deviation, mean, h.std(dim=1), h.norm(dim=1), h.prod(dim=1), h.logsumexp(dim=1)], dim=-1)


class Sorted(Layers):
    def forward(self, x, edge_index):
        h = torch.stack(self.layers(x, edge_index), dim=1)
        return torch.cat([h.median(dim=1).values, h.sort(dim=1).values.flatten(1), h.cumsum(1)[:, -1]], dim=-1)


class Chunks(Layers):
    """Modules of torch for forms: Unflatten, Flatten, Softmax over heads, a bilinear form, a MLP of PyG."""

    def __init__(self):
        super().__init__()
        self.heads, self.flat, self.soft = nn.Unflatten(1, (2, 4)), nn.Flatten(), nn.Softmax(dim=1)
        self.form, self.mlp = nn.Bilinear(4, 4, 3), pyg.MLP([8, 6, 4], norm=None)

    def forward(self, x, edge_index):
        h = self.heads(self.layers(x, edge_index)[-1])
        a, b = h.unbind(dim=1)
        return self.form(a, b) + self.mlp(self.flat(self.soft(h)))[:, :3]


FORWARDS = [
    MeanOfStack, PermutedStack, IndexedStack, WeightedStack, OneBatch, BatchedGate, TimeFirst, Transposed,
    LayerAttention, LayerAttentionFirst, LayerTransformer, NormedFirst, ScaledDotProduct, Recurrent, Highway, Gumbel,
    PreNorm, Encodings, Masks, Powers, Maxout, Capsules, FoldedHeads, FoldedSteps, FoldedBatches, HeadsAsRows,
    GatedTime, DilatedTime, StepsAsFeatures, Windows, TensorOfLayers, ColumnsWritten, OwnMatrix, TwiceAsWide,
    Polynomial, FeatureAttention, Moments, Sorted, Chunks,
]  # fmt: skip
#: Features of each, and whether from_pyg must be given their number.
WIDTHS = {TimeFirst: 8, FoldedSteps: 8, FoldedBatches: 8, GatedTime: 10, DilatedTime: 10, StepsAsFeatures: 10}
