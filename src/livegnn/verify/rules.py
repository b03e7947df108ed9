"""Decomposes a formula without a model: rules that cover every row of Table II.

A formula is taken apart as  transform(h_v, R(factor * factor / factor ...))  with one reduction R. Each factor goes
where its names allow: what knows only the source, to source_nn or msg_local; softmax_u and share_u, to msg_local with
their sum as the context; degrees of the destination, to msg_cbn with a count as the context (mean_u brings one such);
what knows no edge leaves the sum, to transform; the rest, to msg_local. What does not fit is refused.

The result is text in the language of `restricted`; it is judged like any other proposal.

Source: NeutronRT, section IV.D (how mean, degrees and softmax come apart).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from livegnn.errors import ModelUnsupported
from livegnn.verify.formula import EDGE_NAMES, REDUCTIONS, SHARES, called, names_in
from livegnn.verify.restricted import replaced

_SEPARATE = {"sqrt"}  # f(x * y) = f(x) * f(y) where both sides exist


@dataclass
class _FormulaParts:
    message: list[str] = field(default_factory=list)
    context: list[str] = field(default_factory=list)  # factors in degree_v
    outside: list[str] = field(default_factory=list)  # factors of the destination alone
    source: str = ""
    share: str = ""  # "softmax_u" or "share_u"


def _refused(why: str) -> ModelUnsupported:
    return ModelUnsupported(
        f"[propose] expected a formula like those of NeutronRT's Table II, got one that {why}; "
        "pass llm=, or write the Operator by hand"
    )


def _factors(part: ast.expr, inverse: bool = False) -> Iterator[tuple[ast.expr, bool]]:
    """Factors of a product, each with whether it divides."""
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.Div):
        yield from _factors(part.left, inverse)
        yield from _factors(part.right, inverse != isinstance(part.op, ast.Div))
    elif called(part) in _SEPARATE and isinstance(part, ast.Call) and len(part.args) == 1:
        for inner, divides in _factors(part.args[0], inverse):
            yield ast.Call(part.func, [inner], []), divides
    else:
        yield part, inverse


def _product(factors: list[str]) -> str:
    return " * ".join(factors) if factors else "1"


def _find(tree: ast.expr) -> ast.Call:
    """The one reduction of the formula."""
    outer = [each for each in ast.walk(tree) if called(each) in REDUCTIONS]
    inner = [each for one in outer for each in ast.walk(one) if each is not one and called(each) in REDUCTIONS]
    outer = [each for each in outer if not any(each is one for one in inner)]
    if len(outer) != 1 or inner:
        raise _refused(f"has {len(outer) + len(inner)} reductions over the edges")
    found = outer[0]
    assert isinstance(found, ast.Call)
    if len(found.args) != 1 or found.keywords:
        raise _refused(f"calls {called(found)} with other than one argument")
    return found


def _text(part: ast.expr, divides: bool) -> str:
    text = ast.unparse(ast.fix_missing_locations(part))
    return f"(1 / ({text}))" if divides else f"({text})"


def _sorted_factors(reduction: ast.Call) -> _FormulaParts:
    parts = _FormulaParts()
    wide: list[str] = []
    linear = called(reduction) in ("sum_u", "mean_u")
    for factor, divides in _factors(reduction.args[0]):
        names = names_in(factor)
        edge = names & set(EDGE_NAMES)
        if called(factor) in SHARES and isinstance(factor, ast.Call) and not divides:
            if parts.share:
                raise _refused("has two normalisations")
            parts.share = called(factor)
            inner = _text(factor.args[0], False)
            parts.message.insert(0, f"exp{inner}" if parts.share == "softmax_u" else inner)
        elif any(called(each) in SHARES for each in ast.walk(factor)):
            raise _refused("has a normalisation inside another function")
        elif "degree_v" in names:
            if edge or "h_v" in names:
                raise _refused("joins degree_v with rows in one factor")
            parts.context.append(_text(factor, divides))
        elif edge == {"h_u"} and "h_v" not in names and not divides:
            wide.append(_text(factor, divides))
        elif not edge and linear:
            parts.outside.append(_text(factor, divides))
        else:
            parts.message.append(_text(factor, divides))
    if parts.share and wide:
        parts.source = _product(wide)
    elif wide:
        parts.source = wide.pop()  # the last one, as the table has it; any would do
        parts.message += wide
    return parts


def _define(name: str, parameters: tuple[str, ...], body: str) -> str:
    used = names_in(ast.parse(body, mode="eval"))
    asked = ", ".join(each for each in parameters if each in used)
    return f"def {name}({asked}): return {body}"


def _with_context(parts: _FormulaParts, mean: bool) -> list[str]:
    """nbr_ctx, msg_cbn and its inverse."""
    guard = "where(nct == 0, 1, nct)"
    if parts.share and (parts.context or mean):
        raise _refused("normalises by a sum and by a degree at once")
    if parts.share == "softmax_u":
        scale, undo, context = "mlc / nct", "msg * nct", "sum"
    elif parts.share == "share_u":
        scale, undo, context = f"where(nct == 0, 0, mlc / {guard})", "where(nct == 0, 0, msg * nct)", "sum"
    elif parts.context or mean:
        factors = parts.context + (["(1 / degree_v)"] if mean else [])
        by = re.sub(r"\b(count_u\(\)|degree_v\b)", "nct", _product(factors))
        scale, undo, context = f"mlc * ({by})", f"msg / ({by})", "count"
    else:
        return []
    return [
        f'nbr_ctx = "{context}"',
        f"def msg_cbn(nct, mlc): return {scale}",
        f"def msg_cbn_inverse(nct, msg): return {undo}",
    ]


def decompose(tree: ast.expr) -> str:
    """The functions of an Operator that compute the formula, as text.

    Raises: ModelUnsupported for a formula that no rule takes apart.
    """
    reduction = _find(tree)
    parts = _sorted_factors(reduction)
    if parts.share and len(parts.message) > 1:
        raise _refused("weights a normalised message by more than rows of the source")  # the context would count it
    pooled: ast.expr = ast.parse(_product([*parts.outside, "a"]), mode="eval").body
    after = ast.unparse(ast.fix_missing_locations(replaced(tree, lambda part: pooled if part is reduction else None)))
    left = names_in(ast.parse(after, mode="eval")) & {*EDGE_NAMES, "degree_v"}
    if left:
        raise _refused(f"uses {', '.join(sorted(left))} outside of the reduction")
    lines = []
    if parts.message:
        names = ("h_u", "h_v", *EDGE_NAMES[1:])
        lines.append(_define("msg_local", names, _product(parts.message)))
    lines += _with_context(parts, called(reduction) == "mean_u")
    if called(reduction) in ("max_u", "min_u"):
        lines.append(f'aggregate = "{called(reduction)[:-2]}"')
    if parts.source:
        lines.append(_define("source_nn", ("h_u",), parts.source))
    if after != "a":
        lines.append(_define("transform", ("h_v", "a"), after))
    return "\n".join(lines) + "\n"
