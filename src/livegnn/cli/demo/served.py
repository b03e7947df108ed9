"""The demo's model and stream behind `livegnn serve --demo`."""

from __future__ import annotations

import argparse
import logging
import threading
from pathlib import Path

import livegnn as lg
from livegnn.cli.console import Console
from livegnn.cli.demo import experiment as st
from livegnn.cli.demo.command import introduce, stream_of
from livegnn.deployment import Deployment, Registry
from livegnn.errors import LiveGnnError

_log = logging.getLogger("livegnn")


class DemoStream:
    """Trains the demo's model on the first half of a dated graph, and streams the rest of it into a deployment."""

    def __init__(self, console: Console) -> None:
        self.story = st.prepare(
            stream_of(argparse.Namespace(dataset=None, quick=False, generated=False, seed=0), console)
        )
        introduce(self.story, console)
        self._trained = [st.train(self.story, epochs=epochs) for epochs in (60, 20)]
        console.line(f"Trained a two-layer PyG GraphSAGE on the first {self.story.start:,} events, and a shadow of it.")

    def deployment(self, folder: Path) -> Deployment:
        """A deployment that begins where training ended."""
        registry = Registry(folder / "models")
        if not registry.versions():
            for trained in self._trained:
                registry.add("demo", lg.from_pyg(trained.module))
        engine = {"name": "fraud", "model": "demo/1", "shadow": "demo/2"}
        return Deployment({"models": str(registry.folder), "engine": [engine]}, folder / "data", graph=self._graph)

    def _graph(self) -> lg.Graph:
        story = self.story
        src, dst = story.stream.src[: story.start], story.stream.dst[: story.start]
        return lg.Graph(st.features_at(story, story.start), src, dst, undirected=True)

    def feed(self, deployment: Deployment, rate: float, stop: threading.Event) -> None:
        """Applies the events one by one, `rate` a second, until all are in.

        Events of an earlier run on the same folder are known by their keys, and not applied again.
        """
        from livegnn.cli.demo.replay import make_updates

        story, live = self.story, st.LiveFeatures(self.story)
        live.absorb(0, story.start)
        for event in range(story.start, story.event_count):
            touched = live.absorb(event, event + 1)
            updates = make_updates(story, live, event, event + 1, touched)
            try:
                applied = deployment.apply(updates, key=f"event-{event}")
            except LiveGnnError:
                _log.exception("[demo] the stream ends at event %d", event)
                return
            if not applied.repeated and stop.wait(1 / rate):
                return
        _log.info("[demo] the stream has ended; the service goes on")
