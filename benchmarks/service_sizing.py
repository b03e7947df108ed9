"""What a deployment takes: memory, log, snapshot and start, by vertex, edge and width. docs/operations.md has it.

    python -m benchmarks.service_sizing [--quick]

Each row starts a deployment on a random graph, writes updates, closes it and starts it again; the engine's state after
that must equal the one before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import livegnn as lg
from livegnn.deployment import Registry

_BATCH, _BATCHES = 100, 100


def _model(width: int) -> lg.Model:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(width, width)), rng.normal(size=(width, width))
    return lg.Model([lg.layers.GCN(first, np.zeros(width), activation="relu"), lg.layers.GCN(second)])


def _graph(vertices: int, edges: int, width: int) -> lg.Graph:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(vertices, width)).astype(np.float32)
    return lg.Graph(features, rng.integers(0, vertices, edges), rng.integers(0, vertices, edges))


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured(vertices: int, edges: int, width: int) -> list[str]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Registry(folder / "models").add("m", _model(width))
        config = {
            "models": str(folder / "models"),
            "engine": [{"name": "e", "model": "m"}],
            "snapshots": {"at_close": False, "every_entries": 0},
        }
        with lg.Deployment(config, folder / "data", graph=lambda: _graph(vertices, edges, width)) as one:
            rng = np.random.default_rng(2)
            for _ in range(_BATCHES):
                updates = lg.Updates()
                updates.add_edges(rng.integers(0, vertices, _BATCH), rng.integers(0, vertices, _BATCH))
                one.apply(updates)
            graph, state = sum(one.graph.memory().values()), sum(one.engine("e").state_bytes().values())
            digest, snapshot = one.engine("e").state_digest(), one.snapshot().folder
            written = _bytes(snapshot)
        log = sum(path.stat().st_size for path in (folder / "data").glob("history.db*"))
        begin = time.perf_counter()
        with lg.Deployment(config, folder / "data") as again:
            seconds = time.perf_counter() - begin
            if again.engine("e").state_digest() != digest:
                raise SystemExit("expected the same state after a start, got another")
    sizes = (graph, state, written, log / (_BATCH * _BATCHES))
    graph_mb, state_mb, snapshot_mb = (f"{size / 1e6:,.0f}" for size in sizes[:3])
    return [
        f"{vertices:,}",
        f"{edges:,}",
        str(width),
        graph_mb,
        state_mb,
        snapshot_mb,
        f"{sizes[3]:.0f}",
        f"{seconds:.1f}",
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small graphs")
    small = parser.parse_args().quick
    scale = 100 if small else 1
    rows = [(100_000, 1_000_000, 16), (100_000, 1_000_000, 64), (100_000, 5_000_000, 16), (500_000, 1_000_000, 16)]
    heads = ["vertices", "edges", "width", "graph MB", "engine MB", "snapshot MB", "log bytes an update", "start s"]
    lines = [heads, ["---"] * len(heads), *(measured(v // scale, e // scale, width) for v, e, width in rows)]
    sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))


if __name__ == "__main__":
    main()
