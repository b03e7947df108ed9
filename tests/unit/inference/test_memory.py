"""A limit of memory: what is asked for, what is refused, and that nothing but the memory is another."""

import contextlib
import os
import resource

import numpy as np
import pytest

import livegnn as lg
from livegnn.inference import memory
from livegnn.testing import random_batch, random_graph, random_model
from tests.unit.inference.attention_models import model as attention_model


@pytest.fixture
def small(monkeypatch):
    """Limits so small that the graphs of tests are several times as large."""
    monkeypatch.setattr(memory, "LEAST_LIMIT", 1)


def two_engines(rng, limit, vertices=400, **options):
    """One with a limit and one without, on the same graph."""
    model = random_model(rng, depth=2, on_edges=False)
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights, vertices=vertices)
    whole = lg.Engine(model, graph, **options)
    return lg.Engine(model, graph, memory_limit=limit, **options), whole, mirror


@pytest.mark.parametrize(
    ("text", "size"),
    [("4MiB", 4 << 20), (" 1.5 GiB ", 3 << 29), ("7MB", 7 * 10**6), (1 << 22, 1 << 22), ("1TB", 10**12)],
)
def test_sizes(text, size):
    assert memory.parse_limit(text) == size


@pytest.mark.parametrize("limit", ["4", "4 bytes", "-5GiB", "16mib", "2 gigs", "nan GiB", "٤GiB", ""])
def test_texts_that_are_no_sizes(limit):
    with pytest.raises(lg.errors.ValueInvalid, match="memory_limit as a number with KB, MB"):
        memory.parse_limit(limit)


@pytest.mark.parametrize("limit", ["1MiB", 0, -1, (4 << 20) - 1, 2**62, "9999999999TiB"])
def test_sizes_out_of_range(limit):
    with pytest.raises(lg.errors.ValueInvalid, match="memory_limit of at least 4 MiB and below"):
        memory.parse_limit(limit)


@pytest.mark.parametrize("limit", [1e9, True, [4 << 20], b"4GiB"])
def test_sizes_of_another_type(limit):
    with pytest.raises(lg.errors.DtypeInvalid, match="memory_limit as text with a unit or bytes"):
        memory.parse_limit(limit)


def test_folders(tmp_path, monkeypatch):
    assert memory.spill_place(tmp_path) == str(tmp_path)
    with pytest.raises(lg.errors.UsageError, match="absent"):
        memory.spill_place(tmp_path / "absent")
    with pytest.raises(lg.errors.DtypeInvalid, match="got 3"):
        memory.spill_place(3)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert memory.spill_place(None) == str(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    with pytest.raises(lg.errors.UsageError, match="TMPDIR"):
        memory.spill_place(None)
    with pytest.raises(lg.errors.ValueInvalid, match="memory_limit= with spill_folder="):
        memory.memory_options(None, tmp_path)


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory at /dev/shm")
def test_a_folder_in_memory_is_refused():
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0, 1], [1, 2])
    model = lg.Model([lg.layers.LG()], input_width=4)
    with pytest.raises(lg.errors.SpillUnavailable, match="its files lie in memory"):
        lg.Engine(model, graph, memory_limit="4MiB", spill_folder="/dev/shm")


def test_without_a_limit_there_is_none():
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0, 1], [1, 2])
    assert lg.Engine(lg.Model([lg.layers.LG()], input_width=4), graph).memory is None


def test_what_it_says_of_its_memory(small):
    rng = np.random.default_rng(3)
    limited, whole, mirror = two_engines(rng, 64 << 10, vertices=2000)
    for size in (1, 30, 300):
        limited.apply(random_batch(rng, mirror, size))
        found = limited.memory
        assert found.limit == 64 << 10
        assert found.resident <= found.limit
        assert found.files >= sum(limited.state_bytes()[part] for part in ("aggregates", "messages", "stored"))
        assert found.files > 4 * found.limit
        assert 0 < found.hubs < 2000
        assert found.pages_in > found.pages_out > 0
    assert limited.state_digest() == whole.state_digest()


@pytest.mark.parametrize("path", ["push", "pull", "sweep"])
@pytest.mark.parametrize("state", ["fast", "compact"])
def test_every_path_with_the_same_bits(small, path, state):
    rng = np.random.default_rng([5, len(path), len(state)])
    for _ in range(3):
        limited, whole, mirror = two_engines(rng, 32 << 10, path=path, state=state)
        for size in (1, 12, 200):
            limited.apply(random_batch(rng, mirror, size))
            ids = limited.graph.vertices()
            assert limited.embeddings(ids).tobytes() == whole.embeddings(ids).tobytes()
        limited.verify()
        assert limited.recompute().tobytes() == whole.recompute().tobytes()
        assert limited.memory.pages_out > 0


def test_a_refused_batch_and_a_look_ahead_leave_every_bit(small):
    rng = np.random.default_rng(11)
    limited, _, mirror = two_engines(rng, 32 << 10)
    before = limited.state_digest()
    with limited.what_if(random_batch(rng, mirror.copy(), 40)) as view:
        view.embeddings(limited.graph.vertices()[:1])
    assert limited.state_digest() == before
    updates = random_batch(rng, mirror.copy(), 5)
    updates.remove_vertex(10_000)
    with pytest.raises(lg.errors.VertexUnknown):
        limited.apply(updates)
    assert limited.state_digest() == before


def test_a_message_out_of_range_is_rolled_back(small):
    rng = np.random.default_rng(12)
    graph = lg.Graph(
        rng.standard_normal((500, 8)).astype(np.float32), rng.integers(0, 500, 2000), rng.integers(0, 500, 2000)
    )
    model = lg.Model([lg.layers.GraphConv(rng.standard_normal((8, 8)), rng.standard_normal((8, 8))) for _ in range(2)])
    engine = lg.Engine(model, graph, memory_limit=16 << 10)
    before = engine.state_digest()
    updates = lg.Updates()
    updates.set_features(int(graph.vertices()[0]), np.full(8, 1e9, np.float32))
    with pytest.raises(lg.errors.RangeOverflow):
        engine.apply(updates)
    assert engine.state_digest() == before
    engine.verify()


def test_saved_without_it_and_loaded_with_it(small, tmp_path):
    rng = np.random.default_rng(13)
    limited, whole, _ = two_engines(rng, 32 << 10)
    limited.save(tmp_path / "engine.lg")
    assert lg.Engine.load(tmp_path / "engine.lg").memory is None
    loaded = lg.Engine.load(tmp_path / "engine.lg", memory_limit=64 << 10)
    assert loaded.memory.limit == 64 << 10
    assert loaded.state_digest() == whole.state_digest()


def test_a_disk_that_is_full_refuses_and_changes_nothing(small):
    rng = np.random.default_rng(14)
    limited, whole, _ = two_engines(rng, 32 << 10)
    before, version = limited.state_digest(), limited.version
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    updates = lg.Updates()
    width = limited.graph.feature_width
    first = limited.graph.slot_count
    for v in range(first, first + 3000):
        updates.add_vertex(v, np.ones(width, np.float32))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    try:
        with pytest.raises(lg.errors.SpillUnavailable, match="bytes more"):
            limited.apply(updates)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert limited.version == version
    assert limited.state_digest() == whole.state_digest() == before
    limited.apply(updates)
    assert limited.state_digest() == whole.state_digest() != before
    limited.verify()


def test_a_forked_process_is_refused_and_does_no_harm(small):
    rng = np.random.default_rng(15)
    limited, whole, mirror = two_engines(rng, 32 << 10, threads=1)
    ids = limited.graph.vertices()
    expected = whole.embeddings(ids).tobytes()
    updates = random_batch(rng, mirror.copy(), 3)
    uses = (limited.verify, lambda: limited.apply(updates), lambda: limited.embeddings(ids))
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for use in uses:
                with contextlib.suppress(lg.errors.SpillUnavailable):
                    use()
                    continue
                refused += 1
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert limited.embeddings(ids).tobytes() == expected
    limited.verify()


def test_a_forked_process_whose_first_batch_is_a_what_if(small):
    rng = np.random.default_rng(17)
    n = 40
    graph = lg.Graph(rng.standard_normal((n, 5)), rng.integers(0, n, 300), rng.integers(0, n, 300))
    limited = lg.Engine(attention_model(rng), graph, memory_limit=32 << 10, threads=1)
    updates = lg.Updates()
    updates.add_edge(1, 2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with contextlib.suppress(lg.errors.SpillUnavailable), limited.what_if(updates):
                os._exit(2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    limited.verify()


def test_a_query_on_demand_that_finds_the_disk_full_changes_nothing(small):
    rng = np.random.default_rng(16)
    n, weights = 1000, [rng.standard_normal((16, 16)) for _ in range(2)]
    graph = lg.Graph(rng.standard_normal((n, 16)), rng.integers(0, n, 3000), rng.integers(0, n, 3000))
    engine = lg.Engine(lg.Model([lg.layers.GCN(w) for w in weights]), graph, mode="on_demand", memory_limit=400_000)
    updates = lg.Updates()
    updates.add_edges(np.arange(50), np.arange(50) + 7)
    engine.apply(updates)
    engine.complete()
    updates = lg.Updates()
    for v in range(n, n + 700):
        updates.add_vertex(v, np.ones(16, np.float32))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        engine.apply(updates)
        with pytest.raises(lg.errors.SpillUnavailable):
            engine.embeddings([3])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    engine.embeddings([3])
    engine.verify()
