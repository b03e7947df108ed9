"""The steps of one import: copy, refuse what no reading could see, read with and without weights, compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute
from livegnn.models.pyg.check import Columns, check_import, divides, example, modelled, runs, samples
from livegnn.models.pyg.columns import relations, stated_widths
from livegnn.models.pyg.constants import without_zeros
from livegnn.models.pyg.context import BATCH, EDGES, TYPES, WEIGHTS, Flat, Import, Refusal, TablePart, refuse
from livegnn.models.pyg.copies import forget_cached, private_copy, unchanged
from livegnn.models.pyg.following import read_following
from livegnn.models.pyg.functions.infinite import refuse_questions
from livegnn.models.pyg.modules import uninitialised
from livegnn.models.pyg.outputs import Path, Wanted, leaves, shapes_of
from livegnn.models.pyg.pools import reading_pools
from livegnn.models.pyg.searched import searched_width
from livegnn.models.pyg.signature import Embeddings, Means, Signature, read_signature
from livegnn.models.pyg.state import refuse_state
from livegnn.models.pyg.table_parts import in_order_of_use
from livegnn.models.pyg.tables import as_whole, numbers, tables_of
from livegnn.models.pyg.utilities import reading_utilities
from livegnn.models.pyg.variants import Choice, Options, Reading, VariantReader, attribute_choices


def import_module(module: nn.Module, options: Options) -> tuple[Reading[ir.Value], Import]:
    """(the outputs with and without weights, the record of the import), on one shared Input.

    Raises: ModelUnsupported, ModelMismatch, ModelError.
    """
    frozen, record = prepared(module, options), Import(operators=options.operators)
    signature = read_signature(frozen)
    tables = {} if signature.features else tables_of(frozen)
    if tables:
        options = dataclasses.replace(options, input_width=next(iter(tables.values())).shape[1])
    refuse_other_blocks(frozen, signature)
    wanted = Wanted(options.outputs, f"{type(module).__name__}.forward")
    columns, choice = columns_of(frozen, signature, options, widths_of(frozen, options))
    if tables:
        columns = dataclasses.replace(columns, vertices=sum(map(len, tables.values())))
        tables = in_order_of_use(frozen, tables, lambda: signature.run(frozen, *example(columns)))
        columns = dataclasses.replace(columns, tables=tuple(tables))
    symbols = plain_symbols(columns, record)
    _keep_tables(frozen, tables, record)

    def read(columns: Columns) -> ir.Value:
        result = read_symbols(frozen, signature, symbols(columns), columns, record)
        value = wanted.of(result, record, shapes_in(result, frozen, signature, columns))
        return without_zeros(value, record)

    def compare(output: ir.Value, columns: Columns) -> None:
        columns = in_categories(columns, record)
        graphs = samples(columns, recorded=record.recorded, zeros=divides(output))
        check_import(
            frozen,
            signature,
            columns,
            graphs,
            lambda given: {None: modelled(output, columns, given)},
            rounded=record.rounded,
            row="edge" if output.on_edges else "vertex",
            take=wanted.take,
        )

    reader = VariantReader(frozen, signature, record, read, compare, lambda output: output)
    named = {name.removeprefix("inner.") if type(frozen) is Embeddings else name: each for name, each in tables.items()}
    return dataclasses.replace(reader.all(columns, choice, options), tables=named), record


def _keep_tables(module: nn.Module, tables: dict[str, Any], record: Import) -> None:
    """Notes what the tables of a module stand for: the features of all vertices, one kind after the other."""
    ends = (0, *np.cumsum([len(rows) for rows in tables.values()]).tolist())
    record.ends = ends if len(tables) > 1 else ()
    for name, start, stop in zip(tables, ends, ends[1:], strict=False):
        rows: Any = record.features if len(tables) == 1 else TablePart(record.features, start, stop)
        record.tables[id(module.get_parameter(name))] = rows


def in_categories(columns: Columns, record: Import) -> Columns:
    """What a module is compared on, once it is known which columns name rows of tables."""
    types = None if columns.types is None else min(columns.types, record.relations or columns.types)
    return dataclasses.replace(
        columns, types=types, small=False, categories=tuple(record.categories.items()), positive=record.positive
    )


def shapes_in(result: Any, module: nn.Module, signature: Signature, columns: Columns) -> dict[Path, tuple[int, ...]]:
    """The shapes of several results, of a run on a small graph; {} of one, or where the module does not run."""
    if not isinstance(result, (tuple, list, dict)):
        return {}
    try:
        with torch.no_grad(), unchanged(module):
            return shapes_of(signature.run(module, *example(columns)))
    except Exception:  # the comparison says why
        return {}


def prepared(module: nn.Module, options: Options) -> nn.Module:
    """A private copy to read. Raises: ModelUnsupported for what no reading could see."""
    module = getattr(module, "_orig_mod", module)  # torch.compile's wrapper
    _refuse_unreadable(module)
    frozen = _frozen(module)
    _refuse_other_operators(frozen, options)
    if options.ignore_cached:
        forget_cached(frozen)
    for each in frozen.modules():
        if isinstance(each, pyg.GroupAddRev):
            each.disable = True  # the same function, without what saves memory in training
    encoder: Any = getattr(frozen, "encoder", None)
    if type(frozen) is pyg.LightGCN:
        return Embeddings(frozen)
    return Means(encoder) if type(frozen) is pyg.VGAE else frozen


def _refuse_other_operators(module: nn.Module, options: Options) -> None:
    """Refuses operators for classes that no layer is of. Raises: ModelError."""
    kinds = {type(each) for each in module.modules() if isinstance(each, pyg.MessagePassing)}
    for kind in options.operators:
        if kind not in kinds:
            known = ", ".join(sorted(each.__name__ for each in kinds)) or "none"
            raise ModelError(
                f"[from_pyg] expected operators for classes of the module's convolutions ({known}), got "
                f"{kind.__name__}; leave it out, or name the class itself"
            )


def _frozen(module: nn.Module) -> nn.Module:
    """A private copy on the CPU in eval mode and float32, without gradients."""
    try:
        frozen = private_copy(module)
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


def widths_of(module: nn.Module, options: Options) -> Callable[[Columns], list[tuple[int, ...]]]:
    """The features' widths that a module without types may take, as its layers state them. Raises: ModelError."""
    given = options.input_width
    if isinstance(given, Mapping):
        raise ModelError("[from_pyg] expected one input_width for one kind of vertex, got a dict; pass a number")
    widths = stated_widths(module) if given is None else [given]
    if not widths and any(isinstance(each, nn.Embedding) for each in module.modules()):
        widths = [1]
    return lambda _columns: [(width,) for width in widths]


def columns_of(
    module: nn.Module,
    signature: Signature,
    options: Options,
    widths: Callable[[Columns], list[tuple[int, ...]]],
    *,
    batch: bool = False,
) -> tuple[Columns, Choice]:
    """The features' and the attributes' widths: of those that the layers state, the first with which the module runs.

    Attributes or types that a forward may do without are given where a layer reads them; attributes are tried, too,
    where no layer states whether it reads any.
    """
    types = None if signature.types == "none" else relations(module, signature.types == "required")
    fewer = [*range(types - 1, 0, -1)] if types is not None and signature.types == "required" else []
    choices, edge_width = attribute_choices(module, signature, options.edge_width), options.edge_width
    weighted, over = signature.weights == "required", signature.over
    tries: list[list[Columns]] = []
    without_width: list[Columns] = []
    for each in choices:
        known = Columns((), weighted, each.width, types, batch, each.flat, edge_width == 0, over=over)
        without_width.append(known)
        tries.append([dataclasses.replace(known, widths=found) for found in widths(known)])
        found = numbers(module, tries[-1], options.input_width is None) if signature.features else tries[-1]
        if options.input_width is None and not each.guessed and signature.over is None:
            found = [*found, *_narrower(tries[-1])]
        found = [*found, *(dataclasses.replace(known, types=less) for less in fewer for known in found)]
        running = next((columns for columns in found if runs(module, signature, columns)), None)
        if running is not None:
            refuse_state(module, signature, running)
            return running, each
    searched = _searched(module, signature, options, without_width, choices)
    if searched is not None:
        return searched
    if not any(tries):
        raise ModelError(
            f"[from_pyg] expected a layer that states the features' width, got none in {type(module).__name__}; "
            "pass input_width="
        )
    if edge_width is None and signature.attributes == "required" and len(choices) == 1:
        raise ModelError(
            f"[from_pyg] expected a layer that states the edge attributes' width, got none in {type(module).__name__}; "
            "pass edge_width="
        )
    place = -1 if choices[0].guessed else 0
    return tries[place][0], choices[place]


def _searched(
    module: nn.Module, signature: Signature, options: Options, known: list[Columns], choices: list[Choice]
) -> tuple[Columns, Choice] | None:
    """Columns of a width that no layer states; None where there is none, or the user gives one."""
    embedded = any(isinstance(each, nn.Embedding) for each in module.modules())
    if options.input_width is not None or signature.over is not None or not signature.features or embedded:
        return None
    for columns, choice in zip(known, choices, strict=True):
        width = searched_width(module, signature, columns, stated_widths(module))
        if width is not None:
            found = dataclasses.replace(columns, widths=(width,))
            refuse_state(module, signature, found)
            return found, choice
    return None


def _narrower(tries: list[Columns]) -> list[Columns]:
    """Features of which a forward puts several copies, or what it makes of them, in front of its first layer."""
    stated = [each.widths[0] for each in tries]
    found = dict.fromkeys(width // k for width in stated for k in range(2, width + 1) if width % k == 0)
    return [dataclasses.replace(tries[0], widths=(width,)) for width in found if width not in stated]


def refuse_other_blocks(module: nn.Module, signature: Signature) -> None:
    """Refuses a forward over sampled blocks that leaves out a convolution, or goes on with one more block than it has
    layers. Raises: ModelUnsupported.
    """
    if signature.blocks is None:
        return
    where, stated = f"{type(module).__name__}.forward(..., {signature.edges})", hasattr(module, "num_layers")
    for width in stated_widths(module):
        unreached = _unreached(module, signature, example(Columns((width,))))
        if unreached:
            count = f"{signature.blocks} block{'s' if signature.blocks > 1 else ''}"
            raise refuse(
                where,
                f"it is read over {count}, as {'num_layers' if stated else 'its lists of layers'} says, and does not "
                f"reach {', '.join(unreached)}",
                "set module.num_layers to the number of blocks that it is sampled with, or remove these layers",
            )
    if isinstance(getattr(module, "num_layers", None), int):
        return
    more = dataclasses.replace(signature, blocks=signature.blocks + 1)
    for width in stated_widths(module):
        given = example(Columns((width,)))
        try:
            with torch.no_grad(), unchanged(module):
                one, other = signature.run(module, *given), more.run(module, *given)
        except Exception:  # it does not go on, or not with this width
            continue
        if not all(
            torch.equal(a, b) for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=False) if torch.is_tensor(a)
        ):
            raise refuse(
                where,
                "it has no number of layers of its own, as many as it is given blocks",
                "set num_layers on the module, or take edge_index and loop over the layers",
            )


def _unreached(module: nn.Module, signature: Signature, given: tuple[Any, ...]) -> list[str]:
    """The convolutions that a run does not call; none where it fails."""
    called: set[int] = set()
    layers = {path: each for path, each in module.named_modules() if isinstance(each, pyg.MessagePassing)}
    handles = [each.register_forward_pre_hook(lambda layer, _args: called.add(id(layer))) for each in layers.values()]
    try:
        with torch.no_grad(), unchanged(module):
            signature.run(module, *given)
    except Exception:  # not with this width, or reading it will say what is wrong
        return []
    finally:
        for handle in handles:
            handle.remove()
    return [f"{path} ({type(each).__name__})" for path, each in layers.items() if id(each) not in called]


def plain_symbols(columns: Columns, record: Import) -> Callable[[Columns], tuple[Any, ...]]:
    """What a forward without types is given for columns: everywhere the same input and the same attributes."""
    record.whole, record.relations = columns.whole, columns.types
    x: ir.Input = record.name(ir.Input(*columns.widths), "input")
    record.features = x
    record.rows = x
    rows = None if columns.attributes is None else EdgeAttribute(columns.attributes)

    def symbols(columns: Columns) -> tuple[Any, ...]:
        attributes = None if rows is None or columns.attributes is None else Flat(rows) if columns.flat else rows
        weights, types = WEIGHTS if columns.weighted else None, None if columns.types is None else TYPES
        given: tuple[Any, Any] = x, attributes
        if columns.whole:
            given = as_whole(x), None if attributes is None else as_whole(attributes)
        return given[0], EDGES, weights, given[1], types, *((BATCH,) if columns.batch else ())

    return symbols


def read_symbols(
    module: nn.Module, signature: Signature, symbols: tuple[Any, ...], columns: Columns, record: Import
) -> Any:
    """What the forward returns. Raises: ModelUnsupported."""
    given = example(columns)
    if signature.edges is None:
        given, symbols = (given[0], None, *given[2:]), (symbols[0], None, *symbols[2:])
    signature = dataclasses.replace(signature, bare=columns.bare)
    with reading_pools(), reading_utilities(module):
        result = read_following(module, signature.call, symbols, given, record)
    if isinstance(result, Refusal):
        raise result.error
    refuse_questions(result, record, f"{type(module).__name__}.forward")
    return result.value if isinstance(result, Flat) else result
