"""Learning on a stream of dated edges: sampling back in time, feature caches, models, continuous training.

Start here: hop.py, what a sample is. docs/temporal.md is the map. Models are in livegnn.temporal.models, which wants
PyTorch; the rest of this package asks for it where it first needs it.
"""

from livegnn.temporal.caches import CacheStats, FeatureCache, FeatureSource, FetchStats, presample
from livegnn.temporal.engine import TemporalEngine, WhatNext
from livegnn.temporal.hop import TemporalHop, TemporalWalks
from livegnn.temporal.link import LinkPass, LinkScores
from livegnn.temporal.loading import InputLoader
from livegnn.temporal.pin import PinnedSampler
from livegnn.temporal.report import EpochReport, RoundReport, TrainingReport
from livegnn.temporal.sampler import TemporalSampler
from livegnn.temporal.trainer import ContinuousTrainer

__all__ = [
    "CacheStats",
    "ContinuousTrainer",
    "EpochReport",
    "FeatureCache",
    "FeatureSource",
    "FetchStats",
    "InputLoader",
    "LinkPass",
    "LinkScores",
    "PinnedSampler",
    "RoundReport",
    "TemporalEngine",
    "TemporalHop",
    "TemporalSampler",
    "TemporalWalks",
    "TrainingReport",
    "WhatNext",
    "presample",
]
