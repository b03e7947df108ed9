"""Units of datetime64 where graphs come from elsewhere: PyG, Arrow, pandas, and saved engines."""

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import StoredStateInvalid, ValueInvalid


def dated(unit, *days):
    return np.array(days, f"datetime64[{unit}]")


def one_day_later(unit):
    updates = lg.Updates()
    updates.add_edges([0], [2], time=dated(unit, "2024-01-03"))
    return updates


def refuses_days(graph):
    before = graph.digest()
    with pytest.raises(ValueInvalid, match=r"\[apply\] expected times in s, .* got datetime64\[D\]"):
        graph.apply(one_day_later("D"))
    assert graph.digest() == before
    graph.apply(one_day_later("s"))


@pytest.mark.parametrize("name", ["edge_time", "time"])
def test_of_pyg_data(name):
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    one = data.Data(x=torch.eye(4), edge_index=torch.tensor([[0], [1]]))
    one[name] = dated("s", "2024-01-02")
    if name == "time":
        one.is_edge_attr = lambda key: key == "time"  # PyG takes arrays of NumPy for attributes of the graph
    refuses_days(lg.Graph.from_pyg(one))


def test_of_pyg_data_with_types():
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    found = data.HeteroData()
    found["a"].x = torch.eye(2)
    for kind, unit in (("to", "s"), ("from", "D")):
        found["a", kind, "a"].edge_index = torch.tensor([[0], [1]])
        found["a", kind, "a"].edge_time = dated(unit, "2024-01-02")
    with pytest.raises(ValueInvalid, match=r"\[Graph.from_pyg\] expected time in s"):
        lg.Graph.from_pyg(found)


def test_of_arrow():
    arrow = pytest.importorskip("pyarrow")
    time = arrow.array(dated("s", "2024-01-02"))
    for column in (time, arrow.chunked_array([time])):
        refuses_days(lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=column))
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=dated("s", "2024-01-02"))
    days = arrow.table({"src": [0], "dst": [2], "time": arrow.array(dated("D", "2024-01-03"))})
    milliseconds = arrow.table({"src": [0], "dst": [2], "time": arrow.array(dated("ms", "2024-01-03"))})
    for table in (days, milliseconds):
        with pytest.raises(ValueInvalid, match="expected times in s"):
            graph.apply(lg.Updates.from_arrow(table))
    with pytest.raises(ValueInvalid, match=r"\[sample\] expected times in s"):
        lg.TemporalSampler(graph, [2]).sample([1], arrow.array(dated("D", "2024-01-03")))


def test_of_pandas_with_a_time_zone():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"src": [0], "dst": [2], "time": pandas.to_datetime(["2024-01-03"], utc=True)})
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=dated("s", "2024-01-02"))
    with pytest.raises(ValueInvalid, match="expected times in s"):
        graph.apply(lg.Updates.from_pandas(frame))


@pytest.mark.parametrize("unit", ["s", "D", "25s", None])
def test_a_saved_engine_keeps_the_unit(tmp_path, unit):
    time = [5] if unit is None else dated(unit, "2024-01-02")
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=time)
    engine = lg.Engine(lg.Model([lg.layers.GCN(np.eye(4, dtype=np.float32))]), graph)
    engine.save(tmp_path / "engine.npz")
    again = lg.Engine.load(tmp_path / "engine.npz").graph
    assert again.host.time_unit == unit
    assert again.digest() == graph.digest()
    if unit is not None:
        with pytest.raises(ValueInvalid, match=f"expected times in {unit}"):
            again.apply(one_day_later("h"))


def test_a_graph_that_was_saved_without_a_unit_takes_the_first_that_comes():
    """As version 0.1 saved all."""
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=dated("s", "2024-01-02"))
    arrays = graph.to_arrays()
    del arrays["time.unit"]
    again = lg.Graph.from_arrays(arrays)
    assert again.digest() == graph.digest()
    again.apply(one_day_later("D"))
    assert again.host.time_unit == "D"


@pytest.mark.parametrize("letters", [b"parsec", b"", b"\xff", b"generic"])
def test_a_saved_unit_that_is_none(letters):
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=dated("s", "2024-01-02"))
    arrays = {**graph.to_arrays(), "time.unit": np.frombuffer(letters, np.uint8)}
    with pytest.raises(StoredStateInvalid, match="cannot be read"):
        lg.Graph.from_arrays(arrays)
