"""Contents across epochs and rounds: checkpoints, files, presampling, other sizes."""

import numpy as np
import pytest

pytest.importorskip("torch")

from livegnn.errors import DtypeInvalid, StoredStateInvalid, UsageError, ValueInvalid, WidthMismatch
from livegnn.temporal import FeatureCache, TemporalHop, presample
from livegnn.temporal.caches.presample import count_uses

ROWS = np.arange(20, dtype=np.float32).reshape(20, 1)


def filled(policy="lru", capacity=3, features=ROWS):
    cache = FeatureCache(features, capacity=capacity, policy=policy, max_replace=1.0)
    for ids in ([1, 2, 3], [2], [2, 1]):
        cache.fetch(ids)
    return cache


def test_an_epoch_starts_with_what_the_round_started_with():
    cache = filled()
    cache.checkpoint()
    for _ in range(2):
        cache.restore()
        assert cache.ids().tolist() == [3, 2, 1]
        cache.fetch([10, 11, 12])
        assert cache.ids().tolist() == [10, 11, 12]


def test_uses_come_back_too():
    cache = filled("lfu")
    cache.checkpoint()
    cache.fetch([3])
    cache.fetch([3])
    cache.fetch([3])
    cache.restore()
    cache.fetch([9])
    assert cache.ids().tolist() == [9, 1, 2]  # 3 was used once as far as the checkpoint knows


def test_only_rows_that_had_gone_are_read_again(tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    cache = filled(features=tmp_path / "x.npy")
    cache.checkpoint()
    cache.fetch([10])
    cache.stats.reset()
    cache.restore()
    assert (cache.stats.fills, cache.stats.filled_rows, cache.stats.fill_bytes) == (1, 1, 4)
    cache.verify()


def test_restore_without_a_checkpoint():
    with pytest.raises(UsageError, match=r"\[restore\] expected a checkpoint, got none; call checkpoint\(\)"):
        filled().restore()


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo", "static"])
def test_a_file_brings_the_contents_to_the_next_round(policy, tmp_path):
    cache = FeatureCache(ROWS, capacity=3, policy=policy, max_replace=1.0)
    cache.warm([1, 2, 2, 3, 3, 3])
    cache.fetch([1])
    cache.save(tmp_path / "cache.npz")
    fresh = FeatureCache(ROWS * 2, capacity=3, policy=policy)
    fresh.load(tmp_path / "cache.npz")
    assert fresh.ids().tolist() == cache.ids().tolist()
    assert fresh.fetch([3]).item() == 6  # the row as it is now
    assert fresh.stats.last.hits == 1
    small = FeatureCache(ROWS, capacity=2, policy=policy)
    small.load(tmp_path / "cache.npz")
    assert small.ids().tolist() == cache.ids().tolist()[1:]
    assert [entry.name for entry in tmp_path.iterdir()] == ["cache.npz"]


def test_ids_beyond_the_rows_are_left_out(tmp_path):
    filled().save(tmp_path / "cache.npz")
    fewer = FeatureCache(ROWS[:3], capacity=3)
    fewer.load(tmp_path / "cache.npz")
    assert fewer.ids().tolist() == [2, 1]


def test_files_that_are_not_such(tmp_path):
    cache, path = filled(), tmp_path / "cache.npz"
    with pytest.raises(FileNotFoundError):
        cache.load(path)
    cache.save(path)
    with pytest.raises(UsageError, match=r"\[load\] expected a file of a cache with fifo, got lru"):
        filled("fifo").load(path)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:100], b"", b"no zip", whole.replace(b"livegnn-cache", b"livegnn-catch")):
        path.write_bytes(damaged)
        with pytest.raises(StoredStateInvalid, match=r"\[load\] expected a file that FeatureCache.save wrote"):
            cache.load(path)
    assert cache.ids().tolist() == [3, 2, 1]
    with pytest.raises(UsageError, match=r"\[save\] expected a folder"):
        cache.save(tmp_path / "nowhere" / "cache.npz")


@pytest.mark.parametrize(
    ("ids", "uses"),
    [([1, 1], [1, 1]), ([-1], [1]), ([1], [0]), ([1, 2], [1]), ([1.0], [1]), ([1], [2**63 - 1])],
)
def test_contents_that_cannot_be(ids, uses, tmp_path):
    path = tmp_path / "cache.npz"
    filled().save(path)
    with np.load(path) as members:
        meta = members["meta"]
    np.savez(path, meta=meta, ids=np.array(ids), uses=np.array(uses))
    with pytest.raises(StoredStateInvalid):
        filled().load(path)


@pytest.mark.parametrize("features", [ROWS, "file"])
def test_another_capacity_keeps_what_would_go_last(features, tmp_path):
    np.save(tmp_path / "x.npy", ROWS)
    cache = filled(features=tmp_path / "x.npy" if isinstance(features, str) else features)
    cache.resize(2)
    assert (cache.ids().tolist(), cache.capacity) == ([2, 1], 2)
    cache.verify()
    cache.resize(5)
    cache.fetch([7, 8, 9])
    assert cache.ids().tolist() == [2, 1, 7, 8, 9]
    cache.verify()
    assert cache.fetch([1]).item() == 1
    assert cache.stats.filled_rows == 0


def test_more_rows_keep_the_contents():
    cache = filled()
    with pytest.raises(ValueInvalid, match="got 25 at row 0"):
        cache.fetch([25])
    cache.resize(features=np.arange(30, dtype=np.float32).reshape(30, 1))
    assert cache.ids().tolist() == [3, 2, 1]
    assert cache.fetch([25]).item() == 25
    cache.verify()


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (ROWS[:5], WidthMismatch, "expected at least 20 rows of width 1, got 5 of width 1"),
        (np.zeros((30, 2), np.float32), WidthMismatch, "got 30 of width 2"),
        (np.zeros((30, 1), np.float16), DtypeInvalid, "expected float32 features, got float16"),
    ],
)
def test_other_features_are_refused(features, error, message):
    cache = filled()
    with pytest.raises(error, match=message):
        cache.resize(features=features)
    with pytest.raises(ValueInvalid, match="expected a capacity"):
        cache.resize(0)
    assert (cache.ids().tolist(), cache.capacity) == ([3, 2, 1], 3)


# ---- presampling


class Neighbours:
    """A sampler that finds, for every vertex, the two before it, by edges 10 v and 10 v + 1."""

    def sample(self, vertices, times):
        src = np.stack([vertices - 1, vertices - 2], axis=1).reshape(-1)
        edge_ids = np.stack([10 * vertices, 10 * vertices + 1], axis=1).reshape(-1)
        rows = np.arange(len(vertices))
        index = np.stack([len(vertices) + np.arange(len(src)), np.repeat(rows, 2)])
        ptr = np.arange(0, len(src) + 1, 2)
        now = np.repeat(times, 2)
        after, then = np.concatenate([vertices, src]), np.concatenate([times, now])
        return [TemporalHop(vertices, times, ptr, src, edge_ids, now, index, after, then)]


def test_presampling_counts_what_training_will_ask_for():
    batches = [(np.array([5, 6]), np.array([0, 0])), (np.array([6]), np.array([1]))]
    ids, counts = presample(Neighbours(), batches)
    assert (ids.tolist(), counts.tolist()) == ([3, 4, 5, 6], [2, 6, 6, 4])
    ids, counts = presample(Neighbours(), batches, edges=True, passes=1)
    assert (ids.tolist(), counts.tolist()) == ([50, 51, 60, 61], [1, 1, 2, 2])
    with pytest.raises(ValueInvalid, match="expected at least one pass"):
        presample(Neighbours(), batches, passes=0)


def test_the_most_frequent_are_warm():
    cache = FeatureCache(ROWS, capacity=2, policy="static")
    cache.warm(np.array([9, 3, 4]), np.array([1, 5, 5]))
    assert cache.ids().tolist() == [4, 3]
    ids, counts = count_uses(np.array([3, 3, 4]))
    cache.warm(ids, counts)
    assert cache.ids().tolist() == [4, 3]
    cache.warm([])
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("ids", "counts", "error", "message"),
    [
        ([1, 20], None, ValueInvalid, r"\[warm\] expected ids from 0 to 19, got 20 at row 1"),
        ([1, -3], None, ValueInvalid, "got -3 at row 1"),
        ([1, 2], [1], WidthMismatch, "expected 2 counts, one an id, got 1"),
        ([1, 1], [1, 1], ValueInvalid, "expected each id once with counts="),
        ([1, 2], [1, 0], ValueInvalid, r"expected counts from 1 to 2\^62, got 0 at row 1"),
        ([1, 2], [1, 2**63 - 1], ValueInvalid, "got 9223372036854775807 at row 1"),
        ([1.5], None, DtypeInvalid, "expected ids as int64"),
        ([1], [0.5], DtypeInvalid, "expected counts as int64"),
    ],
)
def test_what_cannot_be_warmed(ids, counts, error, message):
    cache = filled()
    with pytest.raises(error, match=message):
        cache.warm(ids, counts)
    assert cache.ids().tolist() == [3, 2, 1]
