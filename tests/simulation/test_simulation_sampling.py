"""Any worker, and the coordinator, dies at any moment; afterwards samples equal those of an undisturbed run."""

from __future__ import annotations

import random

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import UpdateError, UsageError
from livegnn.log import UpdateLog
from livegnn.sampling import ClusterSpec, LocalCluster, even_owners, even_serving
from tests.simulation.world import World
from tests.unit.sampling.reach import held

QUERIES = [
    [lg.query().out().sample(2).out().sample(2)],
    [lg.query().in_().sample(2, by="top_k").both().sample(1, by="random"), lg.query().out().sample(3, by="top_k")],
    [lg.query().out().sample(1).out().sample(2).in_().sample(2)],
]


def random_batch(rng: random.Random, graph: lg.Graph) -> lg.Updates:
    """A few updates, most of which the graph accepts."""
    updates, live, edges = lg.Updates(), graph.vertices().tolist(), graph.edges()
    new = f"v{rng.randrange(12)}" if graph.has_ids else graph.slot_count
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(["add", "add", "add", "remove", "features", "vertex", "gone"])
        u, v = rng.choice(live), rng.choice(live)
        if kind == "add":
            updates.add_edge(u, v, time=rng.randint(0, 50))
        elif kind == "remove" and len(edges["id"]):
            place = rng.randrange(len(edges["id"]))
            updates.remove_edge(*[edges[end].tolist()[place] for end in ("src", "dst")], missing="ignore")
        elif kind == "features":
            updates.set_features(u, [rng.random(), 1.0])
        elif kind == "vertex":
            updates.add_vertex(new, [rng.random(), 2.0])
        elif kind == "gone" and len(live) > 4:
            updates.remove_vertex(u)
    return updates


@pytest.mark.parametrize("seed", range(24))
def test_samples_equal_those_of_an_undisturbed_run(seed):
    run_and_compare(seed, rivals=0)


@pytest.mark.parametrize("seed", range(36, 48))
def test_workers_translate_ids_of_the_graphs_own(seed):
    run_and_compare(seed, rivals=0, named=True)


@pytest.mark.parametrize("seed", range(24, 36))
def test_coordinators_that_know_nothing_of_each_other_make_one_order_of_steps(seed):
    assert run_and_compare(seed, rivals=1).conflicts > 0


def run_and_compare(seed, *, rivals, named=False):
    rng = random.Random(seed)
    queries, owners = QUERIES[seed % len(QUERIES)], even_owners(rng.randint(1, 3))
    src, dst = [[rng.randrange(9) for _ in range(15)] for _ in range(2)]
    ids = [f"v{v}" for v in range(9)] if named else None
    if ids is not None:
        src, dst = [ids[v] for v in src], [ids[v] for v in dst]
    graph = lg.Graph(np.ones((9, 2), np.float32), src, dst, time=[rng.randint(0, 50) for _ in range(15)], ids=ids)
    spec = ClusterSpec.of(graph, queries, seed=seed)
    world = World(seed, spec, graph, owners, rivals=rivals)
    undisturbed = LocalCluster(graph, queries, sampling=2, serving=1, seed=seed)
    serving = even_serving(rng.randint(1, 3), rng.randint(1, 2))
    world.coordinate().serve(serving)
    with UpdateLog(world.memory("history")).attach(graph):
        for _ in range(600):
            world.event(crashes=True)
            if rng.random() < 0.05:
                try:
                    graph.apply(random_batch(rng, graph))
                except UpdateError:
                    continue
            elif rng.random() < 0.01:
                serving = np.roll(even_serving(rng.randint(1, 3), rng.randint(1, 2)), rng.randrange(4))
                try:
                    world.coordinate(rng.randint(0, rivals)).serve(serving)
                except UsageError:  # a move is under way
                    continue
            elif rng.random() < 0.01:
                try:
                    world.coordinate(rng.randint(0, rivals)).move(
                        np.roll(even_owners(rng.randint(1, 3)), rng.randrange(4))
                    )
                except UsageError:
                    continue
    world.settle()
    assert world.crashes > 0
    undisturbed.move_serving(world.coordinate().serving)
    for number, worker in undisturbed.serving_workers.items():
        expected, got = held(worker.contents()), held(world.loops["serving", number].worker.contents())
        assert got[0] == expected[0], f"seed {seed}, serving worker {number}"
        assert {v: row.tobytes() for v, row in got[1].items()} == {v: row.tobytes() for v, row in expected[1].items()}
        assert world.loops["serving", number].worker.version == graph.version
    for part in (loop.worker for who, loop in world.loops.items() if who[0] == "sampling"):
        part.check_invariants()
    return world
