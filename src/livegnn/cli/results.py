"""Rows written to Parquet or CSV as they come; beside the target first, renamed when complete."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from livegnn.errors import DtypeInvalid, UsageError
from livegnn.extras import need


class ResultFile:
    """A context manager; `finish` makes the file appear, leaving without it discards what was written.

    Args:     columns: their names where there turns out to be no row.  inputs: files whose place it must not take.
    Raises:   DtypeInvalid for a suffix other than .parquet and .csv; UsageError for one of the inputs.
    """

    def __init__(self, path: Path, columns: Sequence[str], inputs: Iterable[Path | None] = ()) -> None:
        if path.suffix.lower() not in (".parquet", ".csv"):
            raise DtypeInvalid(f"[{path}] expected .parquet or .csv, got {path.suffix or 'no suffix'!r}; rename --out")
        if path.resolve() in {given.resolve() for given in inputs if given is not None}:
            raise UsageError(f"[--out {path}] expected a file of its own, got one that is read; name another")
        self._path = path
        self._beside = path.with_name(path.name + ".part")
        self._columns = columns
        self._rows = 0
        self._parquet: Any = None
        self._text: Any = None
        if path.suffix.lower() == ".parquet":
            need("pyarrow.parquet", "arrow")

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._beside.unlink(missing_ok=True)

    def add(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Appends rows: columns of one length, the same names each time."""
        count = len(next(iter(columns.values())))
        if count == 0:
            return
        self._rows += count
        if self._path.suffix.lower() == ".parquet":
            self._add_parquet(columns)
        else:
            self._add_csv(columns)

    def finish(self) -> int:
        """Makes the file appear; returns its number of rows."""
        if self._rows == 0:
            nothing = {name: np.zeros(0, dtype=np.int64) for name in self._columns}
            self._add_parquet(nothing) if self._path.suffix.lower() == ".parquet" else self._add_csv(nothing)
        self._close()
        os.replace(self._beside, self._path)
        return self._rows

    def _add_parquet(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        table = need("pyarrow", "arrow").table(dict(columns))
        if self._parquet is None:
            self._parquet = need("pyarrow.parquet", "arrow").ParquetWriter(self._beside, table.schema)
        self._parquet.write_table(table)

    def _add_csv(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        if self._text is None:
            self._text = self._beside.open("w", newline="", encoding="utf-8")
            csv.writer(self._text, lineterminator="\n").writerow(columns)
        texts = [[str(value) for value in values] for values in columns.values()]
        csv.writer(self._text, lineterminator="\n").writerows(zip(*texts, strict=True))

    def _close(self) -> None:
        for file in (self._parquet, self._text):
            if file is not None:
                file.close()
        self._parquet = self._text = None
