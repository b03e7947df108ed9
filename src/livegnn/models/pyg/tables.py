"""Tables of parameters: rows that an integer feature names, and rows by vertex.

An embedding of an integer column is a `Lookup`. A table that is indexed by vertex is what the graph has as features:
its symbol is the model's input, and `Model.tables` keeps its rows for the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute, EdgeRelation
from livegnn.models.pyg.check import Columns
from livegnn.models.pyg.context import TYPES, Flat, Import, Marker, Shaped, Unfit, refuse, to_array
from livegnn.models.pyg.functions.rows import is_truth
from livegnn.models.pyg.layout import applied, columns, shaped, symbol

_WHOLE = (torch.int64, torch.int32, torch.long, torch.int)
_REAL = (torch.float32, torch.float64, "torch.FloatTensor", "torch.DoubleTensor")
_WHOLE_NAMES = ("torch.LongTensor", "torch.IntTensor")


def looked_up(record: Import, indices: Any, table: Any) -> Any:
    """table[indices]: the table's other dimensions in the place of the number. Raises: Unfit."""
    if indices is TYPES:
        indices = types_of_edges()
    if not isinstance(indices, Shaped) or not indices.whole:
        value = getattr(indices, "source", getattr(indices, "value", indices))
        on_edges = isinstance(value, ir.Value) and value.on_edges
        advice = "cast it, as in edge_attr.long()" if on_edges else "pass a column of x, such as x[:, 0].long()"
        raise Unfit("its indices are not whole numbers of each row", advice)
    flat = table.reshape(len(table), -1)
    parts = [lookup(record, columns(indices.source, [place]), flat) for place in indices.index.ravel().tolist()]
    rows = parts[0] if len(parts) == 1 else ir.Concat(tuple(parts))
    index = np.arange(rows.width).reshape((*indices.index.shape, *table.shape[1:]))
    return symbol(Shaped(rows, index, indices.axis))


def types_of_edges() -> Shaped:
    """The graph's edge_type as whole numbers."""
    return Shaped(EdgeRelation(), np.array(0), 0, True)


def lookup(record: Import, column: ir.Value, table: Any) -> ir.Value:
    """The row of a table that one number names. Raises: Unfit for a number that is computed."""
    _note(record, column, len(table))
    return ir.Lookup(column, table)


def _note(record: Import, column: ir.Value, rows: int) -> None:
    """Keeps which column of the graph names rows of a table, so that the comparison tries names that there are."""
    place, leaf = (column.start, column.x) if isinstance(column, ir.Slice) else (0, column)
    if isinstance(leaf, EdgeRelation):
        record.relations = min(rows, record.relations or rows)
        return
    if not isinstance(leaf, (ir.Input, EdgeAttribute)):
        raise Unfit("its indices are computed", "put them into a column of x, and pass that")
    key = place if isinstance(leaf, ir.Input) else -1 - place
    record.categories[key] = min(rows, record.categories.get(key, rows))


def convert_embedding(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str) -> Any:
    """The result of torch.nn.Embedding. Raises: ModelUnsupported."""
    given = [*args, *kwargs.values()]
    try:
        if module.max_norm is not None:
            raise Unfit("max_norm changes its rows while it runs", "leave max_norm out")
        rows = record.tables.get(id(module.weight))
        if rows is not None:
            if not isinstance(given[0], torch.Tensor) or not _is_all(given[0], len(module.weight)):
                raise Unfit("its rows are those of the vertices, and it picks some", "read all rows, in their order")
            return rows
        return looked_up(record, given[0], to_array(module.weight))
    except Unfit as error:
        raise refuse(where, error.reason, error.remedy) from error


def _is_all(indices: torch.Tensor, count: int) -> bool:
    return bool(indices.shape == (count,) and (indices == torch.arange(count)).all())


def _embedding(
    record: Import, input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, **of_gradients: Any
) -> Any:
    if max_norm is not None:
        raise Unfit("max_norm changes its rows while it runs", "leave max_norm out")
    return looked_up(record, input, to_array(weight))


def _one_hot(record: Import, tensor: Any, num_classes: int = -1) -> Any:
    if num_classes < 1:
        raise Unfit("the number of classes is that of the rows at hand", "pass num_classes=")
    return looked_up(record, tensor, np.eye(num_classes))


def _whole(base: Callable[..., Any], asked: Callable[..., bool], real: bool = False) -> Callable[..., Any]:
    """A cast: to whole numbers where it asks for them, else `base`; real: it makes floats of the types of edges."""

    def handler(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
        if input is TYPES and (real or any(each in _REAL for each in (*args, *kwargs.values()))):
            return Flat(EdgeRelation())
        if isinstance(input, Marker) or not asked(*args, **kwargs):
            return _real(base, record, input, args, kwargs)
        if is_truth(input.value if isinstance(input, Flat) else input):
            return input  # 0 and 1 in every type
        x = shaped(input)
        return Shaped(x.source, x.index, x.axis, True)

    return handler


def _real(base: Callable[..., Any], record: Import, input: Any, args: Any, kwargs: Any) -> Any:
    """A cast to float, also of integers that the graph has as such."""
    if isinstance(input, Shaped) and input.whole:
        if not record.whole or not isinstance(input.source, (ir.Input, EdgeAttribute)):
            raise Unfit("it casts a number to an integer and back", "leave both casts out")
        input = symbol(Shaped(input.source, input.index, input.axis))
    if isinstance(input, Shaped):
        return applied(input, lambda rows: base(record, rows, *args, **kwargs))
    return base(record, input, *args, **kwargs)


def _asks(*args: Any, **kwargs: Any) -> bool:
    return any(
        isinstance(each, (torch.dtype, str)) and (each in _WHOLE or str(each) in _WHOLE_NAMES)
        for each in (*args, *kwargs.values())
    )


def _by_number(base: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Rows of a constant, named by whole numbers; place: of these among the arguments after the constant."""

    def handler(record: Import, input: Any, *args: Any, **kwargs: Any) -> Any:
        index = kwargs.get("index", args[place] if len(args) > place else None)
        if isinstance(input, torch.Tensor) and (index is TYPES or (isinstance(index, Shaped) and index.whole)):
            return looked_up(record, index, to_array(input))
        return base(record, input, *args, **kwargs)

    return handler


def join_tables(base: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The handlers with casts to integers, embeddings, one_hot, and constants indexed by whole numbers."""
    always = dict.fromkeys(("long", "int"), _whole(base["long"], lambda *args, **kwargs: True))
    casts = {name: _whole(base[name], _asks, name in ("float", "double")) for name in ("to", "type", "float", "double")}
    indexed = {name: _by_number(base[name], place) for name, place in (("getitem", 0), ("index_select", 1))}
    return base | always | casts | indexed | {"embedding": _embedding, "one_hot": _one_hot}


# ---- rows by vertex


def tables_of(module: nn.Module) -> dict[str, Any]:
    """The parameters that a forward without features may read as rows of vertices, by name.

    Raises: ModelUnsupported where there are none, or of several widths.
    """
    found: dict[str, torch.Tensor] = {
        f"{name}.weight" if name else "weight": each.weight
        for name, each in module.named_modules()
        if isinstance(each, nn.Embedding)
    }
    if not found:
        found = {name: each for name, each in module.named_parameters() if each.ndim == 2 and "emb" in name.lower()}
    if len({each.shape[1] for each in found.values()}) != 1:
        shapes = ", ".join(f"{name} of shape {tuple(each.shape)}" for name, each in found.items())
        raise refuse(
            f"{type(module).__name__}.forward(edge_index)",
            f"it takes no features, and has {f'tables of several widths: {shapes}' if found else 'no table of rows'}",
            "use (x, edge_index), and give the rows of all vertices to the graph as features",
        )
    return {name: each.detach().numpy().copy() for name, each in found.items()}


def as_whole(rows: Any) -> Shaped:
    """Rows of the graph that the forward is given as integers."""
    x = shaped(rows)
    return Shaped(x.source, x.index, x.axis, True)


def numbers(module: nn.Module, tries: list[Columns], guess: bool) -> list[Columns]:
    """The columns to try a forward with: where it has embeddings, those that name rows of them first.

    guess: whether other widths may be tried than those of `tries`.
    """
    embeddings = [each for each in module.modules() if isinstance(each, nn.Embedding)]
    if not tries or tries[0].over is not None or not embeddings:
        return tries
    count, dims = len(embeddings), sum(each.embedding_dim for each in embeddings)
    stated = [each.widths[0] for each in tries]
    wide = [*range(1, count + 1), *(w + count for w in stated), *(w - dims + count for w in stated), *stated]
    if tries[0].types is not None:  # an embedding may be theirs
        wide = [*stated, *wide]
    widths = [(w,) for w in dict.fromkeys(wide if guess else stated) if w > 0]
    found = [
        dataclasses.replace(tries[0], widths=width, small=True, whole=whole)
        for whole in (False, True)
        for width in widths
    ]
    return [*found, *tries]
