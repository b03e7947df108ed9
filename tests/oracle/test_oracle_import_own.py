"""Users' own layers, imported by following a run: equal to PyG in float64, and live over random streams."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.models import ir
from livegnn.models.edges import Gather
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph
from livegnn.testing.oracle import check_rows
from livegnn.verify import Operator, layer
from tests.oracle import own_layers as own
from tests.oracle.pyg_oracle import ROUNDED, assert_equal, liven

CASES = own.BIT_EXACT | own.TO_FLOAT32


def imported(name):
    torch.manual_seed(0)
    module = liven(CASES[name](), 1)
    return module, lg.from_pyg(module, **own.OPTIONS.get(name, {}))


def by_pyg(module, model, mirror, dtype):
    features, src, dst, weight, live = mirror.arrays()
    attributes, types = mirror.columns()
    twin = copy.deepcopy(module).to(dtype).eval()
    given = [torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))]
    if mirror.weighted and model.uses_weights:
        given.append(torch.tensor(weight, dtype=dtype))
    named = {} if model.attribute_width is None else {"edge_attr": torch.tensor(attributes, dtype=dtype)}
    named |= {"edge_type": torch.tensor(types, dtype=torch.int64)} if model.uses_types else {}
    with torch.no_grad():
        return twin(*given, **named).numpy()[live]


@pytest.mark.parametrize("name", CASES)
def test_equals_the_module_and_follows_a_stream(name):
    torch.manual_seed(0)
    module = CASES[name]()
    follows_a_stream(name, module, assert_equal(module, rtol=ROUNDED, **own.OPTIONS.get(name, {})))


def follows_a_stream(name, module, model):
    """Checks an engine after batches of random updates: against a run from scratch, and against the module."""
    rng = np.random.default_rng(len(name))
    weighted = model.weights != "none"
    graph, mirror = random_graph(rng, model.input_width, weighted, vertices=16, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1)
    for batch, size in enumerate((1, 4, 12, 30)):
        engine.apply(random_batch(rng, mirror, size))
        note = f"{name}, version {batch + 1}"
        check_engine(engine, mirror, note)
        truth, plain = (by_pyg(module, model, mirror, dtype) for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, note)


def values(name):
    return [each for each in ir.walk(imported(name)[1].output) if isinstance(each, ir.Propagate | Gather)]


@pytest.mark.parametrize("name", ["tutorial", "weighted loops, sum", "weighted loops, max", "scatter mean"])
def test_messages_of_sources_are_propagated(name):
    """No message is computed edge by edge."""
    assert all(isinstance(each, ir.Propagate) for each in values(name))


def test_normalised_sums_are_one_propagate():
    for name, count in {"old GCN": 1, "hops": 3, "subclass of GCN": 1, "subclass without code": 1}.items():
        found = values(name)
        assert [(type(each), each.norm, each.self_loops) for each in found] == count * [(ir.Propagate, "gcn", True)]


@pytest.mark.parametrize("name", ["attention", "attention, loops left", "dot attention", "subclass of GAT"])
def test_a_softmax_is_the_attention_of_the_engine(name):
    assert [each.reduce for each in values(name)] == ["softmax"]


@pytest.mark.parametrize("weighted", [False, True])
def test_out_degrees_of_the_old_normalisation(weighted):
    """Its degree is the sources', with the weight of each vertex's last self-loop."""
    module = liven(own.OldGCN(5, 4, end=0), 1)
    model = lg.from_pyg(module)
    rng = np.random.default_rng(3)
    graph, mirror = random_graph(rng, 5, weighted, vertices=16)
    engine = lg.Engine(model, graph, threads=1)
    for size in (1, 8, 30):
        engine.apply(random_batch(rng, mirror, size))
        check_engine(engine, mirror, "out-degrees")
        truth, plain = (by_pyg(module, model, mirror, dtype) for dtype in (torch.float64, torch.float32))
        check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, "out-degrees")


class Calm(own.MessagePassing):
    """Its message is a power that no reading knows."""

    def __init__(self, width):
        super().__init__(aggr="add")
        self.lin = nn.Linear(width, 3)

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=x))

    def message(self, x_j):
        return torch.asinh(x_j)


def calm_operator(module):
    weight, bias = module.lin.weight.detach().numpy(), module.lin.bias.detach().numpy()
    return layer(
        Operator(
            width=weight.shape[1],
            msg_local=lambda h_u: np.log(h_u + np.sqrt(h_u * h_u + 1)),
            transform=lambda a: a @ weight.T + bias,
            name="calm",
        )
    )


def test_an_operator_is_named_for_a_class():
    module = liven(Calm(5), 2)
    with pytest.raises(lg.errors.ModelUnsupported, match="asinh"):
        lg.from_pyg(module, input_width=5)
    model = lg.from_pyg(module, input_width=5, operators={Calm: calm_operator})
    rng = np.random.default_rng(3)
    graph, mirror = random_graph(rng, 5, False, vertices=16)
    engine = lg.Engine(model, graph, threads=1)
    engine.apply(random_batch(rng, mirror, 30))
    truth, plain = (by_pyg(module, model, mirror, dtype) for dtype in (torch.float64, torch.float32))
    check_rows(engine.embeddings(mirror.arrays()[-1]), truth, plain, "named")


@pytest.mark.parametrize("operators", [{pyg.GCNConv: calm_operator}, {nn.Linear: calm_operator}, [Calm], [1]])
def test_an_operator_is_for_a_class_of_the_module(operators):
    with pytest.raises(lg.errors.ModelError, match=r"expected operators (for classes of|as class -> layer)"):
        lg.from_pyg(liven(Calm(5), 2), input_width=5, operators=operators)


def test_a_named_operator_is_compared():
    """An operator that computes something else is found."""
    module, other = liven(Calm(5), 2), liven(Calm(5), 3)
    with pytest.raises(lg.errors.ModelMismatch):
        lg.from_pyg(module, input_width=5, operators={Calm: calm_operator(other)})
