"""From output rows to predictions: what engines and what_if views share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from livegnn._native import RowProgram
from livegnn.errors import UsageError, WidthMismatch
from livegnn.models import ir
from livegnn.models.compile import compile_model

Rows: TypeAlias = NDArray[np.float32]
Head: TypeAlias = Callable[[Rows], NDArray[Any]]
_programs: WeakKeyDictionary[ir.Value, RowProgram] = WeakKeyDictionary()


def predictions(rows: Rows, head: Head | None) -> NDArray[Any]:
    """head(rows) where given; else the argmax of each row, (k,) int64, or for one column its sigmoid, (k,) float32."""
    if head is not None:
        if not callable(head):
            raise UsageError(f"[predict] expected head as a function of rows, got {head!r}; pass one, or leave it out")
        made: NDArray[Any] = np.asarray(head(rows))
        return made
    if rows.shape[1] == 1:
        z = rows[:, 0].astype(np.float64)
        e = np.exp(-np.abs(z))
        probability: NDArray[np.float32] = np.where(z >= 0, 1 / (1 + e), e / (1 + e)).astype(np.float32)
        return probability
    classes: NDArray[np.int64] = np.argmax(rows, axis=1).astype(np.int64)
    return classes


def pair_array(pairs: object, where: str = "predict_edges") -> NDArray[Any]:
    """(k, 2) ids. Raises: WidthMismatch for any other shape."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2:
        raise WidthMismatch(f"[{where}] expected pairs of shape (k, 2), got {array.shape}; pass one (src, dst) a row")
    return array


def pair_scores(src: Rows, dst: Rows, edge_head: ir.Value | None) -> NDArray[np.float32]:
    """edge_head of the two ends' rows side by side where the model has one; else their dot product, (k,) float32.

    A score has the same bits whatever pairs are given with it.
    """
    if edge_head is not None:
        return headed(edge_head, np.concatenate([src, dst], axis=1))[:, 0]
    products: NDArray[np.float64] = np.multiply(src, dst, dtype=np.float64, order="C").sum(axis=1)
    return products.astype(np.float32)


def headed(head: ir.Value, rows: Rows) -> Rows:
    """A row-local model on rows, each of which has the same bits whatever is given with it; (k, head.width) float32."""
    program = _programs.get(head)
    if program is None:
        program = _programs[head] = RowProgram(compile_model(head))
    return program.run(np.ascontiguousarray(rows, np.float32))
