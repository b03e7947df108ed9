"""A cache from making it to reading its figures: what it gives, what it counts, what it refuses."""

import subprocess
import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from livegnn.errors import (  # noqa: E402
    DtypeInvalid,
    StateMismatch,
    UsageError,
    ValueInvalid,
    WidthMismatch,
)
from livegnn.temporal import FeatureCache  # noqa: E402
from livegnn.temporal.caches.device_rows import TorchRows  # noqa: E402
from tests.unit.temporal.cache_model import Remote  # noqa: E402


def table(count=10, width=3, dtype=np.float32):
    return np.arange(count * width, dtype=dtype).reshape(count, width)


def test_rows_come_in_the_order_of_the_ids_repeats_and_all():
    x = table()
    cache = FeatureCache(x, capacity=4)
    rows = cache.fetch([7, 0, 7, 9])
    assert isinstance(rows, torch.Tensor)
    assert rows.dtype == torch.float32
    np.testing.assert_array_equal(rows.numpy(), x[[7, 0, 7, 9]])
    np.testing.assert_array_equal(cache.fetch(torch.tensor([9, 1])).numpy(), x[[9, 1]])
    np.testing.assert_array_equal(cache.fetch(np.array([3], np.int32)).numpy(), x[[3]])
    assert cache.fetch([]).shape == (0, 3)


def test_missed_rows_are_read_once_each_in_one_batch_and_hits_not_at_all():
    source = Remote(table())
    cache = FeatureCache(source, capacity=4, max_replace=1.0)
    cache.fetch([5, 2, 5, 3])
    cache.fetch([3, 5, 8])
    assert source.asked == [[5, 2, 3], [8]]
    assert cache.ids().tolist() == [2, 3, 5, 8]


def test_what_a_fetch_counts():
    cache = FeatureCache(Remote(table()), capacity=4, max_replace=0.5)
    cache.fetch([5, 2, 5, 3])
    cache.fetch([5, 5, 1])
    last, total = cache.stats.last, cache.stats
    assert (last.fetches, last.hits, last.misses, last.rows_read, last.admitted, last.evicted) == (1, 2, 1, 1, 1, 0)
    assert last.hit_rate == pytest.approx(2 / 3)
    assert last.bytes_read == 12
    assert last.bytes_to_device == 0
    assert min(last.lookup_s, last.read_s, last.copy_s, last.replace_s) > 0
    assert last.seconds == last.lookup_s + last.read_s + last.copy_s + last.replace_s
    assert (total.fetches, total.hits, total.misses, total.rows_read) == (2, 2, 5, 4)
    assert (total.fills, total.filled_rows) == (0, 0)
    cache.warm([1, 2, 9])
    assert (total.fills, total.filled_rows, total.fill_bytes) == (1, 1, 12)
    total.reset()
    assert (total.fetches, total.hits, total.filled_rows, total.last, total.hit_rate) == (0, 0, 0, None, 0.0)


def test_an_array_in_memory_is_read_in_place():
    x = table()
    cache = FeatureCache(x, capacity=4)
    cache.fetch([1])
    x[1] = -1
    assert cache.fetch([1])[0, 0] == -1
    assert cache.stats.hits == 1
    assert cache.nbytes["rows"] == 0


def test_a_memory_map_is_copied_and_refreshed_when_asked(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, table())
    cache = FeatureCache(np.load(path, mmap_mode="r+"), capacity=4, max_replace=1.0)
    cache.fetch([1, 2])
    x = np.load(path, mmap_mode="r+")
    x[1] = -1
    x.flush()
    assert cache.fetch([1])[0, 0] == 3
    with pytest.raises(StateMismatch, match="row 1 as the source"):
        cache.verify()
    assert cache.refresh([1, 7]) == 1
    assert cache.fetch([1])[0, 0] == -1
    cache.verify()
    x[2] = -2
    x.flush()
    assert cache.invalidate([2, 2, 8, 10**12, -4]) == 1
    assert cache.fetch([2])[0, 0] == -2
    np.testing.assert_array_equal(FeatureCache(path).fetch([2]).numpy(), x[[2]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("width", [0, 1, 5])
@pytest.mark.parametrize("kind", ["array", "tensor", "memmap", "object", "device"])
def test_every_dtype_and_width_from_every_source(kind, width, dtype, tmp_path):
    x = np.random.default_rng(0).random((40, width)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    features = {"tensor": torch.from_numpy(x), "memmap": tmp_path / "x.npy", "object": Remote(x), "device": Remote(x)}
    if kind == "memmap" and width == 0:
        pytest.skip("a file of no bytes cannot be mapped")
    cache = FeatureCache(features.get(kind, x), capacity=8, max_replace=0.5)
    if kind == "device":
        cache._rows = TorchRows(torch, (8, width), x.dtype, torch.device("cpu"))
    for seed in range(20):
        ids = np.random.default_rng(seed).integers(0, 40, 12)
        rows = cache.fetch(ids)
        assert rows.dtype == getattr(torch, np.dtype(dtype).name)
        np.testing.assert_array_equal(rows.numpy(), x[ids])
        cache.verify()
    if kind == "device":
        assert cache.stats.bytes_to_device == cache.stats.bytes_read == cache.stats.rows_read * x.itemsize * width


@pytest.mark.parametrize("threads", [1, 2])
def test_large_fetches_are_copied_by_several_threads(threads, tmp_path):
    x = np.random.default_rng(0).random((20_000, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for features in (x, tmp_path / "x.npy", Remote(x)):
        cache = FeatureCache(features, capacity=8_000, max_replace=0.5, threads=threads)
        for seed in range(3):
            ids = np.random.default_rng(seed).integers(0, 20_000, 15_000)
            np.testing.assert_array_equal(cache.fetch(ids).numpy(), x[ids])
        cache.verify()


def test_fetches_from_several_threads_are_each_right():
    x = table(2000, 4)
    cache = FeatureCache(Remote(x), capacity=200)
    wrong = []

    def read(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            ids = rng.integers(0, 2000, 100)
            if not np.array_equal(cache.fetch(ids).numpy(), x[ids]):
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cache.stats.hits + cache.stats.misses == 4 * 60 * 100
    cache.verify()


# ---- failures leave no trace


def state(cache):
    return cache.ids().tolist(), cache.stats.fetches, cache.stats.hits, cache.stats.misses


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo", "static"])
def test_a_fetch_that_fails_changes_nothing(policy):
    source = Remote(table())
    cache = FeatureCache(source, capacity=3, policy=policy, max_replace=1.0)
    cache.warm([1, 1, 2, 5])
    before = state(cache)
    with pytest.raises(ValueInvalid, match=r"\[fetch\] expected ids from 0 to 9, got 10 at row 2; fix the ids"):
        cache.fetch([1, 4, 10])
    with pytest.raises(ValueInvalid, match="got -1 at row 0"):  # elsewhere the last row, in silence
        cache.fetch([-1])
    source.broken = True
    with pytest.raises(OSError, match="no answer"):
        cache.fetch([2, 4])
    assert state(cache) == before
    source.broken = False
    cache.verify()


def test_a_source_that_answers_wrongly_is_named():
    source = Remote(table())
    cache = FeatureCache(source, capacity=3)
    source.rows = lambda ids: table()[ids][:, :2]
    with pytest.raises(WidthMismatch, match=r"expected rows of shape \(1, 3\) from the source, got \(1, 2\)"):
        cache.fetch([1])
    source.rows = lambda ids: table(dtype=np.float64)[ids]
    with pytest.raises(DtypeInvalid, match="expected float32 rows from the source, got float64"):
        cache.fetch([1])
    assert len(cache) == 0


def test_a_source_that_fails_while_contents_are_put_in_place_leaves_an_empty_cache():
    source = Remote(table())
    cache = FeatureCache(source, capacity=3, max_replace=1.0)
    cache.fetch([1, 2, 3])
    cache.checkpoint()
    cache.fetch([4, 5, 6])
    source.broken = True
    with pytest.raises(OSError, match="no answer"):
        cache.restore()
    assert len(cache) == 0
    source.broken = False
    cache.restore()
    assert cache.ids().tolist() == [1, 2, 3]
    source.broken = True
    with pytest.raises(OSError, match="no answer"):
        cache.refresh([2])
    assert cache.ids().tolist() == [1, 3]


# ---- what is refused


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([1.5], DtypeInvalid, "expected ids as int64, got dtype float64"),
        ([True], DtypeInvalid, "got dtype bool"),
        ([[1]], WidthMismatch, "shape"),
        (torch.tensor([0.5]), DtypeInvalid, "got dtype float32"),
        (np.array([2**63], np.uint64), ValueInvalid, "fits int64"),
        ("3", (DtypeInvalid, WidthMismatch), "expected ids"),
    ],
)
def test_ids_of_another_form(ids, error, message):
    with pytest.raises(error, match=message):
        FeatureCache(table(), capacity=3).fetch(ids)


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (table(dtype=np.float64), DtypeInvalid, "expected float32 or float16 features, got float64"),
        (torch.zeros(3, 2, dtype=torch.float64), DtypeInvalid, "got float64"),
        (torch.zeros(3, 2, dtype=torch.bfloat16), DtypeInvalid, r"got torch\.bfloat16"),
        (np.zeros(3, np.float32), WidthMismatch, r"shape \(N, d\), got \(3,\)"),
        (np.asfortranarray(table()), ValueInvalid, "ascontiguousarray"),
        (table()[:, ::2], ValueInvalid, "ascontiguousarray"),
        (torch.zeros(3, 2, device="meta"), UsageError, "got Tensor on meta"),
        ([[1.0]], UsageError, "got list"),
        (None, UsageError, "got NoneType"),
    ],
)
def test_features_of_another_form(features, error, message):
    with pytest.raises(error, match=message):
        FeatureCache(features)


def test_files_of_another_form(tmp_path):
    np.savez(tmp_path / "several.npz", x=table())
    with pytest.raises(UsageError, match=r"one array at .*several\.npz, got several"):
        FeatureCache(tmp_path / "several.npz")
    (tmp_path / "text.npy").write_text("1 2 3")
    with pytest.raises(UsageError, match=r"\.npy file of numbers at .*text\.npy"):
        FeatureCache(tmp_path / "text.npy")
    with pytest.raises(FileNotFoundError):
        FeatureCache(tmp_path / "nowhere.npy")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"capacity": 0}, ValueInvalid, "expected a capacity from 1"),
        ({"capacity": 2**29 + 1}, ValueInvalid, "expected a capacity from 1"),
        ({"capacity": 1.5}, DtypeInvalid, "expected capacity as an integer"),
        ({"policy": ["lru"]}, ValueInvalid, r"expected a policy among lru, lfu, fifo, static, got \['lru'\]"),
        ({"policy": "mru"}, ValueInvalid, "expected a policy among lru, lfu, fifo, static, got 'mru'"),
        ({"max_replace": 0}, ValueInvalid, "expected 0 < max_replace <= 1, got 0"),
        ({"max_replace": 1.01}, ValueInvalid, "got 1.01"),
        ({"max_replace": "all"}, DtypeInvalid, "as a number"),
        ({"device": "tape"}, UsageError, "expected a device that torch can use here, got 'tape'"),
        ({"threads": 0}, ValueInvalid, "1 to 256 threads, got 0"),
    ],
)
def test_options_out_of_range(options, error, message):
    with pytest.raises(error, match=message):
        FeatureCache(table(), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there():
    with pytest.raises(UsageError, match="expected a device that torch can use here, got 'cuda'"):
        FeatureCache(table(), device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_the_same_rows_on_a_gpu():
    x = table(1000, 8)
    cache = FeatureCache(x, capacity=100, device="cuda")
    for seed in range(20):
        ids = np.random.default_rng(seed).integers(0, 1000, 300)
        rows = cache.fetch(ids)
        assert rows.device.type == "cuda"
        np.testing.assert_array_equal(rows.cpu().numpy(), x[ids])
    cache.verify()


def test_a_closed_cache_reads_no_more():
    cache = FeatureCache(table(), capacity=3)
    cache.close()
    cache.close()
    with pytest.raises(UsageError, match=r"\[fetch\] expected an open cache"):
        cache.fetch([1])


def test_what_it_says_of_itself():
    cache = FeatureCache(table(), capacity=3, policy="fifo")
    cache.fetch([1])
    assert repr(cache) == "FeatureCache(rows=1 of 3, width=3, policy='fifo', device='cpu')"
    assert (len(cache), cache.capacity, cache.policy, cache.width, cache.device.type) == (1, 3, "fifo", 3, "cpu")
    assert cache.nbytes["index"] > 0
    assert FeatureCache(Remote(table()), capacity=3).nbytes["rows"] == 36


def test_the_package_comes_without_torch():
    program = "import sys; from livegnn.temporal import FeatureCache; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_torch_the_error_names_the_extra():
    program = (
        "import sys, numpy as np; sys.modules['torch'] = None\n"
        "from livegnn.temporal import FeatureCache\n"
        "try: FeatureCache(np.zeros((2, 2), np.float32))\n"
        "except Exception as error: raise SystemExit(f'{type(error).__name__}: {error}')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr.startswith("DataMissing"), run.stderr
    assert "livegnn[train]" in run.stderr
