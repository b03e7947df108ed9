"""Feature caches for training on a stream (livegnn[train]). Start here: cache.py; docs/feature-cache.md has the rules."""

from livegnn.temporal.caches.cache import FeatureCache
from livegnn.temporal.caches.presample import presample
from livegnn.temporal.caches.sources import FeatureSource
from livegnn.temporal.caches.stats import CacheStats, FetchStats

__all__ = ["CacheStats", "FeatureCache", "FeatureSource", "FetchStats", "presample"]
