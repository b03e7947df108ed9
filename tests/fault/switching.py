"""Random histories of batches, swaps and rescales, as a function of a seed; and a process that writes one to a log."""

import sys

import numpy as np

import livegnn as lg
from livegnn.log import UpdateLog, open_log
from livegnn.testing import random_batch, random_graph, random_model

OPTIONS = ({}, {"mode": "on_demand"}, {"mode": "hybrid", "hot": 3}, {"state": "compact"}, {"memory_limit": "8MiB"})
SNAPSHOT_EVERY = 4


class History:
    """The steps of one seed; each can be made on any engine, any number of times."""

    def __init__(self, seed, options=None):
        rng = np.random.default_rng(seed)
        self.seed, self.options = seed, OPTIONS[seed % len(OPTIONS)] if options is None else options
        self.width = int(rng.integers(2, 6))
        self.model = self._model(rng)
        self.mirror = random_graph(np.random.default_rng(seed), self.width, True)[1]
        self._steps = []

    def _model(self, rng):
        while (found := random_model(rng, depth=2)).input_width != self.width:
            pass
        return found

    def engine(self):
        """As it was before the first step."""
        graph, _ = random_graph(np.random.default_rng(self.seed), self.width, True)
        return lg.Engine(self.model, graph, threads=1, **self.options)

    def make(self, number, engine):
        """Step `number` on an engine that has made those before it."""
        while number >= len(self._steps):
            self._steps.append(self._next(np.random.default_rng([self.seed, len(self._steps)])))
        kind, given = self._steps[number]
        getattr(engine, kind)(given)

    def _next(self, rng):
        kind = rng.choice(["apply", "swap", "rescale"], p=[0.6, 0.2, 0.2])
        if kind == "apply":
            return kind, random_batch(rng, self.mirror, int(rng.integers(1, 9)))
        return kind, self._model(rng) if kind == "swap" else float(2.0 ** rng.integers(4, 12))

    def after(self, count):
        """An engine without a log that made the first `count` steps."""
        engine = self.engine()
        for number in range(count):
            self.make(number, engine)
        return engine


def run(seed, folder):
    """Makes steps for ever, and prints how many are done."""
    history = History(seed)
    engine = history.engine()
    with UpdateLog(open_log(f"sqlite:{folder}/history.db", synchronous="NORMAL")) as log, log.attach(engine.graph):
        while True:
            history.make(engine.version, engine)
            if engine.version % SNAPSHOT_EVERY == 0:
                engine.save(f"{folder}/engine.lg")
            print(engine.version, flush=True)


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2])
