"""Reads a module's forward: first symbolically (torch.fx), and where that fails by recording one run.

Both ways hand every operation to the same tables (convs, modules, functions). Library modules are leaves,
matched by exact type; anything the tables do not know is refused. A recording fixes whatever the run decided from
shapes, so a recorded module is always checked on graphs of several sizes.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode
from torch_geometric import nn as pyg
from torch_geometric.utils._trim_to_layer import TrimToLayer

from livegnn.errors import ModelUnsupported
from livegnn.models import ir
from livegnn.models.pyg.constants import first_state
from livegnn.models.pyg.context import (
    EDGES,
    EXAMPLE_VERTICES,
    Flat,
    Import,
    Marker,
    NotTraceable,
    Refusal,
    Rewired,
    Shaped,
    Unfit,
    first_refusal,
    is_of_edges,
    is_symbol,
    refuse,
)
from livegnn.models.pyg.convs.registry import READ_THROUGH, called, convert_conv, follow_module
from livegnn.models.pyg.copies import unchanged
from livegnn.models.pyg.counted import DECIDES, DECIDES_ADVICE, with_counts
from livegnn.models.pyg.folds import by_front, by_parts, has_front, is_folded
from livegnn.models.pyg.functions.registry import apply_function, canonical_name
from livegnn.models.pyg.hetero.hgt import OVER_TYPES
from livegnn.models.pyg.modules import GLOBAL_NORMS, LOCAL_MODULES, SEVERAL_ARGUMENTS, convert_local
from livegnn.models.pyg.own.tracing import is_librarys, line_at
from livegnn.models.pyg.pools import pool_module
from livegnn.models.pyg.recurrent import RECURRENT, convert_recurrent
from livegnn.models.pyg.refused import REFUSED_CONVS, REFUSED_POOLS
from livegnn.models.pyg.self_attention import OVER_SEQUENCES, convert_attention
from livegnn.models.pyg.table_parts import is_part, over_parts
from livegnn.models.pyg.tables import convert_embedding
from livegnn.models.pyg.written import seen_through

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, pyg.Sequential, pyg.MLP, pyg.HeteroDictLinear)
_MODELS = (
    pyg.GCN,
    pyg.GraphSAGE,
    pyg.GIN,
    pyg.GAT,
    pyg.PNA,
    pyg.EdgeCNN,
    pyg.GAE,
    pyg.VGAE,
    pyg.DeepGCNLayer,
    pyg.GroupAddRev,
)
_tracing = threading.RLock()  # two traces at once would restore each other's patches
_LIBRARIES = ("torch.nn.", "torch.ao.", "torch_geometric.")

Caller = Callable[..., Any]


def _is_leaf(module: nn.Module) -> bool:
    kind = type(module)
    if isinstance(module, pyg.MessagePassing):
        return True
    if kind in _CONTAINERS or kind in _MODELS or kind in READ_THROUGH:
        return False
    return kind in LOCAL_MODULES or f"{kind.__module__}.".startswith(_LIBRARIES)


def read_forward(
    module: nn.Module, call: Caller, symbols: tuple[Any, ...], examples: tuple[Any, ...], record: Import, prefix: str
) -> Any:
    """The symbol that `call(module, *symbols)` computes.

    Args:     call: calls the module's forward with features, edges, weights, attributes and types (None where there
              are none).
              examples: tensors of a small graph, for a recording.
              prefix: the module's qualified name, "" for the whole model.
    Raises:   ModelUnsupported.
    """
    reader = _Reader(module, call, record, prefix)
    if not prefix and "" in record.followed:
        return reader.follow(module, "", lambda layer, given: call(layer, *given), symbols)
    if _is_leaf(module):
        return call(lambda *args, **kwargs: reader.leaf(module, "inner", args, kwargs), *symbols)
    try:
        if record.forced and not prefix:
            raise NotTraceable("it was misread")
        graph = reader.trace_symbolically(symbols)
    except NotTraceable:
        record.recorded, record.example_rows = True, len(examples[0]) if isinstance(examples[0], torch.Tensor) else None
        return reader.record_run(symbols, examples)
    return reader.interpret(graph, symbols)


def partial_graph(module: nn.Module, call: Caller, symbols: tuple[Any, ...]) -> tuple[nn.Module, fx.Graph]:
    """(root, the operations that torch.fx sees of the forward, up to where it gives up)."""
    root, tracer = _Root(module, call, symbols), _Tracer(partial=True)
    try:
        with unchanged(module):
            return root, tracer.trace(root)
    except Exception:  # reading the forward will say what is wrong
        return root, tracer.graph


class _Root(nn.Module):
    """Fixes the signature, so that arguments left out keep their defaults."""

    def __init__(self, inner: nn.Module, call: Caller, symbols: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.inner, self.call = inner, call
        self.absent = tuple(symbol is None for symbol in symbols)

    def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
        given = (a, b, c, d, e, f)[: len(self.absent)]
        return self.call(self.inner, *(None if no else each for each, no in zip(given, self.absent, strict=True)))


class _Tracer(fx.Tracer):
    """Library modules are leaves; every operation notes the module whose forward it stands in."""

    def __init__(self, *, partial: bool = False, followed: Collection[str] = ()) -> None:
        super().__init__()
        self.inside = [""]
        self.partial = partial  # what follows from a result that is misread does not matter
        self.followed = followed
        self.thread = threading.get_ident()  # torch.fx patches nn.Module itself, also for the threads of others

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        with _tracing:
            return super().trace(root, concrete_args)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if threading.get_ident() != self.thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _is_leaf(m) or _inner(module_qualified_name) in self.followed

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        try:
            path = self.path_of_module(m)
        except NameError:
            if not any(True for _ in m.parameters()) and not any(True for _ in m.buffers()):
                return forward(*args, **kwargs)  # a function in the form of a module, such as nn.ReLU()(x)
            raise refuse(
                type(m).__name__,
                "it is made in the forward, or kept where PyTorch does not see it, such as a plain list",
                "make it in __init__, and keep several in a ModuleList",
            ) from None
        if isinstance(m, pyg.HeteroConv) and m.aggr in ("max", "min") and not self.partial:
            raise NotTraceable("it asks whether the result of torch.max is a tuple")
        if isinstance(m, pyg.GroupAddRev) and not self.partial:
            raise NotTraceable("it asks whether its arguments are tensors")
        self.inside.append(path)
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.inside.pop()

    def to_bool(self, obj: fx.Proxy) -> bool:
        if not self.partial and _compares_a_count(obj.node):
            raise refuse(
                "a forward that decides by the number of vertices or edges",
                "the graph grows and shrinks, and one branch would be kept for good",
                "take the decision out of the forward",
            )
        return bool(super().to_bool(obj))

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta["inside"] = self.inside[-1]
        return node


_COMPARISONS = (operator.gt, operator.lt, operator.ge, operator.le, operator.eq, operator.ne)
_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod)


def _compares_a_count(node: fx.Node) -> bool:
    """Whether a truth is that of a number of vertices or edges against a constant other than 0."""
    if node.op != "call_function" or node.target not in _COMPARISONS:
        return False
    constants = [each for each in node.args if not isinstance(each, fx.Node)]
    return 0 not in constants and any(_is_count(each) for each in node.args)


def _is_count(value: object) -> bool:
    """Rows of anything but edge_index, its columns, elements of either, and what is computed of these."""
    if not isinstance(value, fx.Node):
        return False
    if value.op == "call_method" and value.target == "numel":
        return True
    if value.op == "call_method" and value.target == "size" and len(value.args) == 2:
        return _counts_along(value.args[0], value.args[1])
    if value.op == "call_function" and value.target is operator.getitem and isinstance(value.args[0], fx.Node):
        whole, axis = value.args[0], value.args[1]
        shaped = (whole.target is getattr and whole.args[1] == "shape") or whole.target == "size"
        return shaped and _counts_along(whole.args[0], axis)
    return value.target in _ARITHMETIC and any(_is_count(each) for each in value.args)


def _counts_along(tensor: object, axis: object) -> bool:
    edges = isinstance(tensor, fx.Node) and tensor.op == "placeholder" and tensor.target == "b"
    return axis in ((1, -1) if edges else (0,))


class _Reader:
    """One module read, both ways."""

    def __init__(self, module: nn.Module, call: Caller, record: Import, prefix: str) -> None:
        self.module, self.call, self.record, self.prefix = module, call, record, prefix
        self.root = _Root(module, call)
        self.followed = record.followed if not prefix else set()

    def qualified(self, path: str) -> str:
        return ".".join(each for each in (self.prefix, _inner(path)) if each)

    def where(self, path: str) -> str:
        """A module's name and type, for messages."""
        kind = type(self.module.get_submodule(_inner(path))).__name__
        return f"{self.qualified(path)} ({kind})" if self.qualified(path) else kind

    def leaf(self, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a leaf module's call; a Refusal, which matters only if something reads it."""
        if not is_symbol((args, kwargs)) and not (type(module) is nn.Embedding and self.record.tables):
            self.record.rounded = True  # a constant computed in the module's own float32
            with torch.no_grad():
                return module(*args, **kwargs)
        try:
            if _inner(path) in self.followed:
                if not is_symbol((args, kwargs)):
                    self.record.suspects[""] = None
                    reason = "its arguments lie in an object that is not read"
                    raise refuse(self.where(path), reason, "pass rows and edge_index themselves")
                return self.follow(module, self.qualified(path), called, (args, kwargs))
            return self.converted(module, path, args, kwargs)
        except ModelUnsupported as error:
            return Refusal(error)

    def follow(self, module: nn.Module, name: str, call: Caller, given: tuple[Any, ...]) -> Any:
        """What a module that computes with edges returns, followed through one run. Raises: ModelUnsupported."""
        kind = type(module).__name__
        where = f"{name} ({kind})" if name else kind
        return self.record.name(follow_module(module, name, where, call, given, self.record, self.local), where)

    def converted(self, module: nn.Module, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a leaf module's call. Raises: ModelUnsupported."""
        name, where = self.qualified(path), self.where(path)
        if is_folded((args, kwargs)) and not isinstance(module, pyg.MessagePassing):
            return self.in_parts(by_parts, module, path, args, kwargs)
        if is_part((args, kwargs)):
            ends = self.record.ends
            return self.in_parts(lambda call, a, k: over_parts(None, call, a, k, ends), module, path, args, kwargs)
        if type(module) in OVER_TYPES:
            rows = OVER_TYPES[type(module)].convert(module, args, kwargs, self.record, where)
            return self.record.name(rows, where)
        refused = first_refusal((*args, *kwargs.values()))
        if refused is not None:
            raise refused.error
        for each in (*args, *kwargs.values()):
            kind = type(module)
            own = isinstance(module, pyg.MessagePassing) and not kind.__module__.startswith("torch_geometric.")
            read = own or kind in (nn.Embedding, pyg.HEATConv)
            if isinstance(each, Shaped) and each.whole and not read:
                raise refuse(
                    where, "torch.int64 would round the rows", "stay in float32; only an Embedding takes integers"
                )
        if type(module) is TrimToLayer:
            return _untrimmed(where, *args, **kwargs)
        if isinstance(module, pyg.MessagePassing):
            if module.node_dim == -2 and any(map(has_front, (*args, *kwargs.values()))):
                return self.in_parts(by_front, module, path, args, kwargs)
            return convert_conv(module, name, args, kwargs, self.record, self.local)
        kind = type(module)
        if isinstance(module, pyg.Aggregation):
            return self.record.name(pool_module(module, args, kwargs, self.record, where), where)
        if kind in GLOBAL_NORMS:
            raise refuse(where, GLOBAL_NORMS[kind], "use BatchNorm or LayerNorm(mode='node')")
        if kind is nn.Embedding:
            return self.record.name(convert_embedding(module, args, kwargs, self.record, where), where)
        if kind in RECURRENT:
            return self.record.name(convert_recurrent(module, args, kwargs, self.record, where), where)
        if kind in OVER_SEQUENCES:

            def inner(part: nn.Module, rows: Any) -> Any:
                return convert_local(part, (rows,), {}, self.record, where)

            return self.record.name(convert_attention(module, args, kwargs, self.record, where, inner), where)
        if kind not in LOCAL_MODULES and kind not in SEVERAL_ARGUMENTS:
            known = REFUSED_CONVS | REFUSED_POOLS
            reason = known.get(kind.__name__) if kind.__module__.startswith("torch_geometric.") else None
            raise refuse(where, reason or "this module is not supported", "see docs/models.md for those that are")
        if all(isinstance(each, Flat) for each in args) and len(args) == 1 and not kwargs:
            return Flat(self.record.name(convert_local(module, (args[0].value,), {}, self.record, where), where))
        return self.record.name(convert_local(module, args, kwargs, self.record, where), where)

    def in_parts(self, over: Caller, module: nn.Module, path: str, args: Any, kwargs: Any) -> Any:
        """A module's call for every part of rows under each other, or with dimensions in front of the vertices'."""
        where = self.where(path)
        try:
            result = over(lambda *given, **named: self.converted(module, path, given, named), args, kwargs)
        except Unfit as error:
            raise refuse(where, error.reason, error.remedy) from error
        return self.record.name(result, where)

    def local(self, inner: Any, name: str, x: ir.Value) -> ir.Value:
        """A row-local module or function inside a convolution, such as GINConv's nn."""
        if not isinstance(inner, nn.Module):
            inner = _Function(inner)
        example = torch.randn(EXAMPLE_VERTICES, x.width)

        def call(module: nn.Module, rows: Any, *_columns: Any) -> Any:
            return module(rows)

        nothing = (None,) * 4
        result = read_forward(inner, call, (x, *nothing), (example, *nothing), self.record, name)
        if isinstance(result, Refusal):
            raise result.error
        if not isinstance(result, ir.Value):
            raise refuse(name, "it does not return one row per vertex", "return the rows")
        return result

    def trace_symbolically(self, symbols: tuple[Any, ...]) -> fx.Graph:
        """torch.fx's graph of the forward. Raises: NotTraceable."""
        tracer = _Tracer(followed=self.followed)
        try:
            self.root = _Root(self.module, self.call, symbols)
            with unchanged(self.module):
                graph: fx.Graph = tracer.trace(self.root)
        except ModelUnsupported:
            raise
        except Exception as error:  # fx gives up with many kinds of errors; the recording then decides
            raise NotTraceable(str(error)) from error
        return graph

    def interpret(self, graph: fx.Graph, symbols: tuple[Any, ...]) -> Any:
        """Runs the graph on symbols; constants are computed as they stand."""
        env: dict[fx.Node, Any] = {}
        inputs = iter(symbols)
        for node in graph.nodes:
            if node.op == "placeholder":
                env[node] = next(inputs, None)
                continue
            if any(each not in env for each in node.all_input_nodes):
                raise self.left_over(node)
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: env[each])
            if node.op == "output":
                return args[0]
            if node.op == "get_attr":
                env[node] = operator.attrgetter(str(node.target))(self.root)
                if isinstance(env[node], fx.Proxy):
                    raise self.left_over(node)
                env[node] = self.record.tables.get(id(env[node]), env[node])
            elif node.op == "call_module":
                path = str(node.target)
                env[node] = self.leaf(self.module.get_submodule(_inner(path)), path, args, kwargs)
            else:
                env[node] = self.function(node, args, kwargs)
                if _in_place(node) and isinstance(node.args[0], fx.Node):
                    env[node.args[0]] = env[node]
        raise NotTraceable("no output")

    def left_over(self, node: fx.Node) -> ModelUnsupported:
        reason = "it reads what an earlier call of the forward left on the module"
        return refuse(self.where(node.meta.get("inside", "")), reason, "pass it to the forward, as columns of x")

    def function(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        label = target if isinstance(target, str) else getattr(target, "__name__", repr(target))
        if isinstance(args[0] if args else None, dict) and label in ("get", "getitem", "get_dict"):
            return args[0] if label == "get_dict" else args[0].get(*args[1:])
        if isinstance(target, type) and issubclass(target, tuple) and hasattr(target, "_fields"):
            return target(*args, **kwargs)
        if is_symbol(args) or is_symbol(kwargs):
            return self.apply(canonical_name(target), label, args, kwargs, node.meta.get("inside", ""))
        with torch.no_grad():
            value = (
                getattr(args[0], target)(*args[1:], **kwargs) if isinstance(target, str) else target(*args, **kwargs)
            )
        if not isinstance(value, int):  # else a constant computed in the module's own float32
            self.record.rounded = True
        return value

    def apply(self, name: str | None, label: str, args: Any, kwargs: Any, inside: str) -> Any:
        """What a function makes in the forward of the module at `inside`, which is noted if it fails with edges."""
        result = apply_function(name, label, args, kwargs, self.record, self.where(inside))
        if isinstance(result, Refusal) and is_of_edges((args, kwargs)):
            self.record.suspects[self.qualified(inside)] = None
        return result

    def record_run(self, symbols: tuple[Any, ...], examples: tuple[Any, ...]) -> Any:
        """Runs the forward once on `examples` and follows every tensor that depends on them."""
        root = _Root(self.module, self.call)
        paths = {id(each): path for path, each in root.named_modules()}
        with unchanged(self.module), _Recorder(self, paths, symbols, examples) as recorder, torch.no_grad():
            try:
                result = self.call(self.module, *examples)
            except ModelUnsupported:
                raise
            except Exception as error:
                raise refuse(
                    self.where(""),
                    f"its forward fails on a small graph ({type(error).__name__}: {error})",
                    "make it run as module(x, edge_index) or module(x, edge_index, edge_weight)",
                ) from error
            return recorder.symbols_of(result)


def _untrimmed(
    where: str, layer: int, nodes: Any, edges: Any, x: Any, edge_index: Any, edge_attr: Any = None
) -> tuple[Any, Any, Any]:
    """What TrimToLayer returns without numbers of sampled vertices and edges. Raises: ModelUnsupported with them."""
    if isinstance(nodes, list) or edges is not None:
        raise refuse(where, "it leaves out what was sampled for other layers", "leave num_sampled_*_per_hop out")
    return x, edge_index, edge_attr


class _Function(nn.Module):
    """A plain callable as a module."""

    def __init__(self, function: Caller) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def _inner(path: str) -> str:
    """A path from _Root as one from the module that is read; "" for that itself."""
    return path.removeprefix("inner").removeprefix(".")


def _in_place(node: fx.Node) -> bool:
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).endswith("__")
    name = getattr(node.target, "__name__", "")
    return bool(node.kwargs.get("inplace")) or name in ("iadd", "isub", "imul", "itruediv") or name.endswith("_")


_ABOUT = {
    "size", "dim", "shape", "device", "dtype", "ndim", "is_cuda", "layout", "is_sparse", "get_device", "numel", "len",
    "is_floating_point", "requires_grad", "is_nested", "is_quantized", "names", "ndimension", "itemsize",
    "element_size",
    "is_sparse_csr", "is_complex", "is_leaf", "grad_fn", "is_mkldnn", "is_mps", "is_xpu", "is_meta",
}  # fmt: skip


def _paired(examples: tuple[Any, ...], symbols: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Tensors with their symbols, out of tuples that hold one for each type."""
    pairs: list[tuple[Any, Any]] = []
    for tensor, symbol in zip(examples, symbols, strict=True):
        pairs += _paired(tensor, symbol) if isinstance(tensor, tuple) else [(tensor, symbol)]
    return pairs


class _Recorder(TorchFunctionMode):
    """Follows tensors by identity through one run; leaf modules are single steps."""

    def __init__(
        self, reader: _Reader, paths: dict[int, str], symbols: tuple[Any, ...], examples: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.reader, self.paths, self.depth = reader, paths, 0
        self.known: dict[int, tuple[torch.Tensor, Any]] = {}
        self.pending: list[Any] = []
        self.inside = ["inner"]
        self.handles: list[Any] = []
        for tensor, symbol in _paired(examples, symbols):
            if tensor is not None:
                self.known[id(tensor)] = (tensor, symbol)
        for parameter in reader.module.parameters():
            if id(parameter) in reader.record.tables:
                self.known[id(parameter)] = (parameter, reader.record.tables[id(parameter)])

    def __enter__(self) -> _Recorder:
        for module in self.reader.module.modules():
            self.handles.append(module.register_forward_pre_hook(self.before, with_kwargs=True))
            self.handles.append(module.register_forward_hook(self.after, always_call=False))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for handle in self.handles:
            handle.remove()

    def symbols_of(self, value: Any) -> Any:
        """`value` with every followed tensor replaced by its symbol."""
        if isinstance(value, torch.Tensor):
            return self.known[id(value)][1] if id(value) in self.known else value
        if isinstance(value, tuple) or type(value) is list:
            parts = [self.symbols_of(each) for each in value]
            if hasattr(value, "_fields"):
                return type(value)(*parts)
            return parts if type(value) is list else tuple(parts)
        if isinstance(value, dict):
            return {key: self.symbols_of(each) for key, each in value.items()}
        return value

    def is_step(self, module: nn.Module) -> bool:
        return _is_leaf(module) or _inner(self.paths.get(id(module), "")) in self.reader.followed

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.inside.append(self.paths.get(id(module), ""))
        if self.is_step(module):
            if self.depth == 0:
                args, kwargs = self.symbols_of(args), self.symbols_of(kwargs)
                read = is_symbol((args, kwargs)) or (type(module) is nn.Embedding and self.reader.record.tables)
                read = read or _inner(self.inside[-1]) in self.reader.followed
                symbol = self.reader.leaf(module, self.inside[-1], args, kwargs) if read else None
                self.pending.append(symbol)
            self.depth += 1

    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        self.inside.pop()
        if self.is_step(module):
            self.depth -= 1
            if self.depth == 0:
                self.learn(result, self.pending.pop())

    def learn(self, result: Any, symbol: Any) -> None:
        if isinstance(result, torch.Tensor):
            if is_symbol(symbol):
                self.known[id(result)] = (result, symbol)
        elif isinstance(result, (list, tuple, dict)) and isinstance(symbol, Refusal):
            for each in result.values() if isinstance(result, dict) else result:
                self.learn(each, symbol)
        elif isinstance(result, (list, tuple)) and isinstance(symbol, (list, tuple)):
            for each, part in zip(result, symbol, strict=True):
                self.learn(each, part)
        elif isinstance(result, dict) and isinstance(symbol, dict):
            for key, each in result.items():
                self.learn(each, symbol[key])

    def compared(self, frame: FrameType) -> None:
        """A number of vertices or edges meets a constant there. Raises: ModelUnsupported for the user's own code."""
        if not is_librarys(frame):
            where = self.reader.where(self.inside[-1])
            raise refuse(where, f"{line_at(frame, frame.f_lineno)}{DECIDES}", DECIDES_ADVICE)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.depth:
            return func(*args, **kwargs)
        symbolic = self.symbols_of(tuple(args)), self.symbols_of(kwargs)
        self.depth += 1  # what torch calls inside is its own affair
        try:
            result = func(*args, **kwargs)
        finally:
            self.depth -= 1
        name = canonical_name(func)
        if name in _ABOUT:
            whole = self.symbols_of(args[0]) if args else None
            edges = isinstance(whole, (Marker, Rewired)) and whole.what == EDGES.what
            if isinstance(whole, Refusal) and name in ("size", "shape", "numel", "len") and not args[0].numel():
                raise whole.error  # what is empty in this run need not be in others
            axis = whole.axis if isinstance(whole, Shaped) else int(edges)
            return with_counts(name, result, args, axis, self.compared) if is_symbol(whole) else result
        if not is_symbol(symbolic):
            state = first_state(name, result, self.reader.record)
            if state is None:
                self.reader.record.rounded = True  # a constant computed in the module's own float32
            else:
                self.learn(result, state)
            return result
        label = str(name or getattr(func, "__name__", repr(func)))
        symbol = self.reader.apply(name, label, *symbolic, self.inside[-1])
        if isinstance(symbol, Refusal) and not isinstance(result, (torch.Tensor, list, tuple)) and name != "setitem":
            raise symbol.error
        changed = args[0] if name == "setitem" else result
        self.learn(changed, symbol)
        if name == "setitem" or (isinstance(changed, torch.Tensor) and changed is args[0]):
            self.written(changed)
        return result

    def written(self, tensor: torch.Tensor) -> None:
        """Follows what was written to the memory of a tensor into all others that see it."""
        own = self.known.get(id(tensor))
        for key, known in list(self.known.items()):
            if own is not None and known[0] is not tensor:
                symbol = seen_through(own, known)
                if symbol is not None:
                    self.known[key] = known[0], symbol
