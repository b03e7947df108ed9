"""A swap of a TemporalEngine as a Switch, so that a log can hold it: tensors of any type, bit for bit.

data   = {"tensors": {name: [dtype, shape]}, "memory": whether it is there, "about": what the engine's maker says of it}
arrays = by the same names: each tensor's bytes, filled up to whole float32 numbers
names  = "weights." and "memory." and the name in state_dict() or EventMemory.state()
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.errors import StoredStateInvalid
from livegnn.graph.consumers import Switch
from livegnn.optional import need
from livegnn.types import Float32Array

if TYPE_CHECKING:
    import torch

KIND = "temporal_swap"
_DTYPES = ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
_UNIT = 4  # bytes of a float32


def switch_of(
    name: str,
    about: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    memory: Mapping[str, torch.Tensor] | None,
) -> Switch:
    """A swap to these weights; memory: the state that the engine has then, None: made from the graph's edges."""
    tensors = {f"weights.{key}": value for key, value in weights.items()}
    tensors |= {f"memory.{key}": value for key, value in (memory or {}).items()}
    kinds = {key: [str(value.dtype).removeprefix("torch."), list(value.shape)] for key, value in tensors.items()}
    data = {"tensors": kinds, "memory": memory is not None, "about": dict(about)}
    return Switch(name, KIND, data, {key: _packed(value) for key, value in tensors.items()})


def switched(switch: Switch) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor] | None]:
    """Weights and memory of a switch. Raises: StoredStateInvalid."""
    try:
        tensors = {
            key: _unpacked(switch.arrays[key], dtype, shape) for key, (dtype, shape) in switch.data["tensors"].items()
        }
        has_memory = switch.data["memory"]
    except (KeyError, TypeError, ValueError, RuntimeError) as cause:
        raise StoredStateInvalid(
            f"[swap] expected a swap of a temporal engine, got another ({cause}); use the version that wrote it"
        ) from cause
    return _part(tensors, "weights."), _part(tensors, "memory.") if has_memory else None


def _packed(tensor: torch.Tensor) -> Float32Array:
    pytorch: Any = need("torch", "train")
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content = flat.view(pytorch.uint8).numpy().tobytes() if flat.numel() else b""
    return np.frombuffer(content + bytes(-len(content) % _UNIT), np.float32)


def _unpacked(array: Float32Array, dtype: str, shape: list[int]) -> torch.Tensor:
    pytorch: Any = need("torch", "train")
    if dtype not in _DTYPES:
        raise ValueError(f"a tensor of {dtype}")
    kind, count = getattr(pytorch, dtype), math.prod(shape)
    if not count:
        empty: torch.Tensor = pytorch.empty(shape, dtype=kind)
        return empty
    content = bytearray(array.tobytes())
    found: torch.Tensor = pytorch.frombuffer(content, dtype=kind, count=count).reshape(shape).clone()
    return found


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
