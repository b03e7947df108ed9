"""Updates from Arrow, pandas and TemporalData: the same rows mean the same updates whatever the table is made of."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from livegnn.errors import ColumnMissing, DtypeInvalid, UsageError, ValueInvalid, WidthMismatch
from livegnn.graph import Graph, Updates

from .test_updates import edge_list

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")


def weighted(**options: Any) -> Graph:
    return Graph(np.eye(3), [], [], weight=[], time=[], **options)


def edges_of(updates: Updates, **options: Any) -> list[tuple[Any, ...]]:
    """The edges that the updates make of a graph without edges."""
    graph = Graph(
        np.eye(3),
        [],
        [],
        **{key: np.zeros((0, value) if value else 0, dtype) for key, (value, dtype) in options.items()},
    )
    graph.apply(updates)
    columns = graph.edges()
    names = [name for name in ("src", "dst", "weight", "time", "type", "attr") if name in columns]
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_every_integer_type_is_an_id(kind: Any) -> None:
    table = pa.table({"src": pa.array([0, 1, 2], kind), "dst": pa.array([1, 2, 0], kind)})
    assert edges_of(Updates.from_arrow(table)) == [(0, 1), (1, 2), (2, 0)]


def test_columns_are_found_by_their_usual_names_or_by_those_given() -> None:
    usual = pa.table({"src": [0], "dst": [1], "weight": [0.5], "time": [7], "type": [2], "edge_attr": [[1.0, 2.0]]})
    given = pa.table(
        {"from": [0], "to": [1], "kg": [0.5], "day": [7], "kind": [2], "extra": [[1.0, 2.0]], "note": ["x"]}
    )
    mapping = {"src": "from", "dst": "to", "weight": "kg", "time": "day", "edge_type": "kind", "edge_attr": "extra"}
    options = {"weight": (0, np.float32), "time": (0, int), "edge_type": (0, int), "edge_attr": (2, np.float32)}
    for updates in (Updates.from_arrow(usual), Updates.from_arrow(given, **mapping)):
        assert edges_of(updates, **options) == [(0, 1, 0.5, 7, 2, [1.0, 2.0])]
    left_out = Updates.from_arrow(usual, weight=None, time=None, edge_type=None, edge_attr=None)
    assert edges_of(left_out) == [(0, 1)]


def test_weights_become_float32() -> None:
    for values, kind in (
        ([0.5, 0.1], pa.float32()),
        ([0.5, 0.1], pa.float64()),
        ([3, -(2**24)], pa.int64()),
        ([1, 255], pa.uint8()),
    ):
        table = pa.table({"src": [0, 1], "dst": [1, 2], "weight": pa.array(values, kind)})
        found = [edge[2] for edge in edges_of(Updates.from_arrow(table), weight=(0, np.float32))]
        assert found == np.array(values, np.float32).tolist()


@pytest.mark.parametrize(
    ("values", "kind", "error", "message"),
    [
        ([1.0, 1e39], pa.float64(), ValueInvalid, r"1e\+39 at row 1"),
        ([1.0, float("nan")], pa.float32(), ValueInvalid, "nan at row 1"),
        ([1.0, None], pa.float32(), ValueInvalid, "null at row 1"),
        ([1, 2**24 + 1], pa.int64(), ValueInvalid, "16777217 at row 1"),
        ([1, 2**40], pa.int64(), ValueInvalid, "at row 1"),
        ([True, False], pa.bool_(), DtypeInvalid, "column 'weight', got Arrow type bool"),
        (["a", "b"], pa.string(), DtypeInvalid, "column 'weight' as float32"),
        ([1.0, 2.0], pa.float16(), DtypeInvalid, "Arrow type halffloat"),
    ],
)
def test_bad_weights_are_refused(values: list[Any], kind: Any, error: type[Exception], message: str) -> None:
    if kind == pa.float16():
        values = [np.float16(v) for v in values]
    table = pa.table({"src": [0, 1], "dst": [1, 2], "weight": pa.array(values, kind)})
    with pytest.raises(error, match=message):
        Updates.from_arrow(table)


@pytest.mark.parametrize(
    ("times", "expected", "unit"),
    [
        (pa.array([1, 2], pa.timestamp("s")), [1, 2], "s"),
        (pa.array([1, 2], pa.timestamp("ms")), [1, 2], "ms"),
        (pa.array([1, 2], pa.timestamp("us")), [1, 2], "us"),
        (pa.array([1, 2], pa.timestamp("ns", tz="UTC")), [1, 2], "ns"),
        (pa.array([1, 2], pa.date32()), [1, 2], "D"),
        (pa.array([86400000, 0], pa.date64()), [86400000, 0], "ms"),
        (pa.array([1, 2], pa.duration("ms")), [1, 2], None),
        (pa.array([1, 2], pa.time32("s")), [1, 2], None),
        (pa.array([-1, 2**62], pa.int64()), [-1, 2**62], None),
        (pa.array([5, 5], pa.int8()).dictionary_encode(), [5, 5], None),
        (pa.array([5, 5], pa.timestamp("ms")).dictionary_encode(), [5, 5], "ms"),
    ],
    ids=str,
)
def test_times_are_int64_in_their_own_unit(times: Any, expected: list[int], unit: str | None) -> None:
    table = pa.table({"src": [0, 1], "dst": [1, 2], "time": times})
    updates = Updates.from_arrow(table)
    assert [edge[2] for edge in edges_of(updates, time=(0, int))] == expected
    graph = Graph(np.eye(3), [0], [1], time=np.array([9], "datetime64[m]" if unit is None else f"datetime64[{unit}]"))
    graph.apply(Updates.from_arrow(table))
    other = Graph(np.eye(3), [0], [1], time=np.array([9], "datetime64[h]"))
    if unit is not None:
        with pytest.raises(ValueInvalid, match=rf"expected times in h, .* got datetime64\[{unit}\]"):
            other.apply(updates)


STRINGS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_string()),
]


@pytest.mark.parametrize("kind", STRINGS, ids=str)
def test_every_string_type_is_an_id(kind: Any) -> None:
    names = ["", "ü" * 20, "a plain but rather long name"]
    src, dst = [names[0], names[1], names[2]], [names[1], names[2], names[2]]
    table = pa.table({"src": pa.array(src, pa.string()).cast(kind), "dst": pa.array(dst, pa.string()).cast(kind)})
    graph = Graph(np.eye(3), [], [], ids=names)
    graph.apply(Updates.from_arrow(pa.concat_tables([table.slice(1), table.slice(0, 1)])))
    assert edge_list(graph) == [
        (s, d, i) for i, (s, d) in enumerate(zip(src[1:] + src[:1], dst[1:] + dst[:1], strict=True))
    ]


def test_ops_are_applied_in_order() -> None:
    table = pa.table(
        {
            "src": [0, 0, 0, 1, 1, 2],
            "dst": [1, 1, 1, 2, 2, 0],
            "op": ["add", "add", "remove", "add", "set_weight", "add"],
            "weight": [1.0, 2.0, None, 3.0, 4.0, 5.0],
            "time": [10, 20, 30, 40, None, 60],
        }
    )
    graph = weighted()
    graph.apply(Updates.from_arrow(table))
    assert edge_list(graph) == [(0, 1, 0), (1, 2, 2), (2, 0, 3)]
    assert graph.edges()["weight"].tolist() == [1, 4, 5]
    encoded = table.set_column(2, "op", table["op"].dictionary_encode())
    again = weighted()
    again.apply(Updates.from_arrow(encoded))
    assert again.digest() == graph.digest()


def test_a_remove_row_picks_by_type_where_it_has_one() -> None:
    table = pa.table({"src": [0] * 4, "dst": [1] * 4, "op": ["add", "add", "add", "remove"], "type": [5, 6, 7, 6]})
    assert edges_of(Updates.from_arrow(table), edge_type=(0, int)) == [(0, 1, 5), (0, 1, 7)]
    any_type = table.set_column(3, "type", pa.array([5, 6, 7, None]))
    assert edges_of(Updates.from_arrow(any_type), edge_type=(0, int)) == [(0, 1, 5), (0, 1, 6)]


def test_a_column_of_nulls_that_nobody_reads_is_no_column() -> None:
    graph = weighted()
    graph.apply(Updates.from_arrow(pa.table({"src": [0], "dst": [1], "weight": [1.0], "time": [1]})))
    table = pa.table({"src": [0], "dst": [1], "op": ["remove"], "weight": pa.nulls(1), "time": pa.nulls(1, pa.int64())})
    graph.apply(Updates.from_arrow(table))
    assert graph.edge_count == 0


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"src": [0]}, ColumnMissing, "a column 'dst' for dst"),
        ({"src": [0, None], "dst": [1, 2]}, ValueInvalid, "column 'src', got null at row 1"),
        ({"src": [0, -1], "dst": [1, 2]}, ValueInvalid, "column 'src', got -1 at row 1"),
        ({"src": [0.0], "dst": [1]}, DtypeInvalid, "column 'src' as int64, got dtype float64"),
        ({"src": [0], "dst": ["b"]}, DtypeInvalid, "one kind of id"),
        ({"src": ["a", None], "dst": ["b", "c"]}, ValueInvalid, "null at row 1"),
        (
            {"src": [0], "dst": [1], "op": ["upsert"]},
            ValueInvalid,
            "add, remove, set_weight in column 'op', got 'upsert' at row 0",
        ),
        ({"src": [0], "dst": [1], "op": [1]}, DtypeInvalid, "column 'op' of strings"),
        ({"src": [0], "dst": [1], "op": pa.array([None], pa.string())}, ValueInvalid, "null at row 0"),
        ({"src": [0], "dst": [1], "op": ["set_weight"]}, ColumnMissing, "a weight column"),
        ({"src": [0], "dst": [1], "time": [0.5]}, DtypeInvalid, "column 'time' as int64"),
        ({"src": [0, 1], "dst": [1, 1], "time": [5, None]}, ValueInvalid, "column 'time', got null at row 1"),
        ({"src": [0], "dst": [1], "type": [-3]}, ValueInvalid, "-3 at row 0"),
        (
            {"src": [0, 1], "dst": [1, 1], "edge_attr": [[1.0], [1.0, 2.0]]},
            WidthMismatch,
            "width 1 in column 'edge_attr', got 2",
        ),
        ({"src": [0], "dst": [1], "edge_attr": [[None, 1.0]]}, ValueInvalid, "no nulls inside"),
        ({"src": [0], "dst": [1], "edge_attr": [["a"]]}, DtypeInvalid, "Arrow type list"),
        ({"src": pa.array([2**63], pa.uint64()), "dst": [1]}, ValueInvalid, "fits int64"),
    ],
)
def test_bad_tables_are_refused_with_column_and_row(
    columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Updates.from_arrow(pa.table(columns))


def test_named_columns_must_be_there_and_parts_must_exist() -> None:
    table = pa.table({"src": [0], "dst": [1]})
    with pytest.raises(ColumnMissing, match="a column 'kg' for weight"):
        Updates.from_arrow(table, weight="kg")
    with pytest.raises(UsageError, match="got 'wieght'"):
        Updates.from_arrow(table, wieght="kg")
    with pytest.raises(DtypeInvalid, match="expected an object with __arrow_c_stream__"):
        Updates.from_arrow([1, 2])
    with pytest.raises(DtypeInvalid, match="expected a table"):
        Updates.from_arrow(pa.chunked_array([[1, 2]]))
    twice = pa.Table.from_arrays([pa.array([0])] * 3, names=["src", "src", "dst"])
    with pytest.raises(ValueInvalid, match="each column once"):
        Updates.from_arrow(twice)


def test_chunks_slices_batches_and_streams_read_alike() -> None:
    rng = np.random.default_rng(5)
    size = 1000
    src, dst = rng.integers(0, 3, size), rng.integers(0, 3, size)
    attr = rng.normal(size=(size, 2)).astype(np.float32)
    table = pa.table(
        {
            "src": src,
            "dst": dst,
            "edge_attr": pa.FixedSizeListArray.from_arrays(pa.array(attr.ravel()), 2),
            "op": pa.array(["add"] * size).dictionary_encode(),
        }
    )
    cut = pa.concat_tables([table.slice(0, 13), table.slice(13, 0), table.slice(13, 400), table.slice(413)])
    listed = table.set_column(2, "edge_attr", table["edge_attr"].cast(pa.large_list(pa.float32())))
    expected = list(zip(src.tolist(), dst.tolist(), attr.tolist(), strict=True))
    for form in (table, cut, listed, table.to_reader(max_chunksize=7), table.combine_chunks().to_batches()[0]):
        assert edges_of(Updates.from_arrow(form), edge_attr=(2, np.float32)) == expected
    part = table.combine_chunks().to_batches()[0].slice(11, 50)
    assert edges_of(Updates.from_arrow(part), edge_attr=(2, np.float32)) == expected[11:61]
    assert len(Updates.from_arrow(table.slice(0, 0))) == 0


def test_struct_arrays_with_an_offset_or_null_rows() -> None:
    rows = pa.array([{"src": 0, "dst": 1}, {"src": 1, "dst": 2}, {"src": 2, "dst": 0}])
    assert edges_of(Updates.from_arrow(rows.slice(1))) == [(1, 2), (2, 0)]
    with pytest.raises(ValueInvalid, match="no null rows"):
        Updates.from_arrow(pa.array([{"src": 0, "dst": 1}, None]))


def test_nulls_after_an_offset_are_named_by_their_row() -> None:
    src = pa.array([None, *range(20), None], pa.int64()).slice(1)
    with pytest.raises(ValueInvalid, match="null at row 20"):
        Updates.from_arrow(pa.table({"src": src, "dst": [0] * 21}))
    ok = pa.array([None, 0, 1, 2], pa.int64()).slice(1)
    assert edges_of(Updates.from_arrow(pa.table({"src": ok, "dst": [0] * 3}))) == [(0, 0), (1, 0), (2, 0)]


def test_a_source_that_stops_is_reported_and_released() -> None:
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])

    def batches() -> Any:
        yield pa.record_batch({"src": [0], "dst": [1]}, schema=schema)
        raise ValueError("disk is gone")

    with pytest.raises(UsageError, match="disk is gone"):
        Updates.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()))


def test_nothing_is_leaked() -> None:
    table = pa.table({"src": np.zeros(100_000, int), "dst": np.zeros(100_000, int), "note": ["x"] * 100_000})
    Updates.from_arrow(table)
    before = pa.total_allocated_bytes()
    for _ in range(5):
        Updates.from_arrow(table.to_reader(max_chunksize=1000))
        Updates.from_arrow(table.to_batches()[0])
    assert pa.total_allocated_bytes() == before


# ---- pandas


def test_from_pandas_reads_numpy_nullable_arrow_and_text_columns() -> None:
    frame = pd.DataFrame({"src": [0, 1], "dst": [1, 2], "weight": [0.5, 2.0], "time": pd.to_datetime([1, 2], unit="s")})
    unit = frame["time"].dtype.name
    frame["time"] = frame["time"].astype("datetime64[s]")
    expected = [(0, 1, 0.5, 1), (1, 2, 2.0, 2)]
    options = {"weight": (0, np.float32), "time": (0, int)}
    assert unit.startswith("datetime64")
    nullable = frame.astype({"src": "Int64", "dst": "UInt8", "weight": "Float32"})
    arrow_backed = frame.astype({"src": "int32[pyarrow]", "dst": "int64[pyarrow]", "weight": "double[pyarrow]"})
    zoned = frame.assign(time=frame["time"].dt.tz_localize("UTC"))
    for form in (frame, nullable, arrow_backed, zoned, frame.set_index(pd.Index([7, 7]))):
        assert edges_of(Updates.from_pandas(form), **options) == expected
    names = ["x", "y", "z"]
    for kind in (object, "str", "category", "string"):
        text = pd.DataFrame({"a": pd.Series(["x", "y"]).astype(kind), "b": pd.Series(["y", "z"]).astype(kind)})
        graph = Graph(np.eye(3), [], [], ids=names)
        graph.apply(Updates.from_pandas(text, src="a", dst="b"))
        assert edge_list(graph) == [("x", "y", 0), ("y", "z", 1)]


def test_from_pandas_reads_ops_and_attributes() -> None:
    frame = pd.DataFrame(
        {
            "src": [0, 1, 0],
            "dst": [1, 2, 1],
            "op": ["add", "add", "remove"],
            "edge_attr": [[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]],
        }
    )
    assert edges_of(Updates.from_pandas(frame), edge_attr=(2, np.float32)) == [(1, 2, [3.0, 4.0])]


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"src": [0.0], "dst": [1]}, DtypeInvalid, "column 'src' as int64, got dtype float64"),
        ({"src": pd.array([0, None], "Int64"), "dst": [1, 1]}, ValueInvalid, "column 'src', got null at row 1"),
        ({"src": ["a", None], "dst": ["b", "c"]}, ValueInvalid, "null at row 1"),
        ({"src": [0, 1], "dst": [1, 2], "weight": [1.0, np.nan]}, ValueInvalid, "nan at row 1"),
        ({"src": [0, 1], "dst": [1, 2], "time": pd.to_datetime(["2024-01-01", None])}, ValueInvalid, "NaT"),
        ({"src": [True], "dst": [1]}, DtypeInvalid, "dtype bool"),
        ({"dst": [1]}, ColumnMissing, "a column 'src'"),
    ],
)
def test_bad_frames_are_refused(columns: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Updates.from_pandas(pd.DataFrame(columns))


def test_from_pandas_wants_a_frame() -> None:
    with pytest.raises(DtypeInvalid, match=r"expected a pandas\.DataFrame, got dict"):
        Updates.from_pandas({"src": [0]})


def test_a_batch_whose_rows_are_all_null_has_no_width() -> None:
    for kind in (pa.list_(pa.float32(), 2), pa.list_(pa.float32())):
        batches = [
            pa.record_batch({"src": [1], "dst": [2], "op": [op], "edge_attr": pa.array([row], kind)})
            for op, row in (("remove", None), ("add", [1.0, 2.0]))
        ]
        assert len(Updates.from_arrow(pa.Table.from_batches(batches))) == 2


def test_pandas_and_polars_frames_speak_arrow_too() -> None:
    frame = pd.DataFrame({"src": [0, 1], "dst": [1, 2]})
    assert edges_of(Updates.from_arrow(frame)) == [(0, 1), (1, 2)]


def test_polars_frames_speak_arrow() -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame(
        {"src": ["a", "a name of more than twelve bytes"], "dst": ["a name of more than twelve bytes", "a"]}
    )
    graph = Graph(np.eye(2), [], [], ids=["a", "a name of more than twelve bytes"])
    graph.apply(Updates.from_arrow(frame))
    assert edge_list(graph) == [(*row, i) for i, row in enumerate(frame.rows())]


# ---- TemporalData


def test_from_temporal_data() -> None:
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    events = data.TemporalData(
        src=torch.tensor([0, 1]), dst=torch.tensor([1, 2]), t=torch.tensor([5, 6]), msg=torch.tensor([[1.0, 2], [3, 4]])
    )
    options = {"time": (0, int), "edge_attr": (2, np.float32)}
    assert edges_of(Updates.from_temporal_data(events), **options) == [(0, 1, 5, [1, 2]), (1, 2, 6, [3, 4])]
    assert edges_of(Updates.from_temporal_data(events, time=False, edge_attr=False)) == [(0, 1), (1, 2)]
    flat = data.TemporalData(src=torch.tensor([0]), dst=torch.tensor([1]), t=torch.tensor([5]), msg=torch.tensor([2.0]))
    assert edges_of(Updates.from_temporal_data(flat), time=(0, int), edge_attr=(1, np.float32)) == [(0, 1, 5, [2.0])]
    with pytest.raises(ColumnMissing, match="without it"):
        Updates.from_temporal_data(data.TemporalData(t=torch.tensor([5])))
    events.msg[1, 0] = float("nan")
    with pytest.raises(ValueInvalid, match="nan at row 1"):
        Updates.from_temporal_data(events)


def test_a_time_that_no_row_reads_has_no_unit() -> None:
    graph = Graph(np.eye(3), [0], [1], time=np.array([9], "datetime64[us]"))
    columns = {"src": [0], "dst": [1], "op": ["remove"], "time": pa.array([None], pa.timestamp("s"))}
    graph.apply(Updates.from_arrow(pa.table(columns)))
    assert graph.edge_count == 0


def test_ends_have_columns_and_a_name_is_one_column() -> None:
    frame = pd.DataFrame({"src": [0], "dst": [1]})
    for read, given in ((Updates.from_pandas, frame), (Updates.from_arrow, pa.table({"src": [0], "dst": [1]}))):
        with pytest.raises(UsageError, match="a column for dst, got dst=None"):
            read(given, dst=None)
    with pytest.raises(ValueInvalid, match="each column once, got 'dst' again"):
        Updates.from_pandas(pd.concat([frame, frame[["dst"]]], axis=1))


@pytest.mark.parametrize("time", ["2026-05-01 10:00", pd.Timestamp("2026-05-01 10:00"), datetime.date(2026, 5, 1)])
def test_a_date_as_a_time_of_one_edge_is_refused_with_the_way_to_convert_it(time: object) -> None:
    updates = Updates()
    with pytest.raises(DtypeInvalid, match=r"expected time as .*, got .*2026.* convert it with numpy.datetime64"):
        updates.add_edge(0, 2, time=time)  # type: ignore[arg-type]
    assert len(updates) == 0
