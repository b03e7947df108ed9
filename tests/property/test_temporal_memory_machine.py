"""VertexMemory against a dictionary of vertices, under any order of events, growth, removals, saving and modes."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from livegnn.temporal.models import VertexMemory
from livegnn.temporal.models.layers import time_encoder

WIDTH, EDGE, TIME = 3, 2, 4


class Obvious:
    """One vertex at a time: rows, the time of the last event taken in, and one message (other end, time, features)."""

    def __init__(self, memory):
        self.memory, self.rows, self.last, self.waits, self.origin = memory, {}, {}, {}, None

    def first(self):
        zeros = torch.zeros(1, self.memory.gru.weight_ih.shape[1])
        return self.memory.gru(zeros, torch.zeros(1, WIDTH))[0]

    def stored(self, v):
        return self.rows.get(v, self.first())

    def taken(self, v):
        other, time, x = self.waits[v]
        age = torch.tensor([float(time - self.last[v])])
        message = torch.cat([self.stored(v), self.stored(other), x, self.memory.time_encoder(age)[0]])
        return self.memory.gru(message[None], self.stored(v)[None])[0]

    def read(self, v):
        return self.taken(v) if v in self.waits else self.stored(v)

    def settle(self, vertices):
        rows = {v: self.taken(v) for v in vertices if v in self.waits}
        for v, row in rows.items():
            self.rows[v] = row
            self.last[v] = max(self.last[v], self.waits.pop(v)[1])

    def observe(self, events, training):
        if events and self.origin is None:
            self.origin = min(event[2] for event in events)
        if not training and events:
            self.settle(list(self.waits))
        touched = dict.fromkeys(v for event in events for v in event[:2])
        self.settle(touched)
        for v in touched:
            own = [event for event in events if v in event[:2]]
            src, dst, time, x = max(reversed(own), key=lambda event: event[2])
            self.rows.setdefault(v, self.first())
            self.last.setdefault(v, self.origin)
            self.waits[v] = (dst if src == v else src, time, x)
        if not training:
            self.settle(touched)

    def forget(self, vertices):
        self.settle([v for v, (other, *_) in self.waits.items() if other in vertices])
        for v in vertices:
            for part in (self.rows, self.last, self.waits):
                part.pop(v, None)


class MemoryMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        torch.manual_seed(0)
        self.memory = VertexMemory(WIDTH, EDGE, time_encoder(TIME), TIME)
        self.memory.reset(2)
        self.obvious = Obvious(self.memory)

    @rule(data=st.data(), count=st.integers(0, 5))
    def observe(self, data, count):
        vertex, time = st.integers(0, self.memory.slot_count - 1), st.integers(0, 12)
        events = data.draw(st.lists(st.tuples(vertex, vertex, time), min_size=count, max_size=count))
        x = torch.from_numpy(np.random.default_rng(count).standard_normal((count, EDGE)).astype(np.float32))
        columns = torch.tensor(events, dtype=torch.int64).view(-1, 3).T
        self.memory.observe(*columns, x)
        with torch.no_grad():
            self.obvious.observe([(*event, x[i]) for i, event in enumerate(events)], self.memory.training)

    @rule(more=st.integers(1, 3))
    def grow(self, more):
        self.memory.grow(self.memory.slot_count + more)

    @rule(data=st.data())
    def forget(self, data):
        slots = data.draw(st.lists(st.integers(0, self.memory.slot_count - 1), max_size=3, unique=True))
        self.memory.forget(torch.tensor(slots, dtype=torch.int64))
        with torch.no_grad():
            self.obvious.forget(slots)

    @rule()
    def other_mode(self):
        self.memory.train(not self.memory.training)
        self.memory.read(torch.arange(1))  # the first call in evaluation takes in what waits
        if not self.memory.training:
            with torch.no_grad():
                self.obvious.settle(list(self.obvious.waits))

    @rule()
    def weights_move(self):
        with torch.no_grad():
            self.memory.gru.bias_hh.add_(0.05)

    @rule()
    def save_and_load(self):
        state = self.memory.state()
        self.memory.reset(0)
        self.memory.load_state(state)
        again = self.memory.state()
        assert all(torch.equal(again[key], state[key]) for key in state)

    @invariant()
    def rows_are_the_obvious_ones(self):
        everyone = torch.arange(self.memory.slot_count)
        with torch.no_grad():
            expected = torch.stack([self.obvious.read(v) for v in range(self.memory.slot_count)])
            got = self.memory.read(everyone)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        clock = [self.obvious.last.get(v, self.obvious.origin or 0) for v in range(self.memory.slot_count)]
        waits = [self.obvious.waits.get(v, (0, clock[v]))[1] for v in range(self.memory.slot_count)]
        assert self.memory.last_update(everyone).tolist() == [max(pair) for pair in zip(clock, waits, strict=True)]
        assert self.memory.state()["pending"].tolist() == [v in self.obvious.waits for v in everyone.tolist()]


TestMemory = MemoryMachine.TestCase
