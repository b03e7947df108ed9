"""Tools to test an engine, ours or one behind your own model: random models, random streams, and the oracle.

Nothing in the package imports this. `check_engine` is the oracle: it fails with the seed's own words when live state
differs from
a run from scratch, or an output from the float64 reference.
"""

from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from livegnn.testing.oracle import check_edges, check_engine, reference_edges, reference_outputs
from livegnn.testing.streams import Mirror, random_batch, random_graph

__all__ = [
    "Mirror",
    "check_edges",
    "check_engine",
    "graph_columns",
    "random_batch",
    "random_graph",
    "random_model",
    "reference_edges",
    "reference_outputs",
]
