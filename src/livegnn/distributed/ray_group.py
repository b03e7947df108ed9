"""RayGroup: workers that are Ray actors and joined to each other; started, watched and replaced.

Ray starts a process for each worker, on this machine or over a cluster, and says which has died. Where workers train,
worker 0 opens a TCPStore, whose address Ray hands to the others; all join one group of torch.distributed through it.
Where they are a cluster's, each listens, and all connect to each other and the driver to them (parcel_links.py,
call_lines.py). After a failure the group is formed again under a new name: form() starts workers in place of those that
are gone, and the others keep what they have.

A call ends when all have answered. When one fails, the others get a moment to fail too; those that do not answer then,
and those that make no exchange for timeout_s, hang, and are killed.
"""

from __future__ import annotations

import math
import pickle
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np

from livegnn.distributed.call_lines import AskedOverLines, CallLines, CallPlace, LineRefused, WorkerGone
from livegnn.distributed.exchange import checked_group
from livegnn.distributed.ray_names import NamedActor, RayName
from livegnn.distributed.ray_session import connect, warn_if_nice
from livegnn.distributed.ray_worker import DIED, ONE_HOST, OWN, RayWorker, WorkerFailure
from livegnn.errors import InvariantBroken, LiveGnnError, UsageError, WorkerUnavailable, of_kind
from livegnn.graph.checks import shown
from livegnn.optional import need

_GRACE_S = 3.0  # for others to fail after the first has
_START_S = 300.0  # in which a process must have started and loaded its modules
_POLL_S = 0.5
_DIED, _LATE = "has died", "did not answer in time and was ended"
_SMALL_BYTES = 1 << 15
_ABOUT_S = 10.0  # in which a worker that lives answers from its other thread
_WATCH, _ASIDE = "watch", "aside"  # threads of a worker next to that of its calls
FOR_TRAINING = ("livegnn.distributed.cluster_pass", "livegnn.temporal.models")


class RayGroup:
    """Workers, numbered from 0. Not for several threads at once.

    starts: (workers,) how often each was started: a worker with another number has kept nothing.  formations: how often
    the group was formed.  pids: of the workers' processes.  lost: what the last failure raised, where workers died or
    hung; None where a call's own error was the cause.

    Args:    where: for errors.  address: of a Ray cluster.  backend: of torch.distributed, "gloo", or "nccl" with a
             GPU for each worker; None: workers hand each other parcels, take call_soon(), and load no torch.
             timeout_s: for which a worker waits for another.  threads: of torch in each.  keeps_kinds: whether call()
             raises livegnn's errors of a worker as they are.  loads: modules that workers load before they join, as
             long as that takes.  name: under which the workers outlive this process: attach() finds them. Without
             one they end with it.  about: what attach() finds with them.
    Raises:  UsageError, DataMissing.
    """

    def __init__(
        self,
        where: str,
        workers: int,
        *,
        address: str | None = None,
        backend: str | None = "gloo",
        timeout_s: float = 300.0,
        threads: int = 1,
        keeps_kinds: bool = True,
        loads: Sequence[str] = (),
        name: str | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        self._timeout_s = checked_group(where, workers, timeout_s)
        if backend not in ("gloo", "nccl", None) or type(threads) is not int or threads < 1:
            raise UsageError(
                f'[{where}] expected backend="gloo" or "nccl" and at least one thread, got {backend!r} and '
                f"{threads!r}; give such"
            )
        if address is not None and not isinstance(address, str):
            raise UsageError(f"[{where}] expected address= as a text, got {shown(address)}; name a Ray cluster")
        if address is not None and address.startswith("ray://"):
            raise UsageError(
                f"[{where}] expected a Ray cluster that this host is a node of, got a client's address, {address}; run "
                '`ray start` here, and give "auto"'
            )
        if backend is not None:
            need("torch.distributed", "distributed")
        self._where, self._backend, self._threads, self._keeps_kinds = where, backend, threads, keeps_kinds
        self._ray: Any = None
        self._address, self._loads = address, tuple(loads)
        self._actors: list[Any] = [None] * workers
        self._round, self._joined = uuid.uuid4().hex, False
        self._lines: CallLines | None = None  # since form()
        self._formed = ""  # the name of the group that was formed last
        self._name = None if name is None else RayName(where, name)
        own = {"workers": workers, "timeout_s": timeout_s, "threads": threads, "backend": backend}
        self.about = {**(about or {}), **own}
        self.starts, self.pids, self.formations = [0] * workers, [0] * workers, 0
        self.lost: WorkerUnavailable | None = None
        self._has_warned = False

    @property
    def size(self) -> int:
        """Workers."""
        return len(self._actors)

    def connect(self) -> None:
        """Connects the process to Ray, if it is not.

        Raises: as ray_session.connect(); UsageError where GPUs are too few.
        """
        if self._ray is not None:
            return
        ray = connect(self._where, self._address, outlives=self._name is not None)
        gpus = ray.cluster_resources().get("GPU", 0)
        if self._backend == "nccl" and gpus < self.size:
            raise UsageError(
                f"[{self._where}] expected a Ray cluster with a GPU for each of {self.size} workers, got {gpus:g}; "
                'give fewer workers, or backend="gloo"'
            )
        if self._name is not None:
            serving = self._name.serving()
            if any(each.crew == serving for each in self._name.actors()):
                raise UsageError(
                    f"[{self._where}] expected a name that no workers have, got {self._name.name!r}; attach to them, "
                    "or choose another"
                )
            self._name.claim(fresh=True)
            _end_others(ray, self._name)
        self._ray = ray

    @classmethod
    def attach(
        cls,
        where: str,
        name: str,
        *,
        address: str | None = None,
        timeout_s: float | None = None,
        loads: Sequence[str] = (),
    ) -> Self:
        """The workers of that name, for this process; the driver before is refused from now on. form() joins them, and
        starts others in place of those that are gone.

        Raises:  UsageError where there are none.
        """
        found, ray = RayName(where, name), connect(where, address, outlives=True)
        before = found.serving()
        asked = _about(ray, found.actors())  # another crew may take over meanwhile
        found.refuse_none([each for each in asked if each.crew in (before, found.serving())])
        found.claim()
        actors = _end_others(ray, found)  # those that serve, by now
        answers = _about(ray, actors)
        found.refuse_none(list(answers))
        about = next(iter(answers.values()))[1]
        same = {each: about[each] for each in ("threads", "backend")}
        options = {**same, "address": address, "loads": loads, "name": name, "about": about}
        group = cls(where, about["workers"], timeout_s=timeout_s or about["timeout_s"], **options)
        group._name, group._ray = found, ray
        for each in sorted(actors, key=lambda each: (answers.get(each, (-1,))[0], each.order)):
            group._end(each.rank)  # one that a driver left when it was replaced
            group._actors[each.rank] = each.actor
            if each not in answers:  # it has stopped
                group._end(each.rank)
        return group

    def another(self, workers: int, number: int) -> RayGroup:
        """A group of the same kind, driver and name next to this one, of so many workers. It has none yet.

        A driver that attaches finds this one, until the other one leads. number: of the other one, from 1.
        """
        about = {"threads": self._threads, "timeout_s": self._timeout_s, "loads": self._loads, "about": self.about}
        options: dict[str, Any] = {"address": self._address, "backend": self._backend, **about}
        group = RayGroup(self._where, workers, keeps_kinds=self._keeps_kinds, **options)
        group._name = None if self._name is None else self._name.of_another_crew(number)
        group._ray, group._has_warned = self._ray, self._has_warned
        return group

    def lead(self) -> None:
        """From now on a driver that attaches finds this group, of all of the name. Raises: DriverReplaced."""
        if self._name is not None:
            self._name.lead()

    def form(self) -> None:
        """Starts workers where there are none, and joins all; nothing where they are joined.

        Raises:  WorkerUnavailable; as connect().
        """
        if self._joined:
            return
        self.connect()
        for rank in [rank for rank, actor in enumerate(self._actors) if actor is None]:
            self._start(rank)
        driver = 0 if self._name is None else self._name.number
        loads = self._loads if self._backend is None else ("torch.distributed", *self._loads)
        processes = self._over_ray([actor.ready.remote(driver, loads) for actor in self._actors], _START_S)
        self.pids = [each.pid for each in processes]
        self._has_warned = self._has_warned or warn_if_nice(self._where, max(each.niceness for each in processes))
        self.formations += 1
        self._formed = f"{self._round}-{self.formations}"
        host = ONE_HOST if len(self._ray.nodes()) == 1 else None
        if self._backend is None:
            places = self._over_ray([actor.listen.remote(driver, host) for actor in self._actors])
            group = (driver, self._formed, places, self._timeout_s)
            self._answers(
                _AskedOverRay(self._ray, [actor.link.remote(*group) for actor in self._actors]), gives_up=True
            )
            self._connect([each.calls for each in places])
        else:
            (place,) = self._over_ray([self._actors[0].open_store.remote(driver, host, self._timeout_s)], _START_S)
            joining = (driver, self._formed, place, self._backend, self._timeout_s)
            self._over_ray([actor.join.remote(*joining) for actor in self._actors])
        self._joined = True

    def call(self, fn: Callable[..., Any], *args: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """What fn(worker, *each[rank], *args) returns in each worker, in order of their numbers.

        Args:    fn: of a module.  args: given to all alike.  each: arguments of each worker, before these.
        Raises:  WorkerUnavailable where one has died or hangs, or has an error of its own; livegnn's as they are,
                 where their kinds are kept. The next call forms the workers anew.
        """
        return self._over_ray(self.keep(fn, *args, each=each))

    def call_soon(self, fn: Callable[..., Any], *args: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """call() for what takes less than Ray does: over connections of the group's own. Nothing of Ray's is given.

        Calls come one after the other, whichever way they go; one of keep() is to have ended before.
        """
        self.form()
        driver = 0 if self._name is None else self._name.number
        if self._lines is None:
            raise InvariantBroken("invariant broken: a group of torch.distributed was called over lines")
        try:
            asked = self._lines.ask((self._formed, driver, (fn, args)), each)
        except BaseException:  # what went over the lines is not known
            self._joined = False
            raise
        return self._answers(asked)

    def keep(self, fn: Callable[..., Any], *args: Any, each: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """The same, begun: Ray's references to what each worker will return, which stays where it is. One that fails
        leaves a WorkerFailure there.
        """
        self.form()
        task = (fn, args)
        if not _is_small(args):
            task = self._ray.put(task)  # once for all
        mine, driver = each or [()] * self.size, 0 if self._name is None else self._name.number
        return [actor.work.remote(driver, task, own) for actor, own in zip(self._actors, mine, strict=True)]

    def aside(
        self, fn: Callable[..., Any], *args: Any, each: Sequence[tuple[Any, ...]] | None = None, keep: bool
    ) -> GroupAside:
        """The same of what makes no exchange, in another thread of each worker, next to other calls.

        keep: whether references are wanted, not values.
        """
        self.form()
        mine, driver = each or [()] * self.size, 0 if self._name is None else self._name.number
        asked = zip([actor.aside.options(concurrency_group=_ASIDE) for actor in self._actors], mine, strict=True)
        return GroupAside(self, [method.remote(driver, (fn, args), own) for method, own in asked], keep)

    def interrupt(self) -> None:
        """Ends the workers while another thread calls them: its call raises WorkerUnavailable."""
        for actor in list(self._actors):
            self._kill(actor)

    def close(self) -> None:
        """Ends the workers. Their name is free on return, unless another driver has it."""
        had_any = any(actor is not None for actor in self._actors)
        for rank in range(self.size):
            self._end(rank)
        if self._lines is not None:
            self._lines.close()
        self._joined = False
        if self._name is not None and had_any:
            with suppress(Exception):  # of a Ray that has ended already
                if not self._name.is_replaced():
                    self._name.wait_for_end()

    # ---- inside

    def _connect(self, places: Sequence[CallPlace]) -> None:
        if self._lines is not None:
            self._lines.close()
        try:
            self._lines = CallLines(places, self._timeout_s)
        except LineRefused as cause:
            self._end(cause.rank)
            self._raise([WorkerFailure(DIED, time.time(), cause.rank, str(cause))])

    def _start(self, rank: int) -> None:
        made = self._ray.remote(concurrency_groups={_WATCH: 1, _ASIDE: 1})(RayWorker)
        named = {}
        if self._name is not None:
            self._name.refuse_replaced()
            named = self._name.options(rank)
        gpus = 1 if self._backend == "nccl" else 0
        options = made.options(num_cpus=0, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD", **named)
        threads = 0 if self._backend is None else self._threads
        self._actors[rank] = options.remote(rank, self.size, threads, self.about)
        self.starts[rank] += 1

    def _end(self, rank: int) -> None:
        """Ends a worker, unless it is another driver's by now."""
        actor, self._actors[rank] = self._actors[rank], None
        self._kill(actor)

    def _kill(self, actor: Any) -> None:
        if actor is not None:
            with suppress(Exception):  # of an actor, or a Ray, that has ended already
                if self._name is None or not self._name.is_replaced():
                    self._ray.kill(actor)

    def _over_ray(self, refs: Sequence[Any], patience_s: float | None = None) -> list[Any]:
        return self._answers(_AskedOverRay(self._ray, refs), patience_s)

    def _answers(
        self, asked: _AskedOverRay | AskedOverLines, patience_s: float | None = None, *, gives_up: bool = False
    ) -> list[Any]:
        """What the workers answered. gives_up: the others wait for one that fails, and are to be called off. Raises: as
        call().
        """
        values: dict[int, Any] = {}
        failures: list[WorkerFailure] = []
        until, watch = float("inf"), _Watch(self._ray, self._actors, patience_s or self._timeout_s + 2 * _GRACE_S)
        try:
            while asked.left:
                ready = asked.ready(_POLL_S)
                for rank in ready:
                    values[rank] = answer = self._received(asked, rank)
                    if isinstance(answer, WorkerFailure):
                        failures.append(answer)
                        until = min(until, time.monotonic() + _GRACE_S)
                if failures and gives_up:
                    self._call_off(asked.left)
                    gives_up = False
                left = set(asked.left) if not ready or failures else set()
                silent = dict.fromkeys(left, _LATE) if time.monotonic() > until else watch.silent(left)
                for rank, what in silent.items():
                    self._end(rank)
                    failures.append(WorkerFailure(DIED, time.time(), rank, what))
                    asked.drop(rank)
        except BaseException:  # an interrupt: what the workers are at is not known
            if self._name is None:
                self.close()
            self._joined = False  # those with a name outlive it: they are asked to leave what they are at
            raise
        if failures:
            self._joined = False
            self._raise(failures)
        return [values[rank] for rank in sorted(values)]

    def _call_off(self, ranks: Collection[int]) -> None:
        for actor in (self._actors[rank] for rank in ranks):
            if actor is not None:
                actor.call_off.options(concurrency_group=_WATCH).remote(self._formed)

    def _received(self, asked: _AskedOverRay | AskedOverLines, rank: int) -> Any:
        try:
            return asked.take(rank)
        except (self._ray.exceptions.RayActorError, WorkerGone):
            self._end(rank)
            return WorkerFailure(DIED, time.time(), rank, _DIED)
        except self._ray.exceptions.RayError as error:
            return WorkerFailure(OWN, time.time(), rank, str(error))

    def _raise(self, failures: list[WorkerFailure]) -> None:
        error = self._error_of(failures)
        is_lost = all(failure.cause != OWN for failure in failures)
        self.lost = error if is_lost and isinstance(error, WorkerUnavailable) else None
        raise error

    def _error_of(self, failures: list[WorkerFailure]) -> LiveGnnError:
        first = min(failures, key=lambda failure: failure[:3])
        if first.cause == OWN and first.error is not None and self._keeps_kinds:
            error = of_kind(*first.error)
            error.add_note(f"[{self._where}] in worker {first.rank}:\n{first.text}")
            return error
        late = [failure for failure in failures if failure.cause == DIED]
        got = f"an error in worker {first.rank}; fix its cause:\n{first.text}"
        if first.cause == DIED:
            got = "; ".join(f"worker {failure.rank}, which {failure.text}" for failure in late) + "; call it again"
        return WorkerUnavailable(f"[{self._where}] expected {self.size} workers to finish, got {got}")


def _end_others(ray: Any, name: RayName) -> list[NamedActor]:
    """Ends the workers of crews that do not serve: a driver before was about to go over to them, or had left them.

    Returns: those that serve.
    """
    serving = []
    for each in name.actors():
        if each.crew == name.crew:
            serving.append(each)
        else:
            with suppress(ray.exceptions.RayError):
                ray.kill(each.actor)
    return serving


def _about(ray: Any, actors: Sequence[NamedActor]) -> dict[NamedActor, tuple[int, dict[str, Any]]]:
    """What those say of themselves that live and are not stopped: RayWorker.about()."""
    asked = {each.actor.about.options(concurrency_group=_WATCH).remote(): each for each in actors}
    answers = {}
    for ref in ray.wait(list(asked), num_returns=len(asked), timeout=_ABOUT_S)[0] if asked else ():
        with suppress(ray.exceptions.RayError):  # one that has just died
            answers[asked[ref]] = ray.get(ref)
    return answers


def _is_small(value: Any) -> bool:
    """Whether Ray hands it over faster to each worker than through its store. Only plain values and arrays are."""
    return _bytes_of(value) <= _SMALL_BYTES


def _bytes_of(value: Any) -> float:
    if value is None or isinstance(value, bool | int | float):
        return 8
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.nbytes
    if isinstance(value, tuple | list):
        return sum(map(_bytes_of, value))
    if isinstance(value, dict):
        return sum(map(_bytes_of, value.values()))
    return math.inf


class _AskedOverRay:
    """See AskedOverLines."""

    def __init__(self, ray: Any, refs: Sequence[Any]) -> None:
        self._ray, self._waiting = ray, {ref: rank for rank, ref in enumerate(refs)}

    @property
    def left(self) -> set[int]:
        return set(self._waiting.values())

    def ready(self, timeout_s: float) -> list[int]:
        found, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=timeout_s)
        return [self._waiting[ref] for ref in found]

    def take(self, rank: int) -> Any:
        return self._ray.get(self._pop(rank))

    def drop(self, rank: int) -> None:
        self._pop(rank)

    def _pop(self, rank: int) -> Any:
        ref = next(ref for ref, other in self._waiting.items() if other == rank)
        del self._waiting[ref]
        return ref


class GroupAside:
    """What the workers of a group do next to their calls. Its end changes nothing of the group."""

    def __init__(self, group: RayGroup, refs: list[Any], keep: bool) -> None:
        self._group, self._refs, self._keep = group, refs, keep

    def done(self) -> bool:
        """Whether all have ended; a worker that has died has."""
        return len(self._ended(0)) == len(self._refs)

    def results(self) -> list[Any]:
        """What came of them, or references; waits for that. A worker that is not done within timeout_s is ended.

        Raises: as call().
        """
        group = self._group
        if not group._ray.is_initialized():
            raise WorkerUnavailable(f"[{group._where}] expected Ray to go on, got one that has ended; begin anew")
        left = set(self._refs) - set(self._ended(group._timeout_s))
        for rank in (rank for rank, ref in enumerate(self._refs) if ref in left):
            group._end(rank)  # its thread would hold up all that is to be done aside
            group._joined = False
        if left:
            within = f"{group._timeout_s:g} s"
            raise WorkerUnavailable(f"[{group._where}] expected workers to end within {within}, got some that have not")
        if self._keep:
            return self._refs
        ray, answers = group._ray, list[Any]()
        for rank, ref in enumerate(self._refs):
            try:
                answers.append(ray.get(ref))
            except ray.exceptions.RayError as error:
                answers.append(WorkerFailure(DIED, time.time(), rank, str(error)))
        failures = [answer for answer in answers if isinstance(answer, WorkerFailure)]
        if failures:
            raise group._error_of(failures)
        return answers

    def _ended(self, timeout_s: float) -> list[Any]:
        ray = self._group._ray
        if not ray.is_initialized():  # it would be started anew
            return self._refs
        return list(ray.wait(self._refs, num_returns=len(self._refs), timeout=timeout_s, fetch_local=False)[0])


class _Watch:
    """Which workers have died, or made no exchange for some seconds."""

    def __init__(self, ray: Any, actors: Sequence[Any], patience_s: float) -> None:
        self._ray, self._actors, self._patience_s = ray, actors, patience_s
        self._beats: dict[int, int] = {}
        self._asked: dict[int, Any] = {}
        self._since: dict[int, float] = {}

    def silent(self, ranks: Collection[int]) -> dict[int, str]:
        """Those of these workers, and what has become of each; to be asked again and again."""
        now, died = time.monotonic(), set()
        if not ranks:
            return {}
        for rank in ranks:
            self._since.setdefault(rank, now)
            if rank not in self._asked:
                self._asked[rank] = self._actors[rank].beat.options(concurrency_group=_WATCH).remote()
        ready, _ = self._ray.wait(list(self._asked.values()), num_returns=len(self._asked), timeout=0)
        for rank in [rank for rank, ref in self._asked.items() if ref in ready]:
            try:
                if (beat := self._ray.get(self._asked[rank])) != self._beats.get(rank):
                    self._beats[rank], self._since[rank] = beat, now
            except self._ray.exceptions.RayActorError:
                died.add(rank)
            except self._ray.exceptions.RayError:
                pass
            del self._asked[rank]
        late = {rank: _LATE for rank in ranks if now - self._since[rank] > self._patience_s}
        return late | dict.fromkeys(died & set(ranks), _DIED)


def run_workers(
    fn: Callable[..., Any],
    workers: int,
    args: Sequence[Any] = (),
    *,
    each: Sequence[tuple[Any, ...]] | None = None,
    address: str | None = None,
    backend: str = "gloo",
    timeout_s: float = 300.0,
    threads: int = 1,
) -> list[Any]:
    """Calls fn(exchange, *each[rank], *args) in so many Ray workers; what each returned, in order of their numbers.

    Args:    fn: of a module, so that other processes find it.  args: and results: picklable.  each: arguments of each
             worker.  The others: as RayGroup.
    Raises:  WorkerUnavailable with the error of the worker that failed first; UsageError; DataMissing without ray.
    """
    return run_group("run_workers", fn, workers, args, each, address, backend, timeout_s, threads)


def run_group(
    where: str,
    fn: Callable[..., Any],
    workers: int,
    args: Sequence[Any],
    each: Sequence[tuple[Any, ...]] | None,
    address: str | None,
    backend: str = "gloo",
    timeout_s: float = 300.0,
    threads: int = 1,
    loads: Sequence[str] = (),
) -> list[Any]:
    """run_workers(), for a caller that errors are to name."""
    for name, value in (("fn", fn), *((f"args[{place}]", value) for place, value in enumerate(args))):
        check_picklable(where, name, value, "use a function or an object of a module")
    options: dict[str, Any] = {"address": address, "backend": backend, "timeout_s": timeout_s, "threads": threads}
    group = RayGroup(where, workers, **options, keeps_kinds=False, loads=loads)
    try:
        return group.call(_on_exchange, fn, tuple(args), each=[(own,) for own in each or [()] * workers])
    finally:
        group.close()


def _on_exchange(worker: RayWorker, own: tuple[Any, ...], fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return fn(worker.exchange, *own, *args)


def check_picklable(where: str, name: str, value: object, advice: str) -> None:
    """Raises: UsageError for what other processes cannot be given."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError) as cause:
        raise UsageError(
            f"[{where}] expected {name} that can be pickled for another process, got {shown(value)} ({cause}); {advice}"
        ) from cause
