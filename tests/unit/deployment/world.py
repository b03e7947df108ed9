"""Deployments of the tests: a small graph, two layers, and ways to leave a process."""

from __future__ import annotations

import hashlib

import numpy as np

import livegnn as lg
from livegnn.deployment import Registry

ENGINES = {"engine": [{"name": "scores", "model": "fraud"}]}


def model(seed=0):
    rng = np.random.default_rng(seed)
    return lg.Model(
        [
            lg.layers.GCN(rng.normal(size=(5, 4)), np.zeros(5), activation="relu"),
            lg.layers.SAGE(rng.normal(size=(3, 5)), rng.normal(size=(3, 5))),
        ]
    )


def graph():
    rng = np.random.default_rng(1)
    return lg.Graph(rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 30, 90), rng.integers(0, 30, 90))


def edge(u, v):
    updates = lg.Updates()
    updates.add_edge(u, v)
    return updates


def prepared(folder):
    """The folder, with a model in its registry."""
    Registry(folder / "models").add("fraud", model())
    return folder


def deployment(place, begin=graph, **more):
    config = {"models": str(place / "models"), **ENGINES, **more}
    return lg.Deployment(config, place / "data", graph=begin)


def abandon(open_deployment):
    """As kill -9 leaves it, but for the lock and the handles of the process: no snapshot is written."""
    open_deployment._committer.close()
    open_deployment._stack.close()
    open_deployment._state = "closed"
    open_deployment._snapshot_due.set()


def sealed(place):
    """Writes SHA256SUMS of what is there, as sha256sum does."""
    files = [one for one in sorted(place.iterdir()) if one.name != "SHA256SUMS"]
    lines = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files]
    (place / "SHA256SUMS").write_text("".join(lines))
