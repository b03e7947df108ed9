"""Errors in fields: from their text, from the core, by the caller's ids, and over a process's border."""

import json
import pickle

import numpy as np
import pytest

import livegnn as lg
from livegnn import errors
from livegnn.errors import EdgeMissing, LiveGnnError, ModelUnsupported, RangeOverflow, UpdateError, ValueInvalid

TEXT = "[predict] expected ids below 120, got 500; add the vertex first"
PARTS = {"where": "predict", "expected": "ids below 120", "got": "500", "advice": "add the vertex first"}
FACTS = {**PARTS, "subject": "add_edge 3 -> 5", "update": 4, "vertex": "ann", "edge": (3, 5)}


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_has_its_fields_and_keeps_them(name):
    kind = getattr(errors, name)
    from_text, from_facts = kind(TEXT), kind(**FACTS)
    assert str(from_text) == TEXT
    assert from_text.facts() == PARTS
    assert str(from_facts) == TEXT.replace("] expected", "] update 4 (add_edge 3 -> 5): expected")
    assert from_facts.facts() == FACTS
    for error in (from_text, from_facts):
        facts = json.loads(json.dumps(error.facts()))
        for other in (pickle.loads(pickle.dumps(error)), errors.of_kind(name, str(error), facts)):
            assert type(other) is kind
            assert (str(other), other.facts()) == (str(error), error.facts())
    bare = kind()
    assert str(bare) == ""
    assert set(bare.facts()) <= {"advice"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("no form at all", {}),
        ("[a[0]] expected b, got c; d", {}),  # where ends at one of two places
        ("[a] expected b] expected c, got d; e", {}),
        ("[a] expected b, got c, got d; e", {"where": "a"}),
        ("[a] expected b, got c; d; e", {"where": "a", "expected": "b"}),
        ("[a] expected b, got c", {"where": "a", "expected": "b", "got": "c"}),
        ("[a] expected b", {"where": "a"}),
    ],
)
def test_a_part_that_could_be_cut_in_two_ways_is_unknown(text, facts):
    assert LiveGnnError(text).facts() == facts
    assert EdgeMissing(text).facts() == {"advice": EdgeMissing.advice, **facts}  # of its kind


def test_an_error_in_other_words():
    error = EdgeMissing(**FACTS)
    assert error.reworded("anything").facts() == FACTS
    other = error.reworded(where="replay", update=9)
    assert str(other) == "[replay] update 9 (add_edge 3 -> 5): expected ids below 120, got 500; add the vertex first"
    assert type(other) is EdgeMissing
    assert (other.where, other.update, other.vertex) == ("replay", 9, "ann")


def test_an_unknown_kind_is_an_update_error():
    assert type(errors.of_kind("KeyError", "text", {})) is UpdateError
    assert type(errors.of_kind("Facts", "text", {})) is UpdateError


def one(method, *arguments):
    """A batch of one update."""
    updates = lg.Updates()
    getattr(updates, method)(*arguments)
    return updates


def refused(graph, updates):
    with pytest.raises(UpdateError) as caught:
        graph.apply(updates)
    return caught.value


def test_the_core_says_which_update_which_edge_and_what_it_expected():
    graph = lg.Graph(np.zeros((3, 2), np.float32), [0], [1])
    updates = lg.Updates()
    updates.add_edge(1, 2)
    updates.remove_edge(2, 0)
    error = refused(graph, updates)
    assert error.facts() == {
        "where": "apply",
        "subject": "remove_edge 2 -> 0",
        "update": 1,
        "edge": (2, 0),
        "expected": "an edge",
        "got": "none",
        "advice": 'add it first, or pass missing="ignore"',
    }
    assert str(error) == str(EdgeMissing(**error.facts()))
    error = refused(graph, one("add_edge", 0, 7))
    assert (error.vertex, error.edge, error.got) == (7, (0, 7), "7")
    error = refused(graph, one("set_features", 1, [0.0]))
    assert (error.vertex, error.expected) == (1, "a row of 2 floats")


def test_fields_name_vertices_by_the_ids_of_the_graph():
    graph = lg.Graph(np.zeros((3, 2), np.float32), ["a"], ["b"], ids=["a", "b", "c"])
    updates = lg.Updates()
    updates.add_edge("a", "c")
    updates.remove_edge("c", "b")
    error = refused(graph, updates)
    assert (error.update, error.edge, error.got) == (1, ("c", "b"), "none")
    assert str(error).endswith("(by the graph's ids: 'c' -> 'b')")
    error = refused(graph, one("set_features", "b", [0.0]))
    assert (error.update, error.vertex) == (0, "b")


def test_an_engine_names_the_vertex():
    graph = lg.Graph(np.ones((2, 1), np.float32), ["a"], ["b"], ids=["a", "b"])
    engine = lg.Engine(lg.Model([lg.layers.SAGE(np.ones((1, 1)), np.ones((1, 1)), np.zeros(1))]), graph)
    with pytest.raises(RangeOverflow) as caught:
        engine.apply(one("set_features", "a", [1e30]))
    assert (caught.value.where, caught.value.vertex) == ("apply", "a")
    assert "rescale" in caught.value.advice


def test_errors_of_arguments_and_models_have_their_parts():
    with pytest.raises(ValueInvalid) as caught:
        lg.Updates().add_edge(-1, 2)
    assert (caught.value.where, caught.value.got) == ("add_edge, update 0", "-1")
    error = ModelUnsupported("[from_pyg] expected a, got b; c")
    assert (error.expected, error.got, error.advice) == ("a", "b", "c")
