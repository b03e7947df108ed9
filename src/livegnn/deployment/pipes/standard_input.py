"""Standard input as a source: lines, read in a thread of its own, since a read of a pipe cannot be ended.

place = { "stdin": lines that were read, over all starts }. Lines that have been read are gone, so a new start goes on
with what comes then; with `repeats` it gets the same lines again, and leaves out as many as the log has.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from livegnn.deployment.config_pipes import SourceConfig
from livegnn.deployment.pipes.lines import BadHeader, CsvLines, Decoded, JsonRecords, LineDecoder
from livegnn.deployment.pipes.records import Lag, PipeBroken, SourceRecord

_PART = "stdin"
_WAITING_MAX = 1000  # pieces
_PIECE = 256  # lines


class StdinReader:
    """The records of standard input, or of another stream of bytes."""

    def __init__(
        self, config: SourceConfig, place: Mapping[str, int], columns: Sequence[str], stream: BinaryIO | None = None
    ) -> None:
        decoder: LineDecoder = CsvLines(columns) if config.format == "csv" else JsonRecords()
        self._place = place.get(_PART, 0)
        self._skip = self._place if config.repeats else 0
        self._queue: queue.Queue[list[Decoded] | Exception | None] = queue.Queue(_WAITING_MAX)
        self._left: list[Decoded] = []
        self.is_ended = False
        stream = sys.stdin.buffer if stream is None else stream
        threading.Thread(target=self._read, args=(stream, decoder), name="livegnn-stdin", daemon=True).start()

    def _read(self, stream: BinaryIO, decoder: LineDecoder) -> None:
        try:
            piece: list[Decoded] = []
            for line in stream:
                piece += decoder.feed(line)
                if len(piece) >= _PIECE or self._queue.empty():
                    self._queue.put(piece)
                    piece = []
            self._queue.put([*piece, *decoder.end()])
            self._queue.put(None)
        except Exception as cause:
            self._queue.put(cause)

    def read(self, count_max: int, wait_s: float) -> list[SourceRecord]:
        """As Reader."""
        deadline = time.monotonic() + wait_s
        while not self._left and not self.is_ended:
            try:
                piece = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return []
            if isinstance(piece, BadHeader):
                raise PipeBroken(f"standard input: {piece}; start again with a header") from piece
            if isinstance(piece, Exception):
                raise PipeBroken(f"standard input: {piece}") from piece
            self.is_ended = piece is None
            skipped = min(self._skip, len(piece or ()))
            self._skip -= skipped
            self._left = (piece or [])[skipped:]
        found, self._left = self._left[:count_max], self._left[count_max:]
        records = [SourceRecord(_PART, place, *one) for place, one in enumerate(found, self._place + 1)]
        self._place += len(records)
        return records

    def lag(self) -> Lag | None:
        """Not known of a pipe."""
        return None

    def close(self) -> None:
        """Its thread ends with the process, or the stream."""
