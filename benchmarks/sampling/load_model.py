"""A model of workers under skewed load, without clock or processes: what following it gains, and whether it rests.

A serving worker answers `SERVED` seeds a second, one after another; what comes faster waits in its queue. A new map
holds after some looks, as new owners are filled first. A step of sampling workers takes as long as the slowest one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from livegnn import _native
from livegnn.sampling.cluster.partition import Owners, Serving, even_owners, even_serving, workers_in
from livegnn.sampling.cluster.sizes import Sizer, SizeRules, serving_loads

SERVED = 4000.0  # queries a second of a worker: Helios, section 1
SAMPLED = 1.49e6  # records a second of a worker: Helios, section 1
TICKS, TICK_SECONDS = 100, 0.01  # of one look
FILL_LOOKS = 2  # until new owners have what they need
VERTICES = 100_000

Float64 = npt.NDArray[np.float64]


def bucket_shares(exponent: float, seed: int = 0) -> Float64:
    """What share of the load each bucket has, if the k-th most asked vertex has k ** -exponent."""
    ids = np.random.default_rng(seed).permutation(VERTICES)
    weights = np.arange(1, VERTICES + 1, dtype=np.float64) ** -exponent
    return np.bincount(_native.buckets(ids), weights / weights.sum(), _native.BUCKETS)


@dataclass
class Served:
    """What readers saw. waits: (n, 2): milliseconds, and how many seeds waited for so long."""

    waits: list[tuple[float, float]] = field(default_factory=list)
    worker_looks: int = 0
    workers_most: int = 0
    changes: list[int] = field(default_factory=list)  # the looks that changed the map

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the seeds were answered."""
        waits = np.array(sorted(self.waits))
        total = np.cumsum(waits[:, 1])
        return float(waits[np.searchsorted(total, share * total[-1]), 0])


def serve(
    rates: list[float], shares: Callable[[int], Float64], first: Serving, rules: SizeRules | None, seed: int = 0
) -> Served:
    """Plays looks of so many seeds a second; `shares` says how they fall into buckets. rules: None leaves the map."""
    rng, sizer = np.random.default_rng(seed), None if rules is None else Sizer(rules)
    served, serving, coming, backlog = Served(), first, list[tuple[int, Serving]](), dict[int, float]()
    for look, rate in enumerate(rates):
        if coming and coming[0][0] <= look:
            serving = coming.pop(0)[1]
        part, workers = shares(look), workers_in(serving)
        moved = sum(queue for worker, queue in backlog.items() if worker not in workers)
        backlog = {worker: backlog.get(worker, 0.0) + moved / len(workers) for worker in workers}
        waiting = dict.fromkeys(workers, 0.0)
        for worker, load in serving_loads(serving, part).items():
            for arrived in rng.poisson(rate * load * TICK_SECONDS, TICKS):
                busy = min(backlog[worker] + arrived, SERVED * TICK_SECONDS)
                backlog[worker] += arrived - busy
                served.waits.append((1000 * (backlog[worker] + 1) / SERVED, float(arrived)))
                waiting[worker] += (backlog[worker] + busy / (SERVED * TICK_SECONDS)) / TICKS
        served.worker_looks += len(workers)
        served.workers_most = max(served.workers_most, len(workers))
        if sizer is not None and not coming:
            seeds = rng.poisson(rate * TICKS * TICK_SECONDS * part)
            found = sizer.serving(serving, seeds, waiting)
            if found is not None:
                coming.append((look + FILL_LOOKS, found))
                served.changes.append(look)
    return served


def sampling_rate(owners: Owners, shares: Float64) -> float:
    """Records a second of all workers: a step ends when the slowest has done its part."""
    loads = np.bincount(owners, shares, int(owners.max()) + 1)
    return SAMPLED / float(loads.max())


def levelled_owners(workers: int, shares: Float64, looks: int = 40) -> Owners:
    """The map that a busy cluster of so many sampling workers comes to."""
    rules = SizeRules(sampling_min=workers, sampling_max=workers, spread=1.05)
    sizer, owners = Sizer(rules), even_owners(workers)
    records = (shares * SAMPLED * rules.look_seconds).astype(np.int64)
    for _ in range(looks):
        found = sizer.sampling(owners, records, dict.fromkeys(range(workers), 1.0))
        owners = owners if found is None else found
    return owners


def levelled_serving(workers: int, shares: Float64, looks: int = 60) -> Serving:
    """The same for serving workers."""
    rules = SizeRules(serving_min=workers, serving_max=workers, spread=1.02)
    sizer, serving = Sizer(rules), even_serving(workers)
    seeds = (shares * SERVED * rules.look_seconds * workers).astype(np.int64)
    for _ in range(looks):
        found = sizer.serving(serving, seeds, {k: 3.0 + v for k, v in serving_loads(serving, seeds).items()})
        serving = serving if found is None else found
    return serving


def day(skew: float) -> tuple[list[float], Callable[[int], Float64]]:
    """300 looks: calm, a rise to four times, other hot vertices, calm again."""
    rates = [2400.0] * 60 + np.linspace(2400, 9600, 60).tolist() + [9600.0] * 80 + [2400.0] * 100
    before, after = bucket_shares(skew, 0), bucket_shares(skew, 1)
    return rates, lambda look: before if look < 160 else after
