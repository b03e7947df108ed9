"""The steps of one import: copy, refuse what no reading could see, read with and without weights, compare."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.model import Model
from livegnn.models.pyg_check import check_import, random_graph
from livegnn.models.pyg_context import EDGES, WEIGHTS, Flat, Import, Refusal, refuse
from livegnn.models.pyg_modules import uninitialised
from livegnn.models.pyg_signature import Signature, read_signature
from livegnn.models.pyg_trace import read_forward

__all__ = ["import_module"]


def import_module(
    module: nn.Module, check: bool, weighted: bool | None, input_width: int | None
) -> tuple[dict[bool, ir.Value], dict[int, str]]:
    """({weighted: output}, names by id), on one shared Input.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    module = getattr(module, "_orig_mod", module)  # torch.compile's wrapper
    _refuse_unreadable(module)
    frozen = _frozen(module)
    signature = read_signature(frozen)
    width = _input_width(frozen, signature) if input_width is None else input_width
    x = ir.Input(width)
    record = Import()
    record.name(x, "input")
    outputs: dict[bool, ir.Value] = {}
    for with_weights in _variants(signature, weighted, type(module).__name__):
        outputs[with_weights] = _read(frozen, signature, x, with_weights, record)
        if check or record.recorded:
            check_import(frozen, signature, outputs[with_weights], with_weights, record.rounded)
    if True in outputs and not Model.from_output(outputs[True]).uses_weights:
        outputs = {False: outputs.get(False, outputs[True])}
    return outputs, dict(record.names)


def _variants(signature: Signature, weighted: bool | None, kind: str) -> list[bool]:
    if weighted is None:
        return {"none": [False], "optional": [True, False], "required": [True]}[signature.weights]
    if weighted and signature.weights == "none":
        raise ModelError(f"[from_pyg] expected a forward with edge_weight, got {kind}'s without; leave weighted out")
    if not weighted and signature.weights == "required":
        raise ModelError(f"[from_pyg] expected weighted=True, got {kind}'s edge_weight without default; leave it out")
    return [weighted]


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


def _input_width(module: nn.Module, signature: Signature) -> int:
    """The features' width: of the widths that the layers state, the first with which the module runs."""
    stated = _stated_widths(module)
    if not stated:
        raise ModelError(
            f"[from_pyg] expected a layer that tells the features' width, got none in {type(module).__name__}; "
            "pass input_width="
        )
    return next((width for width in stated if _runs(module, signature, width)), stated[0])


def _stated_widths(module: nn.Module) -> list[int]:
    found: list[int] = []
    for each in module.modules():
        for key in ("in_channels", "in_features", "num_features", "channels"):
            width = getattr(each, key, None)
            width = width[0] if isinstance(width, (tuple, list)) else width
            if isinstance(width, int) and width > 0 and width not in found:
                found.append(width)
    return found


def _runs(module: nn.Module, signature: Signature, width: int) -> bool:
    x, edge_index, weight = _example(width, signature.weights == "required")
    try:
        with torch.no_grad():
            signature.run(module, x, edge_index, weight)
    except Exception:  # a wrong width fails in as many ways as there are modules
        return False
    return True


def _example(width: int, weighted: bool) -> tuple[Any, Any, Any]:
    """A small graph as float32 tensors."""
    features, edge_index, weight = random_graph(7, 20, width, seed=99)
    given = torch.tensor(weight, dtype=torch.float32) if weighted else None
    return torch.tensor(features, dtype=torch.float32), torch.tensor(edge_index), given


def _read(module: nn.Module, signature: Signature, x: ir.Input, weighted: bool, record: Import) -> ir.Value:
    features, edge_index, weight = _example(x.width, weighted)
    examples = (features, edge_index if signature.edges is not None else None, weight)
    symbols = (x, EDGES if signature.edges is not None else None, WEIGHTS if weighted else None)
    result = read_forward(module, signature.call, symbols, examples, record, "")
    kind = type(module).__name__
    if isinstance(result, Refusal):
        raise result.error
    if isinstance(result, Flat):
        return result.value
    if not isinstance(result, ir.Value):
        returned = next((each.__name__ for each in (tuple, list, dict) if isinstance(result, each)), "constant")
        raise refuse(f"{kind}.forward", f"it returns a {returned}", "return one tensor with a row per vertex")
    return result
