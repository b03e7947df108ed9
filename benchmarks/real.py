"""The same table on real streams: two-hop neighbourhoods of real graphs differ from those of generated ones."""

from __future__ import annotations

from benchmarks.options import Options
from benchmarks.real_graphs import MORE_NAMES, NAMES, real_workload
from benchmarks.report import Report
from benchmarks.speed import COLUMNS, SIZES, Entry, machine_line, run_contest
from benchmarks.turns import updates_needed
from livegnn.errors import DataMissing

SHORT = ("tags_math_sx",)  # a post changes its tags, and a tag all its posts: up to half of the graph


def run(options: Options, report: Report) -> None:
    """Rows for every real graph at hand; one that is not is named and left out."""
    report.heading("Real streams: updates per second, two layers, exact")
    report.line(machine_line(options.machine))
    report.columns(COLUMNS)
    names = NAMES[:1] if options.tiny else NAMES + MORE_NAMES if options.full else NAMES
    kinds = ("graphconv", "gcn", "sage", "gin") if options.full else ("graphconv",)
    notes = []
    for name in names:
        for kind in kinds:
            entry = Entry(name, kind, budget_s=2.5, short=name in SHORT, latency_batches=100 if name in SHORT else 1000)
            report.progress(f"{name}, {kind}: loading and starting")
            try:
                work = real_workload(name, updates_needed(SIZES, entry.latency_batches))
            except DataMissing as missing:
                notes.append(f"- {name} left out: {missing}")
                break
            notes.append(run_contest(entry, work, options, report))
    report.line()
    for note in notes:
        report.line(note)
