"""Readers in other threads: rows of one whole version, never an error, while batches go in."""

import threading

import pytest

import livegnn as lg
from tests.unit.inference.samples import WIDTH, N, array, engine, model, row, updates

BATCHES = 200


def batch(k, names=range(N)):
    """Every vertex gets other features, so that every row differs from version to version."""
    return updates(("set_features", list(names), array(N, WIDTH, seed=100 + k)))


def outputs_by_version():
    e = engine()
    rows = [e.embeddings(range(N)).tobytes()]
    for k in range(BATCHES):
        e.apply(batch(k))
        rows.append(e.embeddings(range(N)).tobytes())
    assert len(set(rows)) == BATCHES + 1
    return {each: version for version, each in enumerate(rows)}


class Reader(threading.Thread):
    def __init__(self, read, done):
        super().__init__()
        self.read, self.done, self.seen, self.failure = read, done, [], None

    def run(self):
        try:
            while True:
                last = self.done.is_set()
                self.seen.append(self.read().tobytes())
                if last:
                    return
        except BaseException as error:
            self.failure = error


def run_readers(read, write, count=3):
    done = threading.Event()
    readers = [Reader(read, done) for _ in range(count)]
    for reader in readers:
        reader.start()
    try:
        write()
    finally:
        done.set()
        for reader in readers:
            reader.join(60)
    assert not any(reader.is_alive() for reader in readers)
    assert [reader.failure for reader in readers] == [None] * count
    return [reader.seen for reader in readers]


def test_readers_see_whole_versions_in_order():
    versions, e = outputs_by_version(), engine()

    def write():
        for k in range(BATCHES):
            e.apply(batch(k))

    for seen in run_readers(lambda: e.embeddings(range(N)), write):
        assert all(rows in versions for rows in seen), "rows of more than one version"
        order = [versions[rows] for rows in seen]
        assert order == sorted(order)
        assert order[-1] == BATCHES


def test_readers_see_the_committed_version_during_what_if():
    e = engine()
    committed = e.embeddings(range(N)).tobytes()

    def write():
        for k in range(50):
            with e.what_if(batch(k)) as view:
                assert view.embeddings(range(N)).tobytes() != committed

    for seen in run_readers(lambda: e.embeddings(range(N)), write):
        assert set(seen) == {committed}


def test_another_threads_writer_waits_for_the_block():
    e, began, order = engine(), threading.Event(), []

    def write():
        began.set()
        e.apply(updates(("set_features", 0, row())))
        order.append("written")

    writer = threading.Thread(target=write)
    with e.what_if(updates(("add_edge", 0, 3))):
        writer.start()
        assert began.wait(60)
        writer.join(0.05)
        assert e.graph.edge_count == 6  # of what is committed
        order.append("left")
    writer.join(60)
    assert order == ["left", "written"]
    assert e.version == 1
    e.verify()


def test_writers_in_two_threads_lose_nothing():
    e = engine()

    def add():
        for _ in range(100):
            e.apply(updates(("add_edge", 0, 3)))

    writers = [threading.Thread(target=add) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert (e.version, e.graph.edge_count) == (200, 206)
    e.verify()


@pytest.mark.parametrize("swap", [True, False])
def test_readers_go_on_during_swap_and_rescale(swap):
    e, other = engine(), model(seed=50)
    rows = {e.embeddings(range(N)).tobytes(), lg.Engine(other, e.graph).embeddings(range(N)).tobytes()}
    models = [other, e.model] * 10

    def write():
        for each in models:
            e.swap(each) if swap else e.rescale()

    for seen in run_readers(lambda: e.embeddings(range(N)), write):
        assert set(seen) <= rows
