"""A random world for tests of changes, and what its changes are by full predictions."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment.filters import ChangeFilter
from livegnn.distributed.cluster.crew import ThreadCrew


class ChangingWorld:
    """A graph of one kind, and random batches on it that know which vertices are live."""

    def __init__(self, kind, seed=0, width=3):
        self.rng = np.random.default_rng(seed)
        self.kind, self.live, self.next = kind, [], 30
        rng = self.rng
        self.vertex_type = "b" if kind == "typed" else None
        x = rng.normal(size=(30, 4)).astype(np.float32)
        src, dst = rng.integers(0, 30, 60), rng.integers(0, 30, 60)
        first = [self.name(i) for i in range(30)]
        self.live = list(first)
        weights = [lg.layers.GCN(rng.normal(size=(5, 4)), np.zeros(5), activation="relu")]
        weights.append(lg.layers.SAGE(rng.normal(size=(width, 5)), rng.normal(size=(width, 5))))
        self.model = lg.Model(weights)
        if kind == "typed":
            torch = pytest.importorskip("torch")
            from torch_geometric.nn import HeteroConv, SAGEConv

            torch.manual_seed(seed)

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv = HeteroConv(
                        {("a", "to", "b"): SAGEConv((4, 4), width), ("b", "to", "a"): SAGEConv((4, 4), 5)}
                    )

                def forward(self, x_dict, edge_index_dict):
                    return self.conv(x_dict, edge_index_dict)

            self.model = lg.from_pyg(Net().eval())
            edges = {("a", "to", "b"): (src, dst), ("b", "to", "a"): (dst, src)}
            self.graph = lg.Graph(
                {"a": x, "b": x}, {k: e[0] for k, e in edges.items()}, {k: e[1] for k, e in edges.items()}
            )
        else:
            ids = None if kind == "dense" else np.array(first, object if kind == "text" else np.int64)
            src, dst = ((each if ids is None else ids[each]) for each in (src, dst))
            self.graph = lg.Graph(x, src, dst, ids=ids)
        self.engine = None

    def with_engine(self):
        """Itself, with an engine of its own rather than a deployment's."""
        self.engine = lg.Engine(self.model, self.graph, name="scores")
        return self

    def with_workers(self, workers):
        """Itself, with an engine over workers in threads."""
        self.engine = lg.Cluster(
            self.model, self.graph, workers, crew=ThreadCrew(workers), partition="hash", name="scores"
        )
        return self

    def name(self, i):
        return {"integer": 1000 + 7 * i, "text": f"v,{i}"}.get(self.kind, i)

    def batch(self):
        updates, rng = lg.Updates(), self.rng
        of_type = {} if self.vertex_type is None else {"vertex_type": self.vertex_type}
        for _ in range(int(rng.integers(1, 5))):
            u, v = (self.live[i] for i in rng.integers(0, len(self.live), 2))
            if self.vertex_type is not None:
                updates.add_edge(int(rng.integers(0, 30)), v, edge_type=("a", "to", "b"))
            else:
                updates.add_edge(u, v)
            updates.set_features(v, rng.normal(size=4).astype(np.float32), **of_type)
        roll = rng.random()
        if roll < 0.3:
            vertex = self.live.pop(int(rng.integers(0, len(self.live))))
            updates.remove_vertex(vertex, **of_type)
            if roll < 0.1:  # and back again
                updates.add_vertex(vertex, rng.normal(size=4).astype(np.float32), **of_type)
                self.live.append(vertex)
        elif roll < 0.6:
            vertex, self.next = self.name(self.next), self.next + 1
            updates.add_vertex(vertex, rng.normal(size=4).astype(np.float32), **of_type)
            if roll < 0.35:  # and away again
                updates.remove_vertex(vertex, **of_type)
            else:
                self.live.append(vertex)
        return updates

    def rows(self):
        """Of all live vertices, by id."""
        return dict(zip(self.live, self.engine.embeddings(self.live, vertex_type=self.vertex_type), strict=True))


def expected(before, after, wanted):
    """What a filter lets through, vertex by vertex, from rows before and after."""
    found = {}
    for vertex in before.keys() | after.keys():
        pair = before.get(vertex), after.get(vertex)
        if pair[0] is not None and pair[1] is not None and (pair[0] == pair[1]).all():
            continue
        if wanted.ids is not None and vertex not in wanted.ids:
            continue
        values = [value_of(row, wanted) for row in pair]
        classes = [None if row is None else class_of(row) for row in pair]
        if wanted.flips and classes[0] == classes[1]:
            continue
        gap = np.inf if None in values else float(np.abs(pair[1] - pair[0]).max())
        if wanted.min_change is not None and gap < wanted.min_change:
            continue
        crossed = [
            (value is not None and value >= (wanted.above or np.inf), value is not None and value >= below(wanted))
            for value in values
        ]
        rises = wanted.above is not None and crossed[1][0] and not crossed[0][0]
        falls = wanted.below is not None and crossed[0][1] and not crossed[1][1]
        if (wanted.above is not None or wanted.below is not None) and not (rises or falls):
            continue
        found[vertex] = tuple(values)
    return found


def below(wanted):
    return np.inf if wanted.below is None else wanted.below


def class_of(row):
    return int(row.argmax()) if len(row) > 1 else bool(row[0] >= 0)


def value_of(row, wanted):
    if row is None:
        return None
    if wanted.column is not None:
        return float(row[wanted.column])
    if len(row) == 1:
        return float(1 / (1 + np.exp(-np.float64(row[0]))))
    if wanted.of_class is None:
        return int(row.argmax())
    e = np.exp(np.float64(row) - row.max())
    return float(e[wanted.of_class] / e.sum())


def filters(world, engine="scores"):
    of = {"engine": engine, "vertex_type": world.vertex_type}
    wide = world.model.output_width > 1
    yield ChangeFilter(**of)
    yield ChangeFilter(**of, ids=tuple(map(world.name, (1, 2, 3, 31))))
    yield ChangeFilter(**of, flips=True)
    yield ChangeFilter(**of, min_change=0.5)
    yield ChangeFilter(**of, above=0.3, **({"of_class": 1} if wide else {}))
    yield ChangeFilter(**of, above=0.6, below=0.4, **({"column": 2} if wide else {}))
    yield ChangeFilter(**of, below=0.2, column=0, ids=tuple(map(world.name, range(0, 30, 2))))


def same(found, promised):
    assert found.keys() == promised.keys()
    for vertex, pair in promised.items():
        for got, wanted in zip(found[vertex], pair, strict=True):
            assert (got is None) == (wanted is None)
            assert wanted is None or np.isclose(got, wanted, rtol=1e-6, atol=1e-7)
