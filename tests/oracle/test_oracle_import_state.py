"""Forwards that keep something from call to call: caches that may be ignored, state that is refused, notes that do no
harm."""

import contextlib
import copy
import threading
from collections import Counter, deque

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.testing import random_batch, random_graph
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_pyg_streams import check

CACHED = {
    "gcn": lambda cached: pyg.GCN(5, 8, 2, 3, cached=cached),
    "sg": lambda cached: pyg.SGConv(5, 3, K=2, cached=cached),
    "appnp": lambda cached: pyg.Sequential(
        "x, edge_index", [(nn.Linear(5, 3), "x -> x"), (pyg.APPNP(3, 0.2, cached=cached), "x, edge_index -> x")]
    ),
}


class Keeping(nn.Module):
    """Scales by what the first call saw; a real bug of published code."""

    def __init__(self):
        super().__init__()
        self.conv, self.first = pyg.SAGEConv(5, 3), None

    def forward(self, x, edge_index):
        if self.first is None:
            self.first = self.conv(x, edge_index)
        return self.first


class Evolving(nn.Module):
    """Its weight moves with every call, whatever the graph."""

    def __init__(self):
        super().__init__()
        self.conv, self.cell, self.state = pyg.GCNConv(5, 3), nn.GRUCell(3, 3), None
        self.start = nn.Parameter(torch.randn(3, 3))

    def forward(self, x, edge_index):
        self.state = self.cell(self.start, self.start if self.state is None else self.state)
        return self.conv(x, edge_index) @ self.state


class Counting(nn.Module):
    """Changes what its layers hold in place, so that its attributes stay the same objects."""

    def __init__(self):
        super().__init__()
        self.conv, self.calls, self.seen, self.parts = pyg.SAGEConv(5, 3), 0, [], {}
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(3))


class BufferOfCalls(Counting):
    def forward(self, x, edge_index):
        self.count.add_(1)
        return self.conv(x, edge_index) * (self.count > 3)


class BufferOfMeans(Counting):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        out = h - self.mean
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        return out


class BufferReplaced(Counting):
    def forward(self, x, edge_index):
        self.count = self.count + 1
        return self.conv(x, edge_index) * (self.count > 50)


class CallsInList(Counting):
    def forward(self, x, edge_index):
        self.seen.append(1)
        return self.conv(x, edge_index) * (2 if len(self.seen) > 12 else 1)


class CacheInDict(Counting):
    def forward(self, x, edge_index):
        if "h" not in self.parts:
            self.parts["h"] = self.conv(x, edge_index).mean(0)
        return self.conv(x, edge_index) + self.parts["h"]


class LateCounter(Counting):
    def forward(self, x, edge_index):
        self.calls += 1
        h = self.conv(x, edge_index)
        return h * 2 if self.calls > 100 else h


class Kept(Counting):
    """Notes each call by `note` in what `kept` makes, and doubles its rows once `reads` of it is more than 100."""

    def __init__(self, kept, note, reads):
        super().__init__()
        self.kept, self.note, self.reads = kept(), note, reads

    def forward(self, x, edge_index):
        self.note(self.kept)
        h = self.conv(x, edge_index)
        return h * 2 if self.reads(self.kept) > 100 else h


def count_in(kept, key):
    kept[key] += 1


KEPT = {
    "number in a list": (lambda: [0], lambda kept: count_in(kept, 0), lambda kept: kept[0]),
    "number in a dict": (lambda: {"n": 0}, lambda kept: count_in(kept, "n"), lambda kept: kept["n"]),
    "list": (list, lambda kept: kept.append(0), len),
    "deque": (deque, lambda kept: kept.append(0), len),
    "set": (set, lambda kept: kept.add(len(kept)), len),
    "dict": (dict, lambda kept: kept.setdefault(len(kept)), len),
    "Counter": (Counter, lambda kept: kept.update([len(kept)]), Counter.total),
    "number in a Counter": (Counter, lambda kept: kept.update(["n"]), Counter.total),
}


class Standardised(Counting):
    """As published code does, at every call anew."""

    def forward(self, x, edge_index):
        weight = self.conv.lin_l.weight
        weight.data = (weight - weight.mean(1, keepdim=True)) / (weight.var(1, keepdim=True) + 1e-5).sqrt()
        return self.conv(x, edge_index)


class Clamped(Counting):
    """Writes to a parameter what a second call leaves as it is; keeps a list that nothing reads."""

    def forward(self, x, edge_index):
        self.conv.lin_l.weight.data.clamp_(max=0.1)
        self.seen.append(x.size(0))
        return self.conv(x, edge_index)


class Noting(nn.Module):
    """Leaves its embedding and a lock for others; its output does not read them."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.lock = pyg.GCNConv(5, 8), pyg.GCNConv(8, 3), threading.Lock()

    def forward(self, x, edge_index):
        with self.lock:
            self.embedding = self.first(x, edge_index).relu()
        return self.second(self.embedding, edge_index)


def follow(module, model, seed):
    """The live engine over a stream against the module, which always starts afresh."""
    rng = np.random.default_rng(seed)
    graph, mirror = random_graph(rng, 5, False, vertices=20)
    engine = lg.Engine(model, graph, threads=1)
    check(engine, module, mirror, f"seed {seed}, at creation")
    for batch, size in enumerate((1, 8, 25)):
        engine.apply(random_batch(rng, mirror, size))
        check(engine, module, mirror, f"seed {seed}, version {batch + 1}")


@pytest.mark.parametrize("name", CACHED)
def test_a_cache_is_ignored_when_asked(name):
    torch.manual_seed(3)
    module = liven(CACHED[name](True), 3)
    fresh = CACHED[name](False)
    fresh.load_state_dict(module.state_dict())
    x, edges = torch.randn(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])
    with torch.no_grad():
        module(x, edges)  # now it holds a graph that is not ours, as after training
    with pytest.raises(lg.errors.ModelUnsupported, match="cached=True keeps the first graph for ever"):
        lg.from_pyg(module)
    follow(fresh, lg.from_pyg(module, ignore_cached=True), 3)
    assert all(each.cached for each in module.modules() if hasattr(each, "cached")), "the module itself is as it was"


STATE = [
    (Keeping, "first"), (Evolving, "state"), (BufferOfCalls, "count"), (BufferOfMeans, "mean"),
    (BufferReplaced, "count"), (CallsInList, "seen"), (CacheInDict, "parts"), (LateCounter, "calls"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), STATE)
def test_state_is_refused_by_name(kind, name):
    with pytest.raises(lg.errors.ModelUnsupported, match=f"it keeps {name} from one call for the next"):
        lg.from_pyg(kind().eval(), ignore_cached=True)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_read_after_many_calls_is_refused_wherever_it_is_kept(name):
    with pytest.raises(lg.errors.ModelUnsupported, match="it keeps kept from one call for the next"):
        lg.from_pyg(Kept(*KEPT[name]).eval())
    kept, note, _ = KEPT[name]
    assert lg.from_pyg(Kept(kept, note, lambda kept: 0).eval()).input_width == 5  # never read


def test_a_forward_that_writes_to_its_parameters_is_refused():
    with pytest.raises(
        lg.errors.ModelUnsupported, match=r"it writes to conv\.lin_l\.weight in each call; compute what"
    ):
        lg.from_pyg(Standardised().eval())


def test_a_write_that_a_second_call_leaves_as_it_is():
    torch.manual_seed(4)
    module = liven(Clamped(), 4)
    before = copy.deepcopy(module.state_dict())
    model = lg.from_pyg(module)
    assert module.seen == []
    assert all(torch.equal(before[name], each) for name, each in module.state_dict().items())
    follow(module, model, 4)


def test_what_is_only_written_does_no_harm():
    torch.manual_seed(5)
    module = liven(Noting(), 5)
    model = lg.from_pyg(module)
    assert not hasattr(module, "embedding")
    module.lock = contextlib.nullcontext()  # the oracle copies the module, and locks cannot be copied
    follow(module, model, 5)
