"""One suite for all tables of a serving worker: native memory and RocksDB, against a dict."""

import numpy as np
import pytest

import livegnn as lg
from livegnn import _native
from livegnn.errors import InvariantBroken, UsageError, VertexUnknown
from livegnn.sampling import ClusterSpec, ServingWorker
from livegnn.sampling.cluster.rocks_tables import RocksTables
from livegnn.sampling.presample.sample import NO_COLUMNS, EdgeDataSpec
from tests.unit.sampling.reach import held

FANOUTS, WIDTH = [3, 2], 2
COLUMNS = [NO_COLUMNS, EdgeDataSpec(True, True, 2), EdgeDataSpec(weight=True), EdgeDataSpec(time=True)]


@pytest.fixture(params=["native", "rocksdb"])
def make_tables(request, tmp_path):
    made = []

    def make(columns=NO_COLUMNS):
        if request.param == "native":
            return _native.ServingTables(FANOUTS, WIDTH, _native.EdgeColumns(**columns._asdict()))
        made.append(RocksTables(tmp_path / "tables", FANOUTS, WIDTH, columns))
        return made[-1]

    yield make
    for tables in made:
        tables.close()


@pytest.fixture
def tables(make_tables):
    return make_tables()


def push(rng, samples, features, words):
    """A random push, and what it does to a model."""
    fresh = {(int(rng.integers(2)), int(rng.integers(30))) for _ in range(rng.integers(8))}
    gone = [key for key in samples if key not in fresh and rng.random() < 0.2]
    rows = []
    for table, v in sorted(fresh):
        count = int(rng.integers(1, FANOUTS[table] + 1))
        ids = rng.choice(10**12, count, replace=False).tolist()
        edges = rng.integers(2**31, size=(count, words), dtype=np.int32).view(np.float32)
        entries = list(zip(rng.integers(30, size=count).tolist(), ids, edges, strict=True))
        samples[table, v] = entries
        rows.append((table, v, count, entries))
    owners = sorted({int(v) for v in rng.integers(30, size=rng.integers(6))})
    features_gone = [v for v in features if v not in owners and rng.random() < 0.1]
    values = rng.random((len(owners), WIDTH)).astype(np.float32)
    features.update(zip(owners, values, strict=True))
    for key in gone:
        del samples[key]
    for v in features_gone:
        del features[v]
    flat = [entry for row in rows for entry in row[3]]

    def numbers(values, dtype=np.int32):
        return np.array(list(values), dtype)

    return (
        numbers(row[0] for row in rows),
        numbers(row[1] for row in rows),
        numbers(row[2] for row in rows),
        numbers(entry[0] for entry in flat),
        numbers((entry[1] for entry in flat), np.int64),
        np.array([entry[2] for entry in flat], np.float32).reshape(len(flat), words),
        numbers(key[0] for key in gone),
        numbers(key[1] for key in gone),
        numbers(owners),
        values,
        numbers(features_gone),
    )


def expected_hop(samples, table, parents):
    fanout = FANOUTS[table]
    rows = [samples.get((table, v), []) if v >= 0 else [] for v in parents]
    return [[entry[side] for entry in row] + [-1] * (fanout - len(row)) for side in (0, 1) for row in rows]


def expected_rows(samples, table, parents, words):
    found = np.zeros((len(parents), FANOUTS[table], words), np.float32)
    for place, v in enumerate(parents):
        for at, entry in enumerate(samples.get((table, v), []) if v >= 0 else []):
            found[place, at] = entry[2]
    return found


@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_tables_equal_a_dict_after_every_step(make_tables, columns):
    tables, words = make_tables(columns), columns.words
    rng, samples, features = np.random.default_rng(0), {}, {}
    everywhere = np.ones(_native.BUCKETS, np.uint8)
    for version in range(1, 60):
        tables.apply([push(rng, samples, features, words)], everywhere, version)
        got_samples, got_features = held(tables.contents(WIDTH))
        assert got_samples == {key: [entry[:2] for entry in entries] for key, entries in samples.items()}
        assert {v: row.tobytes() for v, row in got_features.items()} == {v: r.tobytes() for v, r in features.items()}
        if not features:
            continue
        seeds = rng.choice(sorted(features), 5).astype(np.int64)
        found, vertices, ids, rows, *edges = tables.sample([0, 1], seeds, [WIDTH] * 3, edge_ids=True, edge_data=True)
        assert found == version
        wanted = expected_hop(samples, 0, seeds.tolist())
        assert vertices[0].tolist() == wanted[:5]
        assert ids[0].tolist() == wanted[5:]
        parents = vertices[0].ravel().tolist()
        wanted = expected_hop(samples, 1, parents)
        assert vertices[1].reshape(15, 2).tolist() == wanted[:15]
        assert ids[1].reshape(15, 2).tolist() == wanted[15:]
        expected_levels = [
            expected_rows(samples, 0, seeds.tolist(), words),
            expected_rows(samples, 1, parents, words).reshape(5, 3, 2, words),
        ]
        for got_levels, wanted_levels in zip(edges, columns.of_rows(expected_levels), strict=True):
            assert [each.tobytes() for each in got_levels] == [each.tobytes() for each in wanted_levels]
        assert not any(tables.sample([0, 1], seeds, [], edge_ids=False, edge_data=False)[2:])
        zeros = np.zeros(WIDTH, np.float32)
        np.testing.assert_array_equal(rows[0], [features[v] for v in seeds.tolist()])
        np.testing.assert_array_equal(rows[1].reshape(15, WIDTH), [features.get(v, zeros) for v in parents])
    assert sum(tables.bytes().values()) > 0


def test_seeds_that_are_not_here_are_refused(tables):
    seeds = np.zeros(_native.BUCKETS, np.uint8)
    seeds[_native.buckets(np.array([4]))] = 1
    none, ids = np.empty(0, np.int32), np.empty(0, np.int64)
    owners, rows = np.array([4, 5], np.int32), np.ones((2, WIDTH), np.float32)
    edges = np.empty((0, 0), np.float32)
    tables.apply([(none, none, none, none, ids, edges, none, none, owners, rows, none)], seeds, 1)
    version, vertices, edge_ids, features, *_ = tables.sample([0], np.array([4]), [], edge_ids=False, edge_data=False)
    assert (version, vertices[0].tolist(), edge_ids, features) == (1, [[-1, -1, -1]], [], [])
    for seed in (5, 6, -1, 2**40):
        with pytest.raises(VertexUnknown, match=f"live vertices of this serving worker .version 1., got {seed}"):
            tables.sample([0], np.array([4, seed]), [], edge_ids=True, edge_data=False)


def test_a_push_of_arrays_that_differ_in_length_is_refused():
    tables = _native.ServingTables(FANOUTS, WIDTH, _native.EdgeColumns())
    none, one, rows = np.empty(0, np.int32), np.array([0], np.int32), np.empty((0, WIDTH), np.float32)
    entries = np.array([1, 2], np.int32)
    push = (one, one, np.array([2], np.int32), entries, np.array([7]), np.empty((1, 0), np.float32))
    with pytest.raises(InvariantBroken, match="arrays of one message differ in length"):
        tables.apply([(*push, none, none, none, rows, none)], np.ones(_native.BUCKETS, np.uint8), 1)


@pytest.mark.parametrize(("words", "width"), [(1, WIDTH), (0, WIDTH + 1)])
def test_pushes_of_another_width_are_refused(tables, words, width):
    none = np.empty(0, np.int32)
    one, ids = np.array([0], np.int32), np.array([7], np.int64)
    edges, rows = np.zeros((1, words), np.float32), np.ones((1, width), np.float32)
    push = (one, np.array([4], np.int32), np.array([1], np.int32), one, ids, edges, none, none, one, rows, none)
    with pytest.raises((InvariantBroken, UsageError), match="width"):
        tables.apply([push], np.ones(_native.BUCKETS, np.uint8), 1)


def test_a_serving_worker_takes_either(tables):
    graph = lg.Graph(np.ones((4, WIDTH), np.float32), [0, 1, 2], [1, 2, 3])
    spec = ClusterSpec.of(graph, lg.query().out().sample(FANOUTS[0]).out().sample(FANOUTS[1]))
    cluster = lg.LocalCluster(graph, spec.queries, serving=1)
    worker = ServingWorker(spec, 0, tables=tables)
    worker.restore(cluster.serving_workers[0].state())
    np.testing.assert_array_equal(worker.sample([0, 2]).hop(2), cluster.sample([0, 2]).hop(2))


def test_a_serving_worker_that_starts_forgets_what_its_tables_held(tables):
    none = np.empty(0, np.int32)
    place, vertex = np.array([0], np.int32), np.array([3], np.int32)
    edges = np.empty((1, 0), np.float32)
    stale = (place, vertex, np.array([1], np.int32), np.array([0], np.int32), np.array([77]), edges)
    tables.apply([(*stale, none, none, vertex, np.ones((1, WIDTH), np.float32), none)], np.ones(1024, np.uint8), 9)
    graph = lg.Graph(np.ones((3, WIDTH), np.float32), [0, 1], [1, 2])
    spec = ClusterSpec.of(graph, lg.query().out().sample(FANOUTS[0]).out().sample(FANOUTS[1]))
    before = ServingWorker(spec, 0)
    cluster = lg.LocalCluster(graph, spec.queries, serving=1)
    before.restore(cluster.serving_workers[0].state())
    worker = ServingWorker(spec, 0, tables=tables)
    worker.restore(before.state())
    assert held(worker.contents())[0] == held(before.contents())[0]
    assert set(held(worker.contents())[1]) == {0, 1, 2}
    with pytest.raises(VertexUnknown, match="got 3"):
        worker.sample([3])
