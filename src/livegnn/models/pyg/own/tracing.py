"""One run of an own layer's forward on a small graph, in which every tensor is followed by identity.

The run's numbers do not matter, its shapes do: how many vertices and edges there are is unlike any width, and what it
decided by them is found by the comparison on other graphs.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch_geometric import nn as pyg

from livegnn.errors import ModelUnsupported
from livegnn.models import ir
from livegnn.models.edges import EdgeAttribute, EdgeWeight
from livegnn.models.pyg.context import Import, Refusal, Unfit, refuse
from livegnn.models.pyg.counted import DECIDES, DECIDES_ADVICE, with_counts
from livegnn.models.pyg.own.edges import constant_rows, on_edges_of
from livegnn.models.pyg.own.ends import both_ends, turned_ends
from livegnn.models.pyg.own.functions import FUNCTIONS, SUMMED_INTO, as_values
from livegnn.models.pyg.own.matrices import made, of_matrix
from livegnn.models.pyg.own.pairs import join_pairs
from livegnn.models.pyg.own.plain import by_functions, has_laid
from livegnn.models.pyg.own.rows import (
    EdgeChoice,
    EdgeTypes,
    EndIds,
    InfiniteEntries,
    Laid,
    Matrix,
    Places,
    Traced,
    constant_like,
    is_followed,
)
from livegnn.models.pyg.own.utilities import utilities_as_steps
from livegnn.models.pyg.own.ways import Ways
from livegnn.models.pyg.written import shares_memory

_ABOUT = {
    "size", "dim", "shape", "device", "dtype", "ndim", "is_cuda", "layout", "is_sparse", "get_device", "numel", "len",
    "is_floating_point", "requires_grad", "is_nested", "is_quantized", "names", "ndimension", "itemsize", "is_meta",
    "element_size", "is_sparse_csr", "is_complex", "is_leaf", "grad_fn", "is_mkldnn", "is_mps", "is_xpu", "stride",
    "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "zeros_like", "ones_like", "full_like",
    "empty_like", "is_contiguous", "storage_offset", "is_signed", "result_type", "is_inference",
}  # fmt: skip
_OF_IDS = {"max", "min", "unique", "any", "all"}  # of ends, what may decide nothing but a branch
_SAME_IDS = {"contiguous", "clone", "detach", "to", "long", "cpu", "int"}
_AS_VECTOR = {"view", "unsqueeze", "squeeze", "expand", "expand_as", "reshape", "flatten"}
VERTICES, EDGES = 61, 227  # of the run's graph: unlike the width of any layer, with loops added and removed, too
_FUNCTIONS = join_pairs(FUNCTIONS)
_MADE = {"zeros", "ones", "full", "arange", "empty", "tensor", "as_tensor", "eye", "view", "reshape", "t", "transpose",
         "unsqueeze", "squeeze", "get", "contiguous", "to", "getitem", "T", "permute", "data", "detach", "expand",
         "flatten", "cat", "chunk", "split", "clone"}  # fmt: skip
_THROUGH_A_VIEW = (
    "another tensor that shows the same memory was written to",
    "write to the tensor itself, or to a clone of it",
)
_LIBRARIES = ("torch", "torch_geometric", "livegnn")


class FollowedRun(TorchFunctionMode):
    """Follows the tensors of one layer's run.

    nested: reads a convolution inside the layer: (module, its path, args, kwargs) -> what it returns.
    checked: refuses a convolution with options that its code does not show: (module, its path).
    """

    def __init__(
        self, layer: nn.Module, record: Import, where: str, anchor: ir.Value, nested: Any, checked: Any
    ) -> None:
        super().__init__()
        self.layer, self.record, self.where, self.nested, self.checked = layer, record, where, nested, checked
        self.reducer = Ways(record, where, anchor)
        self.paths = {id(each): path for path, each in layer.named_modules()}
        self.known: dict[int, tuple[torch.Tensor, Any]] = {}
        self.depth = 0
        self.pending: list[Any] = []
        self.vertices, self.edges = VERTICES, EDGES
        self.masks: dict[Any, Traced] = {}  # of longer and shorter lists, by those that they are made of
        self.written: list[torch.Tensor] = []  # in place
        self.from_zeros = False  # whether the rows that a step of SUMMED_INTO adds to were all 0

    def __deepcopy__(self, memo: Any) -> FollowedRun:
        """Itself: a copied layer's hooks are still this run's."""
        return self

    def follow(self, tensor: torch.Tensor, symbol: Any) -> torch.Tensor:
        """`tensor`, from now on followed as `symbol`."""
        self.known[id(tensor)] = tensor, symbol
        return tensor

    def run(self, call: Callable[[], Any]) -> Any:
        """What a call of the layer returns, in symbols. Raises: ModelUnsupported."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._hooked())
            stack.enter_context(utilities_as_steps(self.utility))
            stack.enter_context(self)
            try:
                result = call()
            except ModelUnsupported:
                raise
            except Exception as error:
                reason = f"{_line_of(error)}it fails on a small graph ({type(error).__name__}: {error})"
                raise refuse(self.where, reason, "make it run on any graph") from error
        return self.symbols_of(result)

    @contextlib.contextmanager
    def _hooked(self) -> Iterator[None]:
        """Aggregations and convolutions inside the layer are single steps."""
        handles = []
        for each in self.layer.modules():
            if isinstance(each, (pyg.Aggregation, pyg.MessagePassing)) and each is not self.layer:
                handles.append(each.register_forward_pre_hook(self.before, with_kwargs=True))
                handles.append(each.register_forward_hook(self.after))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        args, kwargs = self.symbols_of(tuple(args)), self.symbols_of(kwargs)
        self.raise_refusals((args, kwargs))
        if not is_followed((args, kwargs)):
            self.pending.append(None)
        elif isinstance(module, pyg.Aggregation):
            self.pending.append(self.symbol(lambda: self.aggregation(module, args, kwargs), "aggr"))
        else:
            self.pending.append(self.symbol(lambda: self.convolution(module, args, kwargs), type(module).__name__))
            if self.pending[-1] is _INLINE:
                self.depth = 0

    def after(self, module: nn.Module, args: Any, result: Any) -> None:
        if self.depth == 0 and self.pending[-1] is _INLINE:
            self.pending.pop()
            return
        self.depth -= 1
        if self.depth == 0:
            self.learn(result, self.pending.pop())

    def aggregation(self, module: Any, args: Any, kwargs: Any) -> Any:
        """The rows that an aggregation of PyG makes of messages."""
        given = inspect.signature(pyg.Aggregation.forward).bind(module, *args, **kwargs).arguments
        x, index, ptr = given["x"], given.get("index"), given.get("ptr")
        if not isinstance(index, EndIds) or index.end is None or ptr is not None:
            raise Unfit("it reduces by something else than the ends of edges", "pass index")
        if not isinstance(x, Traced):
            x = constant_rows(self, x, index.edges, tuple(x.shape[1:]))
        label = getattr(self.layer, "aggr", None) if module is getattr(self.layer, "aggr_module", None) else None
        return self.reducer.of(x, module, label or type(module).__name__, index.end)

    def convolution(self, module: Any, args: Any, kwargs: Any) -> Any:
        """What a convolution returns; _INLINE where it is given edges of the layer's making: then its code is followed.

        Raises: ModelUnsupported.
        """
        path = self.paths[id(module)]
        try:
            return self.nested(self, module, path, args, kwargs)
        except ModelUnsupported:
            if not _has_changed_edges((args, kwargs)):
                raise
            self.checked(module, path)
            return _INLINE

    def constant(self, like: Traced, row: Any, shape: tuple[int, ...]) -> Traced:
        """A constant row where `like` has a row."""
        if not isinstance(like.edges, EdgeChoice):
            return Traced(constant_like(self.reducer.anchor, row), shape, like.edges)
        return on_edges_of(self, EndIds(like.edges), row, shape)

    # ---- following

    def symbols_of(self, value: Any) -> Any:
        """`value` with every followed tensor replaced by what it stands for."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.known and any(shares_memory(each, value) for each in self.written):
                self.known[id(value)] = value, self.refusal(*_THROUGH_A_VIEW)
            return self.known[id(value)][1] if id(value) in self.known else value
        if isinstance(value, tuple) or type(value) is list:
            parts = [self.symbols_of(each) for each in value]
            return parts if type(value) is list else tuple(parts)
        if isinstance(value, dict):
            return {key: self.symbols_of(each) for key, each in value.items()}
        return value

    def learn(self, result: Any, symbol: Any) -> None:
        if isinstance(result, torch.Tensor):
            if is_followed(symbol) and not isinstance(symbol, (tuple, list)):
                self.follow(result, symbol)
        elif isinstance(result, (list, tuple)):
            parts = symbol if isinstance(symbol, (list, tuple)) else [symbol] * len(result)
            for each, part in zip(result, parts, strict=True):
                self.learn(each, part)

    def symbol(self, make: Callable[[], Any], label: str) -> Any:
        """What a step makes; a Refusal that names the user's line, raised when something reads it."""
        try:
            result = make()
        except Unfit as error:
            return self.refusal(f"{label}: {error.reason}", error.remedy)
        except TypeError as error:
            reason = f"{users_line()}{label} is called in a way that is not supported ({error})"
            return Refusal(refuse(self.where, reason, "see docs/models.md for the operations supported"))
        return result

    def refusal(self, reason: str, remedy: str) -> Refusal:
        """What stands for a tensor that cannot be read, with the user's line."""
        return Refusal(refuse(self.where, f"{users_line()}{reason}", remedy))

    def note_written(self, tensor: torch.Tensor, symbol: Any) -> None:
        """After a step has written to a tensor: others that show the same memory are not what they were."""
        if id(tensor) in self.known and self.known[id(tensor)][1] is symbol:
            return
        self.written.append(tensor)
        for key, (other, _) in self.known.items():
            if other is not tensor and shares_memory(tensor, other):
                self.known[key] = other, self.refusal(*_THROUGH_A_VIEW)

    def utility(self, handler: Any, original: Any, args: Any, kwargs: Any) -> Any:
        """A call of one of PyG's utilities, as one step."""
        symbolic = self.symbols_of(tuple(args)), self.symbols_of(kwargs)
        self.depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            self.depth -= 1
        if self.depth == 0 and is_followed(symbolic):
            self.raise_refusals(symbolic)
            given = inspect.signature(original).bind(*symbolic[0], **symbolic[1]).arguments
            self.learn(result, self.symbol(lambda: handler(self, result, given),
                                           original.__name__))  # fmt: skip
        return result

    def compared(self, frame: FrameType) -> None:
        """A number of vertices or edges meets a constant there. Raises: ModelUnsupported for the user's own code."""
        if not is_librarys(frame):
            raise refuse(self.where, f"{line_at(frame, frame.f_lineno)}{DECIDES}", DECIDES_ADVICE)

    def raise_refusals(self, value: Any) -> None:
        """Raises the first refusal that a step would read."""
        if isinstance(value, Refusal):
            raise value.error
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            self.raise_refusals(each)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outermost = self.depth == 0
        symbolic: Any = (self.symbols_of(tuple(args)), self.symbols_of(kwargs)) if outermost else ((), {})
        if outermost and _name(func) in SUMMED_INTO:
            with torch._C.DisableTorchFunction():
                self.from_zeros = not bool(args[0].any())
        if symbolic[0] and _name(func) == "setitem" and isinstance(symbolic[0][0], torch.Tensor):
            with torch._C.DisableTorchFunction():  # a constant as it is before it is written to
                symbolic = (args[0].clone(), *symbolic[0][1:]), symbolic[1]
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
        if not outermost:
            return result
        name = _name(func)
        if not is_followed(symbolic):
            computed = isinstance(result, torch.Tensor) and result.is_floating_point() and name not in _MADE
            self.record.rounded |= computed  # a constant computed in the module's own float32
            return result
        if name in _ABOUT:
            whole = self.symbols_of(args[0]) if args else None
            axis = whole.rows.axis if isinstance(whole, Laid) else int(isinstance(whole, EndIds) and whole.end is None)
            return with_counts(name, result, args, axis, self.compared) if is_followed(whole) else result
        self.raise_refusals(symbolic)
        symbol = self.symbol(lambda: self.step(name, result, *symbolic), name)
        changed = args[0] if name in ("setitem",) else result
        if isinstance(symbol, Refusal) and not isinstance(changed, (torch.Tensor, list, tuple)):
            raise symbol.error
        if isinstance(changed, torch.Tensor) and any(changed is each for each in (*args, *kwargs.values())):
            self.note_written(changed, symbol)
        self.learn(changed, symbol)
        return result

    def step(self, name: str, result: Any, args: Any, kwargs: Any) -> Any:
        """What a function of torch makes. Raises: Unfit."""
        if name == "sparse_coo_tensor":
            return made(self, result, *args, **kwargs)
        if any(isinstance(each, Matrix) for each in args):
            return of_matrix(self, name, result, args, kwargs)
        first: Any = args[0] if args else None
        if isinstance(first, (EndIds, EdgeTypes, Places)):
            if name in _OF_IDS and not isinstance(first, Places):
                return None
            if name in _SAME_IDS or (name in _AS_VECTOR and getattr(first, "end", 0) is not None):
                return first
        if isinstance(first, EndIds) and first.end is None and name in ("flip", "flipud", "index_select"):
            return turned_ends(first, name, args[1:], kwargs)
        if name == "vstack" and any(isinstance(each, EndIds) for each in first or ()):
            return both_ends(first, 0)
        if isinstance(first, InfiniteEntries) and name not in ("where",):
            raise Unfit("it reads which entries are infinite", "write 0 to them by masked_fill")
        if "out" in kwargs or "inplace" in kwargs:
            kwargs = {key: each for key, each in kwargs.items() if key not in ("out", "inplace")}
        if has_laid((args, kwargs)):
            return by_functions(self, name, result, args, kwargs)
        try:
            if name not in _FUNCTIONS:
                raise Unfit("this operation is not supported")
            return _FUNCTIONS[name](self, result, *args, **kwargs)
        except (Unfit, TypeError) as error:
            try:
                return self.by_values(name, result, as_values(self, args), as_values(self, kwargs))
            except (Unfit, TypeError):
                raise error from None

    def by_values(self, name: str, result: Any, args: Any, kwargs: Any) -> Any:
        """What a function makes of types of edges as numbers, or of rows of any shape. Raises: Unfit."""
        try:
            if name not in _FUNCTIONS:
                raise Unfit("this operation is not supported")
            return _FUNCTIONS[name](self, result, *args, **kwargs)
        except (Unfit, TypeError):
            return by_functions(self, name, result, args, kwargs)


def _has_changed_edges(value: Any) -> bool:
    """Whether edges, or rows of edges, are others than the graph's own."""
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_changed_edges, value.values() if isinstance(value, dict) else value))
    if isinstance(value, Traced):
        own = value.edges == EdgeChoice() and isinstance(value.value, EdgeWeight | EdgeAttribute)
        return value.edges is not None and not own
    if isinstance(value, Laid):
        return value.edges is not None
    if isinstance(value, EndIds):
        return value.edges != EdgeChoice() or value.end is not None
    return is_followed(value) and not isinstance(value, Refusal)


def _name(func: Any) -> str:
    """torch's name of a function, without underscores of operators and in-place forms."""
    raw = getattr(func, "__name__", repr(func))
    if raw == "__get__":
        raw = getattr(func.__self__, "__name__", raw)
    name = str(raw).strip("_")
    return name[1:] if name in ("iadd", "isub", "imul", "itruediv", "idiv", "ipow") else name


def users_line() -> str:
    """Where the user's code stands: method, line and text; "" if none of it runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_librarys(frame):
            return line_at(frame, frame.f_lineno)
        if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") == __name__:
            break
        frame = frame.f_back
    return ""


def _line_of(error: BaseException) -> str:
    """The user's line that an error went through last; "" if none."""
    found, at = "", error.__traceback__
    while at is not None:
        if not is_librarys(at.tb_frame):
            found = line_at(at.tb_frame, at.tb_lineno)
        at = at.tb_next
    return found


def is_librarys(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return (
        name.split(".")[0] in _LIBRARIES
        or name.endswith(("_propagate", "_edge_updater"))
        or frame.f_code.co_filename.startswith("<frozen")
    )


def line_at(frame: FrameType, number: int) -> str:
    text = linecache.getline(frame.f_code.co_filename, number).strip()
    name = frame.f_code.co_qualname.rsplit("<locals>.", 1)[-1]
    return f"{name}, line {number}{f' ({text})' if text else ''}: "


EDGES_OF_GRAPH = EndIds(EdgeChoice())
_INLINE = object()
