"""Repartitions of a running cluster: one engine's bits after each, whatever is lost and whenever."""

import logging
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.partition import PartitionReport, VertexParts
from livegnn.errors import RangeOverflow
from livegnn.testing.edge_models import EDGE_FAMILIES, graph_columns
from livegnn.testing.models import FAMILIES, random_model
from tests.oracle.hetero_oracle import TRIPLES, WIDTHS
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.simulation.plain_streams import random_plain_batch, random_plain_graph
from tests.simulation.test_cluster_log import Logged

SEEDS = st.integers(0, 2**32 - 1)
NAMES = ("hash", "ldg", "fennel", "metis")


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


def pair(seed, workers, family=None, **options):
    """An engine and a cluster on one random graph, and what draws a batch for both."""
    rng = np.random.default_rng(seed)
    weighted = bool(rng.integers(2))
    model = random_model(rng, family=family, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=None)
    columns = {"weighted": weighted, "undirected": bool(rng.integers(2)), "timed": bool(rng.integers(2))}
    graph = random_plain_graph(rng, model.input_width, **columns, **graph_columns(model))
    return clustered(model, graph, workers, rng, options), lambda size: random_plain_batch(
        rng, graph, size, graph_columns(model)["types"]
    )


def clustered(model, graph, workers, rng, options):
    crew = ThreadCrew(workers, timeout_s=30)
    options.setdefault("partition", str(rng.choice(NAMES)))
    options.setdefault("newcomers", str(rng.choice(["hash", "ldg", "fennel"])))
    cluster = lg.Cluster(model, graph, workers, crew=crew, **options)
    return lg.Engine(model, graph, threads=1), cluster, crew, rng


def drawn(rng, graph, workers):
    """Parts to go over to; some have a table that is shorter than the graph, or longer."""
    if rng.integers(3) == 0:
        return str(rng.choice(NAMES))
    count = max(0, graph.slot_count + int(rng.integers(-3, 4)))
    return VertexParts(workers, rng.integers(0, workers, count), owners=rng.integers(0, workers, 1024))


def check_same(engine, cluster, note):
    assert cluster.state_digest() == engine.state_digest(), note
    if engine.graph.vertex_types is None:
        ids = engine.graph.vertices()
        np.testing.assert_array_equal(cluster.embeddings(ids), engine.embeddings(ids), err_msg=note)
    for name in engine.graph.vertex_types or ():
        ids = engine.graph.vertices(name)
        np.testing.assert_array_equal(
            cluster.embeddings(ids, vertex_type=name), engine.embeddings(ids, vertex_type=name)
        )
    parts = cluster._directory.newcomers.parts
    assert str(cluster.partition_report) == str(PartitionReport.of(engine.graph, parts)), note
    np.testing.assert_array_equal(cluster._directory.newcomers.live, cluster.partition_report.vertices)
    assert [each["vertices"] for each in cluster.report()] == cluster.partition_report.vertices.tolist()


def apply_with_room(engine, cluster, updates):
    """Applies a batch to both. Both refuse a batch that leaves the fixed-point range, and get room for it."""
    try:
        engine.apply(updates)
    except RangeOverflow:
        with pytest.raises(RangeOverflow):
            cluster.apply(updates)
        assert cluster.state_digest() == engine.state_digest()
        for each in (engine, cluster):
            each.rescale(headroom=2.0**20)
        engine.apply(updates)
    cluster.apply(updates)


def crew_of(cluster):
    """The workers that serve."""
    return cluster._crew._crew


def lose_one(cluster, rng):
    """A worker, of those that serve or of those that are to succeed them."""
    crews = crew_of(cluster)._driver.crews
    crew = crews[rng.integers(len(crews))]
    crew.kill(int(rng.integers(crew.size)))


class Writer(threading.Thread):
    """Applies batches to an engine and a cluster until stop(), or `most` of them. draw: makes one."""

    def __init__(self, engine, cluster, draw, most):
        super().__init__()
        self._engine, self._cluster, self._draw, self._most = engine, cluster, draw, most
        self._stopped, self.error = threading.Event(), None

    def run(self):
        try:
            for _ in range(self._most):
                if not self._stopped.is_set():
                    apply_with_room(self._engine, self._cluster, self._draw())
        except BaseException as error:
            self.error = error

    def stop(self):
        self._stopped.set()
        self.join()
        if self.error is not None:
            raise self.error


def run(world, batch, rounds, kills=0.0):
    """A stream of batches with repartitions between them, and while others come. kills: the share of calls in which
    workers are lost.
    """
    engine, cluster, _, rng = world
    if rng.integers(4) == 0:  # so little room that some batch is refused
        for each in (engine, cluster):
            each.rescale(headroom=2.0)
    check_same(engine, cluster, "at first")
    for number in range(rounds):
        apply_with_room(engine, cluster, batch(int(rng.integers(1, 12))))
        workers = int(rng.choice([cluster.workers, cluster.workers, 1, 2, 4]))
        wanted, version = drawn(rng, engine.graph, workers), cluster.version
        timers = []
        if rng.random() < kills:
            chance = np.random.default_rng(rng.integers(2**32))
            delays = rng.random(int(rng.integers(1, 4))) * 0.02
            timers = [threading.Timer(delay, lose_one, [cluster, chance]) for delay in delays.tolist()]
        writer = None
        if rng.integers(2):
            writer = Writer(engine, cluster, lambda: batch(int(rng.integers(1, 12))), 30)
        for thread in [*timers, *([writer] if writer else [])]:
            thread.start()
        cluster.repartition(wanted, workers)
        for timer in timers:
            timer.join()
        if writer:
            writer.stop()
        else:
            assert cluster.version == version
        assert cluster.workers == workers == len(cluster.report())
        assert crew_of(cluster)._driver.crews == [crew_of(cluster)]
        check_same(engine, cluster, f"round {number}, {wanted}")
    cluster.verify()
    assert cluster.scales == engine.scales
    cluster.close()


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([1, 2, 3, 5]), st.integers(1, 6))
def test_that_a_repartition_keeps_the_bits_of_one_engine(seed, workers, snapshot_batches):
    world, batch = pair(seed, workers, snapshot_batches=snapshot_batches)
    run(world, batch, 5)


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([2, 3, 4]), st.integers(1, 6), st.booleans())
def test_that_workers_lost_in_a_repartition_come_back_to_the_same_bits(
    tmp_path_factory, seed, workers, snapshot_batches, in_files
):
    folder = tmp_path_factory.mktemp("snapshots") / "new" if in_files else None
    world, batch = pair(seed, workers, snapshot_batches=snapshot_batches, snapshots=folder)
    run(world, batch, 5, kills=0.6)


@pytest.mark.parametrize("family", [*FAMILIES, *EDGE_FAMILIES])
@settings(max_examples=2)
@given(seed=SEEDS)
def test_that_a_repartition_keeps_the_bits_of_every_family(family, seed):
    world, batch = pair(seed, 3, family)
    run(world, batch, 4, kills=0.3)


@pytest.mark.parametrize("seed", range(2))
def test_that_a_long_stream_of_repartitions_keeps_the_bits(seed):
    world, batch = pair(seed, 4, snapshot_batches=7)
    run(world, batch, 30, kills=0.2)


@settings(max_examples=6)
@given(SEEDS)
def test_that_a_repartition_of_typed_vertices_keeps_the_bits(seed):
    rng = np.random.default_rng(seed)
    module = liven(TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6)))
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    world = clustered(lg.from_pyg(module), graph, 3, rng, {})
    run(world, lambda size: random_typed_batch(rng, mirror, size), 4, kills=0.4)


def crews_that_lose(crew, method, worker, after=False, times=1):
    """The next crews that are made next to this one lose a worker when they are called for a method: as many as times.
    Returns: who lost one.
    """
    another, lost = crew.another, []

    def made(size, number):
        successor = another(size, number)
        call = successor.call

        def losing(calls):
            hit = calls[0][0] == method and len(lost) < times and successor not in lost
            if hit:
                lost.append(successor)
            if hit and not after:
                successor.kill(worker)
            try:
                return call(calls)
            finally:
                if hit and after:
                    successor.kill(worker)

        successor.call = successor.keep = losing
        return successor

    crew.another = made
    return lost


STEPS = ["read_snapshots", "start_shuffled", "take_snapshot", "has_snapshot", "apply", "keep_moves", "forget_before"]


@pytest.mark.parametrize("lost", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_that_a_new_worker_lost_at_any_step_follows_or_all_begins_again(lost, after):
    (engine, cluster, crew, rng), batch = pair(5, 3, snapshot_batches=100)
    came = []

    def grow(count):
        for _ in range(count):
            updates = batch(6)
            engine.apply(updates)
            cluster.apply(updates)
            came.append(updates)

    grow(2)
    killed = crews_that_lose(crew, lost, 1, after)
    inner = crew.another

    def another(size, number):  # some batches come while the new workers start
        grow(2)
        return inner(size, number)

    crew.another = another
    wanted = VertexParts(2, rng.integers(0, 2, engine.graph.slot_count))
    changed = []
    cluster.on_change(lambda changes: changed.append(changes.version))
    cluster.repartition(wanted, 2)
    assert len(killed) == 1
    followed = lost in ("apply", "keep_moves") or (lost == "forget_before" and after)  # else all began again
    assert len(changed) == len(came) - 2 == (2 if followed else 4)
    check_same(engine, cluster, "after")
    slots = np.arange(wanted.slot_count)
    np.testing.assert_array_equal(cluster._directory.parts_of(slots), wanted.lookup(slots))
    crew_of(cluster).kill(0)
    for _ in range(2):
        updates = batch(6)
        with engine.what_if(updates) as want, cluster.what_if(updates) as got:
            assert set(want.vertices.tolist()) <= set(got.vertices.tolist())
            np.testing.assert_array_equal(got.embeddings(want.vertices), want.embeddings(want.vertices))
        for each in (engine, cluster):
            each.apply(updates)
        check_same(engine, cluster, "after a batch")
    cluster.close()


@pytest.mark.parametrize("lost", ["read_snapshots", "has_snapshot"])
def test_that_new_workers_that_are_lost_again_and_again_change_nothing(lost):
    (engine, cluster, crew, _), batch = pair(6, 3)
    killed = crews_that_lose(crew, lost, 0, times=5)
    slots = np.arange(engine.graph.slot_count)
    before = cluster._directory.parts_of(slots).tolist()
    with pytest.raises(lg.errors.WorkerUnavailable):
        cluster.repartition(VertexParts(3, (slots + 1) % 3))
    assert len(killed) == 5
    assert (cluster.version, cluster._directory.parts_of(slots).tolist()) == (0, before)
    assert (crew_of(cluster), crew._driver.crews) == (crew, [crew])
    check_same(engine, cluster, "after")
    updates = batch(5)
    for each in (engine, cluster):
        each.apply(updates)
    check_same(engine, cluster, "after a batch")
    assert cluster._crew._history is None
    cluster.close()


@pytest.mark.parametrize("swaps", [1, 5])
def test_that_another_model_meanwhile_begins_it_again(swaps):
    (engine, cluster, crew, _), batch = pair(8, 2)
    another, made = crew.another, []

    def swapping(size, number):
        made.append(size)
        if len(made) <= swaps:
            for each in (engine, cluster):
                each.rescale(64.0)
        return another(size, number)

    crew.another = swapping
    if swaps == 1:
        cluster.repartition("hash", 3)
    else:
        with pytest.raises(
            lg.errors.UsageError, match=r"expected one model meanwhile, got a swap in the last of 5 attempts"
        ):
            cluster.repartition("hash", 3)
    assert cluster.workers == (3 if swaps == 1 else 2)
    assert len(made) == (2 if swaps == 1 else 5)
    check_same(engine, cluster, "after")
    for _ in range(3):
        updates = batch(6)
        for each in (engine, cluster):
            each.apply(updates)
        check_same(engine, cluster, "after a batch")
    assert cluster.scales == engine.scales
    cluster.close()


def test_that_batches_and_reads_go_on_while_new_workers_start():
    (engine, cluster, crew, _), batch = pair(9, 2)
    another, seen = crew.another, []

    def during(size, number):
        def use():
            updates = batch(5)
            for each in (engine, cluster):
                each.apply(updates)
            check_same(engine, cluster, "meanwhile")
            with cluster.what_if(batch(0)):
                pass
            cluster.verify()
            seen.append(cluster.version)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join(20)
        return another(size, number)

    crew.another = during
    cluster.repartition("ldg", 3)
    assert seen == [1]
    check_same(engine, cluster, "after")
    cluster.close()


def test_that_two_repartitions_come_one_after_the_other():
    (engine, cluster, _, _), _ = pair(10, 2)
    threads = [threading.Thread(target=cluster.repartition, args=("hash", workers)) for workers in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cluster.workers in (3, 4)
    assert crew_of(cluster)._driver.crews == [crew_of(cluster)]
    check_same(engine, cluster, "after")
    cluster.close()


@pytest.mark.parametrize("lost", ["decide", "hold"])
def test_that_new_workers_follow_batches_of_a_log(lost):
    world = Logged(4, 3)
    for partition, workers in (("ldg", 2), ("hash", 4)):
        crew, another = world.crew, world.crew.another

        def during(size, number, another=another):
            for fails in ("", "before", ""):
                updates = world.batch()
                world.log.log.fails = fails
                if fails:
                    with pytest.raises(lg.errors.LogUnavailable):
                        world.cluster.apply(updates)
                world.engine.apply(updates)
                killed = world.losing(lost, 1)
                world.cluster.apply(updates)
                assert killed
            return another(size, number)

        crew.another = during
        world.cluster.repartition(partition, workers)
        world.check("after")
    world.check_replay()
    world.cluster.close()


@pytest.mark.parametrize("partition", ["metis", "ldg", "fennel"])
def test_that_work_goes_to_workers_that_have_none(partition):
    rng = np.random.default_rng(0)
    half, edges = 60, 200
    src, dst = np.concatenate([rng.integers(0, half, (2, edges)) + half * side for side in range(2)], axis=1)
    weights = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
    model = lg.Model([lg.layers.SAGE(weight, weight, activation=None) for weight in weights])
    graph = lg.Graph(rng.random((2 * half, 4), dtype=np.float32), src, dst)
    halves = VertexParts(2, np.arange(2 * half) // half)
    engine, cluster, _, _ = clustered(model, graph, 2, rng, {"partition": halves})
    changed = np.zeros(2 * half, np.int64)
    cluster.on_change(lambda changes: np.add.at(changed, changes.vertices, 1))

    def follow():
        """The largest share of the work of some batches, all of them in the first half; 1 is even."""
        changed[:] = 0
        for number in range(60):
            updates = lg.Updates()
            updates.set_features(number % half, rng.random(4, dtype=np.float32))
            for each in (engine, cluster):
                each.apply(updates)
        found = np.zeros_like(changed)
        for slots, counts in cluster._crew.each("work"):
            found[slots] = counts
        np.testing.assert_array_equal(found, changed)
        work = np.array([each["work"] for each in cluster.report()])
        assert work.sum() == changed.sum() > 100
        return float(work.max() / work.mean())

    assert follow() == 2
    cluster.repartition(partition, balance="work")
    check_same(engine, cluster, "after")
    assert [each["work"] for each in cluster.report()] == [0, 0]
    assert follow() < 1.25
    cluster.close()


def test_what_a_repartition_refuses():
    (engine, cluster, _, _), _ = pair(3, 2)
    refused = lg.errors.UsageError
    with pytest.raises(refused, match=r"\[repartition\] expected parts for 2 workers, got 3; make as many"):
        cluster.repartition(VertexParts(3))
    with pytest.raises(refused, match=r"\[repartition\] expected parts for 4 workers, got 3; make as many"):
        cluster.repartition(VertexParts(3), workers=4)
    with pytest.raises(refused, match=r"\[repartition\] expected balance of 'edges' or 'work', got 'rows'"):
        cluster.repartition("ldg", balance="rows")
    for partition in ("hash", VertexParts(2)):
        with pytest.raises(refused, match=r"\[repartition\] expected a partitioner that balances work, got"):
            cluster.repartition(partition, balance="work")
    for number in (0, 65, 2.0, True):
        with pytest.raises(refused, match=r"\[repartition\] expected 1 to 64 workers, got"):
            cluster.repartition("hash", number)
    for wrong in ("best", 3, None, ["hash"]):
        with pytest.raises(lg.errors.ValueInvalid, match=r"\[repartition\] expected partition to be 'metis', 'ldg'"):
            cluster.repartition(wrong)
    failed = []

    def inside(changes):
        try:
            cluster.repartition("hash")
        except refused as error:
            failed.append(str(error))

    handle = cluster.on_change(inside)
    cluster.apply(lg.Updates())
    handle.cancel()
    assert failed[0].startswith("[repartition] expected a graph with no batch under way")
    assert cluster.version == 1
    check_same(engine, cluster, "after")
    cluster.close()
    for call in (lambda: cluster.repartition("hash"), lambda: cluster.partition_report):
        with pytest.raises(refused, match="expected an open cluster"):
            call()
