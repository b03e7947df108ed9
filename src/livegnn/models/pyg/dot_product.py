"""Scaled dot products of a vertex's own rows: torch.nn.functional.scaled_dot_product_attention.

y[v, a] = sum over b of softmax_b(scale q[v, a] . k[v, b] + mask[a, b]) x[v, b]

The vertices are a dimension in front of the last two. Where they are one of these, every row depends on all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from livegnn.models.pyg.context import Import, Unfit
from livegnn.models.pyg.layout import shaped

OVER_VERTICES = (
    "its attention runs over all vertices, so one update would change every row",
    "use attention along edges, such as TransformerConv, or give it the sequence of each vertex as one batch",
)
_NEVER = -1e9  # a score that no softmax sees


@dataclass(frozen=True)
class Steps:
    """The functions of one import, by torch's names."""

    handlers: Mapping[str, Callable[..., Any]]
    record: Import

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.handlers[name](self.record, *args, **kwargs)


def dot_product(step: Steps, query: Any, key: Any, value: Any, mask: Any, scale: float) -> tuple[Any, Any]:
    """(what scaled dot products pick of the values, the weights), along the last two dimensions."""
    scores = step("mul", step("matmul", query, step("transpose", key, -2, -1)), scale)
    weights = step("softmax", scores if mask is None else step("add", scores, mask), dim=-1)
    return step("matmul", weights, value), weights


def mask_of(given: Any, causal: bool, rows: int, columns: int, *, hidden: bool) -> Any:
    """What is added to the scores; None for nothing. hidden: whether True hides, as nn.MultiheadAttention has it."""
    if given is None and not causal:
        return None
    if given is None:
        return torch.full((rows, columns), _NEVER).triu(1)
    if not isinstance(given, torch.Tensor):
        raise Unfit("its mask is computed from the rows", "pass a mask that is the same for all vertices")
    if given.dtype == torch.bool:
        return torch.zeros(given.shape).masked_fill(given if hidden else ~given, _NEVER)
    return given.clamp(min=_NEVER)


def scaled_dot_product(handlers: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The handler of scaled_dot_product_attention, by those of other functions."""

    def handler(
        record: Import,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        if dropout_p:
            raise Unfit("it is random in eval mode too", "pass dropout_p=self.dropout if self.training else 0.0")
        rows = [shaped(each) for each in (query, key, value)]
        if any(each.axis >= each.index.ndim - 1 for each in rows) or enable_gqa:
            raise Unfit(*OVER_VERTICES)
        mask = mask_of(attn_mask, is_causal, rows[0].index.shape[-2], rows[1].index.shape[-2], hidden=False)
        factor = 1 / math.sqrt(rows[0].index.shape[-1]) if scale is None else float(scale)
        return dot_product(Steps(handlers, record), query, key, value, mask, factor)[0]

    return handler
