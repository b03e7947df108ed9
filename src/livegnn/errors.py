"""Every exception that livegnn raises.

LiveGnnError
├── UpdateError                 a batch was refused; nothing has changed
│   ├── VertexUnknown           an id that is not a live vertex
│   ├── VertexExists            adding a vertex that is already there
│   ├── VertexIdGap             a new id that is neither the next one nor a removed one
│   ├── EdgeMissing             removing or changing an edge that is not there
│   ├── EdgeOffloaded           removing, changing or reading edges that lie in a file
│   ├── EdgeDuplicate           adding an edge twice to a simple graph
│   ├── ValueInvalid            NaN, infinity, a negative id, a value out of its domain
│   ├── WidthMismatch           a row or an array of the wrong shape
│   ├── DtypeInvalid            an array of the wrong dtype
│   ├── ColumnMissing           a weight, time, type or attribute that the graph does not have, or the reverse
│   ├── RangeOverflow           a fixed-point message or a degree out of range
│   ├── DegreeNegative          a weighted degree below zero in a degree-normalised layer, or a weight in a Laplacian
│   └── PartRefused             another worker of a cluster refused the batch
├── ModelError
│   ├── ModelUnsupported        a layer or option that cannot be kept exact; names the layer and the reason
│   ├── ModelMismatch           an imported model that does not agree with its module, or does not fit the graph
│   ├── OperatorUnsound         a user's operator that is not proved to be incremental
│   └── TrainingDiverged        a loss or a score that is not finite
├── QueryInvalid                a sampling query that cannot be read, or cannot run on this graph; points at the place
├── VersionPending              a read that asked for a version which is not there yet
├── WorkerUnavailable           a worker of a cluster does not answer
├── DriverReplaced              another process has taken this one's cluster over
├── ServiceError                a service refused a request, or cannot be reached; says its kind and status
├── Overloaded                  a request refused because too many wait, or that waited longer than it was willing to
├── SpillUnavailable            a folder that cannot hold the rows that memory does not
├── StateMismatch               verify() found live state that differs from a run from scratch
├── StoredStateInvalid          a saved file that is damaged, cut short or of another version
├── StorageFailed               a file that cannot be written or read: no room, no permission, a name too long
│   └── FileMissing             no file at a path that is to be read
├── LogError                    the log could not do what was asked
│   ├── LogDamaged              an entry that is not what was written; names the offset
│   ├── LogConflict             the place in the log is taken by another entry
│   └── LogUnavailable          the broker or the file cannot be reached; the append may or may not be in the log
├── DataMissing                 a dataset or an optional dependency that is not at hand
├── UsageError                  a call that the object's present state does not allow
└── InvariantBroken             our own mistake; the object refuses further work

The text of an error has four parts, `[where] expected X, got Y; advice`, and each part is a field. facts() has all
fields, from which of_kind() makes the error again in another process. `retryable` says whether the same call may
succeed later without a change by the caller.
"""

from __future__ import annotations

from typing import Self, TypedDict, Unpack, cast


class Facts(TypedDict, total=False):
    """What an error says in fields. Vertices are named by the caller's ids, or by slots where the error has only those.

    where: the call.  subject: what was asked of it, as "add_edge 3 -> 5".  update: the place of an update in its batch.
    edge: (source, destination).  got: what came instead of the expected.  advice: what to do.
    """

    where: str
    subject: str
    update: int
    vertex: int | str
    edge: tuple[int | str, int | str]
    expected: str
    got: str
    advice: str


_NAMES = tuple(Facts.__annotations__)


class LiveGnnError(Exception):
    """Base of every error of this package. A field that an error does not know is None.

    text: the message; without one, the facts make it. Without facts, the four parts of the text are the facts.
    """

    retryable: bool = False
    refused_by: int | None = None  # the place, among a graph's native engines, of the one that refused a batch
    where: str | None = None
    subject: str | None = None
    update: int | None = None
    vertex: int | str | None = None
    edge: tuple[int | str, int | str] | None = None
    expected: str | None = None
    got: str | None = None
    advice: str | None = None

    def __init__(self, text: str | None = None, /, **facts: Unpack[Facts]) -> None:
        super().__init__(_text(facts) if text is None else text)
        self.__dict__.update(facts or _parts(str(self)))

    def facts(self) -> Facts:
        """The fields that this error knows."""
        known = {name: value for name in _NAMES if (value := getattr(self, name)) is not None}
        return cast("Facts", known)

    def reworded(self, text: str | None = None, /, **facts: Unpack[Facts]) -> Self:
        """This error with another text, or with some other facts, which then make the text."""
        return type(self)(text, **cast("Facts", {**self.facts(), **facts}))


def of_kind(kind: str, text: str, facts: Facts) -> LiveGnnError:
    """The error of that class name; an UpdateError for a name that is not of this tree."""
    if "edge" in facts:
        facts = {**facts, "edge": (facts["edge"][0], facts["edge"][1])}  # JSON has lists
    found: type[LiveGnnError] = globals()[kind] if kind in __all__ else UpdateError
    return found(text, **facts)


def _text(facts: Facts) -> str:
    if not facts:
        return ""
    where, subject, update = (facts.get(name) for name in ("where", "subject", "update"))
    place = "" if subject is None else f"{subject}: " if update is None else f"update {update} ({subject}): "
    text = f"[{where}] {place}expected {facts.get('expected')}, got {facts.get('got')}"
    return f"{text}; {facts['advice']}" if "advice" in facts else text


def _parts(text: str) -> Facts:
    """The four parts of a text of ours. A part stays unknown where the text could be cut in two ways."""
    head, found, rest = text.partition("] expected ")
    if not found or not head.startswith("[") or "]" in head or "] expected " in rest:
        return {}
    facts: Facts = {"where": head[1:]}
    if rest.count(", got ") == 1:
        facts["expected"], _, rest = rest.partition(", got ")
        if rest.count("; ") == 1:
            facts["got"], _, facts["advice"] = rest.partition("; ")
        elif "; " not in rest:
            facts["got"] = rest
    return facts


class UpdateError(LiveGnnError):
    """A batch was refused before anything changed."""

    advice = "fix the update that the message names and apply the batch again"


class VertexUnknown(UpdateError, KeyError):
    """An id that is not a live vertex of this graph."""

    advice = "add the vertex first"

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class VertexExists(UpdateError):
    """A vertex was added that is already there."""


class VertexIdGap(UpdateError):
    """A new vertex id must be the next one or that of a removed vertex."""


class EdgeMissing(UpdateError):
    """An edge was removed or changed that is not there."""

    advice = 'pass missing="ignore" if that is expected'


class EdgeOffloaded(UpdateError):
    """An update or a read needs edges that lie in a file."""

    advice = "call graph.reload() first"


class EdgeDuplicate(UpdateError):
    """An edge was added twice to a graph made with simple=True."""


class ValueInvalid(UpdateError, ValueError):
    """A value outside its domain: NaN, infinity, a negative id."""


class WidthMismatch(UpdateError, ValueError):
    """An array whose shape is not the one expected."""


class DtypeInvalid(UpdateError, TypeError):
    """An array whose dtype is not the one expected."""


class ColumnMissing(UpdateError):
    """A weight, time, type or attribute that the graph does not have, or has and the update does not give."""


class RangeOverflow(UpdateError, OverflowError):
    """A fixed-point message or a degree left its range; the batch was rolled back."""

    advice = "call engine.rescale(headroom=...) with more headroom and apply the batch again"


class DegreeNegative(UpdateError, ValueError):
    """A weighted degree below zero, or a weight below zero among out-degrees that divide; it has no exact value."""


class PartRefused(UpdateError):
    """Another worker of a cluster refused the batch; the error that the caller gets is that worker's."""


class ModelError(LiveGnnError):
    """A model that cannot be used."""


class ModelUnsupported(ModelError):
    """A layer, option or operation that cannot be kept exact."""

    advice = "see docs/models.md for what is supported and why the rest is not"


class ModelMismatch(ModelError):
    """An imported model does not agree with its module, or does not fit the graph."""


class TrainingDiverged(ModelError):
    """Training or testing met a number that is not finite."""

    advice = "lower the learning rate, or look at the features"


class OperatorUnsound(ModelError):
    """A user's operator for which a condition of incremental runs is refuted, or not proved."""

    advice = "fix the functions by the counterexample, or run the operator as constrained or full"


class QueryInvalid(LiveGnnError, ValueError):
    """A sampling query that cannot be read, or that the graph cannot answer."""

    advice = "fix the query at the place that the message points at; see docs/queries.md"


class VersionPending(LiveGnnError, TimeoutError):
    """A read asked for at least some version, and the wait for it ended first."""

    retryable = True
    advice = "ask again, or for an earlier version"


class WorkerUnavailable(LiveGnnError, ConnectionError):
    """A worker of a cluster does not answer."""

    retryable = True
    advice = "ask again: a worker that died is replaced"


class DriverReplaced(LiveGnnError):
    """Another process has attached to the cluster that this one drove: this one may neither write nor read any more."""

    advice = "use the other process, or attach to the cluster again, which replaces that one"


class ServiceError(LiveGnnError, ConnectionError):
    """A service refused a request by HTTP's own rules, or cannot be reached.

    kind: of the envelope, or "Unreachable".  status: of the answer, None without one.
    """

    kind: str = ""
    status: int | None = None


class Overloaded(LiveGnnError):
    """A request was refused because too many wait, or it waited longer than it was willing to."""

    retryable = True
    advice = "ask again a little later"


class SpillUnavailable(LiveGnnError):
    """A folder cannot hold the rows that memory does not: it is not there, lies in memory, or its disk is full."""

    retryable = True
    advice = "name a folder on a disk with room by spill_folder="


class StateMismatch(LiveGnnError):
    """Live state differs from a run from scratch."""

    advice = "this is a defect of livegnn: please report it with the saved engine"


class StoredStateInvalid(LiveGnnError):
    """A saved file is damaged, cut short or of another version."""


class StorageFailed(LiveGnnError, OSError):
    """A file cannot be written or read: its disk is full, its folder is not ours, its name is too long."""

    retryable = True
    advice = "make room, or name another path"


class FileMissing(StorageFailed, FileNotFoundError):
    """No file lies at a path that is to be read."""

    retryable = False
    advice = "look at the path"


class LogError(LiveGnnError):
    """The log could not do what was asked."""


class LogDamaged(LogError):
    """An entry is not what was written: cut short, changed, missing, or of a newer format."""

    advice = "restore the log from a copy; no entry is ever skipped"


class LogConflict(LogError):
    """The place that an append was for is taken by another entry."""

    advice = "read what has been appended since, then decide again"


class LogUnavailable(LogError):
    """The broker or the file cannot be reached; an append that raised this may or may not be in the log."""

    retryable = True
    advice = "append again with the same key: it is written once"


class DataMissing(LiveGnnError):
    """A dataset or an optional dependency is not at hand."""


class UsageError(LiveGnnError, RuntimeError):
    """A call that the object's present state does not allow."""


class InvariantBroken(LiveGnnError, AssertionError):
    """Our own mistake; serving on could give a wrong answer."""


__all__ = [name for name, each in globals().items() if isinstance(each, type) and issubclass(each, LiveGnnError)]
