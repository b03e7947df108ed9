"""The exact prototype: a C++ program of one fixed model (two layers of GraphConv, sums in int64), without checks and
without an interface. It shows what this machine allows, and is not part of this repository.

Found in $LIVEGNN_PROTOTYPE, else in shared/prototype next to the repository; compiled by g++ into build/prototype, for
AVX-512 alone. It applies a run of batches in one call and times each batch itself, so that no Python is counted.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.engine.networks import layer_weights, network
from benchmarks.engine.runs import Played, Run, Source, ids_compared, restoring
from benchmarks.engine.stream import ADD, FEATURES, REMOVE, Batch
from benchmarks.worker import ROOT

NAME = "prototype"
KIND, HIDDEN = "graphconv", (64, 256)
_FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-shared", "-fPIC", "-std=c++17")
_NEEDED = {"avx512f", "avx512dq", "avx512bw", "avx512vl"}

Doubles = npt.NDArray[np.float64]


def built() -> tuple[Path | None, str]:
    """(the compiled library, ""), or (None, why there is none).   Raises: RuntimeError with what the compiler said."""
    given = os.environ.get("LIVEGNN_PROTOTYPE")
    source = (Path(given) if given else ROOT.parent / "shared" / "prototype") / "exact.cpp"
    if not source.exists():
        return None, "its source is not at hand (LIVEGNN_PROTOTYPE names its folder)"
    if not _processor_flags() >= _NEEDED:
        return None, "this machine has no AVX-512"
    compiler = shutil.which("g++")
    if compiler is None:
        return None, "g++ is not at hand"
    library = ROOT / "build" / "prototype" / "libexact.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, *_FLAGS, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"[prototype] expected {' '.join(command)} to succeed, got {done.stderr[-2000:]}")
    return library, ""


def fits(kind: str, hidden: tuple[int, ...]) -> bool:
    """Whether the prototype's fixed model is this one."""
    return kind == KIND and len(hidden) == 1 and hidden[0] in HIDDEN


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return {flag for line in lines if line.startswith("flags") for flag in line.split(":", 1)[1].split()}


class Prototype:
    """The library's engine, at the snapshot."""

    def __init__(self, library: str, source: Source, hidden: int, threads: int) -> None:
        self.work = work = source()
        self.ids = ids_compared(work)
        widths = [work.features.shape[1], hidden, work.classes]
        weights = [
            np.ascontiguousarray(tensor.numpy())
            for layer in layer_weights(KIND, network(KIND, widths))
            for tensor in (layer.bias, layer.neighbour, layer.self_term)
            if tensor is not None
        ]
        bias1, neighbour1, self1, bias2, neighbour2, self2 = map(_pointer, weights)
        self._library = ctypes.CDLL(library)
        self._library.probe_new.restype = ctypes.c_void_p
        src, dst = np.ascontiguousarray(work.src), np.ascontiguousarray(work.dst)
        counts = work.vertices, *widths, ctypes.c_long(len(src))
        graph = _pointer(src), _pointer(dst), _pointer(work.features)
        layers = bias1, bias2, neighbour1, self1, neighbour2, self2
        self._engine = ctypes.c_void_p(self._library.probe_new(*counts, *graph, *layers, threads))

    def play(self, run: Run, limit_s: float) -> Played:
        """The run, whole: limit_s is for slower engines. Then back to the snapshot."""
        self._apply(run.start, run.middle, run.size)
        seconds = self._apply(run.middle, run.stop, run.size)
        rows = np.empty((self.work.vertices, self.work.classes), np.float32)
        self._library.probe_out(self._engine, _pointer(rows))
        self._apply_batch(restoring(self.work, run.start, run.stop))
        return Played(seconds, rows[self.ids])

    def _apply(self, start: int, stop: int, size: int) -> Doubles:
        """Seconds of each batch."""
        stream = self.work.stream
        index = stream.row_index[start:stop]
        rows = stream.rows[index[index >= 0]]
        return self._run(stream.op[start:stop], stream.u[start:stop], stream.v[start:stop], rows, size)

    def _apply_batch(self, batch: Batch) -> None:
        counts = len(batch.add_src), len(batch.remove_src), len(batch.feature_ids)
        op = np.repeat(np.array([ADD, REMOVE, FEATURES], np.int8), counts)
        u = np.concatenate([batch.add_src, batch.remove_src, batch.feature_ids])
        v = np.concatenate([batch.add_dst, batch.remove_dst, np.zeros_like(batch.feature_ids)])
        self._run(op, u, v, batch.feature_rows, len(op))

    def _run(
        self, op: npt.NDArray[np.int8], u: npt.NDArray[np.int32], v: npt.NDArray[np.int32], rows: object, size: int
    ) -> Doubles:
        count = len(op) // size
        arrays = (
            np.ascontiguousarray(op, np.int8),
            np.ascontiguousarray(u, np.int32),
            np.ascontiguousarray(v, np.int32),
            np.ascontiguousarray(rows, np.float32),
        )
        seconds, counts = np.zeros(count), np.zeros((count, 4))
        pointers = [_pointer(array) for array in arrays]
        self._library.probe_run(self._engine, *pointers, size, count, _pointer(seconds), _pointer(counts))
        return seconds


def _pointer(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
