"""InputLoader: features of the pinned version, samples without some edges, and what does not fit."""

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.temporal import InputLoader
from livegnn.temporal.events import Events


def dated(attributes=2):
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    rows = np.arange(4 * attributes, dtype=np.float32).reshape(4, attributes)
    return lg.Graph(x, [0, 1, 2, 3], [4, 4, 4, 4], time=[1, 2, 3, 4], edge_attr=rows)


def loader_of(graph, cached, **options):
    if cached:
        options["vertex_features"] = lg.FeatureCache(graph, capacity=3)
        options["edge_features"] = lg.FeatureCache.of_edges(graph, capacity=3)
    return InputLoader(graph, lg.TemporalSampler(graph, fanouts=[10]), **options)


@pytest.mark.parametrize("cached", [False, True])
def test_a_pinned_input_is_that_of_its_version(cached):
    """Features set, attributes set, edges and vertices removed and added again: after the pin, and not in it."""
    graph = dated()
    loader = loader_of(graph, cached)
    targets, times = np.array([4, 4]), np.array([9, 3])
    (before,) = loader.load(targets, times)
    events = Events.of(graph).at(np.array([0, 3]))
    rows = loader.edge_rows(events)
    with loader.sampler.pin() as pinned:
        updates = lg.Updates()
        updates.set_features(0, [100.0, 100.0])
        updates.set_edge_attr(1, 4, [7.0, 7.0])
        updates.remove_edge(3, 4)
        updates.remove_vertex(2)
        updates.add_vertex(2, [50.0, 50.0])
        updates.add_edge(2, 4, time=3, edge_attr=[9.0, 9.0])
        graph.apply(updates)
        again = lg.Updates()
        again.set_edge_attr(1, 4, [8.0, 8.0])
        graph.apply(again)
        (after,) = loader.load(targets, times, pinned)
        assert torch.equal(loader.edge_rows(events, pinned), rows)
        (now,) = loader.load(targets, times)
    assert torch.equal(after.x, before.x)
    assert torch.equal(after.rows, before.rows)
    assert torch.equal(after.hops[0].edge_x, before.hops[0].edge_x)
    assert torch.equal(after.hops[0].dt, before.hops[0].dt)
    assert now.hops[0].edge_x.tolist() == [[0.0, 1.0], [8.0, 8.0], [9.0, 9.0], [0.0, 1.0], [8.0, 8.0]]
    assert [100.0, 100.0] in now.x.tolist()


@pytest.mark.parametrize("cached", [False, True])
def test_features_come_to_the_device_of_the_loader(cached):
    """From caches on the CPU, too."""
    graph = dated()
    loader = loader_of(graph, cached, device="meta")
    (found,) = loader.load(np.array([4, 4]), np.array([9, 3]))
    (hop,) = found.hops
    tensors = [found.x, found.rows, found.row_times, hop.edge_index, hop.dt, hop.targets, hop.target_times, hop.edge_x]
    tensors.append(loader.edge_rows(Events.of(graph)))
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (found.x.shape[1], hop.edge_x.shape[1]) == (2, 2)


def test_edges_left_out_leave_rows_that_nothing_leads_to():
    loader = loader_of(dated(), cached=False)
    (one,) = loader.load(np.array([4, 4]), np.array([9, 9]), None, np.array([1, 3]))
    (hop,) = one.hops
    assert one.rows[hop.edge_index[0]].tolist() == [0, 2, 0, 2]
    assert hop.edge_index[1].tolist() == [0, 0, 1, 1]
    assert hop.dt.tolist() == [8.0, 6.0, 8.0, 6.0]
    assert len(one.rows) == 2 + 8


def test_times_far_from_zero_keep_their_differences():
    base = 2**62
    graph = lg.Graph(np.zeros((2, 0), np.float32), [0], [1], time=[base + 1])
    loader = InputLoader(graph, lg.TemporalSampler(graph, fanouts=[1]))
    (one,) = loader.load(np.array([1]), np.array([base + 4]))
    assert one.hops[0].dt.tolist() == [3.0]


def test_seconds_by_phase():
    loader = loader_of(dated(), cached=False)
    loader.load(np.array([4]), np.array([9]))
    assert set(loader.clock.take()) == {"sample", "fetch"}
    assert loader.clock.take() == {}
