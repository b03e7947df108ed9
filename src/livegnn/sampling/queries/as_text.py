"""Queries as text, in the form of the paper: written with the place of every part, and read with a small tokenizer.

    query      = [ "g" "." ] "V" "(" [ seeds ] ")" [ "." "alias" "(" string ")" ] { hop } [ "." "values" [ "(" ")" ] ] ;
    seeds      = "ID" | string [ "," "ID" ] ;
    hop        = "." direction "(" [ edge type ] ")" "." "sample" "(" integer ")" [ "." "by" "(" string ")" ] ;
    direction  = "OutV" | "InV" | "BothV" ;
    edge type  = string | string "," string "," string | integer ;
    string     = "'" { character | "\\'" | "\\\\" } "'" | '"' { character | '\\"' | "\\\\" } '"' ;
    integer    = [ "-" ] digit { digit } ;

Words and strategies (Random, TopK, EdgeWeight; Random where `by` is left out) are read in any case; white space may
stand between any two tokens, and "#" starts a comment that ends with its line. Source: Helios, Figure 1.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple, NoReturn, cast

from livegnn.errors import QueryInvalid
from livegnn.graph.checks import shown
from livegnn.sampling.queries.hop import (
    FANOUT_MAX,
    Direction,
    EdgeTypeName,
    Hop,
    Parts,
    Strategy,
    edge_type_fault,
    fanout_fault,
    hops_fault,
    length_fault,
    name_fault,
    nearest,
)

_LINE_COLUMNS_MAX = 116  # of a line in a message; longer ones are cut around the place

_STEPS: dict[Direction, str] = {"out": "OutV", "in_": "InV", "both": "BothV"}
_STRATEGIES: dict[Strategy, str] = {"random": "Random", "top_k": "TopK", "weighted": "EdgeWeight"}
_DIRECTION_OF: dict[str, Direction] = {step.lower(): direction for direction, step in _STEPS.items()}
_STRATEGY_OF: dict[str, Strategy] = {name.lower(): by for by, name in _STRATEGIES.items()}
_PYTHONIC = {"out": "OutV", "in_": "InV", "in": "InV", "both": "BothV", "value": "values"}
_MISPLACED = {
    "sample": "a direction comes before .sample",
    "by": "a strategy comes once, directly after .sample(fan-out)",
    "alias": "an alias comes once, directly after V(...)",
}

Span = tuple[int, int]


class Rendered(NamedTuple):
    """A query's text without `.values`, and where its parts are: (hop, part) -> (start, end).

    Hop 0 has the part "seeds"; hops from 1 on have "direction", "edge_type", "fanout" and "by".
    """

    text: str
    spans: dict[tuple[int, str], Span]


def render(parts: Parts) -> Rendered:
    """The text of a query, on one line."""
    vertex_type, hops, alias = parts
    seeds = "ID" if vertex_type is None else f"{_quoted(vertex_type)}, ID"
    text = f"g.V({seeds})"
    spans: dict[tuple[int, str], Span] = {(0, "seeds"): (4, 4 + len(seeds))}
    if alias is not None:
        text += f".alias({_quoted(alias)})"
    for number, hop in enumerate(hops, start=1):
        for part, before, shown_part in (
            ("direction", ".", _STEPS[hop.direction]),
            ("edge_type", "(", _edge_type_text(hop.edge_type)),
            ("fanout", ").sample(", str(hop.fanout)),
            ("by", ").by(", _quoted(_STRATEGIES[hop.by])),
        ):
            text += before
            spans[number, part] = (len(text), len(text) + len(shown_part))
            text += shown_part
        text += ")"
    return Rendered(text, spans)


def step_text(direction: Direction, edge_type: EdgeTypeName) -> str:
    """One direction as the text writes it: ".OutV('Click')"."""
    return f".{_STEPS[direction]}({_edge_type_text(edge_type)})"


def _edge_type_text(edge_type: EdgeTypeName) -> str:
    """The arguments that name an edge type in the text, without parentheses."""
    if edge_type is None:
        return ""
    if isinstance(edge_type, str):
        return _quoted(edge_type)
    return ", ".join(map(_quoted, edge_type)) if isinstance(edge_type, tuple) else str(edge_type)


def underlined(text: str, start: int, end: int) -> str:
    """The line of text that holds place start, and a line of carets under [start, end), both indented."""
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : len(text) if last < 0 else last].rstrip("\r")
    line = "".join(character if character.isprintable() else " " for character in line)
    start, end = start - first, min(end - first, len(line))
    if len(line) > _LINE_COLUMNS_MAX:
        left = max(0, min(start - _LINE_COLUMNS_MAX // 2, len(line) - _LINE_COLUMNS_MAX))
        right = left + _LINE_COLUMNS_MAX
        line = ("…" if left else "") + line[left:right] + ("…" if right < len(line) else "")
        shift = left - (left > 0)
        start, end = start - shift, min(end - shift, len(line))
    carets = " " * _columns(line[:start]) + "^" * max(1, _columns(line[start:end]))
    return f"\n    {line}\n    {carets}"


def _columns(text: str) -> int:
    """How many columns a terminal takes for text."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class _Token(NamedTuple):
    kind: str  # "word", "string", "integer", "end", or the mark itself: . , ( )
    value: str | int
    start: int
    end: int


_TOKENS = re.compile(
    r"""(?P<space>(?:[\s\ufeff]|\#[^\n]*)+)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<integer>-?[0-9]+)
    | (?P<string>'(?:[^'\\\n]|\\[^\n])*'|"(?:[^"\\\n]|\\[^\n])*")
    | (?P<mark>[.,()])""",
    re.VERBOSE,
)


def _refuse(text: str, start: int, end: int, problem: str) -> NoReturn:
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    raise QueryInvalid(f"[query text, line {line}, column {column}] {problem}{underlined(text, start, end)}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            _refuse_character(text, place)
        kind, found, start, place = str(match.lastgroup), match.group(), place, match.end()
        if kind == "string":
            tokens.append(_Token(kind, _unquoted(text, found, start), start, place))
        elif kind == "integer":
            if len(found) > 12:
                _refuse(text, start, place, f"expected a number of at most 12 digits, got {shown(found)}; shorten it")
            tokens.append(_Token(kind, int(found), start, place))
        elif kind != "space":
            tokens.append(_Token(found if kind == "mark" else kind, found, start, place))
    return [*tokens, _Token("end", "", len(text.rstrip()), len(text.rstrip()))]


def _refuse_character(text: str, place: int) -> NoReturn:
    character = text[place]
    if character in "'\"":
        line_end = text.find("\n", place)
        end = len(text) if line_end < 0 else line_end
        _refuse(text, place, end, f"expected a closing {character} on this line, got none; close the string")
    advice = "write straight quotes: '...'" if character in "‘’“”`´" else "take it out, or quote it if it is a name"
    _refuse(text, place, place + 1, f"expected a step, a string or a number, got {shown(character)}; {advice}")


def _unquoted(text: str, found: str, start: int) -> str:
    def unescape(match: re.Match[str]) -> str:
        if match[1] not in "'\"\\":
            place = start + 1 + match.start()
            problem = rf"expected \', \" or \\ after a backslash, got {shown(match[1])}; write \\ for a backslash"
            _refuse(text, place, place + 2, problem)
        return match[1]

    return re.sub(r"\\(.)", unescape, found[1:-1])


class _Parser:
    """Recursive descent over the tokens; every refusal names what was expected where."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._place = 0

    def query(self) -> Parts:
        vertex_type = self._seeds()
        alias = None
        if self._takes_step("alias"):
            self._expect("(", "after alias")
            alias = self._name("an alias")
            self._expect(")", "after the alias")
        hops: list[Hop] = []
        while step := self._takes_step(*_DIRECTION_OF):
            fault = hops_fault(len(hops) + 1)
            if fault:
                self._refuse(step, fault)
            hops.append(self._hop(len(hops) + 1, step))
        ended = self._takes_step("values")
        if ended and self._takes("("):
            self._expect(")", "after values(")
        self._expect_end(ended is not None)
        return vertex_type, tuple(hops), alias

    def _seeds(self) -> str | None:
        if self._takes_word("g"):
            self._expect(".", "after g")
        if not self._takes_word("v"):
            self._refuse(self._next, f"expected g.V(...) first, got {self._got}; begin with g.V('User', ID) or g.V(ID)")
        self._expect("(", "after V")
        vertex_type = None
        if self._next.kind == "string":
            vertex_type = self._name("a vertex type")
            if self._takes(","):
                self._expect_id()
        elif self._next.kind != ")":
            self._expect_id()
        self._expect(")", "after the seeds")
        return vertex_type

    def _expect_id(self) -> None:
        if not self._takes_word("id"):
            advice = "the word ID stands for the seeds, which are given when sampling"
            self._refuse(self._next, f"expected ID, got {self._got}; {advice}")

    def _hop(self, number: int, step: _Token) -> Hop:
        where = f"hop {number}: "
        self._expect("(", f"after {step.value}")
        edge_type = self._edge_type(where)
        self._expect(")", "after the edge type")
        if not self._takes_step("sample"):
            problem = f"{where}expected .sample(fan-out) after {step.value}(...), got {self._got_step}"
            self._refuse(self._offending, f"{problem}; say how many to sample, as in .sample(10)")
        self._expect("(", "after sample")
        fanout = self._fanout(where)
        self._expect(")", "after the fan-out")
        by: Strategy = "random"
        if self._takes_step("by"):
            self._expect("(", "after by")
            by = self._strategy(where)
            self._expect(")", "after the strategy")
        return Hop(_DIRECTION_OF[str(step.value).lower()], edge_type, fanout, by)

    def _edge_type(self, where: str) -> EdgeTypeName:
        if self._next.kind == ")":
            return None
        if self._next.kind == "integer":
            return int(self._checked(edge_type_fault(self._next.value), where))
        name = self._name("an edge type", where)
        if not self._takes(","):
            return name
        relation = self._name("the relation of a triple (src, relation, dst)", where)
        self._expect(",", "after the relation of a triple (src, relation, dst)")
        return name, relation, self._name("the destination of a triple (src, relation, dst)", where)

    def _fanout(self, where: str) -> int:
        token = self._next
        if token.kind != "integer":
            self._refuse(token, f"{where}expected a fan-out from 1 to {FANOUT_MAX}, got {self._got}; write a number")
        return int(self._checked(fanout_fault(token.value), where))

    def _strategy(self, where: str) -> Strategy:
        token = self._next
        given = str(token.value)
        by = _STRATEGY_OF.get(given.lower()) if token.kind == "string" else None
        if by is None:
            close = _STRATEGIES.get(cast(Strategy, given.lower())) or nearest(given, _STRATEGIES.values())
            advice = f"write {_quoted(close)}" if close else "uniform, the latest by time, or by edge weight"
            self._refuse(token, f"{where}expected 'Random', 'TopK' or 'EdgeWeight', got {self._got}; {advice}")
        self._place += 1
        return by

    def _name(self, what: str, where: str = "") -> str:
        token = self._next
        if token.kind != "string":
            advice = f"write it as '{token.value}'" if token.kind == "word" else "write it as a quoted string"
            self._refuse(token, f"{where}expected {what}, got {self._got}; {advice}")
        return str(self._checked(name_fault(what, token.value), where))

    def _checked(self, fault: str | None, where: str) -> str | int:
        """The value of the next token, unless something is wrong with it."""
        token = self._next
        if fault:
            self._refuse(token, where + fault)
        self._place += 1
        return token.value

    def _expect_end(self, ended: bool) -> None:
        if self._next.kind == "end":
            return
        if ended:
            self._refuse(self._next, f"expected nothing after .values, got {self._got}; .values ends a query")
        word = str(self._offending.value)
        known = [*_STEPS.values(), "values"]
        close = _PYTHONIC.get(word.lower()) or nearest(word, known)
        advice = f"did you mean .{close}?" if close else "a hop is .OutV('Click').sample(10).by('Random')"
        if self._next.kind != ".":
            advice = "steps are joined by dots"
        advice = _MISPLACED.get(word.lower(), advice)
        self._refuse(self._offending, f"expected .OutV, .InV, .BothV or .values, got {self._got_step}; {advice}")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    @property
    def _offending(self) -> _Token:
        """The word after a dot, else the next token."""
        after_dot = self._next.kind == "." and self._tokens[self._place + 1].kind == "word"
        return self._tokens[self._place + 1] if after_dot else self._next

    @property
    def _got(self) -> str:
        return self._source(self._next)

    @property
    def _got_step(self) -> str:
        token = self._offending
        return self._source(token) if token is self._next else f".{self._source(token)}"

    def _source(self, token: _Token) -> str:
        if token.kind == "end":
            return "the end"
        source = self._text[token.start : token.end]
        return repr(source) if token.kind in ".,()" else shown(source)[1:-1] if token.kind == "word" else source[:60]

    def _takes(self, kind: str) -> bool:
        taken = self._next.kind == kind
        self._place += taken
        return taken

    def _takes_word(self, word: str) -> bool:
        taken = self._next.kind == "word" and str(self._next.value).lower() == word
        self._place += taken
        return taken

    def _takes_step(self, *words: str) -> _Token | None:
        token = self._offending
        if self._next.kind != "." or token.kind != "word" or str(token.value).lower() not in words:
            return None
        self._place += 2
        return token

    def _expect(self, kind: str, after: str) -> None:
        if not self._takes(kind):
            self._refuse(self._next, f"expected '{kind}' {after}, got {self._got}; put it there")

    def _refuse(self, token: _Token, problem: str) -> NoReturn:
        _refuse(self._text, token.start, token.end, problem)


def parse(text: str) -> Parts:
    """The parts of the query that text writes.

    Raises:  QueryInvalid with line, column and a caret.
    """
    if not isinstance(text, str):
        raise QueryInvalid(f"[query text] expected a string, got {type(text).__name__}; pass the text of a query")
    if fault := length_fault(text):
        raise QueryInvalid(f"[query text] {fault}")
    return _Parser(text).query()
