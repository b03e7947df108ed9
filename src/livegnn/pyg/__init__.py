"""PyTorch Geometric's own interfaces on the live graph (livegnn[pyg]): stores, loaders, a module, explanations.

Start with neighbor_loader and LiveModule; docs/pyg.md shows all of them. PyTorch and PyG are imported when the first
name is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from livegnn.optional import need

if TYPE_CHECKING:
    from livegnn.pyg.explaining import explain
    from livegnn.pyg.live_module import LiveModule
    from livegnn.pyg.loaders import link_neighbor_loader, neighbor_loader
    from livegnn.pyg.reading import pin
    from livegnn.pyg.sampling import sampler
    from livegnn.pyg.stores import feature_store, graph_store

_PLACES = {
    "feature_store": "stores",
    "graph_store": "stores",
    "sampler": "sampling",
    "pin": "reading",
    "neighbor_loader": "loaders",
    "link_neighbor_loader": "loaders",
    "LiveModule": "live_module",
    "explain": "explaining",
}

__all__ = [
    "LiveModule",
    "explain",
    "feature_store",
    "graph_store",
    "link_neighbor_loader",
    "neighbor_loader",
    "pin",
    "sampler",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in ("torch", "torch_geometric"):
        need(package, "pyg")
    return getattr(importlib.import_module(f"livegnn.pyg.{_PLACES[name]}"), name)
