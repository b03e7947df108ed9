"""An engine over vertex types, call by call: everything that is read or written names its type."""

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import (
    ColumnMissing,
    ModelError,
    ModelMismatch,
    ModelUnsupported,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.graph.ids import NamedIds
from livegnn.models import ir
from livegnn.models.edges import ByRelation, Gather, Source
from tests.unit.models.hetero_samples import BUY, FOLLOW, TRIPLES, TYPES, Net, by_hand, shop


def engine(**options):
    return lg.Engine(by_hand(), shop(), threads=1, **options)


def updates(*calls):
    made = lg.Updates()
    for name, *arguments, options in calls:
        getattr(made, name)(*arguments, **options)
    return made


def test_every_type_has_rows_of_its_own_width():
    e = engine()
    np.testing.assert_array_equal(
        e.embeddings([0, 1], vertex_type="User"), [[0, 0, 1, 0, 0], [0, 1, 0, 1, 0]], strict=False
    )
    np.testing.assert_array_equal(e.embeddings([0, 1], vertex_type="Item"), [[1, 0, 0], [0, 1, 1]])
    assert e.embeddings([], vertex_type="Item").shape == (0, 3)
    assert e.model.input_widths == {"User": 3, "Item": 2}
    assert e.model.output_widths == {"User": 5, "Item": 3}
    assert repr(e.model).startswith("Model(User 3, Item 2 -> User 5, Item 3, depth 1")


def test_recompute_gives_rows_by_slot_padded_to_the_widest_type():
    e = engine()
    rows = e.recompute()
    slots = e.graph.to_slots([0, 1], vertex_type="Item")
    np.testing.assert_array_equal(rows[slots], [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0]])


def test_changes_are_by_type():
    e = engine()
    changes = e.apply(updates(("set_features", 0, [0, 0, 7], {"vertex_type": "User"})))
    assert {name: ids.tolist() for name, ids in changes.vertices.items()} == {"User": [0], "Item": [0]}
    assert len(changes) == 2
    changes = e.apply(updates(("add_edge", 0, 1, {"edge_type": "Follow"})))
    assert changes.vertices == {}  # this model does not follow


def test_a_slot_that_goes_from_one_type_to_another():
    e = engine()
    slot = e.graph.to_slots([2], vertex_type="User")
    batch = updates(
        ("remove_vertex", 2, {"vertex_type": "User"}),
        ("add_vertex", 2, [5, 6], {"vertex_type": "Item"}),
        ("add_edge", 0, 2, {"edge_type": "Buy"}),
        ("add_edge", 2, 1, {"edge_type": "Bought"}),
    )
    changes = e.apply(batch)
    assert e.graph.to_slots([2], vertex_type="Item").tolist() == slot.tolist()
    assert {name: ids.tolist() for name, ids in changes.vertices.items()} == {"User": [1], "Item": [1, 2]}
    np.testing.assert_array_equal(e.embeddings([2], vertex_type="Item"), [[1, 0, 0]])
    np.testing.assert_array_equal(e.embeddings([1], vertex_type="User"), [[2.5, 3.5, 0, 1, 0]])
    with pytest.raises(VertexUnknown):
        e.embeddings([2], vertex_type="User")
    e.verify()


def test_an_equal_row_of_another_type_is_a_new_vertex():
    """In one batch: neither the slot's liveness nor the bits of its features change."""
    graph = lg.Graph({"User": np.zeros((1, 3), np.float32), "Item": np.zeros((1, 2), np.float32)}, {BUY: []}, {BUY: []})
    x = ir.Input(3)
    ones = [ir.Linear(ir.OfType(x, code, 3 - code), np.zeros((1, 3 - code)), np.ones(1) + code) for code in (0, 1)]
    e = lg.Engine(lg.Model.from_output(ir.ByType(tuple(ones)), vertex_types=TYPES, edge_types=[BUY]), graph)
    batch = updates(("remove_vertex", 0, {"vertex_type": "User"}), ("add_vertex", 1, [0, 0], {"vertex_type": "Item"}))
    assert e.apply(batch).vertices["Item"].tolist() == [1]
    assert e.embeddings([0, 1], vertex_type="Item").tolist() == [[2], [2]]
    e.verify()


def test_predictions():
    e = lg.Engine(lg.from_pyg(Net()), shop())
    rows = e.embeddings([0, 1, 2], vertex_type="User")
    assert e.predict([0, 1, 2], vertex_type="User").tolist() == rows.argmax(1).tolist()
    scores = e.embeddings([0], vertex_type=0)
    np.testing.assert_allclose(e.predict([0], vertex_type="Item"), 1 / (1 + np.exp(-scores[:, 0])), rtol=1e-6)
    assert e.predict([0], lambda rows: rows.sum(1), vertex_type="Item").shape == (1,)
    pairs = e.predict_edges([(0, 1), (2, 2)], vertex_types=("User", "User"))
    np.testing.assert_allclose(pairs, [rows[0] @ rows[1], rows[2] @ rows[2]], rtol=1e-6)
    with pytest.raises(WidthMismatch, match="expected outputs of one width, got 4 and 1"):
        e.predict_edges([(0, 0)], vertex_types=("User", "Item"))
    with pytest.raises(ColumnMissing, match="vertex_types="):
        e.predict_edges([(0, 0)])


def test_pairs_are_scored_by_the_models_edge_head():
    plain, weight = by_hand(), np.arange(10, dtype=np.float32)[None]
    scored = lg.Model.from_output(
        plain.output, edge_head=ir.Linear(ir.Input(10), weight), vertex_types=TYPES, edge_types=TRIPLES
    )
    e = lg.Engine(scored, shop(), threads=1)
    rows = e.embeddings([0, 1], vertex_type="User")
    expected = [weight[0] @ rows.ravel(), weight[0] @ rows[::-1].ravel()]
    assert expected[0] != expected[1]
    pairs, users = [(0, 1), (1, 0)], {"vertex_types": ("User", "User")}
    np.testing.assert_allclose(e.predict_edges(pairs, **users), expected, rtol=1e-6)
    with e.snapshot() as view:
        np.testing.assert_allclose(view.predict_edges(pairs, **users), expected, rtol=1e-6)
    with pytest.raises(WidthMismatch, match=r"width 5, as the model's edge_head takes, got 5 and 3"):
        e.predict_edges([(0, 0)], vertex_types=("User", "Item"))


def test_both_ends_of_a_pair_are_of_one_version(monkeypatch):
    e = engine()
    before = e.predict_edges([(0, 1)], vertex_types=("User", "User")).tolist()
    batch = updates(*(("set_features", u, [9, 9, 9], {"vertex_type": "User"}) for u in (0, 1)))
    looked_up, plain = [], NamedIds.slots

    def slots(ids, *arguments, **options):
        looked_up.append(arguments)
        if len(looked_up) == 2:  # the first end of the pair has been looked up
            e.apply(batch)
        return plain(ids, *arguments, **options)

    monkeypatch.setattr(NamedIds, "slots", slots)
    scores = e.predict_edges([(0, 1)], vertex_types=("User", "User")).tolist()
    after = e.predict_edges([(0, 1)], vertex_types=("User", "User")).tolist()
    assert scores in (before, after)
    assert before != after


def test_what_if_puts_types_back():
    e = engine()
    before, digest = e.embeddings([0, 1, 2], vertex_type="User"), e.state_digest()
    batch = updates(
        ("remove_vertex", 2, {"vertex_type": "User"}),
        ("add_vertex", 2, [5, 6], {"vertex_type": "Item"}),
        ("add_edge", 2, 0, {"edge_type": "Bought"}),
    )
    with e.what_if(batch) as view:
        assert view.embeddings([0], vertex_type="User").tolist() == [[5, 6, 1, 0, 0]]
        assert view.embeddings([2], vertex_type="Item").tolist() == [[0, 0, 0]]
        assert view.predict([0], vertex_type="User").tolist() == [1]
        assert view.predict_edges([(0, 0)], vertex_types=("User", "User")).tolist() == [62]
        assert len(view.vertices) == 3
        with pytest.raises(ColumnMissing):
            view.embeddings([0])
    with pytest.raises(UsageError, match="inside its with block"):
        view.embeddings([0], vertex_type="User")
    np.testing.assert_array_equal(e.embeddings([0, 1, 2], vertex_type="User"), before)
    assert e.state_digest() == digest
    e.verify()


def test_a_batch_that_fails_leaves_everything():
    e = engine()
    digest = e.state_digest()
    batch = updates(
        ("remove_vertex", 2, {"vertex_type": "User"}),
        ("add_vertex", 2, [5, 6], {"vertex_type": "Item"}),
        ("set_features", 1, [1e30, 0], {"vertex_type": "Item"}),
    )
    with pytest.raises(lg.errors.RangeOverflow):
        e.apply(batch)
    assert e.state_digest() == digest
    e.verify()


def test_saved_engines_come_back(tmp_path):
    e = lg.Engine(lg.from_pyg(Net()), shop())
    e.apply(
        updates(("remove_vertex", 0, {"vertex_type": "Item"}), ("add_vertex", 3, [1, 2, 3], {"vertex_type": "User"}))
    )
    e.save(tmp_path / "shop.lg")
    again = lg.Engine.load(tmp_path / "shop.lg")
    assert again.state_digest() == e.state_digest()
    assert again.model.edge_types == e.model.edge_types
    np.testing.assert_allclose(
        again.embeddings([3], vertex_type="User"), e.embeddings([3], vertex_type="User"), rtol=1e-6
    )


def test_the_history_does_not_matter():
    """Another order of the same updates, one by one: the same digest."""
    calls = [
        ("set_features", 0, [1, 2], {"vertex_type": "Item"}),
        ("add_edge", 1, 0, {"edge_type": "Buy"}),
        ("add_edge", 0, 2, {"edge_type": "Bought"}),
        ("remove_edge", 0, 2, {"edge_type": "Follow"}),
    ]
    at_once, one_by_one = (lg.Engine(lg.from_pyg(Net()), shop()) for _ in range(2))
    at_once.apply(updates(*calls))
    for call in reversed(calls):
        one_by_one.apply(updates(call))
    assert at_once.state_digest() == one_by_one.state_digest()


def test_swap_and_callbacks_and_rescale():
    e = engine()
    heard = []
    e.on_change(lambda changes: heard.append(changes.vertices))
    e.apply(updates(("add_edge", 0, 1, {"edge_type": BUY})))
    assert [{name: ids.tolist() for name, ids in each.items()} for each in heard] == [{"Item": [1]}]
    e.swap(lg.from_pyg(Net()))
    assert e.embeddings([0], vertex_type="User").shape == (1, 4)
    e.rescale()
    e.verify()


def test_the_graph_may_number_its_types_otherwise_and_have_more():
    graph = shop()
    assert graph.vertex_types == ("Item", "User", "Tag")
    e = lg.Engine(by_hand(), graph)
    with pytest.raises(ModelMismatch, match=r"an output for \('User', 'Item'\), got 'Tag'"):
        e.embeddings([0], vertex_type="Tag")
    with pytest.raises(ModelMismatch):
        e.predict([0], vertex_type="Tag")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda e: e.embeddings([0]), ColumnMissing, "vertex_type= among 'Item', 'User', 'Tag', got none"),
        (lambda e: e.embeddings([0], vertex_type="Shop"), ValueInvalid, "got 'Shop'"),
        (lambda e: e.embeddings([9], vertex_type="Item"), VertexUnknown, "got 9 at row 0"),
        (lambda e: e.predict([0]), ColumnMissing, "vertex_type="),
        (lambda e: lg.Readout(e, "add"), ColumnMissing, "expected vertex_type="),
        (lambda e: e.swap(lg.Model([lg.layers.LG()], input_width=3)), ModelUnsupported, "a model over vertex types"),
    ],
)
def test_bad_calls(call, error, text):
    e = engine()
    with pytest.raises(error, match=text):
        call(e)
    e.verify()


def test_a_sampled_engine_is_for_one_kind_of_vertex():
    with pytest.raises(ValueInvalid, match=r"expected strategy to be .* for a model over vertex types"):
        engine(strategy="sampled")


def test_models_and_graphs_that_do_not_fit():
    flat = lg.Graph(np.eye(3, dtype=np.float32), [0], [1])
    with pytest.raises(ModelUnsupported, match="a graph with vertex types 'User', 'Item'"):
        lg.Engine(by_hand(), flat)
    e = lg.Engine(lg.Model([lg.layers.LG()], input_width=3), flat)
    for call in (lambda: e.embeddings([0], vertex_type="User"), lambda: e.predict_edges([(0, 1)], vertex_types=(0, 0))):
        with pytest.raises(ColumnMissing, match="expected no vertex_type"):
            call()
    narrow = lg.Graph(
        {"User": np.eye(2, dtype=np.float32), "Item": np.ones((1, 2), np.float32)},
        {triple: [] for triple in TRIPLES},
        {triple: [] for triple in TRIPLES},
    )
    with pytest.raises(ModelMismatch, match="features of width 3 for vertices of type 'User'"):
        lg.Engine(by_hand(), narrow)
    fewer = lg.Graph({"User": np.eye(3, dtype=np.float32), "Item": np.ones((1, 2), np.float32)}, {BUY: [0]}, {BUY: [0]})
    with pytest.raises(ModelMismatch, match=r"edge type \('User', 'Follow', 'User'\)"):
        lg.Engine(by_hand(), fewer)
    other = lg.Graph({"User": np.eye(3, dtype=np.float32)}, {FOLLOW: [0]}, {FOLLOW: [1]})
    with pytest.raises(ModelMismatch, match="vertex type 'Item'"):
        lg.Engine(by_hand(), other)


def test_readers_see_whole_versions_while_slots_change_types():
    """One thread writes, one reads: a row is always one of those that the vertex has had."""
    import threading

    e = engine()
    seen, done = [], threading.Event()

    def read():
        while not done.is_set():
            seen.append(e.embeddings([0], vertex_type="Item")[0].tolist())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        e.apply(
            updates(("remove_vertex", 2, {"vertex_type": "User"}), ("add_vertex", 2, [1, 1], {"vertex_type": "Item"}))
        )
        e.apply(
            updates(
                ("remove_vertex", 2, {"vertex_type": "Item"}),
                ("add_vertex", 2, [0, 0, 1], {"vertex_type": "User"}),
                ("add_edge", 2, 0, {"edge_type": "Buy"}),
            )
        )
    done.set()
    reader.join()
    assert seen
    assert all(row in ([1, 0, 0], [1, 0, 1]) for row in seen)
    e.verify()


def test_values_of_two_types_do_not_meet():
    x = ir.Input(3)
    users, items = ir.OfType(x, 0, 3), ir.OfType(x, 1, 3)
    for bad, text in (
        (lambda: ir.Combine(((1.0, users), (1.0, items))), "rows of one vertex type"),
        (lambda: ir.Propagate(users), "name both"),
        (lambda: ir.Propagate(users, "gcn", relation=0, target=1), "within one vertex type"),
        (lambda: ir.ByType((users, users)), "one value for each"),
        (lambda: ir.ByType(()), "one value for each"),
        (lambda: ir.OfType(users, 0, 1), "the model's Input"),
        (lambda: lg.Model.from_output(users), "a ByType as the output"),
        (lambda: lg.Model.from_output(x, vertex_types=["User"]), "a ByType as the output"),
        (lambda: lg.Model.from_output(ir.ByType((items,)), vertex_types=["User"]), "types below 1"),
    ):
        with pytest.raises(ModelError, match=text):
            bad()
    with pytest.raises(WidthMismatch):
        ir.OfType(x, 0, 4)
    sources = (Source(ir.Slice(users, 0, 2)), Source(ir.Slice(items, 0, 2)))  # turned round
    several = Gather(ByRelation(sources, (2, 1)), relation=(2, 1), target=0)
    for along in (
        ir.Propagate(users, relation=2, target=0),
        ir.Propagate(users, relation=0, target=0),
        ir.Propagate(users, relation=3, target=0),
        several,
    ):
        with pytest.raises(ModelError, match="go along edges of their relation"):
            lg.Model.from_output(ir.ByType((along,)), vertex_types=TYPES, edge_types=TRIPLES)


def test_the_module_is_the_truth():
    e = lg.Engine(lg.from_pyg(Net()), shop())
    edges = {BUY: [[0, 1, 2], [0, 1, 1]], FOLLOW: [[0, 0], [2, 2]], TRIPLES[2]: [[0], [1]]}
    x = {"User": torch.eye(3), "Item": torch.arange(4.0).reshape(2, 2)}
    with torch.no_grad():
        want = Net()(x, {triple: torch.tensor(pairs) for triple, pairs in edges.items()})
    for name, rows in want.items():
        np.testing.assert_allclose(e.embeddings(range(len(rows)), vertex_type=name), rows, rtol=1e-5, atol=1e-6)
