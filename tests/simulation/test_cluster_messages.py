"""What crosses between driver and workers is read-only where it is large: here all of it is, as large as it may be."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed import messages
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.testing import streams
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.simulation.test_cluster import check_same, live_ids


def passed_on(value):
    """As it comes out of a message."""
    (found,) = messages.values_of(b"".join(bytes(piece) for piece in messages.pieces_of(value)))
    return found


class MessageCrew(ThreadCrew):
    """Calls, and what comes of them, go as messages."""

    def _run(self, rank, call):
        return passed_on(super()._run(rank, passed_on(call)))


@pytest.mark.parametrize("seed", range(6))
def test_that_nothing_writes_to_what_was_sent(monkeypatch, seed):
    monkeypatch.setattr(messages, "_LARGE_BYTES", 1)
    rng = np.random.default_rng(seed)
    model, other = (random_model(np.random.default_rng(seed), weighted=False, on_edges=True) for _ in range(2))
    graph, mirror = streams.random_graph(rng, model.input_width, False, vertices=20, **graph_columns(model))
    engine, crew = lg.Engine(model, graph, threads=1), MessageCrew(3, timeout_s=30)
    cluster = lg.Cluster(model, graph, 3, crew=crew, partition="ldg", snapshot_batches=2)
    for batch in range(8):
        updates = streams.random_batch(rng, mirror, 10)
        with engine.what_if(updates) as want, cluster.what_if(updates) as got:
            assert set(want.vertices.tolist()) <= set(got.vertices.tolist())
        if batch == 5:
            crew.kill(1)
        assert set(engine.apply(updates).vertices.tolist()) <= set(cluster.apply(updates).vertices.tolist())
        check_same(engine, cluster, f"batch {batch}")
    cluster.repartition("ldg", balance="work")
    for each in (engine, cluster):
        each.swap(other)
    check_same(engine, cluster, "other workers and a new engine")
    np.testing.assert_array_equal(cluster.predict(live_ids(engine)), engine.predict(live_ids(engine)))
    cluster.verify()
    cluster.close()
