"""Several results of a forward: each that is kept is PyG's own, at import and on a live engine."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData

import livegnn as lg
from livegnn.errors import ModelError, ModelMismatch, ModelUnsupported, StoredStateInvalid, UsageError
from livegnn.testing import random_batch, random_graph
from livegnn.testing.oracle import check_rows
from tests.oracle.pyg_oracle import liven


class Two(nn.Module):
    """Embeddings next to classes, and what else a forward returns."""

    def __init__(self, what):
        super().__init__()
        self.conv1, self.conv2, self.what = pyg.GCNConv(5, 6), pyg.SAGEConv(6, 3), what
        self.loss = nn.MSELoss()

    def forward(self, x, edge_index, edge_weight=None):
        h = self.conv1(x, edge_index, edge_weight).relu()
        y = F.log_softmax(self.conv2(h, edge_index), dim=-1)
        return self.what(self, h, y)


class Named(NamedTuple):
    emb: torch.Tensor
    classes: torch.Tensor


def named(net, h, y):
    return Named(h, y)


def recorded(net, h, y):
    assert len(h) > 0
    return {"both": Named(h, y)}


def pair(net, h, y):
    return h, y


def nested(net, h, y):
    return {"emb": h, "heads": [y, y[:, 0]], "loss": h.pow(2).mean()}


def results(name, module, *given):
    with torch.no_grad():
        result = module(*given)
    for step in name.split("."):
        result = (
            getattr(result, step)
            if step in getattr(result, "_fields", ())
            else result[int(step) if step.isdigit() else step]
        )
    return result.numpy().reshape(len(result), -1)


@pytest.mark.parametrize(
    ("what", "outputs", "columns"),
    [
        (pair, "all", {"0": (0, 6), "1": (6, 9)}),
        (pair, [1, 0], {"1": (0, 3), "0": (3, 9)}),
        (nested, "all", {"emb": (0, 6), "heads.0": (6, 9), "heads.1": (9, 10)}),
        (nested, ["emb", ("heads", 1)], {"emb": (0, 6), "heads.1": (6, 7)}),
        (named, "all", {"emb": (0, 6), "classes": (6, 9)}),
        (named, ["classes", 0], {"classes": (0, 3), "0": (3, 9)}),
        (recorded, "all", {"both.emb": (0, 6), "both.classes": (6, 9)}),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_all_follow_the_module(what, outputs, columns, weighted):
    torch.manual_seed(1)
    module, rng = liven(Two(what)), np.random.default_rng(len(columns))
    graph, mirror = random_graph(rng, 5, weighted, vertices=20)
    model = lg.from_pyg(module, outputs=outputs)
    assert dict(model.outputs) == columns
    assert model.weights == "optional"
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 8, 25)):
        engine.apply(random_batch(rng, mirror, size))
        engine.verify()
        features, src, dst, weight, live = mirror.arrays()
        for name, (start, stop) in columns.items():
            rows = []
            for dtype in (torch.float64, torch.float32):
                given = [torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))]
                given += [torch.tensor(weight, dtype=dtype)] if weighted else []
                rows.append(results(name, copy.deepcopy(module).to(dtype), *given)[live])
            got = engine.embeddings(live, output=name)
            check_rows(got, *rows, note=f"{name}, version {batch + 1}")
            assert np.array_equal(got, engine.embeddings(live)[:, start:stop])
            with engine.snapshot() as view:
                assert np.array_equal(got, view.embeddings(live, output=name))
            if stop - start > 1:
                assert np.array_equal(engine.predict(live, output=name), got.argmax(axis=1))


@pytest.mark.parametrize(
    ("what", "outputs", "width"),
    [
        (pair, 0, 6),
        (pair, 1, 3),
        (nested, "emb", 6),
        (nested, ("heads", 1), 1),
        (named, "classes", 3),
        (recorded, ("both", 1), 3),
        (lambda net, h, y: (y, h.mean()), None, 3),
        (lambda net, h, y: (y, net.loss(h, h), None, torch.ones(2)), None, 3),
        (lambda net, h, y: {"y": y}, None, 3),
        (lambda net, h, y: (y, torch.sort(h, dim=0)), 0, 3),
    ],
)
def test_one_of_several(what, outputs, width):
    model = lg.from_pyg(liven(Two(what)), outputs=outputs)
    assert (model.output_width, dict(model.outputs)) == (width, {})


@pytest.mark.parametrize(
    ("what", "outputs", "error", "message"),
    [
        (pair, None, ModelUnsupported, "it returns a tuple of 0: 6 columns per vertex, 1: 3 columns per vertex; pass "
         "outputs=0 or outputs=1, or outputs='all' for all of these"),
        (nested, None, ModelUnsupported, "'emb': 6 columns per vertex, ('heads', 0): 3 columns per vertex, ('heads', "
         "1): 1 column per vertex, 'loss': one number; pass outputs='emb' or outputs=('heads', 0)"),
        (nested, "loss", ModelUnsupported, "mean in Two: it reduces over all vertices"),
        (nested, "heads", ModelUnsupported, "Two.forward, result 'heads': it returns a list"),
        (named, None, ModelUnsupported, "pass outputs='emb' or outputs='classes', or outputs='all'"),
        (lambda net, h, y: {0: h, "0": y}, "all", ModelUnsupported,
         "its results 0 and '0' would both have the name '0'; give them other keys"),
        (lambda net, h, y: {"a.b": h, "a": {"b": y}}, "all", ModelUnsupported, "both have the name 'a.b'"),
        (pair, [0, 0], ModelUnsupported, "would both have the name '0'; name each result once"),
        (pair, 2, ModelUnsupported, "it has no result 2; it returns 0: 6 columns"),
        (pair, 1.5, ModelError, "expected outputs as an index, a key, a path"),
        (pair, [], ModelError, "expected outputs as an index, a key, a path"),
        (lambda net, h, y: y, 0, ModelUnsupported, "it returns one result, not several; leave outputs out"),
        (lambda net, h, y: (y, torch.sort(h, dim=0)), None, ModelUnsupported,
         "1: refused (sort in Two: dim=0 runs over all vertices); pass outputs=0"),
    ],
)  # fmt: skip
def test_what_is_refused(what, outputs, error, message):
    with pytest.raises(error) as caught:
        lg.from_pyg(Two(what), outputs=outputs)
    assert message in str(caught.value), str(caught.value)


def test_names_are_kept_by_files_and_asked_for(tmp_path):
    graph, _ = random_graph(np.random.default_rng(0), 5, False, vertices=9)
    engine = lg.Engine(lg.from_pyg(Two(pair), outputs="all"), graph)
    engine.save(tmp_path / "engine")
    loaded = lg.Engine.load(tmp_path / "engine")
    assert dict(loaded.model.outputs) == {"0": (0, 6), "1": (6, 9)}
    ids = graph.vertices()[:4]
    assert np.array_equal(loaded.embeddings(ids, output=1), engine.embeddings(ids)[:, 6:])
    with pytest.raises(UsageError, match="expected output= for a model that keeps several, got none; pass one of 0, 1"):
        engine.predict(ids)
    assert engine.predict(ids, lambda rows: rows[:, 0]).shape == (4,)
    with pytest.raises(ModelMismatch, match="expected output as one of 0, 1, got 'y'; pass one of these"):
        engine.embeddings(ids, output="y")
    plain = lg.Engine(lg.from_pyg(Two(pair), outputs=1), graph)
    with pytest.raises(ModelMismatch, match="expected output left out, got 0; import the model with outputs='all'"):
        plain.embeddings(ids, output=0)
    structure, arrays = engine.model.to_arrays()
    with pytest.raises(StoredStateInvalid, match="outputs lie outside of 9 columns"):
        lg.Model.from_arrays(structure | {"outputs": {"0": [0, 10]}}, arrays)
    with pytest.raises(ModelError, match="expected outputs within 9 columns"):
        lg.Model.from_output(engine.model.output, outputs={"0": (3, 12)})


def test_a_small_output_is_compared_by_itself():
    """An error in one output is seen, however large the others are."""

    class Wrong(Two):
        def forward(self, x, edge_index):
            h = self.conv1(x, edge_index)
            small = h[:, :2] * 1e-9
            return 1e6 * h, small if len(edge_index[0]) < 30 else 2 * small

    with pytest.raises(ModelMismatch):
        lg.from_pyg(liven(Wrong(pair)), outputs="all")


class OverTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.HeteroConv(
            {("A", "to", "B"): pyg.SAGEConv((3, 4), 5), ("B", "to", "A"): pyg.SAGEConv((4, 3), 5)}
        )

    def forward(self, x_dict, edge_index_dict):
        h = self.conv(x_dict, edge_index_dict)
        return h, {key: x.relu() for key, x in h.items()}


@pytest.mark.parametrize(
    ("conv", "asked"),
    [(pyg.GATConv(5, 3), True), (pyg.GATv2Conv(5, 3), True), (pyg.TransformerConv(5, 3), False)],
)
def test_attention_weights_may_stand_next_to_rows(conv, asked):
    class Explained(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv

        def forward(self, x, edge_index):
            h, (_, alpha) = self.conv(x, edge_index, return_attention_weights=asked)
            return h.relu(), alpha

    with pytest.raises(ModelUnsupported, match="its attention weights are one row per edge, not per vertex"):
        lg.from_pyg(Explained(), outputs=1)
    assert lg.from_pyg(liven(Explained()), outputs=0).output_width == 3


def test_one_result_over_vertex_types():
    with pytest.raises(ModelUnsupported, match="it returns a tuple of 2 results; pass outputs=0 or outputs=1"):
        lg.from_pyg(OverTypes())
    assert lg.from_pyg(OverTypes(), outputs=1).output_widths == {"A": 5, "B": 5}


@pytest.mark.parametrize("asked", ["all", [0, 1], [1, 0]])
def test_several_results_over_vertex_types(asked):
    """The comparison of the import is with the module's own results, side by side."""
    torch.manual_seed(6)
    module, order = OverTypes(), [0, 1] if asked == "all" else asked
    model = lg.from_pyg(module, outputs=asked)
    assert model.outputs == {str(path): (5 * k, 5 * k + 5) for k, path in enumerate(order)}
    rng, edges = (
        np.random.default_rng(3),
        {("A", "to", "B"): [[0, 1, 2], [0, 0, 1]], ("B", "to", "A"): [[1, 0], [0, 2]]},
    )
    x = {"A": rng.standard_normal((3, 3)).astype(np.float32), "B": rng.standard_normal((2, 4)).astype(np.float32)}
    data = HeteroData()
    for name, rows in x.items():
        data[name].x = torch.tensor(rows)
    for triple, pairs in edges.items():
        data[triple].edge_index = torch.tensor(pairs)
    engine = lg.Engine(model, lg.Graph.from_pyg(data))
    updates = lg.Updates()
    updates.add_edge(0, 1, edge_type=("A", "to", "B"))
    engine.apply(updates)
    edges["A", "to", "B"] = [[0, 1, 2, 0], [0, 0, 1, 1]]
    with torch.no_grad():
        want = module({k: torch.tensor(v) for k, v in x.items()}, {k: torch.tensor(v) for k, v in edges.items()})
    for name, rows in x.items():
        for path in order:
            got = engine.embeddings(np.arange(len(rows)), vertex_type=name, output=str(path))
            np.testing.assert_allclose(got, want[path][name].numpy(), rtol=1e-4, atol=1e-5)


def test_one_result_of_graphs():
    class Pooled(Two):
        def forward(self, x, edge_index, batch):
            h = self.conv1(x, edge_index)
            return pyg.global_add_pool(h, batch), pyg.global_mean_pool(h, batch)

    with pytest.raises(ModelUnsupported, match="it returns a tuple of 0: 6 columns per graph, 1: 6 columns per graph"):
        lg.graph_level_from_pyg(Pooled(pair))
    assert lg.graph_level_from_pyg(Pooled(pair), outputs=1).pools == (("mean", 0, 6),)


def test_a_result_of_vertices_next_to_one_of_graphs():
    class Both(Two):
        def forward(self, x, edge_index, batch):
            h = self.conv1(x, edge_index)
            return pyg.global_add_pool(h, batch), h

    with pytest.raises(ModelUnsupported, match=r"0: 6 columns per graph, 1: 6 columns per vertex; pass outputs=0$"):
        lg.graph_level_from_pyg(Both(pair))
    assert lg.graph_level_from_pyg(Both(pair), outputs=0).pools == (("add", 0, 6),)
