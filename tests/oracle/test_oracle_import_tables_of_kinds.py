"""Tables of several kinds of vertices, such as users and items, whose edges run in one space of numbers."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.errors import ModelUnsupported
from tests.oracle.pyg_oracle import liven

USERS, ITEMS = 12, 18


class Kinds(nn.Module):
    """Items come first in the forward; the tables were made in another order."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 6), nn.Embedding(ITEMS, 6)
        self.convs = nn.ModuleList([pyg.LGConv() for _ in range(2)])
        self.lin, self.other, self.drop = nn.Linear(6, 4), nn.Linear(6, 4), nn.Dropout(0.3)

    def rows(self, edge_index):
        x = torch.cat([self.items.weight, self.users.weight], dim=0)
        found = [x]
        for conv in self.convs:
            found.append(conv(found[-1], edge_index))
        return torch.stack(found, dim=1).mean(dim=1)


class Joined(Kinds):
    def forward(self, edge_index):
        return self.rows(edge_index)


class Apart(Kinds):
    """Both kinds, with the rows that they started from in between."""

    def forward(self, edge_index):
        items, users = torch.split(self.rows(edge_index), [ITEMS, USERS])
        return users, self.users.weight, items, self.items.weight


class AsDict(Kinds):
    def forward(self, edge_index):
        h = self.rows(edge_index)
        items, users = h[:ITEMS], h[ITEMS:, :]
        items, users = (F.normalize(self.drop(self.lin(each)).relu(), dim=-1) for each in (items, users))
        return {"items": items, "users": users}


class Again(Kinds):
    """Apart and together again, before the last layer."""

    def forward(self, edge_index):
        items, users = self.rows(edge_index).split([ITEMS, USERS], dim=0)
        h = torch.cat([self.lin(items), self.lin(users)])
        return self.convs[0](torch.tanh(h), edge_index)


class Parameters(nn.Module):
    """Parameters in the place of embeddings."""

    def __init__(self):
        super().__init__()
        self.item_emb, self.user_emb = (nn.Parameter(torch.randn(count, 6)) for count in (ITEMS, USERS))
        self.conv = pyg.SAGEConv(6, 3)

    def forward(self, edge_index):
        return self.conv(torch.cat((self.item_emb, self.user_emb), 0), edge_index)


def by_kind(result):
    """The rows of all vertices: items first."""
    if isinstance(result, tuple):
        return torch.cat([result[2], result[0]])
    return torch.cat([result["items"], result["users"]]) if isinstance(result, dict) else result


@pytest.mark.parametrize(("kind", "outputs"), [(Joined, None), (Apart, 2), (AsDict, None), (Again, None),
                                               (Parameters, None)])  # fmt: skip
def test_tables_stay_live(kind, outputs):
    torch.manual_seed(3)
    module = liven(kind())
    model, rng = lg.from_pyg(module, outputs=outputs), np.random.default_rng(4)
    assert [len(rows) for rows in model.tables.values()] == [ITEMS, USERS]
    assert all(name.startswith("item") == (k == 0) for k, name in enumerate(model.tables))
    count = ITEMS + USERS
    pairs = rng.integers(0, count, (2, 90))
    engine = lg.Engine(model, lg.Graph(np.concatenate([*model.tables.values()]), *pairs))
    for _ in range(3):
        new = rng.integers(0, count, (2, 5))
        updates = lg.Updates()
        updates.add_edges(*new)
        updates.remove_edge(*pairs[:, 0])
        engine.apply(updates)
        pairs = np.concatenate([pairs[:, 1:], new], axis=1)
        with torch.no_grad():
            want = by_kind(copy.deepcopy(module).double()(torch.tensor(pairs))).numpy()
        got = engine.embeddings(np.arange(count))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got, engine.recompute())
    updates = lg.Updates()
    updates.add_vertex(count, np.ones(6, np.float32))  # a new user: after all others
    updates.add_edge(0, count)
    engine.apply(updates)
    engine.verify()


class Unlike(Kinds):
    """Each kind has a map of its own."""

    def forward(self, edge_index):
        items, users = self.rows(edge_index).split([ITEMS, USERS])
        return self.lin(items), self.other(users)


class Shifted(Kinds):
    def forward(self, edge_index):
        h = self.rows(edge_index)
        return torch.cat([h[:3], h[3:]])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Unlike, "the rows of one table, and the others' are not computed alike"), (Shifted, "it picks rows")],
)
def test_what_depends_on_the_kind_is_refused(kind, reason):
    with pytest.raises(ModelUnsupported, match=reason):
        lg.from_pyg(kind())
