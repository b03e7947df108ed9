"""Graphs that store features in 16 bits, beside twins that store the same numbers in float32."""

import numpy as np

import livegnn as lg

SET_FEATURES, ADD_VERTEX = 5, 6  # UpdateKind
DTYPES = ("float16", "bfloat16")


def rounded(dtype, x):
    """x as float32, each value the nearest of the dtype's, of two equally near the even one."""
    x = np.asarray(x, np.float32)
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float32)
    bits = x.view(np.uint32)
    low = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    high = ((bits & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32)
    down, up = np.abs(x.astype(np.float64) - low), np.abs(high.astype(np.float64) - x)
    odd = (bits >> np.uint32(16) & np.uint32(1)).astype(bool)
    return np.where((up < down) | ((up == down) & odd), high, low)


def rounded_updates(dtype, updates):
    """The same updates with rounded features; attributes stay."""
    columns, keys, types = updates.to_columns()
    width = np.maximum(columns["row_width"], 0)
    starts = np.cumsum(width) - width
    rows = columns["rows"].copy()
    for place in np.flatnonzero(np.isin(columns["kind"], (SET_FEATURES, ADD_VERTEX))):
        here = slice(starts[place], starts[place] + width[place])
        rows[here] = rounded(dtype, rows[here])
    return lg.Updates.from_columns(columns | {"rows": rows}, keys, types)


def assert_twins(half, twin):
    """One content, whatever it is stored as."""
    half.host.store.check_invariants()
    assert half.digest() == twin.digest()
    assert half.version == twin.version
    kinds = [None] if half.vertex_types is None else half.vertex_types
    for kind in kinds:
        assert half.features(vertex_type=kind).tobytes() == twin.features(vertex_type=kind).tobytes()
