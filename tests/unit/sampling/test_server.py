"""SampleServer: many callers, one call of the source and one of the model, each answer the caller's own."""

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import (
    DataMissing,
    DtypeInvalid,
    ModelError,
    ModelMismatch,
    ModelUnsupported,
    Overloaded,
    UsageError,
    ValueInvalid,
    VersionPending,
    VertexUnknown,
)
from tests.unit.sampling.serving import VERTICES, WIDTH, Gated, assert_same_sample, one_edge, small_sampler, waiting


def neighbour_sums(features, masks):
    """A model that a reader can check: the sum of the first level."""
    return features[1].sum(axis=1)


@pytest.fixture
def sampler():
    return small_sampler()


# ---- answers


def test_a_sample_is_the_samplers_own(sampler):
    with lg.SampleServer(sampler) as server:
        assert_same_sample(server.sample([3, 5, 3]), sampler.sample([3, 5, 3]))
        assert server.stats.seeds == 3
        with pytest.raises(UsageError, match="take it with features=True"):
            server.sample([1], features=False).features(0)
        with pytest.raises(UsageError, match="take it with edge_ids=True"):
            server.sample([1], edge_ids=False).edge_ids(1)


def test_a_prediction_is_the_model_on_the_sample(sampler):
    with lg.SampleServer(sampler, neighbour_sums) as server:
        seeds = np.arange(VERTICES)
        sample = sampler.sample(seeds)
        found = server.predict(seeds)
        np.testing.assert_array_equal(found.values, sample.features(1).sum(axis=1))
        assert found.values.dtype == np.float32
        assert found.version == 0
        server.apply(one_edge())
        assert server.predict([5]).version == 1
        np.testing.assert_array_equal(server.predict([5]).values, sampler.graph.features([9]))


def test_requests_that_wait_share_one_call(sampler):
    source = Gated(sampler)
    shapes = []

    def model(features, masks):
        shapes.append(features[0].shape)
        return features[0][:, :2]

    with lg.SampleServer(source, model) as server, ThreadPoolExecutor(12) as threads:
        first = source.stopped_by(server)
        asked = [threads.submit(server.predict, [seed, seed + 1]) for seed in range(6)]
        asked += [threads.submit(server.sample, [seed]) for seed in range(6)]
        waiting(server, 12)
        source.gate.set()
        for seed in range(6):
            np.testing.assert_array_equal(asked[seed].result().values, sampler.graph.features([seed, seed + 1])[:, :2])
            assert_same_sample(asked[6 + seed].result(), sampler.sample([seed]))
        first.join()
    assert source.calls == [1, 18]
    assert shapes == [(2, WIDTH), (12, WIDTH)]  # the trial, then all predictions at once


def test_batch_max_cuts_batches_and_larger_requests_go_alone(sampler):
    source = Gated(sampler)
    with lg.SampleServer(source, batch_max=4) as server, ThreadPoolExecutor(8) as threads:
        first = source.stopped_by(server)
        asked = []
        for place, seeds in enumerate(([1, 2], [3], [4, 5, 6], list(range(9)), [7])):
            asked.append(threads.submit(server.sample, seeds))
            waiting(server, place + 1)  # in this order
        source.gate.set()
        assert [len(one.result()) for one in asked] == [2, 1, 3, 9, 1]
        first.join()
    assert source.calls == [1, 3, 3, 9, 1]


def test_wait_us_waits_for_company(sampler):
    source = Gated(sampler)
    source.gate.set()
    with lg.SampleServer(source, wait_us=1e6, batch_max=2) as server, ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(server.sample, [seed]) for seed in (1, 2)]
        assert [one.result(timeout=60).seeds[0] for one in asked] == [1, 2]
    assert source.calls == [2]  # the first waited for the second


def test_wait_us_ends_without_company(sampler):
    source = Gated(sampler)
    source.gate.set()
    with lg.SampleServer(source, wait_us=2e5, batch_max=2) as server:
        start = time.monotonic()
        server.sample([3])
        assert time.monotonic() - start > 0.15
    assert source.calls == [1]


def test_a_bad_request_fails_alone(sampler):
    source = Gated(sampler)
    with lg.SampleServer(source) as server, ThreadPoolExecutor(4) as threads:
        first = source.stopped_by(server)
        good = threads.submit(server.sample, [1, 2])
        bad = threads.submit(server.sample, [1, 999])
        named = threads.submit(server.sample, ["one"])
        negative = threads.submit(server.sample, np.array([-4]))
        waiting(server, 4)
        source.gate.set()
        assert_same_sample(good.result(), sampler.sample([1, 2]))
        with pytest.raises(VertexUnknown, match="999 at row 1"):
            bad.result()
        with pytest.raises(DtypeInvalid):
            named.result()
        with pytest.raises(ValueInvalid, match="-4 at row 0"):
            negative.result()
        first.join()


def test_a_kept_sample_does_not_keep_the_batch(sampler):
    source = Gated(sampler)
    with lg.SampleServer(source) as server, ThreadPoolExecutor(2) as threads:
        first = source.stopped_by(server)
        asked = [threads.submit(server.sample, seeds) for seeds in (list(range(50)), [1])]
        waiting(server, 2)
        source.gate.set()
        small = asked[1].result()
        assert small.features(2).base is None
        first.join()


def test_several_queries(sampler):
    other = sampler.add(lg.query().in_().sample(2))
    with pytest.raises(UsageError, match=r"number of a running query \(1, 2\)"):
        lg.SampleServer(sampler)
    with lg.SampleServer(sampler, query=1) as server:
        assert server.sample([1]).hops == 2
        assert server.sample([1], query=other).hops == 1
        with pytest.raises(UsageError, match="number of a running query"):
            server.sample([1], query=9)
        sampler.drop(other)
        with pytest.raises(UsageError, match="number of a running query"):
            server.sample([1], query=other)


def test_graphs_with_string_ids():
    graph = lg.Graph(np.eye(3, dtype=np.float32), ["a", "a"], ["b", "c"], ids=["a", "b", "c"])
    with lg.SampleServer(lg.PreSampler(graph, lg.query().out().sample(2)), neighbour_sums) as server:
        assert sorted(server.sample(["a"]).hop(1)[0]) == ["b", "c"]
        np.testing.assert_array_equal(server.predict(["b", "a"]).values, [[0, 0, 0], [0, 1, 1]])
        with pytest.raises(VertexUnknown):
            server.sample(["nobody"])


def test_many_threads_get_their_own_rows(sampler):
    rng = np.random.default_rng(0)
    expected = sampler.sample(np.arange(VERTICES)).features(1).sum(axis=1)
    wrong = []

    def client(seeds):
        for seed in seeds:
            if not np.array_equal(server.predict([seed]).values[0], expected[seed]):
                wrong.append(seed)

    with lg.SampleServer(sampler, neighbour_sums, batch_max=8) as server:
        threads = [threading.Thread(target=client, args=(rng.integers(0, VERTICES, 50),)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.stats.requests == 16 * 50
    assert not wrong


def test_coroutines_share_calls_too(sampler):
    source = Gated(sampler)

    async def ask():
        asked = [asyncio.ensure_future(server.predict_async([seed])) for seed in range(20)]
        asked.append(asyncio.ensure_future(server.sample_async([1, 2])))
        asked.append(asyncio.ensure_future(server.sample_async([777])))
        given_up = asyncio.ensure_future(server.sample_async([3]))
        await asyncio.sleep(0)
        given_up.cancel()
        source.gate.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    with lg.SampleServer(source, neighbour_sums) as server:
        first = source.stopped_by(server)
        *predictions, sample, unknown = asyncio.run(ask())
        first.join()
    expected = sampler.sample(np.arange(20)).features(1).sum(axis=1)
    np.testing.assert_array_equal(np.concatenate([one.values for one in predictions]), expected)
    assert_same_sample(sample, sampler.sample([1, 2]))
    assert isinstance(unknown, VertexUnknown)


# ---- versions, time, load


def test_at_least_waits_without_delaying_others(sampler):
    with lg.SampleServer(sampler) as server, ThreadPoolExecutor(1) as threads:
        later = threads.submit(server.sample, [5], at_least=1)
        waiting(server, 1)
        assert server.sample([5]).version == 0
        assert not later.done()
        sampler.apply(one_edge())
        assert later.result(30).version == 1
        assert later.result().hop(1)[0, 0] == 9
        assert server.sample([5], at_least=1, timeout=1).version == 1


def test_at_least_gives_up_in_time(sampler):
    with lg.SampleServer(sampler) as server:
        start = time.monotonic()
        with pytest.raises(VersionPending, match=r"\[sample\] expected version 3 or later within 0.05") as caught:
            server.sample([1], at_least=3, timeout=0.05)
        assert 0.05 <= time.monotonic() - start < 5
        assert caught.value.retryable


def test_a_full_queue_refuses(sampler):
    source = Gated(sampler)
    with lg.SampleServer(source, queue_max=2) as server, ThreadPoolExecutor(2) as threads:
        first = source.stopped_by(server)
        asked = [threads.submit(server.sample, [seed]) for seed in (1, 2)]
        waiting(server, 2)
        with pytest.raises(Overloaded, match="fewer than 2 requests waiting") as caught:
            server.sample([3])
        assert caught.value.retryable
        assert server.stats.overloaded == 1
        source.gate.set()
        assert [one.result().seeds[0] for one in asked] == [1, 2]
        first.join()
        assert server.sample([3]).seeds[0] == 3


def test_a_request_that_waited_too_long_is_not_served(sampler):
    source = Gated(sampler)
    with lg.SampleServer(source) as server, ThreadPoolExecutor(1) as threads:
        first = source.stopped_by(server)
        late = threads.submit(server.sample, [1], timeout=0.02)
        waiting(server, 1)
        time.sleep(0.03)
        source.gate.set()
        with pytest.raises(Overloaded, match=r"within 0\.02 s"):
            late.result()
        first.join()
        assert source.calls == [1]


def test_closing_answers_what_waits(sampler):
    source = Gated(sampler)
    server = lg.SampleServer(source)
    first = source.stopped_by(server)
    with ThreadPoolExecutor(3) as threads:
        queued = threads.submit(server.sample, [1])
        never = threads.submit(server.sample, [1], at_least=99, timeout=None)
        waiting(server, 2)
        closing = threads.submit(server.close)
        while server.is_open:
            time.sleep(0.001)
        source.gate.set()
        closing.result(30)
        assert queued.result(30).seeds[0] == 1
        with pytest.raises(UsageError, match="closed"):
            never.result(30)
    first.join()
    with pytest.raises(UsageError, match=r"\[predict\] expected a server with a model"):
        server.predict([1])
    with pytest.raises(UsageError, match=r"\[sample\] expected an open sample server"):
        server.sample([1])
    server.close()


def test_samples_of_whole_versions_while_updates_come(sampler):
    """Each new edge 5 -> v comes with features of v that say its version; a sample never mixes two."""
    stop = threading.Event()

    def write():
        while not stop.is_set():
            updates = one_edge(5, 9)
            updates.set_features(9, np.full(WIDTH, sampler.version + 1, np.float32))
            sampler.apply(updates)

    with lg.SampleServer(sampler) as server:
        writer = threading.Thread(target=write)
        writer.start()
        for version in range(1, 100):
            sample = server.sample([5, 9], at_least=version)
            assert sample.version >= version
            assert set(sample.features(0)[1]) == {sample.version}
            assert sample.features(1)[0, 0, 0] == sample.version
        stop.set()
        writer.join()


# ---- mistakes


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"batch_max": 0}, ValueInvalid, "batch_max of at least 1"),
        ({"batch_max": 2.5}, ValueInvalid, "batch_max of at least 1"),
        ({"queue_max": True}, ValueInvalid, "queue_max of at least 1"),
        ({"wait_us": -1}, ValueInvalid, "wait_us from 0"),
        ({"wait_us": float("nan")}, ValueInvalid, "wait_us from 0"),
        ({"query": 4}, UsageError, "number of a running query"),
        ({"model": neighbour_sums, "inputs": "graph"}, ValueInvalid, "inputs from tree, pyg, data"),
        ({"model": neighbour_sums, "merge": True}, UsageError, 'merge=True with inputs="pyg"'),
        ({"model": neighbour_sums, "head": 3}, UsageError, "head as a callable"),
        ({"model": 3}, ModelUnsupported, "got int"),
        ({"model": "nowhere.onnx"}, UsageError, "which is no file"),
    ],
)
def test_wrong_options(sampler, options, error, words):
    options = dict(options)
    before = threading.active_count()
    with pytest.raises(error, match=words):
        lg.SampleServer(sampler, options.pop("model", None), **options)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"seeds": []}, ValueInvalid),
        ({"seeds": [1.5]}, DtypeInvalid),
        ({"seeds": [-1]}, ValueInvalid),
        ({"seeds": [1], "timeout": 0}, ValueInvalid),
        ({"seeds": [1], "timeout": float("inf")}, ValueInvalid),
        ({"seeds": [1], "timeout": "soon"}, ValueInvalid),
        ({"seeds": [1], "timeout": 1e30}, ValueInvalid),
        ({"seeds": [1], "at_least": -1}, ValueInvalid),
        ({"seeds": [1], "at_least": 1.0}, DtypeInvalid),
        ({"seeds": [1], "at_least": True}, DtypeInvalid),
        ({"seeds": [1], "query": True}, UsageError),
        ({"seeds": [1], "features": "no"}, DtypeInvalid),
        ({"seeds": [1], "edge_ids": 1}, DtypeInvalid),
        ({"seeds": [1], "edge_data": None}, DtypeInvalid),
    ],
)
def test_wrong_requests(sampler, options, error):
    with lg.SampleServer(sampler) as server:
        with pytest.raises(error, match=r"^\[sample"):
            server.sample(**options)
        assert server.sample([1]).version == 0


def test_a_source_has_to_be_one(sampler):
    with pytest.raises(UsageError, match="another SampleSource, got Graph"):
        lg.SampleServer(sampler.graph)
    with lg.SampleServer(Gated(sampler)) as server, pytest.raises(UsageError, match="takes updates, got Gated"):
        server.apply(one_edge())


def test_a_model_that_does_not_fit_is_refused_at_once(sampler):
    with pytest.raises(ModelMismatch, match=r"gives \(2, d\) numbers for 2 seeds, got float32 of shape \(1, 4\)"):
        lg.SampleServer(sampler, lambda features, masks: features[0][:1])
    with pytest.raises(ModelMismatch, match="row for each seed"):
        lg.SampleServer(sampler, lambda features, masks: features[1])
    with pytest.raises(ModelError, match="IndexError") as caught:
        lg.SampleServer(sampler, lambda features, masks: features[7])
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_model_that_fails_on_one_request_answers_the_others(sampler):
    def model(features, masks):
        if (features[0] == sampler.graph.features([7])).all(axis=1).any():
            raise ArithmeticError("not this one")
        return features[0]

    source = Gated(sampler)
    with lg.SampleServer(source, model) as server, ThreadPoolExecutor(2) as threads:
        first = source.stopped_by(server)
        good, bad = threads.submit(server.predict, [1]), threads.submit(server.predict, [7])
        waiting(server, 2)
        source.gate.set()
        np.testing.assert_array_equal(good.result().values, sampler.graph.features([1]))
        with pytest.raises(ModelError, match="ArithmeticError: not this one"):
            bad.result()
        first.join()


def test_a_missing_extra_is_named(sampler, monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    with pytest.raises(DataMissing, match=r"livegnn\[onnx\]"):
        lg.SampleServer(sampler, path)


def test_a_source_that_cannot_say_its_version_is_told_to_those_who_wait(sampler):
    class Lost(Gated):
        lost = False

        @property
        def version(self):
            if self.lost:
                raise ConnectionError("the source is away")
            return self.sampler.version

    source = Lost(sampler)
    source.gate.set()
    with lg.SampleServer(source) as server:
        source.lost = True
        with pytest.raises(ConnectionError, match="away"):
            server.sample([0], at_least=1)
        assert server.sample([0]).version == 0  # which asks for no version
        source.lost = False
        assert server.sample([0]).hop(0).tolist() == [0]  # and the server goes on


def test_requests_are_queued_while_a_source_takes_its_time_to_say_its_version(sampler):
    class Slow(Gated):
        asked, say = threading.Event(), threading.Event()

        @property
        def version(self):
            self.asked.set()
            assert self.say.wait(30)
            return self.sampler.version

    source = Slow(sampler)
    source.gate.set()
    with lg.SampleServer(source, queue_max=1) as server, ThreadPoolExecutor(1) as threads:
        first = threads.submit(server.sample, [0], at_least=0)
        assert source.asked.wait(30)
        with pytest.raises(Overloaded):
            server.sample([0])
        source.say.set()
        assert first.result().version == 0


def test_a_server_that_nobody_closed_does_not_hold_up_the_end() -> None:
    program = (
        "import numpy as np, livegnn as lg\n"
        "graph = lg.Graph(np.eye(3, dtype=np.float32), [0], [1])\n"
        "server = lg.SampleServer(lg.PreSampler(graph, lg.query().out().sample(2)))\n"
        "print(server.sample([0]).hop(1).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[1, -1]]\n", "")
