"""The numbers that the native sampler draws, so that a part of a hop can be drawn elsewhere as if it were the whole.

core/temporal/draw.h: the draws of a row are a function of (part key, row), and
    part key = mix(mix(seed ^ mix(call)) + hop + 65536 snapshot)
with mix the finaliser of splitmix64, a bijection. So a sampler of one hop, called under another number, draws what hop
k of the call draws: call_of_hop() solves mix(seed ^ mix(call')) = mix(seed ^ mix(call)) + k for call'. The rows keep
their numbers where the call has a row for each: rows of others are given no past (rows_apart).
"""

from __future__ import annotations

import numpy as np

from livegnn.types import Int64Array

__all__ = ["NO_PAST", "call_of_hop", "rows_apart"]

NO_PAST = -(2**63)  # a target's time that no edge comes before: no edge has it

_MASK = 2**64 - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(x: int) -> int:
    """util/hash.h's mix."""
    x = (x + _STEP) & _MASK
    x = ((x ^ x >> 30) * _FIRST) & _MASK
    x = ((x ^ x >> 27) * _SECOND) & _MASK
    return x ^ x >> 31


def unmix(x: int) -> int:
    """The number whose mix is x."""
    x = (_unshift(x, 31) * pow(_SECOND, -1, 2**64)) & _MASK
    x = (_unshift(x, 27) * pow(_FIRST, -1, 2**64)) & _MASK
    return (_unshift(x, 30) - _STEP) & _MASK


def call_of_hop(seed: int, call: int, hop: int) -> int:
    """The call under which the first hop of a sampler with this seed draws what the given hop of `call` draws."""
    return call if hop == 0 else unmix(seed ^ unmix((mix(seed ^ mix(call)) + hop) & _MASK))


def rows_apart(slots: Int64Array, times: Int64Array, rows: Int64Array, count: int) -> tuple[Int64Array, Int64Array]:
    """Targets as rows `rows` of `count`, the other rows without a past; slots not empty."""
    all_slots = np.full(count, slots[0], np.int64)
    all_times = np.full(count, NO_PAST, np.int64)
    all_slots[rows], all_times[rows] = slots, times
    return all_slots, all_times


def _unshift(x: int, by: int) -> int:
    """The y with x = y ^ (y >> by), for 64 bits."""
    y = x
    for _ in range(64 // by):
        y = x ^ y >> by
    return y
