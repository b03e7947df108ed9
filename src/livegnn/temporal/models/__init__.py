"""Temporal GNNs in PyTorch (livegnn[train]). Start here: interface.py, then inputs.py.

layers.py holds the parts that models share, memory.py what TGN remembers of events; layered.py, dysat.py, tgn.py and
static.py the models; registry.py builds one from its config.
"""

from livegnn.temporal.models import _needs  # noqa: F401  (first: it names the extra)
from livegnn.temporal.models.dysat import DySAT
from livegnn.temporal.models.inputs import HopInput, TemporalInput
from livegnn.temporal.models.interface import EventMemory, TemporalModel
from livegnn.temporal.models.layered import TGAT, TemporalGAT, TemporalSAGE
from livegnn.temporal.models.memory import VertexMemory
from livegnn.temporal.models.registry import build, names
from livegnn.temporal.models.static import StaticLinks
from livegnn.temporal.models.tgn import TGN

__all__ = [
    "DySAT",
    "EventMemory",
    "HopInput",
    "StaticLinks",
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
