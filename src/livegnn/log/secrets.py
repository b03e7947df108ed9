"""Passwords and tokens of URLs and options: they reach the broker, and no message, name or cause of an error.

A cause whose text holds one is not chained: a traceback prints causes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["Secrets", "masked_url"]

_HIDDEN = "***"
_SECRET_WORDS = ("password", "passphrase", "secret", "token", "seed", "jaas", "sasl.oauthbearer.config", "key.pem")


def masked_url(url: str) -> str:
    """A URL as a message may show it: without user, password and token, and with the name of each setting only."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and not rest.startswith("//"):
        path, mark, query = rest.partition("?")
        settings = parse_qsl(query, keep_blank_values=True)
        shown = "&".join(f"{key}={value if key == 'name' else _HIDDEN}" for key, value in settings)
        return f"{scheme}:{path}{mark}{shown if settings or not query else _HIDDEN}"
    before, at, after = url.rpartition("@")
    if at:
        before = before[: before.find("//") + 2] if "//" in before else ""
        before += _HIDDEN
    place, mark, _ = after.partition("?")
    place, hash_mark, _ = place.partition("#")
    return f"{before}{at}{place}{hash_mark or mark}{_HIDDEN if hash_mark or mark else ''}"


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
