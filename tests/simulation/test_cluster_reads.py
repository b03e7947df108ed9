"""Reads of lg.Cluster while batches go through it: one version each, and one call to the workers for many."""

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.testing.models import random_model


def made(seed, workers=3):
    """An engine, a cluster of the same, its crew, and what makes batches that remove no vertex."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, weighted=False, family="gcn", depth=2)
    x = rng.standard_normal((40, model.input_width)).astype(np.float32)
    graph = lg.Graph(x, rng.integers(0, 40, 120), rng.integers(0, 40, 120))

    def batch():
        updates = lg.Updates()
        for _ in range(4):
            updates.add_edge(*rng.integers(0, 40, 2).tolist())
        updates.set_features(int(rng.integers(40)), rng.standard_normal(model.input_width).astype(np.float32))
        return updates

    crew = ThreadCrew(workers)
    cluster = lg.Cluster(model, graph, workers, crew=crew, partition="hash")
    return lg.Engine(model, graph, threads=1), cluster, crew, batch


@pytest.mark.parametrize("seed", range(3))
def test_that_reads_among_batches_are_of_one_version(seed):
    engine, cluster, _, batch = made(seed)
    ids = list(range(0, 40, 3))
    wanted, found, ended = {0: engine.embeddings(ids)}, [], threading.Event()

    def read():
        while not ended.is_set():
            found.append(cluster.reads.run(lambda: (cluster.version, cluster.embeddings(ids))))
            found.append((None, cluster.embeddings(ids)))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for version in range(1, 81):
        updates = batch()
        engine.apply(updates)
        wanted[version] = engine.embeddings(ids)
        cluster.apply(updates)
    ended.set()
    for reader in readers:
        reader.join(60)
    assert len(found) > 50
    rows = {each.tobytes() for each in wanted.values()}
    for version, each in found:
        if version is None:
            assert each.tobytes() in rows
        else:
            np.testing.assert_array_equal(each, wanted[version])
    cluster.close()


def counted(crew):
    """The calls that a crew gets from now on, by their names."""
    call, names = crew.call, []

    def counting(calls):
        names.append(calls[0][0])
        return call(calls)

    crew.call = counting
    return names


def test_that_reads_that_wait_share_a_call_and_one_that_is_wrong_is_alone():
    engine, cluster, crew, _ = made(5)
    names = counted(crew)
    pairs = [(1, 2), (3, 4)]
    with cluster.graph.host.lock:  # as during a batch
        rows = [cluster.reads.submit(lambda ids=[k, k + 1]: cluster.embeddings(ids)) for k in range(10)]
        scores = cluster.reads.submit(lambda: cluster.predict_edges(pairs))
        wrong = cluster.reads.submit(lambda: cluster.embeddings([12345]))
        twice = cluster.reads.submit(lambda: (cluster.embeddings([1]), cluster.embeddings([2])))
        none = cluster.reads.submit(lambda: cluster.version)
    for k, each in enumerate(rows):
        np.testing.assert_array_equal(each.result(20), engine.embeddings([k, k + 1]))
    np.testing.assert_array_equal(scores.result(20), engine.predict_edges(pairs))
    np.testing.assert_array_equal(np.concatenate(twice.result(20)), engine.embeddings([1, 2]))
    assert none.result(20) == 0
    with pytest.raises(lg.errors.VertexUnknown, match="12345"):
        wrong.result(20)
    assert names.count("read_rows") <= 4  # one for all, and some where the line was taken in parts


def test_that_the_writer_answers_after_its_batch():
    _, cluster, crew, batch = made(6)
    answered = []
    call = crew.call

    def slow(calls):
        if calls[0][0] == "apply":
            answered.append(cluster.reads.submit(lambda: (cluster.version, threading.current_thread().name)))
        return call(calls)

    crew.call = slow
    cluster.apply(batch())
    assert answered[0].result(20) == (1, threading.current_thread().name)


def test_that_reads_end_with_the_cluster():
    _, cluster, _, _ = made(7)
    with cluster.graph.host.lock:
        waiting = cluster.reads.submit(lambda: cluster.embeddings([1]))
        cluster.close()
    with pytest.raises(lg.errors.UsageError, match="closed"):
        waiting.result(20)
    with pytest.raises(lg.errors.UsageError, match="closed"):
        cluster.reads.submit(lambda: cluster.embeddings([1])).result(20)
