"""RayCrew: the workers of a cluster in a RayGroup. Ray places them, watches them and starts others in place of those
that are lost. What a batch or a read needs goes over connections of their own (call_lines.py, parcel_links.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from livegnn.distributed.cluster.crew import Aside, Call
from livegnn.distributed.cluster.worker import PartWorker
from livegnn.distributed.ray_group import RayGroup
from livegnn.distributed.ray_worker import RayWorker
from livegnn.errors import WorkerUnavailable
from livegnn.optional import need

_LOADS = (PartWorker.__module__,)
_PART = "part"
_SOON = ("apply", "hold", "decide", "read_rows", "best_slots", "open_what_if", "read_staged", "close_what_if")
_MAY_BE_EMPTY = ("ready", "start", "start_again", "read_share", "read_snapshots")  # calls that need no part


class RayCrew:
    """See Crew. Starts Ray on this machine where it does not run and no address is given.

    Args:    address: of a Ray cluster.  threads: of each worker's engine.  timeout_s: for which a worker may be silent.
             name: as of RayGroup.
    Raises:  as RayGroup; WorkerUnavailable where workers cannot be placed.
    """

    def __init__(
        self,
        size: int,
        threads: int = 1,
        timeout_s: float = 60.0,
        address: str | None = None,
        name: str | None = None,
    ) -> None:
        about = {"engine_threads": threads}
        options: dict[str, Any] = {"address": address, "timeout_s": timeout_s, "name": name, "about": about}
        self._begin(RayGroup("Cluster", size, backend=None, **options, loads=_LOADS), threads)
        self.reform()

    @classmethod
    def attach(cls, name: str, address: str | None = None, timeout_s: float | None = None) -> Self:
        """The workers of that name. Raises: as RayGroup.attach()."""
        group = RayGroup.attach("attach", name, address=address, timeout_s=timeout_s, loads=_LOADS)
        crew = cls.__new__(cls)
        crew._begin(group, group.about["engine_threads"])
        return crew

    def _begin(self, group: RayGroup, threads: int) -> None:
        self.size, self._threads, self._group = group.size, threads, group

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """See Crew."""
        ask = self._group.call_soon if all(call[0] in _SOON for call in calls) else self._group.call
        args, each = self._given(calls)
        return ask(_on_part, *args, each=each)

    def keep(self, calls: Sequence[Call]) -> list[Any]:
        """See Crew."""
        args, each = self._given(calls)
        return self._group.keep(_on_part, *args, each=each)

    def aside(self, calls: Sequence[Call], *, keep: bool) -> Aside:
        """See Crew."""
        args, each = self._given(calls)
        return self._group.aside(_on_part, *args, each=each, keep=keep)

    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return list(self._group.pids)

    def reform(self) -> list[int]:
        """See Crew."""
        self._group.form()
        return self.call([("ready",)] * self.size)

    def another(self, size: int, number: int) -> RayCrew:
        """See Crew."""
        crew = RayCrew.__new__(RayCrew)
        crew._begin(self._group.another(size, number), self._threads)
        try:
            crew.reform()
        except BaseException:
            crew.close()
            raise
        return crew

    def lead(self) -> None:
        """See Crew."""
        self._group.lead()

    def interrupt(self) -> None:
        """See Crew."""
        self._group.interrupt()

    def close(self) -> None:
        """See Crew."""
        self._group.close()

    def _given(self, calls: Sequence[Call]) -> tuple[tuple[Any, ...], list[tuple[Call]] | None]:
        """For _on_part: what all workers are given alike, which goes to Ray once, and what is each one's own."""
        if all(call is calls[0] for call in calls):
            return (calls[0], self._threads), None
        return (self._threads,), [(call,) for call in calls]


def _on_part(worker: RayWorker, call: Call, threads: int) -> Any:
    """One call, in the worker's process."""
    method, *given = call
    if _PART not in worker.kept:
        if method not in _MAY_BE_EMPTY:
            raise WorkerUnavailable(
                f"[cluster] expected worker {worker.rank} as it was, got one that was started again; reform the crew"
            )
        worker.kept[_PART] = PartWorker(partial(_swap, worker), threads)
    worker.kept[_PART].set_near(worker.near)  # of the group that it is in now
    ray: Any = need("ray", "distributed")
    return getattr(worker.kept[_PART], method)(*(ray.get(x) if isinstance(x, ray.ObjectRef) else x for x in given))


def _swap(worker: RayWorker, parcels: list[bytes]) -> list[bytes]:
    return worker.links.swap(parcels)  # of the group that the worker is in now
