"""Runs a user's function on stand-ins for arrays (tracer.py), with the functions of NumPy and PyTorch on them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from livegnn.errors import LiveGnnError
from livegnn.verify import numpy_ops
from livegnn.verify.expr import Expr
from livegnn.verify.tracer import SymbolicRun, TraceError, Tracer, lift

__all__ = ["trace"]


def trace(
    function: Callable[..., Any], arguments: Mapping[str, Expr], *, edges: Expr | None = None
) -> tuple[Expr, SymbolicRun]:
    """The expression that `function(**arguments)` computes, and what the run met.

    Args:     arguments: one expression for each parameter.   edges: the one that has a row per edge, for functions of a
                  whole neighbourhood.
    Raises:   TraceError with the reason, where the function cannot be written down.
    """
    run = SymbolicRun(edges, numpy_ops, lambda: importlib.import_module("livegnn.verify.torch_ops"))
    try:
        result = function(**{name: Tracer(run, each, "rows") for name, each in arguments.items()})
        made = lift(run, result)
    except TraceError:
        raise
    except LiveGnnError as error:
        raise TraceError(str(error)) from error
    except Exception as error:  # the user's code, given something that is not quite an array
        raise TraceError(f"{type(error).__name__}: {error}") from error
    if made.layout == "flat":
        raise TraceError("it returns shape (N,); keep the column: keepdims=True or x[:, None]")
    if edges is not None and made.expr.per_edge:
        raise TraceError("it returns a row per edge; reduce over axis 0")
    return made.expr, run
