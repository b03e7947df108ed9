"""Deployments with temporal engines: a graph with times, and models in the registry."""

from __future__ import annotations

import numpy as np
import torch

import livegnn as lg
from livegnn.sampling.presample.tree_sage import TreeSAGE
from livegnn.temporal.models import TGN
from tests.unit.deployment.world import deployment, prepared, sealed

WIDTHS = {"x_width": 4, "embed_width": 8, "memory_width": 8, "time_width": 8}
TEMPORAL = {"name": "links", "model": "tgn"}
SAMPLER = {"name": "near", "query": lg.query().out().sample(3).to_text(), "model": "sage/1"}


def put(folder, name, version, module, path, **arguments):
    """A module in the registry, by the path of its class."""
    place = folder / "models" / name / str(version)
    place.mkdir(parents=True)
    lines = [f'class = "{path}"', "[arguments]", *(f"{key} = {value}" for key, value in arguments.items())]
    (place / "model.toml").write_text("\n".join(lines))
    torch.save(module.state_dict(), place / "weights.pt")
    sealed(place)


def tgn(seed):
    torch.manual_seed(seed)
    return TGN(**WIDTHS)


def placed(folder):
    """The folder, with two versions of a TGN next to the engine's model."""
    prepared(folder)
    for version in (1, 2):
        put(folder, "tgn", version, tgn(version), "livegnn.temporal.models:TGN", **WIDTHS)
    return folder


def put_sage(folder):
    """A model for samples of one hop in the registry: sage/1."""
    torch.manual_seed(0)
    sage, widths = TreeSAGE(4, 4, 3, 1), {"in_channels": 4, "hidden_channels": 4, "out_channels": 3, "num_layers": 1}
    put(folder, "sage", 1, sage, "livegnn.sampling.presample.tree_sage:TreeSAGE", **widths)
    return sage


def graph():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 4)).astype(np.float32)
    return lg.Graph(features, rng.integers(0, 30, 90), rng.integers(0, 30, 90), time=np.arange(90))


def event(u, v, time):
    updates = lg.Updates()
    updates.add_edge(u, v, time=time)
    return updates


def timed(folder, begin=graph, **more):
    return deployment(folder, begin, **{"temporal": [TEMPORAL], **more})
