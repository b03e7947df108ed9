"""Temporal samples with and without vector kernels: equal, over lists of all lengths that change, pinned and not."""

import os
import subprocess
import sys

import pytest

import livegnn as lg

PROGRAM = """
import hashlib, itertools
import numpy as np, livegnn as lg

def columns(rng, count, begin):
    heads = np.minimum(rng.integers(0, 60, count), rng.integers(0, 60, count))  # lists of a few to a thousand edges
    return rng.integers(0, 60, count), heads, begin + rng.integers(0, 500, count), rng.random(count, np.float32)

def digest(extra):
    rng, found = np.random.default_rng(5), hashlib.sha256()
    src, dst, time, weight = columns(rng, 9000, 0)
    extra = {name: {"weight": weight, "edge_type": rng.integers(0, 3, len(src))}[name] for name in extra}
    graph = lg.Graph(np.zeros((60, 0), np.float32), src, dst, time=time, **extra)
    kinds = itertools.product(("recent", "uniform"), ([10], [3, 2], [16], [17], [70], [-1]), (None, 90), (False, True))
    samplers = [
        lg.TemporalSampler(graph, fanouts, by, window=window, replace=replace, threads=1)
        for by, fanouts, window, replace in kinds
        if by == "uniform" or not replace
    ]
    for round in range(4):
        for sampler in samplers:
            with sampler.pin() as pinned:
                if sampler is samplers[0]:
                    updates = lg.Updates()
                    src, dst, time, weight = columns(rng, 300, 200 * round)
                    for u, v, t, w in zip(src.tolist(), dst.tolist(), time.tolist(), weight.tolist()):
                        more = {"weight": w} if "weight" in extra else {}
                        more |= {"edge_type": u % 3} if "edge_type" in extra else {}
                        updates.add_edge(u, v, time=t, **more)
                    graph.apply(updates)
                vertices, times = rng.integers(0, 60, 300), rng.integers(0, 1200, 300)
                for reader in (pinned, sampler):
                    for hop in reader.sample(vertices, times):
                        for array in (hop.ptr, hop.edge_ids, hop.edge_index, hop.next_targets, hop.next_times):
                            found.update(array.tobytes())
                        for array in (hop.edge_types, hop.weights):
                            found.update(b"" if array is None else array.tobytes())
    return found.hexdigest()

print(digest([]), digest(["weight", "edge_type"]))
"""


@pytest.mark.parametrize("kernels", ["avx2", "avx512"])
def test_every_instruction_set_gives_the_same_samples(kernels):
    if kernels not in lg._native.cpu_features():
        pytest.skip(f"this machine has no {kernels}")
    digests = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "LIVEGNN_KERNELS": each},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for each in ("generic", kernels)
    ]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 2
