"""Documents from outside (JSON, TOML) as msgspec structs. A fault names its path, the value and what was expected."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from livegnn.graph.checks import shown

__all__ = ["DocumentFault", "converted"]

Document = TypeVar("Document")

_FAULT = re.compile(r"(?P<fault>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?")
_KEY = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<key>.*)`")
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
    parts = _FAULT.fullmatch(message)
    assert parts is not None
    path = (parts["path"] or "").lstrip(".")
    value, keys = _found(path, document, kind)
    key = _KEY.fullmatch(parts["fault"])
    if key is None:
        expected = parts["fault"].removeprefix("Expected ").split(", got ")[0]
        words = re.sub(
            r"`([^`]*)`", lambda types: " or ".join(_WORDS.get(t, t) for t in types[1].split(" | ")), expected
        )
        return DocumentFault(path, words, shown(value))
    if key["what"] == "missing required":
        return DocumentFault(path, f"the key {key['key']!r}", shown(list(value)))
    return DocumentFault(path, f"keys among {', '.join(keys)}", repr(key["key"][:40]))


def _found(path: str, value: Any, kind: Any) -> tuple[Any, list[str]]:
    """The value at a path, and the keys of the struct that it has to be."""
    for step in re.findall(r"[^.\[\]]+", path):
        if step.isdigit():
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
            fields = (
                {field.encode_name: field.type for field in msgspec.structs.fields(kind)} if _is_struct(kind) else {}
            )
            kind = fields.get(step)
    return value, [field.encode_name for field in msgspec.structs.fields(kind)] if _is_struct(kind) else []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
