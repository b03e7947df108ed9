"""What no graph of the comparison shows is refused: thresholds that none of its numbers pass, and what depends on them.

The comparison's weights are below 3, and a hyperbolic tangent is below 1.
"""

import pytest
import torch
from torch_geometric.utils import scatter

from livegnn.errors import ModelUnsupported
from livegnn.models.pyg.entry import from_pyg
from tests.oracle.edge_forwards import Typed, Weighted, Written
from tests.oracle.pyg_oracle import assert_equal


def through_a_view(x, edge_index, edge_weight):
    weight = edge_weight * 2
    column = weight.view(-1, 1)
    column[column > 10] = 0
    return scatter(x[edge_index[0]] * weight.view(-1, 1), edge_index[1], dim_size=x.size(0))


def through_a_view_of_zeros(x, edge_index, edge_weight):
    weight = torch.zeros(edge_index.size(1), dtype=x.dtype)
    column = weight.view(-1, 1)
    column[(edge_weight > 10).view(-1, 1)] = 1
    return scatter(x[edge_index[0]] * weight.view(-1, 1), edge_index[1], dim_size=x.size(0))


def through_detach(x, edge_index, edge_weight):
    weight = edge_weight * 2
    weight.detach().clamp_(max=10)
    return scatter(x[edge_index[0]] * weight.view(-1, 1), edge_index[1], dim_size=x.size(0))


def coalesced(change):
    """A product with a function of a coalesced matrix's numbers, the sums over parallel edges."""

    def forward(x, edge_index, edge_weight):
        size = (x.size(0), x.size(0))
        adj = torch.sparse_coo_tensor(edge_index, edge_weight, size).coalesce()
        changed = torch.sparse_coo_tensor(adj.indices(), change(adj.values()), size)
        return torch.sparse.mm(changed.t(), x)

    return forward


def empty_vertices(x, edge_index, _):
    return x if (x[:, 0] > 2).nonzero().view(-1).numel() == 0 else x * 2


def truth_of_none(x, edge_index, _):
    return x * 2 if (x[:, 0] > 2).nonzero().view(-1).numel() else x


def empty_after_edges(x, edge_index, _):
    row, col = edge_index
    score = (x[row] * x[col]).mean(-1)
    return x if score[score > 2].numel() == 0 else x * 2


def empty_edges(x, edge_index, edge_weight):
    return x if edge_index[:, edge_weight > 10].size(1) == 0 else x * 2


def below_all_types(x, edge_index, edge_type):
    row, col = edge_index[:, edge_type == -1]
    return x + scatter(x[row], col, dim_size=x.size(0))


@pytest.mark.parametrize(
    ("kind", "how", "reason"),
    [
        (Weighted, through_a_view, r"line \d+ .*another tensor that shows the same memory"),
        (Weighted, through_a_view_of_zeros, "another tensor that shows the same memory"),
        (Weighted, through_detach, "another tensor that shows the same memory"),
        (Weighted, coalesced(torch.abs), "abs: .* sums over parallel edges"),
        (Weighted, coalesced(lambda values: values.clamp(max=20)), "clamp: .* sums over parallel edges"),
        (Weighted, coalesced(lambda values: values * (values < 20)), "lt: .* sums over parallel edges"),
        (Written, empty_vertices, "nonzero"),
        (Written, truth_of_none, "nonzero"),
        (Written, empty_after_edges, r"line \d+ .*it decides by the number"),
        (Weighted, empty_edges, "expected a model that can be kept exact"),
    ],
)
def test_what_no_comparison_shows_is_refused(kind, how, reason):
    with pytest.raises(ModelUnsupported, match=reason):
        from_pyg(kind(how))


def test_no_edge_is_of_a_type_below_0():
    assert_equal(Typed(below_all_types))


def test_linear_functions_of_coalesced_numbers_are_read():
    assert_equal(Weighted(coalesced(lambda values: 2 * values)))


def test_a_part_of_the_memory_that_was_not_written_is_read():
    def halves(x, edge_index, _):
        a, b = (x * 2).chunk(2, dim=-1)
        a.relu_()
        return scatter(torch.cat([b, a], -1)[edge_index[0]], edge_index[1], dim_size=x.size(0))

    assert_equal(Written(halves))
