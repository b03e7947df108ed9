"""Learning on a stream of dated edges: sampling back in time, feature caches, models, continuous training.

Start here: hop.py, what a sample is. docs/temporal.md is the map.
"""

from livegnn.temporal.caches import FeatureCache, FeatureSource, presample
from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.pin import PinnedSampler
from livegnn.temporal.sampler import TemporalSampler
from livegnn.temporal.walks import TemporalWalks

__all__ = [
    "FeatureCache",
    "FeatureSource",
    "PinnedSampler",
    "TemporalHop",
    "TemporalSampler",
    "TemporalWalks",
    "presample",
]
