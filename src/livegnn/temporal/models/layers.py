"""What the models share: time encoding, rows to start from, attention, link scores, checks of arguments and inputs.

A layer reads the B' rows of a hop's sources and targets and writes the rows of its B targets, the first B of the B'.
Invariant: a target's new row depends on its own edges alone, as a set: not on their order, nor on other targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.nn.models.tgn import TimeEncoder
from torch_geometric.utils import softmax

from livegnn.errors import DtypeInvalid, ModelMismatch, ValueInvalid, WidthMismatch
from livegnn.graph.checks import INT64_MAX, shown, whole_number
from livegnn.temporal.checks import check_share
from livegnn.temporal.models.inputs import HopInput, TemporalInput
from livegnn.temporal.models.interface import TemporalModel

_NOT_WHOLE = ("dropout", "learn_time", "time_origin")  # arguments that checked_config() checks otherwise, or not

Width: TypeAlias = int | Mapping[str, int]  # floats of features; by vertex type where vertices have types


def time_encoder(width: int) -> nn.Module:
    """PyG's TimeEncoder, cos(w t + b), begun at TGAT's frequencies: w from 1 down to 1e-9, evenly in their logarithm.

    PyG's own start, w in (-1, 1), distinguishes a few units; these distinguish seconds from decades.
    Source: Xu et al. 2020, section 3.1, and the authors' code.
    """
    encoder = TimeEncoder(width)
    with torch.no_grad():
        encoder.lin.weight.copy_(torch.logspace(0, -9, width).view(-1, 1))
        encoder.lin.bias.zero_()
    module: nn.Module = encoder
    return module


def edge_rows(time: nn.Module | None, hop: HopInput) -> Tensor:
    """(E, T + A): the encoding of each edge's age, if asked for, and the edge's features."""
    if time is None:
        return hop.edge_x
    return torch.cat([time(hop.dt), hop.edge_x], dim=1)


def gat_layers(config: Mapping[str, Any], edge_width: int) -> nn.ModuleList:
    """A GATConv a hop, to rows as wide as it reads; no self-loops, a residual of the target's own row instead."""
    width, heads = config["embed_width"], config["heads"]
    options = {"heads": heads, "dropout": config["dropout"], "add_self_loops": False, "residual": True}
    return nn.ModuleList(
        GATConv((width, width), width // heads, edge_dim=edge_width or None, **options)
        for _ in range(config["hop_count"])
    )


@final
class TypedLinear(nn.Module):
    """x W_t + b_t of a row of vertex type t, whose features are the first F_t floats of x.

    Args:    widths: F_t by type, perhaps 0, in the order of the types' codes.   width: floats of a row.
    """

    def __init__(self, widths: Sequence[int], width: int) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.bias = nn.Embedding(len(self.widths), width)
        self.weights = nn.ModuleList(
            nn.Linear(each, width, bias=False) if each else nn.Identity() for each in self.widths
        )

    def forward(self, x: Tensor, types: Tensor) -> Tensor:
        """(N, F), (N,) -> (N, width) float32."""
        rows: Tensor = self.bias(types)
        for code, (width, weight) in enumerate(zip(self.widths, self.weights, strict=True)):
            if width:
                places = (types == code).nonzero().view(-1)
                rows = rows.index_add(0, places, weight(x[places, :width]))
        return rows


@final
class InputRows(nn.Module):
    """The rows that the last hop's layer reads: x W + b, W and b by vertex type; zeros without features and types.

    Args:    x_width: F, perhaps 0; or F by vertex type.   width: floats of a row.
    """

    def __init__(self, x_width: Width, width: int) -> None:
        super().__init__()
        self.width = width
        self.project = projection(x_width, width)

    def forward(self, part: TemporalInput) -> Tensor:
        """(N, width) float32."""
        return part.x.new_zeros(len(part.x), self.width) if self.project is None else projected(self.project, part)


def projection(x_width: Width, width: int) -> nn.Linear | TypedLinear | None:
    """Of vertex features to rows of a width; None where there are none."""
    if isinstance(x_width, Mapping):
        return TypedLinear(list(x_width.values()), width)
    return nn.Linear(x_width, width) if x_width else None


def projected(projection: nn.Module, part: TemporalInput) -> Tensor:
    """(N, width): the projection of an input's features."""
    rows: Tensor = projection(part.x, part.types) if isinstance(projection, TypedLinear) else projection(part.x)
    return rows


@final
class TemporalAttention(nn.Module):
    """TGAT's layer.

    q_v = Wq [h_v | enc(0)];  k_e, v_e = Wk, Wv [h_u | enc(t_v - t_e) | x_e] for each sampled edge e = (u, v);
    a_v = the heads' sums of softmax(q_v . k_e / sqrt(d)) v_e, 0 without edges;  h'_v = W2 relu(W1 [a_v | h_v]).

    Products with h are taken once a row, not once an edge. Source: Xu et al. 2020, equations 6 to 8.

    Args:    width: floats of a row.   out_width: floats of a new row, a multiple of heads.
    """

    def __init__(
        self, width: int, out_width: int, *, edge_width: int, time_width: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.head_width = heads, out_width // heads
        self.query = nn.Linear(width + time_width, out_width)
        self.rows = nn.Linear(width, 2 * out_width)
        self.edges = nn.Linear(time_width + edge_width, 2 * out_width, bias=False)
        self.merge = nn.Sequential(nn.Linear(out_width + width, out_width), nn.ReLU(), nn.Linear(out_width, out_width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor, hop: HopInput, time: nn.Module) -> Tensor:
        """(B', width) -> (B, out_width)."""
        count, (src, dst) = hop.target_count, hop.edge_index
        own = h[:count]
        now = time(hop.dt.new_zeros(1)).expand(count, -1)
        query = self.query(torch.cat([own, now], dim=1)).view(count, self.heads, self.head_width)
        parts = self.rows(h).index_select(0, src) + self.edges(edge_rows(time, hop))
        key, value = parts.view(len(src), 2, self.heads, self.head_width).unbind(1)
        logit = (query.index_select(0, dst) * key).sum(-1) * self.head_width**-0.5
        weight = self.dropout(softmax(logit, dst, num_nodes=count))
        taken = torch.zeros_like(query).index_add(0, dst, value * weight.unsqueeze(-1))
        merged: Tensor = self.merge(torch.cat([taken.flatten(1), own], dim=1))
        return merged


@final
class LinkScore(nn.Module):
    """A learnt logit of a link: w . relu(Ws h_src + Wd h_dst + b) + c; the two ends are not exchangeable."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.src, self.dst, self.last = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """Two of (B, width) -> (B,)."""
        logit: Tensor = self.last(torch.relu(self.src(h_src) + self.dst(h_dst)))
        return logit.squeeze(-1)


def checked_config(
    where: str, name: str, arguments: Mapping[str, Any], *, from_zero: Iterable[str] = ("x_width", "edge_width")
) -> dict[str, Any]:
    """A model's config: its name and arguments, of which those that no model can be made of are refused.

    Args:    from_zero: arguments that may be 0; the other whole numbers count from 1.
    Raises:  ValueInvalid; DtypeInvalid for what is no number.
    """
    config: dict[str, Any] = {
        key: dict(given) if isinstance(given, Mapping) else given for key, given in arguments.items()
    }
    for argument, given in config.items():
        if argument in _NOT_WHOLE:
            continue
        low = 0 if argument in from_zero else 1
        parts = {argument: given}
        if isinstance(given, dict):
            parts = {f"{argument}[{key!r}]": one for key, one in given.items()}
        for part, value in parts.items():
            if not low <= whole_number(where, part, value) <= INT64_MAX:
                raise ValueInvalid(
                    f"[{where}] expected {part} of {low} or more, got {shown(value)}; give such a number"
                )
    width, heads = config["embed_width"], config.get("heads", 1)
    if width % heads:
        raise ValueInvalid(
            f"[{where}] expected embed_width to be a multiple of heads, got {width} and {heads}; "
            f"take embed_width={width - width % heads + heads}"
        )
    check_share(where, "dropout", config["dropout"])
    return {"name": name, **config}


def check_inputs(model: TemporalModel, inputs: Sequence[TemporalInput]) -> None:
    """Refuses inputs that do not fit a model, before anything is computed.

    Raises:  ModelMismatch for a wrong number of snapshots or hops, WidthMismatch for rows of another width,
             DtypeInvalid for features that are not float32.
    """
    where, snapshots, hops = type(model).__name__, model.snapshot_count, model.hop_count
    if len(inputs) != snapshots:
        raise ModelMismatch(f"[{where}] expected {snapshots} inputs, got {len(inputs)}; one a snapshot, newest first")
    for part in inputs:
        if len(part.hops) != hops:
            raise ModelMismatch(f"[{where}] expected {hops} hops, got {len(part.hops)}; sample as many fan-outs")
        typed = isinstance(model.x_width, dict)
        if typed != (part.types is not None):
            raise ModelMismatch(
                f"[{where}] expected an input {'with' if typed else 'without'} vertex types, as x_width= is "
                f"{model.x_width}, got one {'without' if typed else 'with'}; give x_width=graph.feature_widths of a "
                "graph with types"
            )
        x_width = max(model.x_width.values(), default=0) if isinstance(model.x_width, dict) else model.x_width
        _check_rows(where, "x", part.x, len(part.rows), x_width)
        for hop in part.hops:
            _check_rows(where, "edge_x", hop.edge_x, hop.edge_index.shape[1], model.edge_width)
    roots = {part.hops[0].target_count for part in inputs}
    if len(roots) != 1:
        raise ModelMismatch(
            f"[{where}] expected snapshots of the same roots, got {sorted(roots)} of them; sample again"
        )


def _check_rows(where: str, name: str, rows: Tensor, count: int, width: int) -> None:
    if rows.dtype != torch.float32:
        raise DtypeInvalid(f"[{where}] expected {name} of float32, got {rows.dtype}; convert it")
    if tuple(rows.shape) != (count, width):
        raise WidthMismatch(
            f"[{where}] expected {name} of shape ({count}, {width}), got {tuple(rows.shape)}; "
            f"fetch such rows, or build the model with {'x_width' if name == 'x' else 'edge_width'}="
            f"{rows.shape[1] if rows.dim() == 2 else 0}"
        )
