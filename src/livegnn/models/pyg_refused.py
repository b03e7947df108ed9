"""Why the rest of torch_geometric.nn.conv is refused today, by class name. docs/models.md is checked against this."""

from __future__ import annotations

__all__ = ["REFUSED_AGGREGATIONS", "REFUSED_CONVS"]

_ATTENTION = "softmax attention is a family not built yet"
_DESTINATION = "its messages depend on the destination's own row, a family not built yet"
_EDGE = "it reads edge attributes, which no supported layer does yet"
_TYPED = "it needs vertex or edge types, a family not built yet"
_POSITION = "it builds or needs a geometry of positions, not a graph that changes edge by edge"
_CUDA = "it runs on CUDA libraries only; use the layer without the prefix"
_LAPLACIAN = "its operator is not a supported sum over edges yet"

REFUSED_CONVS: dict[str, str] = {
    "MessagePassing": "it is the abstract base of all layers",
    "ChebConv": _LAPLACIAN,
    "CuGraphSAGEConv": _CUDA,
    "GravNetConv": _POSITION,
    "GatedGraphConv": "its gated recurrent unit is not supported yet",
    "CuGraphGATConv": _CUDA,
    "FusedGATConv": _CUDA,
    "ARMAConv": "its stacked recursive operator is not supported yet",
    "MFConv": "it chooses weights by degree, which is not supported yet",
    "CuGraphRGCNConv": _CUDA,
    "SignedConv": "it needs positive and negative edges apart, which is not supported yet",
    "DNAConv": _ATTENTION,
    "PointNetConv": _POSITION,
    "SplineConv": _EDGE,
    "DynamicEdgeConv": _POSITION,
    "XConv": _POSITION,
    "PPFConv": _POSITION,
    "PointTransformerConv": _POSITION,
    "HypergraphConv": "a hypergraph's incidence is not a graph of edges",
    "LEConv": _LAPLACIAN,
    "ClusterGCNConv": _LAPLACIAN,
    "PANConv": "it pools paths of several lengths with one degree for all, which is not supported yet",
    "WLConv": "it hashes colours of whole neighbourhoods; there is no number to keep up to date",
    "WLConvContinuous": _LAPLACIAN,
    "HGTConv": _TYPED,
    "HEATConv": _TYPED,
    "HeteroConv": _TYPED,
    "HANConv": _TYPED,
    "PointGNNConv": _POSITION,
    "GPSConv": "its attention runs over all vertices, so one update would change every row",
    "AntiSymmetricConv": "it repeats a layer with itself inside, which is not supported yet",
    "DirGNNConv": "it sends messages against the edges too, which is not supported yet",
    "MeshCNNConv": "a mesh's faces are not a graph of edges",
}

REFUSED_AGGREGATIONS: dict[str, str] = {
    "MulAggregation": "products cannot be undone",
    "MedianAggregation": "medians cannot be kept exact incrementally",
    "QuantileAggregation": "quantiles cannot be kept exact incrementally",
    "LSTMAggregation": "its result depends on the order of the edges",
    "GRUAggregation": "its result depends on the order of the edges",
}
