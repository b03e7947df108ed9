"""Convolutions along edges that PyG's functions have changed in the forward: which of them mean the same as a layer.

A layer that makes its own self-loops gets the same ones of edges whose self-loops were changed before. A layer that
makes none and is given them is the layer that makes them. For sums, the rest is written out as values.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import Gather, Source
from livegnn.models.pyg.context import EDGES, WEIGHTS, Import, Rewired, refuse
from livegnn.models.pyg.rewired import normalised_sum, present_mean, present_sum

_SUMS = (
    pyg.GCNConv, pyg.GraphConv, pyg.SAGEConv, pyg.GINConv, pyg.SimpleConv, pyg.LGConv, pyg.TAGConv, pyg.APPNP,
    pyg.GCN2Conv, pyg.SGConv, pyg.SSGConv,
)  # fmt: skip
_NORMALISED = (pyg.GCNConv, pyg.LGConv, pyg.TAGConv, pyg.APPNP, pyg.GCN2Conv, pyg.SGConv, pyg.SSGConv)
_ADVICE = "give the layer the forward's own edge_index, and let the layer add self-loops and normalise"


def joined(edges: Any, weight: Any, where: str) -> Rewired | None:
    """Edges and weights as one; None where neither was changed. Raises: ModelUnsupported where they do not fit."""
    if not isinstance(edges, Rewired) and not isinstance(weight, Rewired):
        return None
    if not isinstance(edges, Rewired) or edges.what != EDGES.what:
        raise refuse(where, "its edges are not those that its weights were computed for", _ADVICE)
    if weight is None:
        return replace(edges, loops="replace" if edges.loops == "fill" else edges.loops, fill=1.0)
    if not isinstance(weight, Rewired) or weight.what != WEIGHTS.what:
        raise refuse(where, "its weights are not those of its edges, to which self-loops were added", _ADVICE)
    if (weight.loops, weight.fill) != (edges.loops, edges.fill):
        raise refuse(where, "its weights were computed for other self-loops than its edges have", _ADVICE)
    return weight


def settled(conv: Any, rewired: Rewired | None, attributes: Any, where: str) -> tuple[Any, Rewired | None]:
    """(the layer, what is left to do by sums): the layer itself where it does the same without the forward's change.

    Raises: ModelUnsupported for a layer that cannot go along such edges.
    """
    if rewired is None or (rewired.loops == "keep" and rewired.norm is None):
        return conv, None
    own = getattr(conv, "add_self_loops", None) if getattr(conv, "normalize", True) else None
    plain = rewired.norm is None and attributes is None
    once = rewired.loops == "replace" and not rewired.weighted
    if plain and own and not rewired.weighted:
        return conv, None  # it removes all self-loops, and adds its own
    if plain and own is False and (once or (rewired.loops == "fill" and rewired.fill == 1)):
        adding = copy.copy(conv)
        adding.add_self_loops = True
        if hasattr(adding, "improved"):
            adding.improved = False
        return adding, None
    if attributes is not None or type(conv) not in _SUMS:
        raise refuse(where, "its edges have other self-loops than the graph's", _ADVICE)
    return conv, rewired


def rewired_sum(
    conv: Any, x: ir.Value, rewired: Rewired, aggregate: ir.Aggregate | None, where: str, record: Import
) -> ir.Value:
    """One aggregate of a layer along such edges, by its own `normalize`. Raises: ModelUnsupported."""
    normalises = type(conv) in _NORMALISED and getattr(conv, "normalize", True)
    own = bool(getattr(conv, "add_self_loops", False)) and normalises
    if normalises and (own or rewired.norm is not None):
        raise refuse(where, "it adds self-loops or normalises what was changed before", _ADVICE)
    normed = normalises or rewired.norm is not None
    if aggregate == "sum":
        return normalised_sum(x, rewired, record) if normed else present_sum(x, rewired, record)
    if aggregate == "mean" and not normed:
        return present_mean(x, rewired, record)
    if aggregate is not None and not (normed or rewired.weighted or rewired.loops == "add"):
        return Gather(Source(x), aggregate, loops="drop" if rewired.loops == "drop" else "replace")
    raise refuse(where, f"aggr={conv.aggr!r} over self-loops that the forward has changed", _ADVICE)
