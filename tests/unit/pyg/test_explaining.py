"""Explanations of live outputs: the module on the neighbourhood gives the live row, and what matters gets the mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.explain import DummyExplainer, GNNExplainer
from torch_geometric.nn import ChebConv, GCNConv

import livegnn as lg
from livegnn.errors import DtypeInvalid, ModelMismatch, UsageError, ValueInvalid, VertexUnknown
from tests.unit.pyg import graphs
from tests.unit.pyg.test_live_module import Net, typed_engine


@pytest.mark.parametrize("ids", [None, "numbers", "names"])
def test_an_explanation_is_of_the_live_neighbourhood(ids: str | None) -> None:
    torch.manual_seed(0)
    module, graph = Net().eval(), graphs.plain(0, ids=ids, columns=("weight",))
    engine = lg.Engine(lg.from_pyg(module), graph)
    for batch in range(2):
        graphs.change(graph, batch)
        vertex = graph.vertices()[5].item() if ids != "names" else graph.vertices()[5]
        found = lg.pyg.explain(engine, vertex, module=module, algorithm=GNNExplainer(epochs=5))
        assert found.version == graph.version
        assert found.edge_mask.shape == found.e_id.shape
        assert found.node_mask.shape == found.x.shape
        named = graph.to_external(found.n_id.numpy()) if ids == "names" else found.n_id
        assert named[found.index] == vertex
        assert set(found.e_id.tolist()) <= set(graph.edges()["id"].tolist())
        whole = lg.pyg.explain(engine, vertex, module=module, algorithm=DummyExplainer(), hops=-1)
        assert len(whole.n_id) == graph.vertex_count
        torch.testing.assert_close(whole.prediction[whole.index], found.prediction[found.index])
    assert not module.training
    assert all(parameter.grad is None for parameter in module.parameters())
    module.first.train()
    lg.pyg.explain(engine, vertex, module=module, algorithm=DummyExplainer())
    assert (module.training, module.first.training, module.second.training) == (False, True, False)
    lg.from_pyg(module)  # PyG's Explainer leaves nothing on the layers


@pytest.mark.parametrize(("hops", "error"), [("a", DtypeInvalid), (1.5, DtypeInvalid), (-2, ValueInvalid)])
def test_hops_are_a_number(hops: Any, error: type[Exception]) -> None:
    module = Net().eval()
    engine = lg.Engine(lg.from_pyg(module), graphs.plain(0, columns=("weight",)))
    with pytest.raises(error, match="expected hops"):
        lg.pyg.explain(engine, 1, module=module, hops=hops)


def test_the_edge_that_decides_gets_the_largest_mask() -> None:
    """Vertex 0 has class 1 because of vertex 1 alone: the others' features are nothing."""
    torch.manual_seed(0)

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(2, 2, add_self_loops=False, normalize=False, bias=False)
            with torch.no_grad():
                self.conv.lin.weight.copy_(5 * torch.eye(2))

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index)

    features = np.zeros((6, 2), np.float32)
    features[1, 1] = 1
    graph = lg.Graph(features, [1, 2, 3, 4, 5], [0, 0, 0, 0, 0])
    module = One().eval()
    engine = lg.Engine(lg.from_pyg(module), graph)
    found = lg.pyg.explain(engine, 0, module=module, node_mask_type=None)
    decides = found.n_id[found.edge_index[0, found.edge_mask.argmax()]]
    assert decides.item() == 1
    updates = lg.Updates()
    updates.remove_edge(1, 0)
    updates.set_features(4, np.array([0, 1], np.float32))
    engine.apply(updates)
    found = lg.pyg.explain(engine, 0, module=module, node_mask_type=None)
    assert found.n_id[found.edge_index[0, found.edge_mask.argmax()]].item() == 4


def test_an_explanation_over_types() -> None:
    graph = graphs.typed(2)
    module, engine = typed_engine(graph)
    graphs.change(graph, 1)
    vertex = int(graph.vertices("item")[2])
    for hops in (None, -1):
        found = lg.pyg.explain(
            engine, vertex, module=module, vertex_type="item", algorithm=GNNExplainer(epochs=3), hops=hops
        )
        assert found["item"].n_id[found.index].item() == vertex
        assert found["user"].node_mask.shape == found["user"].x.shape
        for key in graph.edge_types or ():
            assert found[key].edge_mask.shape == found[key].e_id.shape


def test_another_module_is_refused() -> None:
    graph = graphs.plain(0)
    torch.manual_seed(0)
    engine = lg.Engine(lg.from_pyg(Net().eval()), graph)
    with pytest.raises(ModelMismatch, match="pass the module that was imported, or hops=-1"):
        lg.pyg.explain(engine, 0, module=Net().eval())
    with pytest.raises(UsageError, match="pass both"):
        lg.pyg.explain(engine, 0, module=engine)
    with pytest.raises(VertexUnknown):
        lg.pyg.explain(engine, 77, module=Net().eval())


def test_too_few_hops_are_refused_and_the_whole_graph_will_do() -> None:
    """Out-degrees of sources lie outside of an in-neighbourhood."""

    class Cheb(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = ChebConv(4, 2, K=3)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index)

    torch.manual_seed(0)
    module, graph = Cheb().eval(), graphs.plain(0)
    engine = lg.Engine(lg.from_pyg(module), graph)
    with pytest.raises(ModelMismatch, match=r"differs by .*hops=-1"):
        lg.pyg.explain(engine, 0, module=module, hops=1)
    found = lg.pyg.explain(engine, 0, module=module, hops=-1, algorithm=GNNExplainer(epochs=2))
    assert len(found.edge_mask) == graph.edge_count


def test_a_module_of_several_results_is_to_be_wrapped() -> None:
    class Both(torch.nn.Module):
        def __init__(self, net: torch.nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.net(x, edge_index), x

    net = Net().eval()
    engine = lg.Engine(lg.from_pyg(net), graphs.plain(0))
    with pytest.raises(ModelMismatch, match="returns one tensor, or one by vertex type, got tuple"):
        lg.pyg.explain(engine, 0, module=Both(net))


def test_a_forward_of_data() -> None:
    class OfData(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, data: Any) -> Any:
            return self.net(data.x, data.edge_index, data.edge_weight)

    torch.manual_seed(0)
    module, graph = OfData().eval(), graphs.plain(0, columns=("weight",))
    engine = lg.Engine(lg.from_pyg(module), graph)
    found = lg.pyg.explain(engine, 3, module=module, algorithm=GNNExplainer(epochs=2))
    assert found.n_id[0].item() == 3


def test_messages_against_the_edges_need_the_whole_graph() -> None:
    torch.manual_seed(0)
    module, graph = GCNConv(graphs.plain(0).feature_width, 3, flow="target_to_source").eval(), graphs.plain(0)
    engine = lg.Engine(lg.from_pyg(module), graph)
    vertex = graph.vertices()[5].item()
    with pytest.raises(UsageError, match="pass hops=-1"):
        lg.pyg.explain(engine, vertex, module=module, algorithm=DummyExplainer())
    found = lg.pyg.explain(engine, vertex, module=module, algorithm=DummyExplainer(), hops=-1)
    assert len(found.n_id) == graph.vertex_count
