"""A layer written as one formula, and what it computes for one vertex: the truth that a decomposition is held against.

The language is that of `restricted`, over the in-edges (u, v) of one vertex v:

    h_u, weight, edge_attr, edge_type, degree_u     one row per edge
    h_v, degree_v                                   one row; degree_v is the number of in-edges
    sum_u(x) mean_u(x) max_u(x) min_u(x) count_u()  over the edges
    softmax_u(x)                                    exp(x) / sum_u(exp(x))
    share_u(x)                                      x / sum_u(x), 0 where that sum is 0

    relu(sum_u(softmax_u(leaky_relu(h_v @ D + h_u @ S)) * (h_u @ W)))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.errors import ModelError, ModelUnsupported
from livegnn.verify.expr import Float64
from livegnn.verify.restricted import FUNCTIONS, evaluate, parse_expression

EDGE_NAMES = ("h_u", "weight", "edge_attr", "edge_type", "degree_u")
VERTEX_NAMES = ("h_v", "degree_v")
REDUCTIONS = ("sum_u", "mean_u", "max_u", "min_u")
SHARES = ("softmax_u", "share_u")
RESERVED = {*EDGE_NAMES, *VERTEX_NAMES, "a", "mlc", "nct", "msg", "np"}


def _over_edges(count: int) -> dict[str, Callable[..., Any]]:
    def rows(x: Any) -> Any:
        return np.broadcast_to(x, (count, x.shape[1])) if np.ndim(x) == 2 else np.full((count, 1), float(x))

    def reduction(name: str) -> Callable[..., Any]:
        return lambda x: getattr(rows(x), name.removesuffix("_u"))(axis=0, keepdims=True)

    def share(x: Any) -> Any:
        total = rows(x).sum(axis=0, keepdims=True)
        return np.where(total == 0, 0.0, rows(x) / np.where(total == 0, 1.0, total))

    return {
        **{name: reduction(name) for name in REDUCTIONS},
        "count_u": lambda: np.full((1, 1), float(count)),
        "softmax_u": lambda x: np.exp(rows(x)) / np.exp(rows(x)).sum(axis=0, keepdims=True),
        "share_u": share,
    }


def called(part: ast.AST) -> str:
    """The name of the function that a call is of; "" for anything else."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
        return part.func.id
    return ""


def names_in(part: ast.AST) -> set[str]:
    """Names of the values (not of the functions) that an expression uses; count_u() counts as degree_v."""
    functions = {id(each.func) for each in ast.walk(part) if isinstance(each, ast.Call)}
    found = {each.id for each in ast.walk(part) if isinstance(each, ast.Name) and id(each) not in functions}
    found -= {"np"}
    return found | ({"degree_v"} if any(called(each) == "count_u" for each in ast.walk(part)) else set())


@dataclass(frozen=True, eq=False)
class Formula:
    """A formula with the weights that it names.

    Raises: ModelUnsupported for what is not in the language; ModelError for weights that are missing.
    """

    text: str
    weights: Mapping[str, Float64]

    def __post_init__(self) -> None:
        taken = sorted(set(self.weights) & RESERVED)
        if taken:
            raise ModelError(f"[propose] expected weights of other names, got {', '.join(taken)}; rename them")
        used = names_in(self.tree)
        missing = sorted(used - set(EDGE_NAMES) - set(VERTEX_NAMES) - set(self.weights))
        if missing:
            raise ModelError(
                f"[propose] expected a weight for every name of the formula, got none for {', '.join(missing)}; "
                "pass params={name: array}"
            )
        known = {*FUNCTIONS, *_over_edges(1)}
        unknown = {called(each) for each in ast.walk(self.tree) if called(each)} - known
        if unknown:
            raise ModelUnsupported(
                f"[propose] expected calls of {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}; "
                "see docs/verify.md"
            )

    @property
    def tree(self) -> ast.expr:
        """The formula, parsed."""
        return parse_expression(self.text)

    def value(self, edges: Mapping[str, Float64]) -> Float64:
        """The row of a vertex with these in-edges.

        Args:     edges: name -> (k, w) for every name of EDGE_NAMES that is used, and h_v (k, w) or (1, w), its first
                      row being v's.
        Returns:  (1, w).
        """
        count = len(edges["h_u"])
        names = {**self.weights, **edges, "h_v": edges["h_v"][:1], "degree_v": np.full((1, 1), float(count))}
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(evaluate(self.tree, names, {**FUNCTIONS, **_over_edges(count)}), np.float64)
        except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise ModelError(
                f"[propose] expected a formula that works on rows, got {type(error).__name__}: {error}; "
                "check the widths of its weights"
            ) from error
        if result.ndim != 2 or len(result) != 1:
            raise ModelError(
                f"[propose] expected a formula that gives one row per vertex, got shape {result.shape}; "
                "reduce over the edges: sum_u(...)"
            )
        return result
