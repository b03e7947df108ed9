"""Where real graphs lie, and how their files are read.

Strategy: look in `$LIVEGNN_DATA`, else in `../shared/data` next to the checkout that holds the working directory or
this file, walking upwards.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from livegnn.errors import DataMissing

Int64 = npt.NDArray[np.int64]
Int8 = npt.NDArray[np.int8]
Float32 = npt.NDArray[np.float32]
Arrays = dict[str, npt.NDArray[np.generic]]


def _candidates() -> list[Path]:
    set_by_user = os.environ.get("LIVEGNN_DATA")
    if set_by_user:
        return [Path(set_by_user)]
    found: list[Path] = []
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / ".git").exists() or (folder / "pyproject.toml").exists():
                found.append(folder.parent / "shared" / "data")
                break
    return list(dict.fromkeys(found))


def data_folder() -> Path:
    """The folder of the real data.

    Raises:   DataMissing, naming every folder looked in.
    """
    looked = _candidates()
    for folder in looked:
        if folder.is_dir():
            return folder
    where = ", ".join(str(folder) for folder in looked) or "no checkout around the working directory"
    raise DataMissing(
        f"[datasets] expected a folder of graphs, got none (looked in: {where}); set LIVEGNN_DATA to the folder"
    )


def read(name: str, file: str) -> Arrays:
    """The arrays of one file of a data set. Raises: DataMissing."""
    path = data_folder() / name / file
    if not path.is_file():
        raise DataMissing(
            f"[datasets] expected {path}, got no such file; set LIVEGNN_DATA to a folder with {name}/{file}"
        )
    with np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def int64(values: npt.NDArray[np.generic]) -> Int64:
    """Contiguous int64."""
    return np.ascontiguousarray(values, dtype=np.int64)


def int8(values: npt.NDArray[np.generic]) -> Int8:
    """int8."""
    return np.asarray(values, dtype=np.int8)


def float32(values: npt.NDArray[np.generic]) -> Float32:
    """Contiguous float32."""
    return np.ascontiguousarray(values, dtype=np.float32)
