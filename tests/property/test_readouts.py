"""Readouts under streams of updates, against sums in Python's integers and maxima by sorting: bit for bit."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.inference.pools import Maxima, Moves, Sums
from livegnn.testing import graph_columns, random_batch, random_graph, random_model

KINDS = ("add", "mean", "max")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, 3.4028234663852886e38, -3.4028234663852886e38]
SPECIAL += [float("inf"), float("-inf"), float("nan"), 2.0**24, 1.0 + 2.0**-23, 2.0**-24, 2.0**-25]


def rounded(total):
    """A Fraction to float32, to nearest, ties to even, without float64 in between."""
    if total == 0:
        return np.float32(0)
    size, sign = abs(total), 1 if total > 0 else -1
    exponent = -149
    while size >= Fraction(2) ** (exponent + 24):
        exponent += 1
    scaled = size / Fraction(2) ** exponent
    whole, rest = int(scaled), scaled - int(scaled)
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    if whole * Fraction(2) ** exponent >= Fraction(2) ** 128:
        return np.float32(sign * np.inf)
    return np.float32(sign * np.ldexp(float(whole), exponent))


def sum_of(column):
    values = column.astype(np.float64)
    if np.isnan(values).any() or {np.inf, -np.inf} <= set(values.tolist()):
        return np.float32(np.nan)
    infinite = values[np.isinf(values)]
    return np.float32(infinite[0]) if infinite.size else rounded(sum(map(Fraction, values.tolist()), Fraction(0)))


def max_of(column):
    if np.isnan(column).any():
        return np.float32(np.nan)
    return np.float32(max(column.tolist(), default=0.0) + 0.0)


def pooled(kind, rows):
    if kind == "max":
        return np.array([max_of(column) for column in rows.T], np.float32)
    return np.array([sum_of(column) for column in rows.T], np.float32)


def same_bits(one, other):
    nan = np.isnan(one) & np.isnan(other)
    return ((one.view(np.int32) == other.view(np.int32)) | nan).all()


values = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32), st.floats(-4, 4, width=32))
step = st.lists(
    st.tuples(st.integers(0, 300), st.integers(-1, 3), st.lists(values, min_size=2, max_size=2)), max_size=40
)


@pytest.mark.parametrize(("kind", "pool"), [("add", Sums), ("max", Maxima)])
@given(stream=st.lists(step, max_size=6))
def test_pools_equal_sums_in_integers_and_maxima_by_sorting(kind, pool, stream):
    pool, rows, groups = pool(2), np.zeros((301, 2), np.float32), np.full(301, -1, np.int64)
    for changes in stream:
        last = {slot: (group, row) for slot, group, row in changes}
        slots = np.array(sorted(last), np.int64)
        new = np.array([last[slot][1] for slot in slots.tolist()], np.float32).reshape(-1, 2)
        after = np.array([last[slot][0] for slot in slots.tolist()], np.int64)
        moves = Moves(slots, groups[slots], after, rows[slots], new)
        rows[slots], groups[slots] = new, after
        pool.move(moves, rows)
        with np.errstate(over="ignore"):
            got = pool.read(np.arange(4)).astype(np.float32)
        for group in range(4):
            assert same_bits(got[group], pooled(kind, rows[groups == group])), group


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("terms", "total"),
    [
        ([2**24, 1], 2**24),  # a tie goes to even
        ([2**24, 1, 2.0**-149], 2**24 + 2),  # and is none by the smallest part, far below
        ([2**24, 1, 2.0**-40], 2**24 + 2),
        ([2**24, 1, -(2.0**-149)], 2**24),
        ([2**24, 2, 1], 2**24 + 4),
        ([2.0**100, 1.0, -(2.0**100)], 1.0),
        ([2.0**-149, 2.0**-148], 3 * 2.0**-149),
    ],
)
def test_sums_are_rounded_once(sign, terms, total):
    rows = sign * np.array(terms, np.float32)[:, None]
    pool, slots = Sums(1), np.arange(len(terms))
    pool.move(Moves(slots, slots * 0 - 1, slots * 0, rows, rows), rows)
    assert pool.read(np.zeros(1, np.int64)).astype(np.float32).tolist() == [[sign * total]]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_large_groups_that_lose_their_maxima(seed):
    """Groups of several cells whose largest members shrink, leave and move: every re-read is taken."""
    rng = np.random.default_rng(seed)
    count = 1000
    rows, groups = rng.normal(size=(count, 3)).astype(np.float32), rng.integers(0, 2, count)
    pool, sums = Maxima(3), Sums(3)
    start = Moves(np.arange(count), np.full(count, -1), groups, rows, rows)
    pool.move(start, rows)
    sums.move(start, rows)
    for _ in range(8):
        leaders = np.unique(np.concatenate([np.argsort(-rows[:, c])[: rng.integers(1, 40)] for c in range(3)]))
        new = (rows[leaders] - rng.exponential(2, (len(leaders), 3))).astype(np.float32)
        after = np.where(rng.random(len(leaders)) < 0.3, rng.integers(-1, 3, len(leaders)), groups[leaders])
        moves = Moves(leaders, groups[leaders], after, rows[leaders], new)
        rows[leaders], groups[leaders] = new, after
        pool.move(moves, rows)
        sums.move(moves, rows)
        got, total = pool.read(np.arange(3)).astype(np.float32), sums.read(np.arange(3)).astype(np.float32)
        for group in range(3):
            assert same_bits(got[group], pooled("max", rows[groups == group])), group
            assert same_bits(total[group], pooled("add", rows[groups == group])), group


def expected(kind, engine, graph, group_of, group):
    ids = graph.vertices()
    chosen = ids[[group_of[v] == group for v in ids.tolist()]]
    rows = engine.recompute()[graph.to_slots(chosen)]
    if kind == "mean" and len(rows):
        exact = [sum(map(Fraction, column.tolist()), Fraction(0)) / len(rows) for column in rows.T]
        return np.array([rounded(total) for total in exact], np.float32)
    return pooled(kind, rows)


@pytest.mark.parametrize("mode", ["eager", "on_demand", "hybrid"])
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), ways=st.integers(1, 5), batches=st.integers(1, 5))
def test_readouts_follow_streams(mode, seed, ways, batches):
    rng = np.random.default_rng(seed)
    model = random_model(rng, depth=int(rng.integers(1, 3)), on_edges=True)
    graph, mirror = random_graph(rng, model.input_width, model.uses_weights, **graph_columns(model))
    engine = lg.Engine(model, graph, threads=1, mode=mode)
    group_of = {v: int(rng.integers(0, ways)) for v in range(1000)}
    start = [group_of[v] for v in graph.vertices().tolist()]
    asked = {kind: lg.Readout(engine, kind, lambda ids: [v % ways for v in ids.tolist()]) for kind in KINDS}
    told = {kind: lg.Readout(engine, kind, start) for kind in KINDS}
    whole = {kind: lg.Readout(engine, kind) for kind in KINDS}
    for _ in range(batches):
        moved = [v for v in graph.vertices().tolist() if rng.random() < 0.1]
        group_of.update({v: int(rng.integers(0, ways)) for v in moved})
        updates = random_batch(rng, mirror, int(rng.integers(0, 20)))
        ids = [*moved, *(v for v in range(mirror.slots) if v not in graph)]  # those to come, and some that do not come
        for readout in told.values():
            readout.assign(ids, [group_of[v] for v in ids])
        engine.apply(updates)
        if rng.random() < 0.3:  # several batches between two reads
            engine.embeddings(rng.choice(graph.vertices(), min(2, graph.vertex_count), replace=False))
            continue
        for kind in KINDS:
            check(kind, engine, told[kind], group_of, ways)
            check(kind, engine, asked[kind], {v: v % ways for v in group_of}, ways)
            check(kind, engine, whole[kind], dict.fromkeys(group_of, 0), 1)
            fresh = lg.Readout(engine, kind, [group_of[v] for v in graph.vertices().tolist()])
            assert told[kind].group_ids.tolist() == fresh.group_ids.tolist()
            assert same_bits(told[kind].rows(), fresh.rows())
            fresh.close()


def check(kind, engine, readout, group_of, ways):
    """mean: within a unit in the last place of the exact one, as it is rounded twice."""
    readout.verify()
    assert readout.version == engine.version
    ids, rows = engine.graph.vertices().tolist(), engine.recompute()
    slots = engine.graph.to_slots(ids)
    for group in range(ways):
        of_group = rows[[slot for v, slot in zip(ids, slots, strict=True) if group_of[v] == group]]
        got = readout.rows([group])[0]
        if kind != "mean" or not len(of_group):
            assert same_bits(got, pooled(kind, of_group)), (kind, group)
        else:
            exact = [sum(map(Fraction, column.tolist()), Fraction(0)) / len(of_group) for column in of_group.T]
            want = np.array([rounded(total) for total in exact], np.float32)
            assert (np.abs(got - want) <= np.spacing(np.abs(want))).all(), group
