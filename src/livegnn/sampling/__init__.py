"""Pre-sampling: the samples of a query, kept as the graph changes.

`queries` says what to sample, `presample` keeps the samples in one process, `cluster` in several workers.
"""

from livegnn.sampling.cluster.front_end import FrontEnd
from livegnn.sampling.cluster.local import LocalCluster
from livegnn.sampling.cluster.partition import PartitionState, even_owners, even_serving, join, split, start_state
from livegnn.sampling.cluster.sampling_worker import SamplingWorker
from livegnn.sampling.cluster.serving_worker import ServingWorker
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.ad_hoc import AdHocSampler
from livegnn.sampling.presample.presampler import PreSampler, SamplerStats
from livegnn.sampling.presample.sample import Sample
from livegnn.sampling.presample.server import Prediction, SampleServer, ServerStats
from livegnn.sampling.presample.source import ReadOptions, SampleSource
from livegnn.sampling.queries.decompose import OneHop
from livegnn.sampling.queries.hop import Hop
from livegnn.sampling.queries.plan import Plan, PlannedQuery, PlannedTable, plan
from livegnn.sampling.queries.query import OpenHop, Query, query
from livegnn.sampling.queries.schema import EdgeType, Schema

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
    "ReadOptions",
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
