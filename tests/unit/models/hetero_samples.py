"""A small shop with three types, a model over them built by hand, and its module."""

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.models import ir

BUY, FOLLOW, BOUGHT = ("User", "Buy", "Item"), ("User", "Follow", "User"), ("Item", "Bought", "User")
TYPES, TRIPLES = ("User", "Item"), (BUY, FOLLOW, BOUGHT)


def shop(**columns):
    """Three users with features of width 3, two items with features of width 2, and a type without any vertex."""
    return lg.Graph(
        {"Item": np.arange(4, dtype=np.float32).reshape(2, 2), "User": np.eye(3, dtype=np.float32), "Tag": [[1.0]]},
        {BUY: [0, 1, 2], FOLLOW: [0, 0], BOUGHT: [0]},
        {BUY: [0, 1, 1], FOLLOW: [2, 2], BOUGHT: [1]},
        **columns,
    )


def by_hand():
    """y of users: relu(mean of the items bought) side by side with their own row; of items: the sum of the buyers."""
    x = ir.Input(3)
    users, items = ir.OfType(x, 0, 3), ir.OfType(x, 1, 2)
    from_items = ir.Propagate(items, "mean", relation=2, target=0)
    of_users = ir.Concat((ir.Activation(from_items, "relu"), users))
    of_items = ir.Propagate(users, relation=0, target=1)
    return lg.Model.from_output(ir.ByType((of_users, of_items)), vertex_types=TYPES, edge_types=TRIPLES)


class Net(nn.Module):
    """Outputs of width 4 for users, of width 1 for items."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        sage = pyg.SAGEConv
        self.conv = pyg.HeteroConv({BUY: sage((3, 2), 4), FOLLOW: sage(3, 4), BOUGHT: sage((2, 3), 4)})
        self.score = nn.Linear(4, 1)

    def forward(self, x_dict, edge_index_dict):
        h = self.conv(x_dict, edge_index_dict)
        return {"User": h["User"].relu(), "Item": self.score(h["Item"])}
