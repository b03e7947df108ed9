"""Pre-sampling: the samples of a query, kept as the graph changes. Start here: query.py, then plan.py."""

from livegnn.sampling.ad_hoc import AdHocSampler
from livegnn.sampling.decompose import OneHop
from livegnn.sampling.hop import Hop
from livegnn.sampling.plan import Plan, PlannedQuery, PlannedTable, plan
from livegnn.sampling.presampler import PreSampler, SamplerStats
from livegnn.sampling.query import OpenHop, Query, query
from livegnn.sampling.sample import Sample
from livegnn.sampling.schema import EdgeType, Schema
from livegnn.sampling.server import Prediction, SampleServer, SampleSource, ServerStats

__all__ = [
    "AdHocSampler",
    "EdgeType",
    "Hop",
    "OneHop",
    "OpenHop",
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
    "Schema",
    "ServerStats",
    "plan",
    "query",
]
