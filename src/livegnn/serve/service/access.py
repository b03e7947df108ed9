"""Who may do what: tokens with scopes, and the scope that each route needs.

A token is 32 random bytes as text; the configuration has its SHA-256 alone, so that who reads the file cannot use it.
Scopes: "read" for answers, "write" for updates, "admin" for swaps and snapshots. Each includes the one before it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from livegnn.errors import ValueInvalid
from livegnn.serve.envelope import Refused
from livegnn.serve.service.page import PAGE_PATHS

AccessScope: TypeAlias = Literal["open", "read", "write", "admin"]
_ORDER = ("open", "read", "write", "admin")
SCOPES: dict[str, AccessScope] = {  # of every route; a test refuses a route that is not here
    "/healthz": "open",
    "/readyz": "open",
    "/metrics": "read",
    "/v1/embeddings": "read",
    "/v1/predict": "read",
    "/v1/edges": "read",
    "/v1/topk": "read",
    "/v1/what-if": "read",
    "/v1/readouts/{name}": "read",
    "/v1/sample": "read",
    "/v1/samplers/{name}/predict": "read",
    "/v1/temporal/{name}/embeddings": "read",
    "/v1/temporal/{name}/links": "read",
    "/v1/next": "read",
    "/v1/changes": "read",
    "/v1/models": "read",
    "/v1/stats": "read",
    "/v1/pipes": "read",
    "/v1/explain/{vertex}": "read",
    "/v1/updates": "write",
    "/v1/admin/swap": "admin",
    "/v1/admin/snapshot": "admin",
    "/v1/admin/repartition": "admin",
    "/v1/admin/drain": "admin",
}
_HEX_LENGTH = 64


@dataclass(frozen=True)
class AccessToken:
    """name: for people and logs.  sha256: of the token, hexadecimal.  scope: what it allows.

    Raises:  ValueInvalid.
    """

    name: str
    sha256: str
    scope: AccessScope = "read"

    def __post_init__(self) -> None:
        if len(self.sha256) != _HEX_LENGTH or set(self.sha256) - set("0123456789abcdef"):
            raise ValueInvalid(
                f"[token {self.name}] expected sha256 as {_HEX_LENGTH} hexadecimal digits, got {len(self.sha256)} "
                "characters; make one with: livegnn token NAME"
            )
        if self.scope not in _ORDER[1:]:
            raise ValueInvalid(
                f"[token {self.name}] expected scope read, write or admin, got {self.scope!r}; choose one of them"
            )


def new_token() -> tuple[str, str]:
    """A token and its SHA-256."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


def scope_of(path: str) -> AccessScope:
    """What a path needs. One of no route needs a read, or what an admin route would."""
    if path in PAGE_PATHS:  # the page holds no data, and asks for a token
        return "open"
    parts = [part for part in path.split("/") if part]  # as the router reads it: one slash for many, none at the end
    for template, scope in SCOPES.items():
        wanted = template.split("/")[1:]
        if len(wanted) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(wanted, parts, strict=True)):
            return scope
    return "admin" if parts[:2] == ["v1", "admin"] else "read"


class Access:
    """The tokens of a service; without any, every caller that is let in may do all."""

    def __init__(self, tokens: Iterable[AccessToken] = ()) -> None:
        self._tokens = tuple(tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def check(self, path: str, authorization: bytes) -> None:
        """Raises: Refused with 401 for no known token, 403 for one whose scope does not reach."""
        needed = scope_of(path)
        if not self._tokens or needed == "open":
            return
        found = self._found(authorization)
        if found is None:
            raise Refused(
                401, "TokenInvalid", "[token] expected the header Authorization: Bearer and a token, got another"
            )
        if _ORDER.index(found.scope) < _ORDER.index(needed):
            raise Refused(
                403, "ScopeMissing", f"[token] expected scope {needed} for {path}, got {found.scope}; use another token"
            )

    def _found(self, authorization: bytes) -> AccessToken | None:
        """Compares with every token, whatever the first bytes are."""
        digest = hashlib.sha256(authorization.removeprefix(b"Bearer ")).hexdigest()
        found = None
        for token in self._tokens:
            if hmac.compare_digest(digest, token.sha256) and authorization.startswith(b"Bearer "):
                found = token
        return found
