"""Documents from outside (JSON, TOML) as msgspec structs. A fault names its path, the value and what was expected."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args

import msgspec

from livegnn.graph.checks import shown

Document = TypeVar("Document")

# msgspec's message = fault [ " - at `" [ "key` in `" ] "$" path "`" ]; a fault quotes keys and values as they are
_PLACE = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>(?:\.\w+|\[\d+\]|\[\.{3}\])*)`\Z")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.{3}\]")
_KEY = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<key>.*)`", re.DOTALL)
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class DocumentFault(ValueError):
    """What is wrong with a document. path: "train.epochs", "" for the document itself."""

    def __init__(self, path: str, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}{f' for {path}' if path else ''}, got {got}")
        self.path = path


def converted(document: object, kind: type[Document]) -> Document:
    """The document as a struct, strictly: no other types, no unknown fields. Raises: DocumentFault."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _fault(str(error), document, kind) from error


def _fault(message: str, document: Any, kind: Any) -> DocumentFault:
    place = _PLACE.search(message)
    try:
        value, kind = _found(place["path"] if place else "", document, kind)
    except (LookupError, TypeError):  # a key that reads like a place
        place, value = None, document
    path = place["path"].lstrip(".") if place else ""
    fault = message[: place.start()] if place else message
    if key := _KEY.fullmatch(fault):
        if key["what"] == "missing required":
            return DocumentFault(path, f"the key {key['key']!r}", shown(list(value) if kind else value))
        known = ", ".join(_fields(kind))
        return DocumentFault(path, f"keys among {known}" if known else "known keys", shown(key["key"]))
    if fault.startswith("Invalid"):
        return DocumentFault(path, f"one of {', '.join(map(repr, get_args(kind)))}", shown(value))
    expected = fault.removeprefix("Expected ").split(", got ")[0]
    words = re.sub(r"`([^`]*)`", lambda types: " or ".join(_WORDS.get(t, t) for t in types[1].split(" | ")), expected)
    return DocumentFault(path, f"{words} as each key" if place and place["key"] else words, shown(value))


def _found(path: str, value: Any, kind: Any) -> tuple[Any, Any]:
    """The value at a path and its type, None where no struct names it; the first object whose key is not named."""
    for step in _STEP.finditer(path):
        field, place = step.groups()
        if field is None and place is None:
            return value, None
        value, kind = (value[field], _fields(kind).get(field)) if field else (value[int(place)], None)
    return value, kind


def _fields(kind: Any) -> dict[str, Any]:
    """Types by key of a struct; empty for other types."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
