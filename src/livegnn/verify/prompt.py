"""The prompt of a language model: the task, the language, and the worked examples of Table II."""

from __future__ import annotations

import re
from collections.abc import Mapping

from livegnn.verify.examples import TABLE
from livegnn.verify.expr import Float64
from livegnn.verify.operator import EDGE_INPUTS
from livegnn.verify.restricted import FUNCTIONS

_TASK = """\
Split one layer of a graph neural network into functions, so that it can be kept up to date edge by edge.
For a vertex v with in-edges (u, v):
    mlc = msg_local(...)            one row per edge, from: {inputs}
    nct = nbr_ctx(mlc)              one row per vertex: "sum", "count", "max", "min", or a function reducing over axis 0
    msg = msg_cbn(nct, mlc)         and msg_cbn_inverse(nct, msg), which gives mlc back
    a   = aggregate(msg * source_nn(h_u))    "sum" (the default), "max", "min", or a function msg -> row
    h_v = transform(h_v, a)
Leave out what is not needed. Rules that a solver will check:
    1. nbr_ctx and aggregate of a union of edges follow from those of its parts (a mean does not: count in nbr_ctx).
    2. aggregate of msg_cbn(nct, x) over edges equals msg_cbn(nct, aggregate of x).
    3. msg_cbn(nct, mlc) * f equals msg_cbn(nct, mlc * f).
    4. msg_cbn_inverse(nct, msg_cbn(nct, a)) equals a, and both have a value for every nct that can occur.
    5. msg_local does without h_v if the formula allows it.
    6. Together the functions compute the formula.
Write Python definitions only: each a def with assignments and one return, or name = "sum". Every array has two
dimensions; write sum(x, axis=1, keepdims=True). Parameters have the names above. Known functions: {functions}.
Known weights: {weights}. No imports, no loops, nothing else."""


def first_prompt(formula: str, weights: Mapping[str, Float64]) -> str:
    """The task with all worked examples, and the formula at the end."""
    shown = ", ".join(f"{name} {tuple(array.shape)}" for name, array in weights.items()) or "none"
    task = _TASK.format(inputs=", ".join(EDGE_INPUTS), functions=", ".join(sorted(FUNCTIONS)), weights=shown)
    worked = [f"Formula: {each.formula}\nAnswer ({each.run}):\n{_fenced(each.source)}" for each in TABLE]
    return "\n\n".join([task, *worked, f"Formula: {formula.strip()}\nAnswer:"])


def next_prompt(first: str, answer: str, problem: str) -> str:
    """The first prompt again, with an answer that failed and why."""
    return f"{first}\n{_fenced(answer)}\nThat answer fails: {problem}\nA better answer:"


def _fenced(source: str) -> str:
    return f"```python\n{source.strip()}\n```"


def answer_text(answer: str) -> str:
    """The definitions of an answer: its last fenced block, or all of it."""
    blocks = re.findall(r"```[a-zA-Z]*\n(.*?)```", answer, re.DOTALL)
    return (blocks[-1] if blocks else answer).strip() + "\n"
