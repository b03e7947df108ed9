"""A graph with ids is read after batches (embeddings() must not wait for a version that never comes)."""

import numpy as np
import pytest

import livegnn as lg
from tests.unit.inference.samples import INT_IDS, STR_IDS, graph, model, row, updates
from tests.unit.inference.test_threads import BATCHES, batch, outputs_by_version, run_readers


@pytest.mark.parametrize(("ids", "new"), [(INT_IDS, 5), (STR_IDS, "gus")])
def test_ids_follow_a_slot_that_changes_hands(ids, new):
    e = lg.Engine(model(), graph(ids), threads=1)
    e.apply(updates(("remove_vertex", ids[2])))
    changes = e.apply(updates(("add_vertex", new, row()), ("add_edge", new, ids[0])))
    assert {new, ids[0]} <= set(changes.vertices.tolist())
    slot = e.graph.to_slots([new])
    assert slot.tolist() == [2]
    np.testing.assert_array_equal(e.embeddings([new]), e.recompute()[slot])
    with pytest.raises(lg.errors.VertexUnknown):
        e.embeddings([ids[2]])
    e.verify()


@pytest.mark.parametrize("ids", [INT_IDS, STR_IDS])
def test_ids_come_back(tmp_path, ids):
    e = lg.Engine(model(), graph(ids), threads=1)
    e.apply(updates(("remove_vertex", ids[3])))
    e.save(tmp_path / "engine.lg")
    again = lg.Engine.load(tmp_path / "engine.lg")
    assert again.graph.vertices().tolist() == e.graph.vertices().tolist()
    np.testing.assert_array_equal(again.embeddings([ids[4]]), e.embeddings([ids[4]]))
    again.apply(updates(("add_vertex", ids[3], row())))
    assert again.embeddings([ids[3]]).shape == (1, 3)


def test_readers_by_string_ids_see_whole_versions():
    versions = outputs_by_version()
    e = lg.Engine(model(), graph(STR_IDS), threads=1)

    def write():
        for k in range(BATCHES):
            e.apply(batch(k, STR_IDS))

    for seen in run_readers(lambda: e.embeddings(STR_IDS), write):
        assert all(rows in versions for rows in seen)
        assert versions[seen[-1]] == BATCHES
