"""UpdateLog: the history of a graph, one entry a version; replay, and writing ahead of publication.

    graph[k + 1] = entry_k(graph[k])

An entry is a batch, or a switch: the swap or rescale of an engine, which is a version without updates to all others.

Protocol of an attached graph, for each batch, under the graph's lock:
1. The store and every engine take the batch; whatever is wrong with it refuses it here, and nothing is in the log.
2. Every recorder of the graph prepares (graph/consumers.py): the log encodes the batch, others may refuse it.
3. The batch is appended with the offset that it must get, and the append waits until it is durable.
4. Its rows are published. No reader of an engine has seen anything before that.
If 2 or 3 fails, the store is undone and the engines run from scratch on the graph as before: graph and log then agree,
or the log is one entry ahead (the failure hid that the append succeeded, or another recorder failed after it). An entry
cannot be erased, so the offset decides: the next batch raises LogConflict, and catch_up() applies what the log has
more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, NamedTuple, Self

from livegnn.errors import DtypeInvalid, LiveGnnError, LogConflict, UpdateError, UsageError
from livegnn.graph import Graph, Updates
from livegnn.graph.consumers import Recorded, Recorder, Switch
from livegnn.log import codec
from livegnn.log.interface import ByteLog, checked_offset
from livegnn.optional import need

_ENTRIES_AHEAD = 4  # of a replay: decoded while one is applied


class UpdateEntry(NamedTuple):
    """One entry of a log: its place, the key of its append, the updates; of a switch the updates are empty.

    note: what its writer noted with it, b"" for nothing.
    """

    offset: int
    key: str
    updates: Updates
    switch: Switch | None = None
    note: bytes = b""


class UpdateLog:
    """A ByteLog whose entries are batches of updates (codec.py). It closes the ByteLog when it is closed.

    Raises:  DataMissing without pyarrow (the extra "arrow").
    """

    def __init__(self, log: ByteLog) -> None:
        if not isinstance(log, ByteLog):
            raise UsageError(f"[UpdateLog] expected a ByteLog, got {type(log).__name__}; make one with open_log(url)")
        need("pyarrow", "arrow")
        self.log = log

    def append(self, updates: Updates, *, key: str | None = None, expect: int | None = None) -> int:
        """Appends one batch and returns its offset. Arguments and errors: as ByteLog.append.

        Nothing is checked against a graph: use attach() to log what a graph accepts.
        """
        if not isinstance(updates, Updates):
            raise DtypeInvalid(
                f"[append] expected Updates, got {type(updates).__name__}; collect the changes in livegnn.Updates()"
            )
        return self.log.append(codec.encode(updates), key=key, expect=expect)

    def read(self, from_offset: int = 0, limit: int | None = None) -> Iterator[UpdateEntry]:
        """The batches from an offset on. Arguments and errors: as ByteLog.read."""
        for offset, key, payload in self.log.read(from_offset, limit):
            found, note = codec.decode_noted(self.log.name, offset, payload)
            switch = found if isinstance(found, Switch) else None
            updates = Updates() if isinstance(found, Switch) else found
            yield UpdateEntry(offset, key, updates, switch, note)

    @property
    def tail(self) -> int:
        """The next offset: the number of entries."""
        return self.log.tail

    @property
    def first(self) -> int:
        """The offset of the oldest entry that was not released."""
        return self.log.first

    def release(self, before: int) -> int:
        """As ByteLog.release."""
        return self.log.release(before)

    @property
    def committed(self) -> int:
        """The largest offset that is durable, -1 if none is."""
        return self.log.committed

    def wait(self, offset: int, timeout: float | None = None) -> bool:
        """As ByteLog.wait."""
        return self.log.wait(offset, timeout)

    def attach(self, graph: Graph, *, at: int | None = None) -> Attachment:
        """From now on every batch that `graph` accepts is in this log before anyone sees it, and so is every swap and
        rescale of its engines.

        Args:    at: the offset of the first entry that the graph does not hold; graph.version unless given, which is
                 right for a graph that began with the log, or was saved while it was attached.
        Raises:  LogConflict if the log has fewer entries; UsageError if the graph is attached to a log already.
        """
        return Attachment(self, graph, at)

    def close(self) -> None:
        """Closes the ByteLog."""
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"UpdateLog({self.log!r})"


class Attachment(Recorder):
    """A graph that writes its history; see the head of this file for the protocol. Ends with detach()."""

    def __init__(self, log: UpdateLog, graph: Graph, at: int | None) -> None:
        _checked_graph("attach", graph)
        checked_offset("attach", "at", at)
        self.log, self.graph = log, graph
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext  # entered for each append: traces
        self._replaying = False
        self._payload = b""  # of the batch that is prepared
        self._note = b""  # for the entries under way
        self._appended = self._ahead = False  # that batch is in the log; so is one that was taken back
        with graph.host.writing("attach"):
            if _attached(graph):
                raise UsageError("[attach] expected a graph without a log, got an attached one; detach it first")
            self._offset = graph.version if at is None else at
            if log.tail < self._offset:
                raise LogConflict(
                    f"[attach, log {log.log.name}] expected at least {self._offset} entries, which the graph holds, "
                    f"got {log.tail}; name the graph's place with at="
                )
            graph.host.add_recorder(self)

    @property
    def offset(self) -> int:
        """The offset that the graph's next batch gets: all entries before it are in the graph."""
        return self._offset

    @property
    def is_ahead(self) -> bool:
        """Whether the log has an entry that the graph took back: batches are refused until catch_up()."""
        return self._ahead

    @contextmanager
    def noting(self, note: bytes) -> Iterator[None]:
        """Entries that are written in the block carry the note: bytes for those who read the log, as UpdateEntry.note.

        The block takes the writer's place: no other thread's batch gets the note.
        """
        with self.graph.host.lock:
            self._note = note
            try:
                yield
            finally:
                self._note = b""

    def catch_up(self, seen: Callable[[UpdateEntry], object] | None = None) -> int:
        """Applies what the log has more than the graph, and returns the graph's version.

        Args:    seen: called with each entry after it was applied.
        Raises:  as replay.
        """
        with self.graph.host.lock:  # between two entries, too, no other batch may come in
            self.graph.host.refuse_busy("catch_up")
            self._replaying = True
            try:
                with closing(read_ahead(self.log.read(self._offset))) as entries:
                    _apply_all(self.graph, entries, seen)
                self._ahead = False
            finally:
                self._replaying = False
            return self.graph.version

    def detach(self) -> None:
        """The graph's later batches are its own again. A second call does nothing."""
        with self.graph.host.writing("detach"):
            self.graph.host.drop_recorder(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    # ---- for the graph

    def prepare(self, recorded: Recorded) -> None:
        """Encodes the batch or switch. Raises: LogConflict while the log holds one that was taken back."""
        self._appended = False
        if self._replaying:
            return
        if self._ahead:
            raise LogConflict(
                f"[apply, log {self.log.log.name}] expected a log of {self._offset} entries, as the graph holds, got "
                "one more, of a batch that was taken back; call catch_up() to apply it"
            )
        self._payload = codec.encode(recorded, self._note)

    def append(self, recorded: Recorded) -> None:
        """Appends it at the graph's place, and waits until it is durable."""
        if not self._replaying:
            with self.around():
                self.log.log.append(self._payload, expect=self._offset)
        self._payload = b""
        self._offset, self._appended = self._offset + 1, True

    def abort(self) -> None:
        """Goes back to the place before. An entry cannot be erased: later batches are refused until catch_up()."""
        self._payload = b""
        if self._appended:
            self._offset -= 1
            self._appended, self._ahead = False, self._ahead or not self._replaying


def _attached(graph: Graph) -> bool:
    return any(isinstance(each, Attachment) for each in graph.host.recorders)


def replay(
    log: UpdateLog,
    graph: Graph,
    from_offset: int = 0,
    to_offset: int | None = None,
    *,
    seen: Callable[[UpdateEntry], object] | None = None,
) -> int:
    """Applies entries [from_offset, to_offset) to a graph, and so to every attached engine; returns its version.

    A graph that equals the one that the log began with, and an engine made of it with the same model and name, have the
    live engine's state_digest() afterwards. A switch of an engine that is not attached is a version without updates.

    Args:    seen: called with each entry after it was applied.
    Raises:  UsageError if the log has fewer entries, if the graph writes a log itself (use Attachment.catch_up), or if
             the graph refuses a batch or an engine a switch; what was applied before it stays.  LogDamaged,
             LogUnavailable.
    """
    if not isinstance(log, UpdateLog):
        raise UsageError(
            f"[replay] expected an UpdateLog, got {type(log).__name__}; make one: UpdateLog(open_log(url))"
        )
    _checked_graph("replay", graph)
    checked_offset("replay", "from_offset", from_offset)
    checked_offset("replay", "to_offset", to_offset)
    if _attached(graph):
        raise UsageError("[replay] expected a graph without a log, got an attached one; call its catch_up()")
    last = log.tail if to_offset is None else to_offset
    if not from_offset <= last <= log.tail:
        raise UsageError(
            f"[replay, log {log.log.name}] expected offsets up to its {log.tail} entries, got {from_offset} to {last}; "
            "name others"
        )
    with closing(read_ahead(log.read(from_offset, last - from_offset))) as entries:
        _apply_all(graph, entries, seen)
    return graph.version


def read_ahead(entries: Iterator[UpdateEntry]) -> Generator[UpdateEntry, None, None]:
    """The same entries, the next few of them read and decoded in a thread meanwhile. Close it: that ends the thread."""
    with ThreadPoolExecutor(1, "livegnn-log-reader") as reader:
        ahead = deque(reader.submit(next, entries, None) for _ in range(_ENTRIES_AHEAD))
        try:
            while (entry := ahead.popleft().result()) is not None:
                ahead.append(reader.submit(next, entries, None))
                yield entry
        finally:
            reader.shutdown(wait=True, cancel_futures=True)


def _checked_graph(where: str, graph: object) -> None:
    if not isinstance(graph, Graph):
        raise UsageError(
            f"[{where}] expected a livegnn.Graph, got {type(graph).__name__}; of an engine, give engine.graph"
        )


def _apply_all(graph: Graph, entries: Iterator[UpdateEntry], seen: Callable[[UpdateEntry], object] | None) -> None:
    for entry in entries:
        _apply(graph, entry)
        if seen is not None:
            seen(entry)


def _apply(graph: Graph, entry: UpdateEntry) -> None:
    if entry.switch is not None:
        return _redo(graph, entry.offset, entry.switch)
    try:
        graph.apply(entry.updates)
    except UpdateError as cause:
        raise UsageError(
            f"[replay, offset {entry.offset}] expected a batch that the graph accepts, got {cause}; "
            "start from the graph that the log began with, or from a copy saved at this offset"
        ) from cause


def _redo(graph: Graph, offset: int, switch: Switch) -> None:
    try:
        graph.host.redo(switch)
    except LiveGnnError as cause:
        raise UsageError(
            f"[replay, offset {offset}] expected a {switch.kind} that engine {switch.name!r} can make, got {cause}; "
            "make graph and engine like those that wrote it, or close the engine to go on without it"
        ) from cause
