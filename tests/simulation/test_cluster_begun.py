"""A snapshot that workers have copied and not yet written: batches go on, and whoever is lost meanwhile comes back."""

import logging

import pytest

import livegnn as lg
from livegnn.distributed.cluster import recovery
from livegnn.distributed.cluster.crew import ThreadCrew, _ThreadAside
from livegnn.distributed.cluster.snapshot_files import MANIFEST
from tests.simulation.test_cluster_drivers import Pair
from tests.simulation.test_cluster_snapshots import fill_disk, grow, written
from tests.simulation.waiting import wait_for_snapshot


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No thread ends a snapshot in between, unless a test has it do so."""
    monkeypatch.setattr(recovery, "_PATIENCE_S", 60.0)


def kept(pair):
    return pair.cluster._crew._kept


def begun(seed, **options):
    """A pair whose snapshot of version 4 is begun, and two batches after it."""
    pair = Pair(seed, snapshot_batches=4, **options)
    pair.crew.is_busy_aside = True
    grow(pair, 6)
    assert kept(pair).is_begun
    assert kept(pair).version == 0
    return pair


@pytest.mark.parametrize("seed", range(6))
def test_that_batches_go_on_before_a_snapshot_is_written(seed):
    pair = begun(seed)
    pair.crew.is_busy_aside = False
    grow(pair, 1)
    assert (kept(pair).version, sorted(kept(pair).batches)) == (4, [5, 6, 7])
    for worker in range(pair.crew.size):
        pair.crew.kill(worker)  # it starts again from version 4, and goes through the batches since
        pair.check(f"worker {worker} was lost")
        grow(pair, 1)
    pair.check("after more batches")
    pair.cluster.verify()
    pair.cluster.close()


@pytest.mark.parametrize("seed", range(6))
def test_that_the_snapshot_before_serves_until_another_is_written(seed):
    pair = begun(seed)
    pair.crew.kill(int(pair.rng.integers(pair.crew.size)))
    pair.check("a worker was lost")
    assert not kept(pair).is_begun  # that worker has not copied it
    assert (kept(pair).version, sorted(kept(pair).batches)) == (0, [1, 2, 3, 4, 5, 6])
    grow(pair, 1)
    assert kept(pair).is_begun
    pair.crew.is_busy_aside = False
    grow(pair, 1)
    assert (kept(pair).version, sorted(kept(pair).batches)) == (7, [8])
    pair.check("after another snapshot")
    pair.cluster.close()


def test_that_a_slow_snapshot_holds_up_the_one_after_it():
    pair = begun(3)
    grow(pair, 1)
    assert kept(pair).version == 0
    grow(pair, 1)  # the eighth: the next one is due
    assert (kept(pair).version, sorted(kept(pair).batches)) == (4, [5, 6, 7, 8])
    assert kept(pair).is_begun
    pair.check("after both")
    pair.cluster.close()


def test_that_a_snapshot_ends_where_no_batch_comes(monkeypatch):
    monkeypatch.setattr(recovery, "_PATIENCE_S", 0.01)
    pair = begun(3)
    pair.crew.is_busy_aside = False
    wait_for_snapshot(pair.cluster)
    assert (kept(pair).version, sorted(kept(pair).batches)) == (4, [5, 6])
    pair.check("after it")
    pair.cluster.close()


def test_that_the_thread_that_ends_snapshots_and_a_writer_do_not_wait_for_each_other(monkeypatch):
    """A writer takes the graph's lock and then the crew's."""
    looks = []

    def done(aside):
        looks.append(aside)
        return len(looks) % 3 == 0

    monkeypatch.setattr(recovery, "_PATIENCE_S", 0.0005)
    monkeypatch.setattr(_ThreadAside, "done", done)
    pair = Pair(3, snapshot_batches=1)
    grow(pair, 300)
    pair.check("after all")
    pair.cluster.close()


def test_that_a_copy_that_was_given_up_makes_no_snapshot():
    pair = begun(3)
    worker, version = pair.crew.workers[0], pair.cluster.version
    worker.capture(version, None, "first")
    worker.capture(version, None, "second")
    with pytest.raises(lg.errors.WorkerUnavailable, match="a copy that was given up"):
        worker.captured("first")
    assert not worker.has_snapshot(version)
    assert worker.captured("second").version == version
    assert worker.has_snapshot(version)
    pair.cluster.close()


def test_that_a_damaged_manifest_holds_up_no_end(tmp_path):
    pair = begun(5, snapshots=tmp_path)
    (tmp_path / MANIFEST).write_text("x")
    pair.cluster.close()
    assert pair.crew.workers == [None] * pair.crew.size


def test_that_a_snapshot_is_begun_again_after_one_that_a_damaged_manifest_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(recovery, "_PATIENCE_S", 0.01)
    pair = begun(5, snapshots=tmp_path)
    content = (tmp_path / MANIFEST).read_bytes()
    (tmp_path / MANIFEST).write_text("x")
    pair.crew.is_busy_aside = False
    wait_for_snapshot(pair.cluster)
    (tmp_path / MANIFEST).write_bytes(content)
    assert kept(pair).version == 0
    pair.crew.is_busy_aside = True
    grow(pair, 8)
    pair.crew.is_busy_aside = False
    wait_for_snapshot(pair.cluster)
    assert kept(pair).version > 4
    pair.check("after both")
    pair.cluster.close()


def test_that_a_full_disk_leaves_the_snapshot_before(monkeypatch, tmp_path):
    pair = begun(5, snapshots=tmp_path)
    before = written(tmp_path)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        pair.crew.is_busy_aside = False
        grow(pair, 1)
        assert (kept(pair).version, written(tmp_path)) == (0, before)
    pair.crew.kill(0)
    pair.check("from the snapshot before")
    grow(pair, 5)
    assert kept(pair).version > 4
    assert len(written(tmp_path)) == pair.crew.size + 1
    pair.cluster.close()


@pytest.mark.parametrize("in_files", [False, True])
def test_that_a_driver_may_die_before_a_snapshot_is_written(in_files, tmp_path):
    pair = begun(7, **({"snapshots": tmp_path} if in_files else {}))
    pair.attach()
    pair.check("another driver came")
    pair.crew.kill(0)
    grow(pair, 5)
    pair.check("after a loss")
    pair.cluster.close()


@pytest.mark.parametrize("closed", [False, True])
def test_that_what_is_closed_is_restored_from_the_snapshot_that_was_begun(closed, tmp_path):
    pair = begun(8, snapshots=tmp_path)
    if closed:
        pair.cluster.close()
    else:
        pair.crew.close()  # all workers are lost
    restored = lg.Cluster.restore(tmp_path, crew=ThreadCrew(pair.crew.size))
    assert restored.version == (4 if closed else 0)
    restored.close()


def acts(pair, kind):
    """Something between two batches of a cluster, and of its engine."""
    rng, crew = pair.rng, pair.crew
    if kind == "loss":
        crew.kill(int(rng.integers(crew.size)))
    elif kind == "driver":
        pair.attach()
    elif kind == "repartition":
        pair.cluster.repartition(str(rng.choice(["hash", "ldg"])), int(rng.integers(1, 5)))
        pair.crew = pair.cluster._crew._crew
    elif kind == "swap":
        pair.cluster.swap(pair.cluster.model)
        pair.engine.swap(pair.cluster.model)
        pair.engine.apply(lg.Updates())  # it makes no version
    elif kind == "what_if":
        with pair.cluster.what_if(lg.Updates()):
            pass
    pair.crew.is_busy_aside = bool(rng.integers(2))


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("first", range(0, 24, 6))
def test_that_anything_may_come_between_copying_and_writing(first, in_files, tmp_path):
    on_the_way = 0  # snapshots, before a step
    for seed in range(first, first + 6):
        folder = tmp_path / str(seed)
        pair = Pair(seed, snapshot_batches=3, **({"snapshots": folder} if in_files else {}))
        for step in range(12):
            on_the_way += kept(pair).is_begun
            kind = str(pair.rng.choice(["nothing", "loss", "driver", "repartition", "swap", "what_if"]))
            acts(pair, kind)
            grow(pair, int(pair.rng.integers(1, 4)))
            pair.check(f"seed {seed}, step {step}, {kind}")
        pair.crew.is_busy_aside = False
        grow(pair, 4)
        assert not kept(pair).is_begun
        pair.crew.kill(0)
        pair.check(f"seed {seed}, at the end")
        pair.cluster.verify()
        pair.cluster.close()
        if in_files:
            assert len(written(folder)) == pair.crew.size + 1
            restored = lg.Cluster.restore(folder, crew=ThreadCrew(pair.crew.size))
            assert pair.engine.graph.version - 3 <= restored.version <= pair.engine.graph.version
            restored.close()
    assert on_the_way > 5
