"""Files that shrink while they are mapped or read: our error, and a process that lives."""

import os
import subprocess
import sys

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LiveGnnError, ModelError, StorageFailed, StoredStateInvalid, UsageError, ValueInvalid
from livegnn.sampling.cluster.rocks_tables import RocksTables
from livegnn.sampling.presample.sample import NO_COLUMNS
from livegnn.temporal.checkpoint import read_checkpoint, write_checkpoint
from tests.fault import written
from tests.unit.temporal.training import graph_of

torch = pytest.importorskip("torch")
parquet = pytest.importorskip("pyarrow.parquet")

SHRINKING = """
import os, sys
import numpy as np
from livegnn.errors import StorageFailed
from livegnn.temporal import FeatureCache

path = sys.argv[1]
for kind in ("path", "memmap", "view"):
    np.save(path, np.ones((4096, 256), np.float32))
    mapped = np.load(path, mmap_mode="r")
    cache = FeatureCache({"path": path, "memmap": mapped, "view": np.asarray(mapped)}[kind], capacity=8)
    assert cache.fetch([4000])[0, 0] == 1
    os.truncate(path, 4096)
    for call in (lambda: cache.fetch([100, 2000]), lambda: cache.warm([7, 3000]), lambda: cache.fetch([3999])):
        try:
            call()
        except StorageFailed as error:
            assert "4096" in str(error), error
        else:
            raise AssertionError("read")
    os.unlink(path)
    print(kind)
"""


def test_a_mapped_feature_file_that_shrinks_is_an_error(tmp_path):
    """Each read would end the process by SIGBUS: so it is another process."""
    command = [sys.executable, "-c", SHRINKING, str(tmp_path / "x.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "path\nmemmap\nview\n"), done.stderr


def test_an_offloaded_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    path, graph = tmp_path / "edges.parquet", written.temporal_graph()
    away = graph.offload(30, path)
    whole, opened = path.read_bytes(), parquet.ParquetFile

    def cut(*arguments, **options):
        found = opened(*arguments, **options)
        with open("/proc/self/maps") as maps:
            assert str(path) not in maps.read()
        os.truncate(path, 100)
        return found

    monkeypatch.setattr(parquet, "ParquetFile", cut)
    with pytest.raises((StoredStateInvalid, StorageFailed), match=r"edges\.parquet"):
        graph.reload()
    monkeypatch.undo()
    assert graph.offloaded == away
    path.write_bytes(whole)
    assert graph.reload() == 2


def test_a_mapped_file_is_named_when_it_cannot_be_read(tmp_path):
    from livegnn.temporal import FeatureCache

    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "x.npy", np.ones((40, 2), np.float32))
    os.truncate(tmp_path / "x.npy", 200)
    for path in (tmp_path / "nothing", tmp_path / ("x" * 256), f"{tmp_path}/a\0b", tmp_path, tmp_path / "cut.npy"):
        with pytest.raises(LiveGnnError, match="FeatureCache"):
            FeatureCache(path, capacity=2)
    with pytest.raises(LiveGnnError, match=r"x\.npy"):
        FeatureCache(tmp_path / "x.npy", capacity=2)


def test_weights_without_numbers_are_refused(tmp_path):
    nn = pytest.importorskip("torch_geometric.nn")
    with torch.device("meta"):
        module = nn.GCNConv(4, 3)
    with pytest.raises(ModelError, match=r"\[from_pyg\] expected weights with numbers, got .* on device meta"):
        lg.from_pyg(module)
    state = {"kind": "engine", "state": [{"w": torch.zeros(3, device="meta")}]}
    with pytest.raises(UsageError, match=r"state\[0\]\.w on device meta"):
        write_checkpoint(tmp_path / "x.pt", state, "save")
    assert list(tmp_path.iterdir()) == []
    graph = graph_of(written.WARM)
    sampler = lg.TemporalSampler(graph, fanouts=[5], threads=1)
    with pytest.raises(ValueInvalid, match="on device meta"):
        lg.TemporalEngine(written.small_model().to("meta"), graph, sampler)


@pytest.mark.parametrize(
    "gone", ["kind", "options", "start", "version", "model", "optimizer", "memory", "report", "fit"]
)
def test_a_checkpoint_of_other_values_is_refused_and_the_model_stays(gone, tmp_path):
    path, read = written.trainer(tmp_path)
    state = read_checkpoint(path, "test")
    del state["format"]
    for other in ({name: value for name, value in state.items() if name != gone}, {**state, gone: "x"}):
        write_checkpoint(path, other, "test")
        with pytest.raises(LiveGnnError, match=r"checkpoint\.pt"):
            read()


@pytest.mark.parametrize("gone", ["version", "graph", "config", "memory_step", "state"])
def test_a_saved_temporal_engine_of_other_values_is_refused(gone, tmp_path):
    path, read = written.temporal_engine(tmp_path)
    state = read_checkpoint(path, "test")
    del state["format"]
    for other in ({name: value for name, value in state.items() if name != gone}, {**state, gone: None}):
        write_checkpoint(path, other, "test")
        with pytest.raises(LiveGnnError):
            read()


def test_rocksdb_s_errors_are_ours(tmp_path):
    pytest.importorskip("rocksdict")
    tables = RocksTables(tmp_path / "db", [2], 1, NO_COLUMNS)
    with pytest.raises(StorageFailed, match="db"):
        RocksTables(tmp_path / "db", [2], 1, NO_COLUMNS)  # the folder is held
    tables.close()
    for path in (tmp_path / "db").iterdir():
        if path.name.startswith(("MANIFEST", "CURRENT")):
            path.write_bytes(b"damaged")
    with pytest.raises((StoredStateInvalid, StorageFailed), match="db"):
        RocksTables(tmp_path / "db", [2], 1, NO_COLUMNS)
