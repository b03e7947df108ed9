"""The steps of one import: copy, refuse what no reading could see, read with and without weights, compare."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute
from livegnn.models.pyg.check import Columns, as_given, as_tensors, check_import, sample
from livegnn.models.pyg.columns import relations, stated_widths
from livegnn.models.pyg.context import BATCH, EDGES, TYPES, WEIGHTS, Flat, Import, Refusal, refuse
from livegnn.models.pyg.modules import uninitialised
from livegnn.models.pyg.signature import Means, Signature, read_signature
from livegnn.models.pyg.trace import read_forward
from livegnn.models.pyg.variants import Choice, Reading, VariantReader, attribute_choices, takes_attributes

__all__ = ["columns_of", "import_module", "inputs_of", "prepared", "read_symbol", "runs"]


def import_module(
    module: nn.Module, check: bool, weighted: bool | None, input_width: int | None, edge_width: int | None
) -> tuple[Reading[ir.Value], dict[int, str]]:
    """(the outputs with and without weights, names by id), on one shared Input.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    frozen = prepared(module)
    signature = read_signature(frozen)
    columns, choice = columns_of(frozen, signature, input_width, edge_width)
    inputs, record = inputs_of(columns), Import()
    record.name(inputs[0], "input")

    def read(columns: Columns, compared: bool) -> ir.Value:
        output = _read(frozen, signature, inputs, columns, record)
        as_weights = takes_attributes(record.weights_from, type(module).__name__)
        if compared and (check or record.recorded):
            here = dataclasses.replace(columns, as_weights=as_weights)
            check_import(frozen, signature, output, here, record.rounded, recorded=record.recorded)
        return output

    reader = VariantReader(frozen, signature, record, read, partial(runs, frozen, signature), lambda output: (output,))
    return reader.all(columns, choice, weighted), dict(record.names)


def prepared(module: nn.Module) -> nn.Module:
    """A private copy to read. Raises: ModelUnsupported for what no reading could see."""
    module = getattr(module, "_orig_mod", module)  # torch.compile's wrapper
    _refuse_unreadable(module)
    frozen = _frozen(module)
    encoder: Any = getattr(frozen, "encoder", None)
    return Means(encoder) if type(frozen) is pyg.VGAE else frozen


def _frozen(module: nn.Module) -> nn.Module:
    """A private copy on the CPU in eval mode and float32, without gradients."""
    try:
        frozen = copy.deepcopy(module)
    except Exception as error:
        raise ModelError(
            f"[from_pyg] expected a module that can be copied, got {type(module).__name__} ({error}); "
            "remove what cannot be copied from its attributes"
        ) from error
    return frozen.eval().requires_grad_(False).to("cpu").float()


def _refuse_unreadable(module: nn.Module) -> None:
    if isinstance(module, pyg.LightGCN):
        raise refuse(
            type(module).__name__,
            "its vertices' rows are parameters, and its forward ranks pairs",
            "give embedding.weight to the graph as features, and import a module of its convs whose forward takes "
            "(x, edge_index)",
        )
    for name, each in module.named_modules():
        where = f"{name} ({type(each).__name__})" if name else type(each).__name__
        if isinstance(each, torch.jit.ScriptModule):
            raise refuse(where, "a scripted module hides its layers", "pass the module before torch.jit.script")
        if uninitialised(each):
            raise refuse(where, "its lazy parameters have no shape yet", "run the module once, or load its weights")
        if each._forward_hooks or each._forward_pre_hooks:
            raise refuse(where, "a forward hook may change its result", "remove the hook")
        if torch.nn.utils.parametrize.is_parametrized(each):
            raise refuse(
                where,
                "its weights are computed by a parametrization",
                "call torch.nn.utils.parametrize.remove_parametrizations on it",
            )
        if "forward" in vars(each) and type(each) is not pyg.Sequential and not isinstance(each, pyg.MessagePassing):
            raise refuse(where, "its forward was replaced on the object", "use the class's own forward")


def inputs_of(columns: Columns) -> tuple[ir.Input, EdgeAttribute | None]:
    """The features, and the edges' attributes where there are any."""
    return ir.Input(columns.width), None if columns.attributes is None else EdgeAttribute(columns.attributes)


def columns_of(
    module: nn.Module, signature: Signature, input_width: int | None, edge_width: int | None, batch: bool = False
) -> tuple[Columns, Choice]:
    """The features' and the attributes' widths: of those that the layers state, the first with which the module runs.

    Attributes or types that a forward may do without are given where a layer reads them; attributes are tried, too,
    where no layer states whether it reads any.
    """
    stated = stated_widths(module) if input_width is None else [input_width]
    if not stated:
        raise ModelError(
            f"[from_pyg] expected a layer that states the features' width, got none in {type(module).__name__}; "
            "pass input_width="
        )
    weighted = signature.weights == "required"
    types = None if signature.types == "none" else relations(module, signature.types == "required")
    choices = attribute_choices(module, signature, edge_width)
    tries = [
        (Columns(width, weighted, each.width, types, batch, each.flat, edge_width == 0), each)
        for each in choices
        for width in stated
    ]
    found = next((each for each in tries if runs(module, signature, each[0])), None)
    if found is None and edge_width is None and signature.attributes == "required" and len(choices) == 1:
        raise ModelError(
            f"[from_pyg] expected a layer that states the edge attributes' width, got none in {type(module).__name__}; "
            "pass edge_width="
        )
    return found or (tries[-len(stated)] if choices[0].guessed else tries[0])


def runs(module: nn.Module, signature: Signature, columns: Columns) -> bool:
    """Whether the module itself runs on a small graph with such columns."""
    try:
        with torch.no_grad():
            signature.run(module, *_example(columns))
    except Exception:  # a wrong width fails in as many ways as there are modules
        return False
    return True


def _example(columns: Columns) -> tuple[Any, ...]:
    """A small graph, or two, as float32 tensors."""
    given = as_given(columns, sample(columns, 7, 20, seed=99))
    return as_tensors((*given, np.repeat([0, 1], [4, 3])) if columns.batch else given, torch.float32)


def read_symbol(
    module: nn.Module,
    signature: Signature,
    inputs: tuple[ir.Input, EdgeAttribute | None],
    columns: Columns,
    record: Import,
) -> Any:
    """What the forward returns. Raises: ModelUnsupported."""
    x, rows = inputs
    given = list(_example(columns))
    attributes = None if columns.attributes is None else Flat(rows) if rows and columns.flat else rows
    symbols = [x, EDGES, WEIGHTS if columns.weighted else None, attributes, None if columns.types is None else TYPES]
    signature = dataclasses.replace(signature, bare=columns.bare)
    if columns.batch:
        symbols.append(BATCH)
    if signature.edges is None:
        given[1] = symbols[1] = None
    result = read_forward(module, signature.call, tuple(symbols), tuple(given), record, "")
    if isinstance(result, Refusal):
        raise result.error
    return result.value if isinstance(result, Flat) else result


def _read(
    module: nn.Module,
    signature: Signature,
    inputs: tuple[ir.Input, EdgeAttribute | None],
    columns: Columns,
    record: Import,
) -> ir.Value:
    result = read_symbol(module, signature, inputs, columns, record)
    kind = type(module).__name__
    if isinstance(result, ir.Value) and result.on_edges:
        raise refuse(f"{kind}.forward", "it returns one row per edge", "return one tensor with a row per vertex")
    if not isinstance(result, ir.Value):
        returned = next((each.__name__ for each in (tuple, list, dict) if isinstance(result, each)), "constant")
        raise refuse(f"{kind}.forward", f"it returns a {returned}", "return one tensor with a row per vertex")
    return result
