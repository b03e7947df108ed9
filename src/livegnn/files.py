"""Tables and feature matrices from the user's files; every error names file, row and column.

Rows count from 1, the header of a CSV not included, so that row k is the k-th event. Files are read whole.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.errors import ColumnMissing, DataMissing, DtypeInvalid, ValueInvalid, WidthMismatch
from livegnn.optional import need

Column = npt.NDArray[Any]
OPS = ("add", "remove", "set_weight")
_TIME = "a whole number or a date such as 2024-05-31T12:30:00Z"
_SECOND, _EPOCH = 1_000_000, datetime(1970, 1, 1, tzinfo=UTC)


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

    def has_dates(self, name: str) -> bool:
        """Whether the column holds dates; the first row decides."""
        values = self.column(name)
        if values.dtype.kind not in "OUS" or not len(values):
            return values.dtype.kind == "M"
        first = values[:1].tolist()[0]
        return whole_number(first) is None and microseconds(first) is not None

    def times(self, name: str) -> npt.NDArray[np.int64]:
        """A column of times: whole numbers in the user's own unit, or dates as microseconds since 1970.

        Dates are ISO 8601; one that names no zone is in UTC. Raises: ValueInvalid naming the row, DtypeInvalid.
        """
        values = self.column(name)
        if values.dtype.kind == "M":
            self._refuse_first(name, values, np.isnat(values), "a date")
        if values.dtype.kind in "iuM":
            return self.int64(name)
        if values.dtype.kind not in "OUSf":
            raise DtypeInvalid(f"[{self.path}, column {name}] expected {_TIME}, got {values.dtype}; convert the column")
        read, expected = (microseconds, "a date as in row 1") if self.has_dates(name) else (whole_number, _TIME)
        out = np.empty(len(values), dtype=np.int64)
        for row, value in enumerate(values.tolist()):
            time = read(value)
            if time is None:
                advice = _DATES_ADVICE if read is microseconds else _time_advice(value)
                raise ValueInvalid(self.error(row, name, expected, value, advice))
            out[row] = time
        return out

    def float32(self, name: str, text_advice: str = "fix the file") -> npt.NDArray[np.float32]:
        """A column of finite numbers. text_advice: what to do where it holds text.

        Raises: ValueInvalid naming the row, DtypeInvalid.
        """
        values = self.column(name)
        if values.dtype.kind not in "iuf":
            values = self._convert(name, values, np.dtype(np.float64), "a number", text_advice)
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

    def error(self, row: int, name: str, expected: str, got: object, advice: str = "fix the file") -> str:
        """Text of an error at row `row` (from 0) of column `name`."""
        return f"[{self.path}, row {row + 1}, column {name}] expected {expected}, got {got!r}; {advice}"

    def _convert(
        self, name: str, values: Column, dtype: np.dtype[Any], expected: str, text_advice: str = "fix the file"
    ) -> Column:
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
                advice = text_advice if isinstance(value, str) and value else "fix the file"
                raise ValueInvalid(self.error(row, name, expected, value, advice)) from None
        return out

    def _refuse_first(self, name: str, values: Column, wrong: npt.NDArray[np.bool_], expected: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueInvalid(self.error(row, name, expected, values[row : row + 1].tolist()[0]))


def whole_number(value: object) -> int | None:
    """A whole number, also one written as 3.0."""
    try:
        if isinstance(value, str) and value.lstrip("+-").isdecimal():
            number = int(value)
        else:
            real = float(value)  # type: ignore[arg-type]
            number = int(real) if real.is_integer() and abs(real) < 2**53 else 2**63
    except (TypeError, ValueError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def microseconds(value: object) -> int | None:
    """Since 1970, of a date in ISO 8601; in UTC where it names no zone."""
    try:
        date = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(date, datetime):
            return None
    except ValueError:
        return None
    since = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * _SECOND + since.microseconds


_DATES_ADVICE = "write every row as a date, or every row as a number"


def _time_advice(value: object) -> str:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "fix the file"
    return "count in a smaller unit, such as milliseconds"


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


def listed(ids: Column) -> Any:
    """Ids as the library takes them: an array of whole numbers, or a list of strings."""
    return ids if ids.dtype.kind in "iu" else ids.tolist()


def read_features(
    path: Path,
    id_column: str | None,
    kind_column: str | None = None,
    id_option: str = "--id-column ",
    columns: Sequence[str] = (),
) -> tuple[npt.NDArray[np.float32], Column | None]:
    """Features (V, F) float32 and the ids of the rows, None for 0..V-1.

    Args:     path: .npy with a matrix, or .parquet or .csv with a row for each vertex and a column for each feature.
              kind_column: of the vertices' types, which is no feature either.  id_option: how the user names the
              column of ids.  columns: those that are features, in this order; all others unless given.
    Raises:   ColumnMissing, DataMissing, DtypeInvalid, WidthMismatch, ValueInvalid, naming row and column.
    """
    if path.suffix.lower() == ".npy":
        return _read_npy(path, id_column or kind_column or next(iter(columns), None)), None
    table = read_table(path)
    ids = None if id_column is None else table.ids(id_column)
    if ids is not None and kind_column is None:
        _refuse_equal_ids(path, str(id_column), ids)
    names = list(columns) or [name for name in table.columns if name not in (id_column, kind_column)]
    if not names:
        raise WidthMismatch(f"[{path}] expected at least one feature column, got none; add one")
    hint = {name: f"if it holds ids, pass {id_option}{name}" for name in names if id_column is None}
    return np.stack([table.float32(name, hint.get(name, "fix the file")) for name in names], axis=1), ids


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
        raise ColumnMissing(
            f"[{path}] expected no columns of ids, types or features with .npy, got {named!r}; use Parquet or CSV"
        )
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
