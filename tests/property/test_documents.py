"""Any document becomes a value, or a DocumentFault with a path; no other error leaves."""

import re
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from livegnn.documents import DocumentFault, converted


class Pair(NamedTuple):
    code: int | None
    name: str


class Section(Struct, forbid_unknown_fields=True):
    size: int
    kind: Literal["a", "b"] = "a"


class Document(Struct, forbid_unknown_fields=True):
    section: Section
    sections: dict[str, Section] = {}
    counts: dict[str, int] = {}
    lists: list[list[int]] = []
    pair: Pair | None = None


WORDS = ["section", "size", "a", "\n", "`", '"', "$", ".", "[5]", "[...]", " - at `", "key` in `"]
KEYS = st.sampled_from(["section", "sections", "counts", "lists", "pair", "size", "kind"]) | st.builds(
    "".join, st.lists(st.sampled_from(WORDS), max_size=5)
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | KEYS
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
SECTIONS = st.fixed_dictionaries({}, optional={"size": LEAVES, "kind": LEAVES, "a\n": LEAVES})
DOCUMENTS = VALUES | st.fixed_dictionaries(
    {"section": SECTIONS | st.just({"size": 1})},
    optional={
        "sections": st.dictionaries(KEYS, SECTIONS, max_size=2),
        "counts": st.dictionaries(KEYS, LEAVES, max_size=2),
        "lists": st.lists(st.lists(LEAVES, max_size=2), max_size=2),
        "pair": st.lists(LEAVES, max_size=3),
    },
)


@given(DOCUMENTS | st.builds(lambda document, key, value: {**document, key: value}, SECTIONS, KEYS, LEAVES))
def test_any_document_is_a_value_or_a_fault(document):
    try:
        found = str(converted(document, Document))
    except DocumentFault as fault:
        found = str(fault)
    assert found.startswith("Document(") or re.match(r"expected .*, got .*", found, re.DOTALL)


GOOD = {"section": {"size": 1}}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (3, "expected an object, got 3"),
        ({}, "expected the key 'section', got []"),
        ({"section": {"size": 1, "a\nb": 2}}, r"expected keys among size, kind for section, got 'a\nb'"),
        (
            {"section": {"size": 1, '"x" - at `$[5]"': 2}},
            'expected keys among size, kind for section, got \'"x" - at `$[5]"\'',
        ),
        (
            {**GOOD, "x` - at `$[5]": 2},
            "expected keys among section, sections, counts, lists, pair, got 'x` - at `$[5]'",
        ),
        ({"section": {"size": 1, "kind": "c"}}, "expected one of 'a', 'b' for section.kind, got 'c'"),
        ({**GOOD, "counts": {"a.b": "c"}}, "expected a whole number for counts[...], got {'a.b': 'c'}"),
        ({**GOOD, "counts": {3: 4}}, "expected a string as each key for counts, got {3: 4}"),
        ({**GOOD, "sections": {"a": {}}}, "expected the key 'size' for sections[...], got {'a': {}}"),
        ({**GOOD, "sections": {"a": {"size": "b"}}}, "a whole number for sections[...].size, got {'a': {'size': 'b'}}"),
        ({**GOOD, "sections": {"a": {"size": 1, "c": 2}}}, "expected known keys for sections[...], got 'c'"),
        ({**GOOD, "lists": [[1], [2, "a"]]}, "expected a whole number for lists[1][1], got 'a'"),
        ({**GOOD, "pair": [1, 2]}, "expected a string for pair[1], got 2"),
    ],
)
def test_a_fault_names_path_expected_and_got(document, words):
    with pytest.raises(DocumentFault) as caught:
        converted(document, Document)
    assert words in str(caught.value)
