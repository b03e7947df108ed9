"""lg.Cluster whose driver dies or hangs at any moment: another one attaches to the same workers, in threads."""

import logging
import threading
from contextlib import suppress

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.testing import streams
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.simulation import named_streams


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


class DriverDied(Exception):
    """Instead of a process that ends."""


class Pair:
    """An engine, a named cluster on the same random graph, and batches for both."""

    def __init__(self, seed, **options):
        self.rng = rng = np.random.default_rng(seed)
        weighted, workers = bool(rng.integers(2)), int(rng.integers(1, 5))
        model = random_model(rng, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=None)
        self.source = named_streams if rng.integers(2) else streams
        columns = graph_columns(model)
        graph, self.mirror = self.source.random_graph(
            rng, model.input_width, weighted, vertices=int(rng.integers(2, 25)), **columns
        )
        self.engine = lg.Engine(model, graph, threads=1)
        self.crew = ThreadCrew(workers, timeout_s=30)
        parts, newcomers = (str(rng.choice(["hash", "ldg", "fennel"])) for _ in range(2))
        options.setdefault("snapshot_batches", int(rng.integers(1, 5)))
        options = {"crew": self.crew, "detached": "here", "partition": parts, "newcomers": newcomers, **options}
        self.cluster = lg.Cluster(model, graph, workers, **options)

    def batch(self):
        return self.source.random_batch(self.rng, self.mirror, int(self.rng.integers(1, 12)))

    def attach(self):
        for patched in ("call", "keep"):
            vars(self.crew).pop(patched, None)
        self.crew = self.crew.taken_over()
        self.cluster = lg.Cluster.attach("here", crew=self.crew)

    def check(self, note):
        engine, cluster = self.engine, self.cluster
        assert cluster.version == engine.graph.version, note
        assert cluster.state_digest() == engine.state_digest(), note
        ids = engine.graph.vertices()
        assert sorted(cluster.graph.vertices().tolist()) == sorted(ids.tolist()), note
        np.testing.assert_array_equal(cluster.embeddings(ids), engine.embeddings(ids), err_msg=note)
        assert cluster._directory.next_edge_id == engine.graph.host.store.next_edge_id


def die_at(crew, rng, countdown):
    """The driver's call number `countdown` reaches no worker, some, or all; that call and all later ones raise."""
    call, left = crew.call, [countdown]

    def dying(calls):
        left[0] -= 1
        if left[0] > 0:
            return call(calls)
        if left[0] == 0:
            reached = rng.random(crew.size) < rng.choice([0.0, 0.5, 1.0])
            for worker in np.flatnonzero(reached).tolist():
                crew._pool.submit(crew._run, worker, calls[worker])
            if reached.all():  # else the round waits for the rest until the workers are taken over
                crew._pool.shutdown()
        raise DriverDied

    crew.call = crew.keep = dying


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_that_a_driver_may_die_at_any_call_of_a_batch(first):
    outcomes = set()
    for seed in range(first, first + 10):
        pair = Pair(seed)
        for life in range(4):
            for _ in range(int(pair.rng.integers(0, 4))):
                updates = pair.batch()
                pair.engine.apply(updates)
                pair.cluster.apply(updates)
            die_at(pair.crew, pair.rng, int(pair.rng.integers(1, 6)))
            acknowledged, under_way = pair.engine.graph.version, []
            with suppress(DriverDied):
                while True:
                    under_way = [pair.batch()]
                    pair.cluster.apply(under_way[0])
                    pair.engine.apply(under_way[0])
                    acknowledged += 1
                    under_way = []
            before = pair.cluster
            pair.attach()
            stands = pair.cluster.version - acknowledged
            assert stands in (0, 1)
            if under_way and stands == 0:  # its vertices are to be there for the next batches
                pair.cluster.apply(under_way[0])
            for updates in under_way:
                pair.engine.apply(updates)
            outcomes.add(stands)
            pair.check(f"seed {seed}, life {life}")
            for refused in (lambda: before.apply(lg.Updates()), before.state_digest):  # noqa: B023
                with pytest.raises(lg.errors.DriverReplaced):
                    refused()
        pair.cluster.verify()
        before.close()
        pair.check("after the driver before was closed")
        pair.cluster.close()
    assert outcomes == {0, 1}


@pytest.mark.parametrize("seed", range(8))
def test_that_a_driver_that_only_hung_writes_no_more(seed):
    pair = Pair(seed)
    for _ in range(3):
        batches, acknowledged = [pair.batch() for _ in range(40)], []
        ended = []

        def drive(cluster=pair.cluster, batches=batches, acknowledged=acknowledged, ended=ended):
            try:
                for updates in batches:
                    cluster.apply(updates)
                    acknowledged.append(updates)
            except lg.errors.DriverReplaced as error:
                ended.append(error)

        version = pair.cluster.version
        thread = threading.Thread(target=drive)
        thread.start()
        threading.Event().wait(float(pair.rng.random() * 0.05))
        pair.attach()
        thread.join()
        assert len(acknowledged) == 40 or len(ended) == 1
        made = pair.cluster.version - version
        assert made - len(acknowledged) in (0, 1)
        for updates in batches[:made]:
            pair.engine.apply(updates)
        pair.check("after the driver was replaced")
        for updates in batches[made:]:
            pair.engine.apply(updates)
            pair.cluster.apply(updates)
        pair.check("after the rest")
    pair.cluster.close()


def plain_model(inputs, hidden):
    rng = np.random.default_rng(hidden)
    first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((hidden, inputs), (2, hidden)))
    return lg.Model([lg.layers.GCN(first, activation="relu"), lg.layers.GCN(second)])


@pytest.mark.parametrize("lost", ["prepare", "snapshot_of_swap", "commit_swap", "forget_before"])
@pytest.mark.parametrize("reached", [0, 1, 3])
@pytest.mark.parametrize("in_files", [False, True])
def test_that_a_driver_may_die_in_a_swap(lost, reached, in_files, tmp_path):
    rng = np.random.default_rng(4)
    graph, mirror = streams.random_graph(rng, 3, False, vertices=20)
    engine, crew = lg.Engine(plain_model(3, 4), graph, threads=1), ThreadCrew(3)
    options = {"snapshots": tmp_path} if in_files else {}
    cluster = lg.Cluster(plain_model(3, 4), graph, 3, crew=crew, detached="here", partition="hash", **options)
    call, dead = crew.call, []
    method = "store" if in_files and lost == "snapshot_of_swap" else lost

    def dying(calls):
        if calls[0][0].startswith(method) and not dead:
            dead.append(True)
            done = [crew._pool.submit(crew._run, worker, calls[worker]) for worker in range(reached)]
            if lost != "prepare":  # the others have no rounds
                for each in done:
                    each.result()
        if dead:
            raise DriverDied
        return call(calls)

    updates = streams.random_batch(rng, mirror, 5)
    for each in (engine, cluster):
        each.apply(updates)
    crew.call = crew.keep = dying
    other = plain_model(3, 6)
    with pytest.raises(DriverDied):
        cluster.swap(other)
    crew.call = call
    crew = crew.taken_over()
    cluster = lg.Cluster.attach("here", crew=crew)
    stands = lost == "forget_before" or (lost == "commit_swap" and (reached > 0 or in_files))  # the folder names it
    assert cluster.version == (2 if stands else 1)
    if stands:
        engine.swap(other)
    assert all(worker._next is None for worker in crew.workers)  # no second engine is left
    for kills in range(2):
        for _ in range(2):
            assert cluster.state_digest() == engine.state_digest()
            updates = streams.random_batch(rng, mirror, 5)
            for each in (engine, cluster):
                each.apply(updates)
        for worker in range(kills, 3):
            crew.kill(worker)
    assert cluster.state_digest() == engine.state_digest()
    cluster.close()


def dies(*_):
    raise DriverDied


NEW_WORKERS = ["read_snapshots", "start_shuffled", "snapshot", "apply", "keep_moves", "forget_before", "lead"]


@pytest.mark.parametrize("step", NEW_WORKERS)
@pytest.mark.parametrize("reached", [False, True])
@pytest.mark.parametrize("in_files", [False, True])
def test_that_a_driver_may_die_in_a_repartition(step, reached, in_files, tmp_path):
    rng = np.random.default_rng(4)
    graph, mirror = streams.random_graph(rng, 3, False, vertices=20)
    engine, crew = lg.Engine(plain_model(3, 4), graph, threads=1), ThreadCrew(3)
    options = {"snapshots": tmp_path} if in_files else {}
    cluster = lg.Cluster(plain_model(3, 4), graph, 3, crew=crew, detached="here", partition="hash", **options)
    another = crew.another

    def grow():
        updates = streams.random_batch(rng, mirror, 5)
        for each in (engine, cluster):
            each.apply(updates)

    def made(size, number):
        grow()
        successor = another(size, number)
        call, lead = successor.call, successor.lead

        def end():
            for name in ("call", "keep", "lead", "close"):
                setattr(successor, name, dies)
            crew.lead = cluster._crew._kept.publish = dies
            raise DriverDied

        def dying(calls):
            method = {"store": "snapshot", "take_snapshot": "snapshot"}.get(calls[0][0], calls[0][0])
            found = call(calls) if method != step or reached else None
            return end() if method == step else found

        def leading():
            if step != "lead" or reached:
                lead()
            if step == "lead":
                end()

        successor.call = successor.keep = dying
        successor.lead = leading
        return successor

    grow()
    crew.another = made
    with pytest.raises(DriverDied):
        cluster.repartition("ldg", 2)
    crew = crew.taken_over()
    cluster = lg.Cluster.attach("here", crew=crew)
    assert cluster.workers == crew.size == (2 if step == "lead" and reached else 3)
    assert cluster.version == engine.graph.version == 2
    for kills in range(3):
        assert cluster.state_digest() == engine.state_digest()
        grow()
        for worker in range(min(kills, crew.size)):
            crew.kill(worker)
        if in_files:
            assert len([each for each in tmp_path.iterdir() if each.suffix == ".npz"]) == crew.size + 1
    assert cluster.state_digest() == engine.state_digest()
    crew.another = ThreadCrew.another.__get__(crew)
    cluster.repartition("ldg", 4)
    grow()
    crew = crew.taken_over()
    cluster = lg.Cluster.attach("here", crew=crew)
    assert (crew.size, cluster.workers) == (4, 4)
    assert cluster.state_digest() == engine.state_digest()
    cluster.close()
    if in_files:
        restored = lg.Cluster.restore(tmp_path, crew=ThreadCrew(4))
        assert restored.state_digest() == engine.state_digest()
        restored.close()


def test_that_a_driver_that_was_replaced_does_not_go_over_to_other_workers():
    pair = Pair(5)
    before, another = pair.cluster, pair.crew.another

    def made(size, number):
        successor = another(size, number)
        lead = successor.lead

        def leading():
            pair.attach()
            lead()

        successor.lead = leading
        return successor

    pair.crew.another = made
    workers = before.workers
    with pytest.raises(lg.errors.DriverReplaced):
        before.repartition("hash", workers + 1)
    assert pair.cluster.workers == workers
    before.close()
    for _ in range(3):
        updates = pair.batch()
        pair.engine.apply(updates)
        pair.cluster.apply(updates)
        pair.check("after")
    pair.cluster.close()


def test_that_a_worker_lost_with_its_driver_ends_the_cluster():
    pair = Pair(5)
    pair.crew.kill(0)
    with pytest.raises(lg.errors.WorkerUnavailable, match=r"workers \[0\] lost with their driver"):
        pair.attach()
    assert pair.crew.workers == [None] * pair.crew.size


def test_that_a_swap_that_was_given_up_is_not_the_next_drivers():
    pair = Pair(11, snapshot_batches=100)
    state = pair.cluster._driver_state(empty=1)
    with pair.cluster._crew.lock:
        version = pair.cluster.version + 1
        pair.crew.call([("prepare_swap", pair.cluster._crew._recipe, 3, [])] * pair.crew.size)
        pair.crew.call([("snapshot_of_swap", version, state)] * pair.crew.size)
    for _ in range(2):
        updates = pair.batch()
        pair.engine.apply(updates)
        pair.cluster.apply(updates)
    pair.attach()
    pair.check("after a swap that was given up")
    pair.cluster.close()


def test_that_the_next_driver_finds_settings_report_and_model():
    pair = Pair(3, snapshot_batches=7)
    report, model, workers = pair.cluster.partition_report, pair.cluster.model, pair.cluster.workers
    pair.attach()
    assert pair.cluster._settings.snapshot_batches == 7
    assert str(pair.cluster.partition_report) == str(report)
    assert pair.cluster.workers == workers
    assert pair.cluster.model.to_arrays()[0] == model.to_arrays()[0]
    pair.cluster.close()


def test_that_types_times_and_a_ttl_go_on_with_the_next_driver():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4)).astype(np.float32)
    src, dst = rng.integers(0, 12, (2, 30))
    times = np.arange(30).astype("datetime64[s]")
    graph = lg.Graph(x, src, dst, time=times, ttl=np.timedelta64(20, "s"))
    model = plain_model(4, 5)
    engine, crew = lg.Engine(model, graph), ThreadCrew(2)
    cluster = lg.Cluster(model, graph, 2, crew=crew, detached="here", partition="hash")
    for step in range(6):
        updates = lg.Updates()
        updates.add_edge(step, step + 1, time=np.datetime64(30 + 5 * step, "s"))
        for each in (engine, cluster):
            each.apply(updates)
        if step % 2:
            crew = crew.taken_over()
            cluster = lg.Cluster.attach("here", crew=crew)
        assert cluster.state_digest() == engine.state_digest()
        assert cluster.graph.now == engine.graph.now
    cluster.close()
