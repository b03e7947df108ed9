"""The trace that caches are measured on, and a run of the lookups at a small size."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.temporal import cache as temporal_cache

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


def test_the_trace_holds_recent_neighbours_from_before_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal_cache, "BATCH", 2)
    monkeypatch.setattr(temporal_cache, "FAN_OUT", 2)
    src, dst = np.array([0, 0, 0, 0, 1]), np.array([1, 2, 3, 4, 0])
    batches = list(temporal_cache._recent(src, dst, 5))
    assert [len(edges) for _, edges in batches[:1]] == [0]
    vertices, edges = batches[2]  # event 4: 1 -> 0 and a negative
    assert vertices[:2].tolist() == [1, 0]
    assert edges[:1].tolist() == [0]  # 1 met 0 in event 0
    assert sorted(edges[1:3].tolist()) == [2, 3]  # the last two events of 0
    assert len(vertices) == 3 + len(edges)


def test_both_lru_caches_hit_alike_and_give_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = temporal_cache._asked(OPTIONS, 0.3)
    table = np.random.default_rng(0).random((asked.rows, 2), dtype=np.float32)
    report = Report()
    single = temporal_cache.OneByOne(asked, table)
    for ids in asked.batches:
        np.testing.assert_array_equal(single.fetch(ids), table[ids])
    _, _, ours = temporal_cache._race(asked, table, table, OPTIONS, report)
    assert not report.failures
    assert 0.3 < ours < 1.0
    wrong = table.copy()
    wrong[asked.batches[0][0]] += 1
    temporal_cache._race(asked, table, wrong, OPTIONS, report)
    assert report.failures
