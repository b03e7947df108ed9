"""What may go wrong while other workers take over: interrupts, full disks, counts, snapshots, TTL, names."""

import logging
import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.cluster.snapshot_files import SnapshotFolder
from livegnn.distributed.cluster.succession import _Following
from livegnn.distributed.cluster.work import Work
from livegnn.distributed.partition import VertexParts
from tests.simulation.successors import cannot_lead, change_successors
from tests.simulation.test_cluster_drivers import Pair
from tests.simulation.test_cluster_log import Logged
from tests.simulation.test_cluster_repartition import check_same, crew_of, pair
from tests.simulation.test_cluster_snapshots import fill_disk, written


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="livegnn")


def test_that_an_interrupt_right_after_lead_leaves_a_cluster_that_can_be_attached_to():
    case = Pair(5)

    def change(successor):
        lead = successor.lead

        def leading():
            lead()
            raise KeyboardInterrupt

        successor.lead = leading

    change_successors(case.crew, change)
    with pytest.raises(KeyboardInterrupt):
        case.cluster.repartition("hash", case.cluster.workers + 1)
    for _ in range(2):
        updates = case.batch()
        case.engine.apply(updates)
        case.cluster.apply(updates)
    case.check("it goes on")
    serving = crew_of(case.cluster)
    case.crew = serving
    case.attach()
    case.check("attached")
    case.cluster.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_that_the_workers_before_end_whatever_comes_after_the_takeover(tmp_path, monkeypatch, error):
    (engine, cluster, crew, _), _ = pair(3, 2, snapshots=tmp_path)
    remove = SnapshotFolder.remove_old

    def failing(self, needed):
        if self.crew == 0 and cluster.workers == 3:
            raise error
        return remove(self, needed)

    with monkeypatch.context() as patched:
        patched.setattr(SnapshotFolder, "remove_old", failing)
        with pytest.raises(error):
            cluster.repartition("hash", 3)
    assert cluster.workers == 3
    check_same(engine, cluster, "after")
    assert crew._driver.crews == [crew_of(cluster)], "the workers before live on"
    cluster.close()


def test_that_the_number_of_workers_is_that_when_its_turn_comes():
    (engine, cluster, crew, _), _ = pair(10, 2)
    another, second = crew.another, []

    def made(size, number):
        thread = threading.Thread(target=cluster.repartition, args=("ldg",))
        second.append(thread)
        thread.start()
        threading.Event().wait(0.3)
        return another(size, number)

    crew.another = made
    cluster.repartition("hash", 4)
    second[0].join()
    assert cluster.workers == 4
    check_same(engine, cluster, "after")
    cluster.close()


def test_that_a_full_disk_in_the_first_step_is_not_filled(tmp_path, monkeypatch):
    (engine, cluster, _, _), batch = pair(6, 3, snapshots=tmp_path, snapshot_batches=100)
    updates = batch(5)
    for each in (engine, cluster):
        each.apply(updates)
    before = written(tmp_path)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        with pytest.raises(lg.errors.StorageFailed):
            cluster.repartition("hash")
    check_same(engine, cluster, "after")
    assert written(tmp_path) == before
    cluster.close()


def test_that_files_of_workers_that_could_not_lead_go(tmp_path):
    (engine, cluster, crew, _), batch = pair(6, 2, snapshots=tmp_path, snapshot_batches=1)
    cannot_lead(crew, OSError("no Ray"))
    with pytest.raises(OSError, match="no Ray"):
        cluster.repartition("hash", 3)
    for _ in range(3):
        updates = batch(5)
        for each in (engine, cluster):
            each.apply(updates)
    check_same(engine, cluster, "after")
    left = sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".npz")
    assert len(left) == 3, left  # two parts and the driver
    cluster.close()


def test_that_a_driver_lost_long_after_lead_failed_may_lose_a_worker_too(tmp_path):
    case = Pair(7, snapshots=tmp_path, snapshot_batches=1000)
    cannot_lead(case.crew, OSError("no Ray"))
    assert case.crew.size > 1
    with pytest.raises(OSError, match="no Ray"):
        case.cluster.repartition("hash")
    for _ in range(3):
        updates = case.batch()
        case.engine.apply(updates)
        case.cluster.apply(updates)
    case.crew.workers[0] = None
    case.attach()
    case.check("attached")
    case.cluster.close()


@pytest.mark.parametrize("partition", ["metis", "ldg"])
def test_that_edges_are_a_tenth_of_the_load(partition):
    (engine, cluster, crew, _), _ = pair(6, 2)
    for worker in crew.workers:
        own = worker.part.halo.locals(worker.part.slots())
        counts = np.zeros(int(worker.part.store.slot_count), np.int64)
        counts[own] = 500_000_000
        worker._work = Work(worker.part.halo.locals, counts)
    topology = cluster._succession._topology(True)
    edges = int((topology.in_edges() + 1).sum())
    assert 0.05 < edges / (edges + int(topology.work.sum())) < 0.2
    cluster.repartition(partition, balance="work")
    check_same(engine, cluster, "after")
    cluster.close()


def test_that_a_vertex_has_no_work_of_the_one_before_in_its_slot():
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
    model = lg.Model([lg.layers.SAGE(weight, weight, activation=None) for weight in weights])
    graph = lg.Graph(rng.random((6, 4), dtype=np.float32), [0, 1, 2], [1, 2, 3])
    cluster = lg.Cluster(
        model, graph, 2, crew=ThreadCrew(2), partition=VertexParts(2, np.arange(6) % 2), newcomers="hash"
    )
    for _ in range(50):
        updates = lg.Updates()
        updates.set_features(5, rng.random(4, dtype=np.float32))
        cluster.apply(updates)
    updates = lg.Updates()
    updates.remove_vertex(5)
    cluster.apply(updates)
    updates = lg.Updates()
    updates.add_vertex(5, np.zeros(4, np.float32))
    cluster.apply(updates)
    work = dict(
        zip(*(np.concatenate(each).tolist() for each in zip(*cluster._crew.each("work"), strict=True)), strict=True)
    )
    assert work.get(5, 0) <= 1, work
    cluster.close()


def test_that_new_workers_catch_up_while_fewer_batches_come_than_go(monkeypatch):
    (engine, cluster, crew, _), batch = pair(9, 2)
    another, room = crew.another, [0.0]

    def grow():
        updates = batch(2)
        for each in (engine, cluster):
            each.apply(updates)

    def made(size, number):
        for _ in range(40):
            grow()
        successor = another(size, number)
        inner = successor.call

        def following(calls):
            found = inner(calls)
            if calls[0][0] == "apply" and not waiting:
                room[0] += 0.6
                while room[0] >= 1:
                    room[0] -= 1
                    grow()
            return found

        successor.call = successor.keep = following
        return successor

    waiting, apply_all = [], _Following.apply_all

    def last(self):
        waiting.append(self._left)
        apply_all(self)

    monkeypatch.setattr(_Following, "apply_all", last)
    crew.another = made
    cluster.repartition("hash", 3)
    check_same(engine, cluster, "after")
    assert waiting[0] <= 3, f"{waiting[0]} batches are left for the last step"
    cluster.close()


def test_that_close_ends_a_repartition_under_way():
    (_, cluster, crew, _), _ = pair(9, 2)
    another, called = crew.another, []

    def made(size, number):
        cluster.close()
        successor = another(size, number)
        inner = successor.call
        successor.call = successor.keep = lambda calls: called.append(calls[0][0]) or inner(calls)
        return successor

    crew.another = made
    with pytest.raises(lg.errors.UsageError, match="expected an open cluster"):
        cluster.repartition("hash", 3)
    assert "start_shuffled" not in called, "the model was run for a cluster that is closed"


def test_that_a_worker_that_came_back_has_the_work_of_its_part():
    (engine, cluster, crew, _), batch = pair(6, 2, snapshot_batches=1)
    for _ in range(20):
        updates = batch(4)
        for each in (engine, cluster):
            each.apply(updates)
    before = [each["work"] for each in cluster.report()]
    assert min(before) > 0
    crew.kill(0)
    assert [each["work"] for each in cluster.report()] == before
    cluster.close()


class Dated:
    """An engine and a cluster of one graph with names and a TTL, whose edges expire."""

    def __init__(self, seed, folder):
        self.rng = rng = np.random.default_rng(seed)
        self.live = [f"v{i}" for i in range(12)]
        x, ends = rng.standard_normal((12, 4)).astype(np.float32), rng.choice(self.live, (2, 30))
        times = np.arange(30).astype("datetime64[s]")
        graph = lg.Graph(x, *ends, ids=self.live, time=times, ttl=np.timedelta64(20, "s"))
        weights = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
        model = lg.Model([lg.layers.SAGE(weight, weight, activation=None) for weight in weights])
        options = {"detached": "here", "partition": "hash", "snapshots": folder}
        options |= {
            "newcomers": str(rng.choice(["ldg", "fennel", "hash"])),
            "snapshot_batches": int(rng.integers(1, 5)),
        }
        self.engine = lg.Engine(model, graph)
        self.cluster, self.step = lg.Cluster(model, graph, 2, crew=ThreadCrew(2), **options), 0

    def grow(self, batches):
        for _ in range(batches):
            updates, rng, live = lg.Updates(), self.rng, self.live
            if len(live) > 5 and rng.random() < 0.4:
                updates.remove_vertex(live.pop(int(rng.integers(len(live)))))
            for k in range(int(rng.integers(0, 3))):
                live.append(f"n{self.step}.{k}")
                updates.add_vertex(live[-1], rng.standard_normal(4).astype(np.float32))
            for u, v in rng.choice(live, (4, 2)).tolist():
                updates.add_edge(u, v, time=np.datetime64(30 + 3 * self.step, "s"))
            self.step += 1
            for each in (self.engine, self.cluster):
                each.apply(updates)

    def check(self):
        assert self.cluster.state_digest() == self.engine.state_digest()
        assert self.cluster.graph.now == self.engine.graph.now


@pytest.mark.parametrize("seed", range(4))
def test_that_ttl_names_and_newcomers_go_on_after_a_takeover(tmp_path, seed):
    world = Dated(seed, tmp_path / "s")
    rng = world.rng
    for _ in range(6):
        serving = crew_of(world.cluster)
        another = type(serving).another.__get__(serving)

        def made(size, number, another=another):
            world.grow(int(rng.integers(0, 6)))
            return another(size, number)

        serving.another = made
        world.cluster.repartition(str(rng.choice(["hash", "ldg", "metis"])), int(rng.integers(1, 5)))
        world.grow(int(rng.integers(0, 3)))
        rule = world.cluster._directory.newcomers.to_arrays()
        crew = crew_of(world.cluster).taken_over()
        if crew.size > 1:
            crew.workers[0] = None
        world.cluster = lg.Cluster.attach("here", crew=crew)
        for name, array in world.cluster._directory.newcomers.to_arrays().items():
            np.testing.assert_array_equal(array, rule[name], err_msg=name)
        world.check()
        world.cluster.verify()
    world.cluster.close()
    world.cluster = lg.Cluster.restore(tmp_path / "s", crew=ThreadCrew(world.cluster.workers), detached="here")
    world.check()
    world.grow(1)
    world.check()
    world.cluster.close()


@pytest.mark.parametrize("in_files", [False, True])
def test_that_new_workers_have_a_snapshot_every_so_many_batches(tmp_path, in_files):
    options = {"snapshots": tmp_path / "s"} if in_files else {}
    (engine, cluster, crew, _), batch = pair(9, 2, snapshot_batches=10, **options)
    another = crew.another

    def made(size, number):
        for _ in range(41):
            updates = batch(2)
            for each in (engine, cluster):
                each.apply(updates)
        return another(size, number)

    crew.another = made
    cluster.repartition("hash", 3)
    updates = batch(2)
    for each in (engine, cluster):
        each.apply(updates)
    assert len(cluster._crew._kept.batches) <= 10
    cluster.close()


def test_that_changes_have_moves_after_a_takeover():
    (engine, cluster, _, _), batch = pair(9, 2)
    seen = []
    cluster.keep_moves(1000)
    cluster.on_change(lambda changes: seen.append(changes.take_moves()))
    cluster.repartition("hash", 3)
    crew_of(cluster).kill(1)
    updates = batch(6)
    for each in (engine, cluster):
        each.apply(updates)
    assert seen[-1] is not None
    cluster.close()


def test_that_a_batch_that_is_interrupted_while_published_is_not_followed():
    """New workers see a batch once nothing takes it back any more."""
    world = Logged(4, 2)
    crew, another = world.crew, world.crew.another
    seen = []

    def made(size, number):
        call, history = crew.call, world.cluster._crew._history

        def interrupted(calls):
            if calls[0][0] == "decide" and not seen:
                seen.append(len(history.batches))
                raise KeyboardInterrupt
            return call(calls)

        crew.call = interrupted
        updates = world.batch()
        with pytest.raises(KeyboardInterrupt):
            world.cluster.apply(updates)
        seen.append(len(history.batches))
        world.attachment.catch_up()
        world.engine.apply(updates)
        seen.append(len(history.batches))
        return another(size, number)

    crew.another = made
    world.cluster.repartition("ldg", 3)
    assert seen == [0, 0, 1]
    world.check("after")
    world.cluster.close()
