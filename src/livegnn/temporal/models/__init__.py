"""Temporal GNNs in PyTorch (livegnn[train]). Start here: interface.py, then inputs.py.

layers.py holds the parts that models share, memory.py what TGN remembers of events; one file per model; registry.py
builds one from its config.
"""

from livegnn.temporal.models import _needs  # noqa: F401  (first: it names the extra)
from livegnn.temporal.models.dysat import DySAT
from livegnn.temporal.models.gat import TemporalGAT
from livegnn.temporal.models.inputs import HopInput, TemporalInput
from livegnn.temporal.models.interface import EventMemory, TemporalModel
from livegnn.temporal.models.memory import VertexMemory
from livegnn.temporal.models.registry import build, names
from livegnn.temporal.models.sage import TemporalSAGE
from livegnn.temporal.models.tgat import TGAT
from livegnn.temporal.models.tgn import TGN

__all__ = [
    "DySAT",
    "EventMemory",
    "HopInput",
    "TGAT",
    "TGN",
    "TemporalGAT",
    "TemporalInput",
    "TemporalModel",
    "TemporalSAGE",
    "VertexMemory",
    "build",
    "names",
]
