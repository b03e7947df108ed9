"""The same table on real streams: two-hop neighbourhoods of real graphs differ from those of generated ones."""

from __future__ import annotations

from functools import partial

from benchmarks.engine.process_contest import updates_needed
from benchmarks.engine.real_graphs import MORE_NAMES, NAMES, real_workload
from benchmarks.engine.speed import Entry, head, run_contest
from benchmarks.options import Options
from benchmarks.report import Report
from livegnn.errors import DataMissing

DENSE = ("tags_math_sx",)  # a post changes its tags, and a tag all its posts: up to half of the graph


def run(options: Options, report: Report) -> None:
    """Rows for every real graph at hand; one that is not is named and left out."""
    report.heading("Real streams: updates per second, two layers, exact")
    library = head(options.machine, report)
    names = NAMES[:1] if options.tiny else NAMES + MORE_NAMES if options.full else NAMES
    kinds = ("graphconv", "gcn", "sage", "gin") if options.full else ("graphconv",)
    notes = []
    for name in names:
        for kind in kinds:
            entry = Entry(name, kind, dense=name in DENSE, latency_batches=100 if name in DENSE else 1000)
            length = updates_needed(entry.shapes(options.tiny), entry.latency_batches)
            try:
                note = run_contest(entry, partial(real_workload, name, length), library, options, report)
            except DataMissing as missing:
                notes.append(f"- {name} left out: {missing}")
                break
            notes.append(note)
    report.line()
    for note in notes:
        report.line(note)
