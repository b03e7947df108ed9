"""Refuses forwards that keep something from one call for the next: their output is no function of the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from livegnn.models.pyg.check import Columns, example
from livegnn.models.pyg.context import refuse, refuse_cached
from livegnn.models.pyg.copies import Contents, unchanged
from livegnn.models.pyg.signature import Signature

_CALLS = 4  # with the second graph, for what begins after some


def refuse_state(module: nn.Module, signature: Signature, columns: Columns) -> None:
    """Runs the module on one graph after another. Raises: ModelUnsupported if the first run shows in the second."""
    first, second = (example(columns, seed) for seed in (98, 99))
    with unchanged(module):
        before = Contents(module)
        if _result(module, signature, first) is None:
            return
        kept = before.changed()
        if not kept:
            return
        stale = [_result(module, signature, second) for _ in range(_CALLS)]
        before.disturb()
        far = _result(module, signature, second)
    fresh, again = (_afresh(module, signature, second) for _ in range(2))
    if fresh is None or not _same(fresh, again):  # none of its runs, or random
        return
    if all(_same(fresh, each) for each in stale) and (far is None or _same(fresh, far)):  # never read
        return
    for path, layer in module.named_modules():
        if getattr(layer, "cached", False) is True:
            raise refuse_cached(f"{path} ({type(layer).__name__})" if path else type(layer).__name__)
    where, what = f"{type(module).__name__}.forward", ", ".join(kept)
    if any(name in dict(module.named_parameters()) for name in kept):
        advice = "compute what it needs in a tensor of its own, or write the parameter once, before the import"
        raise refuse(where, f"it writes to {what} in each call", advice)
    raise refuse(where, f"it keeps {what} from one call for the next", "compute it anew in each call, without a cache")


def _afresh(module: nn.Module, signature: Signature, given: tuple[Any, ...]) -> Any:
    with unchanged(module):
        return _result(module, signature, given)


def _result(module: nn.Module, signature: Signature, given: tuple[Any, ...]) -> Any:
    """What the module returns; None if it fails. Attributes that it sets stay."""
    try:
        with torch.no_grad():
            return signature.run(module, *given)
    except Exception:  # what it kept does not fit the graph, or reading it will say what is wrong
        return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        fits = isinstance(other, torch.Tensor) and one.shape == other.shape and one.dtype == other.dtype
        return fits and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, dict):
        return isinstance(other, dict) and all(_same(each, other.get(key)) for key, each in one.items())
    if isinstance(one, tuple | list):
        fits = isinstance(other, tuple | list) and len(one) == len(other)
        return fits and all(_same(*pair) for pair in zip(one, other, strict=True))
    return other is not None  # nothing to compare; None is a failure
