"""What will a shopper click next? The e-commerce query of Helios, sampled ahead, with a model on top.

Users click items, and items are bought together. A bipartite GraphSAGE reads what the query samples: 25 of the user's
clicks, and for each the 10 latest co-purchases. It trains on nine days as they stream by, every click judged by the
graph just before it. Then it meets the tenth day: with samples of the graph as it is, and with samples of last night.
(Rows of a day have no times; where a user's clicks lie together in the file, fresh samples show the first ones.)
"""

import copy
import time

import numpy as np
import torch
from torch import nn

import livegnn as lg
from livegnn.cli.demo.experiment import evaluate
from livegnn.datasets import load_or_generate_typed

torch.manual_seed(0)
torch.set_num_threads(1)
random = np.random.default_rng(0)
BATCH, EPOCHS = 500, 6

# %% The stream: ten days of clicks, carts and purchases; CoPurchase edges are derived from purchases of one day.
stream = load_or_generate_typed("alibaba_ecomm")
print(stream.description)
click = stream.code("Click")
days = np.searchsorted(stream.time, np.unique(stream.time)).tolist()  # where each day begins

# %% Two queries, kept sampled: what a user is about, and what an item goes with.
graph = stream.graph(until=days[1])  # the first day
user_query = lg.query("User").out("Click").sample(25, by="random").out("CoPurchase").sample(10, by="top_k")
item_query = lg.query("Item").out("CoPurchase").sample(10, by="top_k")
sampler = lg.PreSampler(graph, [user_query, item_query], seed=0)
print(sampler.explain())


# %% The model: mean over what was sampled, level by level, towards the seed.
def mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Over the last level, of those that are there; zeros where none is."""
    return (values * mask[..., None]).sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1)


class LinkPredictor(nn.Module):
    """score(user, item) = <z_user, z_item> + b_item: GraphSAGE over two hops, and over one."""

    def __init__(self, user_width: int, item_width: int, hidden: int = 32) -> None:
        super().__init__()
        self.near, self.far = nn.Linear(item_width, hidden), nn.Linear(item_width, hidden, bias=False)
        self.user, self.clicks = nn.Linear(user_width, hidden), nn.Linear(hidden, hidden, bias=False)
        self.item, self.related = nn.Linear(item_width, hidden), nn.Linear(item_width, hidden, bias=False)
        self.bias = nn.Linear(item_width + 1, 1)

    def forward(self, users: tuple, items: tuple, place: torch.Tensor) -> torch.Tensor:
        (x0, x1, x2), (m1, m2) = users
        clicked = torch.relu(self.near(x1) + self.far(mean(x2, m2)))
        z_user = (self.user(x0) + self.clicks(mean(clicked, m1)))[place]
        (y0, y1), (n1,) = items
        z_item = self.item(y0) + self.related(mean(y1, n1))
        busy = n1.sum(-1, keepdim=True) / 10
        return (z_user * z_item).sum(-1) / 6 + self.bias(torch.cat([y0, busy], -1)).squeeze(-1)


def levels(sample: lg.sampling.Sample) -> tuple:
    """Features of every level, and masks of those below the seeds, as tensors."""
    hops = range(1, sample.hops + 1)
    features = tuple(torch.from_numpy(sample.features(k)) for k in (0, *hops))
    return features, tuple(torch.from_numpy(sample.mask(k)).float() for k in hops)


# %% Cases: each click, and for the same user an item that somebody else clicked in the same batch.
def cases(begin: int, end: int) -> list[tuple]:
    """(start, stop, users, items, truth) for each batch of events [begin, end)."""
    found = []
    for start in range(begin, end, BATCH):
        stop = min(start + BATCH, end)
        clicks = start + np.flatnonzero(stream.edge_type[start:stop] == click)
        other = random.permutation(clicks)
        fair = stream.src[clicks] != stream.src[other]
        users, truth = np.tile(stream.src[clicks[fair]], 2), np.repeat([True, False], fair.sum())
        found.append((start, stop, users, np.concatenate([stream.dst[clicks[fair]], stream.dst[other[fair]]]), truth))
    return found


def sampled(users: np.ndarray, items: np.ndarray) -> tuple:
    """The model's input, of the version that is served now; each user is sampled once."""
    seeds, place = np.unique(users, return_inverse=True)
    of_users = levels(sampler.sample(seeds, query=1, edge_ids=False))
    return of_users, levels(sampler.sample(items, query=2, edge_ids=False)), torch.from_numpy(place)


def auc(net: LinkPredictor, inputs: list[tuple], truths: list[np.ndarray]) -> float:
    with torch.inference_mode():
        scores = np.concatenate([net(*samples).numpy() for samples in inputs])
    return evaluate(scores, np.concatenate(truths)).auc


# %% Nine days: every batch is sampled, then applied. Then a few rounds of training over what was seen.
history = []
for start, stop, users, items, truth in cases(days[1], days[9]):
    if len(truth):
        history.append((sampled(users, items), torch.from_numpy(truth).float()))
    sampler.apply(stream.updates(start, stop))
model = LinkPredictor(stream.features["User"].shape[1], stream.features["Item"].shape[1])
untrained = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
for epoch in range(EPOCHS):
    losses = []
    for i in random.permutation(len(history)):
        samples, truth = history[i]
        loss = nn.functional.binary_cross_entropy_with_logits(model(*samples), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

# %% The tenth day: predict each batch by samples of last night, and by samples of the moment before it is applied.
today = cases(days[9], stream.event_count)
truths = [truth for *_, truth in today if len(truth)]
stale = [sampled(users, items) for _, _, users, items, truth in today if len(truth)]
fresh, clock = [], time.perf_counter()
for start, stop, users, items, truth in today:
    if len(truth):
        fresh.append(sampled(users, items))
    sampler.apply(stream.updates(start, stop))
seconds = time.perf_counter() - clock
print(
    f"day 10: {stream.event_count - days[9]:,} events applied, {sum(map(len, truths)):,} pairs sampled: {seconds:.2f} s"
)
print(f"AUC, untrained                {auc(untrained, fresh, truths):.3f}")
print(f"AUC, samples as of last night {auc(model, stale, truths):.3f}")
print(f"AUC, samples as of now        {auc(model, fresh, truths):.3f}")
sampler.verify()
print(f"every sample equals a scan of the graph at version {sampler.version}: True")
