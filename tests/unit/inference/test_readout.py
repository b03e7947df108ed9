"""Readouts by example: groups and how they are given, heads, readers, swap, interruption, audits."""

import threading

import numpy as np
import pytest
import torch
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

import livegnn as lg
from livegnn.inference.pools import Joined
from tests.unit.inference.samples import INT_IDS, STR_IDS, N, array, engine, graph, model, row, updates
from tests.unit.models.hetero_samples import by_hand, shop

GROUPS = [4, 4, 2, 2, 2, 0]
PYG = {"add": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


def names(ids):
    return list(range(N)) if ids is None else ids


@pytest.mark.parametrize("kind", PYG)
@pytest.mark.parametrize("ids", [None, INT_IDS, STR_IDS])
def test_rows_are_what_pyg_pools(kind, ids):
    e = lg.Engine(model(), graph(ids), threads=1)
    readout = lg.Readout(e, kind, GROUPS)
    e.apply(updates(("set_features", names(ids)[2], row()), ("add_edge", names(ids)[0], names(ids)[5])))
    want = PYG[kind](torch.from_numpy(e.embeddings(names(ids))), torch.tensor(GROUPS), 6).numpy()
    np.testing.assert_allclose(readout.rows(range(6)), want, rtol=1e-6, atol=1e-6)
    assert not readout.rows([1, 3, 5]).any()
    assert readout.group_ids.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(readout.rows(), readout.rows([0, 2, 4]))
    assert readout.version == e.version == 1
    readout.verify()


def test_no_groups_are_one_group_of_every_vertex():
    e = engine()
    readout = lg.Readout(e, "max")
    e.apply(updates(("add_vertex", N, row(scale=3.0)), ("remove_vertex", 0)))
    np.testing.assert_array_equal(readout.rows()[0], e.embeddings(range(1, N + 1)).max(axis=0))
    assert readout.group_ids.tolist() == [0]
    e.apply(updates(("remove_vertices", range(1, N + 1))))
    assert readout.rows().tolist() == [[0.0, 0.0, 0.0]]
    readout.verify()


def test_several_pools_stand_side_by_side():
    e = engine()
    parts = [("mean", 0, 3), ("max", 1, 3), ("add", 0, 3)]
    several, whole = lg.Readout(e, parts, GROUPS), {kind: lg.Readout(e, kind, GROUPS) for kind in PYG}
    for change in (("set_features", 2, row()), ("remove_vertex", 5), ("add_edge", 0, 3)):
        want = np.concatenate([whole[kind].rows([0, 2, 3])[:, start:stop] for kind, start, stop in parts], axis=1)
        np.testing.assert_array_equal(several.rows([0, 2, 3]), want)
        several.verify()
        e.apply(updates(change))
    sizes = several.state_bytes()
    assert sizes["pool"] < sum(each.state_bytes()["pool"] for each in whole.values())  # one state for sum and mean
    assert "mean, max, add" in repr(several)


@pytest.mark.parametrize(
    "kind",
    [
        [],
        ["mean"],
        [("sum", 0, 2)],
        [("add", 2, 2)],
        [("add", -1, 2)],
        [("add", 0, 2.0)],
        [("add", 0)],
        [([], 0, 2)],
        3,
    ],
)
def test_lists_of_pools_that_are_none(kind):
    with pytest.raises(lg.errors.ValueInvalid, match=r"\(kind, start, stop\)"):
        lg.Readout(engine(), kind)


def test_a_head_on_several_pools_keeps_to_the_width_they_were_made_for():
    e = engine()
    width = e.model.output_width
    lg.Readout(e, [("add", 0, 2)], head=lambda rows: rows)
    wider = lg.Model([lg.layers.GraphConv(*[np.ones((width + 2, e.model.input_width))] * 2)])
    with pytest.raises(lg.errors.ModelMismatch, match=f"rows of width {width}, in which the pools name columns"):
        e.swap(wider)


def test_pools_of_columns_that_are_not_there():
    with pytest.raises(lg.errors.ModelMismatch, match="the 4 columns that are pooled, got a model with 3"):
        lg.Readout(engine(), [("add", 0, 4)])
    e = engine()
    readout = lg.Readout(e, [("add", 1, 3)])
    with pytest.raises(lg.errors.ModelMismatch, match="the 3 columns"):
        e.swap(model(2))
    with pytest.raises(lg.errors.ModelMismatch, match="rows of width 2"):
        lg.Readout(e, [("add", 1, 3)], head=lg.Model([lg.layers.Dense(array(2, 3))]))
    e.swap(model(5))
    assert readout.rows().shape == (1, 2)
    readout.verify()


# ---- groups of new vertices


def test_a_new_vertex_needs_a_group_before_it_comes():
    e = engine()
    readout = lg.Readout(e, "add", GROUPS)
    digest, before = e.state_digest(), readout.rows()
    batch = updates(("set_features", 0, row()), ("add_vertex", N, row()))
    with pytest.raises(lg.errors.ColumnMissing, match=r"update 1\] .* new vertex 6.*assign\(\[6\]"):
        e.apply(batch)
    assert (e.state_digest(), e.version, readout.version) == (digest, 0, 0)
    np.testing.assert_array_equal(readout.rows(), before)
    readout.assign([N], [9])
    assert readout.group_ids.tolist() == [0, 2, 4]
    e.apply(batch)
    np.testing.assert_array_equal(readout.rows([9]), e.embeddings([N]))
    readout.verify()


@pytest.mark.parametrize(("ids", "new"), [(None, N), (STR_IDS, "gus")])
def test_a_function_is_asked_for_new_vertices_and_may_refuse(ids, new):
    e, asked = lg.Engine(model(), graph(ids), threads=1), []

    def group_of(vertices):
        asked.append(vertices.tolist())
        if len(asked) == 3:
            raise KeyError("no such customer")
        return [7] * len(vertices)

    readout = lg.Readout(e, "add", group_of)
    e.apply(updates(("add_vertex", new, row())))
    assert asked == [names(ids), [new]]
    assert readout.group_ids.tolist() == [7]
    e.apply(updates(("remove_vertex", new)))
    with pytest.raises(lg.errors.ValueInvalid, match=r"\[apply\] .*1 vertices, got KeyError"):
        e.apply(updates(("add_vertex", new, row())))
    assert e.version == readout.version == 2
    readout.verify()


def test_a_vertex_forgets_its_group_unless_the_same_batch_adds_it_again():
    e = engine()
    readout = lg.Readout(e, "max", GROUPS)
    e.apply(updates(("remove_vertex", 5), ("add_vertex", 5, row())))
    np.testing.assert_array_equal(readout.rows([0]), e.embeddings([5]))
    e.apply(updates(("remove_vertex", 5)))
    assert readout.group_ids.tolist() == [2, 4]
    with pytest.raises(lg.errors.ColumnMissing, match="new vertex 5"):
        e.apply(updates(("add_vertex", 5, row())))
    readout.verify()


def test_a_slot_that_changes_hands_within_a_batch_changes_group():
    e = lg.Engine(model(), graph(STR_IDS), threads=1)
    readout = lg.Readout(e, "add", GROUPS)
    readout.assign(["zoe"], [8])
    e.apply(updates(("remove_vertex", "fay"), ("add_vertex", "zoe", row())))
    assert e.graph.to_slots(["zoe"]).tolist() == [5]
    assert readout.group_ids.tolist() == [2, 4, 8]
    np.testing.assert_array_equal(readout.rows([8]), e.embeddings(["zoe"]))
    readout.verify()


def test_assign_moves_vertices_and_the_later_row_counts():
    e = engine()
    readout = lg.Readout(e, "add", GROUPS)
    readout.assign([5, 0, 5], [3, 2, 1])
    np.testing.assert_array_equal(readout.rows([1, 4]), e.embeddings([5, 1]))
    assert readout.group_ids.tolist() == [1, 2, 4]
    assert readout.version == 0
    readout.verify()


# ---- heads


def test_a_head_is_applied_to_the_pooled_rows():
    e = engine()
    weight = array(2, 3, seed=7)
    head = lg.Model([lg.layers.Dense(weight), lg.layers.Softmax()])
    readout = lg.Readout(e, "mean", GROUPS, head=head)
    scores = readout.pooled().astype(np.float64) @ weight.astype(np.float64).T
    want = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(readout.rows(), want, rtol=1e-6)
    np.testing.assert_array_equal(readout.predict(), want.argmax(axis=1))
    np.testing.assert_array_equal(readout.rows([2])[0], readout.rows()[1])
    assert readout.rows([2, 2, 1])[:2].tobytes() == 2 * readout.rows([2]).tobytes()  # whatever is read with it
    doubled = lg.Readout(e, "mean", GROUPS, head=lambda rows: rows * 2)
    np.testing.assert_array_equal(doubled.rows(), readout.pooled() * 2)


def test_a_head_must_be_row_local_and_fit():
    e = engine()
    for head in (model(width=3), lg.Model([lg.layers.Dense(array(2, 4))])):
        with pytest.raises(lg.errors.ModelMismatch, match="row-local head for rows of width 3"):
            lg.Readout(e, head=head)
    readout = lg.Readout(e, head=lg.Model([lg.layers.Dense(array(2, 3))]))
    old = e.model
    with pytest.raises(lg.errors.ModelMismatch, match="width 2"):
        e.swap(model(2))
    assert e.model is old
    readout.verify()


# ---- following


def test_callbacks_see_the_readout_at_the_new_version():
    e, seen = engine(), []
    e.on_change(lambda changes: seen.append((changes.version, readout.version, readout.rows().tobytes())))
    readout = lg.Readout(e)
    e.apply(updates(("set_features", 0, row())))
    assert seen == [(1, 1, readout.rows().tobytes())]


@pytest.mark.parametrize("kind", PYG)
def test_swap_and_rescale_are_followed(kind):
    e = engine()
    readout = lg.Readout(e, kind, GROUPS)
    readout.assign([N], [2])
    e.apply(updates(("add_vertex", N, row())))
    readout.assign([N], [0])
    e.swap(model(2, seed=40))
    np.testing.assert_array_equal(readout.rows(), lg.Readout(e, kind, [*GROUPS, 0]).rows())
    e.rescale()
    e.apply(updates(("set_features", N, row(3))))
    assert readout.rows().shape == (3, 2)
    np.testing.assert_array_equal(readout.rows(), lg.Readout(e, kind, [*GROUPS, 0]).rows())
    readout.verify()


def test_what_if_and_failed_batches_leave_it_alone():
    e = engine()
    readout = lg.Readout(e, "add")
    before = readout.rows().tobytes()
    with e.what_if(updates(("add_vertex", N, row()))):
        assert readout.rows().tobytes() == before
    with pytest.raises(lg.errors.RangeOverflow):
        e.apply(updates(("add_vertex", N, row(scale=1e6)), ("add_edge", N, 0)))
    assert (readout.rows().tobytes(), readout.version) == (before, 0)
    e.apply(updates(("add_edge", 0, 3)))
    readout.verify()


class Interrupted(Joined):
    """A pool in which Ctrl-C strikes."""

    strike = True

    def move(self, moves, rows):
        if self.strike:
            raise KeyboardInterrupt
        super().move(moves, rows)


def test_an_interruption_half_way_is_mended_for_the_next_reader():
    e = engine()
    readout = lg.Readout(e, "add", GROUPS)
    readout.assign([N], [1])
    readout._pool.__class__ = Interrupted
    with pytest.raises(KeyboardInterrupt):
        e.apply(updates(("add_vertex", N, row()), ("remove_vertex", 5)))
    assert e.version == 1
    assert readout.group_ids.tolist() == [1, 2, 4]
    np.testing.assert_array_equal(readout.rows([1]), e.embeddings([N]))
    assert readout.version == 1
    readout.verify()


def test_a_batch_that_was_missed_is_made_up_for():
    e = engine()
    readout = lg.Readout(e, "add", GROUPS)
    followers, e._followers = e._followers, []
    readout.assign([N], [1])
    e.apply(updates(("add_vertex", N, row()), ("remove_vertex", 5)))
    e._followers = followers
    assert readout.version == 0
    e.apply(updates(("set_features", 0, row())))
    assert readout.version == 2
    assert readout.group_ids.tolist() == [1, 2, 4]
    readout.verify()


def test_a_closed_readout_keeps_its_last_rows():
    e = engine()
    readout, follows = lg.Readout(e), lg.Readout(e)
    before = readout.rows()
    readout.close()
    readout.close()
    e.apply(updates(("set_features", 0, row())))
    np.testing.assert_array_equal(readout.rows(), before)
    assert (follows.rows() != before).any()
    with pytest.raises(lg.errors.UsageError, match="closed"):
        readout.verify()
    e.close()
    e.graph.apply(updates(("add_vertex", N, row())))
    assert follows.version == 1
    with pytest.raises(lg.errors.UsageError, match="closed"):
        lg.Readout(e)


def test_readers_in_other_threads_see_whole_versions():
    e = engine()
    readout = lg.Readout(e, "add", GROUPS)
    known, seen, done = {readout.rows().tobytes()}, [], threading.Event()

    def read():
        while not done.is_set():
            seen.append(readout.rows().tobytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for k in range(100):
            e.apply(updates(("set_features", list(range(N)), array(N, 4, seed=100 + k))))
            known.add(readout.rows().tobytes())
    finally:
        done.set()
        reader.join(60)
    assert len(known) == 101
    assert set(seen) <= known


# ---- audits and options


@pytest.mark.parametrize("kind", PYG)
def test_verify_names_the_group(kind):
    e = engine()
    readout = lg.Readout(e, kind, GROUPS)
    [pool] = readout._pool.pools.values()
    array_ = pool._top if kind == "max" else pool._planes
    array_[readout._names.index[2]] += 1
    with pytest.raises(lg.errors.StateMismatch, match=f"the {kind} of group 2"):
        readout.verify()


def test_verify_judges_rows_by_a_run_from_scratch(monkeypatch):
    e = engine()
    readout = lg.Readout(e)
    fresh = e.recompute()
    fresh[3, 1] += 1
    monkeypatch.setattr(e, "recompute", lambda: fresh)
    with pytest.raises(lg.errors.StateMismatch, match="group 0"):
        readout.verify()


def test_bad_arguments_are_named():
    e = engine()
    with pytest.raises(lg.errors.UsageError, match="livegnn Engine, got Graph"):
        lg.Readout(e.graph)
    with pytest.raises(lg.errors.ValueInvalid, match="one of add, mean, max, got 'sum'"):
        lg.Readout(e, "sum")
    with pytest.raises(lg.errors.WidthMismatch, match="6 rows"):
        lg.Readout(e, "add", [0, 1])
    with pytest.raises(lg.errors.ValueInvalid, match="at least 0, got -1 at row 5"):
        lg.Readout(e, "add", [0, 1, 2, 3, 4, -1])
    with pytest.raises(lg.errors.DtypeInvalid, match="groups as int64"):
        lg.Readout(e, "add", [0.5] * N)
    with pytest.raises(lg.errors.UsageError, match="head as a Model"):
        lg.Readout(e, head=3)
    for groups in (None, lambda ids: [0] * len(ids)):
        with pytest.raises(lg.errors.UsageError, match="made with an array"):
            lg.Readout(e, "add", groups).assign([0], [1])
    readout = lg.Readout(e, "add", GROUPS)
    for ids, groups in (([0, 1], [1]), ([0, 1], [1, -1])):
        with pytest.raises(ValueError, match="assign"):
            readout.assign(ids, groups)
    readout.verify()


def test_state_bytes_by_part():
    sizes = lg.Readout(engine()).state_bytes()
    assert list(sizes) == ["rows", "groups", "pool"]
    assert sizes["rows"] == N * 3 * 4
    assert sizes["pool"] >= 9 * 3 * 8


@pytest.mark.parametrize("mode", ["on_demand", "hybrid"])
def test_on_demand_a_read_completes_the_engine(mode):
    e, twin = engine(mode=mode), engine()
    readout, follower = lg.Readout(e, "max", GROUPS), lg.Readout(twin, "max", GROUPS)
    batches = [
        (("add_vertex", N, row()), ("remove_vertex", 5), ("set_features", 0, row(3))),
        (("add_edge", N, 1), ("remove_vertex", 4)),
        (("add_vertex", 5, row(4)), ("set_features", 2, row(5))),
    ]
    for batch, new in zip(batches, (N, 99, 5), strict=True):
        for each in (readout, follower):
            each.assign([new], [9])
        e.apply(updates(*batch))
        twin.apply(updates(*batch))
    assert e.native.pending()
    assert (readout.version, readout.group_ids.tolist()) == (3, follower.group_ids.tolist())
    assert e.native.pending()  # versions and groups ask for no rows
    np.testing.assert_array_equal(readout.rows(), follower.rows())
    assert not e.native.pending()
    readout.verify()


def test_on_demand_rows_that_other_reads_published_are_taken():
    e = engine(mode="on_demand")
    readout, late = lg.Readout(e, "add"), lg.Readout(e, "add")
    e.apply(updates(("set_features", 0, row(3))))
    e.embeddings([0, 1])
    readout.verify()
    e.apply(updates(("set_features", 0, row(4)), ("remove_edge", 0, 1)))
    e.complete()
    for each in (readout, late):
        each.verify()
    e.swap(model(2, seed=40))
    e.apply(updates(("set_features", 1, row(5))))
    readout.verify()
    e.close()
    np.testing.assert_array_equal(readout.rows(), late.rows())


def test_on_demand_more_changes_than_are_noted():
    count = 600
    graph = lg.Graph(np.eye(1, 3, dtype=np.float32).repeat(count, 0), [0], [1])
    e = lg.Engine(lg.Model([lg.layers.Dense(np.eye(3))]), graph, mode="on_demand", threads=1)
    readout = lg.Readout(e, "add")
    for scale in range(1, 7):
        e.apply(updates(*(("set_features", v, [scale, 0, 0]) for v in range(count))))
        e.complete()
    assert e.native.changed_since(0) is None
    readout.verify()


def test_what_on_demand_cannot_complete_is_raised_and_closing_stays():
    e = engine(mode="on_demand")
    readout = lg.Readout(e, "add")
    e.apply(updates(("set_features", 0, row(scale=1e30))))
    with pytest.raises(lg.errors.RangeOverflow):
        readout.rows()
    e.close()
    assert readout.rows().shape == (1, 3)


def typed_engine(**options):
    return lg.Engine(by_hand(), shop(), threads=1, **options)


@pytest.mark.parametrize("mode", ["eager", "on_demand"])
def test_rows_of_one_type_are_pooled(mode):
    e = typed_engine(mode=mode)
    users = lg.Readout(e, "max", [7, 8, 7], vertex_type="User")
    items = lg.Readout(e, "add", vertex_type="Item")
    users.assign([3], [8])
    batch = lg.Updates()
    batch.remove_vertex(2, vertex_type="User")
    batch.add_vertex(2, [5, 6], vertex_type="Item")  # takes the slot of the user
    batch.add_vertex(3, [1, 2, 3], vertex_type="User")
    batch.add_edge(0, 2, edge_type="Buy")
    batch.add_edge(2, 1, edge_type="Bought")
    e.apply(batch)
    rows = e.embeddings([0, 1, 3], vertex_type="User")
    np.testing.assert_array_equal(users.rows([7, 8]), [rows[0], rows[1:].max(0)])
    np.testing.assert_array_equal(items.rows(), e.embeddings([0, 1, 2], vertex_type="Item").sum(0, keepdims=True))
    for readout in (users, items):
        readout.verify()


def test_the_type_of_a_readout_is_checked():
    e = typed_engine()
    with pytest.raises(lg.errors.ColumnMissing, match="expected vertex_type="):
        lg.Readout(e)
    with pytest.raises(lg.errors.ModelMismatch, match=r"an output for .*, got 'Tag'"):
        lg.Readout(e, vertex_type="Tag")
    with pytest.raises(lg.errors.ColumnMissing, match="one kind of vertex"):
        lg.Readout(engine(), vertex_type="User")
    e.close()
