"""Workers as Ray actors: which there are, how far they are, and whether they work.

Ray starts an actor that died again, on any host that is left. One that says nothing for too long, or stays too long in
one turn, is killed, so that Ray starts it again too. Nothing else is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from livegnn import errors
from livegnn.distributed.ray_session import warn_if_nice
from livegnn.distributed.sampling_host.config import ClusterConfig, Hosting
from livegnn.distributed.sampling_host.worker_host import HostStatus, RefusedRead, WorkerHost
from livegnn.errors import WorkerUnavailable
from livegnn.sampling.cluster.coordinator import Who
from livegnn.sampling.cluster.front_end import Answering
from livegnn.sampling.presample.source import ReadOptions, Response
from livegnn.types import AnyArray, Int64Array

_GRACE_SECONDS = 1.0  # beyond a reader's timeout, for the worker to say that it has run out
_GONE_SECONDS = 5.0  # that an actor may be dead before it gets a successor
_WAIT_SECONDS = 0.05  # between two glances at whether the worker of a question went down
_STATUS_GROUP = "status"


@dataclass
class _Hosted:
    """An actor, and the look at it that is under way."""

    actor: Any
    serving: RaySource
    since: float  # when it was started, or the look began
    look: Any = None
    is_up: bool = False  # whether it has said anything since it was started
    gone_since: float | None = None  # since when Ray says that it is dead for good, as where its constructor failed
    status: HostStatus | None = None


class RayHosts(Mapping[int, Answering]):
    """Hosts of the workers of one cluster (`Hosts`); by number: its serving workers, for a FrontEnd.

    Calls of Hosts come from one thread; others read. Actors end with the driver that started them.
    """

    def __init__(self, ray: Any, folder: Path, config: ClusterConfig, hosting: Hosting) -> None:
        self._ray, self._hosting = ray, hosting
        self._arguments = str(folder), config.to_json()
        self._hosted: dict[Who, _Hosted] = {}
        self.restarts = 0  # of workers that hung
        self._has_warned = False

    # ---- as Hosts

    def start(self, role: str, worker: int) -> None:
        """As Hosts.start."""
        if (role, worker) not in self._hosted:
            actor = self._new_actor(role, worker)
            source = RaySource(self._ray, actor, worker, self.is_down)
            self._hosted[role, worker] = _Hosted(actor, source, time.monotonic())

    def stop(self, role: str, worker: int) -> None:
        """As Hosts.stop. At once: workers need no farewell."""
        found = self._hosted.pop((role, worker), None)
        if found is not None:
            self._ray.kill(found.actor)

    def progress(self) -> Mapping[Who, int | None]:
        """As Hosts.progress; looks at workers from time to time, and starts those again that hang."""
        looks = [each.look for each in self._hosted.values() if each.look is not None]
        done = set(self._ray.wait(looks, num_returns=len(looks), timeout=0)[0]) if looks else set()
        now = time.monotonic()
        for who, each in list(self._hosted.items()):
            self._look(each, done, now)
            if each.gone_since is not None and now - each.gone_since > _GONE_SECONDS:
                self.stop(*who)
                self.start(*who)
        return {who: None if each.status is None else each.status.step for who, each in self._hosted.items()}

    def close(self) -> None:
        """Ends all workers."""
        for who in list(self._hosted):
            self.stop(*who)

    # ---- as a mapping of serving workers

    def __getitem__(self, worker: int) -> Answering:
        found = self._hosted.get(("serving", worker))
        if found is None:
            raise WorkerUnavailable(f"[sample] expected serving worker {worker} to be hosted, got none yet; ask again")
        return found.serving

    def __iter__(self) -> Iterator[int]:
        return iter([number for role, number in list(self._hosted) if role == "serving"])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def is_down(self, worker: int) -> bool:
        """Whether a serving worker is starting, or has been silent for a while. Ray's own errors come later."""
        found = self._hosted.get(("serving", worker))
        if found is None or not found.is_up:
            return True
        return found.look is not None and time.monotonic() - found.since > self._hosting.suspect_ms / 1000

    @property
    def status(self) -> dict[Who, HostStatus]:
        """What workers said last."""
        return {who: each.status for who, each in list(self._hosted.items()) if each.status is not None}

    # ---- inside

    def _new_actor(self, role: str, worker: int) -> Any:
        hosting = self._hosting
        options = {"max_concurrency": hosting.answers_at_once, "scheduling_strategy": "SPREAD"}
        kind = self._ray.remote(num_cpus=hosting.cpus, max_restarts=-1, concurrency_groups={_STATUS_GROUP: 1})
        actor = kind(WorkerHost).options(**options)
        return actor.remote(*self._arguments, role, worker, hosting.threads, hosting.tables)

    def _look(self, each: _Hosted, done: set[Any], now: float) -> None:
        if each.look is None:
            if not each.is_up or now - each.since >= self._hosting.poll_ms / 1000:
                each.look = each.actor.status.options(concurrency_group=_STATUS_GROUP).remote()
                each.since = now if each.is_up else each.since
        elif each.look in done:
            look, each.look = each.look, None
            try:
                each.status = status = self._ray.get(look)
                each.is_up, each.since, each.gone_since = True, now, None
                self._has_warned = self._has_warned or warn_if_nice("cluster", status.niceness)
            except self._ray.exceptions.RayActorError as death:  # Ray starts it again
                each.is_up, each.since = False, now
                if isinstance(death, self._ray.exceptions.ActorDiedError):
                    each.gone_since = now if each.gone_since is None else each.gone_since
            else:
                self._check_turn(each)
        else:
            limit = self._hosting.hung_timeout_ms if each.is_up else self._hosting.startup_timeout_ms
            if now - each.since > limit / 1000:
                self._start_again(each)

    def _check_turn(self, each: _Hosted) -> None:
        if each.status is not None and each.status.turn_seconds > self._hosting.turn_timeout_ms / 1000:
            self._start_again(each)

    def _start_again(self, each: _Hosted) -> None:
        self.restarts += 1
        each.look, each.is_up, each.since = None, False, time.monotonic()
        self._ray.kill(each.actor, no_restart=False)


class RaySource:
    """A serving worker in an actor (`Asking`). A question is asked once: who asks again can ask another replica.

    Args:    is_down: of a worker by number. A question that waits when its worker goes down is given up.
    """

    def __init__(self, ray: Any, actor: Any, worker: int, is_down: Callable[[int], bool]) -> None:
        self._ray, self._actor, self._worker, self._is_down = ray, actor, worker, is_down

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As ServingWorker.answer. Raises: WorkerUnavailable if it does not answer in the reader's time."""
        return self.ask(slots, options)()

    def ask(self, slots: Int64Array, options: ReadOptions) -> Callable[[], Response]:
        """As Asking.ask."""
        was_down, asked = self._is_down(self._worker), self._actor.answer.remote(slots, options)
        deadline = None if options.timeout is None else time.monotonic() + options.timeout + _GRACE_SECONDS

        def answer() -> Response:
            while not was_down and not self._ray.wait([asked], timeout=_WAIT_SECONDS)[0]:
                if self._is_down(self._worker):
                    raise self._unavailable("it went down")
                if deadline is not None and time.monotonic() >= deadline:
                    break
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                found = self._ray.get(asked, timeout=left)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as cause:
                raise self._unavailable(type(cause).__name__) from cause
            if isinstance(found, RefusedRead):
                raise errors.of_kind(*found)
            return Response(found.version, *([_own(array) for array in part] for part in found[1:]))

        return answer

    def _unavailable(self, cause: str) -> WorkerUnavailable:
        return WorkerUnavailable(
            f"[sample] expected an answer from serving worker {self._worker}, got none ({cause}); ask again"
        )


def _own(array: AnyArray) -> AnyArray:
    """The reader's own copy of an array that lies in Ray's object store."""
    return array if array.flags.writeable else np.array(array)
