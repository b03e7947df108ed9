"""snapshot(): rows, predictions and their version together, whatever is applied meanwhile."""

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import UsageError, VertexUnknown
from tests.unit.inference.samples import INT_IDS, STR_IDS, array, engine, graph, model, row, updates
from tests.unit.inference.test_threads import BATCHES, N, batch, outputs_by_version, run_readers
from tests.unit.models.hetero_samples import by_hand, shop

MODES = ["eager", "on_demand", "hybrid"]


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_stays_at_its_version_while_this_thread_applies(mode):
    e = engine(mode=mode)
    e.apply(updates(("set_features", 1, row())))
    rows, classes = e.embeddings(range(N)).tobytes(), e.predict(range(N)).tolist()
    scores = e.predict_edges([[0, 1], [4, 5]]).tolist()
    with e.snapshot() as view:
        for k in range(5):
            e.apply(batch(k))
            e.embeddings([k])
            assert (view.version, view.vertex_count) == (1, N)
            assert view.embeddings(range(N)).tobytes() == rows
            assert view.predict(range(N)).tolist() == classes
            assert view.predict([0], head=lambda y: y[:, 1])[0] == view.embeddings([0])[0, 1]
            assert view.predict_edges([[0, 1], [4, 5]]).tolist() == scores
        assert e.embeddings(range(N)).tobytes() != rows
    assert e.version == 6
    e.verify()


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_on_demand_has_what_was_pending(mode):
    e, twin = engine(mode=mode), engine()
    for each in (e, twin):
        each.apply(batch(1))
    with e.snapshot() as view:
        e.apply(batch(2))
        e.embeddings([0])
        assert view.embeddings(range(N)).tobytes() == twin.embeddings(range(N)).tobytes()


@pytest.mark.parametrize("ids", [None, INT_IDS, STR_IDS])
def test_vertices_are_those_of_the_version(ids):
    e = lg.Engine(model(), graph(ids), threads=1)
    names = list(range(N)) if ids is None else ids
    new = N if ids is None else type(ids[0])(7)
    gone = names[2]
    before = e.embeddings(names).tobytes()
    with e.snapshot() as view:
        e.apply(updates(("remove_vertex", gone)))
        with e.snapshot() as without:
            e.apply(updates(("add_vertex", new, row()), ("add_vertex", gone, row(3)), ("add_edge", gone, new)))
            with pytest.raises(VertexUnknown, match=str(gone)):
                without.embeddings([gone])
            assert (without.vertex_count, view.vertex_count, e.graph.vertex_count) == (N - 1, N, N + 1)
        assert view.embeddings(names).tobytes() == before
        with pytest.raises(VertexUnknown, match=str(new)):
            view.embeddings([names[0], new])
        with pytest.raises(VertexUnknown, match="nobody" if ids is STR_IDS else "99"):
            view.embeddings(["nobody" if ids is STR_IDS else 99])
    with e.snapshot() as view:
        assert view.embeddings([gone, new]).tobytes() == e.embeddings([gone, new]).tobytes() != before


def test_ids_that_change_slots_are_found_where_they_were():
    e = lg.Engine(model(), graph(STR_IDS), threads=1)
    rows = e.embeddings(STR_IDS).tobytes()
    with e.snapshot() as view:
        e.apply(updates(("remove_vertex", "ann"), ("remove_vertex", "bob")))
        e.apply(updates(("add_vertex", "bob", row(1))))  # in ann's slot
        e.apply(updates(("add_vertex", "ann", row(2))))
        assert e.graph.to_slots(["ann", "bob"]).tolist() == [1, 0]
        assert view.embeddings(STR_IDS).tobytes() == rows


def test_types_are_those_of_the_version():
    e = lg.Engine(by_hand(), shop(), threads=1)
    users, items = (e.embeddings([0, 1], vertex_type=kind) for kind in ("User", "Item"))
    scores = e.predict_edges([[0, 1]], vertex_types=("User", "User"))
    with e.snapshot() as view:
        made = lg.Updates()
        made.remove_vertex(1, vertex_type="User")
        made.set_features(0, [0, 0, 7], vertex_type="User")
        made.add_vertex(e.graph.vertices("Item").max() + 1, [1, 1], vertex_type="Item")  # in the slot of User 1
        e.apply(made)
        np.testing.assert_array_equal(view.embeddings([0, 1], vertex_type="User"), users)
        np.testing.assert_array_equal(view.embeddings([0, 1], vertex_type="Item"), items)
        np.testing.assert_array_equal(view.predict_edges([[0, 1]], vertex_types=("User", "User")), scores)
        with pytest.raises(VertexUnknown, match="User"):
            e.embeddings([1], vertex_type="User")
        with pytest.raises(VertexUnknown, match="Item"):
            view.embeddings([e.graph.vertices("Item").max()], vertex_type="Item")
        with pytest.raises(lg.errors.ColumnMissing):
            view.embeddings([0])


@pytest.mark.parametrize("swap", [True, False])
def test_swap_and_rescale_leave_a_snapshot_as_it_is(swap):
    e = engine()
    rows = e.embeddings(range(N)).tobytes()
    with e.snapshot() as view:
        e.swap(model(out=2, seed=40)) if swap else e.rescale()
        with e.snapshot() as after:
            e.apply(batch(1))
            assert view.embeddings(range(N)).tobytes() == rows
            assert after.embeddings([0]).shape == (1, 2 if swap else 3)
            assert (view.version, after.version, e.version) == (0, 0, 1)


def test_a_closed_engine_leaves_an_open_snapshot_readable():
    e = lg.Engine(model(), graph(STR_IDS), threads=1)
    rows = e.embeddings(STR_IDS).tobytes()
    with e.snapshot() as view:
        e.close()
        e.graph.apply(updates(("remove_vertex", "ann"), ("add_vertex", "gus", row())))
        assert view.embeddings(STR_IDS).tobytes() == rows


def test_a_batch_that_fails_and_a_what_if_block_leave_it_as_it_is():
    e = engine()
    rows = e.embeddings(range(N)).tobytes()
    with e.snapshot() as view:
        with pytest.raises(lg.errors.RangeOverflow):
            e.apply(updates(("set_features", 0, row(scale=1e9))))
        assert view.embeddings(range(N)).tobytes() == rows
        with e.what_if(batch(3)), e.snapshot() as committed:
            assert view.embeddings(range(N)).tobytes() == committed.embeddings(range(N)).tobytes() == rows
            assert committed.version == 0
    assert e.embeddings(range(N)).tobytes() == rows


def test_what_snapshots_keep_is_given_back():
    def bytes_of_outputs(open_until):
        e = engine()
        views = []
        for k in range(20):
            views.append(e.snapshot())
            views[-1].__enter__()
            if open_until == "batch":
                views.pop().__exit__(None, None, None)
            e.apply(batch(k))
        kept = e.state_bytes()["outputs"]
        for view in views:
            view.__exit__(None, None, None)
        digest = e.state_digest()
        e.verify()
        return kept, e.state_bytes()["outputs"], digest

    never, without, digest = bytes_of_outputs("batch")
    kept, after, same = bytes_of_outputs("end")
    assert never == without == after < kept
    assert digest == same


def test_a_view_that_is_forgotten_keeps_nothing():
    e = lg.Engine(model(), graph(STR_IDS), threads=1)
    before = e.state_bytes()["outputs"]
    view = e.snapshot()
    view.__enter__()
    del view
    e.apply(updates(("set_features", STR_IDS, array(N, 4))))
    assert e.state_bytes()["outputs"] <= before + 64 * 4 * 64  # the batch's journal, no block of rows
    assert not [each for each in e.graph.host.old_ids._holders if each() is not None]


def test_a_view_is_read_inside_its_block_only():
    e = engine()
    view = e.snapshot()
    for read in (lambda: view.embeddings([0]), lambda: view.version, lambda: view.vertex_count):
        with pytest.raises(UsageError, match="inside its with block"):
            read()
    with view:
        with pytest.raises(UsageError, match="not open"):
            view.__enter__()
        assert view.version == 0
    with pytest.raises(UsageError, match="inside its with block"):
        view.predict([0])
    e.close()
    with pytest.raises(UsageError, match=r"\[snapshot\] expected an open engine"):
        e.snapshot().__enter__()


def test_a_snapshot_opened_in_a_callback_is_of_the_new_version():
    for mode in MODES:
        e, seen = engine(mode=mode), []

        def look(changes, e=e, seen=seen):
            with e.snapshot() as view:
                seen.append((view.version, view.embeddings(range(N)).tobytes()))

        e.on_change(look)
        e.apply(batch(0))
        assert seen == [(1, e.embeddings(range(N)).tobytes())]


@pytest.mark.parametrize("ids", [None, STR_IDS])
def test_snapshots_in_other_threads_are_of_whole_known_versions(ids):
    versions = outputs_by_version()
    e = lg.Engine(model(), graph(ids), threads=1)
    names = list(range(N)) if ids is None else ids

    def read():
        with e.snapshot() as view:
            first = view.embeddings(names).tobytes()
            assert versions[first] == view.version
            assert view.embeddings(names).tobytes() == first
        return np.int64(view._version)

    def write():
        for k in range(BATCHES):
            e.apply(batch(k, names))

    for seen in run_readers(read, write, count=2):
        order = [int(np.frombuffer(each, np.int64)[0]) for each in seen]
        assert order == sorted(order)
        assert order[-1] == BATCHES


def test_opening_while_string_ids_move_finds_ids_and_rows_of_one_version():
    """A vertex leaves and comes back in another slot; its features, and so its output, say which version it is of."""
    rows = np.arange(8, dtype=np.float32).reshape(-1, 1)
    names = [f"v{i}" for i in range(8)]
    g = lg.Graph(rows, [], [], ids=names)
    e = lg.Engine(lg.Model([lg.layers.Dense(np.ones((1, 1)))], input_width=1), g, threads=1)

    def read():
        with e.snapshot() as view:
            value = int(view.embeddings(["v0"])[0, 0])
            assert value == view.version, (value, view.version)
            assert view.embeddings(["v7"])[0, 0] == 7
        return np.int64(value)

    def write():
        for k in range(1, 300):
            made = lg.Updates()
            made.remove_vertices(["v0", f"v{1 + k % 6}"])
            made.add_vertex(f"v{1 + k % 6}", [k])
            made.add_vertex("v0", [k])
            e.apply(made)

    for seen in run_readers(read, write, count=2):
        assert np.frombuffer(seen[-1], np.int64)[0] == 299


def test_a_reader_goes_on_when_another_thread_closes():
    e = engine()
    view, failures = e.snapshot(), []
    rows = e.embeddings(range(N)).tobytes()
    view.__enter__()

    def read():
        try:
            while True:
                assert view.embeddings(range(N)).tobytes() == rows
        except UsageError:
            return
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for k in range(50):
        e.apply(batch(k))
    view.__exit__(None, None, None)
    for reader in readers:
        reader.join(60)
    assert not failures
