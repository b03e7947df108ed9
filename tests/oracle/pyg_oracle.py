"""Compares an imported model, run by the independent reference, with its PyG module in float64."""

import copy

import numpy as np
import torch
from torch_geometric.nn.aggr import QuantileAggregation

from livegnn.models.pyg.entry import from_pyg
from livegnn.reference.evaluate import evaluate

EXACT = 1e-9  # both sides in float64: only the order of sums differs
ROUNDED = 1e-5  # a BatchNorm was folded and rounded to float32


def graph(seed, vertices, edges, width):
    """Features, edges and weights, with self-loops (some doubled), parallel edges and isolated vertices."""
    rng = np.random.default_rng(seed)
    busy = max(1, 3 * vertices // 4)
    src, dst = rng.integers(0, busy, edges), rng.integers(0, busy, edges)
    loops = rng.integers(0, vertices, edges // 5)
    again = rng.integers(0, max(1, edges), edges // 5) if edges else np.zeros(0, int)
    src, dst = np.concatenate([src, loops, src[again], loops]), np.concatenate([dst, loops, dst[again], loops])
    order = rng.permutation(len(src))
    weight = rng.uniform(0.05, 4.0, len(src)).astype(np.float32)
    return rng.standard_normal((vertices, width)).astype(np.float32), src[order], dst[order], weight


def liven(module, seed=0):
    """Every parameter and running statistic away from its initial 0 or 1, so that none is tested by accident."""
    rng = torch.Generator().manual_seed(seed)
    options = {id(each.q) for each in module.modules() if isinstance(each, QuantileAggregation)}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and id(tensor) not in options:
            noise = torch.randn(tensor.shape, generator=rng) * 0.3
            with torch.no_grad():
                tensor.add_(noise.abs() if name.endswith("running_var") else noise)
    return module.eval()


def columns(model, seed, edges, types):
    """Attributes and types of the edges, as a model reads them, by the names that PyG's layers give them."""
    rng = np.random.default_rng([seed, 7])
    given = {}
    if model.attribute_width is not None:
        given["edge_attr"] = rng.standard_normal((edges, model.attribute_width)).astype(np.float32)
    if model.uses_types:
        given["edge_type"] = rng.integers(0, types, edges)
    return given


def tensor(array):
    """Floats as float64, integers as they are."""
    return torch.tensor(array).double() if array.dtype.kind == "f" else torch.tensor(array)


def assert_equal(
    module,
    *,
    weighted=None,
    rtol=EXACT,
    input_width=None,
    edge_width=None,
    types=3,
    call=None,
    sizes=((1, 0), (2, 4), (12, 40)),
):
    """from_pyg(module) gives the module's own float64 output on graphs of several sizes; returns the model."""
    liven(module)
    model = from_pyg(module, input_width=input_width, edge_width=edge_width)
    spec = model.to_arrays()
    truth = copy.deepcopy(module).double()
    variants = (
        [weighted]
        if weighted is not None
        else {"none": [False], "optional": [False, True], "required": [True]}[model.weights]
    )
    for with_weights in variants:
        for seed, (vertices, edges) in enumerate(sizes):
            x, src, dst, weight = graph(seed, vertices, edges, model.input_width)
            given = columns(model, seed, len(src), types)
            attributes, kinds = given.get("edge_attr"), given.get("edge_type")
            got = evaluate(spec, x, src, dst, weight if with_weights else None, np.float64, attributes, kinds)
            named = {name: tensor(array) for name, array in given.items()}
            arguments = [torch.tensor(x).double(), torch.tensor(np.stack([src, dst]))]
            if with_weights:
                arguments.append(torch.tensor(weight).double())
            with torch.no_grad():
                want = truth(*arguments, **named) if call is None else call(truth, *arguments, **named)
            want = want.numpy().reshape(vertices, -1)
            scale = np.abs(want).max(initial=1e-300)
            assert got.shape == want.shape
            np.testing.assert_allclose(
                got, want, rtol=rtol, atol=rtol * scale, err_msg=f"{module}, seed {seed}, weights {with_weights}"
            )
    return model
