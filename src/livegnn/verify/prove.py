"""Decides the conditions of an operator: by proof, by a counterexample that was run, or by tests, and says which."""

from __future__ import annotations

import time
import zlib

import numpy as np

from livegnn.errors import ModelError, UsageError
from livegnn.verify.conditions import AGAIN, Task, Values, distributes, tasks
from livegnn.verify.operator import Operator
from livegnn.verify.report import Condition, Counterexample, Report, Verdict
from livegnn.verify.smt import SolverAnswer, SolverQuery, load_z3, solve
from livegnn.verify.subject import Subject


def prove(operator: Operator, *, seconds: float = 4.0, tests: int = 300, seed: int = 0) -> Report:
    """The verdict on every condition under which Algorithm 1 gives what a full run gives.

    Args:     seconds: of the solver for each condition.   tests: random neighbourhoods per condition.
              seed: of the random inputs.
    Returns:  Report; `report.sound` if all conditions are proved.
    Raises:   DataMissing without z3-solver; ModelError for functions that fail, mix rows, or are not pure; UsageError
              for tests below 1.
    Exactness: proofs are about real numbers, not about floats (docs/verify.md).
    Source:   NeutronRT, Theorem 1; section V.A for the use of a solver.
    """
    if not isinstance(operator, Operator):
        raise UsageError(f"[verify] expected an Operator, got {type(operator).__name__}; wrap the functions in one")
    if tests < 1 or seconds <= 0:
        raise UsageError(f"[verify] expected tests >= 1 and seconds > 0, got {tests} and {seconds}; raise them")
    load_z3()
    subject = Subject(operator, seconds)
    found: dict[str, Condition] = {}
    for task in tasks(subject):
        found[task.key] = _decide(task, subject, seconds, tests, seed)
        if task.key == "aggregate":
            merge = _merge(found["aggregate"])
            task = distributes(subject, merge)
            found[task.key] = _decide(task, subject, seconds, tests, seed)
    undone = all(_merge(found[key]) == "add" for key in ("context", "aggregate"))
    return Report(operator, tuple(found.values()), "subtract" if undone else "recompute")


def _merge(condition: Condition) -> str:
    """How results were proved to merge: "add", "self" (as rows of the same function), or "" where they were not."""
    if condition.verdict != "proved":
        return ""
    return "self" if condition.reason == AGAIN else "add"


def _decide(task: Task, subject: Subject, seconds: float, tests: int, seed: int) -> Condition:
    if task.given:
        return Condition(task.key, task.statement, "proved", task.given)
    shown, why = "", task.lacking
    clock = _Clock(seconds)
    for proof in task.proofs:
        answers = [clock.ask(query) for query in proof.queries]
        if all(answer.verdict == "unsat" for answer in answers):
            shown = proof.shows
            break
        why = why or next((answer.reason for answer in answers if answer.reason), "")
    if not shown:
        for query in task.hunts:
            answer = clock.ask(query)
            example = _replayed(task, dict(answer.values)) if answer.verdict == "sat" else None
            if example is not None:
                reason = "the solver's counterexample was run"
                return Condition(task.key, task.statement, "refuted", reason, example)
            why = why or answer.reason
    rng = np.random.default_rng([seed, zlib.crc32(task.key.encode())])
    for _ in range(tests):
        example = _replayed(task, task.sample(rng))
        if example is not None:
            return Condition(task.key, task.statement, "refuted", "a random input is a counterexample", example)
    verdict: Verdict = "proved" if shown else "tested, not proved"
    why = why or "the solver found neither proof nor example"
    detail = shown or f"{tests} random inputs agree within {subject.tolerance:g}; {why}"
    return Condition(task.key, task.statement, verdict, detail, tests=tests, tolerance=subject.tolerance)


class _Clock:
    """Shares the seconds of a condition among its questions."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, time.monotonic() + seconds

    def ask(self, query: SolverQuery) -> SolverAnswer:
        """The solver's answer, or "unknown" when time is up."""
        left = self.end - time.monotonic()
        if left < 0.001:  # the solver counts milliseconds
            return SolverAnswer("unknown", reason=f"the solver gave up after {self.seconds:g} s")
        return solve(query, left)


def _replayed(task: Task, values: Values) -> Counterexample | None:
    try:
        return task.replay(values)
    except ModelError:  # the functions refuse these numbers; so they show nothing
        return None
