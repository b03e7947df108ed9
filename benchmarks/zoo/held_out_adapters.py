"""Modules of a few lines around classes of the held-out set, as a user of each would write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj


class Around(nn.Module):
    """Holds the network; those below say how it is called."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


class WeightsAsAttributes(Around):
    """For forward(data) that reads its weights from data.edge_attr."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.net(Data(x=x, edge_index=edge_index, edge_attr=edge_weight))


class WeightsAsNorm(Around):
    """For forward(data) that reads its weights from data.norm."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.net(Data(x=x, edge_index=edge_index, norm=edge_weight))


class FeaturesAsFeat(Around):
    """For forward(data) that reads its features from data.feat."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(SimpleNamespace(feat=x, edge_index=edge_index, batch=None))


class WholeBatch(Around):
    """For forward(x, edge_index, batch_size) that gives the first rows: all of them."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, edge_index, x.size(0))


class TypesAsColors(Around):
    """For forward(x, edge_index, edge_weight, edge_color)."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_type: Any) -> Any:
        return self.net(x, edge_index, edge_weight, edge_type)


class WithoutNoise(Around):
    """For forward(data, noise): none in use."""

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.net(Data(x=x, edge_index=edge_index, edge_attr=edge_attr), None)


class ListOfGraphs(Around):
    """For forward(graphs): one graph."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net([Data(x=x, edge_index=edge_index)])


class ScoresEdges(Around):
    """For forward(x, edge_index, pairs): the pairs are the edges."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, edge_index, edge_index.t())


class ScoresWeightedEdges(Around):
    """For forward(x, edge_index, pairs, edge_weight)."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.net(x, edge_index, edge_index.t(), edge_weight)


class Symmetrized(Around):
    """For forward(x, edges, edges in, weights in, edges out, weights out): the kinds are the edges' types 0 to 2."""

    def __init__(self, net: nn.Module, *, pairs: bool = False) -> None:
        super().__init__(net)
        self.pairs = pairs

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_type: Any) -> Any:
        both, into, out = edge_type == 0, edge_type == 1, edge_type == 2
        kinds = (edge_index[:, into], edge_weight[into], edge_index[:, out], edge_weight[out])
        pairs = (edge_index.t(),) if self.pairs else ()
        return self.net(x, edge_index[:, both], *kinds, *pairs)


class TwoProximities(Around):
    """For forward(x, (edges, edges), (weights, weights)): edges of type 0 and of type 1."""

    def __init__(self, net: nn.Module, *, pairs: bool = False) -> None:
        super().__init__(net)
        self.pairs = pairs

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_type: Any) -> Any:
        first, second = edge_type == 0, edge_type == 1
        pairs = (edge_index.t(),) if self.pairs else ()
        edges = (edge_index[:, first], edge_index[:, second])
        return self.net(x, edges, *pairs, (edge_weight[first], edge_weight[second]))


class FeaturesAndStructure(Around):
    """For forward(x, s, edge_index): the last columns are the structure's."""

    def __init__(self, net: nn.Module, columns: int) -> None:
        super().__init__(net)
        self.columns = columns

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x[:, : -self.columns], x[:, -self.columns :], edge_index)


class AdjacencyAsStructure(Around):
    """For forward(x, s, edge_index) where s is the dense adjacency."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, to_dense_adj(edge_index, max_num_nodes=x.size(0))[0], edge_index)


class DenseAdjacency(Around):
    """For forward(x, adj) with a dense adjacency."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, to_dense_adj(edge_index, max_num_nodes=x.size(0))[0])


class LowAndHighPass(Around):
    """For forward(x, low, high) with sparse matrices: the adjacency, and the identity less the adjacency."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        n = x.size(0)
        low = torch.sparse_coo_tensor(edge_index, edge_weight, (n, n))
        diagonal = torch.arange(n)
        high = torch.sparse_coo_tensor(torch.stack([diagonal, diagonal]), torch.ones(n), (n, n)) - low
        return self.net(x, low, high)


class SparseAdjacencyToo(Around):
    """For forward(x, edge_index, adjacency)."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        n = x.size(0)
        return self.net(x, edge_index, torch.sparse_coo_tensor(edge_index, edge_weight, (n, n)))


class NoAdjacency(Around):
    """For forward(x, edge_index, adjacency) that does not read the adjacency."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.net(x, edge_index, None)


class WithInverseRelations(Around):
    """For forward(x, edges, types, relations): every edge, then every edge against its direction."""

    def __init__(self, net: nn.Module, relations: int, width: int) -> None:
        super().__init__(net)
        self.relations = relations
        self.embedding = nn.Parameter(torch.randn(2 * relations, width))

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        edges = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        types = torch.cat([edge_type, edge_type + self.relations])
        return self.net(x, edges, types, self.embedding)
