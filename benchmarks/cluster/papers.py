"""What the cost model says of ogbn-papers100M on RIPPLE's cluster (section 7.4): 16 machines of 10 Gb/s.

Assumptions:
- The workload whose degrees are nearest stands for Papers; a third of the updates changes features, the rest edges.
  Work, rows and bytes of an update grow with the edges that it reaches over two hops (reach()), RC's with the length of
  in-neighbour lists once more. Skew and the share of edges that METIS cuts are as measured.
- A thousand updates in 111M vertices meet as seldom as one or two in the measured graph: an update sends what single
  ones do. Computing an edge takes what it takes in batches of 1000, on one thread; caches are as good.
- Of its vertices as many have copies on other machines as of the measured graph's in so many parts.
- A round takes 0.1 ms, bytes are spread evenly over machines, and a row's bytes grow with its width.
- Each machine reads the whole batch, and one machine hands out all copies.
- RC computes no faster than memory gives it the rows that it reads, all threads of this machine at work in each.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.cluster.baselines import row_bytes
from benchmarks.cluster.fit import CostModel
from benchmarks.engine.generate import SHAPES
from benchmarks.options import Options
from benchmarks.report import Report, duration, rate, size

MACHINES, BATCH = 16, 1000
BANDWIDTH = 10e9 / 8  # bytes a second, each way
LATENCY = 100e-6  # of a round
RC_ROUNDS = 4  # for each layer: ids, then rows
VERTICES, EDGES, WIDTHS = 111e6, 1.62e9, [128, 256, 172]
COLUMNS = ("graph", "per batch", "RC", "livegnn", "RC over livegnn", "RIPPLE's Figure 12")


class PerUpdate(NamedTuple):
    """Of single updates at 16 parts. boundary: copies in them.  edges, bytes: ours.  rc: rows by layer.  pulled:
    in-edges that RC reads, by layer.
    """

    boundary: int
    edges: float
    bytes: float
    rc: list[float]
    pulled: list[float]


class Basis(NamedTuple):
    """What was measured. errors: of seconds and of bytes.  edges: of a batch of 1000, in one part."""

    name: str
    model: CostModel
    errors: tuple[float, float]
    edges: float
    rounds: float
    singles: PerUpdate


def predict(basis: Basis, options: Options, report: Report) -> None:
    """Two graphs: half of the edges, as RIPPLE starts with, and all."""
    report.heading("Papers on 16 machines, batches of 1000, two layers of SAGE (mean): predicted, not measured")
    report.columns(COLUMNS)
    for label, share in (("half of the edges, as RIPPLE's", 0.5), ("all edges", 1.0)):
        for row in _rows(basis, share, options.machine.bytes_per_s):
            report.row([label, *row])
    report.line(f"\nErrors are the largest of the fit's, on {basis.name}; those of the assumptions are not in them.")


def _rows(basis: Basis, share: float, memory_bytes_per_s: float) -> list[list[str]]:
    shape, singles = SHAPES[basis.name], basis.singles
    degree = 0.9 * shape.edges / shape.vertices  # of the snapshot
    longer = share * EDGES / VERTICES / degree
    grown = BATCH * reach(longer, degree)
    sent = singles.bytes * grown * WIDTHS[2] / shape.classes
    compute = basis.model.compute(MACHINES, singles.boundary) * singles.edges * grown / basis.edges
    swapped = basis.rounds * LATENCY + sent / MACHINES / BANDWIDTH
    handed_out = MACHINES * BATCH / 3 * (4 * WIDTHS[0] + 2 * 16) / BANDWIDTH
    pulled = row_bytes([round(rows * grown * longer) for rows in singles.rc], WIDTHS)
    rc_swapped = RC_ROUNDS * LATENCY + pulled / MACHINES / BANDWIDTH
    read = row_bytes([round(edges * grown * longer) for edges in singles.pulled], WIDTHS)
    rc_compute = read / MACHINES / memory_bytes_per_s
    ours, rc = compute + swapped + handed_out, rc_compute + rc_swapped
    seconds_off, bytes_off = basis.errors
    of_bytes = bytes_off * (swapped - basis.rounds * LATENCY)
    off = (seconds_off * compute + of_bytes) / ours
    return [
        ["bytes of all machines, batches left out", size(pulled), size(sent), f"{rate(pulled / sent)}x", "-"],
        [
            "communication",
            duration(rc_swapped),
            f"{duration(swapped)} +- {of_bytes / swapped:.0%}",
            f"{rate(rc_swapped / swapped)}x",
            "about 70x",
        ],
        ["handing batches out", "-", duration(handed_out), "-", "-"],
        [
            "compute",
            f"at least {duration(rc_compute)}",
            f"{duration(compute)} +- {seconds_off:.0%}",
            f"at least {rate(rc_compute / compute)}x",
            "-",
        ],
        ["all", f"at least {duration(rc)}", f"{duration(ours)} +- {off:.0%}", f"{rate(rc / ours)}x", "about 30x"],
        ["updates a second", f"at most {rate(BATCH / rc)}", rate(BATCH / ours), "-", "-"],
    ]


def reach(longer: float, degree: float) -> float:
    """How many times more edges an update reaches over two hops where degrees are `longer` times as long.

    A change of features reaches d + d^2 edges, one of an edge 1 + d.
    """

    def edges(d: float) -> float:
        return (d + d * d) / 3 + 2 * (1 + d) / 3

    return edges(degree * longer) / edges(degree)
