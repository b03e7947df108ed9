"""Passwords and tokens of URLs and options: they reach the broker, and no message, name or cause of an error.

A cause whose text holds one is not chained: a traceback prints causes as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_HIDDEN = "***"
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "seed", "jaas", "sasl.oauthbearer.config", "key.pem")


def masked_url(url: str) -> str:
    """A URL as a message may show it: without user, password, token and settings."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and not rest.startswith("//"):
        path, mark, query = rest.partition("?")
        settings = [f"name={value}" if key == "name" else _HIDDEN for key, value in parse_qsl(query)]
        return f"{scheme}:{path}{mark}{'&'.join(settings) or _HIDDEN * bool(query)}"
    before, at, after = url.rpartition("@")
    start = before[: before.find("//") + 2] if "//" in before else ""
    if "?" in before or "#" in before:  # a password may hold them, or a setting the @
        return f"{start}{_HIDDEN}"
    place = re.split("[?#]", after)[0]
    return f"{start}{_HIDDEN * bool(at)}{at}{place}{after[len(place) :][:1]}{_HIDDEN * (len(place) < len(after))}"


class Secrets:
    """What may not be shown, of a URL's user part and of settings."""

    def __init__(self, place: str, settings: Mapping[str, Any]) -> None:
        user = urlsplit(f"//{place}")
        found = [user.password or user.username or ""]
        found += [
            value
            for key, value in settings.items()
            if isinstance(value, str) and any(word in str(key).lower() for word in _SECRET_WORDS)
        ]
        forms = {form for each in found for form in (each, unquote(each), repr(each)[1:-1])}
        self._found = sorted((form for form in forms if form), key=len, reverse=True)

    def masked(self, text: object) -> str:
        """The text without them."""
        shown = str(text)
        for each in self._found:
            shown = shown.replace(each, _HIDDEN)
        return shown

    def cause(self, error: BaseException) -> BaseException | None:
        """The error if it, and what it was raised from, may be shown; else None."""
        each: BaseException | None = error
        while each is not None:
            for text in (str(each), repr(each)):
                if self.masked(text) != text:
                    return None
            each = each.__cause__ or each.__context__
        return error
