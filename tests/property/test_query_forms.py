"""Queries through text, JSON and repr and back; text as people write it; noise, which is refused and nothing else."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import QueryInvalid
from livegnn.sampling import Hop, Query

printable = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]).filter(str.isprintable)
names = st.one_of(
    st.sampled_from(["User", "Click", "it's", '"', "\\", "\\'", "# no", "ID"]), st.text(printable, min_size=1)
)
edge_types = st.one_of(st.none(), names, st.integers(0, 2**31 - 1), st.tuples(names, names, names))
hops = st.builds(
    Hop,
    st.sampled_from(["out", "in_", "both"]),
    edge_types,
    st.integers(1, 65535),
    st.sampled_from(["random", "top_k", "weighted"]),
)
queries = st.builds(Query, st.none() | names, st.lists(hops, max_size=5).map(tuple), st.none() | names)
spaces = st.text(" \t\r\n", max_size=3) | st.sampled_from(["# a comment ' here\n", "\n## .OutV(\n  "])


@given(queries)
def test_text_goes_back_and_forth(query):
    assert Query.parse(query.to_text()) == query
    assert "\n" not in query.to_text()


@given(queries)
def test_json_goes_back_and_forth(query):
    assert Query.from_json(query.to_json()) == query
    assert Query.from_json(json.loads(query.to_json())) == query


@given(queries)
def test_repr_goes_back_and_forth(query):
    assert eval(repr(query), {"lg": lg}) == query


@given(queries)
def test_the_builder_makes_what_the_parts_say(query):
    built = lg.query(query.vertex_type, alias=query.alias)
    for hop in query.hops:
        built = getattr(built, hop.direction)(hop.edge_type).sample(hop.fanout, by=hop.by)
    assert built == query
    assert hash(built) == hash(query)


@given(queries, st.data())
def test_space_comments_and_case_do_not_matter(query, data):
    pieces = re.findall(r"'(?:[^'\\]|\\.)*'|\w+|[.,()]", query.to_text())
    loose = ""
    for piece in pieces:
        word = data.draw(st.sampled_from([str, str.lower, str.upper]))(piece) if piece.isalpha() else piece
        loose += data.draw(spaces) + word
    assert Query.parse(loose + data.draw(spaces)) == query


@given(queries)
def test_spans_are_where_the_parts_are(query):
    text, spans = query.rendered()
    assert query.to_text() == text + ".values"
    for number, hop in enumerate(query.hops, start=1):
        start, end = spans[number, "fanout"]
        assert text[start:end] == str(hop.fanout)
        start, end = spans[number, "edge_type"]
        assert Query.parse(f"g.V().OutV({text[start:end]}).sample(1)").hops[0].edge_type == hop.edge_type


@given(queries, st.data())
def test_a_damaged_text_is_read_or_refused(query, data):
    text = query.to_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.text(st.characters(), max_size=3)) + text[end:]
    try:
        read = Query.parse(damaged)
    except QueryInvalid as error:
        first, shown, carets = str(error).splitlines()
        assert first.startswith("[query text, line ")
        assert shown.startswith("    ")
        assert set(carets.strip()) == {"^"}
    else:
        assert Query.parse(read.to_text()) == read


@given(queries, st.data())
def test_a_json_key_too_many_or_too_few_is_refused(query, data):
    document = json.loads(query.to_json())
    place = data.draw(st.sampled_from([document, *document["hops"]]))
    key = data.draw(
        st.sampled_from([*sorted({"livegnn_query", "hops", "direction", "fanout", "by"} & set(place)), "x"])
    )
    if key == "x":
        place["x"] = None
    else:
        del place[key]
    with pytest.raises(QueryInvalid, match=key):
        Query.from_json(document)
