"""Words for ids, versions and arrays that every part of the package shares."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["AnyArray", "BoolArray", "EdgeId", "Float32Array", "Float64Array", "Int64Array", "Version", "VertexId"]

VertexId: TypeAlias = int  # dense inside, from 0; users may bring their own int64 or string ids
EdgeId: TypeAlias = int  # counts all additions in order; never reused
Version: TypeAlias = int  # number of batches applied

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
AnyArray: TypeAlias = npt.NDArray[Any]
