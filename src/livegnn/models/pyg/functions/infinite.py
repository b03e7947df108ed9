"""Entries of rows that are infinite or have no value: there are none in the engine, where a division by 0 gives 0.

So a forward may ask for them and write 0 there, which changes nothing. Whatever else it does with the answer would
differ from the module, and is refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Import, Unfit, is_symbol, refuse
from livegnn.models.pyg.functions.operands import constant_columns, number_of, value_of

_REASON = "it writes something else than 0 where a row is infinite or has no value, and there the engine has 0"
_REMEDY = "write 0 there, or add a small number to what divides"


def is_infinite(x: Any) -> bool:
    """Whether a constant is infinite or no number."""
    number = None if is_symbol(x) else number_of(x)
    return number is not None and not math.isfinite(number)


def never(record: Import, input: Any) -> ir.Value:
    """Which entries are infinite or have no value: none."""
    x = value_of(input)
    nowhere = constant_columns(x, np.zeros(x.width), record)
    record.nowhere[id(nowhere)] = nowhere
    return nowhere


def negated(x: ir.Value) -> ir.Value:
    """not x, of columns of 0 and 1."""
    return ir.Affine(x, -np.ones(x.width, np.float32), np.ones(x.width, np.float32))


def without_never(record: Import, x: ir.Value) -> ir.Value | bool:
    """A truth without its questions for infinite entries; True or False if nothing else is left; x if it had none."""
    if id(x) in record.nowhere:
        return False
    if isinstance(x, ir.Affine) and bool((x.scale == -1).all() and (x.shift == 1).all()):
        inner = without_never(record, x.x)
        return not inner if isinstance(inner, bool) else x if inner is x.x else negated(inner)
    decides = isinstance(x, ir.Maximum)  # x is an "or"; else an "and"
    if not isinstance(x, ir.Maximum) and not (isinstance(x, ir.Elementwise) and x.kind == "minimum"):
        return x
    found = [without_never(record, each) for each in x.xs]
    if all(one is other for one, other in zip(found, x.xs, strict=True)):
        return x
    left = tuple(each for each in found if not isinstance(each, bool))
    if decides in found or not left:
        return decides if decides in found else not decides
    if len(left) == 1:
        return left[0]
    return ir.Maximum(left) if decides else ir.Elementwise("minimum", left)


def chosen(record: Import, condition: ir.Value, input: Any, other: Any) -> ir.Value | bool:
    """What is left of a condition that picks `input`, else `other`. Raises: Unfit if 0 is not what is written."""
    left = without_never(record, condition)
    if left is condition:
        return condition
    written = other if left is True or isinstance(condition, ir.Affine) else input
    if not _is_zero(written):
        raise Unfit(_REASON, _REMEDY)
    return left


def finite(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    """torch.nan_to_num of rows. Raises: Unfit for other numbers than 0."""
    if any(each is not None and number_of(each) != 0 for each in (nan, posinf, neginf)):
        raise Unfit(_REASON, _REMEDY)
    return input


def _is_zero(x: Any) -> bool:
    if isinstance(x, ir.Linear):
        return not x.weight.any() and (x.bias is None or not x.bias.any())
    return not x.any() if isinstance(x, torch.Tensor) else not is_symbol(x) and number_of(x) == 0


def refuse_questions(result: Any, record: Import, where: str) -> None:
    """Refuses results that still depend on which entries are infinite. Raises: ModelUnsupported."""
    if not record.nowhere:
        return
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (tuple, list)) else None
    if parts is not None:
        for each in parts:
            refuse_questions(each, record, where)
        return
    value = getattr(result, "source", getattr(result, "value", result))
    if isinstance(value, ir.Value) and any(id(each) in record.nowhere for each in ir.walk(value)):
        raise refuse(where, "its result depends on which entries are infinite or have no value", _REMEDY)
