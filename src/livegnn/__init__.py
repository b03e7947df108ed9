"""livegnn keeps the output of a trained graph neural network exactly up to date while its graph changes.

Start with Graph, Updates, from_pyg and Engine; README.md shows all four in fifteen lines.
"""

from livegnn import errors
from livegnn._native import __version__
from livegnn.graph import Graph, Updates
from livegnn.inference import (
    Changes,
    Engine,
    Handle,
    LayerResolution,
    LayerStats,
    Readout,
    SnapshotView,
    Stats,
    Stream,
    StreamBatch,
    WhatIfView,
)
from livegnn.models.attention_layers import GAT, GINE, RGCN, GATv2
from livegnn.models.graph_level import GraphLevel
from livegnn.models.layers import (
    APPNP,
    GCN,
    GIN,
    LG,
    SAGE,
    SGC,
    Activate,
    BatchNorm,
    Cheb,
    Dense,
    GraphConv,
    JumpingKnowledge,
    L2Normalize,
    LayerNorm,
    LogSoftmax,
    Residual,
    Softmax,
)
from livegnn.models.model import Model
from livegnn.models.pyg.entry import from_pyg, graph_level_from_pyg
from livegnn.sampling import (
    AdHocSampler,
    LocalCluster,
    Prediction,
    PreSampler,
    Query,
    Sample,
    SamplerStats,
    SampleServer,
    SamplingWorker,
    ServerStats,
    ServingWorker,
    query,
)
from livegnn.temporal import (
    CacheStats,
    ContinuousTrainer,
    FeatureCache,
    PinnedSampler,
    RoundReport,
    TemporalEngine,
    TemporalHop,
    TemporalSampler,
    TemporalWalks,
    TrainingReport,
    WhatNext,
)

__all__ = [
    "__version__",
    "errors",
    # the four to start with
    "Graph",
    "Updates",
    "from_pyg",
    "graph_level_from_pyg",
    "Engine",
    # what they give
    "Changes",
    "GraphLevel",
    "Handle",
    "LayerResolution",
    "LayerStats",
    "Readout",
    "SnapshotView",
    "Stats",
    "Stream",
    "StreamBatch",
    "WhatIfView",
    # sampling
    "LocalCluster",
    "query",
    "PreSampler",
    "AdHocSampler",
    "Query",
    "Sample",
    "SamplerStats",
    "SampleServer",
    "SamplingWorker",
    "ServingWorker",
    "Prediction",
    "ServerStats",
    # temporal learning
    "CacheStats",
    "ContinuousTrainer",
    "FeatureCache",
    "PinnedSampler",
    "RoundReport",
    "TemporalEngine",
    "TemporalHop",
    "TemporalSampler",
    "TemporalWalks",
    "TrainingReport",
    "WhatNext",
    # models without PyG
    "Model",
    "APPNP",
    "Activate",
    "BatchNorm",
    "Cheb",
    "Dense",
    "GAT",
    "GATv2",
    "GCN",
    "GIN",
    "GINE",
    "GraphConv",
    "JumpingKnowledge",
    "L2Normalize",
    "LG",
    "LayerNorm",
    "LogSoftmax",
    "RGCN",
    "Residual",
    "SAGE",
    "SGC",
    "Softmax",
]
