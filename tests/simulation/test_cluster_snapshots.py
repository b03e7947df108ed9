"""lg.Cluster(snapshots=FOLDER) with workers in threads: what outlives drivers and workers that are lost together."""

import logging
from contextlib import suppress

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.cluster.snapshot_files import MANIFEST, SnapshotFolder, StoredPart
from tests.simulation.test_cluster_drivers import DriverDied, Pair, die_at


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


def written(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".npz")


def fill_disk(patched):
    """From now on part 0 finds no room for a snapshot."""
    write = StoredPart.write.__func__

    def full(cls, path, snapshot):
        if path.name.endswith("part-0.npz"):
            raise lg.errors.StorageFailed("[snapshot] expected to write, got no room; make room there")
        return write(cls, path, snapshot)

    patched.setattr(StoredPart, "write", classmethod(full))


def grow(pair, batches):
    """The batches that both have taken."""
    made = [pair.batch() for _ in range(batches)]
    for updates in made:
        pair.engine.apply(updates)
        pair.cluster.apply(updates)
    return made


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_that_driver_and_workers_may_be_lost_together(tmp_path, first):
    for seed in range(first, first + 5):
        pair = Pair(seed, snapshots=tmp_path / str(seed))
        for life in range(3):
            grow(pair, int(pair.rng.integers(0, 5)))
            die_at(pair.crew, pair.rng, int(pair.rng.integers(1, 8)))
            updates, acknowledged = pair.batch(), 0
            with suppress(DriverDied):
                pair.cluster.apply(updates)
                acknowledged = 1
            left = int(pair.rng.integers(pair.crew.size))  # this one is not lost
            for worker in np.flatnonzero(pair.rng.random(pair.crew.size) < 0.7).tolist():
                if worker != left:
                    pair.crew.workers[worker] = None
            pair.attach()
            stands = pair.cluster.version - pair.engine.graph.version
            assert acknowledged <= stands <= 1
            if not stands:
                pair.cluster.apply(updates)
            pair.engine.apply(updates)
            pair.check(f"seed {seed}, life {life}")
        pair.cluster.verify()
        pair.cluster.close()
        assert len(written(tmp_path / str(seed))) == pair.crew.size + 1


@pytest.mark.parametrize("seed", range(6))
def test_that_a_cluster_that_is_lost_is_restored_and_a_log_gives_the_rest(tmp_path, seed):
    pair = Pair(seed, snapshots=tmp_path / "snapshots", snapshot_batches=3)
    with lg.log.UpdateLog(lg.log.open_log(f"sqlite:{tmp_path}/log")) as log:
        log.attach(pair.cluster.graph)
        grow(pair, 5)
        pair.crew.close()  # all workers
        crew = ThreadCrew(pair.crew.size)
        restored = lg.Cluster.restore(tmp_path / "snapshots", crew=crew)
        assert restored.version == 3
        with log.attach(restored.graph) as attachment:
            assert attachment.catch_up() == 5
        pair.cluster = restored
        pair.check("after the log")
        grow(pair, 4)
        pair.check("after more batches")
        crew.kill(0)
        pair.check("after a loss")
        pair.cluster.close()


@pytest.mark.parametrize("change", ["swap", "repartition"])
def test_that_a_change_of_model_or_workers_is_in_the_folder(tmp_path, change):
    pair = Pair(2, snapshots=tmp_path, snapshot_batches=100)
    grow(pair, 3)
    if change == "swap":
        for each in (pair.engine, pair.cluster):
            each.rescale(64.0)
        pair.engine.apply(lg.Updates())  # without a log a swap of an engine is no version
    else:
        pair.cluster.repartition("ldg", 3)
        assert {name.split("-")[1] for name in written(tmp_path)} == {"1"}
    pair.cluster.close()
    pair.cluster = lg.Cluster.restore(tmp_path, crew=ThreadCrew(pair.cluster.workers))
    pair.check("restored")
    grow(pair, 3)
    pair.check("after batches")
    pair.cluster.close()


@pytest.mark.parametrize("name", ["part-0", "driver", MANIFEST])
@pytest.mark.parametrize("damage", ["bit", "cut", "gone", "other"])
def test_that_a_damaged_file_is_named(tmp_path, name, damage):
    pair = Pair(7, snapshots=tmp_path)
    pair.cluster.close()
    (path,) = [each for each in tmp_path.iterdir() if name in each.name]
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 2] ^= 1
    elif damage == "cut":
        del content[-5:]
    elif damage == "other":
        (other,) = [each for each in tmp_path.iterdir() if ("driver" if "part" in name else "part-0") in each.name]
        content = bytearray(other.read_bytes())
    path.write_bytes(content)
    if damage == "gone":
        path.unlink()
    wanted = lg.errors.FileMissing if damage == "gone" else lg.errors.StoredStateInvalid
    with pytest.raises(wanted, match=str(tmp_path) if name == MANIFEST and damage == "gone" else path.name):
        lg.Cluster.restore(tmp_path, crew=ThreadCrew(pair.cluster.workers))


def test_that_a_folder_has_one_cluster_and_one_driver(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="livegnn"):
        pair = Pair(3, snapshots=tmp_path, snapshot_batches=1)
    assert "[cluster] workers start" in caplog.messages
    assert caplog.messages[-1] == "[cluster] all are at version 0"
    caplog.clear()
    with pytest.raises(lg.errors.UsageError, match="expected a folder without snapshots"):
        Pair(3, snapshots=tmp_path)
    with caplog.at_level(logging.WARNING, logger="livegnn"):
        restored = lg.Cluster.restore(tmp_path, crew=ThreadCrew(pair.crew.size))
    assert not caplog.messages  # no worker was lost
    with pytest.raises(lg.errors.DriverReplaced):
        pair.cluster.apply(lg.Updates())
    assert restored.state_digest() == pair.engine.state_digest()
    assert {name.split("-")[0] for name in written(tmp_path)} >= {"2"}
    for each in (pair.engine, restored):
        each.apply(lg.Updates())
    assert restored.state_digest() == pair.engine.state_digest()
    assert {name.split("-")[0] for name in written(tmp_path)} == {"2"}
    pair.cluster.close()
    restored.close()
    with pytest.raises(lg.errors.FileMissing, match="expected a folder of snapshots"):
        lg.Cluster.restore(tmp_path / "empty")


def test_that_workers_lost_while_a_cluster_is_restored_are_named(tmp_path, caplog, monkeypatch):
    pair = Pair(3, snapshots=tmp_path, snapshot_batches=1)
    crew = ThreadCrew(pair.crew.size)
    call, calls = crew.call, []

    def losing(given):
        calls.append(given[0][0])
        if calls.count("start_again") == 1 and calls[-1] == "start_again":
            for worker in range(crew.size):
                crew.kill(worker)
        return call(given)

    monkeypatch.setattr(crew, "call", losing)
    with caplog.at_level(logging.WARNING, logger="livegnn"):
        restored = lg.Cluster.restore(tmp_path, crew=crew)
    assert [line for line in caplog.messages if f"workers {list(range(crew.size))} were lost; all are at" in line]
    assert restored.state_digest() == pair.engine.state_digest()


def test_that_of_two_clusters_that_begin_at_once_one_has_the_folder(tmp_path, monkeypatch):
    start, later = ThreadCrew.call, []

    def call(crew, calls):
        if not later and calls[0][0] == "start":  # the first has looked at the folder
            later.append(None)
            later[0] = Pair(4, snapshots=tmp_path)
        return start(crew, calls)

    monkeypatch.setattr(ThreadCrew, "call", call)
    with pytest.raises(lg.errors.DriverReplaced):
        Pair(3, snapshots=tmp_path)
    (pair,) = later
    grow(pair, 2)
    pair.cluster.close()
    pair.cluster = lg.Cluster.restore(tmp_path, crew=ThreadCrew(pair.crew.size))
    pair.cluster.close()


def test_that_a_cluster_that_did_not_start_leaves_its_folder_to_another(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(ThreadCrew, "call", lambda crew, calls: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Pair(3, snapshots=tmp_path)
    with pytest.raises(lg.errors.FileMissing, match="expected a snapshot of a cluster"):
        lg.Cluster.restore(tmp_path)
    pair = Pair(3, snapshots=tmp_path)
    grow(pair, 2)
    pair.cluster.close()


def test_that_a_full_disk_puts_a_snapshot_off(tmp_path, monkeypatch):
    pair = Pair(3, snapshots=tmp_path, snapshot_batches=1)

    def full(self, *given):
        raise lg.errors.StorageFailed("[snapshot] expected to write, got no room; make room there")

    with monkeypatch.context() as patched:
        patched.setattr(SnapshotFolder, "publish", full)
        grow(pair, 2)
        pair.check("without room")
        pair.crew.kill(0)
        pair.check("after a loss")
    grow(pair, 1)
    (state,) = [name for name in written(tmp_path) if "driver" in name]
    assert state == "1-0-3-driver.npz"
    np.testing.assert_equal(len(written(tmp_path)), pair.crew.size + 1)
    pair.cluster.close()


def test_that_a_full_disk_is_not_filled_with_what_was_begun(tmp_path, monkeypatch):
    pair = Pair(3, snapshots=tmp_path, snapshot_batches=2)
    before = written(tmp_path)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        grow(pair, 5)  # two snapshots are due
        assert written(tmp_path) == before
        pair.crew.kill(pair.crew.size - 1)
        pair.check("after a loss")
    begun = tmp_path / "1-0-0-part-0.npz.abcd1234.part"
    begun.write_bytes(b"of a worker that died")
    grow(pair, 1)
    assert not begun.exists()
    (state,) = [name for name in written(tmp_path) if "driver" in name]
    assert state == "1-0-6-driver.npz"
    assert len(written(tmp_path)) == pair.crew.size + 1
    pair.cluster.close()
