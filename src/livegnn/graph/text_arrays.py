"""Strings as arrays without objects, for files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np

from livegnn.types import AnyArray


def text_to_arrays(strings: Iterable[str]) -> dict[str, AnyArray]:
    """Strings as arrays without objects: UTF-8 bytes, and where each begins."""
    encoded = [text.encode() for text in strings]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return {"text": np.frombuffer(b"".join(encoded), np.uint8), "offsets": offsets}


def text_from_arrays(arrays: Mapping[str, AnyArray]) -> list[str]:
    """The strings that text_to_arrays() described. Raises: KeyError, ValueError for arrays that are not such."""
    if arrays["text"].dtype != np.uint8 or arrays["offsets"].dtype != np.int64:
        raise ValueError(f"strings of {arrays['text'].dtype} at {arrays['offsets'].dtype}")
    data, offsets = arrays["text"].tobytes(), arrays["offsets"].tolist()
    if offsets[-1:] != [len(data)] or offsets[0] != 0 or any(a > b for a, b in pairwise(offsets)):
        raise ValueError(f"strings of {len(data)} bytes, not {offsets[0]} to {offsets[-1]} in order")
    return [data[a:b].decode() for a, b in pairwise(offsets)]
