"""The generator keeps its promises: exact counts, no duplicates, no self-loops, the same bytes for the same seed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engine.generate import SHAPES, Events, EventShape, chung_lu, event_chunks, generated, lomax_degrees
from benchmarks.engine.stream import ADD, FEATURES, REMOVE, mixed_stream

TINY = SHAPES["tiny"]
BOTH = dataclasses.replace(TINY, out_exponent=0.0, out_degree_max=0)


@pytest.mark.parametrize("shape", [TINY, BOTH], ids=["directed", "both directions"])
def test_edges_are_exact_in_number_distinct_and_without_loops(shape: object) -> None:
    src, dst = chung_lu(shape, seed=4)  # type: ignore[arg-type]
    keys = src.astype(np.int64) * TINY.vertices + dst
    assert len(keys) == TINY.edges == len(np.unique(keys))
    assert (src != dst).all()
    again = chung_lu(shape, seed=4)  # type: ignore[arg-type]
    assert np.array_equal(src, again[0])
    assert np.array_equal(dst, again[1])


def test_both_directions_are_there() -> None:
    src, dst = chung_lu(BOTH, seed=4)
    assert set(zip(src.tolist(), dst.tolist(), strict=True)) == set(zip(dst.tolist(), src.tolist(), strict=True))


def test_expected_degrees_have_the_mean_and_the_cut() -> None:
    degrees = lomax_degrees(169_343, 6.887, 2.55, 13_155)
    assert degrees.mean() == pytest.approx(6.887)
    assert degrees.max() <= 13_155
    assert (np.diff(degrees) <= 0).all()


def test_cache_gives_the_same_graph(tmp_path: Path) -> None:
    first, second = generated("tiny", 2, tmp_path), generated("tiny", 2, tmp_path)
    assert np.array_equal(first.src, second.src)
    assert len(list(tmp_path.iterdir())) == 1


def test_stream_has_equal_shares_and_removes_each_edge_once() -> None:
    src, dst = chung_lu(TINY, seed=4)
    stream = mixed_stream(
        (src[14_000:], dst[14_000:]), (src[:14_000], dst[:14_000]), (2000, 3), 300, ordered=True, seed=1
    )
    assert [int((stream.op == kind).sum()) for kind in (ADD, REMOVE, FEATURES)] == [100, 100, 100]
    added = stream.op == ADD
    assert np.array_equal(stream.u[added], src[14_000:14_100])
    removed = stream.op == REMOVE
    pairs = list(zip(stream.u[removed].tolist(), stream.v[removed].tolist(), strict=True))
    assert len(set(pairs)) == 100
    assert set(pairs) <= set(zip(src.tolist(), dst.tolist(), strict=True))


def test_batch_keeps_the_last_features_of_a_vertex() -> None:
    ends = (np.arange(5, dtype=np.int32), np.arange(1, 6, dtype=np.int32))
    stream = mixed_stream(ends, ends, (1, 2), 15, ordered=True, seed=1)
    batch = stream.batch(0, 15)
    assert batch.feature_ids.tolist() == [0]
    assert np.array_equal(batch.feature_rows[0], stream.rows[-1])


def test_streams_of_events_come_in_order_and_in_chunks() -> None:
    shape = EventShape(vertices=300, events=25_000, exponent=1.9, share_max=0.05, seconds=1000)
    chunks = list(event_chunks(shape, 3, chunk=10_000))
    assert [len(chunk.src) for chunk in chunks] == [10_000, 10_000, 5_000]
    whole = Events(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))
    assert all(column.dtype == np.int64 for column in whole)
    assert (np.diff(whole.time) >= 0).all()
    assert (whole.time[0], whole.time[-1]) == (0, 999)
    assert min(whole.src.min(), whole.dst.min()) >= 0
    assert max(whole.src.max(), whole.dst.max()) < 300
    counts = np.sort(np.bincount(whole.dst, minlength=300))[::-1]
    assert counts[0] > 20 * np.median(counts)  # few vertices are in most events
    assert counts[0] < 0.08 * len(whole.dst)
    again = next(event_chunks(shape, 3, chunk=10_000))
    assert all(np.array_equal(a, b) for a, b in zip(again, chunks[0], strict=True))
