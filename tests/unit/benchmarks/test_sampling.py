"""The pre-sampling benchmarks: their workload, their distributed peer, and each table run in small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.peers.partitioned import Partitioned
from benchmarks.sampling.workload import DEGREE_MAX, HAS, KNOWS, query, social
from livegnn import PreSampler


def test_forums_have_persons_and_persons_know_persons() -> None:
    work = social(tiny=True)
    forum = work.src < work.forums
    assert (work.edge_type[forum] == HAS).all()
    assert (work.edge_type[~forum] == KNOWS).all()
    assert (work.dst >= work.forums).all()
    assert work.dst.max() < work.vertices
    assert np.bincount(work.src).max() <= DEGREE_MAX
    assert len(work.src) == 30_000
    assert work.loaded == 27_000


def test_the_workload_is_a_function_of_its_seed() -> None:
    a, b, other = social(True, 3), social(True, 3), social(True, 4)
    np.testing.assert_array_equal(a.src, b.src)
    np.testing.assert_array_equal(a.weight, b.weight)
    assert (a.src != other.src).any()


def test_batches_hold_what_they_are_asked_for_and_begin_again() -> None:
    work = social(True)
    graph = work.graph()
    for updates in work.batches(2900, 450, 200):
        graph.apply(updates)
    assert graph.version == 3
    assert graph.edge_count == work.loaded + 198 + 198 + 49


@pytest.mark.parametrize("by", ["random", "top_k", "weighted"])
def test_two_processes_find_the_samples_of_one(by: str) -> None:
    work = social(True)
    sampler = PreSampler(work.graph(), query(by), seed=5)
    seeds = np.array([0, 7, 99])
    expected = sampler.sample(seeds)
    with Partitioned(work, query(by), 5) as partitioned:
        got = partitioned.sample(seeds)
    for k in (1, 2):
        np.testing.assert_array_equal(got.hop(k), expected.hop(k))
        np.testing.assert_array_equal(got.rows[k], expected.features(k))


@pytest.mark.parametrize("table", ["sampling_ingest", "sampling_serving", "sampling_ad_hoc", "sampling_live"])
def test_a_table_in_small(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([table, "--tiny"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"# {table}\n")
    assert "\n## " in printed
    assert "WRONG ANSWER" not in printed
