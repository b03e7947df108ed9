"""A batch of updates as bytes and back: bit for bit, or refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import LogDamaged, ValueInvalid, WidthMismatch
from livegnn.graph.consumers import Switch
from livegnn.log import codec, frame

DAMAGED = r"^\[history, offset 7\] expected .*, got .*; (restore|read)"


def same(a, b):
    """Whether two Updates hold the same, to the bit."""
    columns, keys, types = a.to_columns()
    others, other_keys, other_types = b.to_columns()
    assert types == other_types
    assert keys == other_keys
    assert columns.keys() == others.keys()
    for name, values in columns.items():
        assert values.dtype == others[name].dtype
        assert values.tobytes() == others[name].tobytes(), name
    assert adjoined(a._vertex_ops) == adjoined(b._vertex_ops)


def adjoined(runs):
    return [(i, adds) for first, last, adds in runs for i in range(first, last)]


def every_kind(a=0, b=1, c=2):
    updates = lg.Updates()
    updates.add_vertex(a, np.float32([1.5, -0.0]))
    updates.add_vertices([b, c], np.float32([[1e-45, 3.4e38], [0, -1]]))
    updates.add_edge(a, b)
    updates.add_edge(a, b, weight=0.1, time=-5, edge_type=3, edge_attr=[1.0, 2.0, 3.0])
    updates.add_edges([a, b], [b, c], weight=[0.5, -2.0], time=[2**63 - 1, -(2**63) + 1])
    updates.remove_edge(a, b)
    updates.remove_edge(a, b, time=0, edge_type=0, edge_id=0, missing="ignore")
    updates.remove_edges([a], [b], missing="ignore")
    updates.remove_edges_before(10)
    updates.set_weight(b, c, 1.0, edge_id=2**40)
    updates.set_edge_attr(a, b, np.empty(0, np.float32))
    updates.set_features(a, [9.0, 8.0])
    updates.remove_vertex(a)
    updates.remove_vertices([b, c])
    return updates


def test_every_kind_of_update_comes_back():
    same(codec.decode("history", 0, codec.encode(every_kind())), every_kind())


def test_string_ids_come_back():
    updates = every_kind("anna", "bœuf", "名前")
    same(codec.decode("history", 0, codec.encode(updates)), updates)


def test_a_batch_without_updates_comes_back():
    for updates in (lg.Updates(), lg.Updates()):
        same(codec.decode("history", 0, codec.encode(updates)), updates)
    cleared = every_kind("a", "b", "c")
    cleared.clear()
    same(codec.decode("history", 0, codec.encode(cleared)), cleared)


def test_a_decoded_batch_may_be_filled_on_and_applied():
    updates = lg.Updates()
    updates.add_vertex("c", [1.0])
    decoded = codec.decode("history", 0, codec.encode(updates))
    decoded.add_edge("a", "c")
    graph = lg.Graph(np.zeros((2, 1), np.float32), ["a"], ["b"], ids=["a", "b"])
    graph.apply(decoded)
    assert graph.out_neighbours("a")["dst"].tolist() == ["b", "c"]


def test_what_the_stream_says_to_others():
    """Another reader of Arrow sees named columns, and only those that are used."""
    updates = lg.Updates()
    updates.add_edge("a", "b", weight=0.5)
    updates.remove_vertex("b")
    with pa.ipc.open_stream(codec.encode(updates)) as stream:
        table = stream.read_all()
    assert table.schema.metadata == {b"livegnn.schema": b"1"}
    assert table.to_pylist() == [
        {"kind": 0, "u": "a", "v": "b", "weight": 0.5},
        {"kind": 7, "u": "b", "v": None, "weight": None},
    ]


ids = st.integers(0, 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
rows = st.lists(floats, max_size=4).map(np.float32)
times = st.none() | st.integers(-(2**63) + 1, 2**63 - 1)
types = st.none() | st.integers(0, 2**31 - 1)
calls = st.one_of(
    st.tuples(st.just("add_edge"), ids, ids, st.fixed_dictionaries({"weight": st.none() | floats, "time": times})),
    st.tuples(st.just("add_edge"), ids, ids, st.fixed_dictionaries({"edge_type": types, "edge_attr": rows})),
    st.tuples(st.just("remove_edge"), ids, ids, st.fixed_dictionaries({"time": times, "edge_id": st.none() | ids})),
    st.tuples(st.just("remove_edge"), ids, ids, st.just({"missing": "ignore"})),
    st.tuples(st.just("set_weight"), ids, ids, st.builds(lambda w: {"w": w}, floats)),
    st.tuples(st.just("set_features"), ids, rows, st.just({})),
    st.tuples(st.just("add_vertex"), ids, rows, st.just({})),
    st.tuples(st.just("remove_vertex"), ids, st.just({})),
)


@given(st.lists(calls, max_size=12))
def test_any_batch_comes_back(made):
    updates = lg.Updates()
    for name, *args, options in made:
        getattr(updates, name)(*args, **options)
    same(codec.decode("history", 0, codec.encode(updates)), updates)


def stream_of(metadata, **columns):
    batch = pa.record_batch(columns).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


GOOD = {"kind": pa.array([0], pa.uint8()), "u": pa.array([0]), "v": pa.array([1])}
V1 = {"livegnn.schema": "1"}


def test_the_example_of_the_refusals_is_good_itself():
    assert len(codec.decode("history", 7, stream_of(V1, **GOOD))) == 1


@pytest.mark.parametrize(
    ("metadata", "columns", "says"),
    [
        ({"livegnn.schema": "3"}, GOOD, "expected schema 1 or 2, got 3; read it with a newer livegnn"),
        ({}, GOOD, "expected schema 1 or 2, got none"),
        (V1, {**GOOD, "colour": pa.array([1])}, "got 'colour'; read it with a newer livegnn"),
        (V1, {"kind": GOOD["kind"], "u": GOOD["u"]}, "bytes that are none"),
        (V1, {**GOOD, "weight": pa.array([1.0])}, "column weight of a known type, got double"),
        (V1, {**GOOD, "kind": pa.array([8], pa.uint8())}, "kind of update from 0 to 7, got 8"),
        (V1, {**GOOD, "kind": pa.array([None], pa.uint8())}, "nulls in column kind"),
        (V1, {**GOOD, "v": pa.array(["a"]).dictionary_encode()}, "known type"),
        (V1, {**GOOD, "v": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["a"]))}, "different types"),
        (V1, {**GOOD, "row": pa.array([[1.0]])}, "column row of a known type"),
    ],
)
def test_what_is_not_understood_is_refused(metadata, columns, says):
    with pytest.raises(LogDamaged, match=DAMAGED) as refused:
        codec.decode("history", 7, stream_of(metadata, **columns))
    assert says in str(refused.value)


def test_a_payload_cut_short_is_refused():
    payload = codec.encode(every_kind())
    for size in {0, 1, 100, len(payload) // 2, len(payload) - 100}:
        with pytest.raises(LogDamaged, match=DAMAGED):
            codec.decode("history", 7, payload[:size])


def test_no_bit_of_a_frame_may_flip():
    framed = frame.encode(7, "key", b"payload")
    assert frame.decode("history", 7, framed) == ("key", b"payload")
    for place in range(len(framed)):
        for bit in range(8):
            flipped = bytearray(framed)
            flipped[place] ^= 1 << bit
            with pytest.raises(LogDamaged, match=DAMAGED):
                frame.decode("history", 7, bytes(flipped))


def test_a_frame_cut_short_lengthened_or_in_the_wrong_place_is_refused():
    framed = frame.encode(7, "key", b"payload")
    for wrong in [framed[:size] for size in range(len(framed))] + [framed + b"x", frame.encode(8, "key", b"payload")]:
        with pytest.raises(LogDamaged, match=DAMAGED):
            frame.decode("history", 7, wrong)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda c: c.pop("kind"), KeyError),
        (lambda c: c.update(u=c["u"].astype(np.int32)), TypeError),
        (lambda c: c.update(time=c["time"][1:]), WidthMismatch),
        (lambda c: c.update(rows=c["rows"][1:]), WidthMismatch),
        (lambda c: c.update(row_width=c["row_width"] + 1), WidthMismatch),
        (lambda c: c.update(kind=c["kind"] + np.uint8(8)), ValueInvalid),
    ],
)
def test_columns_that_do_not_fit_each_other_are_refused(change, error):
    columns, keys, types = every_kind().to_columns()
    same(lg.Updates.from_columns(columns, keys, types), every_kind())
    change(columns)
    with pytest.raises(error):
        lg.Updates.from_columns(columns, keys, types)


def typed():
    updates = lg.Updates()
    updates.add_vertex(0, [1.0], vertex_type="User")
    updates.add_vertices([0, 1], [[1.0, 2.0], [3.0, 4.0]], vertex_type=1)
    updates.add_edge(0, 1, edge_type=("User", "Click", "Item"))
    updates.add_edges([0, 0], [0, 1], edge_type="Click")
    updates.remove_edge(0, 1, edge_type="Click")
    updates.set_features(0, [2.0], vertex_type="User")
    return updates


def test_names_of_types_come_back():
    same(codec.decode("history", 0, codec.encode(typed())), typed())


@pytest.mark.parametrize("names", [b"[]", b'["Click"]', b'[["a", "b"]]', b"[1, 2, 3]", b"{", b'["a", "a", "a"]'])
def test_names_of_types_that_are_damaged_are_refused(names):
    with pa.ipc.open_stream(codec.encode(typed())) as stream:
        table = stream.read_all()
    assert b"livegnn.types" in table.schema.metadata
    sink = pa.BufferOutputStream()
    schema = table.schema.with_metadata({**table.schema.metadata, b"livegnn.types": names})
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(table.replace_schema_metadata(schema.metadata))
    with pytest.raises(LogDamaged, match=DAMAGED):
        codec.decode("history", 7, sink.getvalue().to_pybytes())


# ---- switches


SWITCH = Switch(
    "a name",
    "swap",
    {"scales": [[3, -4], [20]], "model": {"eps": 0.1}},
    {"w": np.float32([[1.5, -0.0], [1e-45, np.inf]]), "none": np.zeros((0, 3), np.float32), "one": np.float32(7)[None]},
)


def test_a_switch_comes_back():
    quiet = np.array([0x7FC01234, 0xFFC00001], np.uint32).view(np.float32)  # payloads of NaNs
    given = SWITCH._replace(arrays=SWITCH.arrays | {"nan": quiet, "": quiet[::-1]})
    found = codec.decode("history", 0, codec.encode(given))
    assert found[:3] == given[:3]
    assert [*found.arrays] == [*given.arrays]
    for name, array in given.arrays.items():
        assert (found.arrays[name].shape, found.arrays[name].tobytes()) == (array.shape, array.tobytes())
    empty = Switch("", "rescale", {"scales": []}, {})
    assert codec.decode("history", 0, codec.encode(empty)) == empty


def test_livegnn_0_1_refuses_a_switch_by_its_schema():
    with pa.ipc.open_stream(codec.encode(SWITCH)) as stream:  # it reads batches of schema 1 alone
        assert stream.schema.metadata[b"livegnn.schema"] == b"2"


def test_a_damaged_switch_is_refused():
    payload = codec.encode(SWITCH)
    for size in {0, 1, 100, len(payload) // 2, len(payload) - 100}:
        with pytest.raises(LogDamaged, match=DAMAGED):
            codec.decode("history", 7, payload[:size])
    columns = {"array": pa.array(["w"]), "shape": pa.array([[2]], pa.large_list(pa.int64()))}
    columns |= {"values": pa.array([[1.0]], pa.large_list(pa.float32()))}
    about = '{"name": "", "kind": "swap", "data": {}}'
    for text, wrong in (
        (about, {}),  # a value is missing
        (about, {"values": pa.array([[1.0, 2.0]])}),
        (about.replace("{}", "3"), {"shape": pa.array([[1]], pa.large_list(pa.int64()))}),
        ("{", {"shape": pa.array([[1]], pa.large_list(pa.int64()))}),
    ):
        metadata = {"livegnn.schema": "2", "livegnn.switch": text}
        with pytest.raises(LogDamaged, match=DAMAGED):
            codec.decode("history", 7, stream_of(metadata, **(columns | wrong)))
