"""livegnn keeps the output of a trained graph neural network exactly up to date while its graph changes.

Start with Graph, Updates, from_pyg and Engine; README.md shows all four in fifteen lines. What these return, and what
fewer programs name, is in the packages: livegnn.inference, livegnn.sampling and livegnn.temporal. livegnn.pyg has
PyTorch Geometric's interfaces on a live graph.

Each name is imported when it is first used. So a program that is a client of a service alone (livegnn.client) loads
neither NumPy nor the compiled module.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from livegnn import errors, inference, layers, pyg, sampling, temporal
    from livegnn._native import __version__
    from livegnn.client import AsyncClient, Client
    from livegnn.deployment import Deployment
    from livegnn.distributed.cluster.cluster import Cluster
    from livegnn.graph import Graph, Updates
    from livegnn.inference import Changes, Engine, Readout
    from livegnn.models.model import Model
    from livegnn.models.pyg.entry import from_pyg, graph_level_from_pyg
    from livegnn.sampling import AdHocSampler, LocalCluster, PreSampler, SampleServer, query
    from livegnn.temporal import ContinuousTrainer, FeatureCache, TemporalEngine, TemporalSampler

__all__ = [
    "__version__",
    "errors",
    "inference",
    "layers",
    "pyg",
    "sampling",
    "temporal",
    # the four to start with
    "Graph",
    "Updates",
    "from_pyg",
    "Engine",
    # a model without PyG, the result of a batch, pools over graphs
    "Model",
    "Changes",
    "Readout",
    "graph_level_from_pyg",
    # the Engine's verbs over many workers
    "Cluster",
    # a durable service, and its clients
    "Deployment",
    "Client",
    "AsyncClient",
    # sampling
    "query",
    "PreSampler",
    "SampleServer",
    "LocalCluster",
    "AdHocSampler",
    # temporal learning
    "TemporalSampler",
    "TemporalEngine",
    "ContinuousTrainer",
    "FeatureCache",
]

_HOMES = {  # where the names are that are no packages
    "__version__": "_native",
    "AsyncClient": "client",
    "Client": "client",
    "Cluster": "distributed.cluster.cluster",
    "Deployment": "deployment",
    "Graph": "graph",
    "Updates": "graph",
    "Changes": "inference",
    "Engine": "inference",
    "Readout": "inference",
    "Model": "models.model",
    "from_pyg": "models.pyg.entry",
    "graph_level_from_pyg": "models.pyg.entry",
    "AdHocSampler": "sampling",
    "LocalCluster": "sampling",
    "PreSampler": "sampling",
    "SampleServer": "sampling",
    "query": "sampling",
    "ContinuousTrainer": "temporal",
    "FeatureCache": "temporal",
    "TemporalEngine": "temporal",
    "TemporalSampler": "temporal",
}
_PACKAGES = (
    "deployment",
    "errors",
    "graph",
    "inference",
    "layers",
    "log",
    "models",
    "pyg",
    "sampling",
    "temporal",
    "types",
    "verify",
)


def __getattr__(name: str) -> Any:
    """A name at its first use."""
    home = _HOMES.get(name)
    if home is not None:
        found = getattr(importlib.import_module(f"livegnn.{home}"), name)
    elif name in _PACKAGES:
        found = importlib.import_module(f"livegnn.{name}")
    else:
        raise AttributeError(f"module 'livegnn' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
