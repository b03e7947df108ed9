"""RayName: a name under which the workers of a RayGroup outlive their driver, and which driver they belong to now.

Ray's own store of the cluster (GCS) keeps, for each name, the number of the newest driver. A driver takes the next
number, which none has had: the newest is the one that may write. Each worker refuses calls of a number below the one
that it was given last; a driver asks for the newest number before it starts or ends a worker.

key    = "livegnn/driver/" name "/" number                number: of a driver, 20 digits, from 1
value  = crew                                              the workers that serve it; empty: those of the driver before
crew   = number "-" k                                      k: among those that this driver has made, 0 of the first
worker = name "." crew "." rank "." number "." start       start: how many this driver had started before

A driver may make another crew of workers and have that serve in place of the one that it has, by its own value. One
that follows takes its number first and then looks at the value before; the one before writes its value first and then
looks for a newer number. So they agree on the crew, or the one before learns that it was replaced, and ends neither.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from livegnn.errors import DriverReplaced, UsageError
from livegnn.graph.checks import shown
from livegnn.optional import need

_NAMESPACE = "livegnn"
_ENDING_S, _GLANCE_S = 10.0, 0.02
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GONE = (ValueError, AssertionError)  # of Ray, for an actor that has died, and for one whose class went with its driver


def replaced(where: str) -> DriverReplaced:
    """The error of a driver that another one has replaced."""
    return DriverReplaced(
        f"[{where}] expected to be the driver of these workers, got another process that has attached to them; use "
        "that process, or attach here again, which replaces it"
    )


class NamedActor(NamedTuple):
    """A worker. order: of its start, among others of its crew and rank."""

    crew: str
    rank: int
    order: tuple[int, int]
    actor: Any


class RayName:
    """One name, as a driver sees it. number: of this driver, 0 before claim().  crew: of its workers, "" before that.

    Args:    where: for errors.
    Raises:  UsageError for what is no name.
    """

    def __init__(self, where: str, name: object) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"[{where}] expected a name of 1 to 64 letters, digits, '-' and '_', got {shown(name)}; choose such"
            )
        self.name, self.number, self.crew = name, 0, ""
        self._where, self._started = where, 0

    def serving(self) -> str:
        """The crew that serves now; "" where there has been none."""
        for number in sorted(self._numbers(), reverse=True):
            found = _store()._internal_kv_get(self._key(number))
            if found:
                return str(found.decode())
        return ""

    def claim(self, *, fresh: bool = False) -> None:
        """Makes this driver the newest of its name, with the crew that serves. fresh: with a crew of its own."""
        kv = _store()
        while True:
            number = max(self._numbers(), default=0) + 1
            was_there = kv._internal_kv_put(self._key(number), b"", overwrite=False)
            if not was_there:  # else another driver was faster
                break
        self.number, self.crew = number, f"{number}-0" if fresh else self.serving()
        kv._internal_kv_put(self._key(number), self.crew.encode(), overwrite=True)
        for old in self._numbers():
            if old < number:
                kv._internal_kv_del(self._key(old))

    def of_another_crew(self, number: int) -> RayName:
        """The same name and driver, for workers next to these. number: of the crew, from 1."""
        name = RayName(self._where, self.name)
        name.number, name.crew = self.number, f"{self.number}-{number}"
        return name

    def lead(self) -> None:
        """This crew serves from now on. Raises: DriverReplaced; then it may be that the newer driver has it."""
        self.refuse_replaced()
        _store()._internal_kv_put(self._key(self.number), self.crew.encode(), overwrite=True)
        self.refuse_replaced()

    def is_replaced(self) -> bool:
        """Whether there is a newer driver."""
        return max(self._numbers(), default=0) > self.number

    def refuse_replaced(self) -> None:
        """Raises: DriverReplaced where there is a newer driver."""
        if self.is_replaced():
            raise replaced(self._where)

    def refuse_none(self, living: Sequence[NamedActor]) -> None:
        """Raises: UsageError without workers."""
        if not living:
            raise UsageError(
                f"[{self._where}] expected workers of the name {self.name!r}, got none that live; look at the name, "
                "and at address=, or go on from snapshots in a folder by lg.Cluster.restore()"
            )

    def options(self, rank: int) -> dict[str, Any]:
        """Of the next actor that is started for this rank."""
        self._started += 1
        name = f"{self.name}.{self.crew}.{rank}.{self.number}.{self._started}"
        return {"name": name, "namespace": _NAMESPACE, "lifetime": "detached"}

    def actors(self) -> list[NamedActor]:
        """Those that live, of all crews."""
        ray: Any = need("ray", "distributed")
        found = []
        for each in ray.util.list_named_actors(all_namespaces=True):
            name, *numbers = each["name"].split(".")
            if each["namespace"] == _NAMESPACE and name == self.name and len(numbers) == 4:
                crew, (rank, *order) = numbers[0], map(int, numbers[1:])
                with suppress(*_GONE):
                    actor = ray.get_actor(each["name"], namespace=_NAMESPACE)
                    found.append(NamedActor(crew, rank, (order[0], order[1]), actor))
        return found

    def wait_for_end(self) -> None:
        """Until Ray names no worker of this crew, or a while: it ends workers in its own time."""
        until = time.monotonic() + _ENDING_S
        while any(each.crew == self.crew for each in self.actors()) and time.monotonic() < until:
            time.sleep(_GLANCE_S)

    def _numbers(self) -> list[int]:
        return [int(key.rpartition(b"/")[2]) for key in _store()._internal_kv_list(self._key(None))]

    def _key(self, number: int | None) -> bytes:
        return f"livegnn/driver/{self.name}/{'' if number is None else f'{number:020}'}".encode()


def _store() -> Any:
    return need("ray.experimental.internal_kv", "distributed")
