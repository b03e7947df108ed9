"""How a vertex's edges are cut into blocks: length of the lists, bytes, and how fast samples come out of them.

GNNFlow's Table 6 and Figure 12 on streams of GDELT's and Netflix's shape, injected 100,000 events a batch: a linked
list of edges, a block a batch, blocks of one size, blocks of min(degree, tau), livegnn's own store, and one array made
when everything is known. All policies are one C++ program (benchmarks/native/block_policies.cc) and one thread; the
newest samples must be the same ones.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.generate import EVENT_SHAPES, EventShape, event_chunks
from benchmarks.native_peers import program
from benchmarks.options import Options
from benchmarks.report import Report, rate, size

BATCH = 100_000
FANOUT = 10


@dataclass(frozen=True)
class Setting:
    """A stream, and the sizes that the paper's grid search found for it."""

    shape: str
    fixed: int
    tau: int
    events: int  # by default
    events_full: int
    targets: int  # by default; fewer of a longer stream, whose lists are longer
    vertices_scaled: bool  # by default fewer vertices, so that degrees are those of the whole


SETTINGS = (
    Setting(
        "gdelt-like",
        fixed=1024,
        tau=8192,
        events=5_000_000,
        events_full=50_000_000,
        targets=20_000,
        vertices_scaled=False,
    ),
    Setting(
        "netflix-like",
        fixed=48,
        tau=48,
        events=5_000_000,
        events_full=20_000_000,
        targets=100_000,
        vertices_scaled=True,
    ),
)


def run(options: Options, report: Report) -> None:
    """A table a stream, a row a policy."""
    policies = program("block_policies", report)
    if policies is None:
        return
    for setting in SETTINGS:
        shape = _scaled(EVENT_SHAPES[setting.shape], setting, options)
        batch = BATCH if not options.tiny else 2_000
        report.heading(
            f"Blocks, {setting.shape}: {shape.vertices:,} vertices, {shape.events:,} events, batches of {batch:,}"
        )
        report.progress(f"temporal_blocks: {setting.shape}, {shape.events:,} events")
        rows = _measured(policies, shape, setting, batch, options)
        _check(rows, setting, report)
        _table(rows, shape.events, report)


def _scaled(shape: EventShape, setting: Setting, options: Options) -> EventShape:
    if options.tiny:
        return replace(shape, vertices=500, events=20_000)
    if options.full:
        return replace(shape, events=setting.events_full)
    share = setting.events / setting.events_full if setting.vertices_scaled else 1.0
    return replace(shape, vertices=int(shape.vertices * share), events=setting.events)


def _measured(
    policies: Path, shape: EventShape, setting: Setting, batch: int, options: Options
) -> list[dict[str, Any]]:
    """Writes the stream and the targets (events' ends at their own times, from the later half), runs the program."""
    rng = np.random.default_rng(5)
    targets = 500 if options.tiny else setting.targets * setting.events // shape.events
    wanted = np.sort(rng.integers(shape.events // 2, shape.events, targets))
    found, first = [], 0
    with tempfile.TemporaryDirectory() as folder:
        events, asked = Path(folder) / "events", Path(folder) / "targets"
        with events.open("wb") as file:
            for chunk in event_chunks(shape, 3):
                np.stack(chunk, axis=1).tofile(file)
                rows = wanted[(wanted >= first) & (wanted < first + len(chunk.src))] - first
                found.append(np.stack([chunk.dst[rows], chunk.time[rows]], axis=1))
                first += len(chunk.src)
        rng.permutation(np.concatenate(found)).tofile(asked)
        numbers = (shape.vertices, batch, setting.fixed, setting.tau, FANOUT)
        command = [str(policies), str(events), str(asked), *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows_: list[dict[str, Any]] = json.loads(done.stdout)
    return rows_


def _check(rows: list[dict[str, Any]], setting: Setting, report: Report) -> None:
    static = next(row for row in rows if row["policy"] == "static array")
    for row in rows:
        for name in ("recent_sum", "recent_count", "uniform_count"):
            if row[name] != static[name]:
                report.fail(f"[{setting.shape}] {row['policy']}: expected {name} {static[name]}, got {row[name]}")
        if row["late"]:
            report.fail(
                f"[{setting.shape}] {row['policy']}: expected edges before the target, got {row['late']} others"
            )


def _table(rows: list[dict[str, Any]], events: int, report: Report) -> None:
    static = next(row for row in rows if row["policy"] == "static array")
    report.columns(
        (
            "policy",
            "list length, mean",
            "max",
            "edge data",
            "of it waste",
            "metadata",
            "recent",
            "uniform",
            "injected/s",
        )
    )
    for row in rows:
        recent, uniform = (static[f"{kind}_seconds"] / row[f"{kind}_seconds"] for kind in ("recent", "uniform"))
        waste = f"{row['waste_bytes'] / row['edge_bytes']:.1%}"
        bytes_ = (size(row["edge_bytes"]), waste, size(row["metadata_bytes"]))
        speeds = (f"{recent:.2f}", f"{uniform:.3g}", rate(events / row["inject_seconds"]))
        report.row((row["policy"], f"{row['length_mean']:.2f}", f"{row['length_max']:,}", *bytes_, *speeds))
    by = [rate(static[f"{kind}_count"] / static[f"{kind}_seconds"]) for kind in ("recent", "uniform")]
    report.line(
        f"\nrecent, uniform: samples of {FANOUT} edges a second over those of the static array ({by[0]} and {by[1]} "
        "edges/s); one direction, 20 bytes a place, one thread. Lists of vertices without edges count as 0 blocks."
    )
