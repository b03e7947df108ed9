"""Messages: what is read is what was sent, arrays of any kind among it, and large ones are not copied."""

import numpy as np
import pytest

from livegnn.distributed.messages import pieces_of, values_of

RNG = np.random.default_rng(0)
VALUES = [
    None,
    {"a": [1, (2.5, "x")], "b": b"y" * 5000},
    RNG.random((300, 7)),
    np.arange(5, dtype=np.uint8),
    np.arange(10_007, dtype=np.uint8),  # a length that is padded
    {"rows": RNG.random(4096, dtype=np.float32), "ids": np.arange(3000), "none": np.zeros(0)},
    np.asfortranarray(RNG.random((60, 70))),
    RNG.random((100, 100))[::2, ::3],  # in no one piece
    np.array(["x", 1], object),
    [np.full(2048, turn) for turn in range(700)],  # more pieces than a system sends at once
]


def sent(*values):
    return b"".join(bytes(piece) for value in values for piece in pieces_of(value))


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("value", VALUES)
def test_what_is_read_is_what_was_sent(value):
    (found,) = values_of(sent(value))
    assert same(value, found)


def test_values_come_one_after_the_other():
    assert same(list(values_of(sent(*VALUES))), VALUES)
    assert list(values_of(b"")) == []


def test_arrays_are_aligned_parts_of_the_message():
    value = {"a": RNG.random(1000), "b": np.arange(4097, dtype=np.uint8), "c": RNG.random(1000)}
    message = sent("first", value)
    _, found = values_of(message)
    for each in found.values():
        assert each.flags.aligned
        assert np.shares_memory(each, np.frombuffer(message, np.uint8))


def test_large_arrays_are_not_copied():
    array = RNG.random(1000)
    assert any(np.shares_memory(array, np.frombuffer(piece, np.uint8)) for piece in pieces_of(array) if len(piece))
