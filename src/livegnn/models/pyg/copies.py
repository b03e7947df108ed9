"""Private copies of a module, and what a run leaves behind in one.

An import reads and runs a copy; the user's module stays as it is. A forward may set attributes: a trace would leave
symbols there, and a run the tensors of its graph. So every reading and every run puts the attributes back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_TORCH_OWN = ("_parameters", "_buffers", "_modules")


def private_copy(module: nn.Module) -> nn.Module:
    """A deep copy; attributes that cannot be copied (a lock, a logger, a signature) are shared with the original.

    Raises: what copying raises, if parameters, buffers or layers cannot be copied.
    """
    try:
        return copy.deepcopy(module)
    except Exception:
        return copy.deepcopy(module, _shared(module))


def _shared(module: nn.Module) -> dict[int, Any]:
    """For deepcopy's memo: the attributes of all layers that cannot be copied, as they are."""
    shared: dict[int, Any] = {}
    for layer in module.modules():
        for name, value in vars(layer).items():
            if name in _TORCH_OWN or isinstance(value, nn.Module):
                continue
            try:
                copy.deepcopy(value)
            except Exception:
                shared[id(value)] = value
    return shared


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Puts back what the block sets, replaces or deletes among the attributes of all layers."""
    before = [(layer, dict(vars(layer))) for layer in module.modules()]
    try:
        yield
    finally:
        for layer, attributes in before:
            vars(layer).clear()
            vars(layer).update(attributes)


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """Every attribute of every layer by its qualified name."""
    found: dict[str, Any] = {}
    for path, layer in module.named_modules():
        found |= {f"{path}.{name}" if path else name: value for name, value in vars(layer).items()}
    return found


def forget_cached(module: nn.Module) -> None:
    """Sets cached=False on every layer that has it True, and drops what those of PyG have kept (_cached_*)."""
    for layer in module.modules():
        attributes = vars(layer)
        if attributes.get("cached") is True:
            attributes["cached"] = False
        attributes.update({name: None for name in attributes if name.startswith("_cached_")})
