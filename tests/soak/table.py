"""What a soak says at its end: what it did, what it covered, what it did not cover, and every failure."""

from __future__ import annotations

from collections.abc import Iterator

from tests.soak import memory
from tests.soak.options import ALL_FAMILIES, DTYPES, MODES, PATHS, STRATEGIES
from tests.soak.scheduler import Soak

_TOTALS = (
    "updates",
    "batches",
    "steps",
    "verifications",
    "fresh engines",
    "references",
    "what_ifs",
    "reads",
    "samples",
    "kills",
    "takeovers",
    "recoveries",
    "saves and loads",
    "swaps",
    "rescales",
    "offloads",
    "damaged files",
    "damaged files refused",
    "damaged files of the same content",
)
_EXPECTED = {
    "family": (*ALL_FAMILIES, "hetero"),
    "option": (
        *(f"strategy={name}" for name in (*STRATEGIES, "sampled")),
        *(f"mode={name}" for name in MODES),
        *(f"path={name}" for name in PATHS),
        *(f"feature_dtype={name}" for name in DTYPES),
        *("state=fast", "state=compact", "threads=1", "threads=2", "memory_limit=4MiB"),
        *("weighted", "undirected", "simple", "times", "ids=int", "ids=text"),
    ),
    "format": ("engine", "log", "log in use", "checkpoint", "temporal engine", "offload", "cache", "worker"),
}


def lines(soak: Soak) -> Iterator[str]:
    """The table."""
    options, totals = soak.options, soak.counts.totals
    ending = ", interrupted" if soak.interrupted else ""
    yield f"soak: seed {options.seed}, {soak.seconds / 60:.1f} min, {options.jobs} at a time{ending}"
    for name in _TOTALS:
        if totals[name]:
            wanted = f" of {options.updates:,}" if name == "updates" else ""
            yield f"  {name:36} {totals[name]:>15,}{wanted}"
    for kind, names in soak.counts.covered.items():
        if kind in _EXPECTED:
            missing = [name for name in _EXPECTED[kind] if name not in names]
            yield f"  {kind + ' covered':36} {', '.join(sorted(names))}"
            if missing:
                yield f"  {kind + ' not covered':36} {', '.join(missing)}"
        else:
            yield f"  {kind + ', how many':36} {len(names)}"
    runs = ", ".join(f"{name} {count}" for name, count in soak.slices.items())
    yield f"  {'slices':36} {sum(soak.slices.values())}: {runs}"
    peak = f"{soak.peak // memory.MIB} MiB ({soak.peak_of})" if memory.WATCHED else "not watched: no /proc"
    yield f"  {'peak memory of a process':36} {peak}"
    yield f"  {'failures':36} {len(soak.failures)}"
    for failure in soak.failures:
        yield f"    {failure.scenario}, seed {failure.seed}: {failure.what.splitlines()[0][:300]}"
        yield f"      {failure.replay}"
