"""The paper's text and JSON: what is read, what is written, and where each mistake is pointed at."""

from __future__ import annotations

import json

import pytest

import livegnn as lg
from livegnn.errors import QueryInvalid
from livegnn.sampling import Query

PAPER = """
## Input: a 2-hop query
g.V('User', ID).alias('Seed')
 .OutV('Click').sample(2).by('Random')
 .OutV('Co-purchase').sample(2).by('TopK').values
"""
MADE = lg.query("User", alias="Seed").out("Click").sample(2, by="random").out("Co-purchase").sample(2, by="top_k")
TWO_HOPS = lg.query("User").out("Click").sample(25, by="random").in_(3).sample(10, by="weighted")


def test_the_papers_query_is_read():
    assert Query.parse(PAPER) == MADE


def test_the_papers_query_is_written():
    assert MADE.to_text() == (
        "g.V('User', ID).alias('Seed').OutV('Click').sample(2).by('Random')"
        ".OutV('Co-purchase').sample(2).by('TopK').values"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g.V()", lg.query()),
        ("g.V(ID).values", lg.query()),
        (
            "V('Item', ID).outV('Co-purchase').sample(2).by('TopK')",
            lg.query("Item").out("Co-purchase").sample(2, by="top_k"),
        ),
        ("G . v ( 'A' ) . OUTV ( ) . Sample ( 3 ) . VALUES ( )", lg.query("A").out().sample(3)),
        ("g.V(id).bothv(7).sample(1).by('edgeweight')", lg.query().both(7).sample(1, by="weighted")),
        ("g.V('A').InV('A','to','B').sample(1)", lg.query("A").in_(("A", "to", "B")).sample(1)),
        ("g.V(\"it's\").OutV('a \"b\" \\\\ \\'c\\'').sample(1)", lg.query("it's").out("a \"b\" \\ 'c'").sample(1)),
        ("g.V() # seeds\r\n\t.OutV() # '\r\n.sample(1)\r\n#", lg.query().out().sample(1)),
        ("\ufeffg.V('a # b', ID)", lg.query("a # b")),
        ("g.V().OutV('点击').sample(007)", lg.query().out("点击").sample(7)),
    ],
)
def test_what_is_read(text, expected):
    assert Query.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", 1, 1, "expected g.V(...) first, got the end"),
        ("User", 1, 1, "expected g.V(...) first, got User"),
        ("gV()", 1, 1, "expected g.V(...) first, got gV"),
        ("g V()", 1, 3, "expected '.' after g, got V"),
        ("g.V", 1, 4, "expected '(' after V, got the end"),
        ("g.V('User, ID)", 1, 5, "expected a closing ' on this line, got none"),
        ("g.V('User\n', ID)", 1, 5, "expected a closing ' on this line, got none"),
        ("g.V('User', 17)", 1, 13, "expected ID, got 17"),
        ("g.V(User)", 1, 5, "expected ID, got User"),
        ("g.V(‘User’)", 1, 5, "expected a step, a string or a number, got '‘'; write straight quotes"),
        ("g.V('')", 1, 5, "expected a vertex type as a non-empty string"),
        ("g.V('a\\n')", 1, 7, "after a backslash, got 'n'"),
        ("g.V('a\tb')", 1, 5, "expected a vertex type as a non-empty string of printable characters"),
        ("g.V().alias()", 1, 13, "expected an alias, got ')'"),
        ("g.V().alias('a').alias('b')", 1, 18, "got .alias; an alias comes once, directly after V(...)"),
        ("g.V().sample(2)", 1, 7, "got .sample; a direction comes before .sample"),
        ("g.V().by('TopK')", 1, 7, "got .by; a strategy comes once, directly after .sample(fan-out)"),
        ("g.V().out().sample(2)", 1, 7, "got .out; did you mean .OutV?"),
        ("g.V().OutV().sample(2).outvv()", 1, 24, "got .outvv; did you mean .OutV?"),
        ("g.V().limit(2)", 1, 7, "got .limit; a hop is .OutV('Click').sample(10).by('Random')"),
        ("g.V()..OutV()", 1, 6, "expected .OutV, .InV, .BothV or .values, got '.'"),
        ("g.V()OutV()", 1, 6, "got OutV; steps are joined by dots"),
        ("g.V().OutV(Click).sample(2)", 1, 12, "hop 1: expected an edge type, got Click; write it as 'Click'"),
        ("g.V().OutV(-1).sample(2)", 1, 12, "hop 1: expected an edge type as a name, a triple"),
        ("g.V().OutV('a', 'b').sample(2)", 1, 20, "expected ',' after the relation of a triple"),
        ("g.V().OutV().OutV()", 1, 14, "hop 1: expected .sample(fan-out) after OutV(...), got .OutV"),
        ("g.V().OutV().values", 1, 14, "hop 1: expected .sample(fan-out) after OutV(...), got .values"),
        ("g.V().OutV()", 1, 13, "hop 1: expected .sample(fan-out) after OutV(...), got the end"),
        ("g.V()\n# x\n .OutV() .sample( 0 )", 3, 19, "hop 1: expected a fan-out from 1 to 65535, got 0"),
        ("g.V().OutV().sample(-1)", 1, 21, "hop 1: expected a fan-out from 1 to 65535, got -1"),
        ("g.V().OutV().sample(65536)", 1, 21, "hop 1: expected a fan-out from 1 to 65535, got 65536"),
        ("g.V().OutV().sample('2')", 1, 21, "hop 1: expected a fan-out from 1 to 65535, got '2'; write a number"),
        ("g.V().OutV().sample()", 1, 21, "hop 1: expected a fan-out from 1 to 65535, got ')'"),
        ("g.V().OutV().sample(2.5)", 1, 22, "expected ')' after the fan-out, got '.'"),
        ("g.V().OutV().sample(" + "9" * 5000 + ")", 1, 21, "expected a number of at most 12 digits"),
        ("g.V().OutV().sample(2).by(TopK)", 1, 27, "expected 'Random', 'TopK' or 'EdgeWeight', got TopK; write 'TopK'"),
        ("g.V().OutV().sample(2).by('top_k')", 1, 27, "got 'top_k'; write 'TopK'"),
        ("g.V().OutV().sample(2).by('weighted')", 1, 27, "got 'weighted'; write 'EdgeWeight'"),
        ("g.V().OutV().sample(2).by('best')", 1, 27, "got 'best'; uniform, the latest by time, or by edge weight"),
        ("g.V().values.values", 1, 13, "expected nothing after .values, got '.'"),
        ("g.V();", 1, 6, "expected a step, a string or a number, got ';'"),
        ("g.V()" + ".OutV().sample(1)" * 17, 1, 279, "expected at most 16 hops, got 17"),
    ],
)
def test_a_mistake_is_pointed_at(text, line, column, problem):
    with pytest.raises(QueryInvalid) as caught:
        Query.parse(text)
    message, shown, carets = str(caught.value).splitlines()
    assert message.startswith(f"[query text, line {line}, column {column}] ")
    assert problem in message
    assert "; " in message
    source = text.split("\n")[line - 1]
    if len(source) < 100:
        assert shown == "    " + source.replace("\t", " ").rstrip("\r")
        assert carets.index("^") - 4 == column - 1
    assert set(carets.strip()) == {"^"}


def test_the_carets_stand_below_the_place():
    with pytest.raises(QueryInvalid) as caught:
        Query.parse("g.V('User', ID)\n  .OutV('Click').sample(2).by('Tpok')\n  .values")
    assert str(caught.value) == (
        "[query text, line 2, column 31] hop 1: expected 'Random', 'TopK' or 'EdgeWeight', got 'Tpok'; write 'TopK'\n"
        "      .OutV('Click').sample(2).by('Tpok')\n"
        "                                  ^^^^^^"
    )


def test_the_carets_count_wide_characters_twice():
    with pytest.raises(QueryInvalid) as caught:
        Query.parse("g.V('用户').OutV().sample(0)")
    _, shown, carets = str(caught.value).splitlines()
    assert carets.index("^") == shown.index("0") + 2


@pytest.mark.parametrize("hops_before", [0, 3, 8])
def test_a_long_line_is_cut_around_the_place(hops_before):
    text = "g.V()" + ".OutV('a').sample(1)" * hops_before + ".OutV('a').sample(0)" + ".OutV('a').sample(1)" * 7
    with pytest.raises(QueryInvalid) as caught:
        Query.parse(text)
    _, shown, carets = str(caught.value).splitlines()
    assert len(shown) < 125
    assert shown.strip().strip("…") in text
    assert (shown[carets.index("^")], carets.strip()) == ("0", "^")


@pytest.mark.parametrize("given", [None, 3, b"g.V()"])
def test_only_strings_are_parsed(given):
    with pytest.raises(QueryInvalid, match=r"\[query text\] expected a string"):
        Query.parse(given)


@pytest.mark.parametrize("read", [Query.parse, Query.from_json])
def test_long_texts_are_refused_before_they_are_read(read):
    with pytest.raises(QueryInvalid, match="expected at most 65536 characters, got 70000"):
        read(" " * 70_000)


def test_json_is_written_with_its_version():
    assert json.loads(TWO_HOPS.to_json()) == {
        "livegnn_query": 1,
        "vertex_type": "User",
        "alias": None,
        "hops": [
            {"direction": "out", "edge_type": "Click", "fanout": 25, "by": "random"},
            {"direction": "in_", "edge_type": 3, "fanout": 10, "by": "weighted"},
        ],
    }


def test_json_is_read_as_text_or_decoded():
    assert Query.from_json(TWO_HOPS.to_json()) == TWO_HOPS
    assert Query.from_json(json.loads(TWO_HOPS.to_json())) == TWO_HOPS
    hop = {"direction": "both", "edge_type": ["A", "to", "A"], "fanout": 1, "by": "top_k"}
    assert Query.from_json({"livegnn_query": 1, "hops": [hop]}) == lg.query().both(("A", "to", "A")).sample(
        1, by="top_k"
    )


HOP = {"direction": "out", "fanout": 1, "by": "random"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "[query json] expected a JSON object, got ''"),
        ("{", "[query json] expected a JSON object, got '{'"),
        ("[" * 60_000, "[query json] expected a JSON object"),
        ("[]", "[query json] expected an object with the keys livegnn_query, vertex_type, alias, hops, got []"),
        (3, "[query json] expected an object"),
        ({"hops": []}, "[query json] expected the key 'livegnn_query'"),
        ({"livegnn_query": 1}, "[query json] expected the key 'hops'"),
        ({"livegnn_query": 2, "hops": []}, "[query json, livegnn_query] expected version 1, got 2"),
        ({"livegnn_query": True, "hops": []}, "[query json, livegnn_query] expected version 1, got True"),
        ({"livegnn_query": 1, "hops": [], "hop": 1}, "got 'hop'; did you mean 'hops'?"),
        ({"livegnn_query": 1, "hops": [], 3: 1}, "got 3; take it out"),
        ('{"livegnn_query": 1, "hops": [], "hops": []}', "[query json] expected each key once, got 'hops' 2 times"),
        ({"livegnn_query": 1, "hops": {}}, "[query json, hops] expected a list of hops, got {}"),
        ({"livegnn_query": 1, "hops": [HOP] * 17}, "[query json, hops] expected at most 16 hops"),
        ({"livegnn_query": 1, "vertex_type": "", "hops": []}, "[query json, vertex_type] expected a name"),
        ({"livegnn_query": 1, "alias": 1, "hops": []}, "[query json, alias] expected a name"),
        ({"livegnn_query": 1, "hops": [HOP, None]}, "[query json, hops[1]] expected an object"),
        ({"livegnn_query": 1, "hops": [HOP | {"direction": "in"}]}, "[query json, hops[0].direction] expected"),
        ({"livegnn_query": 1, "hops": [HOP | {"fanout": 1.0}]}, "[query json, hops[0].fanout] expected"),
        ({"livegnn_query": 1, "hops": [HOP | {"fan_out": 1}]}, "[query json, hops[0]] expected the keys"),
        ({"livegnn_query": 1, "hops": [HOP | {"by": "TopK"}]}, "[query json, hops[0].by] expected by="),
        ({"livegnn_query": 1, "hops": [HOP | {"edge_type": ["a"]}]}, "[query json, hops[0].edge_type] expected"),
        (
            {"livegnn_query": 1, "hops": [{"fanout": 1, "by": "random"}]},
            "[query json, hops[0]] expected the key 'direction'",
        ),
    ],
)
def test_json_is_read_strictly(document, message):
    with pytest.raises(QueryInvalid) as caught:
        Query.from_json(document)
    assert message in str(caught.value)
