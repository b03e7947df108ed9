"""Random samples for tests of temporal models, drawn without a graph: any hops that keep TemporalHop's invariants."""

from __future__ import annotations

import numpy as np
import torch

from livegnn.temporal.hop import TemporalHop
from livegnn.temporal.models import HopInput, TemporalInput


def random_hops(seed, roots, times, *, hop_count=2, vertex_count=12, fanout=4, deduplicate=False):
    """Hops whose targets have 0 to fanout in-edges each, of random vertices at random earlier times.

    What a target finds is a function of (seed, hop, vertex, time), so that the same target finds the same edges in
    whatever row it stands.
    """
    targets, target_times = np.asarray(roots, dtype=np.int64), np.asarray(times, dtype=np.int64)
    hops = []
    for k in range(hop_count):
        parts = []
        for vertex, time in zip(targets.tolist(), target_times.tolist(), strict=True):
            random = np.random.default_rng((*seed, k, vertex, time))
            count = int(random.integers(0, fanout + 1))
            before = np.sort(random.integers(time - 20, time, count))
            ids = random.integers(0, 1000) * 1000 + np.arange(count)
            parts.append((random.integers(0, vertex_count, count), ids, before))
        counts = np.array([len(part[0]) for part in parts], dtype=np.int64)
        nothing = np.empty(0, dtype=np.int64)
        src, ids, edge_times = (np.concatenate([nothing, *(part[i] for part in parts)]) for i in range(3))
        hop = make_hop(targets, target_times, counts, src, ids, edge_times, deduplicate)
        hops.append(hop)
        targets, target_times = hop.next_targets, hop.next_times
    return hops


def make_hop(targets, target_times, counts, src, ids, edge_times, deduplicate):
    """One hop of given edges."""
    dst = np.repeat(np.arange(len(targets)), counts)
    if deduplicate:
        pairs, place = np.unique(np.stack([src, edge_times]), axis=1, return_inverse=True)
        rows, next_src, next_times = len(targets) + place.reshape(-1), pairs[0], pairs[1]
    else:
        rows, next_src, next_times = len(targets) + np.arange(len(src)), src, edge_times
    return TemporalHop(
        targets=targets,
        target_times=target_times,
        ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        src=src,
        edge_ids=ids,
        times=edge_times,
        edge_index=np.stack([rows, dst]).astype(np.int64),
        next_targets=np.concatenate([targets, next_src]),
        next_times=np.concatenate([target_times, next_times]),
    )


def features_of(ids, width, salt):
    """(n, width) float32, a function of the id."""
    ids = np.asarray(ids, dtype=np.float64)[:, None]
    return torch.from_numpy(np.sin(ids * (1.7 + np.arange(width)) + salt).astype(np.float32))


def as_input(hops, x_width, edge_width):
    """The input of hops, with features that are functions of the ids."""
    x = features_of(hops[-1].next_targets, x_width, 0.3)
    return TemporalInput.of(hops, x, [features_of(hop.edge_ids, edge_width, 0.7) for hop in hops])


def shuffled(part, seed):
    """The same input with each hop's edges in another order."""
    generator = torch.Generator().manual_seed(seed)
    hops = []
    for hop in part.hops:
        order = torch.randperm(hop.edge_index.shape[1], generator=generator)
        hops.append(HopInput(hop.edge_index[:, order], hop.dt[order], hop.targets, hop.target_times, hop.edge_x[order]))
    return TemporalInput(tuple(hops), part.rows, part.row_times, part.x)
