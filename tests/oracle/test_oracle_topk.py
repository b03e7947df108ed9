"""The best vertices over workers are those of an engine in this process, bit for bit, and what a plain pass finds."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.deployment import topk
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.models import ir
from livegnn.testing import streams
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.oracle.hetero_oracle import TRIPLES, WIDTHS
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph

METRICS = ("dot", "cosine", "l2", "model")
PARTITIONS = ("hash", "ldg", "fennel")


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


def over_workers(model, graph, workers, rng):
    crew = ThreadCrew(workers, timeout_s=30)
    return lg.Cluster(model, graph, workers, crew=crew, partition=str(rng.choice(PARTITIONS)), snapshot_batches=3), crew


def outcome(live, asked):
    """What is answered, to the bit; or the error, to the word."""
    try:
        found = topk.best(live, **asked)
    except lg.errors.LiveGnnError as error:
        return type(error), str(error)
    return found.vertices.tolist(), found.scores.tobytes(), found.scores.dtype, found.version


def check_plain(engine, asked, head=None):
    """Against a float64 pass over all rows, in words of the docs."""
    found = topk.best(engine, **asked)
    kind = asked.get("candidate_type") or asked.get("vertex_type")
    graph, vertex = engine.graph, asked.get("vertex")
    of_own_type = kind == asked.get("vertex_type")
    out = set() if vertex is None or not of_own_type else {vertex}
    if not asked.get("linked", True) and vertex is not None:
        there = graph.out_neighbours(vertex, vertex_type=asked.get("vertex_type"))
        same = np.ones(len(there["dst"]), bool) if kind is None else there["dst_type"] == list(WIDTHS).index(kind)
        out |= set(there["dst"][same].tolist())
    ids = [v for v in graph.vertices(kind).tolist() if v not in out]
    assert len(found.vertices) == min(asked["k"], len(ids))
    if not ids:
        return
    rows = engine.embeddings(ids, vertex_type=kind).astype(np.float64)
    row = asked.get("row")
    if row is None:
        row = engine.embeddings([vertex], vertex_type=asked.get("vertex_type"))[0]
    row = row.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(row)
    plain = {
        "dot": lambda: rows @ row,
        "model": lambda: rows @ row if head is None else np.hstack([np.tile(row, (len(rows), 1)), rows]) @ head,
        "cosine": lambda: np.divide(rows @ row, lengths, out=np.zeros(len(rows)), where=lengths > 0),
        "l2": lambda: np.linalg.norm(rows - row, axis=1),
    }[asked["metric"]]()
    scale = 1e-4 * max(1.0, float(np.abs(rows).max() * np.abs(row).max()))
    by_id = dict(zip(ids, plain.tolist(), strict=True))
    np.testing.assert_allclose(found.scores, [by_id[v] for v in found.vertices.tolist()], atol=scale, rtol=1e-4)
    wanted = np.sort(plain if asked["metric"] == "l2" else -plain)[: len(found.scores)]
    np.testing.assert_allclose(np.abs(found.scores), np.abs(wanted), atol=scale, rtol=1e-4)
    slots = graph.to_slots(found.vertices, vertex_type=kind)
    keys = found.scores if asked["metric"] == "l2" else -found.scores
    assert np.array_equal(np.lexsort((slots, keys)), np.arange(len(slots))), "an order that ties do not have"


def questions(rng, ids, width, kinds=(None, None)):
    """One of each metric, for a vertex or a row."""
    of = {} if kinds[0] is None else {"vertex_type": kinds[0], "candidate_type": kinds[1]}
    for metric in METRICS:
        k = int(rng.choice([1, 2, 5, 100]))
        if len(ids):
            yield {"vertex": int(rng.choice(ids)), "k": k, "metric": metric, "linked": bool(rng.integers(2)), **of}
        row = rng.standard_normal(width).astype(np.float32) * int(rng.integers(2))  # of zeros all are equal
        yield {"row": row, "k": k, "metric": metric, **of}


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.booleans())
def test_that_workers_find_what_an_engine_finds(seed, workers, headed):
    rng = np.random.default_rng(seed)
    weighted = bool(rng.integers(2))
    model = random_model(rng, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=None)
    width, head = model.output_width, None
    if headed:
        head = rng.standard_normal((1, 2 * width)).astype(np.float32)
        model = lg.Model.from_output(model.output, edge_head=ir.Linear(ir.Input(2 * width), head))
    graph, mirror = streams.random_graph(rng, model.input_width, weighted, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1)
    cluster, crew = over_workers(model, graph, workers, rng)
    for number in range(5):
        updates = streams.random_batch(rng, mirror, int(rng.integers(1, 12)))
        engine.apply(updates)
        cluster.apply(updates)
        if number == 1:
            crew.kill(int(rng.integers(workers)))
        if number == 3:
            cluster.repartition("hash", int(rng.integers(1, 6)))
        for asked in questions(rng, engine.graph.vertices(), width):
            assert outcome(cluster, asked) == outcome(engine, asked), asked
            if not (asked["metric"] == "model" and "row" in asked):
                check_plain(engine, asked, None if head is None else head[0].astype(np.float64))
    cluster.close()


@pytest.mark.parametrize("seed", range(4))
def test_that_workers_find_what_an_engine_finds_over_types(seed):
    from torch_geometric import nn as pyg

    module = liven(TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6)))
    rng, model = np.random.default_rng(seed), lg.from_pyg(module)
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    engine = lg.Engine(model, graph, threads=1)
    cluster, _ = over_workers(model, graph, 1 + seed, rng)
    answered = 0
    for _ in range(5):
        updates = random_typed_batch(rng, mirror, int(rng.integers(1, 25)))
        engine.apply(updates)
        cluster.apply(updates)
        for first in WIDTHS:
            for second in WIDTHS:
                for asked in questions(rng, mirror.ids(first), model.output_widths[second], (first, second)):
                    want = outcome(engine, asked)
                    assert outcome(cluster, asked) == want, asked
                    if isinstance(want[0], list):
                        check_plain(engine, asked)
                        answered += 1
                    else:  # widths of the types differ, or a row has no score by the model
                        assert want[0] in (lg.errors.WidthMismatch, lg.errors.UsageError), want
    assert answered > 100
    cluster.close()
