"""lg.Cluster on Ray: what the simulation shows of threads, with processes that are killed and paused."""

import os
import signal
import time

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import topk
from livegnn.distributed import PartsWriter
from livegnn.distributed.cluster.ray_crew import RayCrew
from livegnn.distributed.partition import VertexParts
from livegnn.testing import streams
from livegnn.testing.models import random_model
from tests.unit.distributed import workers

TIMEOUT_S = 15.0


@pytest.fixture(scope="module")
def crew(ray_cluster):
    made = RayCrew(2, timeout_s=TIMEOUT_S)
    yield made
    made.close()


def pair(crew, seed, **options):
    rng = np.random.default_rng(seed)
    model = random_model(rng, family="gcn", depth=2, weighted=True)
    graph, mirror = streams.random_graph(rng, model.input_width, True, vertices=40)
    engine = lg.Engine(model, graph, threads=1)
    return engine, lg.Cluster(model, graph, 2, crew=crew, **options), mirror, rng


def test_that_workers_on_ray_have_the_bits_of_one_engine_and_come_back(crew):
    engine, cluster, mirror, rng = pair(crew, 4, partition="metis", snapshot_batches=3)
    for batch in range(8):
        updates = streams.random_batch(rng, mirror, 20)
        wanted = engine.apply(updates)
        if batch in (2, 5):
            os.kill(crew.processes()[batch % 2], signal.SIGKILL)
        found = cluster.apply(updates)
        assert found.vertices.tolist() == wanted.vertices.tolist(), batch
        assert cluster.state_digest() == engine.state_digest(), batch
    again = cluster._crew.each("repeat", cluster.version)  # these answers go over Ray, as after a loss
    assert sorted(np.concatenate([each.slots for each in again]).tolist()) == wanted.vertices.tolist()
    cluster.verify()
    updates = streams.random_batch(rng, mirror, 5)
    with engine.what_if(updates) as want, cluster.what_if(updates) as got:
        ids = want.vertices.tolist()
        np.testing.assert_array_equal(got.embeddings(ids), want.embeddings(ids))
    ids = np.flatnonzero(engine.graph.host.store.live())
    np.testing.assert_array_equal(cluster.predict(ids), engine.predict(ids))
    for metric in ("dot", "cosine", "l2", "model"):
        want, got = (
            topk.best(each, vertex=int(ids[0]), k=7, metric=metric, linked=False) for each in (engine, cluster)
        )
        assert (got.vertices.tolist(), got.scores.tobytes()) == (want.vertices.tolist(), want.scores.tobytes())
    cluster.swap(cluster.model)
    assert crew._group.call(workers.has_torch) == [False, False]
    report = cluster.report()
    assert sum(facts["vertices"] for facts in report) == len(ids)
    assert all(facts["bytes"] > 0 for facts in report)


def test_that_other_workers_on_ray_take_over_while_batches_go_on(crew):
    engine, cluster, mirror, rng = pair(crew, 5, partition="hash")
    another, started = RayCrew.another, []

    def grow():
        updates = streams.random_batch(rng, mirror, 20)
        for each in (engine, cluster):
            each.apply(updates)

    def processes():
        return {facts["process"] for facts in cluster.report()}

    def made(present, size, number):
        grow()  # it comes after the snapshot
        successor = another(present, size, number)
        if len(started) == 1:
            os.kill(successor.processes()[0], signal.SIGKILL)  # then all begins again
        started.append(successor)
        return successor

    before = processes()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RayCrew, "another", made)
        cluster.repartition("ldg")
        assert (len(started), cluster.workers) == (1, 2)
        assert not processes() & before
        assert cluster.state_digest() == engine.state_digest()
        cluster.repartition(VertexParts(3, rng.integers(0, 3, 40)), 3)
    assert len(started) == 3
    assert cluster.workers == len(processes()) == 3
    assert cluster.state_digest() == engine.state_digest()
    grow()
    os.kill(min(processes()), signal.SIGKILL)
    grow()
    assert cluster.state_digest() == engine.state_digest()
    report = cluster.partition_report
    assert [facts["vertices"] for facts in cluster.report()] == report.vertices.tolist()
    assert report.edges == engine.graph.edge_count
    cluster.close()


def test_that_a_graph_in_chunks_and_a_cluster_in_parts_start_on_ray(crew, tmp_path):
    rng = np.random.default_rng(7)
    model = random_model(rng, family="sage", depth=2, weighted=False)
    features, ends = rng.random((40, model.input_width), dtype=np.float32), rng.integers(0, 40, (2, 200))
    with PartsWriter(tmp_path / "graph") as writer:
        for rows in np.split(features, 4):
            writer.add_vertices(rows)
        for src, dst in zip(*(np.split(end, 5) for end in ends), strict=True):
            writer.add_edges(src, dst)
    engine = lg.Engine(model, lg.Graph(features, *ends), threads=1)
    cluster = lg.Cluster.load(tmp_path / "graph", 2, model=model, crew=crew)
    assert cluster.state_digest() == engine.state_digest()
    os.kill(crew.processes()[1], signal.SIGKILL)
    cluster.save(tmp_path / "saved", in_parts=True)
    again = lg.Cluster.load(tmp_path / "saved", 2, crew=crew, partition=VertexParts(2, rng.integers(0, 2, 40)))
    updates = lg.Updates()
    updates.add_edge(3, 4)
    for each in (engine, again):
        each.apply(updates)
    assert again.state_digest() == engine.state_digest()
    share = tmp_path / "saved" / "share-000001.npz"
    share.write_bytes(share.read_bytes()[:-1])
    with pytest.raises(lg.errors.StoredStateInvalid, match=r"share-000001\.npz"):
        lg.Cluster.load(tmp_path / "saved", 2, timeout_s=TIMEOUT_S)


def test_that_a_paused_worker_is_replaced(ray_cluster):
    crew = RayCrew(2, timeout_s=4.0)
    engine, cluster, mirror, rng = pair(crew, 9, partition="ldg")
    for batch in range(3):
        updates = streams.random_batch(rng, mirror, 10)
        engine.apply(updates)
        paused = crew.processes()[0]
        if batch == 1:
            os.kill(paused, signal.SIGSTOP)
        cluster.apply(updates)
        assert cluster.state_digest() == engine.state_digest(), batch
    assert paused != crew.processes()[0] or batch != 1
    cluster.close()


def test_that_a_worker_that_ray_started_again_unseen_has_its_part_again(crew):
    engine, cluster, mirror, rng = pair(crew, 6, partition="hash")
    for victim in range(2):
        os.kill(crew.processes()[victim], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while True:  # nothing is asked of the cluster meanwhile
            try:
                crew.processes()
                break
            except lg.errors.WorkerUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        ids = np.flatnonzero(engine.graph.host.store.live())
        if victim == 0:
            np.testing.assert_array_equal(cluster.embeddings(ids), engine.embeddings(ids))
        updates = streams.random_batch(rng, mirror, 10)
        engine.apply(updates)
        cluster.apply(updates)
        assert cluster.state_digest() == engine.state_digest(), victim


def fail_alone(worker, rank, kind):
    """Has one worker fail in the first round of a verify()."""

    def verify():
        raise kind("[verify] expected a sum in range, got one above it; rescale")

    if worker.rank == rank:
        worker.kept["part"].part.verify = verify


@pytest.mark.parametrize(
    ("kind", "raised"),
    [(lg.errors.RangeOverflow, lg.errors.RangeOverflow), (MemoryError, lg.errors.WorkerUnavailable)],
)
def test_that_a_worker_that_fails_in_a_round_holds_up_no_other(crew, kind, raised):
    engine, cluster, mirror, rng = pair(crew, 12, partition="hash")
    crew._group.call(fail_alone, 1, kind)
    begun = time.monotonic()
    with pytest.raises(raised, match="a sum in range"):
        cluster.verify()
    assert time.monotonic() - begun < TIMEOUT_S  # for which the other one would wait
    updates = streams.random_batch(rng, mirror, 5)
    for each in (engine, cluster):
        each.apply(updates)
    assert cluster.state_digest() == engine.state_digest()
