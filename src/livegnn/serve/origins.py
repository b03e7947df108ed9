"""Who is served without a token: programs of this machine, and pages that it serves itself.

A page of another site can have its own name stand for 127.0.0.1 (DNS rebinding), and then reads what a service without
a token answers. It cannot choose the headers Host and Origin, which name the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from livegnn.serve.envelope import Refused

_LOCAL = rb"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?"
_HOST = re.compile(_LOCAL, re.IGNORECASE)
_ORIGIN = re.compile(rb"https?://" + _LOCAL, re.IGNORECASE)
_SHOWN_MAX = 80


def check_local(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuses requests to another host than this one, or from a page of another. Raises: Refused."""
    hosts = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
            if not _HOST.fullmatch(value):
                raise _refused("HostUnknown", "Host localhost, 127.0.0.1 or [::1]", value)
        elif name == b"origin" and not _ORIGIN.fullmatch(value):
            raise _refused("OriginUnknown", "no Origin but http://localhost, http://127.0.0.1 or http://[::1]", value)
    if not hosts:
        raise _refused("HostUnknown", "Host localhost, 127.0.0.1 or [::1]", b"none")


def _refused(kind: str, expected: str, got: bytes) -> Refused:
    shown = got[:_SHOWN_MAX].decode("latin-1")
    return Refused(403, kind, f"[serve] expected {expected}, got {shown}; serve others with token=")
