"""Updates from tables: Arrow, pandas and TemporalData, all by way of the same columns.

A row is an update. Runs of rows with the same op become one array call each. A null is refused with its row number in
every column that the row's op reads:

    op           reads                                            does
    add          src, dst, weight, time, edge_type, edge_attr     add_edge
    remove       src, dst, edge_type (null: any type)             remove_edge; time, when it happened, picks nothing
    set_weight   src, dst, weight                                 set_weight
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegnn.errors import ColumnMissing, DtypeInvalid, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import arrow, checks
from livegnn.graph.arrow import Column
from livegnn.graph.checks import Int32Array
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

_PARTS = ("src", "dst", "op", "weight", "time", "edge_type", "edge_attr")
_DEFAULTS = {name: name for name in _PARTS} | {"edge_type": "type"}
_OPS = ("add", "remove", "set_weight")
ADD, REMOVE, SET_WEIGHT = range(3)


@dataclass(frozen=True)
class TableRows:
    """A table, checked: every array has one row for each update."""

    src: AnyArray
    dst: AnyArray
    op: Int64Array
    time_unit: str | None  # of datetime64 values
    weight: Float32Array | None = None
    time: Int64Array | None = None
    edge_type: Int32Array | None = None  # TYPE_UNSET: of a removal of any type
    edge_attr: Float32Array | None = None


def arrow_rows(table: object, columns: Mapping[str, str | None]) -> TableRows:
    """The rows of an object that speaks Arrow."""
    names = _names("from_arrow", columns)
    found = arrow.read_columns("from_arrow", table, set(names.values()))
    return _rows("from_arrow", {key: found[name] for key, name in names.items() if name in found}, names, columns)


def pandas_rows(frame: Any, columns: Mapping[str, str | None]) -> TableRows:
    """The rows of a pandas.DataFrame."""
    if not hasattr(frame, "columns") or not hasattr(frame, "iloc"):
        raise DtypeInvalid(
            f"[from_pandas] expected a pandas.DataFrame, got {type(frame).__name__}; use from_arrow for Arrow tables"
        )
    names = _names("from_pandas", columns)
    there = set(frame.columns)
    for name in names.values():
        if list(frame.columns).count(name) > 1:
            raise ValueInvalid(f"[from_pandas] expected each column once, got {name!r} again; rename or drop one")
    found = {key: _pandas_column(name, frame[name]) for key, name in names.items() if name in there}
    return _rows("from_pandas", found, names, columns)


def temporal_columns(data: Any, *, time: bool, edge_attr: bool) -> tuple[Any, Any, Any, Any]:
    """src, dst, times and attributes of the events of a TemporalData, None for what is left out."""
    values = {name: getattr(data, name, None) for name in ("src", "dst", "t", "msg")}
    for name in ("src", "dst"):
        if values[name] is None:
            message = f"[from_temporal_data] expected a TemporalData with {name}, got {type(data).__name__} without it"
            raise ColumnMissing(f"{message}; give it")
    times = values["t"] if time else None
    attrs = values["msg"] if edge_attr else None
    if attrs is not None and getattr(attrs, "ndim", 2) == 1:
        attrs = attrs.reshape(-1, 1)
    return values["src"], values["dst"], times, attrs


def _names(where: str, columns: Mapping[str, str | None]) -> dict[str, str]:
    """Which column of the table plays which part."""
    for key in columns:
        if key not in _DEFAULTS:
            raise UsageError(
                f"[{where}] expected column parts among {', '.join(_DEFAULTS)}, got {key!r}; fix the argument"
            )
    merged = {**_DEFAULTS, **columns}
    for key in ("src", "dst"):
        if merged[key] is None:
            raise UsageError(f"[{where}] expected a column for {key}, got {key}=None; every update has two ends")
    return {key: name for key, name in merged.items() if name is not None}


def _pandas_column(name: str, series: Any) -> Column:
    """One pandas column as a Column; NaN in floats is left to be refused as a value."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind != "O":
        return Column(series.to_numpy())
    if hasattr(series.dtype, "categories"):
        series = series.astype(series.dtype.categories.dtype) if not series.isna().any() else series.astype(object)
        return _pandas_column(name, series)
    if hasattr(series.dtype, "tz"):
        return Column(np.asarray(series.dt.tz_convert(None)))
    missing = series.isna().to_numpy()
    valid = ~missing if missing.any() else None
    dtype = getattr(series.dtype, "numpy_dtype", None)
    if dtype is not None and dtype.kind in "iuf":
        return Column(series.to_numpy(dtype=dtype, na_value=0), valid)
    values = series.to_numpy(dtype=object)
    if len(values) and isinstance(values[0], (list, tuple, np.ndarray)):
        return Column(checks.as_array("from_pandas", f"column {name!r}", values.tolist()), valid)
    return Column(values, valid)


def _rows(
    where: str, found: Mapping[str, Column], names: Mapping[str, str], asked: Mapping[str, str | None]
) -> TableRows:
    for key, name in names.items():
        if key not in found and (key in ("src", "dst") or key in asked):
            raise ColumnMissing(f"[{where}] expected a column {name!r} for {key}, got none; name it with {key}=")
    count = len(found["src"].values)
    every = np.ones(count, np.bool_)
    for key in ("src", "dst", "op"):
        if key in found:
            _refuse_null(where, names[key], found[key], every)
    op = _ops(where, names["op"], found["op"].values) if "op" in found else np.zeros(count, np.int64)
    adds, weighs = op == ADD, op != REMOVE
    if "weight" not in found and (op == SET_WEIGHT).any():
        row = int(np.argmax(op == SET_WEIGHT))
        raise ColumnMissing(
            f'[{where}] expected a weight column for op "set_weight" at row {row}, got none; name it with weight='
        )
    values: dict[str, Any] = {}
    for key, used in (("weight", weighs), ("time", adds), ("edge_type", adds), ("edge_attr", adds)):
        column = found.get(key) if count else None
        if column is not None and column.valid is not None and not column.valid.any() and not used.any():
            column = None  # a column of nulls that no row reads
        if column is not None:
            _refuse_null(where, names[key], column, used)
            reads = every if key == "edge_type" else used
            values[key] = _converted(where, key, names[key], column, reads)
    if "edge_type" in values and (valid := found["edge_type"].valid) is not None:
        values["edge_type"][~valid] = checks.TYPE_UNSET  # a removal of any type
    sources, targets = (_vertex_column(where, names[key], found[key].values) for key in ("src", "dst"))
    unit = checks.time_unit(found["time"].values) if "time" in values and adds.any() else None
    return TableRows(sources, targets, op, unit, **values)


def _refuse_null(where: str, name: str, column: Column, used: BoolArray) -> None:
    if column.valid is not None and (~column.valid & used).any():
        row = int(np.argmax(~column.valid & used))
        raise ValueInvalid(
            f"[{where}] expected a value in column {name!r}, got null at row {row}; fill or drop the row"
        )


def _vertex_column(where: str, name: str, values: AnyArray) -> AnyArray:
    label = f"column {name!r}"
    if checks.is_text(values):
        return np.array(checks.text_list(where, label, values), object)
    return checks.id_array(where, label, values)


def _ops(where: str, name: str, values: AnyArray) -> Int64Array:
    if values.size and not checks.is_text(values):
        raise DtypeInvalid(f"[{where}] expected column {name!r} of strings, got dtype {values.dtype}; cast the column")
    codes = {op: code for code, op in enumerate(_OPS)}
    result = np.array([codes.get(op, -1) if isinstance(op, str) else -1 for op in values.tolist()], np.int64)
    if result.size and result.min() < 0:
        row = int(np.argmax(result < 0))
        raise ValueInvalid(
            f"[{where}] expected one of {', '.join(_OPS)} in column {name!r}, got {values[row]!r} at row {row}; fix it"
        )
    return result


def _converted(where: str, key: str, name: str, column: Column, used: BoolArray) -> AnyArray:
    """The column in its own dtype; rows that are not read are zero."""
    valid = used if column.valid is None else used & column.valid
    values = column.values
    if not valid.all():
        values = values.copy()
        values[~valid] = np.zeros(1, values.dtype)[0] if values.dtype.kind != "O" else 0
        if values.dtype.kind == "O":
            values = np.array(values.tolist())
    label = f"column {name!r}"
    if key == "time":
        return checks.time_array(where, label, values)
    if key == "edge_type":
        return checks.type_array(where, label, values)
    if key == "edge_attr":
        return checks.float_array(where, label, values.reshape(-1, 1) if values.ndim == 1 else values, 2)
    if values.ndim != 1:
        raise WidthMismatch(
            f"[{where}] expected {label} with one number in a row, got shape {values.shape}; name another column"
        )
    return _weights(where, label, values)


def _weights(where: str, label: str, values: AnyArray) -> Float32Array:
    """float32; whole numbers are taken where float32 holds them exactly."""
    if values.dtype.kind not in "iu":
        return checks.float_array(where, label, values, 1)
    result = values.astype(np.float32)
    bad = np.abs(result) > 2.0**24
    bad |= (np.abs(result) <= 2.0**24) & (result.astype(np.float64) != values.astype(np.float64))
    if bad.any():
        raise checks.row_invalid(where, f"whole weights up to 2^24 in {label}", values, bad, "cast to float64")
    return result
