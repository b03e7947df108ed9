"""Files and folders as a source: each file record by record, in the order of their names.

place = { name: records that were read, or -1 less that number once the file is finished }

A file is finished at its end, unless it is followed: then a last line without its end waits for the rest. A watched
folder is looked at again and again; a name that is not in the place is a new file, wherever it sorts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from livegnn.deployment.config_pipes import SourceConfig
from livegnn.deployment.pipes.lines import (
    BadHeader,
    CsvLines,
    Decoded,
    JsonRecords,
    LineDecoder,
    checked_header,
    shown,
)
from livegnn.deployment.pipes.records import Lag, PipeBroken, SourceRecord, Unreachable
from livegnn.errors import ColumnMissing, FileMissing
from livegnn.optional import need

_LOOK_S = 0.1  # between two looks at a folder, or at the end of a file
_SUFFIXES = {"csv": ".csv", "jsonl": ".jsonl", "parquet": ".parquet"}


class OpenFile(Protocol):
    """A file under way. at_end: nothing more can be read of it now."""

    at_end: bool

    def read(self, count_max: int) -> list[Decoded]:
        """The next records. Raises: BadHeader, PipeBroken."""

    def finish(self) -> list[Decoded]:
        """What is left of a file that grows no more."""

    def close(self) -> None:
        """Closes it."""


class FileReader:
    """The records of a file or a folder.

    Args:    folder: of relative paths.  place: where it was.  columns: that tables must have.  once: ends where nothing
             is left, also in a folder that is watched or a file that is followed.
    """

    def __init__(
        self, config: SourceConfig, folder: Path, place: Mapping[str, int], columns: Sequence[str], once: bool
    ) -> None:
        self._config, self._columns, self._place = config, columns, dict(place)
        self._path = folder / config.path
        self._once = once
        self._current: tuple[str, OpenFile] | None = None
        self.is_ended = False

    def read(self, count_max: int, wait_s: float) -> list[SourceRecord]:
        """As Reader."""
        deadline = time.monotonic() + wait_s
        while not self.is_ended:
            found = self._next(count_max)
            if found or self.is_ended:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(_LOOK_S, left))
        return []

    def lag(self) -> Lag | None:
        """Bytes of files that were not begun, or were not finished."""
        amount = 0
        for name in self._unfinished():
            try:
                size = (self._path / name if self._path.is_dir() else self._path).stat().st_size
            except OSError:
                continue
            begun = self._current[1] if self._current is not None and self._current[0] == name else None
            amount += max(0, size - (begun.taken if isinstance(begun, LineFile) else 0))
        return Lag(amount, "bytes")

    def check_first(self) -> None:
        """Opens the first file, where there is one. Raises: FileMissing; ColumnMissing where it lacks a column."""
        where = f"source {self._config.name}"
        try:
            names = self._unfinished()
            if names:
                path = self._path / names[0] if self._path.is_dir() else self._path
                file = self._file(path, 0)
                try:
                    file.read(1)
                finally:
                    file.close()
        except (Unreachable, PipeBroken) as why:
            raise FileMissing(f"[{where}] {why}; correct the path, or make it") from why
        except BadHeader as why:
            raise ColumnMissing(f"[{where}, {names[0]}] {why}; correct the rules, or the file") from why

    def close(self) -> None:
        """As Reader."""
        if self._current is not None:
            self._current[1].close()
            self._current = None

    def _next(self, count_max: int) -> list[SourceRecord]:
        """The next records, or the end of a file; none where one is to wait."""
        if self._current is None:
            names = self._unfinished()
            if not names:
                self.is_ended = self._once or not (self._path.is_dir() and self._config.watch)
                return []
            return self._opened(names[0])
        name, file = self._current
        try:
            found = self._records(name, file.read(count_max))
            if found or not file.at_end:
                return found
            if self._config.follow and not self._is_passed(name):
                self.is_ended = self._once  # its next lines are for the next start
                return []
            found = self._records(name, file.finish())
        except BadHeader as why:
            return self._refused(name, str(why))
        self.close()
        return [*found, self._finished(name)]

    def _opened(self, name: str) -> list[SourceRecord]:
        path = self._path / name if self._path.is_dir() else self._path
        try:
            file = self._file(path, self._place.get(name, 0))
        except FileNotFoundError:
            return []  # it went between two looks
        except OSError as cause:
            raise Unreachable(f"expected to read {path}, got {cause.strerror or cause}") from cause
        except BadHeader as why:
            return self._refused(name, str(why))
        self._current = name, file
        return []

    def _file(self, path: Path, skip: int) -> OpenFile:
        if self._config.kind == "parquet":
            return ParquetFile(path, self._columns, skip)
        decoder = CsvLines(self._columns) if self._config.kind == "csv" else JsonRecords()
        return LineFile(path, decoder, skip, self._config.follow)

    def _records(self, name: str, decoded: Sequence[Decoded]) -> list[SourceRecord]:
        first = self._place.get(name, 0) + 1
        records = [SourceRecord(name, place, *one) for place, one in enumerate(decoded, first)]
        self._place[name] = first - 1 + len(records)
        return records

    def _finished(self, name: str) -> SourceRecord:
        self._place[name] = -1 - self._place.get(name, 0)
        return SourceRecord(name, self._place[name], None)

    def _refused(self, name: str, why: str) -> list[SourceRecord]:
        """A whole file that cannot be read is one bad record."""
        self.close()
        return [self._finished(name)._replace(text=name, fault=f"[{name}] {why}")]

    def _unfinished(self) -> list[str]:
        """Names of files that have more, in order. Raises: Unreachable, or PipeBroken where none will come."""
        if not self._path.is_dir():
            if not self._path.exists():
                kind = PipeBroken if self._once else Unreachable
                raise kind(f"expected a file or a folder {self._path}, got nothing there")
            return [self._path.name] if self._place.get(self._path.name, 0) >= 0 else []
        pattern = self._config.pattern or f"*{_SUFFIXES[self._config.kind]}"
        names = (each.name for each in self._path.glob(pattern) if each.is_file() and not each.name.startswith("."))
        return sorted(name for name in names if self._place.get(name, 0) >= 0)

    def _is_passed(self, name: str) -> bool:
        """Whether a folder has a file after this one: then this one grows no more."""
        return self._path.is_dir() and any(each > name for each in self._unfinished())


class LineFile:
    """A file of lines. taken: bytes of it that were read.  grows: a last line without its end waits for the rest."""

    def __init__(self, path: Path, decoder: LineDecoder, skip: int, grows: bool) -> None:
        self._path, self._decoder, self._grows = path, decoder, grows
        self._file = path.open("rb")
        self._left: list[Decoded] = []
        self.taken = 0
        self.at_end = False
        try:
            self._skip(skip)
        except BaseException:
            self.close()
            raise

    def _skip(self, count: int) -> None:
        while count:
            found = self.read(min(count, 4096))
            if not found and self.at_end:
                found = self._decoder.end()[:count]
                if len(found) < count:
                    raise PipeBroken(
                        f"expected {self._path} as long as it was read, got one that ends {count - len(found)} records "
                        "earlier; put the file back, or give the new one another name"
                    )
            count -= len(found)

    def read(self, count_max: int) -> list[Decoded]:
        """As OpenFile."""
        self._refuse_other()
        self.at_end = False
        found, self._left = self._left, []
        while len(found) < count_max and not self.at_end:
            line = self._file.readline()
            if not line or (self._grows and not line.endswith(b"\n")):
                self._file.seek(self.taken)
                self.at_end = True
            else:
                self.taken += len(line)
                found += self._decoder.feed(line)
        found, self._left = found[:count_max], found[count_max:]
        self.at_end = self.at_end and not self._left
        return found

    def _refuse_other(self) -> None:
        """Raises: PipeBroken for a file that is shorter than what was read of it, or is another one by now."""
        here = os.fstat(self._file.fileno())
        try:
            there: os.stat_result | None = self._path.stat()
        except OSError:
            there = None  # removed while it is read: what was open can be read to its end
        if here.st_size < self.taken or (there is not None and self._grows and there.st_ino != here.st_ino):
            raise PipeBroken(
                f"expected {self._path} to grow, got one that is shorter than what was read of it, or another file; "
                "give each new file its own name in a folder"
            )

    def finish(self) -> list[Decoded]:
        """As OpenFile: a last line without its end, and a record without its last quote."""
        found = list(self._left)
        for line in self._file:
            self.taken += len(line)
            found += self._decoder.feed(line)
        return [*found, *self._decoder.end()]

    def close(self) -> None:
        """As OpenFile."""
        self._file.close()


class ParquetFile:
    """A Parquet file, row by row."""

    def __init__(self, path: Path, columns: Sequence[str], skip: int) -> None:
        self._pyarrow = need("pyarrow", "arrow")
        parquet = need("pyarrow.parquet", "arrow")
        self.at_end = False
        self._rows: list[dict[str, Any]] = []
        try:
            self._file = parquet.ParquetFile(path)
        except (self._pyarrow.ArrowException, OSError) as cause:
            if isinstance(cause, FileNotFoundError):
                raise
            raise BadHeader(f"expected a Parquet file, got: {str(cause)[:200]}") from cause
        checked_header(self._file.schema_arrow.names, columns)
        if skip > self._file.metadata.num_rows:
            raise PipeBroken(
                f"expected {path} with at least {skip} rows, which were read, got {self._file.metadata.num_rows}; put "
                "the file back, or give the new one another name"
            )
        self._skip = skip
        self._batches = self._file.iter_batches(batch_size=4096)

    def read(self, count_max: int) -> list[Decoded]:
        """As OpenFile."""
        while not self._rows:
            try:
                batch = next(self._batches, None)
                if batch is None:
                    self.at_end = True
                    return []
                rows = batch.slice(min(self._skip, batch.num_rows)).to_pylist()
            except (self._pyarrow.ArrowException, OSError, UnicodeDecodeError) as cause:
                raise BadHeader(f"expected rows of Parquet, got: {str(cause)[:200]}") from cause
            self._rows, self._skip = rows, max(0, self._skip - batch.num_rows)
        found, self._rows = self._rows[:count_max], self._rows[count_max:]
        return [Decoded(row, shown(msgspec.json.encode(row, enc_hook=str))) for row in found]

    def finish(self) -> list[Decoded]:
        """As OpenFile."""
        return []

    def close(self) -> None:
        """As OpenFile."""
        self._file.close()
