"""Exact incremental inference: the engine, what a batch changed, and views of what it would change."""

from livegnn.inference.changes import Changes, ExtremeStats, LayerStats, Stats
from livegnn.inference.deadline import Stream, StreamBatch
from livegnn.inference.engine import Engine, Handle, WhatIfView
from livegnn.inference.readout import Readout
from livegnn.inference.resolution import LayerResolution

__all__ = [
    "Changes",
    "Engine",
    "ExtremeStats",
    "Handle",
    "LayerResolution",
    "LayerStats",
    "Readout",
    "Stats",
    "Stream",
    "StreamBatch",
    "WhatIfView",
]
