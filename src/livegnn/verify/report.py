"""What is known of an operator, condition by condition, with counterexamples that were run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from livegnn.errors import OperatorUnsound, UsageError
from livegnn.verify.expr import Float64
from livegnn.verify.operator import Operator

Verdict: TypeAlias = Literal["proved", "refuted", "tested, not proved"]
Run: TypeAlias = Literal["incremental", "constrained", "full"]
RUNS: tuple[Run, ...] = ("incremental", "constrained", "full")  # from the least work on


def _text(array: Float64) -> str:
    return np.array2string(np.squeeze(array), precision=4, separator=", ", threshold=12).replace("\n", "")


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Numbers for which the two sides of a condition differ, as the user's own functions compute them.

    inputs: name -> rows that the functions were given.   expected, got: the two sides.   sides: what they are.
    """

    inputs: Mapping[str, Float64]
    expected: Float64
    got: Float64
    sides: tuple[str, str]

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {_text(rows)}" for name, rows in self.inputs.items())
        return f"{given}: {self.sides[0]} = {_text(self.expected)}, {self.sides[1]} = {_text(self.got)}"


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of Theorem 1.

    key: its short name.   statement: what it says.   verdict: see docs/verify.md.   reason: how it was proved, or why
    it could not be.   tests: random inputs on which both sides agreed within `tolerance`, relative.
    """

    key: str
    statement: str
    verdict: Verdict
    reason: str
    counterexample: Counterexample | None = None
    tests: int = 0
    tolerance: float = 0.0


@dataclass(frozen=True, eq=False)
class Report:
    """The verdict on an operator: `str(report)` is a table, `report[key]` one condition.

    deletions: "subtract" where contexts and aggregates are sums (a group: an old message is taken out exactly);
    "recompute" where they are not (a monoid, as max: a neighbourhood that loses a message is computed again).
    """

    operator: Operator
    conditions: tuple[Condition, ...]
    deletions: Literal["subtract", "recompute"]

    def __getitem__(self, key: str) -> Condition:
        for each in self.conditions:
            if each.key == key:
                return each
        known = ", ".join(each.key for each in self.conditions)
        raise UsageError(f"[Report] expected one of {known}, got {key!r}; choose one")

    @property
    def sound(self) -> bool:
        """Whether every condition is proved: Algorithm 1 gives what a full run gives."""
        return self.strategy() == "incremental"

    def strategy(self, *, accept_tested: bool = False) -> Run:
        """The least work that keeps the operator exact.

        "incremental": all conditions hold.   "constrained": all but that messages are free of the destination; the
        in-edges of a vertex whose own row changed are all computed again.   "full": neither.

        Args:     accept_tested: take "tested, not proved" for proved.
        """
        failed = [each.key for each in self._failed(accept_tested)]
        if not failed:
            return "incremental"
        return "constrained" if failed == ["destination"] else "full"

    def _failed(self, accept_tested: bool) -> list[Condition]:
        allowed = {"proved", "tested, not proved"} if accept_tested else {"proved"}
        return [each for each in self.conditions if each.verdict not in allowed]

    def raise_if_unsound(self, run: Run = "incremental", *, accept_tested: bool = False) -> None:
        """Returns if the operator may be run in this way.

        Args:     run: "incremental", or by explicit choice "constrained" or "full" (which any operator may).
                  accept_tested: take "tested, not proved" for proved.
        Raises:   OperatorUnsound with the conditions that fail and their counterexamples.
        """
        if run not in RUNS:
            raise UsageError(f"[verify] expected a run among {', '.join(RUNS)}, got {run!r}; choose one")
        best = self.strategy(accept_tested=accept_tested)
        if RUNS.index(run) >= RUNS.index(best):
            return
        listed = "; ".join(
            f"{each.statement} is {each.verdict} ({each.counterexample or each.reason})"
            for each in self._failed(accept_tested)
        )
        raise OperatorUnsound(
            f"[verify {self.operator.name}] expected an operator sound for {run} runs, got: {listed}; "
            f'fix the functions, or choose run="{best}"'
        )

    def __str__(self) -> str:
        width = max(len(each.statement) for each in self.conditions)
        verdict = "sound" if self.sound else "not proved sound"
        lines = [f"{self.operator.name}: {verdict}, run {self.strategy()}, deletions {self.deletions}"]
        for each in self.conditions:
            lines.append(f"  {each.statement:<{width}}  {each.verdict}: {each.counterexample or each.reason}")
        return "\n".join(lines)
