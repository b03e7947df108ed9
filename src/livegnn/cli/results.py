"""Predictions written to Parquet or CSV as they come; beside the target first, renamed when complete.

Columns: version int64, vertex (int64 or string), prediction (int64 class, or float32 probability), then y0, y1, ... if
outputs are asked for.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from livegnn.errors import DtypeInvalid
from livegnn.extras import need


class ResultFile:
    """A context manager; `finish` makes the file appear, leaving without it discards what was written.

    Raises:   DtypeInvalid for a suffix other than .parquet and .csv.
    """

    def __init__(self, path: Path, *, outputs: bool) -> None:
        if path.suffix.lower() not in (".parquet", ".csv"):
            raise DtypeInvalid(f"[{path}] expected .parquet or .csv, got {path.suffix or 'no suffix'!r}; rename --out")
        self._path = path
        self._beside = path.with_name(path.name + ".part")
        self._outputs = outputs
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

    def add(self, version: int, ids: npt.NDArray[Any], engine: Any) -> None:
        """Appends the engine's present predictions of `ids` under `version`."""
        if len(ids) == 0:
            return
        asked = ids if ids.dtype.kind == "i" else ids.tolist()
        columns: dict[str, npt.NDArray[Any]] = {
            "version": np.full(len(ids), version, dtype=np.int64),
            "vertex": ids,
            "prediction": np.asarray(engine.predict(asked)),
        }
        if self._outputs:
            rows = np.asarray(engine.embeddings(asked))
            columns |= {f"y{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])}
        self._rows += len(ids)
        if self._path.suffix.lower() == ".parquet":
            self._add_parquet(columns)
        else:
            self._add_csv(columns)

    def finish(self) -> int:
        """Makes the file appear; returns its number of rows."""
        if self._rows == 0:
            self._beside.write_text("version,vertex,prediction\n" if self._path.suffix.lower() == ".csv" else "")
        self._close()
        os.replace(self._beside, self._path)
        return self._rows

    def _add_parquet(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        table = need("pyarrow", "arrow").table(columns)
        if self._parquet is None:
            self._parquet = need("pyarrow.parquet", "arrow").ParquetWriter(self._beside, table.schema)
        self._parquet.write_table(table)

    def _add_csv(self, columns: dict[str, npt.NDArray[Any]]) -> None:
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
