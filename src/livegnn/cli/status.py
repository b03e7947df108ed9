"""`livegnn status`: what a running service says of itself, for people and for health checks."""

from __future__ import annotations

import argparse
import json
import os
import ssl
import urllib.error
import urllib.request

from livegnn.cli.console import Console
from livegnn.errors import ServiceError, UsageError

_SHOWN = ("livegnn_version", "livegnn_snapshot_version", "livegnn_waiting_updates", "livegnn_freshness_seconds",
          "livegnn_requests_total", "livegnn_workers_ready", "livegnn_worker_vertices", "livegnn_bytes")  # fmt: skip


def add_status(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn status`."""
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000", metavar="URL", help="default: %(default)s")
    parser.add_argument("--ca", metavar="FILE", help="the certificate to trust, where it is one of your own")
    parser.add_argument("--quiet", action="store_true", help="ask for readiness alone, which needs no token")
    parser.epilog = "The token, where the service wants one, is that of LIVEGNN_TOKEN."


def run_status(options: argparse.Namespace, console: Console) -> int:
    """Prints readiness and the main metrics; 0 if updates are taken, 1 if not."""
    if not options.url.startswith(("http://", "https://")):
        raise UsageError(f"[status] expected an http:// or https:// URL, got {options.url!r}; correct it")
    status, body = _asked(options, "/readyz")
    ready = status == 200
    (console.good if ready else console.warn)(f"{options.url}: {'ready' if ready else 'not ready'}")
    if options.quiet:
        return int(not ready)
    status, body = _asked(options, "/metrics")
    if status != 200:
        said = json.loads(body).get("error", {}).get("message", "") if body.startswith(b"{") else ""
        raise ServiceError(f"[status] expected metrics, got status {status} {said}; set LIVEGNN_TOKEN to a token")
    rows = [line.rsplit(" ", 1) for line in body.decode().splitlines() if line.startswith(_SHOWN)]
    console.table(("metric", "value"), rows)
    return int(not ready)


def _asked(options: argparse.Namespace, path: str) -> tuple[int, bytes]:
    """Status and body of a route. Raises: ServiceError where nothing answers."""
    request = urllib.request.Request(options.url.rstrip("/") + path)
    if token := os.environ.get("LIVEGNN_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    context = ssl.create_default_context(cafile=options.ca) if options.url.startswith("https:") else None
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()
    except OSError as cause:
        raise ServiceError(f"[status] expected an answer from {options.url}, got {cause}; is it started?") from cause
