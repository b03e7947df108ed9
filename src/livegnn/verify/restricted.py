"""Functions from untrusted text: a small part of Python, interpreted and never executed.

A text is a list of definitions: `def name(parameters): ...` with assignments and one return, `name = lambda ...`, or
`name = "sum"` for a named reduction. Expressions are arithmetic, comparisons, `@`, column slices, and calls of the
functions in FUNCTIONS (with or without `np.`) or of the methods in METHODS. Everything else is refused by name:
imports, attributes, loops, strings, calls of anything that is not listed. Numbers are floats, so that no text can build
large integers; length, depth and widths are bounded.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from livegnn.errors import ModelError, ModelUnsupported
from livegnn.verify.operator import Operator
from livegnn.verify.tracer import Tracer, combine, elu, join, leaky_relu, relu

Names = Mapping[str, Any]
_LENGTH_MAX = 20_000
_DEPTH_MAX = 60
_REPEAT_MAX = 64
_WIDTH_MAX = 65_536


def _sigmoid(x: Any) -> Any:
    return combine("sigmoid", x) if isinstance(x, Tracer) else 1.0 / (1.0 + np.exp(-x))


def _norm(x: Any) -> Any:
    return np.sqrt((x * x).sum(axis=1, keepdims=True))


def _concat(*parts: Any) -> Any:
    if len(parts) == 1 and isinstance(parts[0], list):
        parts = tuple(parts[0])
    width = sum(part.expr.width if isinstance(part, Tracer) else part.shape[-1] for part in parts)
    if width > _WIDTH_MAX:
        raise ModelError(f"[verify] expected at most {_WIDTH_MAX} columns, got {width}; join fewer")
    if any(isinstance(part, Tracer) for part in parts):
        return join(parts, 1)
    rows = max(len(part) for part in parts)
    return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)


def _repeat(x: Any, times: float) -> Any:
    if not 1 <= times <= _REPEAT_MAX:
        raise ModelError(f"[verify] expected columns repeated 1 to {_REPEAT_MAX} times, got {times}; repeat fewer")
    return np.repeat(x, int(times), axis=1)


#: Methods of arrays that a text may call.
METHODS = ("sum", "mean", "max", "min", "prod")
#: Functions that a text may call.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "log", "sqrt", "tanh", "abs", "square", "maximum", "minimum")},
    **{name: getattr(np, name) for name in ("where", "clip", *METHODS, "ones_like", "zeros_like")},
    "sigmoid": _sigmoid,
    "relu": lambda x: relu(x),
    "leaky_relu": lambda x, slope=0.2: leaky_relu(x, slope),
    "elu": lambda x: elu(x),
    "norm": _norm,
    "concat": _concat,
    "concatenate": lambda parts, axis=1: _concat(*parts),
    "repeat": _repeat,
    "len": lambda rows: rows.shape[0],
}
_KEYWORDS = ("axis", "keepdims")
_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _refuse(part: ast.AST, why: str) -> NoReturn:
    text = ast.unparse(part) if isinstance(part, ast.expr | ast.stmt) else type(part).__name__
    raise ModelUnsupported(
        f"[verify] expected arithmetic and calls of known functions, got {text[:80]!r} ({why}); see docs/verify.md"
    )


def _parse(text: str) -> ast.Module:
    if len(text) > _LENGTH_MAX:
        raise ModelUnsupported(f"[verify] expected at most {_LENGTH_MAX} characters, got {len(text)}; shorten the text")
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelUnsupported(f"[verify] expected Python, got {error}; fix the text") from error
    _check_depth(module)
    return module


def _check_depth(tree: ast.AST) -> None:
    pending: list[tuple[ast.AST, int]] = [(tree, 0)]
    while pending:
        part, depth = pending.pop()
        if depth > _DEPTH_MAX:
            raise ModelUnsupported(f"[verify] expected at most {_DEPTH_MAX} nested parts, got more; simplify the text")
        pending += [(child, depth + 1) for child in ast.iter_child_nodes(part)]


def evaluate(part: ast.expr, names: Names, functions: Mapping[str, Callable[..., Any]] = FUNCTIONS) -> Any:
    """The value of an expression, on arrays or stand-ins.

    Raises: ModelUnsupported for what the language does not have or a name that is not known; whatever the arithmetic
    raises.
    """

    def value(inner: ast.expr) -> Any:
        return evaluate(inner, names, functions)

    if isinstance(part, ast.Constant) and isinstance(part.value, int | float):
        return float(part.value)
    if isinstance(part, ast.Name):
        if part.id not in names:
            _refuse(part, f"it is not defined; known are {', '.join(sorted(names))}")
        return names[part.id]
    if isinstance(part, ast.BinOp) and type(part.op) in _OPERATIONS:
        return _OPERATIONS[type(part.op)](value(part.left), value(part.right))
    if isinstance(part, ast.UnaryOp) and type(part.op) in _OPERATIONS:
        return _OPERATIONS[type(part.op)](value(part.operand))
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and type(part.ops[0]) in _OPERATIONS:
        return _OPERATIONS[type(part.ops[0])](value(part.left), value(part.comparators[0]))
    if isinstance(part, ast.Call):
        return _call(part, value, functions)
    if isinstance(part, ast.Subscript):
        return _subscript(part, value)
    if isinstance(part, ast.List | ast.Tuple):
        return [value(each) for each in part.elts]
    return _refuse(part, f"{type(part).__name__} is not in the language")


def _call(part: ast.Call, value: Callable[[ast.expr], Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    options = {}
    for keyword in part.keywords:
        if keyword.arg not in _KEYWORDS or not isinstance(keyword.value, ast.Constant | ast.UnaryOp):
            _refuse(part, f"keywords are {' and '.join(_KEYWORDS)}, with a constant")
        options[keyword.arg] = _whole(keyword.value)
    function = part.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "np":
        name = function.attr
    elif isinstance(function, ast.Name):
        name = function.id
    elif isinstance(function, ast.Attribute) and function.attr in METHODS and not part.args:
        return FUNCTIONS[function.attr](value(function.value), **options)
    else:
        return _refuse(part, "it calls something that is not a known function")
    if name not in functions:
        _refuse(part, f"known functions are {', '.join(sorted(functions))}")
    return functions[name](*[value(each) for each in part.args], **options)


def _whole(part: ast.expr | None) -> Any:
    try:
        value = None if part is None else ast.literal_eval(part)
    except ValueError:
        value = ""
    if part is not None and value is not None and not isinstance(value, int):
        _refuse(part, "a whole number is wanted")
    return value


def _subscript(part: ast.Subscript, value: Callable[[ast.expr], Any]) -> Any:
    if isinstance(part.value, ast.Attribute) and part.value.attr == "shape" and _whole(part.slice) == 0:
        return value(part.value.value).shape[0]
    keys = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
    chosen = [
        slice(_whole(key.lower), _whole(key.upper), _whole(key.step)) if isinstance(key, ast.Slice) else _whole(key)
        for key in keys
    ]
    return value(part.value)[tuple(chosen)]


def _function(arguments: ast.arguments, body: list[ast.stmt], constants: Names, name: str) -> Callable[..., Any]:
    """A callable with the parameters of the text, which interprets its body."""
    plain = not (arguments.vararg or arguments.kwarg or arguments.defaults or arguments.kw_defaults)
    if not plain or arguments.posonlyargs or arguments.kwonlyargs:
        raise ModelUnsupported(f"[verify] expected plain parameters of {name}, got others; take defaults and stars out")
    parameters = [each.arg for each in arguments.args]

    def interpreted(**given: Any) -> Any:
        names: dict[str, Any] = {**constants, **given}
        for statement in body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return evaluate(statement.value, names)
            if _is_docstring(statement):
                continue
            target, assigned = _assignment(statement)
            names[target] = evaluate(assigned, names)
        raise ModelUnsupported(f"[verify] expected {name} to return a value, got none; add a return")

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(each, kind) for each in parameters])
    interpreted.__signature__ = signature  # type: ignore[attr-defined]
    interpreted.__name__ = name
    return interpreted


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _assignment(statement: ast.stmt) -> tuple[str, ast.expr]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    return _refuse(statement, "only assignments to one name and a return are in the language")


_FIELDS = ("msg_local", "nbr_ctx", "msg_cbn", "msg_cbn_inverse", "aggregate", "source_nn", "transform")


def operator_from_source(
    text: str,
    constants: Mapping[str, Any],
    *,
    width: int,
    edge_attr_width: int = 0,
    edge_type_count: int = 0,
    name: str = "operator",
) -> Operator:
    """The operator that a text defines, without executing it.

    Args:     text: definitions of some of Operator's functions.   constants: weights by the names that it uses.
    Raises:   ModelUnsupported for anything outside of the language; ModelError for an operator that is not well formed.
    """
    known = {each: np.asarray(array, np.float64) for each, array in constants.items()}
    found: dict[str, Any] = {}
    for statement in _parse(text).body:
        if _is_docstring(statement):
            continue
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            target: str = statement.name
            made: Any = _function(statement.args, statement.body, known, target)
        else:
            target, assigned = _assignment(statement)
            if isinstance(assigned, ast.Lambda):
                made = _function(assigned.args, [ast.Return(assigned.body)], known, target)
            elif isinstance(assigned, ast.Constant) and (assigned.value is None or isinstance(assigned.value, str)):
                made = assigned.value
            else:
                _refuse(statement, "a function, or the name of a reduction, is wanted")
        if target not in _FIELDS:
            _refuse(statement, f"definitions are {', '.join(_FIELDS)}")
        found[target] = made
    if found.get("aggregate", "") is None:
        del found["aggregate"]
    return Operator(width, **found, edge_attr_width=edge_attr_width, edge_type_count=edge_type_count, name=name)


def parse_expression(text: str) -> ast.expr:
    """One expression; of a `def`, its return with the assignments before it put in.

    Raises: ModelUnsupported for anything else.
    """
    body = [each for each in _parse(text.strip()).body if not _is_docstring(each)]
    if len(body) == 1 and isinstance(body[0], ast.FunctionDef):
        body = [each for each in body[0].body if not _is_docstring(each)]
    assigned: dict[str, ast.expr] = {}
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            return _inlined(statement.value, assigned)
        if isinstance(statement, ast.Expr) and len(body) == 1:
            return statement.value
        target, value = _assignment(statement)
        assigned[target] = _inlined(value, assigned)
    if len(body) == 1 and len(assigned) == 1:  # h_v = formula
        return next(iter(assigned.values()))
    raise ModelUnsupported("[verify] expected one expression or a def with a return, got neither; write one formula")


def _inlined(part: ast.expr, assigned: Mapping[str, ast.expr]) -> ast.expr:
    result = replaced(part, lambda each: assigned.get(each.id) if isinstance(each, ast.Name) else None)
    if sum(1 for _ in ast.walk(result)) > _LENGTH_MAX:
        raise ModelUnsupported("[verify] expected a formula of moderate size, got one that grows; simplify it")
    _check_depth(result)
    return result


def replaced(part: ast.expr, new: Callable[[ast.AST], ast.expr | None]) -> ast.expr:
    """The expression with the parts replaced for which `new` gives another."""

    class Replace(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> Any:
            return new(each) or self.generic_visit(each)

    result: ast.expr = Replace().visit(part)
    return result
