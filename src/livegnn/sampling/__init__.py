"""Pre-sampling: the samples of a query, kept as the graph changes. Start here: query.py, then plan.py.

Kept by several workers: docs/sampling-workers.md, then cluster.py.
"""

from livegnn.sampling.ad_hoc import AdHocSampler
from livegnn.sampling.cluster import LocalCluster
from livegnn.sampling.decompose import OneHop
from livegnn.sampling.front_end import FrontEnd
from livegnn.sampling.hop import Hop
from livegnn.sampling.partition import PartitionState, even_owners, even_serving, join, split, start_state
from livegnn.sampling.plan import Plan, PlannedQuery, PlannedTable, plan
from livegnn.sampling.presampler import PreSampler, SamplerStats
from livegnn.sampling.query import OpenHop, Query, query
from livegnn.sampling.sample import Sample
from livegnn.sampling.sampling_worker import SamplingWorker
from livegnn.sampling.schema import EdgeType, Schema
from livegnn.sampling.server import Prediction, SampleServer, SampleSource, ServerStats
from livegnn.sampling.serving_worker import ServingWorker
from livegnn.sampling.spec import ClusterSpec

__all__ = [
    "AdHocSampler",
    "ClusterSpec",
    "EdgeType",
    "FrontEnd",
    "Hop",
    "LocalCluster",
    "OneHop",
    "OpenHop",
    "PartitionState",
    "Plan",
    "PlannedQuery",
    "PlannedTable",
    "PreSampler",
    "Prediction",
    "Query",
    "Sample",
    "SampleServer",
    "SampleSource",
    "SamplerStats",
    "SamplingWorker",
    "Schema",
    "ServerStats",
    "ServingWorker",
    "even_owners",
    "even_serving",
    "join",
    "plan",
    "query",
    "split",
    "start_state",
]
