"""Queries in Python: immutable values that read as the code that makes them; mistakes refused where they are made."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LiveGnnError, QueryInvalid
from livegnn.sampling import Hop, OpenHop, Query

SHOP = lg.query("User").out("Click").sample(25, by="random").out("CoPurchase").sample(10, by="top_k")


def test_a_query_is_its_hops():
    assert SHOP.vertex_type == "User"
    assert SHOP.hops == (Hop("out", "Click", 25, "random"), Hop("out", "CoPurchase", 10, "top_k"))


def test_each_call_gives_a_new_value():
    begun = lg.query("User")
    opened = begun.out("Click")
    opened.sample(5)
    opened.sample(7)
    begun.in_("Follows").sample(1)
    assert begun == lg.query("User")
    assert begun.hops == ()
    assert opened == begun.out("Click")
    assert isinstance(opened, OpenHop)
    with pytest.raises(AttributeError):
        begun.vertex_type = "Item"


def test_equal_queries_are_equal_and_hash_alike():
    again = lg.query("User").out("Click").sample(25, by="random").out("CoPurchase").sample(10, by="top_k")
    assert again == SHOP
    assert len({again, SHOP}) == 1
    others = [
        lg.query("Item").out("Click").sample(25, by="random").out("CoPurchase").sample(10, by="top_k"),
        lg.query("User").in_("Click").sample(25, by="random").out("CoPurchase").sample(10, by="top_k"),
        lg.query("User").out("Click").sample(24, by="random").out("CoPurchase").sample(10, by="top_k"),
        lg.query("User").out("Click").sample(25, by="random").out("CoPurchase").sample(10, by="weighted"),
        lg.query("User").out("Click").sample(25, by="random"),
    ]
    assert len({SHOP, *others}) == 6


@pytest.mark.parametrize(
    "code",
    [
        "lg.query()",
        "lg.query('User', alias='Seed')",
        "lg.query().out().sample(25, by='random').in_(3).sample(10, by='weighted')",
        "lg.query('User').both(('User', 'Follows', 'User')).sample(65535, by='top_k')",
        "lg.query('User').out('it\\'s')",
    ],
)
def test_repr_reads_as_the_code_that_makes_it(code):
    made = eval(code)
    assert eval(repr(made)) == made
    assert "\\" in code or repr(made) == code


def test_the_default_strategy_is_random():
    assert lg.query().out().sample(3) == lg.query().out().sample(3, by="random")


class Relation(enum.StrEnum):
    CLICK = "Click"


def test_names_of_an_enum_are_their_strings():
    assert repr(lg.query(Relation.CLICK).out(Relation.CLICK)) == "lg.query('Click').out('Click')"


def test_numbers_and_strings_of_numpy_are_taken_as_pythons_own():
    plain = lg.query("User").out(3).sample(25)
    numpy = lg.query(np.str_("User")).out(np.int64(3)).sample(np.int32(25))
    assert numpy == plain
    assert repr(numpy) == repr(plain)
    assert numpy.to_json() == plain.to_json()


REFUSED: list[tuple[Callable[[], object], str, str, str]] = [
    # the call, what it is told, the text shown, the part of it above the carets
    (
        lambda: lg.query("User").sample(5),
        "[query, hop 1] expected a direction before .sample(5), got none; put .out(...) before it",
        "g.V('User', ID).sample(5)",
        ".sample(5)",
    ),
    (
        lambda: lg.query("User").out("Click").in_("Follows"),
        "[query, hop 1] expected .sample(fan-out) after .out('Click'), got a second direction; "
        "put .sample(...) between",
        "g.V('User', ID).OutV('Click').InV('Follows')",
        ".InV('Follows')",
    ),
    (
        lambda: lg.query("User").out("Click").sample(0),
        "[query, hop 1] expected a fan-out from 1 to 65535, got 0; name how many",
        "g.V('User', ID).OutV('Click').sample(0)",
        "0",
    ),
    (
        lambda: lg.query().out().sample(2, by="topk"),
        "[query, hop 1] expected by= one of 'random', 'top_k', 'weighted', got 'topk'; did you mean 'top_k'?",
        "g.V(ID).OutV().sample(2).by('topk')",
        "'topk'",
    ),
    (
        lambda: lg.query().out().sample(2).both(-1),
        "[query, hop 2] expected an edge type as a name, a triple (src, relation, dst) or an integer from 0 to "
        "2147483647, got -1; leave it out for all edges",
        "g.V(ID).OutV().sample(2).by('Random').BothV(-1)",
        "-1",
    ),
]


@pytest.mark.parametrize(("call", "told", "shown", "pointed"), REFUSED)
def test_a_refusal_points_at_the_place(call, told, shown, pointed):
    with pytest.raises(QueryInvalid) as caught:
        call()
    carets = " " * shown.index(pointed) + "^" * len(pointed)
    assert str(caught.value) == f"{told}\n    {shown}\n    {carets}"
    assert isinstance(caught.value, LiveGnnError)
    assert not caught.value.retryable


@pytest.mark.parametrize("direction", ["out", "in_", "both"])
@pytest.mark.parametrize("second", ["out", "in_", "both"])
def test_two_directions_in_a_row_are_refused(direction, second):
    opened = getattr(lg.query(), direction)()
    with pytest.raises(QueryInvalid, match=rf"expected \.sample\(fan-out\) after \.{direction}\(\)"):
        getattr(opened, second)("Click")


@pytest.mark.parametrize(
    "fanout", [0, -1, 65536, pytest.param(10**5000, id="huge"), None, True, 2.0, "3", [1], np.eye(2)]
)
def test_a_fanout_outside_its_domain_is_refused(fanout):
    with pytest.raises(QueryInvalid, match="expected a fan-out from 1 to 65535") as caught:
        lg.query().out().sample(fanout)
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(QueryInvalid, match="expected a fan-out from 1 to 65535"):
        Hop("out", None, fanout, "random")


@pytest.mark.parametrize("fanout", [1, 65535])
def test_the_ends_of_the_domain_are_taken(fanout):
    assert lg.query().out().sample(fanout).hops[0].fanout == fanout


@pytest.mark.parametrize(
    "edge_type", ["", "a\nb", -1, 2**31, True, 1.5, b"x", ("a", "b"), ("a", "b", ""), ["a", "b", "c"]]
)
def test_an_edge_type_outside_its_domain_is_refused(edge_type):
    with pytest.raises(QueryInvalid, match=r"\[query, hop 1\]"):
        lg.query().in_(edge_type)
    with pytest.raises(QueryInvalid, match=r"\[Hop\]"):
        Hop("out", edge_type, 1, "random")


@pytest.mark.parametrize("by", ["Random", "top k", None, 3, ""])
def test_an_unknown_strategy_is_refused(by):
    with pytest.raises(QueryInvalid, match="expected by= one of 'random', 'top_k', 'weighted'"):
        lg.query().out().sample(3, by=by)
    with pytest.raises(QueryInvalid, match="expected by= one of"):
        Hop("out", None, 3, by)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vertex_type": ""}, "expected a vertex type as a non-empty string"),
        ({"vertex_type": 3}, "expected a vertex type as a non-empty string"),
        ({"alias": "a\tb"}, "expected an alias as a non-empty string"),
        ({"hops": [Hop("out", None, 1, "random")]}, "expected a tuple of Hop"),
        ({"hops": ("out",)}, "expected a tuple of Hop"),
        ({"hops": (Hop("out", None, 1, "random"),) * 17}, "expected at most 16 hops, got 17"),
    ],
)
def test_a_query_made_by_hand_is_checked_too(arguments: dict[str, Any], message: str):
    with pytest.raises(QueryInvalid, match=message):
        Query(**arguments)


def test_an_unknown_direction_is_refused():
    with pytest.raises(QueryInvalid, match="expected a direction 'out', 'in_' or 'both', got 'sideways'"):
        Hop("sideways", None, 1, "random")


def test_a_query_has_at_most_sixteen_hops():
    deep = lg.query()
    for _ in range(16):
        deep = deep.out().sample(1)
    with pytest.raises(QueryInvalid, match=r"\[query, hop 17\] expected at most 16 hops, got 17") as caught:
        deep.out()
    assert max(map(len, str(caught.value).splitlines())) < 130  # the text is cut around the place
