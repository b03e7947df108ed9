"""ClusterPass: going over events with a model, by the workers of a group; and ClusterMemory, which knows who has the
newest memory.

A pass sends the pass's events and negatives to the workers and, where theirs are others, the model's weights and the
optimizer's state. It takes these back from worker 0 after training: they are equal on all. The memory moves only where
it must: to the workers, each its own rows, when the driver has changed it, and home when it is asked for. So a worker
that is lost takes nothing along that a round could not begin from again.
"""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from livegnn.distributed.memory import check_memory, parted, whole
from livegnn.distributed.parts import ClusterParts
from livegnn.distributed.ray_group import RayGroup
from livegnn.distributed.ray_worker import RayWorker
from livegnn.distributed.sampling import RemoteSampler
from livegnn.distributed.train import packed_model, unpacked_model
from livegnn.distributed.trainer import DistributedTrainer, Ranking
from livegnn.temporal.caches.stats import HitCounts
from livegnn.temporal.events import Events
from livegnn.temporal.link import LinkPass, LinkScores, Progress
from livegnn.temporal.loading import HopSource, InputLoader
from livegnn.types import Float32Array, Int64Array

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from livegnn.temporal.models.interface import TemporalModel

State = dict[str, Tensor]
Steps = tuple[State, dict[str, Any]]  # weights, and an optimizer's state


class ClusterMemory:
    """A model's memory as the driver sees it: its own copy (home), or what the workers have made of it since.

    An EventMemory but for observe(), which passes do.

    Args:    parts: say who keeps which row.
    """

    def __init__(self, model: TemporalModel, group: RayGroup, parts: ClusterParts) -> None:
        self._home, self._group, self._parts = check_memory(model), group, parts
        self._is_away = False  # whether the workers' is newer
        self._formation = 0  # of the workers that have what home has, or newer; 0: none

    def state(self) -> State:
        """Copies of all that the events made. Raises: WorkerUnavailable where it is away and lost."""
        self.come_home()
        return self._home.state()

    def load_state(self, state: State) -> None:
        """What state() gave."""
        self._home.load_state(state)
        self._changed()

    def reset(self, slot_count: int) -> None:
        """Forgets all events."""
        self._home.reset(slot_count)
        self._changed()

    def grow(self, slot_count: int) -> None:
        """Makes room for more vertices; workers do so by themselves."""
        self._home.grow(slot_count)

    def forget(self, slots: Tensor) -> None:
        """Forgets vertices that were removed."""
        self.come_home()
        self._home.forget(slots)
        self._changed()

    def come_home(self) -> None:
        """The model itself has the newest memory afterwards."""
        if not self._is_away:
            return
        slot_count, states = self._home.slot_count, self._group.call(own_memory)
        count = sum(len(state["known"]) for state in states)
        self._home.load_state(whole(states, self._parts.owners(count)))
        self._home.grow(slot_count)
        self._is_away = False

    def sent(self) -> list[State] | None:
        """What each worker has to load before a pass; None where they have it. They are newer after the pass."""
        formation, self._formation = self._formation, self._group.formations
        self._is_away = True
        if formation == self._formation:
            return None
        count = min(self._home.slot_count, self._parts.slot_count)  # rows of later slots have no events yet
        return parted(self._home.state(), self._parts.owners(count), self._group.size)

    def _changed(self) -> None:
        self._is_away, self._formation = False, 0


class _Pass(NamedTuple):
    """What one pass is to do. steps: weights and optimizer, None where workers have them.  epoch: the name to begin
    under, if it is the first of an epoch, and whether caches begin as for the last one.
    """

    kind: str
    events: tuple[Int64Array, ...]
    negatives: Int64Array | None
    steps: Steps | None
    epoch: tuple[int, bool] | None
    slot_count: int
    first: int = 0
    ranking: Ranking | None = None


class ClusterPass(LinkPass):
    """LinkPass by the workers. Progress is reported when a pass ends.

    Args:    options: of DistributedTrainer; sampler: of RemoteSampler.  memory: None for a model without.
    """

    def __init__(
        self,
        model: TemporalModel,
        loader: InputLoader,
        group: RayGroup,
        memory: ClusterMemory | None,
        parts: ClusterParts,
        *,
        sampler: dict[str, Any],
        options: dict[str, Any],
        batch_size: int,
        mrr_candidates: int,
    ) -> None:
        super().__init__(model, loader, batch_size=batch_size, mrr_candidates=mrr_candidates)
        self._group, self._cluster_memory, self._parts = group, memory, parts
        self._made_of = (
            packed_model("ContinuousClusterTrainer", model),
            sampler,
            {**options, "batch_size": batch_size},
        )
        self._formation = 0  # of the workers that have a trainer
        self._steps: Steps = ({}, {})  # what those workers have
        self._epoch: tuple[int, bool] | None = None
        self.hit_counts: HitCounts = {}  # of all workers' caches, in passes that were done
        self.optimizer: Optimizer | None = None  # whose state goes along

    def begin(self, name: int, *, again: bool) -> None:
        """The next pass begins an epoch of this name. again: caches begin it as the last one that was not."""
        self._epoch = name, again

    def train(
        self,
        events: Events,
        negatives: Int64Array,
        optimizer: Optimizer,
        *,
        source: HopSource | None = None,
        first: int = 0,
        hidden: Int64Array | None = None,
        progress: Progress | None = None,
    ) -> float:
        """As LinkPass."""
        self.model.train()
        loss, packed = self._done("train", events, negatives, first=first)
        self._steps = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)
        self.model.load_state_dict(self._steps[0])
        optimizer.load_state_dict(self._steps[1])
        if progress is not None:
            progress(len(events))
        return float(loss)

    def test(
        self,
        events: Events,
        negatives: Int64Array,
        rng: np.random.Generator,
        *,
        source: HopSource | None = None,
        hidden: Int64Array | None = None,
        progress: Progress | None = None,
    ) -> tuple[LinkScores, tuple[Float32Array, Float32Array]]:
        """As LinkPass."""
        self.model.eval()
        (positive, negative, mrr), _ = self._done("test", events, negatives, ranking=Ranking(rng, self.mrr_candidates))
        if progress is not None:
            progress(len(events))
        return self.scores(positive, negative, mrr), (positive, negative)

    def observe(self, events: Events, source: HopSource | None = None, edge_x: Tensor | None = None) -> None:
        """As LinkPass."""
        if self._cluster_memory is not None:
            self.model.eval()
            self._done("observe", events, None)

    def _done(self, kind: str, events: Events, negatives: Int64Array | None, **given: Any) -> Any:
        """What worker 0 returned; its seconds are added to the loader's clock."""
        self._group.form()
        if self._formation != self._group.formations:
            self._group.call(make_trainer, *self._made_of)
            self._formation, self._steps = self._group.formations, ({}, {})
        assert self.optimizer is not None
        now = self.model.state_dict(), self.optimizer.state_dict()
        steps = None
        if not _same(now, self._steps):
            steps, self._steps = now, copy.deepcopy(now)
        slots, epoch = self._parts.slot_count, self._epoch
        task = _Pass(kind, events.columns(), negatives, steps, epoch, slots, **given)
        memory = None if self._cluster_memory is None else self._cluster_memory.sent()
        each = [(None if memory is None else memory[rank],) for rank in range(self._group.size)]
        answers = self._group.call(do_pass, task, each=each)
        result, seconds, counts = answers[0]
        for name, before in ((name, self.hit_counts.get(name, (0, 0))) for name in counts):
            hits, misses = np.sum([before, *(each[name] for *_, each in answers)], axis=0).tolist()
            self.hit_counts[name] = hits, misses
        self._epoch = None
        for phase, more in seconds.items():
            self.loader.clock.seconds[phase] = self.loader.clock.seconds.get(phase, 0.0) + more
        return result


def _same(one: Any, other: Any) -> bool:
    """Whether nested dicts and lists of tensors and numbers are equal."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


# ---- in a worker


def make_trainer(worker: RayWorker, packed: bytes, sampler: dict[str, Any], options: dict[str, Any]) -> None:
    """A trainer over the worker's part, for passes."""
    part, exchange = worker.kept["part"], worker.exchange
    source = RemoteSampler(part, exchange, **sampler)
    worker.kept["trainer"] = DistributedTrainer(unpacked_model(packed), part, source, exchange, **options)


def do_pass(worker: RayWorker, memory: State | None, task: _Pass) -> tuple[Any, dict[str, float], HitCounts]:
    """One pass, together with the other workers; its result on worker 0, the seconds that it took, by phase, and what
    this worker's caches found.
    """
    trainer: DistributedTrainer = worker.kept["trainer"]
    before = trainer.hit_counts()
    result = _passed(worker, trainer, memory, task)
    came = {n: (hits - before[n][0], misses - before[n][1]) for n, (hits, misses) in trainer.hit_counts().items()}
    return result, trainer.clock.take(), came


def _passed(worker: RayWorker, trainer: DistributedTrainer, memory: State | None, task: _Pass) -> tuple[Any, bytes]:
    if task.steps is not None:
        trainer.load_steps(*task.steps)
    if memory is not None:
        trainer.load_memory(memory, task.slot_count)
    if task.epoch is not None:
        name, again = task.epoch
        trainer.begin(name, again=again)
    events = Events(*task.events)
    if task.kind == "observe":
        trainer.observe(events)
    elif task.kind == "test":
        found = trainer.tested(events, negatives=task.negatives, ranking=task.ranking)
        return found if worker.rank == 0 else None, b""
    elif task.kind == "train":
        assert task.negatives is not None
        loss, file = trainer.train_once(events, task.negatives, first=task.first), io.BytesIO()
        if worker.rank == 0:
            torch.save(trainer.taken_steps(), file)
        return loss, file.getvalue()
    return None, b""


def own_memory(worker: RayWorker) -> State:
    """The rows of a worker."""
    memory = worker.kept["trainer"].memory
    assert memory is not None
    state: State = memory.own()
    return state
