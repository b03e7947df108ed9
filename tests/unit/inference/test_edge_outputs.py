"""Rows of edges: how edges are named, what is refused, and what saving, swaps, files and names leave as it is."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import livegnn as lg
from livegnn.models import edge_level, edges, ir
from livegnn.models.model import Model

F, A = 3, 2


def edge_model(seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    x = ir.Propagate(ir.Input(F), "mean")
    w, v, own = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, F), (2, F), (2, A)))
    terms = [(1.0, edges.Source(ir.Linear(x, w))), (1.0, edges.Target(ir.Linear(x, v)))]
    terms += [] if weighted else [(1.0, ir.Linear(edges.EdgeAttribute(A), own))]
    row = ir.Combine(tuple(terms))
    return Model.from_edges(ir.Multiply(row, edges.EdgeWeight()) if weighted else row)


def graph(**options):
    rng = np.random.default_rng(1)
    x, attr = rng.standard_normal((5, F)).astype(np.float32), rng.standard_normal((6, A)).astype(np.float32)
    return lg.Graph(x, [0, 1, 2, 3, 3, 2], [1, 2, 3, 4, 4, 2], edge_attr=attr, **options)


def added(u, v, attr=(1.0, 2.0), **columns):
    updates = lg.Updates()
    updates.add_edge(u, v, edge_attr=np.array(attr, np.float32), **columns)
    return updates


def test_less_is_kept_of_a_vertex_where_both_ends_read_one_row():
    model = edge_model()
    assert model.output.width == F  # not 2 + 2
    assert model.edge_output.width == 2
    size = f"depth 1, {len(ir.walk(model.edge_output))} values, weights none, edge attributes {A}"
    assert repr(model) == f"Model({F} -> 2 per edge, {size})"


def test_wider_rows_stay_at_their_vertices():
    x = ir.Input(8)
    one, other = (np.ones((2, 8), np.float32) * k for k in (1, 2))
    ends = (edges.Source(ir.Linear(x, one)), edges.Target(ir.Linear(x, other)))
    assert Model.from_edges(ir.Concat(ends)).output.width == 4


def test_a_row_that_is_itself_side_by_side():
    x = ir.Input(F)
    both = ir.Concat((x, ir.Propagate(x)))
    engine = lg.Engine(Model.from_edges(edges.Target(both)), lg.Graph(np.eye(F, dtype=np.float32), [0, 2], [1, 1]))
    np.testing.assert_array_equal(engine.edge_outputs([(0, 1)]), [[0, 1, 0, 1, 0, 1]])


def test_names_of_edges():
    engine = lg.Engine(edge_model(), graph())
    every = engine.graph.edges()
    rows = engine.edge_outputs(every)
    assert (rows.shape, rows.dtype) == ((6, 2), np.float32)
    np.testing.assert_array_equal(rows, engine.edge_outputs(every["id"]))
    np.testing.assert_array_equal(rows, engine.recompute_edges())
    np.testing.assert_array_equal(engine.edge_outputs([(3, 4), (2, 2)]), rows[[4, 5]])
    np.testing.assert_array_equal(engine.edge_outputs([5, 0, 0]), rows[[5, 0, 0]])
    for nothing in (np.zeros(0, np.int64), np.zeros((0, 2), np.int64), []):
        assert engine.edge_outputs(nothing).shape == (0, 2)


def test_edges_that_are_not_there():
    engine = lg.Engine(edge_model(), graph())
    with pytest.raises(lg.errors.EdgeMissing, match=r"expected an edge 1 -> 0, got none \(version 0\); add it first"):
        engine.edge_outputs([(0, 1), (1, 0)])
    for unknown in (6, -1):
        with pytest.raises(lg.errors.EdgeMissing, match=f"expected an edge with id {unknown}, got none"):
            engine.edge_outputs([0, unknown])
    with pytest.raises(lg.errors.EdgeMissing, match="expected an edge 0 -> 1 with id 3, got none"):
        engine.edge_outputs({"src": [0], "dst": [1], "id": [3]})
    with pytest.raises(lg.errors.VertexUnknown):
        engine.edge_outputs([(0, 9)])
    with pytest.raises(lg.errors.ValueInvalid, match="got no id; pass what"):
        engine.edge_outputs({"src": [0], "dst": [1]})
    with pytest.raises(lg.errors.ValueInvalid, match="edge ids of at least 0, got -1"):
        engine.edge_outputs({"src": [0], "dst": [1], "id": [-1]})
    with pytest.raises(lg.errors.WidthMismatch, match="pairs of shape"):
        engine.edge_outputs(np.zeros((2, 3), np.int64))
    engine.apply(added(1, 0))
    gone = lg.Updates()
    gone.remove_edge(3, 4)
    engine.apply(gone)
    assert engine.edge_outputs([6, 3]).shape == (2, 2)
    with pytest.raises(lg.errors.EdgeMissing, match="id 4"):
        engine.edge_outputs([4])


def test_a_model_has_rows_of_edges_or_of_vertices():
    engine = lg.Engine(edge_model(), graph())
    for read in (engine.embeddings, engine.predict):
        with pytest.raises(
            lg.errors.ModelMismatch, match=r"one row per vertex, got one with one row per edge; read edge"
        ):
            read([0])
    with pytest.raises(lg.errors.ModelMismatch, match="one row per edge; read edge_outputs"):
        engine.predict_edges([(0, 1)])
    with pytest.raises(lg.errors.ModelMismatch, match=r"\[Readout\] expected a model with one row per vertex"):
        lg.Readout(engine, "mean")
    x = ir.Input(F)
    plain = lg.Engine(Model.from_output(ir.Propagate(x)), graph())
    for read in (lambda: plain.edge_outputs([0]), plain.recompute_edges):
        with pytest.raises(lg.errors.ModelMismatch, match="expected a model with one row per edge, got Model"):
            read()
    with pytest.raises(lg.errors.UsageError, match="one row per edge, got one with one row per vertex"):
        _ = plain.apply(added(0, 1)).edges


def test_values_that_are_no_rows_of_edges():
    x = ir.Input(F)
    with pytest.raises(lg.errors.ModelError, match="reads a row of a vertex, got one of attributes alone"):
        Model.from_edges(edges.EdgeAttribute(A))
    with pytest.raises(lg.errors.ModelError, match="rows of the output, got one over others"):
        Model.from_output(ir.Propagate(x), edge_output=edges.Source(x))
    with pytest.raises(lg.errors.ModelError, match="one row per edge of one kind"):
        Model.from_output(x, edge_output=x)
    with pytest.raises(lg.errors.ModelError, match="for each output, got one alone"):
        Model.from_output(x, unweighted_edge_output=edges.Source(x))
    with pytest.raises(lg.errors.ModelError, match="alone, over vertices without types"):
        Model.from_edges(edges.Source(x), edge_head=ir.Slice(ir.Input(2 * F), 0, 1))
    assert edge_level.head_of(x, edges.Target(x)).value.start == F


def test_changes_are_read_at_their_own_version():
    engine = lg.Engine(edge_model(), graph())
    seen = []
    engine.on_change(lambda changes: seen.append(changes.edges["id"].tolist()))
    first = engine.apply(added(0, 3))
    assert first.edges["id"].tolist() == seen[0]
    assert 6 in seen[0]
    second = engine.apply(added(0, 3))
    engine.graph.apply(lg.Updates())
    assert first.edges["id"].tolist() == seen[0]  # worked out in time
    assert second.edges["id"].tolist() == seen[1]
    late = lg.Engine(edge_model(), graph())
    early = late.apply(added(0, 3))
    late.apply(lg.Updates())
    with pytest.raises(lg.errors.UsageError, match="read at version 1, got version 2; read it in on_change"):
        _ = early.edges
    newest = late.apply(lg.Updates())
    with late.what_if(added(1, 1)), pytest.raises(lg.errors.UsageError, match="got a what_if block"):
        _ = newest.edges
    assert newest.edges["id"].tolist() == []


def test_weights_count_where_they_are_read():
    x = np.eye(F, dtype=np.float32)
    weight = lg.Updates()
    weight.set_weight(0, 1, 2.0)
    engine = lg.Engine(edge_model(weighted=True), lg.Graph(x, [0, 1], [1, 2], weight=[1.0, 1.0]))
    before = engine.edge_outputs([0, 1])
    assert engine.apply(weight).edges["id"].tolist() == [0]
    np.testing.assert_array_equal(engine.edge_outputs([0, 1]), before * [[2], [1]])
    attr = np.ones((2, A), np.float32)
    other = lg.Engine(edge_model(), lg.Graph(x, [0, 1], [1, 2], weight=[1.0, 1.0], edge_attr=attr))
    assert other.apply(weight).edges["id"].tolist() == []


def test_one_number_an_edge_is_read_from_the_weights():
    x = ir.Input(F)
    model = Model.from_edges(ir.Concat((edges.Source(x), edges.EdgeAttribute(1))))
    column = np.array([[3.0], [4.0]], np.float32)
    features = np.eye(F, dtype=np.float32)
    wide = lg.Engine(model, lg.Graph(features, [0, 1], [1, 2], edge_attr=column))
    ends = torch.tensor([[0, 1], [1, 2]])
    data = Data(x=torch.from_numpy(features), edge_index=ends, edge_attr=torch.from_numpy(column[:, 0]))
    flat = lg.Engine(model, lg.Graph.from_pyg(data))
    np.testing.assert_array_equal(wide.edge_outputs([0, 1]), flat.edge_outputs([0, 1]))
    flat.verify()


def test_optional_weights():
    x = ir.Input(F)
    with_weights = ir.Multiply(edges.Source(ir.Propagate(x, weighted=True)), edges.EdgeWeight())
    model = Model.from_edges(with_weights, unweighted=edges.Source(ir.Propagate(x)))
    assert (model.weights, model.edge_output.width) == ("optional", F)
    features = np.eye(F, dtype=np.float32)
    plain = lg.Engine(model, lg.Graph(features, [0, 1], [1, 2]))
    weighted = lg.Engine(Model.from_arrays(*model.to_arrays()), lg.Graph(features, [0, 1], [1, 2], weight=[2.0, 3.0]))
    np.testing.assert_array_equal(plain.edge_outputs([1]), [[1, 0, 0]])
    np.testing.assert_array_equal(weighted.edge_outputs([1]), [[6, 0, 0]])


@pytest.mark.parametrize("mode", ["eager", "hybrid"])
def test_saved_and_swapped(tmp_path, mode):
    engine = (
        lg.Engine(edge_model(), graph(), mode=mode, hot=2) if mode == "hybrid" else lg.Engine(edge_model(), graph())
    )
    engine.apply(added(4, 0))
    engine.save(tmp_path / "engine.lg")
    again = lg.Engine.load(tmp_path / "engine.lg")
    assert again.state_digest() == engine.state_digest()
    for batch in (added(0, 2), added(2, 0)):
        here, there = (each.apply(batch).edges["id"].tolist() for each in (engine, again))
        assert here == there
        np.testing.assert_array_equal(engine.edge_outputs(np.arange(7)), again.edge_outputs(np.arange(7)))
    engine.swap(edge_model(1))
    engine.apply(added(1, 1))
    np.testing.assert_array_equal(
        engine.edge_outputs([9]), lg.Engine(edge_model(1), engine.graph).edge_outputs([(1, 1)])
    )
    engine.rescale()
    engine.verify()
    engine.swap(Model.from_output(ir.Propagate(ir.Input(F))))
    engine.apply(added(1, 1))
    assert engine.embeddings([0]).shape == (1, F)
    engine.swap(edge_model(1))
    assert engine.edge_outputs([10]).shape == (1, 2)
    engine.close()
    with pytest.raises(lg.errors.UsageError, match=r"\[edge_outputs\] expected an open engine"):
        engine.edge_outputs([0])


def test_names_of_vertices_and_batches_that_move_them():
    rng = np.random.default_rng(3)
    named = lg.Graph(
        rng.standard_normal((3, F)), ["a", "b"], ["b", "c"], edge_attr=np.ones((2, A)), ids=["a", "b", "c"]
    )
    engine = lg.Engine(edge_model(), named)
    updates = lg.Updates()
    updates.remove_vertex("a")
    updates.add_vertex("d", [1.0, 2.0, 3.0])
    updates.add_edge("d", "b", edge_attr=[0.5, 0.5])
    changes = engine.apply(updates)
    assert {name: column.tolist() for name, column in changes.edges.items()} == {
        "src": ["b", "d"],
        "dst": ["c", "b"],
        "id": [1, 2],
    }
    rows = engine.edge_outputs(changes.edges)
    np.testing.assert_array_equal(engine.edge_outputs([("d", "b"), ("b", "c")]), rows[::-1])
    supposed = lg.Updates()
    supposed.add_vertex("e", [0.0, 0.0, 1.0])
    supposed.add_edge("e", "c", edge_attr=[0.5, 0.5])
    with engine.what_if(supposed) as view:
        assert view.edge_outputs([("e", "c")]).shape == (1, 2)
        with pytest.raises(lg.errors.UsageError, match="what_if block in this thread"):
            engine.edge_outputs([("b", "c")])
    with (
        engine.snapshot() as view,
        pytest.raises(lg.errors.UsageError, match="got a snapshot, which keeps rows of vert"),
    ):
        view.edge_outputs([("b", "c")])


def test_edges_in_files(tmp_path):
    timed = graph(time=[1, 2, 3, 4, 5, 6])
    engine = lg.Engine(edge_model(), timed, memory_limit="8MiB")
    before = engine.edge_outputs(np.arange(6))
    timed.offload(4, tmp_path / "away")
    np.testing.assert_array_equal(engine.edge_outputs(np.arange(6)), before)
    np.testing.assert_array_equal(engine.edge_outputs([(1, 2)]), before[[1]])
    changes = engine.apply(added(4, 3, time=9))
    assert 2 in changes.edges["id"]  # away, and at vertex 3
    np.testing.assert_array_equal(engine.edge_outputs(np.arange(7)), engine.recompute_edges())
    engine.verify()
    timed.reload()
    engine.verify()


def test_verify_finds_a_wrong_row_of_an_end():
    engine = lg.Engine(edge_model(), graph())
    engine.native.corrupt_for_test(0, 1, 0)
    with pytest.raises(lg.errors.StateMismatch):
        engine.verify()


def test_an_index_forgets_edges_that_are_gone():
    engine = lg.Engine(edge_model(), graph())
    engine.edge_outputs([0])
    for _ in range(3):
        batch = lg.Updates()
        for _ in range(600):
            batch.add_edge(0, 1, edge_attr=[1.0, 1.0])
        for _ in range(600):
            batch.remove_edge(0, 1)
        engine.apply(batch)
        kept = lg.Updates()
        for _ in range(600):
            kept.add_edge(0, 1, edge_attr=[1.0, 1.0])
        engine.apply(kept)
        drop = lg.Updates()
        for _ in range(600):
            drop.remove_edge(0, 1)
        engine.apply(drop)
    assert engine.edge_index()._count < 1100
    np.testing.assert_array_equal(engine.edge_outputs([5, 0]), engine.edge_outputs([(2, 2), (0, 1)]))
