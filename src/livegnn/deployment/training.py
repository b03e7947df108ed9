"""Training a temporal engine of a deployment on what comes: each round ends with a swap, which is an entry of the log.

What is durable are the publications, weights and memory. The training itself is not: after a restart it begins with the
model that answers, and a new optimiser.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from livegnn.deployment.config_temporal import TemporalConfig
from livegnn.deployment.temporal import TemporalUse
from livegnn.errors import LiveGnnError
from livegnn.temporal.report import RoundReport
from livegnn.temporal.sampler import TemporalSampler
from livegnn.temporal.trainer import ContinuousTrainer

if TYPE_CHECKING:
    from livegnn.temporal.models.interface import TemporalModel

PublishModel = Callable[["TemporalModel", RoundReport], object]
_POLL_S = 0.05
_log = logging.getLogger("livegnn")


class TrainingThread:
    """Trains in a thread of its own until close().

    is_ready: whether what comes is counted.  rounds: done so far.  fault: of the newest one, "" if it stands.
    """

    def __init__(self, config: TemporalConfig, use: TemporalUse, publish: PublishModel) -> None:
        self._config, self._use, self._publish = config, use, publish
        self._graph = use.engine.graph
        self._stopped = threading.Event()
        self.is_ready, self.rounds, self.fault = False, 0, ""
        self._thread = threading.Thread(target=self._run, name=f"livegnn-training-{config.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        trainer: ContinuousTrainer | None = None
        try:
            while not self._stopped.wait(_POLL_S):
                if trainer is None and self._graph.edge_count:
                    seen, trainer = self._events, self._begun()
                    self.is_ready = True
                elif trainer is not None and self._events - seen >= self._config.events_min:
                    seen = self._events
                    self._round(trainer)
        except Exception as error:
            self.fault = str(error)
            _log.exception("[temporal %s] the training has ended; its engine answers on", self._config.name)
        finally:
            if trainer is not None:
                trainer.close()

    @property
    def _events(self) -> int:
        with self._graph.host.lock:
            return int(self._graph.host.store.next_edge_id)

    def _begun(self) -> ContinuousTrainer:
        """A trainer that goes on from the model that answers."""
        config, engine = self._config, self._use.engine
        settings = self._use.about["settings"]
        model = engine.model_copy()
        sampler = TemporalSampler(
            self._graph,
            config.fanouts,
            config.strategy,
            window=config.window or None,
            seed=config.seed,
            snapshots=model.snapshot_count,
        )
        trainer = ContinuousTrainer(
            model,
            self._graph,
            sampler,
            edge_types=settings["edge_types"] or None,
            edge_columns=settings["edge_columns"],
            batch_size=config.batch_size,
            epochs=config.epochs,
            replay=config.replay,
            learning_rate=config.learning_rate,
            seed=config.seed,
        )
        try:
            trainer.take_as_trained()
            trainer.publish_to(self._take)
        except BaseException:
            trainer.close()
            raise
        return trainer

    def _take(self, model: TemporalModel, report: RoundReport) -> None:
        if report.round and not self._stopped.is_set():
            self._publish(model, report)

    def _round(self, trainer: ContinuousTrainer) -> None:
        """One round; what fails in it comes again with the next one."""
        try:
            trainer.round()
            self.rounds, self.fault = self.rounds + 1, ""
        except LiveGnnError as error:
            self.fault = str(error)
            _log.exception("[temporal %s] a round failed; the next one takes its events", self._config.name)

    def close(self) -> None:
        """Ends it after the round under way."""
        self._stopped.set()
        self._thread.join()
