"""Attention of a vertex over its own sequence: its layers, its time steps, its heads.

y[v, a] = sum over b of softmax_b(q[v, a] . k[v, b] / sqrt(d) + mask[a, b]) v[v, b]

The vertices are the batch. Where they are the sequence, every row depends on all others, and the module is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from livegnn.models import ir
from livegnn.models.pyg.constants import constant_rows
from livegnn.models.pyg.context import Import, Shaped, Unfit, refuse, to_array
from livegnn.models.pyg.dot_product import OVER_VERTICES, Steps, dot_product, mask_of
from livegnn.models.pyg.functions.registry import HANDLERS, canonical_name
from livegnn.models.pyg.layout import shaped, symbol

Local = Callable[[Any, Any], Any]  # (module, rows) -> rows


def _sequence(x: Any, batch_first: bool) -> Shaped:
    """(vertices, sequence, width). Raises: Unfit where the vertices are no batch."""
    rows = shaped(x)
    if rows.index.ndim != 2 or rows.axis != (0 if batch_first else 1) or rows.whole:
        raise Unfit(*OVER_VERTICES)
    return Shaped(rows.source, rows.index, 0)


def _back(x: Any, batch_first: bool) -> Any:
    rows = shaped(x)
    return symbol(Shaped(rows.source, rows.index, 0 if batch_first else 1))


# ---- modules


def multihead(
    module: Any,
    record: Import,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """What torch.nn.MultiheadAttention returns. Raises: Unfit."""
    if key_padding_mask is not None or module.add_zero_attn:
        raise Unfit("key_padding_mask and add_zero_attn are not read", "leave them out")
    step, heads, first = Steps(HANDLERS, record), module.num_heads, module.batch_first
    given = [_sequence(each, first) for each in (query, key, value)]
    q, k, v = (
        step("linear", symbol(x), weight, bias) for x, (weight, bias) in zip(given, _projections(module), strict=True)
    )
    if module.bias_k is not None:
        k, v = (_with_row(record, x, bias) for x, bias in ((k, module.bias_k), (v, module.bias_v)))
    q, k, v = (step("transpose", step("unflatten", x, -1, (heads, -1)), 1, 2) for x in (q, k, v))
    lengths = shaped(q).index.shape[1], shaped(k).index.shape[1]
    mask = mask_of(attn_mask, False, *lengths, hidden=True)  # is_causal is a hint; the mask says the same
    if mask is not None and mask.ndim != 2:
        raise Unfit("its attn_mask is not one number for each pair of places", "pass one of two dimensions")
    if mask is not None and mask.shape[1] < lengths[1]:
        mask = torch.nn.functional.pad(mask, (0, lengths[1] - mask.shape[1]))
    y, weights = dot_product(step, q, k, v, mask, 1 / math.sqrt(module.head_dim))
    y = step("flatten", step("transpose", y, 1, 2), 2)
    y = _back(step("linear", y, module.out_proj.weight, module.out_proj.bias), first)
    if not need_weights:
        return y, None
    return y, step("mean", weights, dim=1) if average_attn_weights else weights


def _projections(module: Any) -> list[tuple[Any, Any]]:
    weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    if module.in_proj_weight is not None:
        weights = [*module.in_proj_weight.chunk(3)]
    biases = [None] * 3 if module.in_proj_bias is None else [*module.in_proj_bias.chunk(3)]
    return [*zip(weights, biases, strict=True)]


def _with_row(record: Import, x: Any, bias: Any) -> Any:
    """A sequence with one constant place at its end."""
    rows = shaped(x)
    own = constant_rows(record, rows.source, to_array(bias))
    return Steps(HANDLERS, record)("cat", (x, symbol(Shaped(own, np.arange(own.width)[None], 0))), dim=1)


def _encoder_layer(module: Any, record: Import, local: Local, src: Any, src_mask: Any = None, **hints: Any) -> Any:
    """x + attention, x + feed-forward, with norms before or after each."""
    step = Steps(HANDLERS, record)
    if hints.get("src_key_padding_mask") is not None:
        raise Unfit("src_key_padding_mask is not read", "leave it out")
    causal = bool(hints.get("is_causal"))

    def attended(x: Any) -> Any:
        return multihead(module.self_attn, record, x, x, x, attn_mask=src_mask, is_causal=causal, need_weights=False)[0]

    def forward(x: Any) -> Any:
        h = local(module.linear1, x)
        own = isinstance(module.activation, nn.Module)
        h = local(module.activation, h) if own else step(str(canonical_name(module.activation)), h)
        return local(module.linear2, h)

    x = src
    for change, norm in ((attended, module.norm1), (forward, module.norm2)):
        x = step("add", x, change(local(norm, x))) if module.norm_first else local(norm, step("add", x, change(x)))
    return x


def _encoder(module: Any, record: Import, local: Local, src: Any, mask: Any = None, **hints: Any) -> Any:
    if hints.get("src_key_padding_mask") is not None:
        raise Unfit("src_key_padding_mask is not read", "leave it out")
    for layer in module.layers:
        src = _encoder_layer(layer, record, local, src, mask)
    return src if module.norm is None else local(module.norm, src)


OVER_SEQUENCES: dict[Any, Callable[..., Any]] = {
    nn.MultiheadAttention: lambda module, record, local, *args, **kwargs: multihead(module, record, *args, **kwargs),
    nn.TransformerEncoderLayer: _encoder_layer,
    nn.TransformerEncoder: _encoder,
}


def convert_attention(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str, local: Local
) -> Any:
    """The result of a module of OVER_SEQUENCES. local: applies a row-local module. Raises: ModelUnsupported."""
    if args and isinstance(args[0], ir.Value):
        raise refuse(where, *OVER_VERTICES)
    try:
        return OVER_SEQUENCES[type(module)](module, record, local, *args, **kwargs)
    except Unfit as error:
        raise refuse(where, error.reason, error.remedy) from error
    except TypeError as error:
        raise refuse(where, f"it is called in a way that is not supported ({error})", "see docs/models.md") from None
