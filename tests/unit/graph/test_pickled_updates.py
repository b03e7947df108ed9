"""Updates in another process do what they do here."""

import copy
import pickle

import numpy as np
import pytest

import livegnn as lg
from tests.composition.temporal import world_of
from tests.composition.world import Setting


@pytest.mark.parametrize("setting", [Setting(), Setting(typed=True, named=True, columns=True, half=True)])
def test_pickled_updates_are_the_same_batch(setting):
    world = world_of(setting, 3)
    graph, other = world.graph(), world.graph()
    for _ in range(8):
        updates = world.batch()
        kept = pickle.loads(pickle.dumps(updates))
        assert len(kept) == len(updates)
        graph.apply(updates)
        other.apply(kept)
    assert graph.digest() == other.digest()


def test_a_copy_keeps_units_and_can_be_filled_further():
    updates = lg.Updates()
    updates.add_edges(["a"], ["b"], time=np.array(["2024-01-02"], "datetime64[s]"))
    again = copy.copy(updates)
    again.add_edge("b", "c", time=np.datetime64("2024-01-03", "s"))
    assert (len(updates), len(again), again.time_unit) == (1, 2, "s")
    graph = lg.Graph(np.zeros((3, 1), np.float32), [], [], time=np.array([], "datetime64[s]"), ids=["a", "b", "c"])
    graph.apply(again)
    assert graph.edge_count == 2
