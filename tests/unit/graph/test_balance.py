"""Levelling: units move from owner to owner until loads are even, and never for nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn.graph.balance import Trend, dealt_buckets, levelling_moves


def moved(owners, moves):
    after = owners.copy()
    after[moves.units] = moves.to
    return after


@given(
    seed=st.integers(0, 2**16),
    count=st.integers(1, 6),
    units=st.integers(1, 40),
    stop=st.sampled_from([1.0, 1.02, 1.25]),
    fixed=st.booleans(),
    moves_max=st.sampled_from([1, 3, 1000]),
)
def test_levelling_makes_the_largest_load_less_until_single_units_no_longer_help(
    seed, count, units, stop, fixed, moves_max
):
    rng = np.random.default_rng(seed)
    owners = rng.integers(0, count + 2, units).astype(np.uint16)  # some of owners that leave
    load = np.round(rng.pareto(1.2, units) * 8) / 8
    held = rng.integers(0, 9, count).astype(np.float64) if fixed else np.zeros(count)
    can_move = rng.random(units) < 0.8
    moves = levelling_moves(
        owners, load, count, stop=stop, fixed=held if fixed else None, can_move=can_move, moves_max=moves_max
    )
    after, leaving = moved(owners, moves), owners >= count
    assert after.max() < count
    assert len(set(moves.units.tolist())) == len(moves.units)
    others = moves.units[~leaving[moves.units]]
    assert can_move[others].all()
    assert len(others) <= moves_max
    loads = held + np.bincount(after, load, minlength=count)
    start = held + np.bincount(np.where(leaving, after, owners), load, minlength=count)
    assert loads.max() <= start.max()
    assert not len(others) or loads.max() < start.max() or (loads == loads.max()).sum() < (start == start.max()).sum()
    if len(others) < moves_max and loads.max() > stop * loads.mean():
        source, target = loads.argmax(), loads.argmin()
        free = can_move & (after == source) & (load > 0)
        free[moves.units] = False
        assert (np.maximum(loads[source] - load[free], loads[target] + load[free]) >= loads.max()).all()


def test_the_best_unit_goes_first():
    moves = levelling_moves(np.array([0, 0, 0, 1], np.uint16), np.array([7.0, 5.0, 1.0, 3.0]), 2, stop=1.0)
    assert moves.units.tolist() == [1]  # 8 and 8; 7 would leave 6 and 10
    assert moves.to.tolist() == [1]


def test_an_owner_that_comes_gets_its_share():
    owners = dealt_buckets(2)
    moves = levelling_moves(owners, np.ones(1024), 3, stop=1.02)
    assert np.bincount(moved(owners, moves)).tolist() == pytest.approx([341, 341, 341], rel=0.04)
    assert set(moves.to.tolist()) == {2}


def test_short_peaks_are_no_trend_and_a_change_is_followed_by_a_rest():
    trend = Trend(patience=2, rest=3, idle_patience=3)
    assert [trend.look(hot) for hot in (True, False, True, True)] == [0, 0, 0, 1]
    trend.changed()
    assert trend.rests
    assert [trend.look(True) for _ in range(4)] == [0, 0, 1, 1]
    trend.changed()
    assert [trend.look(False, True) for _ in range(4)] == [0, 0, -1, -1]
    assert not trend.rests
