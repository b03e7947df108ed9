"""benchmarks/ lies beside the package, not in it: make it importable wherever pytest starts."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
from torch_geometric import nn as pyg

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Benchmarks collect garbage before they time: that shall not walk through what thousands of tests have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_propagate() -> None:
    """PyG writes a class's propagate for the aggregation of its first object, which another test may have made."""
    for kind in (pyg.GCNConv, pyg.SAGEConv, pyg.GraphConv, pyg.GINConv):
        sys.modules.pop(f"{kind.__module__}_{kind.__name__}_propagate", None)
        for name in ("propagate", "collect"):
            if name in vars(kind):
                delattr(kind, name)
