"""Exact incremental inference: the engine, what a batch changed, and views of what it would change."""

from livegnn.inference.callbacks import Handle
from livegnn.inference.changes import Changes, ExtremeStats, LayerStats, Stats
from livegnn.inference.engine import Engine
from livegnn.inference.readout import Readout
from livegnn.inference.resolution import LayerResolution
from livegnn.inference.stream import Stream, StreamBatch
from livegnn.inference.views import SnapshotView, WhatIfView

__all__ = [
    "Changes",
    "Engine",
    "ExtremeStats",
    "Handle",
    "LayerResolution",
    "LayerStats",
    "Readout",
    "SnapshotView",
    "Stats",
    "Stream",
    "StreamBatch",
    "WhatIfView",
]
