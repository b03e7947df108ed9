"""A second model on the same stream: where do the two disagree?"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from livegnn.errors import LiveGnnError
from livegnn.inference import Changes, Engine
from livegnn.types import AnyArray

_NEWEST = 100


class Disagreement(NamedTuple):
    """compared, differing: predictions of changed vertices so far.  newest: vertex -> (served, shadow) of those that
    differ now, latest last."""

    compared: int
    differing: int
    newest: dict[Any, tuple[Any, Any]]


class Shadow:
    """Compares predictions of an engine and its shadow, of the vertices that a batch changed for either of them.

    refusal: why the shadow was set aside; "" while it follows.
    """

    def __init__(self, engine: Engine, shadow: Engine) -> None:
        self.engine, self.shadow = engine, shadow
        self._lock = threading.Lock()
        self._compared = self._differing = 0
        self._newest: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()
        self._pending: Changes | None = None
        self.refusal = ""
        self._handle = engine.on_change(self._served)
        shadow.on_change(self._compare)

    def end(self, refusal: str) -> None:
        """Compares no more; what was found stays."""
        self._handle.cancel()
        self.refusal, self._pending = refusal, None

    def _served(self, changes: Changes) -> None:
        self._pending = changes

    def _compare(self, changes: Changes) -> None:
        """After both engines have published the version: the shadow is attached after the engine."""
        served, self._pending = self._pending, None
        touched = _by_type(changes)
        for vertex_type, ids in ({} if served is None else _by_type(served)).items():
            touched[vertex_type] = np.union1d(touched[vertex_type], ids) if vertex_type in touched else ids
        for vertex_type, ids in touched.items():
            if not len(ids):
                continue
            ours = _classes(self.engine, ids, vertex_type)
            try:
                theirs = _classes(self.shadow, ids, vertex_type)
            except LiveGnnError as error:  # on demand, it refuses a batch when it is read
                if self.shadow.excused is None:
                    raise
                self.shadow.excused(error)
                return
            self._count(ids, ours, theirs)

    def _count(self, ids: AnyArray, ours: AnyArray, theirs: AnyArray) -> None:
        wrong = np.flatnonzero(ours != theirs)
        with self._lock:
            self._compared += len(ids)
            self._differing += len(wrong)
            for vertex in ids.tolist():
                self._newest.pop(vertex, None)
            for row in wrong.tolist():
                self._newest[ids[row : row + 1].tolist()[0]] = (ours[row].item(), theirs[row].item())
            while len(self._newest) > _NEWEST:
                self._newest.popitem(last=False)

    @property
    def disagreement(self) -> Disagreement:
        """What was found so far."""
        with self._lock:
            return Disagreement(self._compared, self._differing, dict(self._newest))


def _by_type(changes: Changes) -> dict[str | None, AnyArray]:
    """Changed vertices by their type; None where there are no types."""
    return dict(changes.vertices) if isinstance(changes.vertices, dict) else {None: changes.vertices}


def _classes(engine: Engine, ids: AnyArray, vertex_type: str | None) -> AnyArray:
    """Predicted classes; of one column whether its probability is at least 0.5."""
    found = engine.predict(ids, vertex_type=vertex_type)
    return found >= 0.5 if found.dtype.kind == "f" else found
