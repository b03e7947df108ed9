"""A cache of every kind of source against a dict: rows are always the source's, contents those of the definition."""

import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

torch = pytest.importorskip("torch")

import livegnn as lg  # noqa: E402
from livegnn.errors import EdgeMissing, ValueInvalid, VertexUnknown  # noqa: E402
from livegnn.temporal import FeatureCache  # noqa: E402
from livegnn.temporal.caches.device_rows import TorchRows  # noqa: E402
from tests.unit.temporal.cache_model import ModelCache  # noqa: E402

WIDTH = 3
KINDS = ("array", "memmap", "object", "device", "graph", "edges", "followed")
ids = st.lists(st.integers(0, 15), max_size=12)
values = st.integers(-9, 9)


class Rows:
    """The truth: row by id, None where there is none."""

    def __init__(self, kind, count, folder):
        self.kind = kind
        self.rows = [np.full(WIDTH, value, np.float32) for value in range(count)]
        self.graph = None
        table = np.array(self.rows, np.float32).reshape(count, WIDTH)
        if kind == "array":
            self.features = self.table = table
        elif kind == "memmap":
            np.save(f"{folder}/rows.npy", table)
            self.features = self.table = np.load(f"{folder}/rows.npy", mmap_mode="r+")
        elif kind in ("object", "device"):
            self.features = Remote(self)
        elif kind == "graph":
            self.features = self.graph = lg.Graph(table, [], [])
        elif kind == "edges":
            ends = np.zeros(count, np.int64)
            self.features = self.graph = lg.Graph(np.zeros((2, 1), np.float32), ends, ends, edge_attr=table)
        else:
            self.graph, self.features = lg.Graph(table, [], []), Remote(self)

    def cache(self, **options):
        make = FeatureCache.of_edges if self.kind == "edges" else FeatureCache
        cache = make(self.features, **options)
        if self.kind == "followed":
            cache.follow(self.graph)
        if self.kind == "device":  # what another device does, on this one
            cache._new_rows = lambda capacity, source: TorchRows(
                torch, (capacity, source.row_width), source.dtype, torch.device("cpu")
            )
            cache._rows = cache._new_rows(options["capacity"], cache._source)
        return cache

    def change(self, changes):
        """Sets rows, None removing them: in one batch where there is a graph. Later changes win."""
        updates = lg.Updates()
        for given, row in changes:
            if self.rows[given] is None:
                continue
            self.rows[given] = row
            if self.kind == "edges":
                if row is None:
                    updates.remove_edge(0, 0, edge_id=given)
                else:
                    updates.set_edge_attr(0, 0, row, edge_id=given)
            elif self.graph is not None:
                if row is None:
                    updates.remove_vertex(given)
                else:
                    updates.set_features(given, row)
            elif self.kind in ("array", "memmap"):
                self.table[given] = row
        if self.graph is not None:
            self.graph.apply(updates)

    def add(self, row):
        free = [given for given, kept in enumerate(self.rows) if kept is None]
        updates = lg.Updates()
        if self.kind == "edges":
            updates.add_edge(0, 0, edge_attr=row)
        elif self.graph is not None and free:
            updates.add_vertex(free[0], row)
            self.rows[free[0]] = row
        elif self.graph is not None:
            updates.add_vertex(len(self.rows), row)
        if self.kind == "edges" or self.graph is None or not free:
            self.rows.append(row)
        if self.graph is not None:
            self.graph.apply(updates)


class Remote:
    row_width = WIDTH

    def __init__(self, truth):
        self.truth = truth

    @property
    def row_count(self):
        return len(self.truth.rows)

    def rows(self, ids):
        assert len(set(ids.tolist())) == len(ids)
        return np.array([self.truth.rows[given] for given in ids], np.float32).reshape(len(ids), WIDTH)


class FeatureCacheMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.saved = self.kept = None

    @initialize(
        kind=st.sampled_from(KINDS),
        policy=st.sampled_from(["lru", "lfu", "fifo", "static"]),
        capacity=st.integers(1, 7),
        max_replace=st.sampled_from([0.01, 0.2, 0.5, 1.0]),
        count=st.integers(1, 12),
        threads=st.integers(1, 2),
    )
    def start(self, kind, policy, capacity, max_replace, count, threads):
        self.truth = Rows(kind, count, self.folder.name)
        options = {"policy": policy, "capacity": capacity, "max_replace": max_replace}
        self.cache, self.model = self.truth.cache(**options, threads=threads), ModelCache(**options)
        self.asked = self.found = 0

    def present(self, given):
        return 0 <= given < len(self.truth.rows) and self.truth.rows[given] is not None

    def there(self, contents):
        return [pair for pair in contents if self.present(pair[0])]

    @rule(asked=ids)
    def fetch(self, asked):
        asked = [given for given in asked if self.present(given)]
        found = self.model.fetch(asked)
        rows = self.cache.fetch(torch.tensor(asked, dtype=torch.int64)).numpy()
        expected = np.array([self.truth.rows[given] for given in asked], np.float32).reshape(len(asked), WIDTH)
        np.testing.assert_array_equal(rows, expected)
        self.asked, self.found = self.asked + len(asked), self.found + found
        assert (self.cache.stats.last.hits, self.cache.stats.last.misses) == (found, len(asked) - found)

    @rule(asked=ids, wrong=st.integers(-2, 40))
    def fetch_what_is_not_there(self, asked, wrong):
        if self.present(wrong) or (0 <= wrong < len(self.truth.rows) and self.truth.kind == "followed"):
            return
        given = [each for each in asked if self.present(each)]
        with pytest.raises((ValueInvalid, VertexUnknown, EdgeMissing), match=str(wrong)):
            self.cache.fetch([*given, wrong])

    @rule(changes=st.lists(st.tuples(st.integers(0, 15), values), max_size=5), drop=st.booleans())
    def change(self, changes, drop):
        changes = [(given, np.full(WIDTH, value, np.float32)) for given, value in changes if self.present(given)]
        self.truth.change(changes)
        if self.truth.graph is None:
            given = [given for given, _ in changes]
            if drop:
                self.cache.invalidate(given)
                self.model.drop(given)
            else:
                self.cache.refresh(given)
        elif self.truth.kind == "followed":  # forgotten: to read rows now could be to wait for another process
            self.model.drop([given for given, _ in changes])

    @precondition(lambda self: self.truth.graph is not None)
    @rule(given=st.integers(0, 15), value=values, first=st.booleans())
    def remove(self, given, value, first):
        """Perhaps after a change in the same batch."""
        if self.present(given):
            self.truth.change([(given, np.full(WIDTH, value, np.float32))] * first + [(given, None)])
            self.model.drop([given])

    @precondition(lambda self: self.truth.kind not in ("array", "memmap"))
    @rule(value=values)
    def add(self, value):
        self.truth.add(np.full(WIDTH, value, np.float32))

    @rule(given=ids)
    def invalidate(self, given):
        assert self.cache.invalidate(given) == len(set(given) & set(self.model.entries))
        self.model.drop(given)

    @rule(given=ids)
    def refresh(self, given):
        assert self.cache.refresh(given) == len(set(given) & set(self.model.entries))

    @rule()
    def save(self):
        self.cache.save(f"{self.folder.name}/cache.npz")
        self.saved = self.model.contents()

    @precondition(lambda self: self.saved is not None)
    @rule()
    def load(self):
        self.cache.load(f"{self.folder.name}/cache.npz")
        self.model.install(self.there(self.saved))

    @rule()
    def checkpoint(self):
        self.cache.checkpoint()
        self.kept = self.model.contents()

    @precondition(lambda self: self.kept is not None)
    @rule()
    def restore(self):
        self.cache.restore()
        self.model.install(self.there(self.kept))

    @rule(capacity=st.integers(1, 9))
    def resize(self, capacity):
        self.cache.resize(capacity)
        self.model.resize(capacity)

    @rule(given=ids)
    def warm(self, given):
        given = [each for each in given if self.present(each)]
        self.cache.warm(given)
        counts = [(given.count(each), -each) for each in set(given)]
        self.model.install([(-each, count) for count, each in sorted(counts)])

    @invariant()
    def agrees(self):
        if hasattr(self, "cache"):
            assert self.cache.ids().tolist() == self.model.order()
            assert len(self.cache) <= self.cache.capacity == self.model.capacity
            self.cache.verify()
            assert self.cache.stats.hits == self.found
            assert self.cache.stats.misses == self.asked - self.found

    def teardown(self):
        if hasattr(self, "cache"):
            self.cache.close()
        self.folder.cleanup()


FeatureCacheMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=25, deadline=None)
TestFeatureCache = FeatureCacheMachine.TestCase
