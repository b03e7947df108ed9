"""The pages at / and /docs: files of livegnn/serve/page, as they are. They hold no data, and ask the routes for it.

The policy lets a page load its own files and ask its own service, and nothing else: no inline code, no other host, no
frame around it. Where the service wants a token, a page asks for one and sends it as a header.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from livegnn.serve.envelope import Refused

_FOLDER = "livegnn.serve.page"
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES = (
    "page.css",
    "theme.js",
    "main.js",
    "api.js",
    "dom.js",
    "format.js",
    "charts.js",
    "numbers.js",
    "lists.js",
    "picture.js",
    "neighbourhood.js",
    "whatif.js",
    "docs.css",
    "docs.js",
    "icon.svg",
)
PAGE_PATHS = {"/": "index.html", "/docs": "docs.html", **{f"/page/{name}": name for name in _FILES}}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


def page_answer(path: str, method: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and content of a path of PAGE_PATHS. Raises: Refused for another method than GET and HEAD."""
    if method not in ("GET", "HEAD"):
        raise Refused(405, "MethodNotAllowed", f"[route] expected another method, got {method}")
    name = PAGE_PATHS[path]
    kind = f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"
    return [(b"content-type", kind.encode()), *_HEADERS], _content(name)


@cache
def _content(name: str) -> bytes:
    return files(_FOLDER).joinpath(name).read_bytes()
