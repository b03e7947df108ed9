"""Ids of any text, and of any number: refused where they come in, or whole after a file, a log, a table and HTTP."""

import json
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn import serve
from livegnn.errors import DtypeInvalid, UpdateError, ValueInvalid
from livegnn.graph.checks import shown
from livegnn.log import codec
from tests.serve.client import Client, error_of

texts = st.text(st.characters(), max_size=20) | st.text(st.sampled_from("a\0\ud800\udfff\ue000é😀 "), max_size=4)
QUERY = lg.query().out().sample(2)


class Shouted(str):
    """An id whose own text is another, as that of a (str, Enum)."""

    def __str__(self):
        return self.upper()


def graph_of(*names):
    return lg.Graph(np.eye(len(names), 2, dtype=np.float32), list(names[:1]), list(names[-1:]), ids=list(names))


def engine_of(graph):
    return lg.Engine(lg.Model([lg.layers.GCN(np.eye(2, dtype=np.float32))]), graph)


def is_utf8(text):
    return not any("\ud800" <= character <= "\udfff" for character in text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ids")


@settings(max_examples=150, deadline=None)
@given(texts)
@example("")
@example("\0")
@example("x\0")
@example("\ud83d\ude00")  # two surrogates do not make a character
@example("x" * 100_000)
def test_a_string_id_is_refused_or_comes_back(folder, name):
    if not is_utf8(name):
        with pytest.raises(ValueInvalid, match=re.escape(shown(name))):
            graph_of("there", name)
        assert_refused_by_every_door(name)
        return
    graph = graph_of("there", "gone" + name)
    engine = engine_of(graph)
    updates = lg.Updates()
    updates.add_vertex(name + "new", [1.0, 2.0])
    updates.add_edge(name + "new", "there")
    updates.remove_vertex("gone" + name)
    engine.apply(codec.decode("log", 0, codec.encode(updates)))
    engine.save(folder / "engine")
    loaded = lg.Engine.load(folder / "engine")
    found = loaded.graph.vertices().tolist()
    assert found == graph.vertices().tolist() == ["there", name + "new"]
    assert all(type(each) is str for each in found)
    assert loaded.state_digest() == engine.state_digest()
    with lg.SampleServer(lg.PreSampler(graph, QUERY)) as server:
        client = Client(serve.app(server, token="t"))
        found = client.post("/v1/sample", {"seeds": [name + "new"]}, headers={"authorization": "Bearer t"})
    assert found.json()["hops"] == [[["there", None]]]


def assert_refused_by_every_door(name):
    graph, updates = graph_of("a", "b"), lg.Updates()
    shown_name = re.escape(repr(name)[:40].strip("'\""))
    x = [0.0, 0.0]
    for door in (
        lambda: updates.add_vertex(name, x),
        lambda: updates.add_vertices([name], [x]),
        lambda: updates.add_vertices(np.array([name + "."]), [x]),
        lambda: updates.add_edge("a", name),
        lambda: updates.add_edges(["a"], [name]),
        lambda: updates.remove_edge(name, "a"),
        lambda: updates.set_weight(name, "a", 1.0),
        lambda: updates.set_features(name, x),
        lambda: updates.remove_vertex(name),
        lambda: updates.remove_vertices([name]),
        lambda: graph.features([name]),
        lambda: lg.PreSampler(graph, QUERY).sample([name]),
        lambda: lg.Updates.from_pandas(frame({"src": ["a"], "dst": [name]})),
    ):
        with pytest.raises(ValueInvalid, match=shown_name) as refused:
            door()
        assert "surrogate" in str(refused.value)
    assert len(updates) == 0
    for kind in ({name: np.eye(2, dtype=np.float32)}, {"a": np.eye(2, dtype=np.float32)}):
        key = (next(iter(kind)), name, next(iter(kind)))
        with pytest.raises(ValueInvalid, match="surrogate"):
            lg.Graph(kind, {key: [0]}, {key: [1]})
    for typed in (
        lambda: updates.add_edge("a", "b", edge_type=name),
        lambda: updates.add_edge("a", "b", edge_type=("a", name, "a")),
        lambda: updates.add_vertex("c", x, vertex_type=name),
    ):
        with pytest.raises(ValueInvalid, match="surrogate"):
            typed()


def frame(columns):
    return pytest.importorskip("pandas").DataFrame(columns, dtype=object)


def test_http_refuses_what_json_writes_as_an_escape(tmp_path):
    graph = graph_of("a", "b")
    with lg.SampleServer(lg.PreSampler(graph, QUERY)) as server:
        client = Client(serve.app(server, token="t"))
        headers = {"authorization": "Bearer t", "content-type": "application/json"}
        update = {"op": "add_vertex", "u": "\ud800", "x": [0, 0]}
        for body in (json.dumps, lambda document: json.dumps(document, ensure_ascii=False)):
            raw = body({"updates": [update]}).encode("utf-8", "surrogatepass")
            refused = error_of(client.post("/v1/updates", raw, headers=headers), 400)
            assert refused["kind"] == "BodyInvalid"
            assert re.search("surrogate|utf-8", refused["message"].lower())
            raw = body({"seeds": ["\ud800"]}).encode("utf-8", "surrogatepass")
            assert error_of(client.post("/v1/sample", raw, headers=headers), 400)["kind"] == "BodyInvalid"
    assert graph.version == 0
    engine_of(graph).save(tmp_path / "engine")


def test_arrow_text_that_is_no_utf8_is_refused():
    pa = pytest.importorskip("pyarrow")
    offsets, data = pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe")
    column = pa.Array.from_buffers(pa.utf8(), 2, [None, offsets, data])
    with pytest.raises(ValueInvalid, match=r"UTF-8 in column 'dst', got b'\\xff\\xfe'"):
        lg.Updates.from_arrow(pa.table({"src": pa.array(["a", "b"]), "dst": column}))


def test_subclasses_of_str_are_ids_by_their_characters(tmp_path):
    graph = graph_of("r", np.str_("b"))
    updates = lg.Updates()
    updates.set_features(Shouted("r"), [5.0, 6.0])
    updates.add_edges([Shouted("r")], [np.str_("b")])
    graph.apply(updates)
    assert graph.features([Shouted("r")]).tolist() == [[5.0, 6.0]]
    engine_of(graph).save(tmp_path / "engine")
    found = lg.Engine.load(tmp_path / "engine").graph.vertices()
    assert [(type(each), each) for each in found] == [(str, "r"), (str, "b")]


@pytest.mark.parametrize(
    ("wrong", "expected", "named"),
    [
        ([0, True], DtypeInvalid, "True of bool at row 1"),
        ([np.bool_(True), 0], DtypeInvalid, "of bool at row 0"),
        ([True, False], DtypeInvalid, "dtype bool"),
        ([0, 1.0], DtypeInvalid, "dtype float64"),
        ([0, float("nan")], DtypeInvalid, "dtype float64"),
        ([0, 2**63], ValueInvalid, "9223372036854775808 at row 1"),
        ([0, -(2**70)], ValueInvalid, "-1180591620717411303424 at row 1"),
        (np.array([0, 2**63], np.uint64), ValueInvalid, "9223372036854775808 at row 1"),
        ([0, -1], ValueInvalid, "-1 at row 1"),
        ([0, None], DtypeInvalid, "dtype object"),
        ([b"a", b"b"], DtypeInvalid, "dtype"),
        (["a", 1], DtypeInvalid, "1 of int at row 1"),
        (["a", None], DtypeInvalid, "None of NoneType at row 1"),
    ],
)
def test_what_is_no_id_is_refused_by_name(wrong, expected, named):
    with pytest.raises(expected, match=re.escape(named)):
        lg.Graph(np.eye(2, dtype=np.float32), [], [], ids=wrong)
    updates = lg.Updates()
    with pytest.raises(expected, match=re.escape(named)):
        updates.add_vertices(wrong, np.eye(2, dtype=np.float32))
    assert len(updates) == 0


@given(st.lists(st.integers(-2, 2**64) | st.booleans() | st.floats() | st.none(), min_size=1, max_size=3))
@settings(deadline=None)
def test_a_number_is_an_id_or_refused(wrong):
    good = all(type(each) is int and 0 <= each < 2**63 for each in wrong) and len(set(wrong)) == len(wrong)
    rows = np.zeros((len(wrong), 1), np.float32)
    if good:
        assert lg.Graph(rows, [], [], ids=wrong).vertices().tolist() == wrong
    else:
        with pytest.raises(UpdateError):
            lg.Graph(rows, [], [], ids=wrong)
