"""A program of torch.export as a module of torch's own calls, which from_pyg reads like any forward.

torch.export flattens a module to calls of aten and forgets its layers. Each call is written back as the function or
method of torch that it came from: a selected row of edge_index as an index, an update in place as a new tensor.
The module is compared with the program on random graphs here, and from_pyg compares the model with the module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn

from livegnn.errors import ModelMismatch, ModelUnsupported
from livegnn.models.model import Model
from livegnn.models.pyg.entry import from_pyg

_EXPORT = (
    'torch.export.export(module, (x, edge_index), dynamic_shapes={"x": {0: Dim("V", min=2)}, '
    '"edge_index": {1: Dim("E", min=2)}})'
)
_IGNORED = ("_assert_scalar", "sym_constrain_range_for_size", "_assert_tensor_metadata")
_COMPARED = ("ge", "le", "eq", "lt", "gt")  # of sizes, in the program's own checks
_GRAPHS = 3  # on which module and program are compared
_MADE = ("cat", "stack", "arange", "ones", "zeros", "full", "where", "maximum", "minimum", "addmm", "mm", "bmm")
_FUNCTIONAL = ("linear", "leaky_relu", "gelu", "elu", "softplus", "silu", "hardtanh", "relu6", "glu")
_DROPPED_OPTIONS = ("pin_memory", "layout", "device")
_LAST = 2**63 - 1  # aten's end of a slice without one


def module_of_program(program: torch.export.ExportedProgram) -> nn.Module:
    """The module of an exported program.

    Raises:  ModelUnsupported for a program of one graph's sizes, or with a call that has no form here; ModelMismatch
             where the module computes something else than the program.
    """
    inputs = _inputs(program)
    _refuse_fixed_sizes(inputs)
    source = program.module()
    root, graph = nn.Module(), fx.Graph()
    known: dict[fx.Node, Any] = {}
    for step in source.graph.nodes:
        made = _written(step, source, root, graph, lambda value: fx.node.map_arg(value, known.__getitem__))
        known[step] = made
        if _is_in_place(step):
            known[step.args[0]] = made
    graph.eliminate_dead_code()
    module = fx.GraphModule(root, graph, "ExportedProgram").eval()
    for seed in range(_GRAPHS):
        _compare(source, module, _random(inputs, seed), seed)
    return module


def model_of_program(program: torch.export.ExportedProgram) -> Model:
    """The program as a model, of the features' width that it was exported with. Raises: as that, and as from_pyg."""
    return from_pyg(module_of_program(program), input_width=int(_inputs(program)[0].shape[1]))


def _inputs(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    """What the program was traced with: tensors whose sizes are symbols or numbers."""
    named = {one.name: one.meta["val"] for one in program.graph.nodes if one.op == "placeholder"}
    return [named[name] for name in program.graph_signature.user_inputs if isinstance(name, str)]


def _random(inputs: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """A random graph's x and edge_index, and zeros and ones for whole numbers that come after them."""
    chance = torch.Generator().manual_seed(seed)
    vertices, edges = 5 + 4 * seed, 9 + 11 * seed
    sizes = {str(inputs[0].shape[0]): vertices, str(inputs[1].shape[1]): edges}
    made = []
    for place, one in enumerate(inputs):
        shape = [sizes.get(str(size), size) for size in one.shape]
        if one.dtype.is_floating_point:
            made.append(torch.rand(shape, generator=chance, dtype=one.dtype))
        else:
            made.append(torch.randint(vertices if place == 1 else 2, shape, generator=chance, dtype=one.dtype))
    return made


def _compare(program: nn.Module, module: nn.Module, given: list[torch.Tensor], seed: int) -> None:
    with torch.no_grad():
        expected, got = program(*given), module(*given)
    pairs = list(zip(*(one if isinstance(one, list | tuple) else [one] for one in (expected, got)), strict=False))
    if not pairs or not all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in pairs):
        raise ModelMismatch(
            f"[exported program] expected the program's own results on random graph {seed}, got others from its calls "
            "written back; add the module itself: its state_dict with model.toml"
        )


def _is_in_place(step: fx.Node) -> bool:
    return (
        step.op == "call_function"
        and str(step.target).startswith("aten.")
        and str(step.target).split(".")[1][-1] == "_"
    )


def _refuse_fixed_sizes(inputs: list[torch.Tensor]) -> None:
    """Raises: ModelUnsupported where the first input's rows, or the second one's columns, are a number."""
    sizes = [one.shape[axis] for one, axis in zip(inputs[:2], (0, 1), strict=False)]
    if len(sizes) < 2 or any(isinstance(size, int) for size in sizes):
        got = " and ".join(str(size) for size in sizes) or "no inputs"
        raise ModelUnsupported(
            f"[exported program] expected x and edge_index of any size, got {got}: it computes this one size alone; "
            f"export it again by {_EXPORT}"
        )


def _written(step: fx.Node, source: nn.Module, root: nn.Module, graph: fx.Graph, given: Callable[[Any], Any]) -> Any:
    if step.op == "placeholder":
        return graph.placeholder(str(step.target))
    if step.op == "get_attr":
        return graph.get_attr(_kept(str(step.target), source, root))
    if step.op == "output":
        result = given(step.args[0])
        return graph.output(result[0] if isinstance(result, list | tuple) and len(result) == 1 else result)
    if step.op == "call_module":  # the program's checks of its inputs
        return None
    name = str(step.target)
    if not name.startswith("aten."):
        called = getattr(step.target, "__name__", name)
        return None if called in _COMPARED else graph.call_function(_callable(step), *_given(step, given))
    return _call(name.split(".")[1], *_given(step, given), graph)


def _given(step: fx.Node, given: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(given(step.args)), dict(given(step.kwargs))


def _callable(step: fx.Node) -> Callable[..., Any]:
    if callable(step.target):
        return step.target
    raise _unknown(str(step.target))


def _kept(path: str, source: nn.Module, root: nn.Module) -> str:
    """The name of a parameter or buffer in the new module."""
    value: Any = source
    for part in path.split("."):
        value = getattr(value, part)
    name = "w_" + path.replace(".", "_")
    if isinstance(value, nn.Parameter):
        root.register_parameter(name, nn.Parameter(value.detach(), requires_grad=False))
    else:
        root.register_buffer(name, value)
    return name


def _call(name: str, args: tuple[Any, ...], named: Mapping[str, Any], graph: fx.Graph) -> Any:
    """One call of aten as torch's own."""
    if name in _IGNORED:
        return None
    options = {key: value for key, value in named.items() if key not in _DROPPED_OPTIONS}
    if name in _SHAPED:
        return _SHAPED[name](graph, *args, **options)
    plain = name.removesuffix("_")  # in place: the program goes on with the result
    if plain in _FUNCTIONAL:
        return graph.call_function(getattr(nn.functional, plain), args, options)
    if plain in _MADE:
        return graph.call_function(getattr(torch, plain), args, options)
    if hasattr(torch.Tensor, plain):
        return graph.call_method(plain, args, options)
    if hasattr(torch, plain):
        return graph.call_function(getattr(torch, plain), args, options)
    raise _unknown(name)


def _unknown(name: str) -> ModelUnsupported:
    return ModelUnsupported(
        f"[exported program] expected calls that from_pyg reads, got aten's {name}; add the module itself: its "
        "state_dict with model.toml, or livegnn.from_pyg(module).save(file)"
    )


# ---- calls whose arguments are other ones


def _size(graph: fx.Graph, x: Any, dim: int) -> fx.Node:
    return graph.call_method("size", (x, dim))


def _select(graph: fx.Graph, x: Any, dim: int, place: int) -> fx.Node:
    at: Any = place if dim == 0 else (*([slice(None)] * dim), place) if dim > 0 else (Ellipsis, place, *_all(-1 - dim))
    return graph.call_function(operator.getitem, (x, at))


def _slice(graph: fx.Graph, x: Any, dim: int = 0, begin: Any = None, end: Any = None, step: int = 1) -> Any:
    cut = slice(begin or None, None if end == _LAST else end, None if step == 1 else step)
    if cut == slice(None):
        return x
    at: Any = cut if dim == 0 else (*_all(dim), cut) if dim > 0 else (Ellipsis, cut, *_all(-1 - dim))
    return graph.call_function(operator.getitem, (x, at))


def _index(graph: fx.Graph, x: Any, places: list[Any]) -> fx.Node:
    at = tuple(slice(None) if place is None else place for place in places)
    return graph.call_function(operator.getitem, (x, at[0] if len(at) == 1 else at))


def _same(graph: fx.Graph, x: Any, *rest: Any, **options: Any) -> Any:
    return x


def _batch_norm(graph: fx.Graph, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> fx.Node:
    training, momentum, epsilon, *_ = rest
    return graph.call_function(nn.functional.batch_norm, (x, mean, variance, weight, bias, training, momentum, epsilon))


def _layer_norm(graph: fx.Graph, *given: Any) -> fx.Node:
    return graph.call_function(nn.functional.layer_norm, given[:5])  # without cuDNN's flag


def _all(count: int) -> list[slice]:
    return [slice(None)] * count


_SHAPED: Mapping[str, Callable[..., Any]] = {
    "sym_size": _size,
    "select": _select,
    "slice": _slice,
    "index": _index,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    **dict.fromkeys(("dropout", "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "feature_dropout"), _same),
}
