"""Features in 16 bits: arrays and tensors of such numbers as they come in, and the dtype that a graph stores.

A dtype is known by its name, in a tensor as in an array: NumPy has no bfloat16 of its own, `ml_dtypes` has. Numbers are
moved as bits. torch is not imported: a caller with a tensor has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from livegnn.errors import ValueInvalid, WidthMismatch
from livegnn.graph import checks
from livegnn.types import AnyArray, BoolArray, Float32Array

FEATURE_DTYPES = ("float32", "float16", "bfloat16")  # a saved graph names one by its place
_EXPONENT = {"float16": 0x7C00, "bfloat16": 0x7F80}  # all of these bits: infinity or NaN
_RANGE = {"float16": 65520.0, "bfloat16": float.fromhex("0x1.ffp127")}  # from here on, rounding gives infinity

UInt16Array = npt.NDArray[np.uint16]


class GivenRows(NamedTuple):
    """rows: (k, F) float32, or the bits of a dtype of 16 bits as uint16.  dtype: its name."""

    rows: AnyArray
    dtype: str


def check_dtype(where: str, wanted: object) -> str | None:
    """The argument feature_dtype: a name, or NumPy's or torch's type of that name. Raises: ValueInvalid."""
    if wanted is None:
        return None
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted).removeprefix("torch.")
    if name in FEATURE_DTYPES:
        return name
    raise ValueInvalid(
        f'[{where}] expected feature_dtype "float32", "float16" or "bfloat16", got {wanted!r}; name one, or leave it '
        "out to keep the features' own"
    )


def stored_dtype(place: int) -> str:
    """The dtype that a saved graph names. Raises: ValueError."""
    if 0 <= place < len(FEATURE_DTYPES):
        return FEATURE_DTYPES[place]
    raise ValueError(f"a feature dtype {place}")


def widened(where: str, name: str, values: object) -> object:
    """Numbers in 16 bits as float32, exactly; whatever else as it is."""
    found = _bits(where, name, values)
    return values if found is None else _wide(*found)


def given_rows(where: str, name: str, values: object) -> GivenRows:
    """Features as they were given, (k, F), every value finite.

    Raises:  DtypeInvalid, WidthMismatch; ValueInvalid, naming row, column and value.
    """
    found = _bits(where, name, values)
    if found is None:
        return GivenRows(checks.float_array(where, name, values, 2), "float32")
    bits, dtype = found
    if bits.ndim != 2:
        raise WidthMismatch(f"[{where}] expected {name} of shape (k, width), got {bits.shape}; reshape it")
    bad = (bits & _EXPONENT[dtype]) == _EXPONENT[dtype]
    if bad.any():
        row, column = _first(bad)
        got = f"{_wide(bits[row], dtype)[column]} at row {row}, column {column}"
        raise ValueInvalid(f"[{where}] expected {name} finite, got {got}; drop or fix the row")
    return GivenRows(np.ascontiguousarray(bits), dtype)


def chosen(wanted: str | None, given: Sequence[GivenRows]) -> str:
    """The dtype to store: the one asked for, else that of all rows, else float32, which holds the others."""
    if wanted is not None:
        return wanted
    dtypes = {each.dtype for each in given if each.rows.shape[1]}
    return dtypes.pop() if len(dtypes) == 1 else "float32"


def as_stored(where: str, name: str, given: GivenRows, dtype: str) -> AnyArray:
    """Rows that a store of this dtype takes: its own bits, or float32 that it can round.

    Raises:  ValueInvalid for a value beyond its range, naming row, column and value.
    """
    if given.dtype == dtype:
        return given.rows
    rows = given.rows if given.dtype == "float32" else _wide(given.rows, given.dtype)
    if dtype != "float32":
        bad = np.abs(rows) >= _RANGE[dtype]
        if bad.any():
            row, column = _first(bad)
            raise ValueInvalid(
                f"[{where}] expected {name} within {dtype}, got {rows[row, column]} at row {row}, column {column}; "
                "scale them down, or choose another feature_dtype"
            )
    return rows


def joined(parts: Sequence[AnyArray], dtype: str) -> list[AnyArray]:
    """What as_stored() gave for several kinds of vertex, all in one form: bits, or float32 where some are."""
    if all(part.dtype == np.uint16 for part in parts):
        return list(parts)
    return [_wide(part, dtype) if part.dtype == np.uint16 else part for part in parts]


def _bits(where: str, name: str, values: object) -> tuple[UInt16Array, str] | None:
    """The bits of numbers in 16 bits and their dtype's name; None for other values."""
    dtype = str(getattr(values, "dtype", ""))
    if dtype == "torch.bfloat16":
        tensor: Any = values
        values = tensor.contiguous().view(tensor.new_zeros(0).short().dtype)
        return checks.as_array(where, name, values).view(np.uint16), "bfloat16"
    kind = dtype.removeprefix("torch.")
    if kind not in _EXPONENT:
        return None
    array = np.ascontiguousarray(checks.as_array(where, name, values))
    return array.view(np.uint16), kind


def first_unfit(row: Float32Array, dtype: str) -> int | None:
    """The column of a row's first value that the dtype cannot hold."""
    bad = np.abs(row) >= _RANGE[dtype] if dtype in _RANGE else np.zeros(0, np.bool_)
    return int(np.argmax(bad)) if bad.any() else None


def stored(rows: Float32Array, dtype: str) -> AnyArray:
    """Rows within the dtype's range as a graph stores them: float32, or bits, rounded to the nearest, ties to even."""
    if dtype == "float32":
        return rows
    if dtype == "float16":
        return rows.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(rows).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def read(rows: AnyArray, dtype: str) -> Float32Array:
    """Stored rows as float32, exactly."""
    return rows if dtype == "float32" else _wide(rows, dtype)


def _wide(bits: AnyArray, dtype: str) -> Float32Array:
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _first(bad: BoolArray) -> tuple[int, int]:
    row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return int(row), int(column)
