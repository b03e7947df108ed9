"""open_log: the log that a URL names.

url = "sqlite:" path ["?name=" name] | "nats://" host [":" port] "/" name | "kafka://" host [":" port] "/" name
name = 1 to 64 letters, digits, "_" and "-"; of an SQLite log "updates" unless given
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from livegnn.errors import DtypeInvalid, UsageError, ValueInvalid
from livegnn.log.interface import ByteLog
from livegnn.log.secrets import masked_url

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def open_log(url: str, *, must_exist: bool = False, **options: Any) -> ByteLog:
    """The log at a URL, made if there is none: an ordered, durable history of byte strings.

    Args:    url: "sqlite:path?name=updates", "nats://host:4222/updates", "kafka://host:9092/updates".
             must_exist: never makes one.  options: those of SqliteLog, NatsLog or KafkaLog.
    Raises:  ValueInvalid for the URL; DataMissing for a missing extra; LogUnavailable; LogDamaged if what is there is
             not a log, or a shorter one than was acknowledged; UsageError where must_exist, and there is none.

    >>> import tempfile
    >>> from livegnn.log import open_log
    >>> with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:{folder}/history.db") as log:
    ...     offset = log.append(b"first", key="a")
    ...     again = log.append(b"first", key="a")
    ...     print(offset, again, log.tail, log.committed, [entry.payload for entry in log.read()])
    0 0 1 0 [b'first']
    """
    if not isinstance(url, str):
        raise DtypeInvalid(f"[open_log] expected a URL as a string, got {type(url).__name__}; see docs/log.md")
    scheme, _, rest = url.partition(":")
    options["must_exist"] = must_exist
    if scheme == "sqlite":
        from livegnn.log.sqlite import SqliteLog

        path, _, query = rest.partition("?")
        asked = dict(parse_qsl(query, keep_blank_values=True))
        name = asked.pop("name", "updates")
        if not path or asked or path.startswith("//"):
            raise _refused(url, "sqlite:path?name=updates")
        return _made(SqliteLog, unquote(path), _checked_name(url, name), options)
    if scheme in ("nats", "kafka") and rest.startswith("//"):
        place, name = _place_and_name(url, scheme)
        if scheme == "nats":
            from livegnn.log.nats import NatsLog

            return _made(NatsLog, place, name, options)
        from livegnn.log.kafka import KafkaLog

        return _made(KafkaLog, place, name, options)
    raise _refused(url, "sqlite:path, nats://host:port/name or kafka://host:port/name")


def _place_and_name(url: str, scheme: str) -> tuple[str, str]:
    """(host and port, name) of a broker's URL."""
    expected = f"{scheme}://host:port/name"
    if any(character.isspace() or not character.isprintable() for character in url):
        raise _refused(url, expected)  # urlsplit would drop some of them
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.split(",") if scheme == "kafka" else [parts.netloc]
        good = all(urlsplit(f"//{host}").hostname for host in hosts)
        for host in hosts:
            _ = urlsplit(f"//{host}").port
    except ValueError:  # says which part, and may show a password
        raise _refused(url, expected) from None
    if not good or parts.query or parts.fragment:
        raise _refused(url, expected)
    if scheme == "kafka" and "@" in parts.netloc:
        raise _refused(url, f"{expected} without a user (config= takes sasl.username and sasl.password)")
    return parts.netloc, _checked_name(url, parts.path.removeprefix("/"))


def _made(kind: type[Any], place: str, name: str, options: dict[str, Any]) -> ByteLog:
    known = [name for name in kind.__init__.__kwdefaults__ or {} if name != "must_exist"]
    for key in options:
        if key not in (*known, "must_exist"):
            raise UsageError(
                f"[open_log] expected options among {', '.join(known)} for {kind.__name__}, got {key!r}; leave it out"
            )
    log: ByteLog = kind(place, name, **options)
    return log


def _checked_name(url: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueInvalid(
            "[open_log] expected a name of 1 to 64 letters, digits, '_' and '-', got another in "
            f"{masked_url(url)!r}; rename it"
        )
    return name


def _refused(url: str, expected: str) -> ValueInvalid:
    return ValueInvalid(f"[open_log] expected {expected}, got {masked_url(url)!r}; correct the URL")
