"""Lines of CSV and JSON as records. A decoder is fed line by line, so that it reads a file that grows, and a pipe."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

_QUOTED_LINES_MAX = 100  # that one record of CSV may have
_TEXT_MAX = 1 << 16  # of a record in the dead letters


class Decoded(NamedTuple):
    """One record: its values, or why there are none."""

    values: Mapping[str, Any] | None
    text: str
    fault: str = ""


class BadHeader(Exception):
    """The first line does not name the columns."""


class LineDecoder(Protocol):
    """Makes records of lines."""

    def feed(self, line: bytes) -> list[Decoded]:
        """The records that a line completes. Raises: BadHeader."""

    def end(self) -> list[Decoded]:
        """What was left incomplete."""


class JsonRecords:
    """One JSON object a line; blank lines are none."""

    def feed(self, line: bytes) -> list[Decoded]:
        """As LineDecoder."""
        text = line.strip()
        return [decoded_json(text)] if text else []

    def end(self) -> list[Decoded]:
        """Nothing: a line is a record."""
        return []


class CsvLines:
    """CSV with a header. A quoted cell may go over several lines.  columns: that the header must have."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._header: list[str] | None = None
        self._pending: list[str] = []

    def feed(self, line: bytes) -> list[Decoded]:
        """As LineDecoder."""
        try:
            text = line.decode("utf-8" if self._header else "utf-8-sig")
        except UnicodeDecodeError as cause:
            if self._header is None:
                raise BadHeader(f"expected a header in UTF-8, got: {cause}") from cause
            left = self._given_up()
            return [*left, Decoded(None, shown(line), "expected text in UTF-8, got other bytes")]
        if not self._pending and not text.strip():
            return []
        self._pending.append(text)
        try:
            rows = list(csv.reader(self._pending, strict=True))
        except csv.Error as cause:
            if "unexpected end" in str(cause) and len(self._pending) < _QUOTED_LINES_MAX:
                return []  # a quoted cell goes on
            return self._given_up()
        text, self._pending = "".join(self._pending), []
        return [one for row in rows for one in self._record(row, text)]

    def end(self) -> list[Decoded]:
        """As LineDecoder."""
        found: list[Decoded] = []
        while self._pending:
            found += self._given_up()
        return found

    def _given_up(self) -> list[Decoded]:
        """The first pending line is bad; those after it are read anew."""
        if not self._pending:
            return []
        first, rest = self._pending[0], self._pending[1:]
        self._pending = []
        if self._header is None:
            raise BadHeader(f"expected a header of column names, got {first[:80]!r}")
        found = [
            Decoded(None, shown(first), "expected a row of CSV, got a quote that is not closed, or text after one")
        ]
        for each in rest:
            found += self.feed(each.encode())
        return found

    def _record(self, row: list[str], text: str) -> list[Decoded]:
        cells = [cell.strip() for cell in row]
        if self._header is None:
            self._header = checked_header(cells, self._columns)
            return []
        if len(cells) != len(self._header):
            return [Decoded(None, shown(text), f"expected {len(self._header)} columns, got {len(cells)}")]
        return [Decoded(dict(zip(self._header, cells, strict=True)), shown(text))]


def checked_header(names: Sequence[str], needed: Sequence[str]) -> list[str]:
    """Names of columns. Raises: BadHeader where one is there twice, or one that the rules read is not there."""
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise BadHeader(f"expected each column once, got {twice[0]!r} again")
    for name in needed:
        if name not in names:
            raise BadHeader(f"expected a column {name!r}, got {', '.join(names) or 'none'}")
    return list(names)


def decoded_json(text: bytes | None) -> Decoded:
    """A record in JSON, which is an object."""
    if text is None:
        return Decoded(None, "", "expected a JSON object, got no value")
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        got = str(cause).removeprefix("JSON is malformed: ")
        return Decoded(None, shown(text), f"expected a JSON object, got malformed JSON: {got}")
    if not isinstance(found, dict):
        return Decoded(None, shown(text), f"expected a JSON object, got {type(found).__name__}")
    return Decoded(found, shown(text))


def shown(text: bytes | str) -> str:
    """A record as the dead letters hold it."""
    plain = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
    return plain.rstrip("\r\n")[:_TEXT_MAX]
