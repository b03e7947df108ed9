"""TGAT and DySAT in plain torch on padded neighbour tables, as their authors wrote them; neighbours found with NumPy.

No sampler, no PyG, nothing of livegnn's: the neighbours of a target are cut out of one sorted list of all events.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.temporal.contest import SIGNATURE_WIDTH, Batch, Budget, Data

Int64 = npt.NDArray[np.int64]
Neighbours = tuple[Int64, Int64, Int64, npt.NDArray[np.bool_]]  # vertex, event, time, whether there is one; (n, k) each


class PastTable:
    """All events by (vertex, time, event); every event stands at both its ends."""

    def __init__(self, data: Data) -> None:
        ends, others = np.concatenate([data.src, data.dst]), np.concatenate([data.dst, data.src])
        times, ids = np.tile(data.time, 2), np.tile(np.arange(len(data.src)), 2)
        order = np.lexsort((ids, times, ends))
        self._span = int(data.time.max()) + 2
        self._keys = ends[order] * self._span + times[order]
        self._others, self._ids, self._times = others[order], ids[order], times[order]

    def once(self, vertices: Int64, times: Int64) -> tuple[Int64, Int64, Tensor]:
        """Each (vertex, time) once, and where each was."""
        keys, places = np.unique(vertices * self._span + times, return_inverse=True)
        return *np.divmod(keys, self._span), torch.from_numpy(places)

    def recent(self, vertices: Int64, end: Int64, begin: Int64, count: int) -> Neighbours:
        """The newest `count` with begin <= time < end, the newest first."""
        begin = np.maximum(begin, 0)
        stop = np.searchsorted(self._keys, vertices * self._span + np.maximum(end, 0))
        start = np.searchsorted(self._keys, vertices * self._span + begin)
        places = stop[:, None] - 1 - np.arange(count)
        there = places >= start[:, None]
        places[~there] = 0
        return self._others[places], self._ids[places], self._times[places], there


def heads_of(rows: Tensor, heads: int) -> Tensor:
    return rows.view(*rows.shape[:-1], heads, -1)


def attend(logits: Tensor, there: Tensor, dropout: nn.Module) -> Tensor:
    """Softmax over dimension 1 where there is something; zeros for rows with nothing. logits: (n, k, heads)."""
    weight = logits.masked_fill(~there.unsqueeze(-1), -1e30).softmax(dim=1)
    return dropout(weight * there.unsqueeze(-1))


def copy_to(weight: nn.Module | Tensor, *parts: nn.Module | Tensor) -> None:
    """Weights of ours, side by side; of a module, its bias too."""
    if isinstance(weight, nn.Module):
        copy_to(weight.weight, *(part.weight for part in parts))
        if weight.bias is not None:
            weight.bias.copy_(parts[0].bias)
    else:
        weight.copy_(torch.cat([part.view(len(part), -1) for part in parts], dim=1).view(weight.shape))


class _TGATLayer(nn.Module):
    def __init__(self, budget: Budget, edge_width: int) -> None:
        super().__init__()
        width, self.heads = budget.width, budget.heads
        self.query = nn.Linear(2 * width, width)
        self.key, self.value = (nn.Linear(2 * width + edge_width, width) for _ in range(2))
        self.first, self.second = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(budget.dropout)

    def start(self, ours: nn.Module) -> None:
        width = len(self.key.weight)
        for linear, part in ((self.key, slice(width)), (self.value, slice(width, None))):
            copy_to(linear.weight, ours.rows.weight[part], ours.edges.weight[part])
            copy_to(linear.bias, ours.rows.bias[part])
        for mine, other in ((self.query, ours.query), (self.first, ours.merge[0]), (self.second, ours.merge[2])):
            copy_to(mine, other)

    def forward(self, own: Tensor, others: Tensor, age: Tensor, now: Tensor, edge_x: Tensor, there: Tensor) -> Tensor:
        """own: (n, w); others, age: (n, k, w); now: (1, w)."""
        query = heads_of(self.query(torch.cat([own, now.expand(len(own), -1)], dim=1)), self.heads)
        rows = torch.cat([others, age, edge_x], dim=-1)
        key, value = heads_of(self.key(rows), self.heads), heads_of(self.value(rows), self.heads)
        logits = (query.unsqueeze(1) * key).sum(-1) / key.shape[-1] ** 0.5
        taken = (attend(logits, there, self.dropout).unsqueeze(-1) * value).sum(1).flatten(1)
        return self.second(torch.relu(self.first(torch.cat([taken, own], dim=1))))


class _GATLayer(nn.Module):
    def __init__(self, budget: Budget, edge_width: int) -> None:
        super().__init__()
        width, self.heads = budget.width, budget.heads
        self.src, self.dst = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.edge, self.residual = nn.Linear(edge_width, width, bias=False), nn.Linear(width, width, bias=False)
        self.attention = nn.Parameter(torch.empty(3, self.heads, width // self.heads))
        self.bias = nn.Parameter(torch.zeros(width))
        self.dropout = nn.Dropout(budget.dropout)

    def start(self, ours: nn.Module) -> None:
        pairs = ((self.src, "lin_src"), (self.dst, "lin_dst"), (self.edge, "lin_edge"), (self.residual, "res"))
        for mine, name in pairs:
            copy_to(mine.weight, getattr(ours, name).weight)
        self.attention.copy_(torch.cat([ours.att_src, ours.att_dst, ours.att_edge]))
        self.bias.copy_(ours.bias)

    def forward(self, own: Tensor, others: Tensor, edge_x: Tensor, there: Tensor) -> Tensor:
        row = heads_of(self.src(others), self.heads)
        of_src, of_dst, of_edge = self.attention
        logits = (row * of_src).sum(-1) + (heads_of(self.dst(own), self.heads) * of_dst).sum(-1).unsqueeze(1)
        logits = nn.functional.leaky_relu(logits + (heads_of(self.edge(edge_x), self.heads) * of_edge).sum(-1), 0.2)
        taken = (attend(logits, there, self.dropout).unsqueeze(-1) * row).sum(1).flatten(1)
        return nn.functional.elu(taken + self.bias + self.residual(own))


class _Base(nn.Module):
    """Both models: rows from signatures, link scores, the tree of neighbours."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        width = budget.width
        self.rows = nn.Linear(SIGNATURE_WIDTH, width)
        self.link = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)])

    def start(self, ours: nn.Module) -> None:
        copy_to(self.rows, ours.rows.project)
        for mine, other in zip(self.link, (ours.link.src, ours.link.dst, ours.link.last), strict=True):
            copy_to(mine, other)
        for mine, other in zip(self.layers, ours.layers, strict=True):
            mine.start(other)

    def score(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        src, dst, last = self.link
        return last(torch.relu(src(h_src) + dst(h_dst))).view(-1)


class _TGAT(_Base):
    def __init__(self, budget: Budget, edge_width: int) -> None:
        super().__init__(budget)
        self.time = nn.Linear(1, budget.width).requires_grad_(False)
        self.layers = nn.ModuleList(_TGATLayer(budget, edge_width) for _ in range(2))

    def start(self, ours: nn.Module) -> None:
        super().start(ours)
        copy_to(self.time, ours.time.lin)

    def encode(self, age: Tensor) -> Tensor:
        return torch.cos(self.time(age.unsqueeze(-1)))


class _DySAT(_Base):
    def __init__(self, budget: Budget, edge_width: int) -> None:
        super().__init__(budget)
        width, self.heads = budget.width, budget.heads
        self.layers = nn.ModuleList(_GATLayer(budget, edge_width) for _ in range(2))
        self.places = nn.Parameter(torch.empty(budget.snapshots, width))
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(budget.dropout)

    def start(self, ours: nn.Module) -> None:
        super().start(ours)
        self.places.copy_(ours.across.places)
        for mine, name in ((self.query, "query"), (self.key, "key"), (self.value, "value")):
            copy_to(mine, getattr(ours.across, name))
        copy_to(self.first, ours.across.feed[0])
        copy_to(self.second, ours.across.feed[3])

    def across(self, h: Tensor) -> Tensor:
        z = h + self.places
        query, key, value = (heads_of(part(z), self.heads) for part in (self.query, self.key, self.value))
        weight = ((query[:, :1] * key).sum(-1) / key.shape[-1] ** 0.5).softmax(dim=1)
        y = (self.dropout(weight).unsqueeze(-1) * value).sum(1).flatten(1) + z[:, 0]
        return y + self.second(self.dropout(torch.relu(self.first(y))))


class Plain:
    """A plain model with its table of the past. start: our module, whose weights it begins with."""

    def __init__(self, model: str, data: Data, budget: Budget, window: int, start: nn.Module) -> None:
        self.module = {"tgat": _TGAT, "dysat": _DySAT}[model](budget, data.edge_x.shape[1])
        with torch.no_grad():
            self.module.start(start)
        self._embed: Callable[[Int64, Int64], Tensor] = {"tgat": self._tgat, "dysat": self._dysat}[model]
        self._table, self._budget, self._window = PastTable(data), budget, window
        self._x, self._edge_x = torch.from_numpy(data.x), torch.from_numpy(data.edge_x)

    def begin(self) -> None:
        """Nothing is remembered."""

    def observe(self, batch: Batch) -> None:
        """Nothing is remembered."""

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        roots = np.concatenate([batch.src, batch.dst, batch.negative])
        h_src, h_dst, h_negative = self._embed(roots, np.tile(batch.time, 3)).split(len(batch.src))
        return self.module.score(h_src, h_dst), self.module.score(h_src, h_negative)

    def _tgat(self, vertices: Int64, times: Int64, depth: int = 2) -> Tensor:
        model = self.module
        if not depth:
            return model.rows(self._x[torch.from_numpy(vertices)])
        found, ids, at, there = self._table.recent(vertices, times, np.zeros_like(times), self._budget.fanout)
        *below, places = self._table.once(np.append(vertices, found), np.append(times, at))
        own, others = self._split(self._tgat(*below, depth - 1)[places], found.shape)
        age = model.encode(torch.from_numpy(times[:, None] - at).float())
        edge_x, mask = self._edge_x[torch.from_numpy(ids)], torch.from_numpy(there)
        return model.layers[depth - 1](own, others, age, model.encode(torch.zeros(1)), edge_x, mask)

    @staticmethod
    def _split(rows: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The targets' own rows, and their neighbours' (n, k, width)."""
        return rows[: shape[0]], rows[shape[0] :].view(*shape, rows.shape[1])

    def _dysat(self, vertices: Int64, times: Int64) -> Tensor:
        snapshots = [self._snapshot(vertices, times, s) for s in range(self._budget.snapshots)]
        return self.module.across(torch.stack(snapshots, dim=1))

    def _snapshot(self, vertices: Int64, times: Int64, snapshot: int, depth: int = 2) -> Tensor:
        model = self.module
        if not depth:
            return model.rows(self._x[torch.from_numpy(vertices)])
        end, begin = times - snapshot * self._window, times - (snapshot + 1) * self._window
        found, ids, _, there = self._table.recent(vertices, end, begin, self._budget.fanout)
        when = np.where(there, times[:, None], 0)  # a snapshot's edges are those of the root's window, at every hop
        *below, places = self._table.once(np.append(vertices, found), np.append(times, when))
        own, others = self._split(self._snapshot(*below, snapshot, depth - 1)[places], found.shape)
        edge_x, mask = self._edge_x[torch.from_numpy(ids)], torch.from_numpy(there)
        return model.layers[depth - 1](own, others, edge_x, mask)
