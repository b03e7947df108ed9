"""Private copies of a module, and what a run leaves behind in one.

An import reads and runs a copy; the user's module stays as it is. A forward may set attributes, add to lists, or write
to parameters and buffers: a trace would leave symbols there, and a run the tensors of its graph. So every reading and
every run puts all of it back.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_TORCH_OWN = ("_parameters", "_buffers", "_modules")
_HOOKS = frozenset(vars(nn.Module())) - {*_TORCH_OWN}  # and what else torch.nn itself keeps: no state of the user's
_CONTAINERS = (dict, list, set, deque)
_PLAIN = (int, float, str, type(None))  # most of what there is
_MOST = 10_000  # entries of a list or dict that are looked into
_FAR = 999_983  # a prime, so that counters by any period stand elsewhere


def private_copy(module: nn.Module) -> nn.Module:
    """A deep copy; attributes that cannot be copied (a lock, a logger, a signature) are shared with the original.

    Raises: what copying raises, if parameters, buffers or layers cannot be copied.
    """
    try:
        return copy.deepcopy(module, _empty(module))
    except Exception:
        return copy.deepcopy(module, _empty(module) | _shared(module))


def _empty(module: nn.Module) -> dict[int, Any]:
    """For deepcopy's memo: a copy of each OrderedDict without entries. A layer has dozens, for hooks, and they would
    take a third of its copy.
    """
    hooks = (each for layer in module.modules() for each in vars(layer).values())
    return {id(each): OrderedDict() for each in hooks if type(each) is OrderedDict and not each}


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


class Contents:
    """What the layers of a module hold: attributes, what is in their lists, dicts and sets, and the numbers of tensors.

    Cost: a copy of every parameter and buffer.
    """

    def __init__(self, module: nn.Module) -> None:
        self._attributes = [(path, layer, dict(vars(layer))) for path, layer in module.named_modules()]
        self._containers: dict[int, tuple[str, Any, Any]] = {}  # by id: name, container, what is in it
        self._tensors: dict[int, tuple[str, Any, Any, Any]] = {}  # by id: name, tensor, its storage, its numbers
        with torch._C.DisableTorchFunction():
            for path, _, attributes in self._attributes:
                for name, value in attributes.items():
                    if name not in _HOOKS and not isinstance(value, _PLAIN):
                        self._note(path if name in _TORCH_OWN else _joined(path, name), value)

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors and value.layout == torch.strided and not value.is_meta:
                self._tensors[id(value)] = name, value, value.data, value.detach().clone()
            return
        if isinstance(value, _CONTAINERS):
            if id(value) in self._containers:  # shared, or in itself
                return
            self._containers[id(value)] = name, value, _listed(value)
        if not isinstance(value, (*_CONTAINERS, tuple)) or len(value) > _MOST:
            return
        inner = value.items() if isinstance(value, dict) else ((None, each) for each in value)
        for key, each in inner:
            if isinstance(each, _PLAIN):
                continue
            owned = isinstance(key, str) and isinstance(each, torch.Tensor)
            self._note(_joined(name, key) if owned else name, each)

    def changed(self) -> list[str]:
        """The qualified names of what is not as it was."""
        found = dict.fromkeys(
            _joined(path, name)
            for path, layer, attributes in self._attributes
            for name, value in vars(layer).items()
            if name not in attributes or attributes[name] is not value
        )
        for name, container, kept in self._containers.values():
            if not _same_items(container, kept):
                keys = container if isinstance(container, dict) else ()
                moved = [_joined(name, key) for key in keys if key not in kept or kept[key] is not container[key]]
                found |= dict.fromkeys(moved if name in self._paths() and moved else [name])
        with torch._C.DisableTorchFunction():
            found |= {name: None for name, tensor, _, kept in self._tensors.values() if not _same_numbers(tensor, kept)}
        return list(found)

    def disturb(self) -> None:
        """Moves what is not as it was further, as many more calls might: numbers, tensors but parameters, lengths."""
        for _, layer, attributes in self._attributes:
            for name, value in [*vars(layer).items()]:
                if attributes.get(name) is not value:
                    vars(layer)[name] = _farther(value)
        for _, container, kept in self._containers.values():
            if not _same_items(container, kept):
                _disturb_items(container, kept)
        for _, tensor, _, kept in self._tensors.values():
            if not isinstance(tensor, nn.Parameter) and not _same_numbers(tensor, kept) and tensor.dtype != torch.bool:
                tensor.data = tensor.data + _FAR

    def restore(self) -> None:
        """Puts all of it back."""
        for _, layer, attributes in self._attributes:
            vars(layer).clear()
            vars(layer).update(attributes)
        for _, container, kept in self._containers.values():
            if not _same_items(container, kept):
                _refill(container, kept)
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for _, tensor, storage, kept in self._tensors.values():
                if not _same_numbers(tensor, kept) or tensor.data_ptr() != storage.data_ptr():
                    tensor.data = storage
                    if not _same_numbers(storage, kept):
                        storage.copy_(kept)

    def _paths(self) -> set[str]:
        return {path for path, _, _ in self._attributes}


def _farther(value: Any) -> Any:
    """A number or a tensor as it might be after many more calls; all else as it is."""
    if isinstance(value, torch.Tensor):
        return value + _FAR if value.dtype != torch.bool else ~value
    return value + _FAR if type(value) in (int, float) else value


def _disturb_items(container: Any, kept: Any) -> None:
    """The same of what a container holds, and more of it if it has grown or shrunk."""
    moves = len(container) != len(kept)
    if isinstance(container, (list, deque)):
        for place, each in enumerate([*container]):
            if place >= len(kept) or kept[place] is not each:
                container[place] = _farther(each)
        container.extend([*container] * 20 if moves else ())
        return
    for key, value in [*container.items()] if isinstance(container, dict) else ():
        if kept.get(key) is not value:
            container[key] = _farther(value)
    more = [(_FAR, i) for i in range(20 * len(container) if moves else 0)]
    if isinstance(container, dict):
        dict.update(container, dict.fromkeys(more, next(reversed(container.values()), None)))  # a Counter's adds
    else:
        container.update(more)


def _refill(container: Any, kept: Any) -> None:
    container.clear()
    if isinstance(container, dict):
        dict.update(container, kept)
    else:
        container.extend(kept) if isinstance(container, (list, deque)) else container.update(kept)


def _joined(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _listed(container: Any) -> Any:
    """What is in it now: plain, as it is compared and put back."""
    if isinstance(container, dict):
        return dict(container.items())
    return {*container} if isinstance(container, set) else [*container]


def _same_items(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(key in other and other[key] is value for key, value in one.items())
    return one == other if isinstance(one, set) else all(a is b for a, b in zip(one, other, strict=True))


def _same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or (one.is_floating_point() and torch.equal(one.nan_to_num(), other.nan_to_num()))


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Puts back what the block changes in the layers of a module."""
    before = Contents(module)
    try:
        yield
    finally:
        before.restore()


def forget_cached(module: nn.Module) -> None:
    """Sets cached=False on every layer that has it True, and drops what those of PyG have kept (_cached_*)."""
    for layer in module.modules():
        attributes = vars(layer)
        if attributes.get("cached") is True:
            attributes["cached"] = False
        attributes.update({name: None for name in attributes if name.startswith("_cached_")})
