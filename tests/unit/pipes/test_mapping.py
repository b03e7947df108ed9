"""Rules of a source: what a record becomes, what is refused at the start, and which records are bad."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("msgspec")

import livegnn as lg
from livegnn.deployment.config import checked_config, printed
from livegnn.deployment.config_pipes import SourceConfig
from livegnn.deployment.pipes.mapping import SourceMapping
from livegnn.deployment.pipes.records import SourceRecord
from livegnn.errors import ColumnMissing, ValueInvalid
from tests.unit.deployment.world import ENGINES, graph

NONE = np.zeros(0, np.int64)


def rich_graph(ids=None):
    """Weights, times and attributes of two columns; features of two."""
    columns = {"weight": np.zeros(0, np.float32), "time": NONE, "edge_attr": np.zeros((0, 2), np.float32)}
    ends = [] if ids is not None else NONE
    return lg.Graph(np.zeros((5, 2), np.float32), ends, ends, **columns, ids=ids)


def typed_graph():
    x = np.zeros((4, 2), np.float32)
    return lg.Graph({"a": x, "b": x}, {("a", "to", "b"): NONE}, {("a", "to", "b"): NONE})


def source(*rules, kind="jsonl", **more):
    config = checked_config({**ENGINES, "source": [{"name": "s", "kind": kind, "path": "p", "update": rules, **more}]})
    (found,) = config.source
    assert isinstance(found, SourceConfig)
    return found


def built(rules, records, on=None, **more):
    mapping = SourceMapping(source(*rules, **more), on or graph())
    return mapping.build([SourceRecord("f", place, values) for place, values in enumerate(records, 1)])


RULE = {
    "op": "add_edge",
    "u": "from",
    "v": {"column": "to", "as": "integer"},
    "weight": {"column": "w", "default": 2},
    "time": "at",
    "edge_attr": ["p", "q"],
}


def test_an_edge_with_all_it_may_have():
    record = {"from": "1", "to": "2", "at": "1970-01-01T00:00:01Z", "p": "0.5", "q": 3}
    found = built([RULE], [record], rich_graph())
    wanted = lg.Updates()
    wanted.add_edge(1, 2, weight=2.0, time=1_000_000, edge_attr=[0.5, 3.0])
    one, other = rich_graph(), rich_graph()
    one.apply(found.updates)
    other.apply(wanted)
    assert one.digest() == other.digest()
    assert found.ends == [1]


@pytest.mark.parametrize(
    ("rule", "record", "wanted"),
    [
        (
            {"op": "remove_edge", "u": "u", "v": "v", "missing": "ignore"},
            {"u": 1, "v": 2},
            ("remove_edges", ([1], [2])),
        ),
        ({"op": "set_features", "u": "u", "x": "x"}, {"u": 1, "x": [1, 2, 3, 4]}, ("set_features", (1, [1, 2, 3, 4]))),
        ({"op": "add_vertex", "u": "u", "x": {"value": [0, 0, 0, 1]}}, {"u": 30}, ("add_vertex", (30, [0, 0, 0, 1]))),
        ({"op": "remove_vertex", "u": "a.b"}, {"a": {"b": 3}}, ("remove_vertex", (3,))),
    ],
)
def test_each_op_is_that_of_updates(rule, record, wanted):
    name, arguments = wanted
    updates = lg.Updates()
    getattr(updates, name)(*arguments, **({"missing": "ignore"} if name == "remove_edges" else {}))
    one, other = graph(), graph()
    one.apply(built([rule], [record]).updates)
    other.apply(updates)
    assert one.digest() == other.digest()


def test_types_are_named():
    rules = [
        {"op": "add_edge", "u": "u", "v": "v", "edge_type": {"value": "to"}, "when": {"kind": "edge"}},
        {"op": "set_features", "u": "u", "x": ["x", "x"], "vertex_type": "type", "when": {"kind": ["row", 7]}},
    ]
    records = [{"kind": "edge", "u": 0, "v": 1}, {"kind": 7, "u": 2, "x": 1, "type": "b"}, {"kind": "none"}]
    found = built(rules, records, typed_graph())
    assert found.ends == [1, 2]
    assert [reason for _, reason in found.bad] == ["[when] expected a record that a rule fits, got one that none does"]
    on = typed_graph()
    on.apply(found.updates)
    assert on.features([2], vertex_type="b").tolist() == [[1, 1]]
    assert not built(rules, records, typed_graph(), unmatched="skip").bad


def test_a_record_stands_or_falls_whole():
    rules = [{"op": "add_edge", "u": "u", "v": "v"}, {"op": "set_features", "u": "u", "x": "x"}]
    records = [{"u": 1, "v": 2, "x": [1, 1, 1, 1]}, {"u": 1, "v": 2, "x": ["y"]}, {"u": 3, "v": 4, "x": [2, 2, 2, 2]}]
    found = built(rules, records)
    assert found.ends == [2, 4]
    assert [record.place for record, _ in found.bad] == [2]


def test_a_vertex_that_is_there_may_be_left_as_it_is():
    rules = [
        {"op": "add_vertex", "u": "u", "x": {"value": [0, 0, 0, 0]}, "exists": "ignore"},
        {"op": "remove_vertex", "u": "u", "when": {"gone": True}},
    ]
    records = [{"u": 3}, {"u": 30}, {"u": 30}, {"u": 30, "gone": True}, {"u": 30}]
    found = built(rules, records)
    assert found.ends == [0, 1, 1, 2, 3]
    graph().apply(found.updates)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"op": "add_edge", "u": "u"}, r"rule 1 \(add_edge\)\] expected u, v, got no v"),
        ({"op": "add_edge", "u": "u", "v": "v", "x": "x"}, "expected arguments among u, v, weight, .* got 'x'"),
        ({"op": "add_edge", "u": "u", "v": ["a", "b"]}, "expected one column for v, got several"),
        ({"op": "add_edge", "u": "u", "v": {"value": 1.5}}, "expected a whole number, got 1.5 for v"),
        ({"op": "add_edge", "u": "u", "v": {"column": "v", "value": 1}}, "expected one of column, columns and value"),
        ({"op": "add_edge", "u": "u", "v": "v", "missing": "ignore"}, "expected missing with remove_edge alone"),
        ({"op": "set_features", "u": "u", "x": {"column": "x", "as": "number"}}, "expected no cast for x"),
    ],
)
def test_rules_that_cannot_be_are_refused(rule, expected):
    with pytest.raises(ValueInvalid, match=expected):
        SourceMapping(source(rule), graph())


@pytest.mark.parametrize(
    ("rule", "on", "expected"),
    [
        ({**RULE, "weight": None}, rich_graph, "expected weight, which the graph has, got none"),
        ({"op": "add_edge", "u": "u", "v": "v", "time": "t"}, graph, "expected no time, which the graph does not have"),
        ({"op": "set_weight", "u": "u", "v": "v", "w": "w"}, graph, "expected no w, which the graph does not have"),
        ({"op": "set_features", "u": "u", "x": "x"}, typed_graph, "expected vertex_type, which the graph has"),
        ({"op": "remove_edge", "u": "u", "v": "v"}, typed_graph, "expected edge_type, which the graph has"),
    ],
)
def test_rules_that_do_not_fit_the_graph_are_refused(rule, on, expected):
    with pytest.raises(ColumnMissing, match=expected):
        SourceMapping(source({key: value for key, value in rule.items() if value is not None}), on())


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"kind": "csv"}, "expected path in source 's', got none"),
        ({"kind": "csv", "path": "p", "url": "kafka://h/t"}, "expected keys of kind 'csv' in source 's', got 'url'"),
        ({"kind": "stdin", "watch": False}, "expected keys of kind 'stdin' in source 's', got 'watch'"),
        ({"kind": "kafka", "url": "nats://h/t"}, "expected a url that begins with kafka:// in source 's'"),
        ({"kind": "carrier pigeon", "path": "p"}, "carrier pigeon"),
        ({"kind": "csv", "path": "p", "batch": 0}, "batch"),
        ({"kind": "csv", "path": "p", "paths": "p"}, "paths"),
    ],
)
def test_keys_of_a_source_are_strict(document, expected):
    with pytest.raises(ValueInvalid, match=expected):
        checked_config({**ENGINES, "source": [{"name": "s", "update": [RULE], **document}]})


def test_keys_of_a_sink_are_strict():
    sink = {"name": "s", "kind": "webhook", "url": "http://h"}
    for wrong, expected in (
        ({"engine": "other"}, "expected the engine of sink 's' among scores, got 'other'"),
        ({"secret_file": "a", "secret_env": "b"}, "expected one of secret_file and secret_env"),
        ({"path": "p"}, "expected keys of kind 'webhook' in sink 's', got 'path'"),
    ):
        with pytest.raises(ValueInvalid, match=expected):
            checked_config({**ENGINES, "sink": [{**sink, **wrong}]})
    with pytest.raises(ValueInvalid, match="names of their own, got 's' twice"):
        checked_config({**ENGINES, "sink": [sink, sink]})


def test_a_printed_configuration_has_its_pipes():
    import tomllib

    rules = [{**RULE, "when": {"a b": [1, "x"]}}, {"op": "remove_vertex", "u": "u"}]
    sink = {"name": "t", "kind": "kafka", "url": "kafka://h:9/t", "type": "a", "class": 1, "above": 0.5, "ids": [1]}
    options = {"security.protocol": "ssl"}
    config = checked_config(
        {
            **ENGINES,
            "source": [{"name": "s", "kind": "kafka", "url": "kafka://h/t", "update": rules, "options": options}],
            "sink": [sink],
        }
    )
    assert checked_config(tomllib.loads(printed(config))) == config


# ---- any record

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["1", "2", "29", "1.0", "nan", "", "2026-01-01"]),
    st.lists(st.one_of(st.floats(), st.integers(-3, 3), st.text(max_size=1)), max_size=5),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 40), max_size=2),
)
FIELDS = st.one_of(
    st.sampled_from(["a", "b", "c", "a.b"]),
    st.builds(
        lambda column, cast, default: (
            {"column": column, "as": cast} | ({} if default is None else {"default": default})
        ),
        st.sampled_from("abc"),
        st.sampled_from(["", "integer", "number", "text", "time"]),
        st.sampled_from([None, 1, "x", 0.5]),
    ),
    st.builds(lambda value: {"value": value}, st.sampled_from([1, "1", 2.5, True, [1, 2, 3, 4]])),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
)
RULES = st.builds(
    lambda op, fields, when: {"op": op, **fields, "when": when},
    st.sampled_from(["add_edge", "remove_edge", "set_features", "add_vertex", "remove_vertex"]),
    st.fixed_dictionaries({"u": FIELDS}, optional={"v": FIELDS, "x": FIELDS}),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, "1", True]), max_size=1),
)


@settings(max_examples=150, deadline=None)
@given(rules=st.lists(RULES, min_size=1, max_size=2), records=st.lists(st.dictionaries(st.sampled_from("abc"), VALUES)))
def test_any_record_is_good_or_bad_and_never_a_crash(rules, records):
    try:
        mapping = SourceMapping(source(*rules), graph())
    except (ValueInvalid, ColumnMissing):
        return
    given_records = [SourceRecord("f", place, values) for place, values in enumerate(records, 1)]
    found = mapping.build(given_records)
    assert len(found.good) + len(found.bad) == len(records)
    assert all(reason for _, reason in found.bad)
    assert found.ends == sorted(found.ends)
    assert (found.ends or [0])[-1] == len(found.updates)
    one_by_one = lg.Updates()
    for record in found.good:
        if not mapping.ignores_known:
            one_by_one.extend(mapping.build([record]).updates)
    assert len(one_by_one) == len(found.updates)
