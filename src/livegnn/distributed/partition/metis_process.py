"""METIS in a process of its own. pymetis holds the interpreter's lock, so a service would stand still meanwhile.

The process runs this file, and imports nothing of livegnn. It reads arrays as .npy, one after the other: (4,) int64
with the number of parts, 1 for bisection, seed and ufactor; then what METIS calls xadj, adjncy, vwgt and adjwgt. It
writes the part of each vertex, likewise.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from livegnn.types import AnyArray

_ARRAYS = 5


def cut_here(given: Sequence[AnyArray]) -> AnyArray:
    """The part of each vertex. given: as above."""
    pymetis: Any = import_module("pymetis")
    (count, recursive, seed, ufactor), starts, neighbours, weights, edge_weights = given
    found = pymetis.part_graph(
        int(count),
        pymetis.CSRAdjacency(starts, neighbours),
        vweights=weights,
        eweights=edge_weights,
        recursive=bool(recursive),
        options=pymetis.Options(seed=int(seed), ufactor=int(ufactor)),
    )
    return np.asarray(found[1])


def cut_aside(given: Sequence[AnyArray]) -> AnyArray:
    """The same, by another process. Raises: subprocess.CalledProcessError where it fails."""
    sent = io.BytesIO()
    for array in given:
        np.save(sent, array, allow_pickle=False)
    path = os.pathsep.join(each for each in sys.path if each)
    process = subprocess.run(
        [sys.executable, "-P", __file__],
        input=sent.getbuffer(),
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        check=True,
    )
    found: AnyArray = np.load(io.BytesIO(process.stdout), allow_pickle=False)
    return found


def _serve() -> None:
    received, sent = io.BytesIO(sys.stdin.buffer.read()), io.BytesIO()
    np.save(sent, cut_here([np.load(received, allow_pickle=False) for _ in range(_ARRAYS)]), allow_pickle=False)
    sys.stdout.buffer.write(sent.getbuffer())


if __name__ == "__main__":
    _serve()
