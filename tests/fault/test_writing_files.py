"""Writers on disks that refuse: our error, the old file whole, no part left but that of a living writer."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import livegnn as lg
from livegnn.errors import FileMissing, StorageFailed, UsageError
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.stored import replaced
from livegnn.temporal import FeatureCache
from tests.fault import written
from tests.unit.inference import samples
from tests.unit.temporal.training import graph_of, trainer_of

WRITER = """
import sys, time
from pathlib import Path
from livegnn.stored import replaced
with replaced(Path(sys.argv[1]), "save") as file:
    file.write(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


def engine_files():
    made = samples.engine()
    return made.save, lambda path: lg.Engine.load(path, threads=1)


def temporal_files():
    graph = graph_of(written.WARM)
    sampler = lg.TemporalSampler(graph, fanouts=[5], threads=1)
    made = lg.TemporalEngine(written.small_model(), graph, sampler, memory_step=64)
    return made.save, lambda path: lg.TemporalEngine.load(path, written.small_model(), graph, sampler)


def cache_files():
    cache = FeatureCache(np.zeros((5000, 1), np.float32), capacity=4000)
    cache.warm(np.arange(4000))
    return cache.save, cache.load


def edge_files():
    graph = lg.Graph(np.zeros((9, 0), np.float32), np.arange(9), np.arange(9), time=np.arange(9))
    return lambda path: graph.offload(8, path), graph.reload


FILES = {"engine": engine_files, "temporal": temporal_files, "cache": cache_files, "edges": edge_files}


@contextmanager
def file_bytes_max(count):
    """What a full disk is to a writer: the write that would pass the limit fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("room", [0, 100, 1500])
def test_a_full_disk_leaves_the_old_file(kind, room, tmp_path):
    save, _ = FILES[kind]()
    path = tmp_path / "file"
    if kind != "edges":  # whose path must not be taken
        save(path)
    before = path.read_bytes() if kind != "edges" else None
    with file_bytes_max(room), pytest.raises(StorageFailed, match=r"expected to write .*file, got 'File too large'"):
        save(path)
    assert [left.name for left in tmp_path.iterdir()] == ([] if before is None else ["file"])
    assert before is None or path.read_bytes() == before
    save(path)


def test_a_full_disk_under_a_trainer_and_a_worker(tmp_path):
    trainer = trainer_of(graph_of(written.WARM), written.small_model(), folder=tmp_path / "trainer")
    with trainer, file_bytes_max(1000), pytest.raises(StorageFailed, match=r"checkpoint\.pt"):
        trainer.fit(1)
    assert list((tmp_path / "trainer").iterdir()) == []
    path, read = written.worker(tmp_path / "worker")
    content, state = read(), CheckpointFiles(tmp_path / "worker").read("sampling", 0)
    with file_bytes_max(1000), pytest.raises(StorageFailed, match=path.name):
        CheckpointFiles(tmp_path / "worker").write("sampling", 0, state)
    assert read() == content


@pytest.mark.parametrize("kind", FILES)
def test_paths_that_no_file_can_have(kind, tmp_path):
    save, load = FILES[kind]()
    for path in (f"{tmp_path}/a\0b", f"{tmp_path}/\ud800", 7, b"bytes", None):
        with pytest.raises(UsageError, match="expected a path"):
            save(path)
        if path is not None or kind != "edges":  # reload(None) is of every file
            with pytest.raises(UsageError, match="expected a path"):
                load(path)
    for path in (tmp_path / ("x" * 256), tmp_path / "/".join(["y" * 200] * 30) / "z"):
        with pytest.raises(StorageFailed, match="File name too long"):
            save(path)
        with pytest.raises(StorageFailed, match="File name too long"):
            load(path)
    with pytest.raises(UsageError, match="got the folder"):
        load(tmp_path)
    with pytest.raises(UsageError):
        save(tmp_path)
    if kind != "edges":
        with pytest.raises(FileMissing, match="no such file"):
            load(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_names_as_long_as_names_may_be(tmp_path):
    save, load = engine_files()
    for path in (tmp_path / ("x" * 255), tmp_path / ("é" * 127)):
        save(path)
        save(path)
        load(path)
    assert len(list(tmp_path.iterdir())) == 2


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file", tmp_path / "file" / "in", f"{tmp_path}/a\0b", tmp_path / ("x" * 256)):
        with pytest.raises((StorageFailed, UsageError)):
            CheckpointFiles(folder)
        with pytest.raises((StorageFailed, UsageError)):
            trainer_of(graph_of(written.WARM), written.small_model(), folder=folder).fit(1)


@contextmanager
def writing(path):
    """Another process amid a write of this path."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "writing\n"
            yield process
        finally:
            process.kill()


def parts(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


def test_the_next_writer_clears_what_a_killed_one_left_and_nothing_else(tmp_path):
    path = tmp_path / "engine.lg"
    save, _ = engine_files()
    for other in ("engine.lg.mine.part", "engine.lg.old.abcdefgh.part", "engine.abcdefgh.part"):
        (tmp_path / other).write_bytes(b"another's")
    others = parts(tmp_path)
    with writing(path) as process:
        assert len(parts(tmp_path)) == len(others) + 1
        save(path)
        assert len(parts(tmp_path)) == len(others) + 1  # it lives: its part stays
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(parts(tmp_path)) == len(others) + 1
        save(path)
    assert parts(tmp_path) == others


def test_two_writers_at_once_both_end(tmp_path):
    path, (save, load) = tmp_path / "engine.lg", engine_files()
    with replaced(path, "save") as file:
        file.write(b"the other's")
        save(path)
        load(path)
    assert path.read_bytes().startswith(b"the other's\nlivegnn-sum 1 ")
    assert parts(tmp_path) == []


def test_the_folder_is_synced_after_the_renaming(tmp_path, monkeypatch):
    save, _ = engine_files()
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("renamed"), replace(a, b)))
    save(tmp_path / "engine.lg")
    assert calls[0].endswith(".part")
    assert calls[1:] == ["renamed", str(tmp_path)]


def test_a_writer_s_own_error_stays_its_own(tmp_path):
    with pytest.raises(KeyError, match="mine"), replaced(tmp_path / "file", "save"):
        raise KeyError("mine")
    assert list(tmp_path.iterdir()) == []
