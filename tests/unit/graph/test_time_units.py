"""datetime64 counts in its own unit: a graph takes one, so that times of two units are never compared as numbers."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import ValueInvalid


def dated(unit: str, *days: str) -> np.ndarray:
    return np.array(days, f"datetime64[{unit}]")


def graph(unit: str | None = "s") -> lg.Graph:
    time = [5] if unit is None else dated(unit, "2024-01-02")
    return lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=time)


def one_day_later(unit: str) -> lg.Updates:
    updates = lg.Updates()
    updates.add_edges([0], [2], time=dated(unit, "2024-01-03"))
    return updates


def test_another_unit_is_refused_and_nothing_changes() -> None:
    seconds = graph()
    before = seconds.digest()
    with pytest.raises(ValueInvalid, match=r"\[apply\] expected times in s, .* got datetime64\[D\]"):
        seconds.apply(one_day_later("D"))
    assert (seconds.digest(), seconds.version) == (before, 0)
    assert seconds.apply(one_day_later("s")) == 1
    assert seconds.out_neighbours(0)["time"].tolist() == [1704153600, 1704240000]


def test_the_first_unit_that_comes_is_the_graphs() -> None:
    numbers = graph(None)
    bad = one_day_later("D")
    bad.remove_edge(3, 3)
    with pytest.raises(lg.errors.UpdateError):
        numbers.apply(bad)
    numbers.apply(one_day_later("s"))  # what was refused has left no unit behind
    with pytest.raises(ValueInvalid, match="expected times in s"):
        numbers.apply(one_day_later("D"))
    plain = lg.Updates()
    plain.add_edge(0, 3, time=7)
    assert numbers.apply(plain) == 2  # numbers have no unit


@pytest.mark.parametrize(
    "later",
    [
        lambda updates: updates.add_edge(0, 1, time=np.datetime64("2024-01-02", "D")),
        lambda updates: updates.remove_edge(0, 1, time=np.datetime64("2024-01-02", "D")),
        lambda updates: updates.remove_edges_before(np.datetime64("2024-01-02", "D")),
        lambda updates: updates.add_edges([0], [1], time=[np.datetime64("2024-01-02", "D")]),
        lambda updates: updates.add_edges([0], [1], time=dated("25s", "2024-01-02")),
        lambda updates: updates.extend(one_day_later("D")),
    ],
)
def test_a_batch_holds_one_unit(later) -> None:
    updates = one_day_later("s")
    with pytest.raises(ValueInvalid, match="in s, as the times before"):
        later(updates)
    assert len(updates) == 1
    updates.clear()
    later(updates)
    assert len(updates) == 1


def test_dicts_hold_one_unit() -> None:
    keys = [("A", "to", "A"), ("A", "from", "A")]
    time = {key: dated(unit, "2024-01-02") for key, unit in zip(keys, ("s", "D"), strict=True)}
    ends = {key: [0] for key in keys}
    with pytest.raises(ValueInvalid, match=r"\[Graph\] expected time in s"):
        lg.Graph({"A": np.eye(2, dtype=np.float32)}, ends, ends, time=time)


def test_columns_of_pandas_have_their_unit() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"src": [0], "dst": [1], "time": dated("ms", "2024-01-03")})
    with pytest.raises(ValueInvalid, match="expected times in s"):
        graph().apply(lg.Updates.from_pandas(frame))


def test_targets_of_a_temporal_sampler_are_in_the_graphs_unit() -> None:
    sampler = lg.TemporalSampler(graph(), [2])
    assert sampler.sample([1], dated("s", "2024-01-03"))[0].src.tolist() == [0]
    with pytest.raises(ValueInvalid, match=r"\[sample\] expected times in s"):
        sampler.sample([1], dated("D", "2024-01-03"))
    with pytest.raises(ValueInvalid, match=r"\[sample_slots\] expected times in s"):
        sampler.sample_slots([1], dated("D", "2024-01-03"))


def test_a_list_is_of_the_unit_that_it_is_counted_in() -> None:
    days = [np.datetime64("2024-01-02"), np.datetime64("2024-01-03T00:00:00")]  # NumPy makes seconds of both
    mixed = lg.Graph(np.eye(4, dtype=np.float32), [0, 0], [1, 2], time=days)
    assert mixed.out_neighbours(0)["time"].tolist() == [1704153600, 1704240000]
    with pytest.raises(ValueInvalid, match="expected times in s"):
        mixed.apply(one_day_later("D"))
    with pytest.raises(ValueInvalid, match="expected times in D"):
        lg.TemporalSampler(graph("D"), [2]).sample([1, 2], days)


def test_no_values_have_no_unit() -> None:
    empty = lg.Graph(np.eye(4, dtype=np.float32), [], [], time=np.array([], "datetime64"))
    updates = lg.Updates()
    updates.add_edges([], [], time=dated("D"))
    empty.apply(updates)
    assert empty.apply(one_day_later("s")) == 2


def test_a_refused_update_leaves_no_unit() -> None:
    updates = lg.Updates()
    for refused in (
        lambda: updates.add_edge(0, 1, time=np.datetime64("2024-01-02"), edge_type=-1),
        lambda: updates.remove_edge(0, 1, time=np.datetime64("2024-01-02"), edge_id=-1),
        lambda: updates.add_edges([0], [1], time=dated("D", "2024-01-02"), weight=[np.nan]),
    ):
        with pytest.raises(ValueInvalid):
            refused()
    updates.add_edge(0, 1, time=np.datetime64("2024-01-02", "s"))
    assert graph().apply(updates) == 1


def test_what_else_takes_times(tmp_path) -> None:
    days, second = graph("D"), np.datetime64("2024-01-04", "s")
    updates = lg.Updates()
    updates.remove_edges_before(second)
    engine = lg.Engine(lg.Model([lg.layers.GCN(np.eye(4, dtype=np.float32))]), days)
    with pytest.raises(ValueInvalid, match=r"\[what_if\] expected times in D"), engine.what_if(updates):
        pass
    engine.close()
    with pytest.raises(ValueInvalid, match=r"\[offload\] expected before in D"):
        days.offload(second, tmp_path / "edges.parquet")
    query = lg.query().out().sample(2)
    with pytest.raises(ValueInvalid, match=r"\[PreSampler\] expected now in D"):
        lg.PreSampler(days, query, ttl=3, now=second)
    with pytest.raises(ValueInvalid, match=r"\[AdHocSampler\] expected now in D"):
        lg.AdHocSampler(days, query, ttl=3, now=second)
    assert days.edge_count == 1
