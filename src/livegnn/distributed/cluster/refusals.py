"""Why workers refuse a batch, and which of their reasons an engine would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from livegnn import errors
from livegnn.distributed.cluster.batch import PartChanges
from livegnn.errors import Facts, LiveGnnError, PartRefused, UpdateError


class PartRefusal(NamedTuple):
    """Why a worker refuses a batch, in the fields of an error.

    by_other: because another worker does.  late: it had begun to compute rows, which an engine does last.
    """

    kind: str
    text: str
    facts: Facts
    by_other: bool
    late: bool

    @classmethod
    def of(cls, error: UpdateError, late: bool) -> Self:
        """As data, for another process."""
        return cls(type(error).__name__, str(error), error.facts(), isinstance(error, PartRefused), late)


def refusal_of(answers: Sequence[PartChanges | PartRefusal]) -> LiveGnnError | None:
    """The error of the first update that any worker refuses, or None."""
    refused = [answer for answer in answers if isinstance(answer, PartRefusal)]
    if not refused:
        return None
    own = [each for each in refused if not each.by_other] or refused
    first = min(own, key=_order)
    return errors.of_kind(first.kind, first.text, first.facts)


def _order(refusal: PartRefusal) -> tuple[int, bool, bool, bool]:
    """As an engine looks: the ends of an edge before the edge, and its source first."""
    facts, edge = refusal.facts, refusal.facts.get("edge")
    is_target = edge is not None and facts.get("vertex") != edge[0]
    return facts.get("update", 2**62), refusal.late, refusal.kind != "VertexUnknown", is_target
