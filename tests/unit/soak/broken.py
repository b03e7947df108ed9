"""Scenarios that are broken on purpose, which the soak must report."""

import os
import signal
import time

import numpy as np

import livegnn as lg
from livegnn.errors import StateMismatch


class _Wrong(lg.Engine):
    """One whose state is always another than a run from scratch's."""

    def verify(self):
        raise StateMismatch("[verify] expected the live state to equal a run from scratch, got another one")


def wrong(step):
    """verify() raises at the third tick."""
    graph = lg.Graph(np.eye(3, dtype=np.float32), [0, 1], [1, 2])
    engine = _Wrong(lg.Model([lg.layers.GCN(np.eye(3, dtype=np.float32))]), graph, threads=1)
    for _ in range(3):  # also where the time is over before
        step.tick()
        step.counts.add("updates", 10)
    engine.verify()


_kept = []


def leak(step):
    """16 MiB more at each rest."""
    for _ in range(15):
        step.tick()
        _kept.append(np.ones(2 << 20))
        step.rest()


def killed(step):
    """Ends by a signal."""
    step.counts.add("updates", 7)
    step.tick()
    step.counts.add("reads", 1)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(step):
    """Never comes back."""
    step.tick()
    time.sleep(600)


def large(step):
    """Takes more memory than it may."""
    step.tick()
    rows = np.ones(80 << 20)
    time.sleep(600)
    assert rows.any()


def well(step):
    """Does nothing wrong."""
    while step.tick() and step.ticks < 20:
        step.counts.add("updates", 100)
        step.counts.cover("family", "sage")
