"""Tables and feature matrices from the user's files; every error names file, row and column.

Rows count from 1, the header of a CSV not included, so that row k is the k-th event. Files are read whole.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.errors import ColumnMissing, DataMissing, DtypeInvalid, ValueInvalid, WidthMismatch
from livegnn.optional import need

Column = npt.NDArray[Any]
OPS = ("add", "remove", "set_weight")


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one file; CSV columns are strings until they are asked for as numbers."""

    path: Path
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, name: str) -> Column:
        """The column of that name. Raises: ColumnMissing, naming those that are there."""
        if name not in self.columns:
            there = ", ".join(self.columns) or "none"
            raise ColumnMissing(
                f"[{self.path}] expected a column {name!r}, got {there}; name it with the matching option"
            )
        return self.columns[name]

    def int64(self, name: str) -> npt.NDArray[np.int64]:
        """A column of whole numbers. Raises: ValueInvalid naming the row, DtypeInvalid."""
        values = self.column(name)
        if values.dtype.kind in "iu":
            return np.ascontiguousarray(values, dtype=np.int64)
        if values.dtype.kind == "M":
            return np.ascontiguousarray(values.astype("datetime64[us]").astype(np.int64))
        return self._convert(name, values, np.dtype(np.int64), "a whole number")

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        """A column of finite numbers. Raises: ValueInvalid naming the row, DtypeInvalid."""
        values = self.column(name)
        if values.dtype.kind not in "iuf":
            values = self._convert(name, values, np.dtype(np.float64), "a number")
        with np.errstate(over="ignore"):
            numbers = np.ascontiguousarray(values, dtype=np.float32)
        self._refuse_first(name, values, ~np.isfinite(numbers), "a finite float32")
        return numbers

    def ids(self, name: str) -> Column:
        """A column of vertex ids: int64 where every value is a whole number, else strings."""
        values = self.column(name)
        if values.dtype.kind in "iu":
            return np.ascontiguousarray(values, dtype=np.int64)
        if values.dtype.kind == "f":
            return self.int64(name)
        missing = np.fromiter((value is None or value == "" for value in values), dtype=np.bool_, count=len(values))
        self._refuse_first(name, values, missing, "a vertex id")
        try:
            return np.fromiter((int(value) for value in values), dtype=np.int64, count=len(values))
        except (ValueError, OverflowError):
            return np.asarray([str(value) for value in values], dtype=object)

    def ops(self, name: str) -> Column:
        """A column of update kinds: add, remove or set_weight. Raises: ValueInvalid naming the row."""
        values = self.column(name)
        wrong = np.fromiter((value not in OPS for value in values), dtype=np.bool_, count=len(values))
        self._refuse_first(name, values, wrong, "one of " + ", ".join(OPS))
        return values

    def error(self, row: int, name: str, expected: str, got: object) -> str:
        """Text of an error at row `row` (from 0) of column `name`."""
        return f"[{self.path}, row {row + 1}, column {name}] expected {expected}, got {got!r}; fix the file"

    def _convert(self, name: str, values: Column, dtype: np.dtype[Any], expected: str) -> Column:
        if values.dtype.kind not in "OUSf":
            raise DtypeInvalid(
                f"[{self.path}, column {name}] expected {expected}, got {values.dtype}; convert the column"
            )
        out = np.empty(len(values), dtype=dtype)
        kind = int if dtype.kind == "i" else float
        for row, value in enumerate(values.tolist()):
            try:
                if kind is int and isinstance(value, float) and not value.is_integer():
                    raise ValueError
                out[row] = kind(value)
            except (TypeError, ValueError, OverflowError):
                raise ValueInvalid(self.error(row, name, expected, value)) from None
        return out

    def _refuse_first(self, name: str, values: Column, wrong: npt.NDArray[np.bool_], expected: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueInvalid(self.error(row, name, expected, values[row : row + 1].tolist()[0]))


def read_table(path: Path) -> Table:
    """A Parquet or CSV file with a header. Raises: DataMissing, WidthMismatch, DtypeInvalid."""
    if not path.is_file():
        raise DataMissing(f"[{path}] expected a file, got nothing there; check the path")
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix == ".csv":
        try:
            return _read_csv(path)
        except csv.Error as cause:
            raise DtypeInvalid(f"[{path}] expected a CSV file, got: {cause}; write it again") from cause
    raise DtypeInvalid(f"[{path}] expected a .parquet or .csv file, got {suffix or 'no suffix'!r}; convert it")


def _read_parquet(path: Path) -> Table:
    pyarrow = need("pyarrow", "arrow")
    try:
        table = need("pyarrow.parquet", "arrow").read_table(path)
    except pyarrow.ArrowInvalid as cause:
        raise DtypeInvalid(f"[{path}] expected a Parquet file, got: {cause}; write it again") from cause
    _refuse_twice(path, table.column_names)
    try:
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
    except (UnicodeDecodeError, pyarrow.ArrowException) as cause:
        raise DtypeInvalid(f"[{path}] expected columns of numbers or UTF-8, got: {cause}; write it again") from cause
    return Table(path, columns)


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    counted = Counter(names)
    twice = next((name for name, count in counted.items() if count > 1 and name), None)
    if twice is not None:
        raise ValueInvalid(f"[{path}] expected each column once, got {twice!r} again; rename one")


def _utf8_lines(path: Path, lines: Iterable[str]) -> Iterator[str]:
    try:
        yield from lines
    except UnicodeDecodeError as cause:
        got = cause.object[cause.start : cause.end]
        raise DtypeInvalid(f"[{path}] expected text in UTF-8, got the bytes {got!r}; convert the file") from cause


def read_lines(path: Path) -> list[str]:
    """The lines of a text file. Raises: DtypeInvalid where it is not in UTF-8."""
    with path.open(encoding="utf-8") as file:
        return list(_utf8_lines(path, file))


def _read_csv(path: Path) -> Table:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(_utf8_lines(path, file))
        header = [name.strip() for name in next(rows, [])]
        if not header:
            raise ColumnMissing(f"[{path}] expected a header of column names, got an empty file; add one")
        _refuse_twice(path, header)
        values: list[Sequence[str]] = []
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                where = f"[{path}, row {len(values) + 1}]"
                raise WidthMismatch(f"{where} expected {len(header)} columns, got {len(row)}; fix the file")
            values.append([cell.strip() for cell in row])
    cells = np.array(values, dtype=object).reshape(len(values), len(header))
    return Table(path, {name: cells[:, i] for i, name in enumerate(header)})


def read_features(
    path: Path, id_column: str | None, kind_column: str | None = None
) -> tuple[npt.NDArray[np.float32], Column | None]:
    """Features (V, F) float32 and the ids of the rows, None for 0..V-1.

    Args:     path: .npy with a matrix, or .parquet or .csv with a row for each vertex and a column for each feature.
              kind_column: of the vertices' types, which is no feature either.
    Raises:   DataMissing, DtypeInvalid, WidthMismatch, ValueInvalid, naming row and column.
    """
    if path.suffix.lower() == ".npy":
        return _read_npy(path, id_column or kind_column), None
    table = read_table(path)
    ids = None if id_column is None else table.ids(id_column)
    if ids is not None and kind_column is None:
        _refuse_equal_ids(path, str(id_column), ids)
    names = [name for name in table.columns if name not in (id_column, kind_column)]
    if not names:
        raise WidthMismatch(f"[{path}] expected at least one feature column, got none; add one")
    return np.stack([table.float32(name) for name in names], axis=1), ids


def _refuse_equal_ids(path: Path, name: str, ids: Column) -> None:
    row_of: dict[Any, int] = {}
    for row, vertex in enumerate(ids.tolist()):
        first = row_of.setdefault(vertex, row)
        if first != row:
            raise ValueInvalid(
                f"[{path}, row {row + 1}, column {name}] expected ids that differ, got {vertex!r} as in row "
                f"{first + 1}; fix the file"
            )


def _read_npy(path: Path, named: str | None) -> npt.NDArray[np.float32]:
    if named is not None:
        raise ColumnMissing(f"[{path}] expected no column of ids or types with .npy, got {named!r}; use Parquet or CSV")
    if not path.is_file():
        raise DataMissing(f"[{path}] expected a file, got nothing there; check the path")
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as cause:
        raise DtypeInvalid(
            f"[{path}] expected a .npy matrix of numbers, got: {cause}; save it with numpy.save"
        ) from cause
    if array.ndim != 2:
        raise WidthMismatch(f"[{path}] expected a matrix (V, F), got shape {array.shape}; reshape it")
    if array.dtype.kind not in "iuf":
        raise DtypeInvalid(f"[{path}] expected numbers, got {array.dtype}; convert it to float32")
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(features).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(features))[0])
        raise ValueInvalid(
            f"[{path}, row {row + 1}, column {column + 1}] expected a finite float32, got {array[row, column]};"
            " fix the file"
        )
    return features
