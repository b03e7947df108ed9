"""Reads a trained PyTorch Geometric module as a model.

The module is copied, put into eval mode, read (trace.py), and compared with the result on random graphs (check.py).
Convolutions of PyG are matched by exact type, and those of users are followed through one run (own/). Whatever is not
known is refused by name, never approximated. PyTorch is imported here and nowhere else, and only when it is needed.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from livegnn.errors import DataMissing, ModelError, ModelUnsupported, UpdateError
from livegnn.models.graph_level import GraphLevel
from livegnn.models.model import Model

if TYPE_CHECKING:
    import torch

    from livegnn.models.pyg.context import Import
    from livegnn.models.pyg.variants import Reading

OutputPath: TypeAlias = str | int | tuple[str | int, ...]
Outputs: TypeAlias = OutputPath | list[OutputPath]
Metadata: TypeAlias = tuple[Sequence[str], Sequence[tuple[str, str, str]]]

_setting = threading.Lock()  # of the numbers of threads


def from_pyg(
    module: torch.nn.Module | Callable[..., Any],
    *,
    check: bool = True,
    weighted: bool | None = None,
    input_width: int | Mapping[str, int] | None = None,
    edge_width: int | None = None,
    metadata: Metadata | None = None,
    ignore_cached: bool = False,
    outputs: Outputs | None = None,
    operators: Mapping[type, Any] | None = None,
) -> Model:
    """The model that computes what `module` computes in eval mode.

    output[v] = module(x, edge_index[, edge_weight][, edge_attr][, edge_type])[v].

    Args:     module: any torch module, or a method of one such as module.full_forward. Its forward takes (x,
                  edge_index) and any of edge_weight, edge_attr, edge_type, or one Data, or (x, adjs) with a sampler's
                  blocks; not changed. Where vertices have types (HeteroConv, HGTConv, to_hetero), dicts of these by
                  type, or one HeteroData (docs/hetero.md).
              check: compare the result with the module on random graphs; a module that had to be recorded is always
                  compared.
              weighted: whether the forward is given the graph's edge weights, whatever column they come from. None: as
                  its signature and its layers say; where they are optional, the model reads them on a graph that has
                  them, and whose they are is decided by name (Model.weights_from, Graph.weight_column).
              input_width: the features' width, where no layer states it; by vertex type where there are types.
              edge_width: the edge attributes' width, where no layer states it; 0 gives none to a forward that can do
                  without.
              metadata: (vertex types, edge types) as HeteroData.metadata() gives them, where no layer states them.
              ignore_cached: read layers with cached=True as if it were False, which is what they compute on the first
                  graph that they see.
              outputs: which result is kept, where the forward returns a tuple, a list or a dict: an index, a key, or a
                  tuple of these for a path. A list keeps several side by side, "all" every one with a row per vertex;
                  Model.outputs then gives the columns of each. None: the only one, next to losses and None.
              operators: class -> livegnn.verify.layer(operator), or a function from the module to one, that a class of
                  your own is read as; other own classes are followed through one run (docs/models.md).
    Returns:  Model; weights are float32, names are the module's own.
    Raises:   ModelUnsupported naming the layer and the reason; ModelMismatch if the comparison fails; DataMissing
              without PyTorch and PyG.
    Exactness: the same function; computed constants (a folded BatchNorm) are rounded to float32 once.
    """
    module = _as_module(module)
    from livegnn.models.pyg.hetero.read import import_over_types, types_of
    from livegnn.models.pyg.steps import import_module
    from livegnn.models.pyg.variants import Options

    options = Options(check, weighted, input_width, edge_width, ignore_cached, outputs, _operators(operators))
    types = types_of(module, metadata)
    try:
        with _one_thread():
            reading: Reading[Any]
            if types is None:
                reading, record = import_module(module, options)
            else:
                reading, record = import_over_types(module, types, options)
    except UpdateError as error:  # a width that does not fit; in a model it is a model's error
        raise ModelError(str(error), **error.facts()) from error
    return _model(reading, record, types or ((), ()))


def graph_level_from_pyg(
    module: torch.nn.Module | Callable[..., Any],
    *,
    check: bool = True,
    weighted: bool | None = None,
    input_width: int | None = None,
    edge_width: int | None = None,
    ignore_cached: bool = False,
    outputs: OutputPath | None = None,
) -> GraphLevel:
    """The parts of a module with one row per graph: convolutions, pools, and what follows them row by row.

    module(x, edge_index, batch)[g] = head(concat of pool_i over v in g of model(x, edge_index)[v, columns_i])

    Args:     module: its forward takes (x, edge_index, batch) and any of edge_weight, edge_attr, edge_type, or one
                  Data; without batch it is of one graph. It pools by global_add_pool, global_mean_pool,
                  global_max_pool, or PyG's sum, mean, max, min and multi aggregations. The options are from_pyg's;
                  outputs names one result.
    Returns:  GraphLevel; Readout.from_pyg keeps it live in one call.
    Raises:   ModelUnsupported naming the layer and the reason, where rows of graphs go back to vertices and for every
              other pool; ModelMismatch if the comparison on batches of random graphs fails; DataMissing without
              PyTorch and PyG.
    Exactness: the same function; computed constants (a folded BatchNorm) are rounded to float32 once.
    """
    module = _as_module(module)
    from livegnn.models.pyg.graph_level import import_graph_level
    from livegnn.models.pyg.hetero.read import types_of
    from livegnn.models.pyg.variants import Options

    if types_of(module, None) is not None:
        raise ModelUnsupported(
            f"[from_pyg] expected a model that can be kept exact, got {type(module).__name__}: it pools vertices of "
            "several types; import the part before the pools with lg.from_pyg, and pool its embeddings by type"
        )
    try:
        with _one_thread():
            return import_graph_level(module, Options(check, weighted, input_width, edge_width, ignore_cached, outputs))
    except UpdateError as error:
        raise ModelError(str(error), **error.facts()) from error


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch on one thread, where this thread calls it. The graphs of an import are tiny, and threads that wait for
    each other take longer. Of a vertex's self-loops PyG keeps the last, which several threads do not agree on.
    """
    before = _set_threads(1)
    try:
        yield
    finally:
        _set_threads(before)


def _set_threads(number: int) -> int:
    """Sets this thread's number of PyTorch's threads. Returns: what it was.

    PyTorch has another number for threads that have not called it yet, and sets that, too: a new thread puts it back.
    """
    import torch

    with _setting, ThreadPoolExecutor(1) as new:
        own, common = torch.get_num_threads(), new.submit(torch.get_num_threads).result()
        torch.set_num_threads(number)
        new.submit(torch.set_num_threads, common).result()
    return own


def _operators(given: Mapping[type, Any] | None) -> Mapping[type, Any]:
    """Checked. Raises: ModelError."""
    if given is not None and not isinstance(given, Mapping):
        raise ModelError(
            f"[from_pyg] expected operators as class -> layer, got {given!r}; pass "
            "{MyConv: livegnn.verify.layer(operator)}"
        )
    for kind, layer in (given or {}).items():
        if not isinstance(kind, type) or not (hasattr(layer, "apply") or callable(layer)):
            raise ModelError(
                f"[from_pyg] expected operators as class -> layer, got {kind!r} -> {type(layer).__name__}; pass "
                "{MyConv: livegnn.verify.layer(operator)}"
            )
    return given or {}


def _as_module(module: Any) -> torch.nn.Module:
    """The module to read. Raises: DataMissing, ModelError for anything else than a module or a method of one."""
    try:
        import torch
        import torch_geometric  # noqa: F401
    except ImportError as error:
        raise DataMissing(
            f"[from_pyg] expected PyTorch and PyG, got {error}; run pip install 'livegnn[pyg]'"
        ) from error
    if inspect.ismethod(module) and isinstance(module.__self__, torch.nn.Module):
        from livegnn.models.pyg.signature import MethodForward

        module = MethodForward(module.__self__, module.__name__)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"[from_pyg] expected a torch.nn.Module, got {type(module).__name__}; pass the trained module")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_meta:
            raise ModelError(
                f"[from_pyg] expected weights with numbers, got {name} on device meta, which has none; load the "
                "trained weights into the module"
            )
    return module


def _model(reading: Reading[Any], record: Import, types: Metadata) -> Model:
    outputs = reading.outputs
    output = outputs[True] if True in outputs else outputs[False]
    if output.on_edges:
        return Model.from_edges(
            output,
            unweighted=outputs.get(False) if True in outputs else None,
            names=record.names,
            weights_from=reading.weights_from,
            refused=reading.refused,
            tables=reading.tables,
            outputs=record.outputs,
        )
    return Model.from_output(
        output,
        unweighted=outputs.get(False) if True in outputs else None,
        names=record.names,
        vertex_types=types[0],
        edge_types=types[1],
        weights_from=reading.weights_from,
        refused=reading.refused,
        tables=reading.tables,
        outputs=record.outputs,
    )
