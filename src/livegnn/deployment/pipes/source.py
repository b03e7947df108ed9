"""A source at work: its thread reads records, makes batches of them, and has them committed with its place.

    records -> good ones: Updates, one batch -> committer -> log: batch and place in one entry
            -> bad ones: dead letters, before the place moves behind them

A batch that the graph refuses is cut: what stands before the bad record, the record, what stands after it. So order
is kept, each good record is applied, and the bad one is refused alone. A batch whose fate is unknown (LogUnavailable)
is submitted again with the same move of the place: if the log has it, the source no longer stands at its beginning.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from livegnn.deployment.config_pipes import SourceConfig
from livegnn.deployment.keys import Applied
from livegnn.deployment.pipes.dead_letters import DeadLetters
from livegnn.deployment.pipes.mapping import SourceMapping
from livegnn.deployment.pipes.records import Lag, PipeBroken, Reader, SourceRecord, Unreachable
from livegnn.deployment.pipes.states import Backoff, PipeThread, SourceState
from livegnn.deployment.places import Place, SourceMove
from livegnn.errors import (
    DataMissing,
    LiveGnnError,
    LogUnavailable,
    Overloaded,
    StorageFailed,
    UpdateError,
    VertexExists,
)
from livegnn.graph import Updates

_log = logging.getLogger("livegnn")
_IDLE_S = 0.25  # that a read waits for a first record: as long as an end of the source may take
_RETRY_S_MAX = 5.0
_LAG_S = 1.0  # between two looks at what is left
_REBUILDS_MAX = 3
_SHOWN_MAX = 5  # bad records that the program's own log names
Submit = Callable[[Updates, SourceMove], "Future[Applied]"]
Opened = Callable[[Place], Reader]


class _Stopped(Exception):
    """The source is to end before its batch was committed."""


class SourceRunner(PipeThread):
    """One source.

    Args:    opened: the reader, from a place on.  submit: hands a batch to the committer.  place: what is in the log.
    """

    def __init__(
        self,
        config: SourceConfig,
        mapping: SourceMapping,
        opened: Opened,
        submit: Submit,
        letters: DeadLetters,
        place: Place,
    ) -> None:
        super().__init__(config.name)
        self._config, self._mapping, self._opened, self._submit = config, mapping, opened, submit
        self._letters = letters
        self._committed = dict(place)  # what is in the log
        self._read_to = dict(place)  # and what is dealt with: bad records after it are in the dead letters
        self._records = self._bad = self._updates = 0
        self._lag: Lag | None = None
        self._next_lag = 0.0

    @property
    def state(self) -> SourceState:
        """What it says of itself."""
        counts = (self._records, self._bad, self._updates, self.retries)
        kind = self._config.kind
        return SourceState(self.name, kind, self.life, self.error, *counts, self._lag, dict(self._committed))

    # ---- the thread

    def _guarded(self) -> None:
        backoff = Backoff(_RETRY_S_MAX)
        try:
            while not self.stopping.is_set() and self.life != "ended":
                try:
                    self._read_all(backoff)
                except (Unreachable, StorageFailed) as cause:
                    self._wait(cause, backoff.next_s())
        except _Stopped:
            pass
        except (PipeBroken, DataMissing) as cause:
            self._fail(cause)
        except Exception as cause:
            _log.exception("[source %s] failed", self.name)
            self._fail(cause)
        finally:
            self.finished.set()

    def _fail(self, cause: Exception) -> None:
        self.life, self.error = "failed", str(cause)
        _log.error("[source %s] stopped: %s", self.name, cause)

    def _read_all(self, backoff: Backoff) -> None:
        reader = self._opened(dict(self._read_to))
        try:
            while not self.stopping.is_set():
                records = self._gathered(reader)
                if not records or time.monotonic() > self._next_lag:  # it costs a look at every file of a folder
                    self._lag = reader.lag()
                    self._next_lag = time.monotonic() + _LAG_S
                self._goes_on()
                backoff.reset()
                if records:
                    self._take(records)
                elif reader.is_ended:
                    self.life = "ended"
                    return
        finally:
            reader.close()

    def _gathered(self, reader: Reader) -> list[SourceRecord]:
        """A batch: as many records as there may be, or those that came until its time was over."""
        count_max = self._config.batch
        records = reader.read(count_max, _IDLE_S)
        deadline = time.monotonic() + self._config.wait_ms / 1e3
        while records and len(records) < count_max and not reader.is_ended and not self.stopping.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            records += reader.read(count_max - len(records), left)
        return records

    def _take(self, records: list[SourceRecord]) -> None:
        """Commits the good ones, and writes the bad ones to the dead letters, in their order."""
        self._records += sum(one.values is not None or bool(one.fault) for one in records)
        parts, rebuilds = [records], 0
        while parts:
            part = parts.pop()
            built = self._mapping.build(part)
            self._write_off(built.bad)
            bad = {id(record) for record, _ in built.bad}
            part = [one._replace(values=None, fault="") if id(one) in bad else one for one in part]
            if not built.updates:
                self._read_to |= _place_after(part)
                continue
            try:
                self._commit(built.updates, _place_after(part))
            except UpdateError as error:
                if isinstance(error, VertexExists) and self._mapping.ignores_known and rebuilds < _REBUILDS_MAX:
                    rebuilds += 1  # another client added it meanwhile
                    parts.append(part)
                elif len(built.good) == 1:
                    self._write_off([(built.good[0], str(error))])
                    self._read_to |= _place_after(part)
                else:
                    parts += reversed(_cut(part, built.good, built.ends, error))
            else:
                self._updates += len(built.updates)

    def _write_off(self, bad: Sequence[tuple[SourceRecord, str]]) -> None:
        if not bad:
            return
        while True:
            try:
                new = self._letters.write(self.name, list(bad))
                break
            except StorageFailed as cause:
                self._retry(cause, _RETRY_S_MAX)
        self._goes_on()
        for record, reason in bad[: max(0, _SHOWN_MAX - self._bad)]:
            _log.warning("[source %s] %s %d is bad: %s", self.name, record.part, record.place, reason)
        self._bad += new

    def _commit(self, updates: Updates, after: Place) -> None:
        """Returns when the batch is durable. Raises: UpdateError, _Stopped."""
        reached = self._read_to | after
        changed = {part: place for part, place in reached.items() if self._committed.get(part) != place}
        move = SourceMove(self.name, {part: self._committed.get(part) for part in changed}, changed)
        backoff = Backoff(_RETRY_S_MAX)
        while True:
            try:
                self._submit(updates, move).result()
                break
            except (LogUnavailable, Overloaded) as cause:
                self._retry(cause, backoff.next_s())
            except UpdateError:
                raise
            except LiveGnnError:
                if self.stopping.is_set():  # the deployment closes
                    raise _Stopped from None
                raise
        self._goes_on()
        self._committed |= changed
        self._read_to = reached

    def _retry(self, cause: Exception, seconds: float) -> None:
        self._wait(cause, seconds)
        if self.stopping.is_set():
            raise _Stopped from cause


def _place_after(records: Sequence[SourceRecord]) -> Place:
    return {one.part: one.place for one in records}


def _cut(
    part: list[SourceRecord], good: Sequence[SourceRecord], ends: Sequence[int], error: UpdateError
) -> list[list[SourceRecord]]:
    """A refused batch as smaller ones: around the record that the error names, else in halves."""
    if error.update is not None and 0 <= error.update < ends[-1]:
        bad = part.index(good[bisect_right(ends, error.update)])
        return [piece for piece in (part[:bad], part[bad : bad + 1], part[bad + 1 :]) if piece]
    half = part.index(good[len(good) // 2])
    return [part[:half], part[half:]]
