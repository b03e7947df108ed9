"""Tables of whatever speaks the Arrow PyCapsule interface (pyarrow, polars, pandas, DuckDB, ...), read by pyarrow.

Types: (u)int8 to (u)int64, float32, float64, timestamp and date (as datetime64 of their unit), time and duration (as
integers of theirs), utf8, large_utf8, utf8_view, any of these dictionary-encoded, fixed_size_list, list and large_list
of float32 or float64, null. Each batch is copied and released before the next one is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.errors import DtypeInvalid, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph.checks import shown
from livegnn.optional import need
from livegnn.types import AnyArray, BoolArray


@dataclass(frozen=True)
class Column:
    """One column: numbers (k,), strings (k,) of dtype object, or rows (k, width). valid None: nothing is null."""

    values: AnyArray
    valid: BoolArray | None = None


def read_columns(where: str, table: object, wanted: Collection[str]) -> dict[str, Column]:
    """The wanted columns that the table has, all batches joined. Other columns are not looked at.

    Raises:  DataMissing without pyarrow; DtypeInvalid if the object speaks no Arrow, is not a table, or a wanted column
             is of a type not listed above; WidthMismatch if the rows of a list column differ in width; ValueInvalid for
             a null row of the table itself.
    """
    arrow = need("pyarrow", "arrow")
    schema, batches = _batches(arrow, where, table)
    names = [name for name in schema.names if name in wanted]
    parts: dict[str, list[Column]] = {name: [] for name in names}
    if len(parts) < len(names):
        raise ValueInvalid(f"[{where}] expected each column once, got {sorted(names)}; rename them")
    try:
        for batch in batches:
            for name in names:
                parts[name].append(_column(arrow, where, name, batch.column(name)))
    except (arrow.ArrowException, OSError) as cause:
        raise UsageError(f"[{where}] the source stopped: {cause}; fix the source") from cause
    return {name: _joined(where, name, columns) for name, columns in parts.items()}


def _batches(arrow: Any, where: str, table: Any) -> tuple[Any, Iterable[Any]]:
    """The schema and the batches of a stream or of one array."""
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise DtypeInvalid(
            f"[{where}] expected an object with __arrow_c_stream__ or __arrow_c_array__, "
            f"got {type(table).__name__}; pass an Arrow table, a polars or pandas frame"
        )
    try:
        if hasattr(table, "__arrow_c_stream__"):
            reader = arrow.RecordBatchReader.from_stream(table)
            return reader.schema, reader
        rows = arrow.array(table)
        batch = arrow.RecordBatch.from_struct_array(rows)
    except (arrow.ArrowException, TypeError) as cause:
        raise DtypeInvalid(f"[{where}] expected a table, got another value ({cause}); name its columns") from cause
    if rows.null_count:
        raise ValueInvalid(f"[{where}] expected no null rows, got one; drop it")
    return batch.schema, [batch]


def _column(arrow: Any, where: str, name: str, column: Any) -> Column:
    """One column of a batch, copied."""
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_null(kind):
        return Column(np.zeros(len(column), np.int8), np.zeros(len(column), np.bool_))
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    if types.is_time(kind) or types.is_duration(kind):
        column = column.view(arrow.int32() if types.is_time32(kind) else arrow.int64())
    if types.is_integer(column.type) or types.is_float32(kind) or types.is_float64(kind):
        filled = column.fill_null(0) if column.null_count else column
        return Column(np.array(filled.to_numpy(zero_copy_only=False)), valid)
    if types.is_timestamp(kind) or types.is_date(kind):
        return Column(np.array(column.to_numpy(zero_copy_only=False)), valid)
    if str(kind) in ("string", "large_string", "string_view"):
        return Column(_strings(arrow, where, name, column), valid)
    is_list = types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)
    if is_list and kind.value_type in (arrow.float32(), arrow.float64()):
        return Column(_rows(where, name, column, valid), valid)
    raise DtypeInvalid(
        f"[{where}] expected integers, floats, strings or rows of floats in column {name!r}, "
        f"got Arrow type {kind}; cast the column"
    )


def _strings(arrow: Any, where: str, name: str, column: Any) -> AnyArray:
    try:
        strings: AnyArray = column.to_numpy(zero_copy_only=False)
        return strings
    except (arrow.ArrowException, UnicodeDecodeError):
        for each in column.view(arrow.large_binary() if arrow.types.is_large_string(column.type) else arrow.binary()):
            try:
                (each.as_py() or b"").decode()
            except UnicodeDecodeError as cause:
                raise ValueInvalid(
                    f"[{where}] expected UTF-8 in column {name!r}, got {shown(cause.object)}; fix the text"
                ) from cause
        raise


def _rows(where: str, name: str, column: Any, valid: BoolArray | None) -> AnyArray:
    """(k, width) floats of a column of lists, zeros where it is null."""
    there = column.drop_null()
    flat = there.flatten()
    if flat.null_count:
        raise ValueInvalid(f"[{where}] expected no nulls inside the rows of column {name!r}, got one; fill or drop it")
    widths = there.value_lengths().to_numpy(zero_copy_only=False)
    width = int(widths[0]) if len(widths) else getattr(column.type, "list_size", 0)
    if (widths != width).any():
        row = int(np.argmax(widths != width))
        got = f"{widths[row]} at row {row} of a batch"
        raise WidthMismatch(f"[{where}] expected rows of width {width} in column {name!r}, got {got}; pad the rows")
    numbers: AnyArray = flat.to_numpy(zero_copy_only=False)
    rows = np.zeros((len(column), width), numbers.dtype)
    rows[slice(None) if valid is None else valid] = numbers.reshape(len(there), width)
    return rows


def _joined(where: str, name: str, parts: list[Column]) -> Column:
    there = [part for part in parts if part.values.shape[0] and (part.valid is None or part.valid.any())]
    widths = {part.values.shape[1:] for part in there}
    if len(widths) > 1:
        raise WidthMismatch(
            f"[{where}] expected rows of one width in column {name!r}, got {sorted(x[0] for x in widths)}; pad"
        )
    rows = [part.values for part in parts if part.values.shape[0]]
    if widths:  # a part that is all null has no width of its own
        rows = [x if x.shape[1:] in widths else np.zeros((len(x), *next(iter(widths))), x.dtype) for x in rows]
    values = np.concatenate(rows) if rows else parts[0].values if parts else np.zeros(0, np.int64)
    if all(part.valid is None for part in parts):
        return Column(values)
    ones = [np.ones(part.values.shape[0], np.bool_) if part.valid is None else part.valid for part in parts]
    return Column(values, np.concatenate(ones))
