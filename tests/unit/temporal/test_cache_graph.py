"""A cache in front of a graph that changes: no row is older than the last batch."""

import threading

import numpy as np
import pytest

pytest.importorskip("torch")

import livegnn as lg
from livegnn.errors import EdgeMissing, EdgeOffloaded, UsageError, VertexUnknown
from livegnn.temporal import FeatureCache
from tests.unit.temporal.cache_model import Remote


def batch(graph, **calls):
    updates = lg.Updates()
    for name, arguments in calls.items():
        getattr(updates, name)(*arguments)
    return graph.apply(updates)


def row(*values):
    return np.array(values, np.float32)


@pytest.fixture
def graph():
    attr = np.arange(6, dtype=np.float32).reshape(3, 2)
    return lg.Graph(np.eye(4, dtype=np.float32), [0, 1, 2], [1, 2, 3], edge_attr=attr)


def test_a_changed_row_is_refreshed_with_the_batch(graph):
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([0, 1])
    batch(graph, set_features=(1, row(9, 9, 9, 9)))
    assert cache.stats.refreshed == 1  # before anyone asked
    assert cache.stats.filled_rows == 1
    assert cache.fetch([1, 0]).tolist() == [[9, 9, 9, 9], [1, 0, 0, 0]]
    assert cache.stats.last.hits == 2
    batch(graph, set_features=(3, row(5, 5, 5, 5)))
    assert cache.stats.refreshed == 1  # not cached, not read


def test_a_batch_that_is_refused_changes_no_row(graph):
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([1])
    updates = lg.Updates()
    updates.set_features(1, row(9, 9, 9, 9))
    updates.remove_vertex(77)
    with pytest.raises(VertexUnknown):
        graph.apply(updates)
    assert cache.fetch([1]).tolist() == [[0, 1, 0, 0]]
    assert cache.stats.refreshed == 0


def test_a_graph_grows_and_its_cache_with_it(graph):
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    with pytest.raises(VertexUnknown, match=r"\[fetch\] expected slots of live vertices, below 4 \(version 0\), got 4"):
        cache.fetch([4])
    batch(graph, add_vertex=(4, row(4, 4, 4, 4)))
    assert cache.fetch([4]).tolist() == [[4, 4, 4, 4]]


def test_a_removed_vertex_is_forgotten_and_its_slot_is_another(graph):
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([1, 2])
    batch(graph, remove_vertex=(1,))
    assert cache.ids().tolist() == [2]
    with pytest.raises(VertexUnknown, match="got 1, which was removed"):
        cache.fetch([2, 1])
    batch(graph, add_vertex=(1, row(7, 7, 7, 7)))
    assert cache.fetch([1]).tolist() == [[7, 7, 7, 7]]


def test_a_removed_vertex_with_a_row_of_zeros_is_forgotten_too(graph):
    batch(graph, set_features=(1, row(0, 0, 0, 0)))
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([1])
    batch(graph, remove_vertex=(1,))
    with pytest.raises(VertexUnknown, match="got 1, which was removed"):
        cache.fetch([1])


def test_attributes_of_edges(graph):
    cache = FeatureCache.of_edges(graph, capacity=3, max_replace=1.0)
    assert cache.fetch([2, 0]).tolist() == [[4, 5], [0, 1]]
    batch(graph, set_edge_attr=(0, 1, row(8, 8)))
    assert cache.stats.refreshed == 1
    assert cache.fetch([0]).tolist() == [[8, 8]]
    updates = lg.Updates()
    updates.add_edge(3, 0, edge_attr=row(6, 6))
    updates.remove_edge(2, 3)
    graph.apply(updates)
    assert cache.fetch([3]).tolist() == [[6, 6]]
    with pytest.raises(EdgeMissing, match=r"below 4 \(version 2\), got 2, which was removed; leave it out"):
        cache.fetch([0, 2])
    with pytest.raises(EdgeMissing, match=r"\[fetch\] expected ids of edges that are there, below 4 .* got 4 at row 0"):
        cache.fetch([4])
    with pytest.raises(EdgeMissing, match="got -1 at row 1"):
        cache.fetch([0, -1])
    cache.verify()


def test_an_edge_that_a_removed_vertex_takes_along_is_forgotten(graph):
    cache = FeatureCache.of_edges(graph, capacity=3, max_replace=1.0)
    cache.fetch([0, 1, 2])
    batch(graph, remove_vertex=(1,))
    assert cache.ids().tolist() == [2]


def test_edges_without_attributes_have_rows_of_width_0():
    graph = lg.Graph(np.zeros((2, 0), np.float32), [0, 1], [1, 0])
    edges, vertices = FeatureCache.of_edges(graph, capacity=3), FeatureCache(graph, capacity=3)
    for _ in range(3):
        assert edges.fetch([1, 0, 1]).shape == (3, 0)
        assert vertices.fetch([1]).shape == (1, 0)
    assert edges.stats.hits > 0
    with pytest.raises(EdgeMissing, match="got 2 at row 0"):
        edges.fetch([2])
    edges.verify()


def test_a_source_elsewhere_is_not_read_inside_a_batch_but_when_asked_for(graph):
    source = Remote(graph.features())
    cache = FeatureCache(source, capacity=4, max_replace=1.0)
    cache.follow(graph)
    cache.fetch([1, 2, 3])
    source.table[1] = 9
    source.broken = True
    batch(graph, set_features=(1, row(9, 9, 9, 9)), remove_vertex=(3,))
    source.broken = False
    assert cache.fetch([1, 2]).tolist() == [[9, 9, 9, 9], graph.features([2])[0].tolist()]
    assert cache.stats.last.hits == 1
    assert cache.ids().tolist() == [2, 1]


def test_a_source_elsewhere_is_not_read_by_calls_that_give_no_rows(graph, tmp_path):
    """In distributed training another process would have to answer, and nobody there would be asked."""
    source = Remote(graph.features())
    cache = FeatureCache(source, capacity=4, max_replace=1.0)
    cache.follow(graph)
    calls = (
        cache.checkpoint,
        cache.ids,
        lambda: cache.save(tmp_path / "ids"),
        lambda: cache.invalidate([1]),
        lambda: cache.resize(5),
    )
    for call in calls:
        cache.fetch([1, 2])
        source.table[1] += 9
        batch(graph, set_features=(1, source.table[1]))
        source.broken = True
        call()
        source.broken = False
        assert cache.ids().tolist() == [2]
        assert cache.fetch([1]).tolist() == [source.table[1].tolist()]


def test_an_edge_in_a_file_is_not_called_removed(tmp_path):
    pytest.importorskip("pyarrow")
    ends, attr = np.zeros(3, np.int64), np.arange(3, dtype=np.float32)[:, None]
    graph = lg.Graph(np.zeros((1, 0), np.float32), ends, ends, time=[1, 2, 3], edge_attr=attr)
    cache = FeatureCache.of_edges(graph, capacity=2)
    graph.offload(2, tmp_path / "old.parquet")
    assert cache.fetch([1, 2]).tolist() == [[1], [2]]
    with pytest.raises(EdgeOffloaded, match="got 0, which was removed or lies in a file with the 1 before 2"):
        cache.fetch([2, 0])
    with pytest.raises(EdgeOffloaded, match="got 0"):
        cache.warm([0])
    with pytest.raises(EdgeMissing, match=r"below 3 .*, got 7"):
        cache.fetch([7])
    graph.reload()
    assert cache.fetch([0]).tolist() == [[0]]


def test_a_file_beside_a_graph_is_refreshed_with_the_batch(graph, tmp_path):
    np.save(tmp_path / "x.npy", graph.features())
    x = np.load(tmp_path / "x.npy", mmap_mode="r+")
    cache = FeatureCache(x, capacity=4, max_replace=1.0)
    cache.follow(graph)
    cache.fetch([1, 2])
    x[1] = 9
    batch(graph, set_features=(1, row(9, 9, 9, 9)))
    assert cache.stats.refreshed == 1
    cache.verify()


@pytest.mark.parametrize("feature_dtype", ["float32", "float16", "none"])
def test_a_row_that_is_set_is_read_again_though_the_graphs_own_stays(feature_dtype, tmp_path):
    """Of 16 bits, or of none, the graph may see no difference where the source has another row."""
    width = 0 if feature_dtype == "none" else 1
    options = {} if feature_dtype == "none" else {"feature_dtype": feature_dtype}
    graph = lg.Graph(np.ones((3, width), np.float32), [], [], **options)
    np.save(tmp_path / "x.npy", np.ones((3, 1), np.float32))
    in_file, source = np.load(tmp_path / "x.npy", mmap_mode="r+"), Remote(np.ones((3, 1), np.float32))
    caches = mapped, elsewhere = [FeatureCache(each, capacity=3, max_replace=1.0) for each in (in_file, source)]
    for cache in caches:
        cache.follow(graph)
        cache.fetch([0, 1, 2])
    in_file[1] = source.table[1] = 1 + 2**-20
    batch(graph, set_features=(1, np.ones(width, np.float32)))
    assert (mapped.stats.refreshed, elsewhere.ids().tolist()) == (1, [0, 2])
    for cache in caches:
        assert cache.fetch([1]).tolist() == [[1 + 2**-20]]
        cache.verify()


def test_a_vertex_that_goes_and_comes_in_one_batch_is_read_again():
    graph = lg.Graph(np.zeros((2, 1), np.float32), [], [])
    source = Remote(np.zeros((2, 1), np.float32))
    cache = FeatureCache(source, capacity=2, max_replace=1.0)
    cache.follow(graph)
    cache.fetch([0, 1])
    source.table[1] = 5  # another vertex, whose features begin as the first one's
    updates = lg.Updates()
    updates.remove_vertex(1)
    updates.add_vertex(1, [0.0])
    graph.apply(updates)
    assert cache.ids().tolist() == [0]
    assert cache.fetch([1]).tolist() == [[5]]


@pytest.mark.parametrize("edges", [False, True])
def test_what_the_followed_graph_has_lost_is_not_loaded(tmp_path, edges):
    graph = lg.Graph(np.zeros((3, 1), np.float32), [0, 1, 2], [0, 1, 2], edge_attr=np.zeros((3, 1), np.float32))
    source = Remote(np.arange(4, dtype=np.float32)[:, None])
    cache = FeatureCache(source, capacity=4, max_replace=1.0)
    cache.follow(graph, edges=edges)
    cache.fetch([3, 2, 1, 0])  # the graph has no 3 yet
    cache.save(tmp_path / "ids")
    cache.checkpoint()
    batch(graph, **({"remove_edge": (1, 1)} if edges else {"remove_vertex": (1,)}))
    source.asked.clear()
    for put_back in (lambda: cache.load(tmp_path / "ids"), cache.restore):
        cache.invalidate([0, 2, 3])
        put_back()
        assert cache.ids().tolist() == [3, 2, 0]
    assert all(1 not in ids for ids in source.asked)


@pytest.mark.parametrize("once", [False, True])
def test_a_slot_that_another_vertex_took_is_restored_as_it_is_loaded(graph, tmp_path, once):
    """Whether the cache has looked in between, or both came in one batch, the contents are the same."""
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([0, 1, 2])
    cache.checkpoint()
    cache.save(tmp_path / "ids")
    if once:
        batch(graph, remove_vertex=(1,), add_vertex=(1, row(5, 5, 5, 5)))
    else:
        batch(graph, remove_vertex=(1,))
        batch(graph, add_vertex=(1, row(5, 5, 5, 5)))
    for put_back in (cache.restore, lambda: cache.load(tmp_path / "ids")):
        put_back()
        assert cache.ids().tolist() == [0, 1, 2]
        cache.verify()


def test_what_goes_while_a_file_is_loaded_is_not_loaded(tmp_path):
    """The batch comes after the ids were compared with the graph; a fetch then takes note of it."""
    graph = lg.Graph(np.zeros((3, 1), np.float32), [], [])
    source = Remote(np.arange(3, dtype=np.float32)[:, None])
    cache = FeatureCache(source, capacity=3, max_replace=1.0)
    cache.follow(graph)
    cache.fetch([0, 1, 2])
    cache.save(tmp_path / "ids")
    compare = cache._followed_have

    def compare_and_lose(ids):
        left = compare(ids)
        if left.all():
            batch(graph, remove_vertex=(1,))
            cache.fetch([0])
        return left

    cache._followed_have = compare_and_lose
    cache.load(tmp_path / "ids")
    assert cache.ids().tolist() == [0, 2]


def test_a_cache_follows_one_graph(graph):
    with pytest.raises(UsageError, match=r"\[follow\] expected a cache that follows no graph yet"):
        FeatureCache(graph, capacity=4).follow(graph)
    with pytest.raises(UsageError, match=r"\[follow\] expected a Graph, got list"):
        FeatureCache(np.eye(4, dtype=np.float32)).follow([])
    with pytest.raises(UsageError, match=r"\[of_edges\] expected a Graph, got str"):
        FeatureCache.of_edges("graph")
    with pytest.raises(UsageError, match="expected features other than a graph, which grows by itself"):
        FeatureCache(graph, capacity=4).resize(features=graph)


def test_contents_come_back_without_what_was_removed_since(graph, tmp_path):
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([0, 1, 2])
    cache.save(tmp_path / "cache.npz")
    cache.checkpoint()
    updates = lg.Updates()
    updates.remove_vertex(1)
    updates.set_features(2, row(3, 3, 3, 3))
    graph.apply(updates)
    cache.restore()
    assert cache.ids().tolist() == [0, 2]
    cache.load(tmp_path / "cache.npz")
    assert cache.ids().tolist() == [0, 2]
    assert cache.fetch([2]).tolist() == [[3, 3, 3, 3]]
    with pytest.raises(VertexUnknown, match=r"\[warm\] .* got 1 at row 1"):
        cache.warm([0, 1])


def test_what_is_only_supposed_is_not_read(graph):
    engine = lg.Engine(lg.Model([lg.layers.SAGE(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32))]), graph)
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    updates = lg.Updates()
    updates.set_features(1, row(9, 9, 9, 9))
    with engine.what_if(updates), pytest.raises(UsageError, match="inside a what_if block"):
        cache.fetch([1])
    assert cache.fetch([1]).tolist() == [[0, 1, 0, 0]]


def test_a_callback_sees_the_rows_of_its_version(graph):
    cache = FeatureCache(graph, capacity=4, max_replace=1.0)
    cache.fetch([1])
    engine = lg.Engine(lg.Model([lg.layers.SAGE(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32))]), graph)
    seen = []
    engine.on_change(lambda changes: seen.append(cache.fetch([1]).tolist()))
    batch(graph, set_features=(1, row(9, 9, 9, 9)))
    assert seen == [[[9, 9, 9, 9]]]


def test_a_closed_cache_hears_of_no_batch(graph):
    cache = FeatureCache(graph, capacity=4)
    cache.close()
    batch(graph, set_features=(1, row(9, 9, 9, 9)))
    with pytest.raises(UsageError, match="expected an open cache"):
        cache.fetch([1])


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo", "static"])
def test_readers_beside_a_writer_see_whole_versions_and_no_old_one(policy):
    """Every batch writes its number into all rows: a fetch sees one number, not less than before it began."""
    count = 64
    graph = lg.Graph(np.zeros((count, 1), np.float32), [], [])
    cache = FeatureCache(graph, capacity=20, policy=policy)
    cache.warm(np.arange(20))
    wrong, stop = [], threading.Event()

    def read(seed):
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            before = graph.version
            seen = set(cache.fetch(rng.integers(0, count, 30)).flatten().tolist())
            if len(seen) != 1 or min(seen) < before:
                wrong.append((before, seen))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    for version in range(1, 150):
        updates = lg.Updates()
        updates.set_features(np.arange(count), np.full((count, 1), version, np.float32))
        graph.apply(updates)
        if not np.all(cache.fetch([0, 63]).numpy() == version):
            wrong.append(version)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_cache_of_one_type_has_its_width_and_leaves_slots_that_go_to_another():
    x = {"User": np.eye(3, dtype=np.float16), "Item": np.full((2, 1), 7, np.float16)}
    buys = ("User", "buys", "Item")
    graph = lg.Graph(x, {buys: [0]}, {buys: [1]})
    users, items = (FeatureCache(graph, vertex_type=name, capacity=4, max_replace=1.0) for name in x)
    both = FeatureCache(graph, capacity=8, max_replace=1.0)
    assert (users.width, items.width, both.width) == (3, 1, 3)
    slots = graph.to_slots([1, 2], vertex_type="User")
    assert users.fetch(slots).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert items.fetch(graph.to_slots([1], vertex_type="Item")).tolist() == [[7]]
    assert both.fetch([*slots, 3]).tolist() == [[0, 1, 0], [0, 0, 1], [7, 0, 0]]
    with pytest.raises(VertexUnknown, match=r"live vertices of type 'User'.*got 3 at row 1"):
        users.fetch([0, 3])
    updates = lg.Updates()
    updates.remove_vertex(1, vertex_type="User")
    updates.add_vertex(2, row(8), vertex_type="Item")
    graph.apply(updates)
    assert graph.to_slots([2], vertex_type="Item").tolist() == [slots[0]]
    assert users.ids().tolist() == [slots[1]]
    assert items.fetch([slots[0]]).tolist() == [[8]]
    assert both.fetch([slots[0]]).tolist() == [[8, 0, 0]]
    users.verify(), items.verify(), both.verify()
    with pytest.raises(UsageError, match="vertex_type= with a Graph"):
        FeatureCache(np.eye(2, dtype=np.float32), vertex_type="User")
    with pytest.raises(VertexUnknown, match="of type 'Item'"):
        items.warm([0])
