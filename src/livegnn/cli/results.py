"""Rows written to Parquet or CSV as they come; the file takes its place when it is complete."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from livegnn.errors import DtypeInvalid, UsageError
from livegnn.optional import need
from livegnn.stored import PartFile, made_folder, replaced


class ResultFile:
    """Where rows go; `written` opens it.

    Args:     columns: their names where there turns out to be no row.  inputs: files whose place it must not take.
    Raises:   DtypeInvalid for a suffix other than .parquet and .csv; UsageError for one of the inputs.
    """

    def __init__(self, path: Path, columns: Sequence[str], inputs: Iterable[Path | None] = ()) -> None:
        suffix = path.suffix.lower()
        if suffix not in (".parquet", ".csv"):
            raise DtypeInvalid(f"[{path}] expected .parquet or .csv, got {path.suffix or 'no suffix'!r}; rename --out")
        if path.resolve() in {given.resolve() for given in inputs if given is not None}:
            raise UsageError(f"[--out {path}] expected a file of its own, got one that is read; name another")
        self.path, self._columns = path, columns
        self._in_parquet = suffix == ".parquet"
        if self._in_parquet:
            need("pyarrow.parquet", "arrow")

    @contextmanager
    def written(self) -> Iterator[ResultRows]:
        """Rows that make the file appear at the end of the block; an error in it discards what was written.

        Raises: StorageFailed where the disk refuses.
        """
        made_folder("--out", self.path.parent)
        with replaced(self.path, "--out", sealed=False) as part:
            rows = ResultRows(part, self._in_parquet)
            try:
                yield rows
                if rows.count == 0:
                    rows.write({name: np.zeros(0, dtype=np.int64) for name in self._columns})
            except BaseException:
                with suppress(Exception):  # its end goes with the file
                    rows.end()
                raise
            rows.end()


class ResultRows:
    """Rows on their way to a file."""

    def __init__(self, part: PartFile, in_parquet: bool) -> None:
        self.count = 0
        self._part, self._in_parquet = part, in_parquet
        self._parquet: Any = None
        self._headed = False

    def add(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Appends rows: columns of one length, the same names each time."""
        count = len(next(iter(columns.values())))
        if count:
            self.count += count
            self.write(columns)

    def write(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """The same, also of no rows."""
        if self._in_parquet:
            table = need("pyarrow", "arrow").table(dict(columns))
            if self._parquet is None:
                self._parquet = need("pyarrow.parquet", "arrow").ParquetWriter(self._part, table.schema)
            self._parquet.write_table(table)
            return
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if not self._headed:
            rows.writerow(columns)
        self._headed = True
        rows.writerows(zip(*([str(value) for value in values] for values in columns.values()), strict=True))
        self._part.write(text.getvalue().encode())

    def end(self) -> None:
        """Writes what stands at the end of a file."""
        if self._parquet is not None:
            self._parquet.close()
