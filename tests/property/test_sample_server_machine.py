"""A sample server against its source: whatever stands in the queue when the thread comes to it, every answer is the one
that its request would have got alone, of a version it asked for, and nobody is left without one."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import livegnn as lg
from livegnn.errors import Overloaded, VertexUnknown
from tests.unit.sampling.serving import VERTICES, Gated, assert_same_sample, one_edge, small_sampler

QUEUE_MAX = 8
seeds = st.lists(st.integers(0, VERTICES + 1), min_size=1, max_size=4)  # one of them is no vertex


def first_and_sums(features, masks):
    return np.concatenate([features[0], (features[1] * masks[1][..., None]).sum(axis=1)], axis=1)


class SampleServerMachine(RuleBasedStateMachine):
    """Requests gather behind a gate, which opens for a moment; updates come in between."""

    def __init__(self):
        super().__init__()
        self.sampler = small_sampler()
        self.source = Gated(self.sampler)
        self.waiting: list[tuple[str, list[int], Future]] = []
        self.later: list[tuple[int, list[int], Future]] = []
        self.threads = ThreadPoolExecutor(2 * QUEUE_MAX)

    @initialize(batch_max=st.sampled_from([1, 3, 256]))
    def start(self, batch_max):
        self.server = lg.SampleServer(self.source, first_and_sums, batch_max=batch_max, queue_max=QUEUE_MAX)
        self.stop_the_thread()

    def stop_the_thread(self):
        self.source.gate.clear()
        self.source.entered.clear()
        self.first = self.threads.submit(self.server.sample, [0])
        assert self.source.entered.wait(30)

    def queued(self, count):
        until = time.monotonic() + 30
        while self.server.stats.waiting < count:
            assert time.monotonic() < until
            time.sleep(0.0005)

    @precondition(lambda self: len(self.waiting) + len(self.later) < QUEUE_MAX)
    @rule(kind=st.sampled_from(["sample", "predict"]), seeds=seeds)
    def ask(self, kind, seeds):
        self.waiting.append((kind, seeds, self.threads.submit(getattr(self.server, kind), seeds)))
        self.queued(len(self.waiting) + len(self.later))

    @precondition(lambda self: len(self.waiting) + len(self.later) < QUEUE_MAX)
    @precondition(lambda self: len(self.later) < QUEUE_MAX - 1)  # these stay; the next request has to find a place
    @rule(seed=st.integers(0, VERTICES - 1))
    def ask_for_the_next_version(self, seed):
        version = self.sampler.version + 1
        self.later.append((version, [seed], self.threads.submit(self.server.sample, [seed], at_least=version)))
        self.queued(len(self.waiting) + len(self.later))

    @precondition(lambda self: len(self.waiting) + len(self.later) == QUEUE_MAX)
    @rule()
    def ask_too_much(self):
        with pytest.raises(Overloaded):
            self.server.sample([0])

    @rule(u=st.integers(0, VERTICES - 1), v=st.integers(0, VERTICES - 1))
    def update(self, u, v):
        self.sampler.apply(one_edge(u, v))

    @rule()
    def answer(self):
        self.source.gate.set()
        self.first.result(30)
        for kind, seeds, future in self.waiting:
            self.check(kind, seeds, future)
        self.waiting.clear()
        for version, seeds, future in [one for one in self.later if one[0] <= self.sampler.version]:
            self.check("sample", seeds, future)
            assert future.result().version >= version
        self.later = [one for one in self.later if one[0] > self.sampler.version]
        self.stop_the_thread()

    def check(self, kind, seeds, future):
        if max(seeds) >= VERTICES:
            with pytest.raises(VertexUnknown, match=f"at row {[seed >= VERTICES for seed in seeds].index(True)};"):
                future.result(30)
            return
        expected = self.sampler.sample(seeds)
        if kind == "sample":
            assert_same_sample(future.result(30), expected)
        else:
            features, masks = ([part(k) for k in range(3)] for part in (expected.features, expected.mask))
            np.testing.assert_array_equal(future.result(30).values, first_and_sums(features, masks))
            assert future.result().version == expected.version

    @invariant()
    def nothing_for_the_future_is_answered(self):
        assert not [version for version, _, future in self.later if future.done() and version > self.sampler.version]

    def teardown(self):
        self.source.gate.set()
        self.server.close()
        for _, _, future in self.later + self.waiting:
            future.exception(30)  # an answer or an error, but not silence
        self.threads.shutdown()


TestSampleServer = SampleServerMachine.TestCase
TestSampleServer.settings = settings(max_examples=25, stateful_step_count=25)
