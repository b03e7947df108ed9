"""TGLite's native sampler (ADAPT-uiuc/tglite), called as its TSampler calls it, over a static graph.

$LIVEGNN_TGLITE names the folder that its build has filled: `python setup.py build_ext --build-lib FOLDER` in a checkout
(with -std=c++20 where torch's headers ask for it). Ids are int32 and times float32.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def built() -> Path | None:
    """Its compiled module; None where there is none."""
    folder = os.environ.get("LIVEGNN_TGLITE")
    found = sorted(Path(folder).glob("**/_c*.so")) if folder else []
    return found[0] if found else None


class TgliteGraph:
    """An undirected graph in its CSR, and a sampler of it."""

    def __init__(self, module: Path, vertices: int, src: Int64, dst: Int64, times: Int64) -> None:
        import torch  # noqa: F401  the module links its libraries

        if times.max() >= 1 << 24:
            raise ValueError("[tglite] expected times that float32 holds, below 2^24, got larger ones; shift them")
        spec = importlib.util.spec_from_file_location("_c", module)
        if spec is None or spec.loader is None:
            raise ValueError(f"[tglite] expected a compiled module, got {module}; build it again")
        self._native: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._native)
        edges = np.ascontiguousarray(np.stack([src, dst], axis=1).astype(np.int32))
        self._csr = self._native.create_tcsr(edges, times.astype(np.float32), vertices)

    def sampler(self, fanout: int, strategy: str, threads: int) -> Any:
        """sample(vertices, times) gives the rows of the targets, their neighbours, edge ids and times."""
        native = self._native.TemporalSampler(threads, fanout, strategy == "recent")

        def sample(vertices: npt.NDArray[np.int32], times: npt.NDArray[np.float32]) -> tuple[Any, Any, Any, Any]:
            block = native.sample(self._csr, vertices, times)
            return block.copy_dstindex(), block.copy_srcnodes(), block.copy_eid(), block.copy_ets()

        return sample
