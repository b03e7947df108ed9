"""LiveModule against the module on the mirrored graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv, SAGEConv, to_hetero

import livegnn as lg
from livegnn.errors import ColumnMissing, UsageError, VertexUnknown
from tests.unit.pyg import graphs


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(4, 8), GCNConv(8, 3)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class Sage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 3)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def typed_engine(graph: lg.Graph) -> tuple[torch.nn.Module, lg.Engine]:
    torch.manual_seed(1)
    data = graph.to_pyg()
    module = to_hetero(Sage(), data.metadata()).eval()
    with torch.no_grad():
        module(data.x_dict, data.edge_index_dict)
    return module, lg.Engine(lg.from_pyg(module), graph)


@pytest.mark.parametrize("ids", [None, "numbers", "names"])
def test_it_answers_like_the_module_as_the_graph_changes(ids: str | None) -> None:
    torch.manual_seed(0)
    module, graph = Net().eval(), graphs.plain(0, ids=ids, columns=("weight",))
    engine = lg.Engine(lg.from_pyg(module), graph)
    live = lg.pyg.LiveModule(engine)
    for batch in range(4):
        graphs.change(graph, batch)
        data = graph.to_pyg()
        with torch.no_grad():
            expected = module(data.x, data.edge_index, data.edge_weight)
        torch.testing.assert_close(live(), expected)
        some = graph.vertices()[3:9]
        torch.testing.assert_close(live(some.tolist() if ids == "names" else torch.from_numpy(some)), expected[3:9])
        np.testing.assert_array_equal(live(some).numpy(), engine.embeddings(some))
        assert live.version == graph.version
        assert live.state == (graph.version, engine.state_digest())
    with pytest.raises(VertexUnknown):
        live(["gone"] if ids == "names" else [1000])


def test_it_answers_by_type() -> None:
    graph = graphs.typed(2)
    module, engine = typed_engine(graph)
    live = lg.pyg.LiveModule(engine)
    graphs.change(graph, 1)
    data = graph.to_pyg()
    with torch.no_grad():
        expected = module(data.x_dict, data.edge_index_dict)
    got = live({name: graph.vertices(name) for name in graphs.TYPES})
    for name in graphs.TYPES:
        torch.testing.assert_close(got[name], expected[name])
        torch.testing.assert_close(live(vertex_type=name), expected[name])
    with pytest.raises(ColumnMissing, match="user, item, or a dict"):
        live([0])
    with pytest.raises(UsageError, match="got both"):
        live({"user": [0]}, vertex_type="user")


def test_it_is_a_module_without_gradients() -> None:
    engine = lg.Engine(lg.from_pyg(Net().eval()), graphs.plain(1))
    live = lg.pyg.LiveModule(engine)
    assert list(live.parameters()) == []
    assert live.state_dict() == {}
    assert not live.training
    assert live.eval() is live
    assert not live([0]).requires_grad
    assert "Engine(" in repr(live)
    head = torch.nn.Sequential(live, torch.nn.Linear(3, 1))  # a part of a larger module
    assert head([0, 1]).shape == (2, 1)
    assert live.to("meta")([0]).device.type == "meta"
    assert head.train() is head
    assert [part.training for part in head] == [False, True]  # the head is trained, the live rows stay
    assert not live.train().training
    with pytest.raises(UsageError, match=r"livegnn\.Engine"):
        lg.pyg.LiveModule(Net())
