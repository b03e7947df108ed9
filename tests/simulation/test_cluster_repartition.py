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
    """As engine.apply. Both refuse a batch that leaves the fixed-point range, and get room for it."""
    try:
        engine.apply(updates)
    except RangeOverflow:
        with pytest.raises(RangeOverflow):
            cluster.apply(updates)
        check_same(engine, cluster, "refused")
        for each in (engine, cluster):
            each.rescale(headroom=2.0**20)
        engine.apply(updates)


def run(world, batch, rounds, kills=0.0):
    """A stream of batches with repartitions between them. kills: the share of calls in which workers are lost."""
    engine, cluster, crew, rng = world
    if rng.integers(4) == 0:  # so little room that some batch is refused
        for each in (engine, cluster):
            each.rescale(headroom=2.0)
    check_same(engine, cluster, "at first")
    for number in range(rounds):
        updates = batch(int(rng.integers(1, 12)))
        apply_with_room(engine, cluster, updates)
        versions = cluster.version
        wanted = drawn(rng, engine.graph, crew.size)
        for call, value in ((cluster.apply, updates), (cluster.repartition, wanted)):
            timers = []
            if rng.random() < kills:
                for worker in rng.choice(crew.size, int(rng.integers(1, crew.size + 1)), replace=False).tolist():
                    timers.append(threading.Timer(float(rng.random() * 0.012), crew.kill, [worker]))
            for timer in timers:
                timer.start()
            call(value)
            for timer in timers:
                timer.join()
        assert cluster.version == versions + 2
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


STEPS = [None, "prepare_cut", "snapshot_of_swap", "has_snapshot", "commit_swap", "forget_before"]


@pytest.mark.parametrize("lost", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_that_a_worker_lost_at_any_step_follows(lost, after):
    (engine, cluster, crew, rng), batch = pair(5, 3, snapshot_batches=100)
    for _ in range(2):
        updates = batch(6)
        engine.apply(updates)
        cluster.apply(updates)
    call, killed = crew.call, []

    def losing(calls):
        hit = calls[0][0] == lost and not killed
        if hit and not after:
            killed.append(crew.kill(1))
        try:
            return call(calls)
        finally:
            if hit and after:
                killed.append(crew.kill(1))

    crew.call = crew.keep = losing
    wanted = VertexParts(3, rng.integers(0, 3, engine.graph.slot_count))
    changed = []
    cluster.on_change(lambda changes: changed.append(changes.vertices.size))
    cluster.repartition(wanted)
    assert (len(killed) == 1) == (lost is not None)
    assert changed == [0]
    check_same(engine, cluster, "after")
    slots = np.arange(engine.graph.slot_count)
    np.testing.assert_array_equal(cluster._directory.parts_of(slots), wanted.lookup(slots))
    crew.kill(2)
    for _ in range(2):
        updates = batch(6)
        with engine.what_if(updates) as want, cluster.what_if(updates) as got:
            assert set(want.vertices.tolist()) <= set(got.vertices.tolist())
            np.testing.assert_array_equal(got.embeddings(want.vertices), want.embeddings(want.vertices))
        for each in (engine, cluster):
            each.apply(updates)
        check_same(engine, cluster, "after a batch")
    cluster.close()


@pytest.mark.parametrize("lost", ["prepare_cut", "has_snapshot"])
def test_that_a_repartition_without_workers_changes_nothing(lost):
    (engine, cluster, crew, _), batch = pair(6, 3)
    call, gone = crew.call, [True]

    def losing(calls):
        if calls[0][0] == lost and gone:
            crew.kill(0)
        return call(calls)

    crew.call = losing
    slots = np.arange(engine.graph.slot_count)
    before = cluster._directory.parts_of(slots).tolist()
    with pytest.raises(lg.errors.WorkerUnavailable):
        cluster.repartition(VertexParts(3, (slots + 1) % 3))
    gone.clear()
    assert (cluster.version, cluster._directory.parts_of(slots).tolist()) == (0, before)
    check_same(engine, cluster, "after")
    updates = batch(5)
    for each in (engine, cluster):
        each.apply(updates)
    check_same(engine, cluster, "after a batch")
    cluster.close()


@pytest.mark.parametrize("fails", ["", "before"])
@pytest.mark.parametrize("lost", ["prepare_cut", "has_snapshot", "commit_swap"])
def test_that_a_log_holds_a_repartition_as_a_version_without_updates(lost, fails):
    world = Logged(4, 3)
    for partition in ("ldg", "hash"):
        updates = world.batch()
        world.engine.apply(updates)
        world.cluster.apply(updates)
        world.log.log.fails = fails
        if fails:
            with pytest.raises(lg.errors.LogUnavailable, match="expected a disk"):
                world.cluster.repartition(partition)
            world.check("after the log failed")
        killed = world.losing(lost, 1)
        world.cluster.repartition(partition)
        world.engine.graph.apply(lg.Updates())
        assert killed
        world.check("after")
    world.check_replay()
    world.cluster.close()


def test_what_a_repartition_refuses():
    (engine, cluster, _, _), _ = pair(3, 2)
    refused = lg.errors.UsageError
    with pytest.raises(refused, match=r"\[repartition\] expected parts for 2 workers, got 3; make as many"):
        cluster.repartition(VertexParts(3))
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
