"""Why the rest of torch_geometric.nn is refused today, by class name. docs/models.md is checked against this."""

from __future__ import annotations

_POSITION = "it makes its own edges of the positions, so one update could change any of them"
_CUDA = "it runs on CUDA libraries only; use the layer without the prefix"

_MEDIAN = "of quantiles the engine keeps the lower median: q=0.5, interpolation='lower', fill_value=0"

REFUSED_CONVS: dict[str, str] = {
    "MessagePassing": "it is the abstract base of all layers",
    "CuGraphSAGEConv": _CUDA,
    "GravNetConv": _POSITION,
    "CuGraphGATConv": _CUDA,
    "FusedGATConv": _CUDA,
    "CuGraphRGCNConv": _CUDA,
    "SignedConv": "it takes positive and negative edges as two lists, and a graph has one",
    "SplineConv": "its B-spline kernels need libraries that PyG does not bring",
    "DynamicEdgeConv": _POSITION,
    "XConv": _POSITION,
    "PPFConv": "its angles between positions and normals need atan2, which the engine does not compute",
    "HypergraphConv": "a hypergraph's incidence is not a graph of edges",
    "PANConv": "it divides by the number of different vertices at the ends of paths, which no sum along edges gives",
    "WLConv": "it hashes colours of whole neighbourhoods; there is no number to keep up to date",
    "HANConv": "its attention over relations is a mean over all vertices, so one update would change every row",
    "GPSConv": "its attention runs over all vertices, so one update would change every row",
    "MeshCNNConv": "a mesh's faces are not a graph of edges",
}

REFUSED_AGGREGATIONS: dict[str, str] = {
    "MulAggregation": "products cannot be undone",
    "MedianAggregation": _MEDIAN,
    "QuantileAggregation": _MEDIAN,
    "LSTMAggregation": "its result depends on the order of the edges",
    "GRUAggregation": "its result depends on the order of the edges",
}

_SMALLER = "it makes another, smaller graph of each graph; one update would change which vertices are left"
_SOFT = "its weights are a softmax over all vertices of a graph, so one update would change all of them"
_ORDER = "its result depends on the order of the vertices"
_DENSE = "it lays out all vertices of a graph together, so one update would change all of its result"

#: Pools and readouts over a graph's vertices.
REFUSED_POOLS: dict[str, str] = {
    "TopKPooling": _SMALLER,
    "SAGPooling": _SMALLER,
    "ASAPooling": _SMALLER,
    "EdgePooling": _SMALLER,
    "ClusterPooling": _SMALLER,
    "PANPooling": _SMALLER,
    "MemPooling": _SMALLER,
    "SortAggregation": "it sorts a graph's vertices by a column and keeps the first of them",
    "Set2Set": "it reads a graph's vertices again and again by a softmax over all of them",
    "AttentionalAggregation": _SOFT,
    "SoftmaxAggregation": _SOFT,
    "PowerMeanAggregation": "powers of rows are not pooled yet",
    "VarAggregation": "variances over a graph's vertices are not pooled yet",
    "StdAggregation": "deviations over a graph's vertices are not pooled yet",
    "MulAggregation": "products cannot be undone",
    "MedianAggregation": "medians over a graph's vertices are not pooled yet",
    "QuantileAggregation": "quantiles over a graph's vertices are not pooled yet",
    "LSTMAggregation": _ORDER,
    "GRUAggregation": _ORDER,
    "MLPAggregation": _DENSE,
    "SetTransformerAggregation": _DENSE,
    "GraphMultisetTransformer": _DENSE,
    "PatchTransformerAggregation": _DENSE,
    "EquilibriumAggregation": "it solves an optimisation over all vertices of a graph",
    "DeepSetsAggregation": "its networks are not read; call the first, a SumAggregation and the second one by one",
    "VariancePreservingAggregation": "it divides by the root of the number of a graph's vertices, which is not kept",
    "DegreeScalerAggregation": "it scales by the number of a graph's vertices, which is not kept",
    "LCMAggregation": _ORDER,
}
