"""The prose of the pages: at most 25 words a sentence, and none of the words that the house style drops; in the sources
of the package, the benchmarks and the examples none of these words either.

Code blocks are no prose. A name or a formula in backquotes counts as one word, a link as its text. A sentence ends
with its mark, its paragraph or its list item; a colon or a semicolon does not end it. A cell of a table lists notes
rather than sentences: a semicolon ends a note.
"""

import re
from collections.abc import Iterator

import pytest

from tests.tidy.sources import ROOT, files, name, text

WORDS_PER_SENTENCE_MAX = 25
PAGES = [ROOT / page for page in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += files("docs", suffixes=(".md",))

DROPPED = re.compile(
    r"\b(mend(s|ed|ing)?|beside|nobody|whoever|none of (its|their) business|without a word|dust"
    r"|told|tells?|telling|hears?|heard|hearing)\b",
    re.IGNORECASE,
)
SUBJECT = re.compile(r"What (is|was|are|were)\b[^?]*$")  # "What is there is read": no subject; a question has one
BLOCK = re.compile(r"\s*([-*+]|\d+\.)\s+|\s*>\s?")  # how a list item or a quotation begins
ABBREVIATED = r"(?<!\be\.g)(?<!\bi\.e)(?<!\bet al)(?<!\bvs)(?<!\.\.)"  # before a full stop that ends no sentence
END = re.compile(ABBREVIATED + r"""[.!?]["')*_]*(?=\s|$)|\s·\s""")


def blocks(page: str) -> Iterator[tuple[int, str, bool]]:
    """Paragraphs, list items, cells and headings: the number of the first line, the text, and whether it is prose."""
    first, lines, fence, code_may_follow = 0, [], "", True
    for number, line in enumerate([*page.splitlines(), ""], 1):
        if fence or line.lstrip().startswith(("```", "~~~")):
            fence = "" if fence and line.strip() == fence else fence or line.strip()[:3]
            line = ""
        indented = code_may_follow and line.startswith("    ")
        is_table, is_apart = line.lstrip().startswith("|"), line.startswith(("#", "<"))
        if lines and (not line.strip() or indented or is_table or is_apart or BLOCK.match(line)):
            yield first, " ".join(lines), True
            lines = []
        if is_table:
            yield from ((number, note.strip(), False) for note in re.split(r"\s*(?<!\\)\||;\s", line))
        elif line.startswith("#"):
            yield number, line.strip("# "), False
        elif line.strip() and not indented and not is_apart:
            first = first if lines else number
            lines.append(BLOCK.sub("", line, count=1).strip() if BLOCK.match(line) else line.strip())
        code_may_follow = not line.strip() or indented or line.startswith("#")


def sentences(block: str) -> Iterator[str]:
    plain = re.sub(r"`[^`]+`", "`x`", block)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    start = 0
    for end in END.finditer(plain):
        yield plain[start : end.end()].strip()
        start = end.end()
    yield plain[start:].strip()


def words(sentence: str) -> int:
    return len(re.findall(r"[^\s]*\w[^\s]*", sentence))


def faults(page: str) -> Iterator[str]:
    for line, block, is_prose in blocks(page):
        for sentence in filter(None, sentences(block)):
            if words(sentence) > WORDS_PER_SENTENCE_MAX:
                yield f"{line}: {words(sentence)} words: {sentence}"
            if dropped := DROPPED.search(sentence):
                yield f"{line}: {dropped[0]!r}: {sentence}"
            if is_prose and SUBJECT.match(sentence):
                yield f"{line}: a sentence needs a subject: {sentence}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_sentences_are_short_and_plain(page):
    found = [f"{name(page)}:{fault}" for fault in faults(text(page))]
    assert not found, "\n".join(found)


def test_sources_use_plain_words():
    """Comments, docstrings, messages and names; but a call such as file.tell() is Python's."""
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files("src/livegnn", "benchmarks", "examples")
        for number, line in enumerate(text(path).splitlines(), 1)
        if any(not line.startswith("(", dropped.end()) for dropped in DROPPED.finditer(line))
    ]
    assert not found, "\n".join(found)


LONG = " ".join(["word"] * (WORDS_PER_SENTENCE_MAX + 1))


def seen(page):
    return [fault.split(":")[0] for fault in faults(page)]


@pytest.mark.parametrize(
    "page",
    [
        f"# Page\n\n{LONG}.",
        f"# Page\n\n- {LONG[:60]}\n  {LONG[60:]}",
        f"# Page\n\n| {LONG} | b |",
        f"# Page\n```\ncode\n```\n1. {LONG}",
        "# Page\n\nThe engine is told of a batch.",
        "# Page\n\n> It mends the value.",
        "# Page\n\nWhat was there is read. Why?",
    ],
)
def test_the_search_sees_bad_sentences(page):
    assert len(seen(page)) == 1


@pytest.mark.parametrize(
    "page",
    [
        f"    {LONG}",
        f"```\n{LONG}\n```",
        f"`{LONG}` [text](https://example.org/{LONG})",
        f"{LONG[:60]}.\n{LONG[60:]}",
        f"- {LONG[:60]}\n- {LONG[60:]}",
        f"| {LONG[:60]}; {LONG[60:]} |",
        "What is exact?",
    ],
)
def test_the_search_passes_short_sentences_and_code(page):
    assert not seen(page)
