"""Streams by a deadline: sizes, ages, refusals, interruption, sources; the clock is simulated."""

import signal
import threading
from datetime import timedelta

import numpy as np
import pytest

import livegnn as lg
from benchmarks.engine.rates import SizeCost, cost_curve, largest_rate, rate_within
from livegnn.inference.stream import CostModel, Stream
from tests.unit.inference.samples import WIDTH, N, array, engine, graph, model, row, updates


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def timed(clock, cost):
    """An engine whose batches take cost(size) seconds of a simulated clock."""
    e = engine()
    apply = e.apply

    def slowly(batch):
        changes = apply(batch)
        clock.now += cost(len(batch))
        return changes

    e.apply = slowly
    return e


class Arrivals:
    """A live source: updates that arrive at their times, whether anybody takes them or not."""

    def __init__(self, clock, times, item=("add_edge", 0, 3)):
        self.clock, self.waiting = clock, [(item, at) for at in times]

    def wait(self, count):
        if self.waiting:
            self.clock.now = max(self.clock.now, self.waiting[0][1])

    def take(self, count):
        ready = sum(at <= self.clock.now for _, at in self.waiting)
        taken, self.waiting = self.waiting[: min(count, ready)], self.waiting[min(count, ready) :]
        return taken

    def close(self):
        return []


def edges(count):
    return [("add_edge", k % N, (k + 1) % N) for k in range(count)]


# ---- sizes


def linear(n):
    return 0.004 + 0.0001 * n


def test_sizes_settle_at_half_of_the_latency():
    clock = Clock()
    e = timed(clock, linear)
    batches = list(e.stream(edges(3000), "50ms", clock=clock))
    sizes = [batch.size for batch in batches]
    assert sizes[:4] == [1, 2, 4, 8]
    assert all(205 <= size <= 210 for size in sizes[12:-1])
    assert sum(sizes) == batches[-1].position == e.graph.edge_count - 6 == 3000
    assert not any(batch.late for batch in batches)
    assert [batch.seconds for batch in batches] == pytest.approx([linear(n) for n in sizes])
    e.verify()


def test_ages_of_a_live_source_stay_under_the_latency():
    clock = Clock()
    e = timed(clock, linear)
    times = 100 + np.concatenate([np.linspace(0, 1, 50), np.linspace(1, 2, 5000), np.linspace(2, 3, 50)])
    batches = list(Stream(e, None, "50ms", clock=clock, feed=Arrivals(clock, times)))
    assert sum(batch.size for batch in batches) == 5100
    assert batches[0].size == batches[-1].size == 1
    assert max(batch.size for batch in batches) > 40
    assert max(batch.age_seconds for batch in batches) <= 0.05
    for batch in batches:
        assert batch.age_seconds == pytest.approx(batch.queue_seconds + batch.seconds)
        assert 1 <= batch.size <= batch.size_max
    assert any(batch.queue_seconds > 0.004 for batch in batches)


def test_a_cost_that_grows_shrinks_batches_and_back(caplog):
    clock, factor = Clock(), [1.0]
    e = timed(clock, lambda n: factor[0] * linear(n))
    stream = e.stream(edges(20_000), 0.05, clock=clock)
    before = [next(stream).size for _ in range(20)][-1]
    factor[0] = 4.0
    slow = [next(stream) for _ in range(40)]
    assert slow[0].late
    assert stream.late_count >= 1
    assert caplog.text.count("latency of 0.05 s not held") == 1
    assert slow[-1].size < before / 3
    assert not any(batch.late for batch in slow[10:])
    factor[0] = 1.0
    assert before * 0.8 < [next(stream).size for _ in range(60)][-1] <= before * 1.1


def test_one_slow_batch_does_not_spoil_the_fit():
    steady, shaken = CostModel(), CostModel()
    for k in range(31):
        n = 50 + 10 * (k % 5)
        steady.observe(n, linear(n))
        shaken.observe(n, linear(n) * (1000 if k == 30 else 1))
    assert steady.predict(100) == pytest.approx(linear(100))
    assert 99 <= steady.size_for(0.02) <= 100  # twice the last one at most
    assert shaken.predict(100) < 4 * linear(100)
    assert shaken.size_for(0.02) >= 20
    for k in range(31, 60):
        n = 50 + 10 * (k % 5)
        shaken.observe(n, linear(n))
    assert shaken.predict(100) == pytest.approx(linear(100), rel=0.2)


def test_where_no_size_is_in_time_batches_are_late_and_waste_little():
    clock = Clock()
    e = timed(clock, lambda n: 0.1 + 0.001 * n)
    batches = list(e.stream(edges(3000), "50ms", clock=clock))
    assert all(batch.late for batch in batches)
    assert 60 <= batches[-2].size <= 120
    clock = Clock()
    e = timed(clock, lambda n: 0.1 * n)
    assert {batch.size for batch in e.stream(edges(40), "50ms", clock=clock)} == {1, 2}


# ---- latency


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("50ms", 0.05), ("2s", 2), (" 1.5 s ", 1.5), ("500us", 5e-4), ("1min", 60), (".5s", 0.5), (3, 3), (0.25, 0.25)],
)
def test_latencies_are_read(given, seconds):
    assert engine().stream([], given).latency_seconds == pytest.approx(seconds)
    assert engine().stream([], timedelta(milliseconds=40)).latency_seconds == pytest.approx(0.04)


@pytest.mark.parametrize("bad", ["50", "ms", "-5ms", "5 parsecs", "", 0, -1, float("nan"), float("inf"), "0s"])
def test_bad_latencies_are_refused(bad):
    with pytest.raises(lg.errors.ValueInvalid, match=r"^\[stream\] expected .*latency.*got .*; "):
        engine().stream([], bad)


@pytest.mark.parametrize("bad", [None, True, b"5ms", [1]])
def test_latencies_of_other_types_are_refused(bad):
    with pytest.raises(lg.errors.DtypeInvalid, match=r"'50ms'"):
        engine().stream([], bad)


# ---- sources


def test_tuples_and_updates_give_what_one_batch_gives():
    items = [
        ("add_edge", 0, 4),
        ("set_features", 2, row()),
        updates(("add_vertex", N, row(3)), ("add_edge", N, 0)),
        ("remove_edge", 0, 1, {"missing": "error"}),
        updates(),
        ("remove_vertex", 5),
    ]
    e, twin = engine(), engine()
    batches = list(e.stream(iter(items), "50ms"))
    for item in items:
        twin.apply(item if isinstance(item, lg.Updates) else updates(*[item[:3]]))
    assert e.state_digest() == twin.state_digest()
    assert batches[-1].position == 6
    assert {v for batch in batches for v in batch.changes.vertices.tolist()} >= {0, 1, 2, N}


def test_updates_are_kept_whole():
    clock = Clock()
    e = timed(clock, linear)
    many = lg.Updates()
    many.add_edges([0] * 7, [3] * 7)
    sizes = [batch.size for batch in e.stream([many, many, ("add_edge", 0, 1), many], 10, clock=clock)]
    assert sizes == [7, 8, 7]
    assert [batch.size for batch in e.stream(many, 10, clock=clock)] == [7]


@pytest.mark.parametrize("bad", [3, "add_edge", None])
def test_other_sources_are_refused(bad):
    with pytest.raises(lg.errors.UsageError, match="an iterable of updates"):
        engine().stream(bad, 1)


def test_an_error_of_the_source_comes_after_what_it_gave():
    def source():
        yield from edges(3)
        raise OSError("line cut")

    e = engine()
    stream = e.stream(source(), 1)
    with pytest.raises(OSError, match="line cut"):
        list(stream)
    assert (stream.position, e.graph.edge_count) == (3, 9)
    assert stream.remaining() == []


def test_an_endless_slow_source_is_left_in_peace():
    more, asked = threading.Semaphore(2), []

    def source():
        while True:
            more.acquire()
            asked.append(len(asked))
            yield ("add_edge", 0, 3)

    e = engine()
    with e.stream(source(), 1) as stream:
        total = 0
        while total < 2:
            total += next(stream).size
    assert stream.position == 2
    assert list(stream) == []
    assert (len(asked), e.graph.edge_count) == (2, 8)
    more.release()
    for thread in threading.enumerate():
        if thread.name == "livegnn stream":
            thread.join(60)
    assert len(stream.remaining()) == len(asked) - 2 <= 1


def test_a_fast_source_is_read_no_further_ahead_than_the_next_batch():
    far, asked = threading.Event(), []

    def source():
        for k in range(100_000):
            asked.append(k)
            if k == 1000:
                far.set()
            yield ("add_edge", 0, 3)

    clock = Clock()
    with timed(clock, lambda n: 0.01 * n).stream(source(), "0.2s", clock=clock) as stream:
        sizes = [next(stream).size for _ in range(20)]
        assert not far.wait(0.3)
    assert max(sizes) <= 10
    assert len(stream.remaining()) <= 10
    assert len(asked) <= stream.position + 11


# ---- refusals and interruption


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (
            ("remove_edge", 4, 0),
            lg.errors.EdgeMissing,
            r"^\[stream, update 37\] \[apply\] update 0 \(remove_edge 4 -> 0\)",
        ),
        (("set_features", 2, row(scale=1e6)), lg.errors.RangeOverflow, r"^\[stream, update 37\] .*layer 1"),
        (("add_edge", -1, 0), lg.errors.ValueInvalid, r"^\[stream, update 37\] .*at least 0"),
        (("add_edge", 1), lg.errors.UsageError, r"^\[stream, update 37\] .*arguments of Updates.add_edge"),
        (("add_edges", [1], [2]), lg.errors.UsageError, r"^\[stream, update 37\] .*name one of add_edge"),
        (7, lg.errors.UsageError, r"^\[stream, update 37\] .*got 7"),
    ],
)
def test_a_bad_update_is_named_and_all_before_it_is_applied(bad, error, words):
    items = [*edges(37), bad, *edges(60)]
    clock = Clock()
    e, twin = timed(clock, linear), engine()
    stream, seen = e.stream(items, 10, clock=clock), []
    with pytest.raises(error, match=words):
        seen.extend(batch.size for batch in stream)
    twin.apply(updates(*edges(37)))
    assert e.state_digest() == twin.state_digest()
    assert stream.position == sum(seen) == 37
    rest = [*stream.remaining(), *items[stream.item_count + len(stream.remaining()) :]]
    assert rest == items[37:]
    assert list(stream) == []
    list(e.stream(rest[1:], 10, clock=clock))
    assert e.graph.edge_count == 6 + 97
    e.verify()


@pytest.fixture
def interruptible():
    """A process that was started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_batch_and_nothing_is_lost(interruptible):
    e = engine()
    readout = lg.Readout(e)
    handle = e.on_change(lambda changes: signal.raise_signal(signal.SIGINT) if changes.version == 3 else None)
    stream, items = e.stream(edges(40), 10, clock=Clock()), edges(40)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            pass
    handle.cancel()
    assert (e.version, readout.version) == (3, 3)
    assert e.graph.edge_count == 6 + stream.position
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    done = stream.position
    assert 0 < done < 40
    assert sum(batch.size for batch in stream) == 40 - done
    assert stream.position == 40
    twin = engine()
    twin.apply(updates(*items))
    assert e.state_digest() == twin.state_digest()
    e.verify()
    readout.verify()


def test_a_closed_engine_has_no_streams():
    e = engine()
    e.close()
    with pytest.raises(lg.errors.UsageError, match="closed"):
        e.stream([], 1)


# ---- rates


def test_the_largest_rate_is_that_of_the_largest_batch_in_time():
    clock = Clock()
    rate = largest_rate(timed(clock, linear), edges(20_000), "50ms", runs=3, clock=clock)
    assert (rate.size, rate.complete) == (128, True)
    assert rate.updates_per_second == pytest.approx(128 / linear(128))
    assert (rate.best.runs, rate.best.median_seconds) == (3, pytest.approx(linear(128)))
    paper = largest_rate(timed(clock, linear), edges(20_000), "50ms", runs=3, queued=False, clock=clock)
    assert paper.size == 256


def test_the_slowest_run_decides_and_each_update_is_applied_once():
    clock, calls = Clock(), []

    def cost(n):
        calls.append(n)
        return linear(n) + (0.05 if len(calls) == 8 else 0)

    e = timed(clock, cost)
    curve = cost_curve(e, edges(1000), 0.025, runs=3, clock=clock)
    assert [each.size for each in curve] == [1, 2, 4]
    assert curve[-1].worst_seconds == pytest.approx(linear(4) + 0.05)
    assert curve[-1].median_seconds == pytest.approx(linear(4))
    assert e.graph.edge_count == 6 + 3 * 7
    assert rate_within(curve, "50ms").size == 2


def test_a_recording_that_ends_and_a_deadline_that_cannot_be_held_say_so():
    clock = Clock()
    short = largest_rate(timed(clock, linear), edges(20), "50ms", runs=3, clock=clock)
    assert (short.size, short.complete) == (2, False)
    none = largest_rate(timed(clock, linear), edges(20), "5ms", runs=3, clock=clock)
    assert (none.updates_per_second, none.size, none.best, none.complete) == (0.0, 0, None, True)
    assert rate_within([], 1).complete is False
    assert SizeCost(3, 1, 0.0, 0.0).rate == float("inf")
    with pytest.raises(lg.errors.ValueInvalid, match="runs as an int"):
        largest_rate(engine(), [], 1, runs=0)


def test_streams_by_string_ids_and_unweighted_models():
    e = lg.Engine(model(), graph(["a", "b", "c", "d", "e", "f"]), threads=1)
    for batch in e.stream([("set_features", "a", array(WIDTH)), ("add_edge", "a", "d")] * 5, "1s"):
        assert batch.size >= 1
    assert e.graph.edge_count == 11
    e.verify()
