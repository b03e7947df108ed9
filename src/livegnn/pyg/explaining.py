"""Explanations of live outputs by PyG's Explainer, on the in-neighbourhood that an output is a function of."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, GNNExplainer

from livegnn.errors import ModelMismatch, UsageError, ValueInvalid
from livegnn.graph.checks import whole_number
from livegnn.inference import Engine
from livegnn.models.pyg.copies import unchanged
from livegnn.pyg.loaders import neighbor_loader

_TOLERANCE = 1e-4  # of the row's largest number: the module sums in float32, in another order
_MASKS = {"node_mask_type": "attributes", "edge_mask_type": "object"}
_COLUMNS = ("edge_weight", "edge_attr", "edge_type", "edge_time")


class ExplainedModule(nn.Module):
    """A module as Explainer calls it: x, edge_index and columns in, the rows of one vertex type out."""

    def __init__(self, module: nn.Module, vertex_type: str | None, takes_data: bool) -> None:
        super().__init__()
        self.module, self._vertex_type, self._takes_data = module, vertex_type, takes_data

    def forward(self, x: Any, edge_index: Any, **columns: Any) -> Tensor:
        """The output rows of all vertices (of the type)."""
        if self._takes_data:
            rows = self.module(_as_data(x, edge_index, columns))
        else:
            rows = self.module(x, edge_index, **columns)
        if isinstance(rows, Mapping):
            rows = rows.get(self._vertex_type)
        if not isinstance(rows, Tensor):
            raise ModelMismatch(
                f"[explain] expected a module that returns one tensor, or one by vertex type, got "
                f"{type(rows).__name__}; wrap it in a module that returns the output that is live"
            )
        return rows


def explain(
    engine: Engine,
    vertex: Any,
    *,
    module: nn.Module,
    algorithm: Any = None,
    vertex_type: str | None = None,
    hops: int | None = None,
    model_config: Any = None,
    **options: Any,
) -> Any:
    """Why the live output of a vertex is what it is, by torch_geometric.explain.Explainer.

    The module runs on the edges that the output is a function of: those into each vertex that is fewer than `hops` hops
    away. What it gives there must be the live output, else nothing is explained.

    Args:    module: that was imported, with the parameters that the engine has.  algorithm: an ExplainerAlgorithm;
             GNNExplainer() unless given.  hops: the model's depth and one more unless given, so that sources have all
             edges that their degrees count; -1 takes the whole graph, as messages against the edges need.
             model_config: PyG's; unless given classes for outputs of two or more columns, else a regression, raw.
             options: others of Explainer; unless given explanation_type="model", node_mask_type="attributes" and
             edge_mask_type="object".
    Returns: an Explanation or HeteroExplanation, its rows the vertices n_id and its edges e_id, with index and version.
    Raises:  ModelMismatch where the module gives another row than the engine; UsageError; VertexUnknown.
    """
    if not isinstance(engine, Engine) or not isinstance(module, nn.Module):
        got = type(engine).__name__ if not isinstance(engine, Engine) else type(module).__name__
        raise UsageError(f"[explain] expected an Engine and module= as its nn.Module, got {got}; pass both")
    if hops is not None and whole_number("explain", "hops", hops) < -1:
        raise ValueInvalid(f"[explain] expected hops from 0, or -1 for the whole graph, got {hops}; leave it out")
    if engine.model.goes_back and hops != -1:
        raise UsageError(
            f"[explain] expected hops=-1 for a model with messages against the edges, got hops={hops}; the edges into "
            "its neighbours are not all that it reads: pass hops=-1"
        )
    data, row, live = _neighbourhood(engine, vertex, vertex_type, hops)
    typed = isinstance(data, HeteroData)
    data = data.to(_device(module))
    x, edge_index = (data.x_dict, data.edge_index_dict) if typed else (data.x, data.edge_index)
    columns = _columns(data, module)
    with _evaluated(module), unchanged(module):  # PyG leaves a propagate of its own on every layer
        explainer = Explainer(
            ExplainedModule(module, vertex_type, _takes_data(module)).eval(),
            algorithm=GNNExplainer() if algorithm is None else algorithm,
            model_config=_config(live) if model_config is None else model_config,
            **({"explanation_type": "model"} | _MASKS | options),
        )
        _compare(explainer.get_prediction(x, edge_index, **columns)[row], live, vertex, hops)
        found = explainer(x, edge_index, index=row, **columns)
    for name, part in [*data.node_items(), *data.edge_items()] if typed else [(None, data)]:
        for key in {"n_id", "e_id"} & set(part.keys()):
            if name is None:
                found[key] = part[key]
            else:
                found[name][key] = part[key]
    found.version = data.version
    return found


@contextmanager
def _evaluated(module: nn.Module) -> Iterator[None]:
    """Gives the module back what Explainer changes: the modes of its parts, and the gradients of its parameters."""
    modes = [(part, part.training) for part in module.modules()]
    gradients = [(parameter, parameter.grad) for parameter in module.parameters()]
    module.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for part, mode in modes:
            part.training = mode


def _neighbourhood(engine: Engine, vertex: Any, vertex_type: str | None, hops: int | None) -> tuple[Any, int, Any]:
    """The vertex's in-neighbourhood, the vertex's row in it, and its live output, of one version."""
    graph = engine.graph
    with graph.host.lock:
        live = engine.embeddings([vertex], vertex_type=vertex_type)[0]
        if hops == -1:
            data = graph.to_pyg()
            data.version = graph.version
            return data, graph.vertices(vertex_type).tolist().index(vertex), live
        fanouts = [-1] * (engine.model.depth + 1 if hops is None else hops)
        seeds = [vertex] if vertex_type is None else (vertex_type, [vertex])
        return next(iter(neighbor_loader(graph, fanouts, seeds))), 0, live


def _columns(data: Any, module: nn.Module) -> dict[str, Any]:
    """The columns of edges that the module's forward names; all, where it takes a Data."""
    names = inspect.signature(module.forward).parameters
    found = {}
    for column in _COLUMNS:
        for name in (column, f"{column}_dict"):
            if name in names or (_takes_data(module) and name == column):
                values = data.collect(column, allow_empty=True) if isinstance(data, HeteroData) else data.get(column)
                if values is not None and (not isinstance(values, dict) or values):
                    found[name] = values
    return found


def _takes_data(module: nn.Module) -> bool:
    """Whether forward has one parameter, a Data."""
    return len(inspect.signature(module.forward).parameters) == 1


def _as_data(x: Any, edge_index: Any, columns: Mapping[str, Any]) -> Any:
    if not isinstance(x, Mapping):
        return Data(x=x, edge_index=edge_index, **columns)
    data = HeteroData()
    for name, values in [("x", x), ("edge_index", edge_index), *columns.items()]:
        data.set_value_dict(name, values)
    return data


def _config(live: Any) -> dict[str, str]:
    mode = "multiclass_classification" if len(live) > 1 else "regression"
    return {"mode": mode, "task_level": "node", "return_type": "raw"}


def _device(module: nn.Module) -> Any:
    first = next(iter(module.parameters()), None)
    return torch.device("cpu") if first is None else first.device


def _compare(got: Tensor, live: Any, vertex: Any, hops: int | None) -> None:
    row = got.detach().cpu().numpy().reshape(-1)
    if row.shape == live.shape:
        difference = float(np.abs(row - live).max(initial=0))
        if difference <= _TOLERANCE * max(float(np.abs(live).max(initial=0)), 1e-2):
            return
        what = f"one that differs by {difference:.3g}"
    else:
        what = f"one of {row.size} columns, not {live.size}"
    advice = "pass the module that was imported" if hops == -1 else "pass the module that was imported, or hops=-1"
    raise ModelMismatch(
        f"[explain] expected the module to give the live output of vertex {vertex!r} on its neighbourhood, got {what}; "
        f"{advice}"
    )
