"""Training by lg.pyg's loaders learns, on a graph that streams: each epoch at one pinned version, or at the newest."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

import livegnn as lg


class Sage(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(width, 16), SAGEConv(16, 2)])

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def communities(count: int = 200) -> tuple[lg.Graph, torch.Tensor, np.random.Generator]:
    """Two classes that features hint at; neighbours are of one class four times in five."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, count)
    features = (rng.standard_normal((count, 4)) + 0.9 * label[:, None]).astype(np.float32)
    graph = lg.Graph(features, *edges(rng, label, 5 * count))
    return graph, torch.from_numpy(label), rng


def edges(rng: np.random.Generator, label: Any, count: int) -> Any:
    src = rng.integers(0, len(label), count)
    peers = [rng.choice(np.flatnonzero(label == (label[u] if rng.random() < 0.8 else 1 - label[u]))) for u in src]
    return src, np.array(peers)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_model_learns_while_the_graph_streams(pinned: bool) -> None:
    torch.manual_seed(0)
    graph, label, rng = communities()
    train, test = torch.arange(0, 120), torch.arange(120, 200)
    module = Sage(4)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    versions = []
    for epoch in range(6):
        with lg.pyg.pin(graph) as pin:
            loader = lg.pyg.neighbor_loader(
                pin if pinned else graph, [8, 8], train, batch_size=20, shuffle=True, seed=epoch
            )
            seen = []
            for batch in loader:
                module.train()
                optimizer.zero_grad()
                out = module(batch.x, batch.edge_index)[: batch.batch_size]
                loss = torch.nn.functional.cross_entropy(out, label[batch.n_id[: batch.batch_size]])
                loss.backward()
                optimizer.step()
                updates = lg.Updates()
                updates.add_edges(*edges(rng, label.numpy(), 5))
                graph.apply(updates)
                seen.append(batch.version)
        versions.append(seen)
    assert all(len(set(seen)) == (1 if pinned else len(seen)) for seen in versions)
    engine = lg.Engine(lg.from_pyg(module.eval()), graph)
    accuracy = (torch.from_numpy(engine.predict(test.numpy())) == label[test]).double().mean()
    assert accuracy > 0.9
    graph.apply(lg.Updates())
    rows = lg.pyg.LiveModule(engine)(test)
    data = graph.to_pyg()
    torch.testing.assert_close(rows, module(data.x, data.edge_index)[test])


def test_batches_can_be_trimmed_layer_by_layer() -> None:
    graph, _, _ = communities(60)
    module = Sage(4).eval()
    batch = next(iter(lg.pyg.neighbor_loader(graph, [3, 2], [1, 5, 9], batch_size=3)))
    with torch.no_grad():
        whole = module(batch.x, batch.edge_index)[:3]
        x, edge_index = batch.x, batch.edge_index
        for layer, conv in enumerate(module.convs):
            x, edge_index, _ = trim_to_layer(layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index)
            x = conv(x, edge_index) if layer else conv(x, edge_index).relu()
    torch.testing.assert_close(x[:3], whole)


def test_torch_is_imported_when_it_is_asked_for() -> None:
    program = "import sys, livegnn as lg; lg.pyg; assert 'torch' not in sys.modules; lg.pyg.pin"
    program += "; assert 'torch' in sys.modules; assert all(callable(getattr(lg.pyg, name)) for name in lg.pyg.__all__)"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lg.pyg.nothing
