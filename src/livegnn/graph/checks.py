"""Checks and conversions at the border: what a caller gave becomes exactly what the native store takes.

Ids become int64, times int64, types int32, and every float float32. Nothing is guessed: a bool or a float where an id
is meant, a dtype that would need a silent change of meaning, NaN, infinity and overflow are refused with the value and
its row.

float64 is rounded to the nearest float32 (what `tensor.float()` does); a value that float32 cannot hold is refused.
Python lists of ints are taken for floats too; arrays of ints are not. datetime64 becomes int64 in its own unit.
"""

from __future__ import annotations

import datetime
import numbers
import operator
import threading
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.errors import DtypeInvalid, ValueInvalid, WidthMismatch
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

Int32Array = npt.NDArray[np.int32]

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
COUNTER_MAX = 2**62  # versions and edge ids go on from here without an end
TYPE_MAX = 2**31 - 1
TYPE_UNSET = -(2**31)  # in a column of types: none given
FLOAT32_MAX = float(np.finfo(np.float32).max)
_SHOWN_CHARACTERS_MAX = 60


def count_of(value: object) -> str:
    """The type of a value as messages name it."""
    dtype = getattr(value, "dtype", None)
    return f"dtype {dtype}" if dtype is not None else type(value).__name__


def shown(value: object) -> str:
    """repr(value) on one line, cut to fit into a message."""
    try:
        text = repr(value).replace("\n", " ")
    except ValueError:  # Python writes no integers of thousands of digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


def whole_number(where: str, name: str, value: object) -> int:
    """A Python int from an int, a numpy integer or a 0-d integer tensor; bools and floats are refused."""
    is_bool = isinstance(value, (bool, np.bool_)) or str(getattr(value, "dtype", "")).endswith("bool")
    if not is_bool and not isinstance(value, str):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise DtypeInvalid(
        f"[{where}] expected {name} as an integer, got {value!r} of {count_of(value)}; convert it with int()"
    )


def version(where: str, name: str, value: object) -> int:
    """A version of a graph: an integer from 0 to 2^63 - 1."""
    number = whole_number(where, name, value)
    if not 0 <= number <= INT64_MAX:
        got = f"{number}" if abs(number) <= 2 * INT64_MAX else f"a number of {number.bit_length()} bits"
        raise ValueInvalid(f"[{where}] expected {name} as a version, from 0 to 2^63 - 1, got {got}; fix the version")
    return number


def timeout(where: str, value: object) -> float | None:
    """Seconds to wait, from 0 to as many as a lock can wait; None for ever."""
    if value is None:
        return None
    seconds = as_seconds(value)
    if seconds is not None and seconds >= 0:
        return seconds
    raise ValueInvalid(
        f"[{where}] expected a timeout from 0 to {threading.TIMEOUT_MAX:.0f} seconds, or None to wait for ever, "
        f"got {shown(value)}; give a number"
    )


def as_seconds(value: object) -> float | None:
    """A real number as a float that a lock can wait for; None for anything else."""
    if not isinstance(value, float | numbers.Real) or isinstance(value, (bool, np.timedelta64)):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if seconds <= threading.TIMEOUT_MAX else None


def vertex_id(where: str, name: str, value: object) -> int:
    """A vertex id: an integer from 0 to 2^63 - 1."""
    number = whole_number(where, name, value)
    if not 0 <= number <= INT64_MAX:
        bound = "of at least 0" if number < 0 else "that fits int64"
        raise ValueInvalid(f"[{where}] expected a vertex id {bound} as {name}, got {number}; fix the id")
    return number


def edge_time(where: str, name: str, value: object) -> int:
    """A time: an int64 other than the smallest, which stands for 'not given'."""
    if isinstance(value, np.datetime64):
        value = value.view(np.int64)
    if isinstance(value, str | datetime.date):  # a datetime, and pandas' Timestamp, are dates
        raise DtypeInvalid(
            f"[{where}] expected {name} as an integer or a numpy.datetime64, got {value!r} of {type(value).__name__}; "
            "convert it with numpy.datetime64(value, unit), in the unit of the other times"
        )
    number = whole_number(where, name, value)
    if not INT64_MIN < number <= INT64_MAX:
        raise ValueInvalid(
            f"[{where}] expected {name} that fits int64 (its smallest value is taken), got {number}; use a coarser unit"
        )
    return number


def time_unit(values: object, *, empty: bool = False) -> str | None:
    """The unit that datetime64 values are counted in, as "s" or "25s"; None of plain numbers, and (but with `empty`)
    of no values.

    values: what edge_time() or time_array() has taken: a list is of the unit that NumPy gives it.
    """
    if isinstance(values, int):
        return None
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) and type(values).__module__.partition(".")[0] != "torch":  # whose times are bare
        values = np.asarray(values)
        dtype = values.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind != "M" or (np.size(values) == 0 and not empty):  # type: ignore[arg-type]
        return None
    unit, count = np.datetime_data(dtype)
    if unit == "generic":
        return None
    return unit if count == 1 else f"{count}{unit}"


def same_unit(where: str, name: str, known: str | None, given: str | None) -> str | None:
    """The unit that times have from now on. Raises: ValueInvalid for two, whose numbers mean different times."""
    if known is None or given is None or known == given:
        return known or given
    raise ValueInvalid(
        f"[{where}] expected {name} in {known}, as the times before, got datetime64[{given}]; cast them with "
        f".astype('datetime64[{known}]')"
    )


def stored_unit(letters: AnyArray | None) -> str | None:
    """The unit that a saved graph names; None of one without. Raises: ValueError for what is no unit."""
    if letters is None:
        return None
    unit = letters.astype(np.uint8).tobytes().decode("ascii")
    if time_unit(np.zeros(1, f"datetime64[{unit}]")) != unit:
        raise ValueError(f"a unit {unit!r}")
    return unit


def edge_type(where: str, name: str, value: object) -> int:
    """An edge type: an integer from 0 to 2^31 - 1."""
    number = whole_number(where, name, value)
    if not 0 <= number <= TYPE_MAX:
        raise ValueInvalid(f"[{where}] expected {name} from 0 to {TYPE_MAX}, got {number}; number the types from 0")
    return number


def finite_float(where: str, name: str, value: object) -> float:
    """A finite number within float32's range, from an int, a float or a numpy number."""
    if isinstance(value, (bool, np.bool_, str, bytes)) or getattr(value, "ndim", 0) != 0:
        raise _no_number(where, name, value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as cause:
        raise _no_number(where, name, value) from cause
    except OverflowError as cause:
        raise ValueInvalid(f"[{where}] expected {name} within float32, got {value}; scale it down") from cause
    if not -FLOAT32_MAX <= number <= FLOAT32_MAX:  # NaN fails this too
        raise ValueInvalid(f"[{where}] expected {name} finite and within float32, got {number}; drop or fix the value")
    return number


def _no_number(where: str, name: str, value: object) -> DtypeInvalid:
    got = f"{value!r} of {count_of(value)}"
    return DtypeInvalid(f"[{where}] expected {name} as a number, got {got}; convert it with float()")


def as_array(where: str, name: str, values: object) -> AnyArray:
    """Any array-like as a numpy array; an empty list keeps no dtype of its own."""
    if type(values) is np.ndarray:
        return values
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = int(np.argwhere(np.ma.getmaskarray(values))[0][0]) if values.ndim else 0
        raise ValueInvalid(
            f"[{where}] expected {name} without masked values, got one at row {row}; drop or fill the row"
        )
    try:
        array = np.asarray(values)
    except ValueError as cause:
        raise WidthMismatch(
            f"[{where}] expected {name} with rows of one width, got rows that differ; pad them"
        ) from cause
    except (TypeError, RuntimeError) as cause:
        raise DtypeInvalid(
            f"[{where}] expected {name} as an array, got {count_of(values)} ({cause}); pass a numpy array"
        ) from cause
    if array.size == 0 and isinstance(values, (list, tuple)):
        return array.astype(np.int64)
    return array


def _refuse_shape(where: str, name: str, expected: str, array: AnyArray) -> NoReturn:
    if array.ndim == 0:
        raise WidthMismatch(
            f"[{where}] expected {name} of shape {expected}, got {array.item()!r}; pass a list or an array, as in "
            f"[{array.item()!r}]"
        )
    raise WidthMismatch(f"[{where}] expected {name} of shape {expected}, got {array.shape}; reshape it")


def _conversion(array: AnyArray, dtype: str) -> str:
    """How an array of another dtype may become one of this; text is no number."""
    return "read it as numbers first" if array.dtype.kind in "SUTV" else f"convert it with .astype({dtype})"


def row_invalid(where: str, expected: str, values: AnyArray, bad: BoolArray, advice: str) -> ValueInvalid:
    """Names the first of the rows (k,) that are bad."""
    row = int(np.argmax(bad))
    return ValueInvalid(f"[{where}] expected {expected}, got {values[row]} at row {row}; {advice}")


def integer_array(where: str, name: str, values: object) -> Int64Array:
    """A 1-D int64 array from any integer dtype; uint64 beyond int64 is refused."""
    array = as_array(where, name, values)
    if isinstance(values, (list, tuple)) and array.ndim == 1:
        _refuse_misread(where, name, values, array)
    if array.dtype.kind not in "iu":
        raise DtypeInvalid(
            f"[{where}] expected {name} as int64, got dtype {array.dtype}; {_conversion(array, 'np.int64')}"
        )
    if array.ndim != 1:
        _refuse_shape(where, name, "(k,)", array)
    if array.dtype == np.uint64 and array.size and int(array.max()) > INT64_MAX:
        raise row_invalid(where, f"{name} that fits int64", array, array > INT64_MAX, "fix the value")
    return np.ascontiguousarray(array, dtype=np.int64)


def _refuse_misread(where: str, name: str, values: Sequence[object], array: AnyArray) -> None:
    """Refuses what NumPy makes another number, or none, of: True among integers, integers beyond int64."""
    kinds = set(map(type, values))
    if len(kinds) > 1 and not kinds.isdisjoint((bool, np.bool_)):
        row = next(row for row, value in enumerate(values) if isinstance(value, bool | np.bool_))
        raise DtypeInvalid(
            f"[{where}] expected {name} as int64, got {values[row]!r} of bool at row {row}; fix the value"
        )
    if array.dtype.kind in "fO":
        for row, value in enumerate(values):
            if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
                raise ValueInvalid(
                    f"[{where}] expected {name} that fits int64, got {shown(value)} at row {row}; fix the value"
                )


def id_array(where: str, name: str, values: object) -> Int64Array:
    """Vertex ids: (k,) int64, none negative."""
    array = integer_array(where, name, values)
    if array.size and array.min() < 0:
        raise row_invalid(where, f"vertex ids of at least 0 in {name}", array, array < 0, "fix the id")
    return array


def time_array(where: str, name: str, values: object) -> Int64Array:
    """Times: (k,) int64; datetime64 counts in its own unit, NaT is refused."""
    array = as_array(where, name, values)
    if array.dtype.kind == "M":
        array = array.view(np.int64)
    array = integer_array(where, name, array)
    row = _native.row_without_time(array)
    if row >= 0:
        expected = f"{name} that fits int64 (its smallest value, NaT, is taken)"
        raise ValueInvalid(f"[{where}] expected {expected}, got {INT64_MIN} at row {row}; drop or fix the row")
    return array


def type_array(where: str, name: str, values: object) -> Int32Array:
    """Edge types: (k,) int32, none negative."""
    array = integer_array(where, name, values)
    if array.size and (array.min() < 0 or array.max() > TYPE_MAX):
        bad = (array < 0) | (array > TYPE_MAX)
        raise row_invalid(where, f"{name} from 0 to {TYPE_MAX}", array, bad, "number the types from 0")
    return array.astype(np.int32)


def float_array(
    where: str,
    name: str,
    values: object,
    ndim: int,
    check_finite: bool = True,
    axes: tuple[str, ...] = ("row", "column"),
) -> Float32Array:
    """A float32 array of `ndim` dimensions from float32 or float64, every value finite and within float32.

    axes: what messages call the dimensions.
    """
    array = as_array(where, name, values)
    if array.dtype.kind in "iu" and isinstance(values, (list, tuple)):
        array = array.astype(np.float64)
    if array.dtype != np.float32 and array.dtype != np.float64:
        raise DtypeInvalid(
            f"[{where}] expected {name} as float32, got dtype {array.dtype}; {_conversion(array, 'np.float32')}"
        )
    if array.ndim == 1 == ndim - 1 and array.size == 0 and isinstance(values, (list, tuple)):
        array = array.reshape(0, 0)
    if array.ndim != ndim:
        _refuse_shape(where, name, "(k,)" if ndim == 1 else "(k, width)", array)
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(array, dtype=np.float32)
    if check_finite or array.dtype != np.float32:
        finite = np.isfinite(result)
        if not finite.all():
            at = tuple(np.argwhere(~finite)[0])
            place = ", ".join(f"{axis} {index}" for axis, index in zip(axes, at, strict=False))
            raise ValueInvalid(
                f"[{where}] expected {name} finite and within float32, got {array[at]} at {place}; drop or fix the row"
            )
    return result


def flag(where: str, name: str, value: object) -> bool:
    """True or False. Raises: DtypeInvalid for anything else: "no" would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise DtypeInvalid(f"[{where}] expected {name} as True or False, got {shown(value)}; give one of them")
    return bool(value)


def feature_row(where: str, name: str, x: object) -> Float32Array:
    """One row, (width,) float32. NaN in a float32 row is left to the native buffer, which looks anyway."""
    array = as_array(where, name, x)
    if array.ndim != 1:
        _refuse_shape(where, name, "(width,)", array)
    values = x if isinstance(x, (list, tuple)) else array
    return float_array(where, name, values, 1, check_finite=False, axes=("column",))


def same_length(where: str, name: str, array: AnyArray, count: int, of: str) -> None:
    """Refuses an array that has not one row for each of `count` rows of `of`."""
    if array.shape[0] != count:
        raise WidthMismatch(
            f"[{where}] expected {name} with {count} rows like {of}, got {array.shape[0]}; give one row for each"
        )


def is_text(values: object) -> bool:
    """Whether an array-like holds strings: the form of external ids."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype):
        if dtype.kind == "O":
            array = np.asarray(values)
            return array.size > 0 and isinstance(array.ravel()[0], str)
        return dtype.kind in "UT"
    if isinstance(values, (list, tuple)):
        return bool(values) and isinstance(values[0], str)
    return str(dtype) in ("string", "str", "large_string", "object", "category")


def text_list(where: str, name: str, values: object) -> list[str]:
    """String ids as a list of Python's own strings; anything else among them is refused with its row."""
    if isinstance(values, (list, tuple)):
        array: list[object] = list(values)
    else:
        ids = np.asarray(values)
        if ids.ndim != 1:
            _refuse_shape(where, name, "(k,)", ids)
        array = ids.tolist()
    return [
        value if type(value) is str and value.isascii() else text(where, name, value, f" at row {row}")
        for row, value in enumerate(array)
    ]


def text(where: str, name: str, value: object, place: str = "") -> str:
    """A string id, or the name of a type, as Python's own str: files, logs and other programs take what UTF-8 holds.

    Raises:  DtypeInvalid; ValueInvalid for surrogates.
    """
    if not isinstance(value, str):
        got = f"{shown(value)} of {count_of(value)}{place}"
        raise DtypeInvalid(f"[{where}] expected string ids in {name}, got {got}; use one kind of id throughout")
    plain = str.__str__(value)  # of a subclass, whose own __str__ may give another text
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError as cause:
            raise ValueInvalid(
                f"[{where}] expected {name} as text that UTF-8 can hold, got {shown(plain)}{place}, which has the "
                f"surrogate {plain[cause.start]!r}; fix the text"
            ) from cause
    return plain
