"""PartitionedMemory: rows with their owners become what VertexMemory makes of the same events in one process."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from livegnn.distributed import run_threads
from livegnn.distributed.memory import PartitionedMemory
from livegnn.distributed.trainer import run_of
from livegnn.errors import ModelUnsupported
from livegnn.temporal.events import Events
from livegnn.temporal.models import TGAT, TGN
from livegnn.temporal.models.inputs import TemporalInput

VERTICES, ATTRS = 13, 3


torch.manual_seed(4)
MODEL = TGN(edge_width=ATTRS, embed_width=8, memory_width=6, time_width=4, dropout=0.0)


def model():
    """The same weights every time; threads share torch's random numbers, so they draw none."""
    return copy.deepcopy(MODEL)


def batches(seed=0, count=6, size=17):
    """Batches of events in order of time, self-loops and repeated pairs among them, with their features."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        src, dst = rng.integers(0, VERTICES, (2, size))
        time = np.sort(rng.integers(100 * number, 100 * number + 9, size)) + 50
        features = rng.normal(size=(size, ATTRS)).astype(np.float32)
        found.append((Events(src, dst, time, np.arange(size) + number * size, 0 * src), torch.from_numpy(features)))
    return found


def reading(slots):
    """An input of which the memory reads these rows."""
    rows = torch.from_numpy(slots)
    return TemporalInput((), rows, torch.zeros_like(rows), torch.zeros(len(rows), 0))


def alone(modes):
    """State and rows read after each batch, in one process."""
    one = model()
    memory = one.memory
    memory.reset(VERTICES)
    seen = []
    for (events, features), training in zip(batches(), modes, strict=True):
        one.train(training)
        memory.observe(*(torch.from_numpy(column) for column in events.columns()[:3]), features)
        read = memory.read(torch.arange(VERTICES)).detach()
        seen.append((memory.state(), read))
    return seen


def by_turns(workers):
    """Not all workers keep the same number of rows, nor in an order of their own."""
    return lambda slots: (slots * slots // 2) % workers


def together(workers, modes):
    def work(exchange):
        one = model()
        memory = PartitionedMemory(one, exchange, by_turns(exchange.size))
        memory.reset(VERTICES)
        seen = []
        for (events, features), training in zip(batches(), modes, strict=True):
            one.train(training)
            mine = run_of(0, len(events), exchange.rank, exchange.size)
            memory.observe(events.at(mine), np.arange(mine.start, mine.stop), features[mine])
            (part,) = memory.bring([reading(np.arange(VERTICES))])
            read = one.memory.read(part.rows).detach()
            seen.append((memory.state(), read))
        return seen

    return run_threads(work, workers)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("modes", [[True] * 6, [False] * 6, [True, True, False, False, True, False]])
def test_equal_to_one_process(workers, modes):
    for seen in together(workers, modes):
        for (state, read), (expected, expected_read) in zip(seen, alone(modes), strict=True):
            torch.testing.assert_close(read, expected_read, atol=1e-6, rtol=1e-5)
            known = expected["known"]
            for name in ("known", "pending", "last", "origin"):
                assert torch.equal(state[name], expected[name]), name
            for name in ("other", "time"):
                assert torch.equal(state[name][known], expected[name][known]), name
            for name in ("rows", "raw"):
                torch.testing.assert_close(state[name], expected[name], atol=1e-6, rtol=1e-5)


def test_gradients_of_what_waits_reach_the_weights():
    (events, features), *_ = batches()
    one = model()
    one.memory.reset(VERTICES)
    one.memory.observe(*(torch.from_numpy(column) for column in events.columns()[:3]), features)
    one.memory.read(torch.arange(VERTICES)).sum().backward()

    def work(exchange):
        mine_model = model()
        memory = PartitionedMemory(mine_model, exchange, by_turns(exchange.size))
        memory.reset(VERTICES)
        mine = run_of(0, len(events), exchange.rank, exchange.size)
        memory.observe(events.at(mine), np.arange(mine.start, mine.stop), features[mine])
        (part,) = memory.bring([reading(np.arange(VERTICES))])
        mine_model.memory.read(part.rows).sum().backward()
        return mine_model.memory.gru.weight_ih.grad

    for gradient in run_threads(work, 2):
        torch.testing.assert_close(gradient, one.memory.gru.weight_ih.grad, atol=1e-5, rtol=1e-4)


def test_growing_forgetting_and_loading():
    one = model()
    one.memory.reset(VERTICES)
    (first, features), (second, more), *_ = batches()
    one.memory.observe(*(torch.from_numpy(column) for column in first.columns()[:3]), features)
    one.memory.forget(torch.tensor([1, 4]))
    one.memory.grow(VERTICES + 4)
    moved = replace(second, src=second.src + 4)
    one.memory.observe(*(torch.from_numpy(column) for column in moved.columns()[:3]), more)

    def work(exchange):
        memory = PartitionedMemory(model(), exchange, by_turns(exchange.size))
        memory.reset(VERTICES)
        whole = slice(0, len(first)) if exchange.rank == 0 else slice(0, 0)  # one gives all, the other nothing
        memory.observe(first.at(whole), np.arange(len(first))[whole], features[whole])
        memory.forget(np.array([1, 4]))
        saved = memory.state()
        memory.reset(VERTICES)
        assert not memory.state()["known"].any()
        memory.load_state(saved)
        memory.grow(VERTICES + 4)
        memory.observe(moved.at(whole), np.arange(len(first))[whole], more[whole])
        return memory.state()

    expected = one.memory.state()
    for state in run_threads(work, 2):
        for name in ("known", "pending", "last"):
            assert torch.equal(state[name], expected[name]), name
        torch.testing.assert_close(state["rows"], expected["rows"], atol=1e-6, rtol=1e-5)


def test_refuses_models_without_such_a_memory():
    with pytest.raises(ModelUnsupported, match="VertexMemory"):
        run_threads(lambda exchange: PartitionedMemory(TGAT(x_width=2, edge_width=0), exchange, by_turns(1)), 1)
