"""Plans: one-hop queries, what feeds what, numbers that stay, and queries that a graph cannot answer."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import QueryInvalid, UsageError
from livegnn.sampling import EdgeType, OneHop, Plan, Query, Schema
from livegnn.sampling.queries.plan import plan

SHOP = Schema(
    ("User", "Item", "Shop"),
    {
        "Click": EdgeType(0, "Click", "User", "Item"),
        "CoPurchase": EdgeType(1, "CoPurchase", "Item", "Item"),
        "Follows": EdgeType(2, "Follows", "User", "User"),
        "Shop__Sells__Item": EdgeType(3, "Sells", "Shop", "Item"),
        "User__Sells__Item": EdgeType(4, "Sells", "User", "Item"),
    },
    has_time=True,
    feature_width={"User": 128, "Item": 64, "Shop": 8},
)
UNTYPED = Schema()
INTEGERS = Schema(integer_types=True, has_weight=True)
CLICKS = lg.query("User").out("Click").sample(25, by="random")
RELATED = CLICKS.out("CoPurchase").sample(10, by="top_k")


def one_hops(query, schema):
    made = plan(query, schema)
    return [made.one_hop(table) for table in made.queries[0].tables]


def test_the_papers_query_becomes_two_one_hop_queries():
    made = plan(RELATED, SHOP)
    assert made.one_hop(1) == OneHop(1, 0, "out", 25, "random", "User", "Item")
    assert made.one_hop(2) == OneHop(2, 1, "out", 10, "top_k", "Item", "Item")
    assert (made.feeds(1), made.feeds(2)) == ((2,), ())
    assert (made.fed_by(1), made.fed_by(2)) == ((), (1,))


def test_a_graph_without_types():
    expected = [OneHop(1, None, "in_", 5, "random", None, None), OneHop(2, None, "both", 3, "random", None, None)]
    assert one_hops(lg.query().in_().sample(5).both().sample(3), UNTYPED) == expected


def test_integer_types_are_their_own_codes():
    expected = [OneHop(1, 3, "out", 5, "weighted", None, None), OneHop(2, None, "out", 2, "random", None, None)]
    assert one_hops(lg.query().out(3).sample(5, by="weighted").out().sample(2), INTEGERS) == expected


def test_in_goes_from_destination_to_source():
    assert one_hops(lg.query("Item").in_("Click").sample(5), SHOP) == [OneHop(1, 0, "in_", 5, "random", "Item", "User")]


def test_a_triple_names_one_of_several_relations():
    found = one_hops(lg.query("User").out(("User", "Sells", "Item")).sample(5), SHOP)
    assert found == [OneHop(1, 4, "out", 5, "random", "User", "Item")]


def test_all_edges_of_a_typed_graph_lead_to_any_of_several_types():
    found = one_hops(lg.query("User").out().sample(5).out("CoPurchase").sample(2), SHOP)
    assert found[0] == OneHop(1, None, "out", 5, "random", "User", None)  # Item or User
    assert found[1] == OneHop(2, 1, "out", 2, "random", "Item", "Item")
    assert one_hops(lg.query("Shop").both().sample(5), SHOP) == [OneHop(1, None, "both", 5, "random", "Shop", "Item")]


def test_on_an_undirected_graph_all_directions_are_one():
    undirected = Schema(undirected=True)
    first, second = lg.query().in_().sample(5), lg.query().both().sample(5)
    made = Plan.of([first, second], undirected)
    assert made.tables == ((1, OneHop(1, None, "out", 5, "random", None, None)),)
    typed = Schema(("A", "B"), {"to": EdgeType(0, "to", "A", "B")}, undirected=True)
    assert one_hops(lg.query("B").out("to").sample(1).both("to").sample(1), typed) == [
        OneHop(1, 0, "out", 1, "random", "B", "A"),
        OneHop(2, 0, "out", 1, "random", "A", "B"),
    ]


def test_vertex_types_with_integer_edges_are_known_at_the_first_hop_only():
    schema = Schema(("A", "B"), integer_types=True)
    found = one_hops(lg.query("B").out(1).sample(2).out(2).sample(3), schema)
    assert [(hop.from_type, hop.to_type) for hop in found] == [("B", None), (None, None)]


def test_equal_one_hop_queries_at_the_same_hop_share_a_table():
    other = CLICKS.in_("Click").sample(5)
    made = Plan.of([RELATED, other, RELATED], SHOP)
    assert [planned.tables for planned in made.queries] == [(1, 2), (1, 3), (1, 2)]
    assert made.feeds(1) == (2, 3)
    assert made.queries_of(1) == (1, 2, 3)
    assert made.queries_of(3) == (2,)


def test_equal_one_hop_queries_at_different_hops_do_not():
    made = plan(lg.query().out().sample(5).out().sample(5), UNTYPED)
    assert made.queries[0].tables == (1, 2)


def test_a_table_may_be_fed_by_several():
    made = Plan.of([lg.query().out().sample(5).out().sample(9), lg.query().in_().sample(5).out().sample(9)], UNTYPED)
    assert [planned.tables for planned in made.queries] == [(1, 2), (3, 2)]
    assert made.fed_by(2) == (1, 3)


def test_numbers_stay_and_are_never_given_again():
    made = Plan.of([RELATED, CLICKS], SHOP).drop(1)
    assert [planned.number for planned in made.queries] == [2]
    assert [table.number for table in made.tables] == [1]
    made, number = made.add(RELATED)
    assert number == 3
    assert made.query(3).tables == (1, 3)
    assert Plan(SHOP).tables == ()


def test_a_plan_is_a_value():
    made = plan(RELATED, SHOP)
    made.add(CLICKS)
    made.drop(1)
    assert made == plan(RELATED, SHOP)
    assert hash(made) == hash(plan(RELATED, SHOP))
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("number", [0, 2, None])
def test_unknown_numbers_are_refused(number):
    made = plan(CLICKS, SHOP)
    for call in (made.query, made.drop):
        with pytest.raises(UsageError, match=r"\[plan\] expected the number of a running query \(1\)"):
            call(number)
    for call in (made.one_hop, made.feeds, made.fed_by, made.queries_of):
        with pytest.raises(UsageError, match=r"\[plan\] expected the number of a table \(1\)"):
            call(number)


REFUSED = [
    # the query, the schema, the message, the part of the text that the carets underline
    (
        "g.V('Usr').OutV().sample(1)",
        SHOP,
        "[plan, seeds] expected a vertex type, one of 'User', 'Item', 'Shop', got 'Usr'; did you mean 'User'?",
        "'Usr', ID",
    ),
    ("g.V().OutV().sample(1)", SHOP, "[plan, seeds] expected a vertex type for the seeds, one of", "ID"),
    (
        "g.V('User').OutV().sample(1)",
        UNTYPED,
        "[plan, seeds] expected no vertex type on a graph without them, got 'User'",
        "'User', ID",
    ),
    ("g.V('User')", SHOP, "[plan] expected at least one hop, got none", ""),
    ("g.V('User').OutV('Clik').sample(1)", SHOP, "got 'Clik'; did you mean 'Click'?", "'Clik'"),
    ("g.V('User').OutV('Zzz').sample(1)", SHOP, "got 'Zzz'; name one of them", "'Zzz'"),
    (
        "g.V('User').OutV('User', 'Click', 'Shop').sample(1)",
        SHOP,
        "got ('User', 'Click', 'Shop'); did you mean 'Click'?",
        "'User', 'Click', 'Shop'",
    ),
    (
        "g.V('User').OutV('Sells').sample(1)",
        SHOP,
        "which 2 have; write ('Shop', 'Sells', 'Item') or ('User', 'Sells', 'Item')",
        "'Sells'",
    ),
    ("g.V('User').OutV(3).sample(1)", SHOP, "got 3; did you mean 'Sells'?", "3"),
    ("g.V('User').OutV(9).sample(1)", SHOP, "got 9; name one of 'Click' (User -> Item)", "9"),
    (
        "g.V().OutV('Click').sample(1)",
        UNTYPED,
        "expected no edge type by name on a graph without edge types, got 'Click'",
        "'Click'",
    ),
    (
        "g.V().OutV('Click').sample(1)",
        INTEGERS,
        "expected no edge type by name on a graph whose edge types are integers",
        "'Click'",
    ),
    ("g.V().OutV(3).sample(1)", UNTYPED, "[plan, hop 1] expected no edge type on a graph without them, got 3", "3"),
    (
        "g.V('User').BothV('Click').sample(1)",
        SHOP,
        "got 'Click' (User -> Item); use .out('Click') or .in_('Click')",
        "BothV",
    ),
    (
        "g.V('Shop').InV().sample(1)",
        SHOP,
        "expected vertices of type 'Item', 'User' for .in_(), got 'Shop' as seeds",
        "InV",
    ),
    (
        "g.V('User').OutV('Click').sample(1).OutV('Follows').sample(2)",
        SHOP,
        "[plan, hop 2] expected vertices of type 'User' for .out('Follows'), got 'Item' from hop 1; "
        "from there go by .in_('Click'), .out('CoPurchase'), .in_('CoPurchase'), .in_(('Shop', 'Sells', 'Item')), "
        ".in_(('User', 'Sells', 'Item'))",
        "'Follows'",
    ),
    ("g.V().OutV().sample(1).by('TopK')", UNTYPED, "[plan, hop 1] expected edges with times for top_k", "'TopK'"),
    (
        "g.V('User').OutV().sample(1).OutV().sample(2).by('EdgeWeight')",
        SHOP,
        "[plan, hop 2] expected edges with weights for weighted",
        "'EdgeWeight'",
    ),
]


@pytest.mark.parametrize(("text", "schema", "message", "underlined"), REFUSED)
def test_what_the_graph_cannot_answer_is_refused_at_its_place(text, schema, message, underlined):
    with pytest.raises(QueryInvalid) as caught:
        plan(Query.parse(text), schema)
    told, shown, carets = str(caught.value).splitlines()
    assert message in told
    start, end = carets.index("^"), len(carets)
    assert shown[start:end] == underlined


def test_no_edge_type_touches_the_type():
    schema = Schema(("A", "B"), {"to": EdgeType(0, "to", "A", "A")})
    with pytest.raises(QueryInvalid, match="got 'B' as seeds; no edge type touches it"):
        plan(lg.query("B").out().sample(1), schema)


def test_an_unfinished_query_is_refused():
    with pytest.raises(
        QueryInvalid, match=r"\[plan\] expected \.sample\(fan-out\) at the end, got lg.query\(\).out\(3\)"
    ):
        plan(lg.query().out(3), INTEGERS)
    with pytest.raises(QueryInvalid, match=r"\[plan\] expected a Query, got 'g.V\(\)'"):
        plan("g.V()", UNTYPED)


def test_a_long_list_of_names_is_cut():
    names = tuple(f"type{place}" for place in range(100))
    with pytest.raises(QueryInvalid, match="'type11' and 88 more, got 'zzz'"):
        plan(lg.query("zzz").out().sample(1), Schema(names))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_types": {}, "integer_types": True}, "expected integer types or named ones, got both"),
        ({"edge_types": {"a": EdgeType(0, "a"), "b": EdgeType(0, "b")}}, r"expected a code of its own .* got \[0, 0\]"),
        ({"vertex_types": ("A",), "edge_types": {"a": EdgeType(0, "a", "A", "B")}}, r"'A', got \['B'\]"),
        ({"edge_types": {"a": EdgeType(0, "a", "A", "B")}}, r"none, got \['A', 'B'\]"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(arguments, message):
    with pytest.raises(QueryInvalid, match=r"\[Schema\] .*" + message):
        Schema(**arguments)


def test_the_schema_of_a_graph():
    columns = {"time": np.array([1, 2]), "edge_type": np.array([0, 1], np.int32)}
    graph = lg.Graph(np.zeros((3, 4), np.float32), [0, 1], [1, 2], undirected=True, **columns)
    assert Schema.of(graph) == Schema(integer_types=True, has_time=True, undirected=True, feature_width=4)
    plain = lg.Graph(np.zeros((3, 4), np.float32), [0, 1], [1, 2], weight=np.ones(2, np.float32))
    assert Schema.of(plain) == Schema(has_weight=True, feature_width=4)


def test_the_schema_of_a_graph_with_named_types():
    graph = SimpleNamespace(
        vertex_types=("User", "Item"),
        edge_types=(("User", "Click", "Item"), ("User", "Sees", "User"), ("User", "Sees", "Item")),
        has_type=True,
        has_time=True,
        has_weight=False,
        undirected=False,
        feature_widths={"User": 3, "Item": 4},
    )
    schema = Schema.of(graph)
    assert schema.edge_types == {
        "Click": EdgeType(0, "Click", "User", "Item"),
        "User__Sees__User": EdgeType(1, "Sees", "User", "User"),
        "User__Sees__Item": EdgeType(2, "Sees", "User", "Item"),
    }
    assert (schema.vertex_types, schema.integer_types, schema.has_time) == (("User", "Item"), False, True)
    assert one_hops(lg.query("User").out(("User", "Sees", "Item")).sample(1), schema)[0].edge_type == 2


def test_explain_shows_queries_costs_and_what_feeds_what():
    made = Plan.of([RELATED, CLICKS.in_("Click").sample(5), lg.query("Shop").out().sample(2)], SHOP)
    assert (
        made.explain()
        == """\
plan: 3 queries, 4 one-hop queries (1 shared)

query 1   g.V('User', ID).OutV('Click').sample(25).by('Random').OutV('CoPurchase').sample(10).by('TopK').values
  path      User seeds -> Q1 -> Q2
  per seed  1 + 25 = 26 sample lookups, 1 + 25 + 250 = 276 feature lookups, at most 70.9 kB of features

query 2   g.V('User', ID).OutV('Click').sample(25).by('Random').InV('Click').sample(5).by('Random').values
  path      User seeds -> Q1 -> Q3
  per seed  1 + 25 = 26 sample lookups, 1 + 25 + 125 = 151 feature lookups, at most 70.9 kB of features

query 3   g.V('Shop', ID).OutV().sample(2).by('Random').values
  path      Shop seeds -> Q4
  per seed  1 sample lookup, 1 + 2 = 3 feature lookups, at most 544 bytes of features

Q1   hop 1   User -[Click]-> Item        25 at random        fed by the seeds   feeds Q2, Q3   of queries 1, 2
Q2   hop 2   Item -[CoPurchase]-> Item   10 latest by time   fed by Q1                         of query 1
Q3   hop 2   Item <-[Click]- User        5 at random         fed by Q1                         of query 2
Q4   hop 1   Shop --> Item               2 at random         fed by the seeds                  of query 3"""
    )


@pytest.mark.parametrize(
    ("query", "schema", "pattern"),
    [
        (lg.query().out().sample(1), UNTYPED, "vertex --> vertex   1 at random"),
        (lg.query().in_().sample(1), UNTYPED, "vertex <-- vertex   1 at random"),
        (lg.query().both(3).sample(1, by="weighted"), INTEGERS, "vertex <-[type 3]-> vertex   1 by edge weight"),
        (lg.query().out().sample(1), Schema(undirected=True), "vertex -- vertex   1 at random"),
        (lg.query("User").out().sample(1), SHOP, "User --> any   1 at random"),
        (lg.query("Shop").out(("Shop", "Sells", "Item")).sample(1), SHOP, "Shop -[Shop.Sells.Item]-> Item"),
    ],
)
def test_explain_draws_edges_as_they_point(query, schema, pattern):
    assert pattern in plan(query, schema).explain()


def test_explain_bounds_bytes_where_widths_are_known():
    wide = plan(lg.query().out().sample(65535).out().sample(1000), Schema(feature_width=100)).explain()
    assert "at most 26.2 GB of features" in wide
    assert "at most" not in plan(lg.query().out().sample(2), UNTYPED).explain()
    several = plan(lg.query("User").out().sample(2), SHOP).explain()
    assert f"at most {(128 + 2 * 128) * 4 / 1000:.1f} kB" in several  # the widest type stands for any
    assert Plan(UNTYPED).explain() == "plan: 0 queries, 0 one-hop queries"
