"""A shop's real clicks, day by day: users and items of their own widths, four kinds of edges in both directions."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.datasets import data_folder
from livegnn.errors import DataMissing
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven

KINDS = ("Click", "Collect", "Cart", "Buy")
FORTH = [("User", kind, "Item") for kind in KINDS]
BACK = [("Item", f"{kind}By", "User") for kind in KINDS]


def shop():
    """(features by type, src, dst, kind, day); None where the data are not at hand."""
    try:
        folder = data_folder() / "alibaba_ecomm"
    except DataMissing:
        return None
    if not folder.is_dir():
        return None
    edges, vertices = np.load(folder / "edges.npz"), np.load(folder / "nodes.npz")
    users = np.concatenate([np.nan_to_num(vertices["user_x"]), vertices["user_stage"]], 1).astype(np.float32)
    price = np.log1p(np.maximum(np.nan_to_num(vertices["item_price"]), 0)).reshape(-1, 1)
    items = np.concatenate([price, vertices["item_cat"] % 7 / 7], 1).astype(np.float32)
    features = {"User": np.clip(users, -1, 10) / 10, "Item": items}
    return features, edges["src"], edges["dst"] - len(users), edges["etype"] - 1, edges["t_day"]


class Recommender(nn.Module):
    """Two layers, means within each relation, sums over relations."""

    def __init__(self):
        super().__init__()
        make = lambda sizes, out: pyg.HeteroConv(  # noqa: E731
            {t: pyg.SAGEConv((sizes[t[0]], sizes[t[2]]), out) for t in FORTH + BACK}
        )
        self.first, self.second = make({"User": 15, "Item": 4}, 16), make({"User": 16, "Item": 16}, 8)

    def forward(self, x_dict, edge_index_dict):
        h = self.first(x_dict, edge_index_dict)
        return self.second({name: rows.relu() for name, rows in h.items()}, edge_index_dict)


def check(engine, module, features, pairs, note):
    engine.verify()
    x = {name: torch.tensor(rows) for name, rows in features.items()}
    edges = {t: torch.tensor(np.array(pairs[t], np.int64).reshape(-1, 2).T) for t in FORTH + BACK}
    with torch.no_grad():
        plain = module(x, edges)
        truth = module.double()({name: rows.double() for name, rows in x.items()}, edges)
        module.float()
    for name, rows in features.items():
        got = engine.embeddings(np.arange(len(rows)), vertex_type=name)
        check_rows(got, truth[name].numpy(), plain[name].double().numpy(), f"{note}, {name}")


def test_a_day_of_a_shop():
    data = shop()
    if data is None:
        pytest.skip("the data set alibaba_ecomm is not at hand: set LIVEGNN_DATA")
    features, src, dst, kind, day = data
    module = liven(Recommender())
    pairs = {t: [] for t in FORTH + BACK}
    loaded = day < day.max()
    for u, v, k in zip(src[loaded].tolist(), dst[loaded].tolist(), kind[loaded].tolist(), strict=True):
        pairs[FORTH[k]].append((u, v))
        pairs[BACK[k]].append((v, u))
    graph = lg.Graph(
        features,
        {t: [u for u, _ in each] for t, each in pairs.items()},
        {t: [v for _, v in each] for t, each in pairs.items()},
    )
    engine = lg.Engine(lg.from_pyg(module), graph)
    check(engine, module, features, pairs, "at first")
    today = np.flatnonzero(~loaded)
    rng = np.random.default_rng(0)
    for number, batch in enumerate(np.array_split(today, 8)):
        updates = lg.Updates()
        for i in batch.tolist():
            u, v, k = int(src[i]), int(dst[i]), int(kind[i])
            for triple, pair in ((FORTH[k], (u, v)), (BACK[k], (v, u))):
                updates.add_edge(*pair, edge_type=triple)
                pairs[triple].append(pair)
            old = int(rng.integers(len(pairs[FORTH[k]]) - 1))
            for triple in (FORTH[k], BACK[k]):
                updates.remove_edge(*pairs[triple][old], edge_type=triple)
                pairs[triple][old] = pairs[triple].pop()
        changes = engine.apply(updates)
        assert len(changes) < graph.vertex_count
        if number in (0, 7):
            check(engine, module, features, pairs, f"after batch {number}")
