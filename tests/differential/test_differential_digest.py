"""One history, one state: however it is cut into batches, whatever the threads, path, strategy or kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.testing import random_batch, random_graph, random_model
from tests.differential import instruction_sets


def copies(seed, count, size=40):
    """The same graph `count` times, one model, and one list of single updates that is legal for all."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, depth=int(rng.integers(1, 4)))
    weighted = model.uses_weights
    graphs = [random_graph(np.random.default_rng(seed), model.input_width, weighted)[0] for _ in range(count)]
    _, mirror = random_graph(np.random.default_rng(seed), model.input_width, weighted)
    return model, graphs, [random_batch(rng, mirror, 1) for _ in range(size)]


def joined(updates):
    batch = lg.Updates()
    for each in updates:
        batch.extend(each)
    return batch


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_batches_and_threads_do_not_matter(seed):
    cuts = [(1, 1), (1, 2), (7, 1), (7, 2), (40, 1), (40, 2)]
    model, graphs, updates = copies(seed, len(cuts))
    scales = lg.Engine(model, graphs[0]).scales
    graphs[0] = random_graph(np.random.default_rng(seed), model.input_width, model.uses_weights)[0]
    digests = set()
    for (size, threads), graph in zip(cuts, graphs, strict=True):
        engine = lg.Engine(model, graph, threads=threads, scales=scales)
        for start in range(0, len(updates), size):
            engine.apply(joined(updates[start : start + size]))
        engine.verify()
        digests.add(engine.state_digest())
    assert len(digests) == 1, f"seed {seed}"


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_several_engines_on_one_graph_agree(seed):
    model, graphs, updates = copies(seed, 1)
    settings_of = [
        {"path": "push"},
        {"path": "pull", "threads": 2},
        {"path": "sweep"},
        {"strategy": "affected"},
        {"strategy": "khop"},
        {"strategy": "full"},
    ]
    engines = [lg.Engine(model, graphs[0], **options) for options in settings_of]
    for start in range(0, len(updates), 5):
        changed = engines[0].apply(joined(updates[start : start + 5])).vertices
        live = graphs[0].vertices()
        rows = [engine.embeddings(live) for engine in engines]
        assert all(each.tobytes() == rows[0].tobytes() for each in rows), f"seed {seed}"
        assert set(changed) <= set(live)
    assert len({engine.state_digest() for engine in engines[:4]}) == 1


def test_opposite_updates_cancel_without_work():
    model, graphs, _ = copies(5, 1)
    engine = lg.Engine(model, graphs[0])
    before = engine.state_digest()
    updates = lg.Updates()
    u = int(graphs[0].vertices()[0])
    weight = 1.5 if model.uses_weights else None
    for _ in range(3):
        updates.add_edge(u, u, weight=weight)
        updates.remove_edge(u, u)
    changes = engine.apply(updates)
    assert len(changes) == 0
    assert sum(layer.affected for layer in changes.stats.layers) == 0
    assert engine.state_digest() == before


PROGRAM = """
import numpy as np, livegnn as lg
from livegnn.testing import random_batch, random_graph, random_model
out = []
for seed in range(12):
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights)
    engine = lg.Engine(model, graph)
    for _ in range(4):
        engine.apply(random_batch(rng, mirror, 6))
    out.append(engine.state_digest())
    out.append(engine.embeddings(graph.vertices()).tobytes().hex())
print("".join(out))
"""


@pytest.mark.parametrize("kernels", ["avx2", "avx512"])
def test_every_instruction_set_gives_the_same_bits(kernels):
    outputs = instruction_sets.outputs(PROGRAM, kernels)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 1000


def test_unknown_kernels_are_refused_not_replaced():
    run = instruction_sets.run(PROGRAM, "avx1024")
    assert run.returncode != 0
    assert "avx1024" in run.stderr
