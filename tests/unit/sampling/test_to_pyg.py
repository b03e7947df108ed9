from __future__ import annotations

import numpy as np
import torch
from torch_geometric.nn import SAGEConv

import livegnn as lg


def random_sample(merge_friendly: bool = False) -> lg.sampling.Sample:
    rng = np.random.default_rng(4)
    count = 12 if merge_friendly else 200
    graph = lg.Graph(rng.random((count, 3), np.float32), rng.integers(0, count, 900), rng.integers(0, count, 900))
    query = lg.query().in_().sample(4).in_().sample(3)
    return lg.PreSampler(graph, query, seed=2).sample(rng.permutation(count)[:6])


def test_the_tree_has_a_row_for_each_place() -> None:
    sample = random_sample()
    data = sample.to_pyg()
    kept = [sample.mask(k).sum() for k in range(3)]
    assert data.num_sampled_nodes == kept
    assert data.num_nodes == sum(kept)
    assert data.n_id[:6].tolist() == sample.hop(0).tolist()
    assert data.batch_size == 6
    child, parent = data.edge_index
    assert data.num_sampled_edges == kept[1:]
    assert (data.hop[child] == data.hop[parent] + 1).all()
    assert (data.batch[child] == data.batch[parent]).all()
    np.testing.assert_array_equal(data.x[6 : 6 + kept[1]], sample.features(1)[sample.mask(1)])
    np.testing.assert_array_equal(data.e_id[: kept[1]], sample.edge_ids(1)[sample.mask(1)])


def test_a_model_over_the_tree_is_the_model_over_dense_levels() -> None:
    """SAGE by hand: means over the masked levels, from the leaves to the seeds."""
    torch.manual_seed(0)
    convs = [SAGEConv(3, 5), SAGEConv(5, 2)]
    sample = random_sample()
    data = sample.to_pyg()
    with torch.inference_mode():
        h = convs[0](data.x, data.edge_index).relu()
        got = convs[1](h, data.edge_index)[:6]

        def mean(rows: torch.Tensor, mask: np.ndarray) -> torch.Tensor:
            there = torch.from_numpy(mask).unsqueeze(-1)
            return (rows * there).sum(-2) / there.sum(-2).clamp(min=1)

        x = [torch.from_numpy(sample.features(k)) for k in range(3)]
        low = [(convs[0].lin_l(mean(x[k + 1], sample.mask(k + 1))) + convs[0].lin_r(x[k])).relu() for k in range(2)]
        expected = convs[1].lin_l(mean(low[1], sample.mask(1))) + convs[1].lin_r(low[0])
    torch.testing.assert_close(got, expected)


def test_merging_keeps_one_row_a_vertex_and_one_edge_an_edge() -> None:
    sample = random_sample(merge_friendly=True)
    data = sample.to_pyg(merge=True)
    assert len(set(data.n_id.tolist())) == data.num_nodes < sample.to_pyg().num_nodes
    assert data.n_id[:6].tolist() == sample.hop(0).tolist()
    edges = {
        (int(data.n_id[u]), int(data.n_id[v]), int(e)) for (u, v), e in zip(data.edge_index.T, data.e_id, strict=True)
    }
    assert len(edges) == data.edge_index.shape[1] == sum(data.num_sampled_edges)
    tree = sample.to_pyg()
    named = zip(tree.n_id[tree.edge_index[0]], tree.n_id[tree.edge_index[1]], tree.e_id, strict=True)
    assert edges == {(int(u), int(v), int(e)) for u, v, e in named}
    np.testing.assert_array_equal(data.x, [data.x[data.n_id.tolist().index(v)] for v in data.n_id.tolist()])


def test_string_ids_have_no_tensor() -> None:
    graph = lg.Graph(np.eye(2, dtype=np.float32), ["a"], ["b"], ids=["a", "b"])
    data = lg.PreSampler(graph, lg.query().out().sample(2)).sample(["a"]).to_pyg(merge=True)
    assert "n_id" not in data
    assert data.edge_index.tolist() == [[1], [0]]


def test_without_features_and_edge_ids() -> None:
    graph = lg.Graph(np.eye(2, dtype=np.float32), [0], [1])
    data = lg.PreSampler(graph, lg.query().out().sample(2)).sample([0], features=False, edge_ids=False).to_pyg()
    assert "x" not in data
    assert "e_id" not in data
    assert data.num_nodes == 2


def test_no_seeds_give_data_without_rows() -> None:
    graph = lg.Graph(np.eye(2, dtype=np.float32), [0], [1])
    sample = lg.PreSampler(graph, lg.query().out().sample(2)).sample(np.zeros(0, np.int64))
    for merge in (False, True):
        data = sample.to_pyg(merge=merge)
        assert data.x.shape == (0, 2)
        assert data.edge_index.shape == (2, 0)
