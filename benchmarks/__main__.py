"""python -m benchmarks [table ...] [--full] [--tiny] [--threads 2] [--out FILE]: tables in Markdown, progress on
stderr."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

TABLES = (
    "speed",
    "contention",
    "strategies",
    "store",
    "depth",
    "real",
    "quality",
)
FAMILY_TABLES = (  # `make bench-families`
    "extremes",
    "attention",
    "edge_sums",
    "edges_touched",
    "deadline",
    "demand",
    "memory",
)
SAMPLING_TABLES = (  # `make bench-sampling`
    "sampling_ingest",
    "sampling_serving",
    "sampling_ad_hoc",
    "sampling_live",
    "sampling_http",
    "sampling_cluster",
    "sampling_sizes",
    "sampling_ray",
    "sampling_staleness",
)
TEMPORAL_TABLES = (  # `make bench-temporal`
    "temporal_update",
    "temporal_blocks",
    "temporal_sampling",
    "temporal_tglite",
    "temporal_cache",
    "temporal_rounds",
    "temporal_training",
    "temporal_quality",
    "temporal_distributed",
)
SERVICE_TABLES = (  # `make bench-service`
    "service_rate",
    "service_latency",
    "service_subscribers",
    "service_recovery",
    "service_workers",
)
CLUSTER_TABLES = (  # `make bench-cluster`
    "cluster_wire",
    "cluster_time",
    "cluster_on_ray",
    "cluster_model",
    "cluster_hosts",
    "cluster_moves",
)
SETS = {
    "families": FAMILY_TABLES,
    "sampling": SAMPLING_TABLES,
    "temporal": TEMPORAL_TABLES,
    "service": SERVICE_TABLES,
    "cluster": CLUSTER_TABLES,
}
AREAS = ("sampling", "temporal", "service", "cluster")  # packages of their own


def main(arguments: list[str] | None = None) -> int:
    """0; 1 if an engine or a peer gave a wrong answer; 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="livegnn's benchmarks, with peers")
    parser.add_argument(
        "tables",
        nargs="*",
        help=f"any of {', '.join(TABLES)} (default: these); "
        + "; ".join(f"{', '.join(tables)} (`{name}`: these)" for name, tables in SETS.items()),
    )
    parser.add_argument("--full", action="store_true", help="all models, workloads and sizes (hours, 24 GiB)")
    parser.add_argument("--tiny", action="store_true", help="small graphs: tries the benchmarks, measures nothing")
    parser.add_argument("--threads", type=int, default=2, help="threads of every engine (default 2)")
    parser.add_argument("--out", type=Path, help="write the tables to this file too")
    options = parser.parse_args(arguments)
    named = [table for name in options.tables for table in SETS.get(name, (name,))]
    known = [*TABLES, *(table for tables in SETS.values() for table in tables)]
    unknown = set(named) - set(known)
    if unknown:
        parser.error(f"[benchmarks] expected tables among {', '.join(known)}, got {', '.join(sorted(unknown))}")
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(options.threads)  # before NumPy and torch are imported: they read it once
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # on shared cores torch's spinning threads slow the peers down
    return _run(named or TABLES, options)


def module_of(table: str) -> str:
    """`sampling_ingest` is benchmarks.sampling.ingest; a table without a prefix is one of the engine's."""
    area, _, rest = table.partition("_")
    return f"benchmarks.{area}.{rest}" if area in AREAS else f"benchmarks.engine.{table}"


def _command(parsed: argparse.Namespace) -> str:
    """The command line without the file that it writes."""
    flags = [flag for flag, given in (("--full", parsed.full), ("--tiny", parsed.tiny)) if given]
    return " ".join(["python -m benchmarks", *parsed.tables, *flags, f"--threads {parsed.threads}"])


def _run(tables: list[str] | tuple[str, ...], parsed: argparse.Namespace) -> int:
    from benchmarks.machine import REFERENCE, description, measure
    from benchmarks.options import Options
    from benchmarks.report import Report

    report = Report(parsed.out)
    report.title(", ".join(tables), _command(parsed), description())
    report.progress("measuring this machine")
    machine = REFERENCE if parsed.tiny else measure(parsed.threads)
    options = Options(parsed.full, parsed.tiny, parsed.threads, machine)
    try:
        for name in tables:
            importlib.import_module(module_of(name)).run(options, report)
    except KeyboardInterrupt:
        report.progress("interrupted; the tables above stand")
        return 130
    finally:
        report.close()
    report.progress("done" if not report.failures else f"{len(report.failures)} wrong answers")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
