"""Deployments with sources and sinks, and what a graph should hold after a stream of records."""

from __future__ import annotations

import time

import livegnn as lg
from tests.unit.deployment.world import ENGINES, graph, prepared

EDGE = {"op": "add_edge", "u": "from", "v": "to"}


def flowing(place, sources=(), sinks=(), begin=graph, once=True, **more):
    """A deployment that is not started; paths are relative to the working folder, so give whole ones."""
    if not (place / "models").exists():
        prepared(place)
    config = {"models": str(place / "models"), **ENGINES, "source": list(sources), "sink": list(sinks), **more}
    return lg.Deployment(config, place / "data", graph=begin, once=once)


def until(condition, seconds=60):
    """Waits until it holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return found


def run_dry(one):
    """Waits until all sources have ended; their states."""
    assert one.pipes.wait(60)
    return {each.name: each for each in one.pipes.sources}


def pairs(one, first=90):
    """Edges that were added, in order."""
    found = one.graph.edges()
    return list(zip(found["src"].tolist()[first:], found["dst"].tolist()[first:], strict=True))
