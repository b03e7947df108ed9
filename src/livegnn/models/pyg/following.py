"""Forwards that compute with edge_index: the modules whose code does are followed as own layers are (own/).

Functions between layers know edge_index as a whole, its ends, and rows at these. Where a forward is refused with more,
it is read again: the modules that computed with edges go through one run each; if these hand on something that only
edges have, such as edges of their own making, the whole module does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from livegnn.errors import ModelUnsupported
from livegnn.models.pyg.context import Import, first_refusal
from livegnn.models.pyg.trace import read_forward

_WHOLE = ""  # the name of the module that is imported


def read_following(
    module: nn.Module, call: Callable[..., Any], symbols: tuple[Any, ...], examples: tuple[Any, ...], record: Import
) -> Any:
    """The symbol that the forward returns; arguments as read_forward's. Raises: ModelUnsupported."""
    found: Any = None
    while True:
        record.suspects.clear()
        try:
            result = read_forward(module, call, symbols, examples, record, _WHOLE)
        except ModelUnsupported as error:
            record.unfollowed = record.unfollowed or error
            if _follow_more(record):
                continue
            if isinstance(found, (tuple, list, dict)):
                return found  # what is refused of several results may not be wanted
            if error.__cause__ is None:
                raise
            raise record.unfollowed from error  # a run that fails says less than what the reading found
        refused = first_refusal(result)
        record.unfollowed = record.unfollowed or (None if refused is None else refused.error)
        if refused is None or not _follow_more(record):
            return result
        found = result if found is None else found


def _follow_more(record: Import) -> bool:
    """Notes which modules to follow in the next reading. Returns: whether there are more than before."""
    more = set(record.suspects) - record.followed
    if _WHOLE in record.followed or not (more or record.followed):
        return False
    record.followed |= more or {_WHOLE}
    return True
