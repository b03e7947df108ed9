"""Learning on a stream of dated edges: sampling back in time, feature caches, models, continuous training.

Start here: hop.py, what a sample is. docs/temporal.md is the map.
"""

from livegnn.temporal.caches import FeatureCache, FeatureSource, presample
from livegnn.temporal.hop import TemporalHop

__all__ = ["FeatureCache", "FeatureSource", "TemporalHop", "presample"]
