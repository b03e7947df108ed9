"""Sizes that follow load, in a model of workers (load_model.py): what skew costs an even map, what moving hot buckets
brings back (as in Helios, Figures 13 and 14), and a day of load with a fixed size and with one that follows.
"""

from __future__ import annotations

from benchmarks.options import Options
from benchmarks.report import Report, rate
from benchmarks.sampling.load_model import (
    SAMPLED,
    SERVED,
    bucket_shares,
    day,
    levelled_owners,
    levelled_serving,
    sampling_rate,
    serve,
)
from livegnn.sampling import even_owners, even_serving
from livegnn.sampling.cluster.sizes import SizeRules, serving_loads

SKEWS = (0.0, 0.9, 1.1)


def run(options: Options, report: Report) -> None:
    """Two tables; seconds."""
    report.heading("Scale-out under skew: the k-th most asked vertex has k^-s of the load")
    report.columns(
        (
            "s",
            "workers",
            "records/s, even map",
            "records/s, hot buckets moved",
            "queries/s, even map",
            "queries/s, moved",
        )
    )
    for skew in SKEWS[1:]:
        shares = bucket_shares(skew)
        for workers in (1, 2, 4):
            cuts = (even_owners(workers), levelled_owners(workers, shares))
            records = [sampling_rate(each, shares) for each in cuts]
            maps = (even_serving(workers), levelled_serving(workers, shares))
            queries = [SERVED / max(serving_loads(each, shares).values()) for each in maps]
            report.row([skew, workers, *map(rate, records), *map(rate, queries)])
            if min(records[-1] / SAMPLED, queries[-1] / SERVED) < 0.95 * workers:
                report.fail(f"[sampling_sizes] expected {workers} workers to scale out under skew {skew}, got less")
    report.heading("A day: 2,400 queries a second, then 9,600 with other hot vertices half-way, then 2,400")
    report.columns(("s", "workers", "most", "on average", "p50 ms", "p99 ms", "changes of the map"))
    for skew in SKEWS:
        rates, shares_at = day(skew)
        for name, first, rules in (
            ("4, fixed", even_serving(4), None),
            ("following", even_serving(1), SizeRules(serving_max=6)),
        ):
            served = serve(rates, shares_at, first, rules)
            mean = served.worker_looks / len(rates)
            waits = [f"{served.percentile(share):.1f}" for share in (0.5, 0.99)]
            report.row([skew, name, served.workers_most, f"{mean:.1f}", *waits, len(served.changes)])
