"""Parts of rows that a forward writes: `h[:, :8] = a`, `states[k] = h`, `h[0].add_(x)`.

Only a recorded run can write, since torch.fx refuses it. What is written to a view changes everything that shares its
memory, so the symbols of all tensors there follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from livegnn.models import ir
from livegnn.models.pyg.context import Flat, Import, Shaped, Unfit, is_symbol, to_array
from livegnn.models.pyg.functions.operands import constant_columns
from livegnn.models.pyg.functions.rows import is_truth, where
from livegnn.models.pyg.layout import shaped, symbol
from livegnn.models.pyg.shapes import Probe, elementwise

chosen = elementwise("where", where)


def assigned(record: Import, input: Any, index: Any, value: Any) -> Any:
    """What rows of any shape are after input[index] = value. Raises: Unfit."""
    if not isinstance(input, (ir.Value, Flat, Shaped)):
        raise Unfit("it writes rows into a tensor that has no row for every vertex", "make it with one row per vertex")
    x = shaped(input)
    if isinstance(index, (ir.Value, Flat, Shaped)):
        if not is_truth(shaped(index).source):
            raise Unfit("it changes rows that are not chosen by a comparison", "use torch.where on columns")
        return chosen(record, index, value, input)
    if is_symbol(value):
        probe = Probe([x, shaped(value)])
        written, given = probe.of(input), probe.of(value)
    else:
        numbers = to_array(torch.as_tensor(value)).reshape(-1)
        constants = constant_columns(x.source, numbers, record)
        probe = Probe([x, Shaped(constants, np.arange(len(numbers)))])
        written = probe.of(input)
        given = -1 - torch.arange(len(numbers)).reshape(torch.as_tensor(value).shape)
    try:
        written[probe.of(index)] = given
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise Unfit(f"it does not fit rows of shape {x.index.shape} ({error})") from error
    at = written.numpy()
    vertices = np.arange(probe.rows).reshape([-1, *[1] * (at.ndim - x.axis - 1)])
    at = np.where(at < 0, vertices * probe.source.width + x.source.width - 1 - at, at)
    found = probe.rows_along(at, x.axis)
    if found is None:
        raise Unfit("it writes rows that are not chosen by a comparison", "write columns, or use torch.where")
    return symbol(found)


def seen_through(known: tuple[torch.Tensor, Any], other: tuple[torch.Tensor, Any]) -> Any:
    """The symbol of a tensor after the memory that it shares with `known` was written; None where none is shared.

    known, other: a tensor and its symbol each, the first one as it is by now.
    """
    (tensor, written), (seen, before) = known, other
    if not all(isinstance(each, (ir.Value, Flat, Shaped)) for each in (written, before)):
        return None
    if tensor.untyped_storage().data_ptr() != seen.untyped_storage().data_ptr():
        return None
    new, old = shaped(written), shaped(before)
    steps = tensor.stride()[new.axis], seen.stride()[old.axis]
    from_new = dict(zip(_first_row(tensor, new.axis).tolist(), new.index.ravel().tolist(), strict=True))
    at = _first_row(seen, old.axis)
    if steps[0] != steps[1] or not any(each in from_new for each in at.tolist()):
        return None
    joined = ir.Concat((old.source, new.source))
    columns = [
        old.source.width + from_new[place] if place in from_new else column
        for place, column in zip(at.tolist(), old.index.ravel().tolist(), strict=True)
    ]
    return symbol(Shaped(joined, np.array(columns).reshape(old.index.shape), old.axis, old.whole))


def _first_row(tensor: torch.Tensor, axis: int) -> Any:
    """Where the numbers of the first vertex lie in memory."""
    at = np.array(tensor.storage_offset())
    for extent, step in zip(tensor.shape, tensor.stride(), strict=True):
        at = at[..., None] + step * np.arange(extent)
    return at.take(0, axis).ravel()
