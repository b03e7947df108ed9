"""The parts of a graph choose the units of fixed point that one engine chooses."""

import numpy as np

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.models import layers
from livegnn.models.model import Model


def test_that_free_slots_have_no_say_in_the_units():
    """A row of no vertex is the bias, far above those of vertices; parts have other free slots than the graph."""
    one, none = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    first = layers.GraphConv(none, one, np.array([1000.0], np.float32))
    model = Model([first, layers.GraphConv(one, one, None)], input_width=1)
    ends = np.arange(9)
    graph = lg.Graph(np.full((9, 1), -999, np.float32), ends, (ends + 1) % 9)
    gone, moved = lg.Updates(), lg.Updates()
    gone.remove_vertex(4)
    moved.remove_vertex(5)
    moved.add_vertex(5, [-999.0])
    engine = lg.Engine(model, graph)
    whole = engine.scales
    cluster = lg.Cluster(model, graph, 3, crew=ThreadCrew(3), partition="hash")
    cluster.apply(moved)
    engine.apply(moved)
    cluster.swap(model)  # the part of 5 has a free slot, the graph has none
    engine.swap(model)
    assert cluster.scales == engine.scales == whole
    assert cluster.state_digest() == engine.state_digest()
    cluster.close()
    engine.apply(gone)
    engine.swap(model)
    cluster = lg.Cluster(model, graph, 3, crew=ThreadCrew(3), partition="hash")  # the graph has one, no part has
    assert cluster.scales == engine.scales == whole
    assert cluster.state_digest() == engine.state_digest()
    cluster.close()
