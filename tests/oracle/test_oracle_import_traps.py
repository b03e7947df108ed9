"""Where PyG surprises people, one by one: an imported model does what PyG does."""

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg

from livegnn.errors import ModelUnsupported
from livegnn.models.pyg.entry import from_pyg
from livegnn.reference.evaluate import evaluate


def both(module, src, dst, weight=None, vertices=4, width=2):
    """(livegnn's truth, PyG's float64) on one graph."""
    module = module.eval()
    x = np.random.default_rng(1).standard_normal((vertices, width)).astype(np.float32)
    src, dst = np.array(src, np.int64), np.array(dst, np.int64)
    spec = from_pyg(module, input_width=width).to_arrays()
    given = None if weight is None else np.array(weight, np.float32)
    got = evaluate(spec, x, src, dst, given)
    arguments = [torch.tensor(x).double(), torch.tensor(np.stack([src, dst]))]
    if weight is not None:
        arguments.append(torch.tensor(given).double())
    with torch.no_grad():
        want = module.double()(*arguments).numpy()
    module.float()
    return got, want


def equal(*args, **kwargs):
    got, want = both(*args, **kwargs)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    return got


def test_1_a_new_edge_changes_every_message_of_its_target():
    conv = pyg.GCNConv(2, 2)
    before = equal(conv, [1, 1, 2], [2, 3, 0])
    after = equal(conv, [1, 1, 2, 0], [2, 3, 0, 1])
    changed = (before != after).any(axis=1)
    assert changed.tolist() == [False, True, True, True]  # 1 itself, and its out-neighbours 2 and 3


def test_2_a_part_of_the_graph_has_other_degrees():
    conv = pyg.GCNConv(2, 2)
    whole = equal(conv, [0, 2, 3], [1, 0, 0])
    part = equal(conv, [0], [1])  # the 1-hop in-neighbourhood of vertex 1: vertex 0's degree is cut
    assert (whole[1] != part[1]).any()


def test_3_improved_without_weights_does_nothing():
    plain, improved = pyg.GCNConv(2, 2), pyg.GCNConv(2, 2, improved=True)
    improved.load_state_dict(plain.state_dict())
    edges = [0, 1, 2], [1, 2, 3]
    np.testing.assert_array_equal(equal(plain, *edges), equal(improved, *edges))
    ones = [1.0, 1.0, 1.0]
    assert (equal(plain, *edges, ones) != equal(improved, *edges, ones)).any()


def test_4_an_existing_self_loop_keeps_its_weight_and_the_last_one_wins():
    conv = pyg.GCNConv(2, 2, improved=True)
    one = equal(conv, [0, 1, 1], [1, 1, 2], [0.5, 3.0, 1.5])
    two = equal(conv, [0, 1, 1, 1], [1, 1, 1, 2], [0.5, 9.0, 3.0, 1.5])
    np.testing.assert_array_equal(one, two)
    assert (one != equal(conv, [0, 1, 1, 1], [1, 1, 1, 2], [0.5, 3.0, 9.0, 1.5])).any()


def test_4_self_loops_count_once_without_weights():
    conv = pyg.GCNConv(2, 2)
    np.testing.assert_array_equal(equal(conv, [0, 1, 1], [1, 1, 1]), equal(conv, [0], [1]))


def test_4_parallel_edges_count_each():
    for conv in (pyg.GCNConv(2, 2), pyg.GraphConv(2, 2), pyg.SAGEConv(2, 2, aggr="sum")):
        assert (equal(conv, [0, 0], [1, 1]) != equal(conv, [0], [1])).any()


def test_4_degree_0_gives_0():
    conv = pyg.GCNConv(2, 2, add_self_loops=False, bias=False)
    got = equal(conv, [0, 1], [1, 2])
    assert (got[0] == 0).all()
    assert (got[1] == 0).all()  # its only source has degree 0
    assert (got[2] != 0).any()
    assert (equal(pyg.LGConv(), [0], [1]) == 0).all()
    assert (equal(conv, [0, 1], [1, 2], [0.0, 2.0])[1] == 0).all()


def test_4_a_negative_degree_has_no_value():
    arguments = (pyg.GCNConv(2, 2, add_self_loops=False), [0, 1], [1, 0], [-1.0, 1.0])
    with pytest.warns(RuntimeWarning, match="sqrt"):
        got, want = both(*arguments)
    assert np.isnan(want).any()  # PyG; the engine refuses it (DegreeNegative)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_5_without_normalisation_there_are_no_self_loops():
    conv = pyg.GCNConv(2, 2, normalize=False, bias=False)
    got = equal(conv, [0, 1], [1, 1], [2.0, 0.5])
    assert (got[[0, 2, 3]] == 0).all()
    with pytest.raises(ValueError, match="normaliz"):
        pyg.GCNConv(2, 2, normalize=False, add_self_loops=True)


def test_7_weights_reach_only_the_layers_that_are_given_them():
    gcn = from_pyg(pyg.GCN(2, 3, 2))
    assert gcn.weights == "optional"
    assert from_pyg(pyg.GraphSAGE(2, 3, 2)).weights == "none"  # its forward takes weights and drops them
    assert from_pyg(pyg.GCN(2, 3, 2), weighted=False).weights == "none"
    assert from_pyg(pyg.GCN(2, 3, 2), weighted=True).weights == "required"


def test_8_norms_over_all_vertices_are_refused_and_rows_alone_are_not():
    with pytest.raises(ModelUnsupported, match=r"norms.0 \(LayerNorm\): mode='graph'"):
        from_pyg(pyg.GCN(2, 3, 2, norm="layer_norm"))
    equal(pyg.GCN(2, 3, 2, norm="layer_norm", norm_kwargs={"mode": "node"}), [0, 1], [1, 2])


def test_9_dropout_is_the_identity_even_if_the_module_is_in_training():
    module = pyg.GCN(2, 3, 2, dropout=0.9).train()
    spec = from_pyg(module).to_arrays()
    assert module.training
    x = np.ones((3, 2), np.float32)
    got = evaluate(spec, x, np.array([0, 1]), np.array([1, 2]))
    with torch.no_grad():
        want = module.eval().double()(torch.tensor(x).double(), torch.tensor([[0, 1], [1, 2]])).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_10_sage_takes_no_weights():
    class Weighted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.SAGEConv(2, 2)

        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index, edge_weight=edge_weight)

    with pytest.raises(ModelUnsupported, match=r"conv \(SAGEConv\): it is called in a way that it does not accept"):
        from_pyg(Weighted())


def test_a_weighted_mean_divides_by_the_count():
    conv = pyg.GraphConv(2, 2, aggr="mean")
    light = equal(conv, [0, 1], [2, 2], [1.0, 1.0])
    assert (light != equal(conv, [0, 1], [2, 2], [3.0, 3.0])).any()


def test_an_empty_neighbourhood_gives_0():
    for conv in (pyg.SAGEConv(2, 2, root_weight=False, bias=False), pyg.GraphConv(2, 2, aggr="mean", bias=False)):
        got = equal(conv, [0], [1])
        if isinstance(conv, pyg.SAGEConv):
            assert (got[[0, 2, 3]] == 0).all()


def test_cheb_divides_by_out_degrees():
    for normalization in ("sym", "rw"):
        conv = pyg.ChebConv(2, 2, K=2, normalization=normalization)
        before = equal(conv, [0, 1, 2], [1, 2, 0])
        after = equal(conv, [0, 1, 2, 0], [1, 2, 0, 3])  # no new edge to 1, yet what 0 sends it is halved
        changed = (before != after).any(axis=1)
        both = normalization == "sym"  # then 0's own row moves, too, and 3, without out-edges, hears nothing
        assert changed.tolist() == [both, True, False, not both]
        once, twice = equal(conv, [0, 1], [1, 0]), equal(conv, [0, 0, 1], [1, 1, 0])  # parallel edges count each
        assert np.allclose(once, twice) == (normalization == "rw")  # two halves


def test_cheb_leaves_self_loops_out():
    conv = pyg.ChebConv(2, 2, K=3)
    weights = [1.0, 2.0, 0.5]
    want = equal(conv, [0, 1, 2], [1, 2, 0], weights)
    np.testing.assert_array_equal(equal(conv, [0, 1, 2, 1, 3], [1, 2, 0, 1, 3], [*weights, 7.0, 1.0]), want)


def test_cheb_gives_0_where_there_is_no_out_degree():
    for normalization in ("sym", "rw"):
        conv = pyg.ChebConv(2, 2, K=2, normalization=normalization, bias=False)
        with torch.no_grad():
            conv.lins[0].weight.zero_()
        assert (equal(conv, [0, 1], [1, 0], [0.0, 0.0]) == 0).all()
        assert (equal(conv, [0], [0], [3.0]) == 0).all()


class Scaled(torch.nn.Module):
    def __init__(self, number, normalization="sym"):
        super().__init__()
        self.conv, self.number = pyg.ChebConv(2, 2, K=3, normalization=normalization), number

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight, lambda_max=self.number)


def test_cheb_takes_the_largest_entry_for_its_scale_unless_it_is_given_one():
    """Twice the Laplacian's largest entry, which is 1 on the diagonal: but for negative weights, which are refused."""
    edges = [0, 1, 2], [1, 2, 0], [1.0, 2.0, 0.5]
    own, two, other = Scaled(None), Scaled(2.0), Scaled(1.5)
    for each in (two, other):
        each.load_state_dict(own.state_dict())
    np.testing.assert_array_equal(equal(own, *edges), equal(two, *edges))
    assert (equal(own, *edges) != equal(other, *edges)).any()
    with pytest.raises(ModelUnsupported, match=r"conv \(ChebConv\): its lambda_max is not one number above 0"):
        from_pyg(Scaled(0.0))
    with pytest.raises(ModelUnsupported, match="its lambda_max is not one number above 0"):
        from_pyg(Scaled(torch.tensor(2.0)))
    with pytest.raises(ValueError, match="edge weights of at least 0, got -2"):
        both(own, [0, 0], [1, 2], [-2.0, 3.0])


def test_cheb_without_normalisation_needs_its_scale():
    with pytest.raises(ModelUnsupported, match="takes the largest degree of the whole graph for its scale"):
        from_pyg(pyg.ChebConv(2, 2, K=2, normalization=None))
    conv = Scaled(5.0, None)
    weights = [1.0, -2.0, 0.5]
    want = equal(conv, [0, 1, 2], [1, 2, 0], weights)  # nothing divides: weights may be negative
    np.testing.assert_array_equal(equal(conv, [0, 1, 2, 3], [1, 2, 0, 3], [*weights, 9.0]), want)
    equal(pyg.ChebConv(2, 2, K=1, normalization=None), [0], [1])  # one hop reads no edge
