"""livegnn keeps the output of a trained graph neural network exactly up to date while its graph changes.

Start with Graph, Updates, from_pyg and Engine; README.md shows all four in fifteen lines. What these return, and what
fewer programs name, is in the packages: livegnn.inference, livegnn.sampling and livegnn.temporal. livegnn.pyg has
PyTorch Geometric's interfaces on a live graph.
"""

from livegnn import errors, inference, layers, pyg, sampling, temporal
from livegnn._native import __version__
from livegnn.deployment import Deployment
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
    # a durable service
    "Deployment",
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
