"""Scores of rows have the same bits in whatever company; of equal ones the smaller slot comes first."""

import pickle

import numpy as np
import pytest

from livegnn.inference.best import BestSlots, Comparison, scores_by
from livegnn.inference.predict import pair_scores
from livegnn.models import ir

METRICS = ("dot", "cosine", "l2")


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 31, 64, 129, 300, 10_000])
def test_a_score_does_not_depend_on_the_rows_that_come_with_it(width):
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((70, width)).astype(np.float32)
    row, wide = rng.standard_normal(width).astype(np.float32), np.hstack([rows, rows])
    places = rng.permutation(70)
    for metric in METRICS:
        whole = scores_by(rows, row, metric)
        alone = np.concatenate([scores_by(rows[i : i + 1], row, metric) for i in range(70)])
        assert alone.tobytes() == whole.tobytes(), metric
        assert scores_by(rows[places], row, metric).tobytes() == whole[places].tobytes(), metric
        assert scores_by(wide[3:50, :width], row, metric).tobytes() == whole[3:50].tobytes(), metric
    head = ir.Linear(ir.Input(2 * width), rng.standard_normal((1, 2 * width)).astype(np.float32))
    for each in (None, head):
        whole = pair_scores(np.broadcast_to(row, rows.shape), rows, each)
        alone = np.concatenate([pair_scores(row[np.newaxis], rows[i : i + 1], each) for i in range(70)])
        assert alone.tobytes() == whole.tobytes()


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_of_blocks_and_of_parts_are_those_of_a_sort(metric):
    rng = np.random.default_rng(1)
    rows = rng.integers(-1, 2, (9000, 3)).astype(np.float32)  # many are equal; more than two blocks
    slots = np.sort(rng.choice(20_000, 9000, replace=False))
    row = np.array([1, 0.5, -1], np.float32)
    scores = scores_by(rows, row, metric)
    order = np.lexsort((slots, scores if metric == "l2" else -scores))
    for k in (1, 10, 5000, 9000, 20_000):
        asked = Comparison(row, k, metric)
        reads = []
        found = asked.best(
            slots, lambda some, reads=reads: reads.append(len(some)) or rows[np.searchsorted(slots, some)]
        )
        assert max(reads) <= 4096
        assert found.slots.tolist() == slots[order[:k]].tolist()
        assert found.scores.tobytes() == scores[order[:k]].tobytes()
        owners = rng.integers(0, 3, len(slots))
        parts = [asked.best(slots[owners == i], lambda some: rows[np.searchsorted(slots, some)]) for i in range(3)]
        merged = asked.merged(parts)
        assert (merged.slots.tolist(), merged.scores.tobytes()) == (found.slots.tolist(), found.scores.tobytes())


def test_what_is_no_number_comes_last():
    rows = np.array([[np.nan], [1], [np.nan], [3], [2]], np.float32)
    for k in (2, 4, 5):
        found = Comparison(np.ones(1, np.float32), k, "dot").best(np.arange(5), lambda slots: rows[slots])
        assert found.slots.tolist() == [3, 4, 1, 0, 2][:k]


def test_that_none_is_best_of_none():
    asked = Comparison(np.ones(2, np.float32), 3, "cosine")
    none = asked.best(np.zeros(0, np.int64), lambda slots: np.zeros((len(slots), 2), np.float32))
    assert (len(none.slots), len(none.scores)) == (0, 0)
    assert len(asked.merged([none, BestSlots(np.array([4]), np.ones(1, np.float32))]).slots) == 1


def test_a_comparison_by_an_edge_head_goes_to_another_process():
    rng = np.random.default_rng(2)
    head = ir.Linear(ir.Input(6), rng.standard_normal((1, 6)).astype(np.float32))
    rows, slots = rng.standard_normal((20, 3)).astype(np.float32), np.arange(20)
    asked = Comparison(rows[0], 5, "model", head)
    found, there = (each.best(slots, lambda some: rows[some]) for each in (asked, pickle.loads(pickle.dumps(asked))))
    assert (there.slots.tolist(), there.scores.tobytes()) == (found.slots.tolist(), found.scores.tobytes())
    assert (
        found.scores.tobytes() != Comparison(rows[0], 5, "model").best(slots, lambda some: rows[some]).scores.tobytes()
    )
