"""Rows written to Parquet or CSV as they come; the file takes its place when it is complete."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from livegnn.errors import DtypeInvalid, UsageError
from livegnn.optional import need
from livegnn.stored import PartFile, made_folder, replaced


class _Unfinished(Exception):
    """Takes back a file that was left before finish()."""


class ResultFile:
    """A context manager; `finish` makes the file appear, leaving without it discards what was written.

    Args:     columns: their names where there turns out to be no row.  inputs: files whose place it must not take.
    Raises:   DtypeInvalid for a suffix other than .parquet and .csv; UsageError for one of the inputs; StorageFailed
              where the disk refuses.
    """

    def __init__(self, path: Path, columns: Sequence[str], inputs: Iterable[Path | None] = ()) -> None:
        if path.suffix.lower() not in (".parquet", ".csv"):
            raise DtypeInvalid(f"[{path}] expected .parquet or .csv, got {path.suffix or 'no suffix'!r}; rename --out")
        if path.resolve() in {given.resolve() for given in inputs if given is not None}:
            raise UsageError(f"[--out {path}] expected a file of its own, got one that is read; name another")
        self._path = path
        self._columns = columns
        self._rows = 0
        self._parquet: Any = None
        self._headed = False
        self._replacing: AbstractContextManager[PartFile] | None = None
        if path.suffix.lower() == ".parquet":
            need("pyarrow.parquet", "arrow")

    def __enter__(self) -> Self:
        made_folder("--out", self._path.parent)
        self._replacing = replaced(self._path, "--out", sealed=False)
        self._part = self._replacing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replacing, self._replacing = self._replacing, None
        if replacing is None:  # it is there
            return
        if self._parquet is not None:
            with suppress(Exception):  # its end goes with the file
                self._parquet.close()
        given = _Unfinished() if error is None else error
        replacing.__exit__(type(given), given, trace)

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
        if self._parquet is not None:
            self._parquet.close()
        replacing, self._replacing = self._replacing, None
        if replacing is not None:
            replacing.__exit__(None, None, None)
        return self._rows

    def _add_parquet(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        table = need("pyarrow", "arrow").table(dict(columns))
        if self._parquet is None:
            self._parquet = need("pyarrow.parquet", "arrow").ParquetWriter(self._part, table.schema)
        self._parquet.write_table(table)

    def _add_csv(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if not self._headed:
            rows.writerow(columns)
        self._headed = True
        texts = [[str(value) for value in values] for values in columns.values()]
        rows.writerows(zip(*texts, strict=True))
        self._part.write(text.getvalue().encode())
