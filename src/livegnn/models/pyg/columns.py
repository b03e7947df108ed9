"""What a module's layers state about the columns that they read: widths of features and attributes, number of types."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch_geometric import nn as pyg

_ON_ATTRIBUTES = (pyg.GINEConv, pyg.NNConv, pyg.GMMConv, pyg.PDNConv, pyg.HEATConv)  # these cannot do without
_TYPE_COUNTS = ("num_relations", "num_edge_types", "num_types", "num_rels", "n_relations", "num_bond_types")
_TYPES_UNSTATED = 3  # tried on a forward whose layers state no number of types


def stated_widths(module: nn.Module) -> list[int]:
    """Every width that a layer states for its input, in order of the layers; a recurrent cell's after all others."""
    found: list[int] = []
    for keys in (("in_channels", "in_features", "num_features", "channels"), ("input_size",)):
        for each in module.modules():
            for key in keys:
                _add(found, getattr(each, key, None))
    for each in module.modules():
        if isinstance(each, pyg.EdgeConv) and isinstance(each.nn, nn.Module):  # its nn reads two vertices' rows
            found += [width // 2 for width in stated_widths(each.nn) if width % 2 == 0 and width // 2 not in found]
    for each in module.modules():
        if isinstance(each, pyg.MessagePassing) and not type(each).__module__.startswith("torch_geometric."):
            for parameter in each.parameters(recurse=False):  # an own layer's matrices, the input's side first
                for width in parameter.shape[-2:] if parameter.ndim > 1 else parameter.shape:
                    _add(found, width)
    return found


def edge_widths(module: nn.Module, required: bool) -> list[int]:
    """Widths that a layer may expect of edge attributes, the likeliest first; [] if no layer reads any."""
    found: list[int] = []
    reads = required
    for each in module.modules():
        reads = reads or isinstance(each, _ON_ATTRIBUTES)
        _add(found, getattr(each, "edge_dim", None))
        _add(found, getattr(each, "in_edge_channels", None))
        if isinstance(each, (pyg.CGConv, pyg.GMMConv)):
            _add(found, each.dim)
        if isinstance(each, pyg.MessagePassing):
            for key in ("lin_edge", "edge_encoder", "edge_attr_emb"):
                _add(found, getattr(getattr(each, key, None), "in_channels", None))
        if isinstance(each, pyg.GINEConv):
            _add(found, getattr(each.lin, "in_channels", None))
        if isinstance(each, pyg.NNConv) and isinstance(each.nn, nn.Module):
            found += [width for width in stated_widths(each.nn) if width not in found]
    if reads or found:  # an encoder of the module's own may stand before the layer
        found += [width for width in stated_widths(module) if width not in found]
    return found


def relations(module: nn.Module, required: bool) -> int | None:
    """The number of types that all layers know; None if they read none and the forward can do without."""
    typed = [each for each in module.modules() if isinstance(each, (pyg.RGCNConv, pyg.RGATConv))]
    typed += [each for each in module.modules() if isinstance(each, pyg.FiLMConv) and each.num_relations > 1]
    counts = [int(each.num_relations) for each in typed]
    counts += [each.edge_type_emb.num_embeddings for each in module.modules() if isinstance(each, pyg.HEATConv)]
    if counts:
        return min(counts)
    if not required and not any(isinstance(getattr(module, name, None), int) for name in _TYPE_COUNTS):
        return None
    named = [getattr(each, name, None) for each in module.modules() for name in _TYPE_COUNTS]
    return min([_TYPES_UNSTATED, *(count for count in named if isinstance(count, int) and count > 0)])


def _add(found: list[int], width: Any) -> None:
    width = width[0] if isinstance(width, (tuple, list)) and width else width
    if isinstance(width, int) and not isinstance(width, bool) and width > 0 and width not in found:
        found.append(width)
