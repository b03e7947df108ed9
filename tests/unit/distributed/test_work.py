"""Work: batches that are counted many at a time are counted as if one by one."""

import numpy as np
import pytest

from livegnn import _native
from livegnn.distributed.cluster import work
from livegnn.distributed.cluster.work import Work

ADD, REMOVE = _native.UpdateKind.AddVertex.value, _native.UpdateKind.RemoveVertex.value
SLOTS = 40  # of the whole graph


class Part:
    """Which slot of a part each vertex has; freed ones are taken again, the last one first."""

    def __init__(self, slots):
        self.at, self.free, self.count = dict(zip(slots, range(len(slots)), strict=True)), [], len(slots)

    def places(self, slots):
        return np.array([self.at.get(slot, -1) for slot in slots.tolist()], np.int64)

    def add(self, slot):
        if not self.free:
            self.free.append(self.count)
            self.count += 1
        self.at[slot] = self.free.pop()

    def remove(self, slot):
        self.free.append(self.at.pop(slot))


@pytest.mark.parametrize("most", [0, 25, 1 << 20])
@pytest.mark.parametrize("seed", range(8))
def test_counts_are_those_of_one_batch_at_a_time(monkeypatch, most, seed):
    monkeypatch.setattr(work, "_UNCOUNTED_MAX", most)
    rng, part = np.random.default_rng(seed), Part(range(0, SLOTS, 2))
    counted, expected, total = Work(part.places), dict.fromkeys(part.at, 0), 0
    for turn in range(60):
        updates = []
        for slot in rng.choice(SLOTS, rng.integers(0, 4), replace=False).tolist():
            updates.append((REMOVE if slot in part.at else ADD, slot))
            (part.remove if slot in part.at else part.add)(slot)
            expected.pop(slot, None)
            if slot in part.at:
                expected[slot] = 0
        changed = rng.choice(sorted(part.at), len(part.at) // 3, replace=False) if part.at else []
        total += len(changed)
        for slot in changed:
            expected[int(slot)] += 1
        added = np.array([slot for kind, slot in updates if kind == ADD], np.int64)
        counted.add(added if len(updates) else None, np.sort(np.array(changed, np.uint32)))
        if turn % 7 == 0:
            live = np.array(sorted(part.at), np.int64)
            assert counted.of(live).tolist() == [expected[slot] for slot in live.tolist()]
    assert counted.total == total
    going_on = Work(part.places, counted.counts(), total)
    live = np.array(sorted(part.at), np.int64)
    assert going_on.of(live).tolist() == [expected[slot] for slot in live.tolist()]


def test_that_nothing_is_counted_before_it_is_asked_for():
    asked = []
    counted = Work(lambda slots: asked.append(slots) or slots)
    for turn in range(100):
        counted.add(np.array([turn]), np.array([turn], np.uint32))
    assert not asked
    assert counted.of(np.arange(120)).tolist() == [1] * 100 + [0] * 20


def test_that_the_batch_does_not_stay():
    batch = np.arange(10_000)
    counted = Work(lambda slots: slots)
    counted.add(batch[100:200], np.arange(100, 200, dtype=np.uint32))
    assert not any(np.shares_memory(batch, each.added) for each in counted._uncounted)
    assert counted.of(np.arange(300)).tolist() == [0] * 100 + [1] * 100 + [0] * 100


def test_that_batches_which_change_nothing_here_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(work, "_UNCOUNTED_MAX", 1000)
    counted = Work(lambda slots: slots)
    for _ in range(1000):
        counted.add(np.zeros(0, np.int64), np.zeros(0, np.uint32))
    assert len(counted._uncounted) < 100
