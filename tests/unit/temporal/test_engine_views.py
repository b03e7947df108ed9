"""Large answers of a TemporalEngine: read in pieces, between which batches go on, and of one version all the same."""

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import UsageError
from livegnn.temporal import engine as engine_file
from tests.unit.temporal.training import KINDS, VERTICES, engine_of, graph_of, mixed_batch, model_of

WARM, ROOTS = 200, 16  # roots of a piece here


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(engine_file, "_ROOTS_MAX", ROOTS)


def warm_engine(name="tgn", model=None):
    return engine_of(graph_of(WARM), model or model_of(name))


class Between:
    """Applies a batch from another thread each time that the model runs, which goes on once the batch is through."""

    def __init__(self, engine, times=100):
        self.engine, self.applied, self.times = engine, 0, times
        model = engine._pass.model
        embed = model.embed

        def slow(inputs):
            if self.applied < self.times and len(inputs[0].hops[0].targets) > 0:
                writer = threading.Thread(target=engine.graph.apply, args=(mixed_batch(WARM, self.applied),))
                writer.start()
                writer.join(20)
                assert not writer.is_alive(), "the batch waited for more than a piece"
                self.applied += 1
            return embed(inputs)

        object.__setattr__(model, "embed", slow)


ASKS = {
    "embeddings": lambda engine: engine.embeddings(np.arange(VERTICES), 10**6),
    "predict": lambda engine: engine.predict(np.arange(30), 30 + np.arange(30) % 20, 10**6),
    "next": lambda engine: engine.next(np.arange(12), 300 + np.arange(12) % 3, candidates=np.arange(30, 50), k=4),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_a_writer_waits_for_one_piece_and_the_answer_is_of_one_version(name, ask):
    quiet, busy = warm_engine(name), warm_engine(name)
    expected = ask(quiet)
    between = Between(busy)
    got = ask(busy)
    assert between.applied >= 3
    assert busy.version == between.applied
    for one, other in zip(np.atleast_1d(got), np.atleast_1d(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    assert busy._views == []
    between.times = 0
    for number in range(between.applied):
        quiet.graph.apply(mixed_batch(WARM, number))
    assert busy.state_digest() == quiet.state_digest()
    np.testing.assert_array_equal(busy.embeddings([1, 40], 10**6), quiet.embeddings([1, 40], 10**6))


def test_a_swap_in_the_middle_leaves_the_answer_with_the_model_it_began_with():
    quiet, busy = warm_engine(), warm_engine()
    expected = ASKS["embeddings"](quiet)
    between = Between(busy, times=2)
    other = model_of(heads=2)
    for parameter in other.parameters():
        parameter.data += 0.1
    embed, old = busy._pass.model.embed, busy._pass

    def swapping(inputs):
        if between.applied == 2 and busy._pass is old:
            busy.swap(other)
            busy.graph.apply(mixed_batch(WARM, 2))
        return embed(inputs)

    object.__setattr__(old.model, "embed", swapping)
    np.testing.assert_array_equal(ASKS["embeddings"](busy), expected)
    assert busy.version == 3


def test_small_answers_pin_nothing(monkeypatch):
    engine = warm_engine()
    monkeypatch.setattr(lg.TemporalSampler, "pin", lambda self: 1 / 0)
    engine.embeddings(np.arange(ROOTS), 10**6)
    engine.predict(np.arange(ROOTS // 2), np.arange(ROOTS // 2), 10**6)
    engine.next([1, 2], 10**6, candidates=[31, 32, 33], k=2)


def test_a_what_if_block_is_read_as_it_is():
    """Its thread holds the graph's lock anyway."""
    nn = pytest.importorskip("torch_geometric.nn")
    engine = warm_engine("tgat")
    exact = lg.Engine(lg.from_pyg(nn.GraphSAGE(KINDS, 4, num_layers=1)), engine.graph)
    supposed = lg.Updates()
    supposed.add_edges([1, 2], [31, 32], time=[10**5, 10**5])
    before = ASKS["embeddings"](engine)
    with exact.what_if(supposed):
        inside = ASKS["embeddings"](engine)
    assert not np.array_equal(inside[[1, 2]], before[[1, 2]])
    np.testing.assert_array_equal(ASKS["embeddings"](engine), before)


def test_an_engine_that_is_closed_in_the_middle_says_so():
    engine = warm_engine()
    model = engine._pass.model
    embed = model.embed
    object.__setattr__(model, "embed", lambda inputs: engine.close() or embed(inputs))
    with pytest.raises(UsageError, match="an open engine"):
        ASKS["embeddings"](engine)


def test_a_memory_that_is_read_by_embed_keeps_writers_waiting():
    """A model whose recall() is the interface's: right, and under the lock."""
    quiet, busy = warm_engine(), warm_engine()
    expected = ASKS["embeddings"](quiet)
    model, writers = busy._pass.model, []
    embed, recall = model.embed, model.recall

    def asking(inputs):
        writers.append(threading.Thread(target=busy.graph.apply, args=(mixed_batch(WARM, len(writers)),)))
        writers[-1].start()
        writers[-1].join(0.05)
        assert writers[-1].is_alive()
        object.__setattr__(model, "recall", recall)
        try:
            return embed(inputs)
        finally:
            object.__setattr__(model, "recall", lambda inputs: inputs)

    object.__setattr__(model, "recall", lambda inputs: inputs)
    object.__setattr__(model, "embed", asking)
    got = ASKS["embeddings"](busy)
    for writer in writers:
        writer.join()
    np.testing.assert_array_equal(got, expected)


def test_a_callback_is_answered_while_its_batch_is_under_way():
    """Its thread holds the graph's lock, and nothing changes: there is nothing to pin, and no place for it."""
    nn = pytest.importorskip("torch_geometric.nn")
    engine, quiet = warm_engine("tgat"), warm_engine("tgat")
    exact = lg.Engine(lg.from_pyg(nn.GraphSAGE(KINDS, 4, num_layers=1)), engine.graph)
    answers = []
    exact.on_change(lambda changes: answers.extend(ask(engine) for ask in ASKS.values()))
    engine.graph.apply(mixed_batch(WARM, 0))
    quiet.graph.apply(mixed_batch(WARM, 0))
    expected = [ask(quiet) for ask in ASKS.values()]
    assert len(answers) == len(expected)
    for got, wanted in zip(answers, expected, strict=True):
        for one, other in zip(np.atleast_1d(got), np.atleast_1d(wanted), strict=True):
            np.testing.assert_array_equal(one, other)
