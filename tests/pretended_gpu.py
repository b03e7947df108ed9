"""A GPU for machines without one: tensors that say they are on device meta, have numbers, and mix with none of the CPU.

What torch would refuse on a GPU is refused here: one operation on tensors of both devices, but for copies, indices and
tensors without dimensions; and numpy() of what was not brought to the CPU. Numbers are those of the CPU, bit for bit.
Streams, pinned memory and what runs late are a real GPU's alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRETENDED = "meta"
_aten = torch.ops.aten
_COPIES = {_aten._to_copy.default, _aten.copy_.default}
_INDEXED = {_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default}


class Pretended(torch.Tensor):
    """On the pretended GPU; inner: the tensor of the CPU with its numbers. torch.save() writes that one."""

    inner: torch.Tensor
    is_meta = property(lambda self: False)

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Pretended":
        form = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        found = torch.Tensor._make_wrapper_subclass(cls, inner.size(), device=PRETENDED, **form)
        found.inner = inner
        return found

    def __repr__(self) -> str:
        return f"Pretended({self.inner!r})"

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.inner.__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, call, types, args=(), kwargs=None):
        return _called(call, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """While it is entered, this thread has one."""

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        return _called(call, args, kwargs or {})


def _called(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [*_tensors((*args, *kwargs.values()))]
    is_there = any(isinstance(each, Pretended) for each in tensors)
    _refuse_mixed(call, args, tensors, is_there)
    asked = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
    if asked == PRETENDED:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    out = call(*_mapped(_inner, args), **{name: _mapped(_inner, each) for name, each in kwargs.items()})
    if call._schema.name.endswith("_") and isinstance(args[0], Pretended):  # in place
        return args[0]
    if asked != PRETENDED and (asked is not None or not is_there):
        return out
    return _mapped(Pretended, out)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Of the arguments or results of an operation: tensors, numbers, and lists and tuples of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    return type(value)([_mapped(function, each) for each in value]) if isinstance(value, list | tuple) else value


def _inner(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.inner if isinstance(tensor, Pretended) else tensor


def _refuse_mixed(call: Any, args: tuple[Any, ...], tensors: list[torch.Tensor], is_there: bool) -> None:
    here = [each for each in tensors if not isinstance(each, Pretended) and each.dim() > 0]
    if not is_there or not here or call in _COPIES:
        return
    by_index = call in _INDEXED and isinstance(args[0], Pretended)
    if by_index and all(any(each is index for index in args[1]) for each in here):
        return
    shapes = [(type(each).__name__, tuple(each.shape)) for each in tensors]
    raise RuntimeError(f"expected all tensors on one device in {call}, got {shapes}")
