"""The engine by example: writing, callbacks, what_if, swap, rescale, audits, options."""

import logging
import re

import numpy as np
import pytest

import livegnn as lg
from tests.unit.inference.samples import (
    DST,
    INT_IDS,
    SRC,
    STR_IDS,
    WIDTH,
    N,
    array,
    engine,
    graph,
    model,
    row,
    updates,
    weighted_gcn,
    weighted_graph,
)

# ---- apply


def test_apply_tells_what_changed_and_what_it_cost():
    e = engine()
    before = e.embeddings(range(N))
    changes = e.apply(updates(("set_features", 0, row())))
    assert (changes.version, e.version, len(changes)) == (1, 1, 3)
    assert changes.vertices.tolist() == [0, 1, 2]
    assert (e.embeddings(range(N)) != before).any(axis=1).tolist() == [True, True, True, False, False, False]
    stats = changes.stats
    assert (stats.changed, [layer.affected for layer in stats.layers]) == (3, [1, 2, 3])
    assert [layer.edges > 0 for layer in stats.layers] == [True, True, False]
    assert {layer.path for layer in stats.layers[:2]} <= {"push", "pull", "sweep"}
    assert stats.layers[2].path == "none"
    seconds = [stats.topology_seconds, stats.publish_seconds, stats.total_seconds]
    assert min(seconds + [t for x in stats.layers for t in (x.transform_seconds, x.aggregate_seconds)]) >= 0
    assert stats.total_seconds > 0
    e.verify()


def test_an_empty_batch_is_a_version_that_changes_nothing():
    e = engine()
    digest = e.state_digest()
    assert len(e.apply(lg.Updates())) == 0
    assert (e.version, e.state_digest()) == (1, digest)


def test_a_bad_batch_changes_nothing():
    e = engine()
    digest, rows = e.state_digest(), e.embeddings(range(N))
    with pytest.raises(lg.errors.EdgeMissing):
        e.apply(updates(("set_features", 0, row()), ("remove_edge", 4, 0)))
    assert (e.version, e.state_digest()) == (0, digest)
    np.testing.assert_array_equal(e.embeddings(range(N)), rows)
    with pytest.raises(lg.errors.UsageError, match="Updates"):
        e.apply([("add_edge", 0, 1)])


def test_an_undirected_graph_equals_one_with_both_directions():
    one = lg.Engine(model(), lg.Graph(array(N, WIDTH), SRC, DST, undirected=True))
    plain = [(u, v) for u, v in zip(SRC, DST, strict=True) if u != v]
    src, dst = zip(*[*plain, *[(v, u) for u, v in plain], (5, 5)], strict=True)
    both = lg.Engine(model(), lg.Graph(array(N, WIDTH), src, dst), scales=one.scales)
    np.testing.assert_array_equal(one.embeddings(range(N)), both.embeddings(range(N)))
    one.apply(updates(("add_edge", 0, 4), ("remove_edge", 2, 1)))
    both.apply(updates(("add_edge", 0, 4), ("add_edge", 4, 0), ("remove_edge", 1, 2), ("remove_edge", 2, 1)))
    np.testing.assert_array_equal(one.embeddings(range(N)), both.embeddings(range(N)))
    one.verify()


# ---- callbacks


def test_callbacks_hear_of_each_version_in_order_and_may_read():
    e, heard = engine(), []
    e.on_change(lambda c: heard.append(("first", c.version, e.embeddings([0]).tobytes())))
    second = e.on_change(lambda c: heard.append(("second", c.version, e.embeddings([0]).tobytes())))
    e.apply(updates(("set_features", 0, row())))
    one = e.embeddings([0]).tobytes()
    second.cancel()
    second.cancel()
    e.graph.apply(updates(("set_features", 0, row(3))))
    assert heard == [("first", 1, one), ("second", 1, one), ("first", 2, e.embeddings([0]).tobytes())]


def test_a_callback_that_raises_is_logged_and_the_batch_stands(caplog):
    e, heard = engine(), []
    e.on_change(lambda c: 1 / 0)
    e.on_change(heard.append)
    with caplog.at_level(logging.ERROR, "livegnn"):
        changes = e.apply(updates(("add_edge", 0, 3)))
    assert heard == [changes]
    assert "version 1" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert e.version == 1
    e.verify()


def test_a_callback_may_not_write():
    e, caught = engine(), []

    def write(changes):
        with pytest.raises(lg.errors.UsageError) as error:
            e.apply(updates(("add_edge", 0, 1)))
        caught.append(error.value)

    e.on_change(write)
    e.apply(updates(("add_edge", 0, 3)))
    assert len(caught) == 1
    assert e.version == 1


# ---- what_if


@pytest.mark.parametrize(("ids", "new"), [(None, N), (INT_IDS, 7), (STR_IDS, "zoe")])
def test_what_if_shows_what_apply_would_give_and_leaves_every_bit(ids, new):
    e, twin = (lg.Engine(model(), graph(ids), threads=1) for _ in range(2))
    names = list(range(N)) if ids is None else ids
    digest, rows, scales = e.state_digest(), e.embeddings(names), twin.scales
    batch = updates(("add_vertex", new, row()), ("add_edge", new, names[0]), ("remove_vertex", names[4]))
    twin.graph.apply(batch)
    want = lg.Engine(model(), twin.graph, scales=scales).recompute()[twin.graph.to_slots([new, *names[:4]])]
    with e.what_if(batch) as view:
        np.testing.assert_array_equal(view.embeddings([new, *names[:4]]), want)
        np.testing.assert_array_equal(view.predict([new]), np.argmax(want[:1], axis=1))
        scores = view.predict_edges([(new, names[0])])
        np.testing.assert_allclose(scores, [want[0].astype(np.float64) @ want[1]], rtol=1e-6)
        assert {0, N} <= set(view.vertices.tolist())
        np.testing.assert_array_equal(e.embeddings(names), rows)
        with pytest.raises(lg.errors.VertexUnknown):
            e.embeddings([new])
    assert e.state_digest() == digest
    assert e.graph.vertices().tolist() == names
    assert e.version == 0
    with pytest.raises(lg.errors.VertexUnknown):
        e.embeddings([new])
    e.verify()


def test_a_view_lives_in_its_block_only():
    e = engine()
    view = e.what_if(updates(("add_edge", 0, 3)))
    for read in (lambda: view.embeddings([0]), lambda: view.predict([0]), lambda: view.vertices):
        with pytest.raises(lg.errors.UsageError, match="with block"):
            read()
    with view:
        view.embeddings([0])
    for read in (lambda: view.embeddings([0]), lambda: view.predict_edges([(0, 1)]), lambda: view.vertices):
        with pytest.raises(lg.errors.UsageError, match="with block"):
            read()


def test_writers_are_refused_inside_the_block():
    e = engine()
    digest, more = e.state_digest(), updates(("add_edge", 0, 1))
    with e.what_if(updates(("add_edge", 0, 3))):
        for write in (
            lambda: e.apply(more),
            lambda: e.graph.apply(more),
            e.rescale,
            lambda: e.swap(model(2)),
            e.what_if(more).__enter__,
        ):
            with pytest.raises(lg.errors.UsageError, match="what_if"):
                write()
    assert e.state_digest() == digest
    e.apply(more)
    e.verify()


def test_an_error_inside_the_block_or_on_entering_leaves_every_bit():
    e = engine()
    digest = e.state_digest()
    with pytest.raises(ZeroDivisionError), e.what_if(updates(("remove_vertex", 0))):
        raise ZeroDivisionError
    with pytest.raises(lg.errors.EdgeMissing), e.what_if(updates(("set_features", 1, row()), ("remove_edge", 0, 5))):
        pytest.fail("entered")
    with pytest.raises(lg.errors.RangeOverflow), e.what_if(updates(("set_features", 0, row(scale=1e6)))):
        pytest.fail("entered")
    assert (e.state_digest(), e.version) == (digest, 0)
    e.apply(updates(("add_edge", 0, 3)))
    e.verify()


# ---- swap, rescale


def test_swap_changes_the_model_and_follows_from_there():
    e, other = engine(), model(2, seed=50)
    e.apply(updates(("add_edge", 0, 3)))
    e.swap(other)
    np.testing.assert_array_equal(e.embeddings(range(N)), lg.Engine(other, e.graph).embeddings(range(N)))
    e.apply(updates(("set_features", 0, row())))
    assert e.model is other
    assert e.embeddings([0]).shape == (1, 2)
    e.verify()


@pytest.mark.parametrize(
    ("bad", "error"),
    [(model(width=WIDTH + 1), lg.errors.ModelMismatch), (weighted_gcn(), lg.errors.ColumnMissing)],
)
def test_a_model_that_does_not_fit_leaves_the_old_one(bad, error):
    e = engine()
    digest, old = e.state_digest(), e.model
    with pytest.raises(error):
        e.swap(bad)
    assert e.model is old
    assert e.state_digest() == digest
    e.apply(updates(("add_edge", 0, 3)))
    e.verify()
    with pytest.raises(error):
        lg.Engine(bad, graph())


def test_a_message_out_of_range_is_named_and_rolled_back():
    e = engine()
    digest, rows = e.state_digest(), e.embeddings(range(N))
    with pytest.raises(lg.errors.RangeOverflow, match=r"vertex 2 .*layer 1.*rescale"):
        e.apply(updates(("add_edge", 0, 3), ("set_features", 2, row(scale=1e6))))
    assert (e.state_digest(), e.version, e.graph.edge_count) == (digest, 0, len(SRC))
    np.testing.assert_array_equal(e.embeddings(range(N)), rows)


def test_rescale_makes_room_for_a_graph_that_has_grown(caplog):
    e = engine()
    e.apply(updates(("set_features", 2, row(scale=100.0))))
    further = updates(("set_features", 2, row(scale=10_000.0)))
    with pytest.raises(lg.errors.RangeOverflow):
        e.apply(further)
    scales = e.scales
    with caplog.at_level(logging.INFO, "livegnn"):
        e.rescale()
    assert "version 1" in caplog.text
    assert e.scales != scales
    e.apply(further)
    e.verify()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_room_that_is_missing_is_told(weighted):
    batch = updates(("set_features", 2, row(scale=1e4)))
    made = lg.Engine(weighted_gcn(), weighted_graph()) if weighted else engine()
    with pytest.raises(lg.errors.RangeOverflow, match=r"got one of [0-9.]+ times that range") as refused:
        made.apply(batch)
    times = float(re.search(r"([0-9.e+]+) times that range", str(refused.value))[1])
    made.rescale(headroom=512.0 * times / 2.0)  # units are powers of two
    with pytest.raises(lg.errors.RangeOverflow, match=r"got one of 1\.?[0-9]* times that range"):
        made.apply(batch)
    made.rescale(headroom=512.0 * times * 1.01)
    made.apply(batch)
    made.verify()


def test_a_negative_degree_is_rolled_back():
    e = lg.Engine(weighted_gcn(), weighted_graph(), threads=1)
    digest = e.state_digest()
    batch = lg.Updates()
    batch.set_features(0, row())
    batch.add_edge(0, 2, weight=-5.0)
    with pytest.raises(lg.errors.DegreeNegative, match=r"vertex 2, got -3"):
        e.apply(batch)
    assert (e.state_digest(), e.version) == (digest, 0)
    e.verify()


@pytest.mark.parametrize("mode", ["eager", "on_demand"])
def test_a_negative_weight_has_no_place_among_out_degrees(mode):
    e = lg.Engine(
        lg.Model([lg.layers.Cheb([array(2, WIDTH)] * 2, weighted=True)]), weighted_graph(), threads=1, mode=mode
    )
    digest, before = e.state_digest(), e.recompute()
    batch = lg.Updates()
    batch.set_features(0, row())
    batch.add_edge(0, 2, weight=-0.5)
    with pytest.raises(lg.errors.DegreeNegative, match=r"edge weights of at least 0 .* got -0.5\d* .* vertex 0"):
        e.apply(batch)
    assert (e.state_digest(), e.version) == (digest, 0)
    loop = lg.Updates()  # a self-loop is not among them
    loop.add_edge(4, 4, weight=-5.0)
    e.apply(loop)
    assert e.recompute().tobytes() == before.tobytes()
    e.verify()
    with pytest.raises(lg.errors.DegreeNegative, match="got -2"):
        lg.Engine(e.model, lg.Graph(array(N, WIDTH), SRC, DST, weight=np.full(len(SRC), -2.0, np.float32)))


# ---- several engines


def test_engines_on_one_graph_take_a_batch_all_or_none():
    g = graph()
    wide, narrow = (lg.Engine(m, g, threads=1) for m in (model(), lg.Model([lg.layers.SAGE(array(2, WIDTH))])))
    roomy = lg.Engine(model(), g, threads=1)
    roomy.rescale(2.0**14)  # room for what the other two refuse
    heard = []
    for e in (roomy, wide, narrow):
        e.on_change(heard.append)
    digests = [e.state_digest() for e in (roomy, wide, narrow)]
    with pytest.raises(lg.errors.RangeOverflow):
        roomy.apply(updates(("set_features", 0, row(scale=1e6))))
    assert [e.state_digest() for e in (roomy, wide, narrow)] == digests
    assert (g.version, heard) == (0, [])
    changes = wide.apply(updates(("set_features", 0, row())))
    assert [c.version for c in heard] == [1, 1, 1]
    assert heard[0] is changes
    for e in (roomy, wide, narrow):
        e.verify()


def test_a_closed_engine_keeps_its_last_outputs():
    g = graph()
    closed, open_ = lg.Engine(model(), g), lg.Engine(model(), g)
    rows = closed.embeddings(range(N))
    closed.close()
    open_.apply(updates(("set_features", 0, row())))
    np.testing.assert_array_equal(closed.embeddings(range(N)), rows)
    assert (open_.embeddings(range(N)) != rows).any()


# ---- audits and options


def test_verify_names_what_differs():
    e = engine()
    e.verify()
    e.native.corrupt_for_test(1, 3, 0)
    with pytest.raises(lg.errors.StateMismatch, match=r"aggregation 2 .*vertex 3"):
        e.verify()


def test_the_digest_is_of_content_and_not_of_history():
    one, two = engine(), engine()
    one.apply(updates(("add_edge", 0, 3), ("add_edge", 4, 1)))
    two.apply(updates(("add_edge", 4, 1)))
    assert one.state_digest() != two.state_digest()
    two.apply(updates(("add_edge", 0, 3)))
    assert one.state_digest() == two.state_digest()
    assert one.state_digest() != lg.Engine(model(seed=9), one.graph, scales=one.scales).state_digest()


def test_given_scales_are_kept():
    e = engine()
    coarser = [[x - 3 for x in exponents] for exponents in e.scales[:-1]] + e.scales[-1:]
    other = engine(scales=coarser)
    assert other.scales == coarser != e.scales
    assert other.state_digest() != e.state_digest()
    other.verify()


def test_state_bytes_by_part():
    sizes = engine().state_bytes()
    assert list(sizes) == ["aggregates", "messages", "stored", "contexts", "outputs", "scratch"]
    assert sizes["aggregates"] >= N * (WIDTH + 5) * 4
    assert sizes["outputs"] >= N * 3 * 4
    assert lg.Engine(weighted_gcn(), weighted_graph()).state_bytes()["contexts"] > sizes["contexts"]


def test_things_that_are_not_livegnn_s_are_refused_by_name():
    e = engine()
    with pytest.raises(lg.errors.UsageError, match=r"livegnn Model, got object; .*from_pyg\(module\)"):
        lg.Engine(object(), e.graph)
    with pytest.raises(lg.errors.UsageError, match="livegnn Graph, got Model"):
        lg.Engine(model(), model())
    with pytest.raises(lg.errors.UsageError, match="from_pyg"):
        e.swap(object())
    with pytest.raises(lg.errors.UsageError, match="function of one Changes, got 3"):
        e.on_change(3)
    with pytest.raises(lg.errors.WidthMismatch, match=r"got 7; pass .* \[7\]"):
        e.predict(7)


def test_what_if_names_the_vertices_that_apply_would():
    e = engine()
    batch = updates(
        ("remove_vertex", 1),
        ("add_vertex", N, row()),
        ("remove_vertex", N),
        ("remove_vertex", 2),
        ("add_vertex", 2, row()),
    )
    with e.what_if(batch) as view:
        supposed = view.vertices.tolist()
        e.verify()
    assert supposed == e.apply(batch).vertices.tolist()
    assert {1, 2, N} & set(supposed) == {2}


def test_a_compact_state_keeps_no_rows_between_batches():
    g = lg.Graph(array(2000, WIDTH), np.arange(1999), np.arange(1, 2000))
    fast, compact = lg.Engine(model(), g), lg.Engine(model(), g, state="compact")
    batch = updates(("set_features", 0, row()), ("add_edge", 0, 3))
    assert 0 in compact.apply(batch).vertices
    assert compact.state_digest() == fast.state_digest()
    kept, without = fast.state_bytes(), compact.state_bytes()
    assert without["aggregates"] == kept["aggregates"]
    assert without["messages"] < kept["messages"]
    compact.verify()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "fast"}, "strategy .*incremental.*'fast'"),
        ({"path": None}, "path .*push.*None"),
        ({"state": "small"}, "state .*compact.*'small'"),
        ({"state": "compact", "strategy": "khop"}, "incremental.*compact.*'khop'"),
        ({"threads": 0}, "1 to 256 threads, got 0"),
        ({"threads": 100_000}, "1 to 256 threads, got 100000"),
        ({"threads": True}, "threads, got True"),
        ({"threads": 1.0}, "threads, got 1.0"),
        ({"fanout": 0}, "fanout .*0"),
    ],
)
def test_bad_options_are_named_and_attach_nothing(options, words):
    g = graph()
    with pytest.raises(lg.errors.ValueInvalid, match=words):
        lg.Engine(model(), g, **options)
    assert g.host.consumers == ()


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda e: lg.Engine(e.model, e.graph, seed="a"), "ValueInvalid", "seed as an int"),
        (lambda e: lg.Engine(e.model, e.graph, scales=[1]), "WidthMismatch", "lists of exponents, got"),
        (lambda e: e.what_if(None).__enter__(), "UsageError", "updates as a livegnn Updates, got NoneType"),
        (lambda e: e.predict([1], head="foo"), "UsageError", "head as a function of rows, got 'foo'"),
        (lambda e: e.rescale(headroom="x"), "ValueInvalid", "headroom from 1 to 2"),
    ],
)
def test_arguments_of_another_type_are_named(call, error, says):
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0, 1], [1, 2])
    engine = lg.Engine(lg.Model([lg.layers.LG()], input_width=4), graph)
    with pytest.raises(getattr(lg.errors, error), match=says):
        call(engine)
    assert engine.version == 0
    engine.verify()
