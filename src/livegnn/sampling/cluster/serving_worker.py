"""ServingWorker: the samples and features that its seeds can reach, and answers from them by local look-ups.

It puts the pushes of all sampling workers for one step into its tables at once, in the order of steps, so an answer is
always of a whole version. Early pushes wait, repeated ones are dropped.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

import numpy as np

from livegnn import _native
from livegnn.errors import UsageError, VersionPending
from livegnn.sampling.cluster.messages import Push, PushArrays
from livegnn.sampling.cluster.spec import ClusterSpec
from livegnn.sampling.presample.source import ReadOptions, Response, SampleSource, check_size
from livegnn.sampling.queries.plan import Plan
from livegnn.types import AnyArray, Int64Array


class Tables(Protocol):
    """Where samples and features lie: native memory, or RocksDB."""

    def apply(self, pushes: list[PushArrays], seeds: AnyArray, version: int) -> None:
        """Puts in the pushes of one step at once; readers see all of it or nothing."""

    def sample(
        self, tables: list[int], seeds: Int64Array, widths: list[int], *, edge_ids: bool, edge_data: bool
    ) -> tuple[Any, ...]:
        """The fields of a Response. Raises: VertexUnknown for a seed not here."""

    def contents(self, width: int) -> PushArrays:
        """Everything, as a push that fills empty tables; by table and vertex."""

    def bytes(self) -> dict[str, int]:
        """Memory, or disk, by part."""


class ServingWorker(SampleSource):
    """Answers sampling queries for the seeds that it owns, by slots; others raise VertexUnknown.

    Args:    spec: what the cluster agreed on.  worker: its number.  tables: where to keep things; native memory unless
             given. They are made anew when the worker starts over.
    Source:  Helios, 4.3 and section 6.

    step: the next one, None before the first.  lag_ms: how long after its step was put in order the newest version
    could be read.
    """

    def __init__(self, spec: ClusterSpec, worker: int, *, tables: Tables | None = None) -> None:
        self.spec, self.worker, self.edge_columns = spec, worker, spec.edge_columns
        self._tables: Tables = tables or spec.new_tables()
        self._changed = threading.Condition()
        self.step: int | None = None
        self._version = -1
        self._seeds = np.zeros(_native.BUCKETS, np.uint8)
        self.lag_ms = 0.0
        self._waiting: dict[int, dict[int, Push]] = {}

    # ---- following

    @property
    def version(self) -> int:
        """Entries of the history that its answers include; -1 before the first step."""
        return self._version

    def receive(self, push: Push, now_ms: float | None = None) -> list[Push]:
        """Takes a push, and applies every step that is complete by it.

        Args:    now_ms: the clock, for lag_ms.
        Returns: a push of each applied step, so that the caller can write a checkpoint where one is asked for.
        """
        if self.step is not None and push.step < self.step:
            return []
        self._waiting.setdefault(push.step, {})[push.sender] = push
        applied = []
        while (ready := self._next_ready()) is not None:
            pushes = self._waiting.pop(ready)
            first = pushes[min(pushes)]
            self._apply(first, [pushes[sender].arrays for sender in sorted(pushes)])
            self.lag_ms = max(0.0, (time.time() * 1000 if now_ms is None else now_ms) - first.stamp)
            applied.append(first)
        return applied

    def needed_from(self) -> set[tuple[int, int, int]]:
        """(step, 0, sender) of the pushes that wait for their turn."""
        return {(step, 0, sender) for step, found in self._waiting.items() for sender in found}

    # ---- answers

    @property
    def plan(self) -> Plan:
        """The queries and their tables."""
        return self.spec.plan

    def answer(self, slots: Int64Array, options: ReadOptions) -> Response:
        """As SampleSource.answer; waits for the version, and for the first step."""
        tables = self.spec.tables_of(options.query)
        if options.at_least is not None or self.step is None:
            self.wait_for(0 if options.at_least is None else options.at_least, options.timeout)
        check_size("sample", (self.spec.fanouts[table] for table in tables), len(slots))
        widths = self.spec.widths_of(options.query) if options.features else []
        wanted = {"edge_ids": options.edge_ids, "edge_data": options.edge_data}
        return Response(*self._tables.sample(tables, slots, widths, **wanted))

    def contents(self) -> PushArrays:
        """Everything it holds: rows of samples by (table, vertex), and features by vertex."""
        return self._tables.contents(self.spec.feature_width)

    def bytes(self) -> dict[str, int]:
        """Memory by part: rows, index, features."""
        return self._tables.bytes()

    # ---- state

    def state(self) -> Push:
        """What restore() takes: the content as one push, of the last step. Raises: UsageError before the first."""
        if self.step is None:
            raise UsageError("[state] expected a serving worker with content, got one before its first step; wait")
        numbers = (0, 1, self.worker, self.step - 1, self._version, 0)
        return Push(*numbers, True, False, self._seeds, self.contents())

    def restore(self, state: Push) -> None:
        """Starts from what state() gave. Raises: UsageError unless it is empty."""
        if self.step is not None:
            raise UsageError(
                "[restore] expected a serving worker before its first step, got one with content; make one"
            )
        self._apply(state, [state.arrays])

    # ---- inside

    def _next_ready(self) -> int | None:
        """The step to be applied now, all its pushes being here: the next one, or a later one that begins anew."""
        for step in sorted(self._waiting):
            found = self._waiting[step]
            some = next(iter(found.values()))
            if (some.fresh or step == self.step) and len(found) == some.senders:
                return step
        return None

    def _apply(self, first: Push, contents: list[PushArrays]) -> None:
        if first.fresh:
            self._clear()
        self._tables.apply(contents, first.seeds, first.version)
        with self._changed:
            self.step, self._version, self._seeds = first.step + 1, first.version, first.seeds
            self._changed.notify_all()
        for step in [step for step in self._waiting if step <= first.step]:
            del self._waiting[step]

    def _clear(self) -> None:
        """Empties the tables: this worker had left and comes back, or they lie on disk from an earlier process."""
        table, vertex, *_, feature_vertex, _, _ = self.contents()
        none, width = np.empty(0, np.int32), self.spec.feature_width
        rows, edge_rows = (np.empty((0, columns), np.float32) for columns in (width, self.edge_columns.words))
        drops = (none, none, none, none, np.empty(0, np.int64), edge_rows, table, vertex, none, rows, feature_vertex)
        self._tables.apply([drops], np.zeros_like(self._seeds), self._version)

    def wait_for(self, version: int, timeout: float | None) -> None:
        """As SampleSource.wait_for."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._version >= version, timeout):
                raise VersionPending(
                    f"[sample] expected version {version} within {round(timeout or 0.0, 2)} s, got {self._version}; "
                    "wait longer, or read what there is"
                )
