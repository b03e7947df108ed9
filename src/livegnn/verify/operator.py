"""A message-passing layer as the user's own functions, after NeutronRT's decomposition.

For every vertex v with at least one in-edge, over its in-edges (u, v):

    mlc_uv = msg_local(h_u, ...)             one row per edge
    nct_v  = nbr_ctx({mlc_uv})               one row per vertex
    msg_uv = msg_cbn(nct_v, mlc_uv)
    a_v    = aggregate({msg_uv * source_nn(h_u)})
    h_v    = transform(h_v, a_v)

and a_v = 0 where v has no in-edge: no function but `transform` is called there. An engine that works in place keeps
nct_v and a_v, takes the context out of a_v by `msg_cbn_inverse`, merges changed messages in, and puts the new context
back (Algorithm 1). `prove` says whether that gives the same a_v.

Source: NeutronRT, section IV.A (Equations 5 to 9) and Algorithm 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.errors import ModelError
from livegnn.verify.expr import Float64

RowFunction: TypeAlias = Callable[..., Any]
Reduction: TypeAlias = Literal["sum", "count", "mean", "max", "min"]

#: What `msg_local` may ask for, by the name of its parameter.
EDGE_INPUTS: dict[str, str] = {
    "h_u": "(N, width) rows of the sources",
    "h_v": "(N, width) rows of the destinations",
    "weight": "(N, 1) weights of the edges",
    "edge_attr": "(N, edge_attr_width) attributes of the edges",
    "edge_type": "(N, edge_type_count) one-hot types of the edges",
    "degree_u": "(N, 1) numbers of in-edges of the sources, at least 0",
}
_ALLOWED: dict[str, tuple[str, ...]] = {
    "msg_local": tuple(EDGE_INPUTS),
    "nbr_ctx": ("mlc",),
    "msg_cbn": ("nct", "mlc"),
    "msg_cbn_inverse": ("nct", "msg"),
    "aggregate": ("msg",),
    "source_nn": ("h_u",),
    "transform": ("h_v", "a"),
}
_NAMED: dict[str, RowFunction] = {
    "sum": lambda rows: rows.sum(axis=0),
    "count": lambda rows: np.ones_like(rows[:, :1]).sum(axis=0),
    "mean": lambda rows: rows.mean(axis=0),
    "max": lambda rows: rows.max(axis=0),
    "min": lambda rows: rows.min(axis=0),
}


def _parameters(function: RowFunction, where: str) -> tuple[str, ...]:
    try:
        signature = inspect.signature(getattr(function, "forward", function))  # a torch module's __call__ has no names
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"[Operator] expected {where} to be a function with named parameters, got {function!r}; wrap it in a lambda"
        ) from error
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    allowed = _ALLOWED[where]
    wrong = [
        name
        for name, each in signature.parameters.items()
        if each.kind not in named or (name not in allowed and each.default is inspect.Parameter.empty)
    ]
    if wrong:
        raise ModelError(
            f"[Operator] expected {where} to take parameters named among {', '.join(allowed)}, got {', '.join(wrong)}; "
            "rename them"
        )
    taken = tuple(name for name in signature.parameters if name in allowed)
    if where in ("nbr_ctx", "aggregate") and not taken:
        raise ModelError(f"[Operator] expected {where} to take {allowed[0]}, got none of it; add the parameter")
    return taken


@dataclass(frozen=True, eq=False)
class Operator:
    """A layer's functions. All but `width` are optional.

    Every function is vectorised, pure, and takes its arguments by the names below, in any order, as many of them as it
    needs. Arrays have two dimensions (a column is (N, 1)). Except in `nbr_ctx` and `aggregate`, row i of the result
    depends on row i of the arguments alone. All arrays are NumPy's, or all are PyTorch's, as the functions call for.

    Args:     width: columns of h_u and h_v.
              msg_local: parameters among EDGE_INPUTS; (N, m). None: 1, of width 1. One that takes h_v is destination-
                  dependent: only `constrained` runs keep it exact.
              nbr_ctx: parameter mlc, (k, m), the messages of one vertex's k >= 1 in-edges; (c,). Or "sum", "count",
                  "max", "min". None: no context; nct is 1.
              msg_cbn: parameters nct (N, c) or (1, c), and mlc (N, m); (N, m). It is also called with rows of the
                  aggregate's width in place of mlc. None: mlc itself.
              msg_cbn_inverse: parameters nct and msg: gives back mlc. Required with msg_cbn.
              aggregate: parameter msg, (k, d), in any order of rows; (d',). Or "sum", "max", "min", "mean".
              source_nn: parameter h_u; (N, d), or (N, m) or (N, 1), multiplied with the message. None: 1. The paper's
                  f_nn.
              transform: parameters among h_v (N, width) and a (N, d'); (N, out). None: a itself. The paper's update.
              edge_attr_width, edge_type_count: columns of edge_attr and edge_type, where msg_local asks for them.
    Raises:   ModelError for parameters of other names, an unknown reduction, or a msg_cbn without its inverse.
    Source:   NeutronRT, section IV.A, Table II.
    """

    width: int
    msg_local: RowFunction | None = None
    nbr_ctx: RowFunction | Reduction | None = None
    msg_cbn: RowFunction | None = None
    msg_cbn_inverse: RowFunction | None = None
    aggregate: RowFunction | Reduction = "sum"
    source_nn: RowFunction | None = None
    transform: RowFunction | None = None
    edge_attr_width: int = 0
    edge_type_count: int = 0
    name: str = "operator"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ModelError(f"[Operator] expected a width of at least 1, got {self.width}; pass the columns of h_u")
        for where in ("nbr_ctx", "aggregate"):
            given = getattr(self, where)
            known = [name for name in _NAMED if (where, name) not in {("nbr_ctx", "mean"), ("aggregate", "count")}]
            if isinstance(given, str) and given not in known:
                raise ModelError(
                    f"[Operator] expected {where} to be a function or one of {', '.join(known)}, got {given!r}; "
                    "choose one"
                )
        if (self.msg_cbn is None) != (self.msg_cbn_inverse is None):
            raise ModelError("[Operator] expected msg_cbn and msg_cbn_inverse together, got one of them; add the other")
        asked = self.parameters("msg_local")
        for name, columns in (("edge_attr", self.edge_attr_width), ("edge_type", self.edge_type_count)):
            if name in asked and columns < 1:
                field = "edge_attr_width" if name == "edge_attr" else "edge_type_count"
                raise ModelError(f"[Operator] expected {field} of at least 1, got {columns}; msg_local asks for {name}")

    def function(self, where: str) -> RowFunction | None:
        """The function called `where`; a named reduction as a function; None where none was given."""
        given: RowFunction | str | None = getattr(self, where)
        if not isinstance(given, str):
            return given
        reduced = _NAMED[given]
        if where == "nbr_ctx":
            return lambda mlc: reduced(mlc)
        return lambda msg: reduced(msg)

    def parameters(self, where: str) -> tuple[str, ...]:
        """Names of the arguments that the function called `where` asks for."""
        return self._taken[where]

    @cached_property
    def _taken(self) -> dict[str, tuple[str, ...]]:
        given = {where: getattr(self, where) for where in _ALLOWED}
        named = {where: _ALLOWED[where] for where, one in given.items() if isinstance(one, str)}
        asked = {where: _parameters(one, where) for where, one in given.items() if callable(one)}
        return {**dict.fromkeys(_ALLOWED, ()), **named, **asked}

    def input_width(self, name: str) -> int:
        """Columns of the input called `name` of msg_local."""
        widths = {"h_u": self.width, "h_v": self.width, "weight": 1, "degree_u": 1}
        return {**widths, "edge_attr": self.edge_attr_width, "edge_type": self.edge_type_count}[name]

    def call(self, where: str, arguments: Mapping[str, Any], library: str = "numpy", dtype: str = "float64") -> Float64:
        """One function on NumPy rows, with conversion to PyTorch and back where `library` is "torch".

        Args:     where: the function's name; it must be given.   arguments: name -> array.
        Returns:  float64, at least two-dimensional: a result (c,) becomes (1, c).
        Raises:   ModelError, chained to what the function raised.
        """
        function = self.function(where)
        assert function is not None
        taken = {name: np.asarray(arguments[name], dtype) for name in self.parameters(where)}
        try:
            with np.errstate(all="ignore"):
                result = _call_torch(function, taken) if library == "torch" else function(**taken)
            array = np.asarray(result, np.float64)
        except Exception as error:  # the user's code
            shapes = ", ".join(f"{name} {array.shape}" for name, array in taken.items())
            raise ModelError(
                f"[Operator] expected {where} to work on arrays ({shapes}), got {type(error).__name__}: {error}; fix it"
            ) from error
        return np.atleast_2d(array)


def _call_torch(function: RowFunction, arguments: Mapping[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        result = function(**{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arguments.items()})
    return result.detach().cpu().numpy() if isinstance(result, torch.Tensor) else result
