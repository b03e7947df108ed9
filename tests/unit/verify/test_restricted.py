"""Text is interpreted, and only what is listed."""

import numpy as np
import pytest

from livegnn.errors import ModelError, ModelUnsupported
from livegnn.verify.restricted import operator_from_source, parse_expression

W = np.arange(6.0).reshape(3, 2)


def build(text, **constants):
    return operator_from_source(text, {"W": W, **constants}, width=3)


def test_a_text_defines_an_operator():
    operator = build(
        '''
"""A docstring is passed over."""
def msg_local(h_u, weight):
    """So is this one."""
    score = np.exp(-(h_u @ W)[:, :1])
    return weight * score ** 2
nbr_ctx = "sum"
msg_cbn = lambda nct, mlc: mlc / nct
msg_cbn_inverse = lambda nct, msg: msg * nct
aggregate = lambda msg: msg.max(axis=0)
transform = lambda h_v, a: where(a >= 0, a, 0.2 * a) + h_v.sum(axis=1, keepdims=True)
'''
    )
    rng = np.random.default_rng(0)
    h_u, weight = rng.normal(size=(4, 3)), rng.normal(size=(4, 1))
    expected = weight * np.exp(-(h_u @ W)[:, :1]) ** 2
    np.testing.assert_allclose(operator.msg_local(h_u=h_u, weight=weight), expected)
    assert operator.parameters("msg_local") == ("h_u", "weight")
    assert operator.nbr_ctx == "sum"
    np.testing.assert_array_equal(operator.aggregate(msg=h_u), h_u.max(axis=0))


REFUSED = [
    "import os",
    "from os import system",
    "def msg_local(h_u): import os",
    "def msg_local(h_u): return __import__('os').system('true')",
    "def msg_local(h_u): return h_u.__class__",
    "def msg_local(h_u): return (lambda: h_u)()",
    "def msg_local(h_u): return np.load('x')",
    "def msg_local(h_u): return np.sort(h_u)",
    "def msg_local(h_u): return sort(h_u)",
    "def msg_local(h_u): return np.fromfile('x')",
    "def msg_local(h_u): return h_u.tofile('x')",
    "def msg_local(h_u): return open('x')",
    "def msg_local(h_u): return eval('1')",
    "def msg_local(h_u): return [x for x in h_u]",
    "def msg_local(h_u): return f'{h_u}'",
    "def msg_local(h_u): return 'text'",
    "def msg_local(h_u): return W.__array_interface__",
    "def msg_local(h_u): return missing + 1",
    "def msg_local(h_u): return h_u if 1 else h_u",
    "def msg_local(h_u): return np.sum(h_u, out=h_u)",
    "def msg_local(h_u): return sum(h_u, axis=1, keepdims=open)",
    "def msg_local(h_u): return 0 < h_u < 1",
    "def msg_local(h_u): return h_u[h_u]",
    "def msg_local(h_u):\n  while 1: pass",
    "def msg_local(h_u):\n  W[0] = 1\n  return h_u",
    "def msg_local(h_u): h_u + 1",
    "@np.vectorize\ndef msg_local(h_u): return h_u",
    "def msg_local(h_u=W): return h_u",
    "def msg_local(*h_u): return h_u",
    "class msg_local: pass",
    "print = 'sum'",
    "def helper(x): return x",
    "msg_local = W",
    "nbr_ctx = 'median'",
    "def msg_local(h_u) return h_u",
    "x" * 30_000,
    "def msg_local(h_u): return " + "-" * 100 + "h_u",
    "def msg_local(h_u): return repeat(h_u, 999999999)",
    "def msg_local(h_u):\n" + "  h_u = concat(h_u, h_u)\n" * 40 + "  return h_u",
    "def msg_local(h_u): return h_u * 9 ** 9 ** 9 ** 9",
]


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_by_name(text):
    def use():  # some are refused only when they are called
        build(text).call("msg_local", {"h_u": np.ones((2, 3))})

    with pytest.raises(ModelError, match="expected"):
        use()


def test_nothing_that_is_refused_has_run(tmp_path):
    target = tmp_path / "made"
    text = f"def msg_local(h_u): return open({str(target)!r}, 'w')"
    operator = build(text)
    with pytest.raises(ModelError):
        operator.call("msg_local", {"h_u": np.ones((2, 3))})
    assert not target.exists()


def test_a_definition_is_put_into_one_expression():
    tree = parse_expression("def layer(h_u, h_v):\n  z = h_u @ W\n  z = z * z\n  return sum_u(z) + h_v")
    assert tree.left.args[0].left.left.id == "h_u"
    with pytest.raises(ModelUnsupported, match="one expression"):
        parse_expression("a = 1\nb = 2")
    with pytest.raises(ModelUnsupported, match="nested parts"):
        parse_expression("def layer(x):\n" + "  x = x + 1\n" * 500 + "  return x")
    with pytest.raises(ModelUnsupported, match="moderate size"):
        parse_expression("def layer(x):\n" + "  x = x * x\n" * 30 + "  return x")
