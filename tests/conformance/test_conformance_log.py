"""What every log promises, asked of each implementation."""

import threading
import time

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import DtypeInvalid, LogConflict, UsageError, ValueInvalid
from livegnn.log import UpdateLog, open_log, replay
from livegnn.testing import random_batch, random_graph, random_model


def payloads(log, *args):
    return [entry.payload for entry in log.read(*args)]


def test_offsets_count_from_zero_and_entries_come_back(url):
    with open_log(url) as log:
        assert (log.tail, log.committed, list(log.read())) == (0, -1, [])
        sent = [b"", b"one", bytes(range(256)), b"\0" * 500_000]
        assert [log.append(each) for each in sent] == [0, 1, 2, 3]
        assert (log.tail, log.committed) == (4, 3)
        entries = list(log.read())
        assert [entry.offset for entry in entries] == [0, 1, 2, 3]
        assert [entry.payload for entry in entries] == sent
        assert len({entry.key for entry in entries}) == 4


def test_reading_from_anywhere(url):
    with open_log(url) as log:
        sent = [b"%d" % i for i in range(300)]
        for each in sent:
            log.append(each)
        for first, limit in [(0, None), (0, 0), (0, 1), (7, 5), (250, 100), (299, None), (300, None), (10_000, 3)]:
            assert payloads(log, first, limit) == sent[first : None if limit is None else first + limit]


def test_a_log_outlives_its_handle(url):
    with open_log(url) as log:
        log.append(b"a", key="first")
    with open_log(url) as log:
        assert (log.tail, log.committed, payloads(log)) == (1, 0, [b"a"])
        assert log.append(b"b") == 1


def test_a_key_is_written_once(url):
    with open_log(url) as log, open_log(url) as other:
        assert [log.append(b"a", key="k"), log.append(b"x"), log.append(b"a", key="k")] == [0, 1, 0]
        assert other.append(b"a", key="k") == 0
        assert other.append(b"b", key="other") == 2
        assert log.append(b"b", key="other") == 2
    with open_log(url) as again:
        assert again.append(b"c") == 3  # before this handle was ever asked for a key
        assert again.append(b"a", key="k") == 0
        assert payloads(again) == [b"a", b"x", b"b", b"c"]
        assert [entry.key for entry in again.read()][:3:2] == ["k", "other"]


def test_an_expected_offset_is_got_or_refused(url):
    with open_log(url) as log, open_log(url) as other:
        assert log.append(b"a", expect=0, key="a") == 0
        assert other.append(b"b", expect=1) == 1
        for stale in (0, 1, 3, 100):
            for handle in (log, other):
                with pytest.raises(LogConflict, match=r"^\[append, log .*\] expected offset \d+ to be the next one"):
                    handle.append(b"x", expect=stale)
        with open_log(url) as again:
            assert again.append(b"a", expect=0, key="a") == 0  # the same append, by a producer that started again
        assert log.append(b"a", expect=0, key="a") == 0
        with pytest.raises(LogConflict, match="key 'a' at 0"):
            log.append(b"a", expect=2, key="a")
        assert other.append(b"c", expect=2) == 2
        assert payloads(log) == payloads(other) == [b"a", b"b", b"c"]


def test_two_writers_at_once_lose_and_double_nothing(url):
    count = 60
    failures = []

    def write(writer):
        try:
            with open_log(url) as log:
                for i in range(count):
                    log.append(f"{writer} {i}".encode(), key=f"{writer}-{i}")
                    log.append(b"once", key=f"shared-{i}")
        except BaseException as failure:  # shown by the test, in its own thread
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with open_log(url) as log:
        found = payloads(log)
        assert log.tail == len(found) == 3 * count
        for writer in "ab":
            assert [each for each in found if each.startswith(writer.encode())] == [
                f"{writer} {i}".encode() for i in range(count)
            ]
        assert len({entry.key for entry in log.read()}) == 3 * count


def test_threads_may_share_a_handle(url):
    with open_log(url) as log:
        offsets = []
        threads = [threading.Thread(target=lambda: offsets.extend(log.append(b"x") for _ in range(20))) for _ in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(offsets) == list(range(60))


def test_waiting_for_more(url):
    with open_log(url) as log, open_log(url) as other:
        start = time.monotonic()
        assert not log.wait(0, timeout=0.1)
        assert time.monotonic() - start >= 0.1
        assert not log.wait(0, timeout=0)
        with pytest.raises(ValueInvalid, match="expected a timeout from 0 to"):
            log.wait(0, timeout=-1)
        timer = threading.Timer(0.1, lambda: other.append(b"a"))
        timer.start()
        assert log.wait(0, timeout=20)
        timer.join()
        assert log.wait(0)
        assert payloads(log) == [b"a"]


def test_a_reader_ends_where_the_log_ended_when_it_began(url):
    with open_log(url) as log:
        log.append(b"a")
        reader = log.read()
        assert next(reader).payload == b"a"
        log.append(b"b")
        assert list(reader) == []
        assert payloads(log, 1) == [b"b"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda log: log.append("text"), DtypeInvalid),
        (lambda log: log.append(bytearray(b"x")), DtypeInvalid),
        (lambda log: log.append(b"x", key=7), DtypeInvalid),
        (lambda log: log.append(b"x", key=""), ValueInvalid),
        (lambda log: log.append(b"x", key="k" * 256), ValueInvalid),
        (lambda log: log.append(b"x", key="line\nbreak"), ValueInvalid),
        (lambda log: log.append(b"x", key=" blank"), ValueInvalid),
        (lambda log: log.append(b"x", expect=-1), ValueInvalid),
        (lambda log: log.append(b"x", expect=True), DtypeInvalid),
        (lambda log: log.read(-1), ValueInvalid),
        (lambda log: log.read(0, -1), ValueInvalid),
        (lambda log: log.read(0.5), DtypeInvalid),
        (lambda log: log.wait(-1), ValueInvalid),
    ],
)
def test_bad_arguments_are_refused_and_write_nothing(url, call, error):
    with open_log(url) as log:
        with pytest.raises(error, match=r"^\[(append|read|wait)\] expected .*, got .*; "):
            call(log)
        assert log.tail == 0


def test_a_closed_log_refuses_everything(url):
    log = open_log(url)
    log.append(b"a")
    reader = log.read()
    log.close()
    log.close()
    for call in (lambda: log.append(b"b"), lambda: log.tail, lambda: log.committed, lambda: log.wait(0)):
        with pytest.raises(UsageError, match="expected an open log"):
            call()
    with pytest.raises(UsageError, match="expected an open log"):
        next(reader)
    assert "closed" in repr(log)


def nudged(model):
    structure, arrays = model.to_arrays()
    return structure, {name: array * np.float32(0.75) for name, array in arrays.items()}


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_rebuilt_from_the_log_equals_the_live_one(url, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, depth=2)
    graph, mirror = random_graph(np.random.default_rng(seed), model.input_width, model.uses_weights)
    twin, _ = random_graph(np.random.default_rng(seed), model.input_width, model.uses_weights)
    engine = lg.Engine(model, graph)
    with UpdateLog(open_log(url)) as log, log.attach(graph) as attachment:
        for step in range(12):
            if step == 4:
                engine.swap(lg.Model.from_arrays(*nudged(model)))
            elif step == 7:
                engine.rescale(headroom=64.0)
            else:
                engine.apply(random_batch(rng, mirror, int(rng.integers(1, 9))))
        assert attachment.offset == log.tail == graph.version == 12
        assert log.committed == 11
        rebuilt = lg.Engine(model, twin)
        assert replay(log, twin, to_offset=5) == 5
        assert replay(log, twin, from_offset=5) == 12
        assert rebuilt.state_digest() == engine.state_digest(), f"seed {seed}"
        assert twin.edges()["id"].tolist() == graph.edges()["id"].tolist()
        rebuilt.verify()


def test_two_graphs_that_write_one_log(url):
    """The one that is behind is told so, catches up, and goes on; both end with one state."""
    graphs = [lg.Graph(np.eye(3, dtype=np.float32), [0], [1]) for _ in range(2)]
    with UpdateLog(open_log(url)) as log, UpdateLog(open_log(url)) as other:
        first, second = log.attach(graphs[0]), other.attach(graphs[1])
        updates = [lg.Updates() for _ in range(2)]
        updates[0].add_edge(1, 2)
        updates[1].add_edge(2, 0)
        graphs[0].apply(updates[0])
        with pytest.raises(LogConflict):
            graphs[1].apply(updates[1])
        assert (graphs[1].version, graphs[1].edge_count) == (0, 1)
        assert second.catch_up() == 1
        graphs[1].apply(updates[1])
        assert first.catch_up() == 2
        assert graphs[0].digest() == graphs[1].digest()
        assert log.tail == 2


def test_a_log_that_must_exist_is_never_made(url):
    for _ in range(2):
        with pytest.raises(UsageError, match=r"^\[open_log\] expected .*, got no.*; correct the "):
            open_log(url + "-mistyped", must_exist=True)
    with open_log(url) as log:
        log.append(b"a")
    with open_log(url, must_exist=True) as log:
        assert payloads(log) == [b"a"]
