"""`livegnn serve`, `livegnn verify`, `livegnn restore` and `livegnn token`: a durable service and its data folder."""

from __future__ import annotations

import argparse
import logging
import math
import os
import socket
import sys
import tempfile
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from livegnn import __version__
from livegnn.cli.console import Console
from livegnn.cli.demo.served import DemoStream
from livegnn.deployment import Deployment, audit, printed, read_config
from livegnn.deployment.config import (
    FILE_NAME,
    DeploymentConfig,
    ServerConfig,
    TokenConfig,
    over_workers,
    printed_token,
)
from livegnn.deployment.events import emit
from livegnn.errors import InvariantBroken, LiveGnnError, StateMismatch, UsageError
from livegnn.serve.limits import Limits
from livegnn.serve.service.log_lines import RequestLog, configure

_RATE = 200  # events a second
TEMPORARY = 75  # exit code of a failure that may pass, such as a broker that does not answer
_LOCAL = ("127.0.0.1", "::1", "localhost")


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn serve`."""
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help=f"default: {FILE_NAME}")
    parser.add_argument("--data", type=Path, metavar="DIR", help="log and snapshots (default: data next to CONFIG)")
    parser.add_argument("--host", metavar="HOST", help="default: 127.0.0.1, this machine alone")
    parser.add_argument("--port", type=int, metavar="N", help="default: 8000; 0 is a free one")
    parser.add_argument("--workers", type=int, metavar="N", help="processes for the engine (default: of [cluster])")
    parser.add_argument("--insecure", action="store_true", help="serve others without tokens, or without TLS")
    parser.add_argument("--log-format", choices=("text", "json"), help="of lines on standard error (default: text)")
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration, and end")
    parser.add_argument("--demo", action="store_true", help="a fraud model on a real stream, to look at")
    parser.add_argument("--rate", type=_rate, metavar="N", help=f"--demo: events a second (default: {_RATE})")


def _rate(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def run_serve(options: argparse.Namespace, console: Console) -> int:
    """Serves until SIGINT or SIGTERM; 0."""
    _refuse_unused(options)
    if options.demo:
        return _served(options, ServerConfig(), console)
    path = options.config or Path(FILE_NAME)
    config = effective(read_config(path), options)
    if options.print_config:
        console.line(printed(config).rstrip())
        return 0
    return _served(options, config.server, console)


def _served(options: argparse.Namespace, server: ServerConfig, console: Console) -> int:
    """Serves; a failure is a line of the log where that is JSON. Returns the exit code."""
    form = options.log_format or server.log
    configure(form, server.log_level)
    try:
        _serve(options, form, console)
    except (InvariantBroken, StateMismatch):
        raise
    except (LiveGnnError, OSError) as error:
        code = TEMPORARY if isinstance(error, LiveGnnError) and error.retryable else 1
        if form == "json":
            emit("failed", str(error), level=logging.CRITICAL, kind=type(error).__name__, exit_code=code)
        else:
            sys.stderr.write(f"livegnn: {error}\n")
        return code
    return 0


def effective(config: DeploymentConfig, options: argparse.Namespace) -> DeploymentConfig:
    """The configuration with what the command line says."""
    given = {"host": options.host, "port": options.port, "log": options.log_format}
    server = structs.replace(config.server, **{key: value for key, value in given.items() if value is not None})
    config = structs.replace(config, server=server)
    return config if options.workers is None else over_workers(config, options.workers)


def _serve(options: argparse.Namespace, form: str, console: Console) -> None:
    emit("starting", f"[serve] livegnn {__version__}, process {os.getpid()}", livegnn=__version__, pid=os.getpid())
    with ExitStack() as stack:
        if options.demo:
            stream = DemoStream(console)
            folder = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="livegnn-demo-")))
            deployment = stream.deployment(folder)
        else:
            stream, path = None, options.config or Path(FILE_NAME)
            deployment = Deployment(path, options.data or path.parent / "data", workers=options.workers)
        server = deployment.config.server
        host, port = options.host or server.host, server.port if options.port is None else options.port
        _refuse_open(deployment.config, host, options.insecure)
        stack.enter_context(deployment)
        if stream is not None:
            stop = threading.Event()
            feeder = threading.Thread(target=stream.feed, args=(deployment, options.rate or _RATE, stop), daemon=True)
            stack.callback(feeder.join)
            stack.callback(stop.set)
            feeder.start()
        _listen(deployment, host, port, form, console)
    emit("stopped", "[serve] what was acknowledged is durable", version=deployment.version)
    if form == "text":
        console.line("Stopped; what was acknowledged is durable.")


def _listen(deployment: Deployment, host: str, port: int, form: str, console: Console) -> None:
    from livegnn.serve.descriptors import raise_limit
    from livegnn.serve.runner import run_app
    from livegnn.serve.service.access import AccessToken
    from livegnn.serve.service.app import service

    config = deployment.config
    server = config.server
    limits = Limits(
        body_bytes_max=server.body_bytes_max,
        updates_max=server.updates_max,
        connections_max=server.connections_max,
        ids_max=server.ids_max,
    )
    raise_limit(limits.connections_max)
    tokens = [AccessToken(one.name, one.sha256, one.scope) for one in config.token]
    tls = (server.certificate, server.key) if server.certificate and server.key else None
    names = ", ".join(f"{name} ({model})" for name, model in deployment.models.items()) or "no engines"
    if deployment.cluster is not None:
        names += f"; workers: {deployment.cluster.workers}"

    def ready(url: str) -> None:
        if form == "text":
            console.good(f"{url}: version {deployment.version}, {names}. Its page is {url}/ and Ctrl-C ends it.")
        emit("listening", f"[serve] {url}", url=url, version=deployment.version)
        notify("READY=1")

    def draining() -> None:
        notify("STOPPING=1")
        waiting = deployment.commits.waiting_requests
        text = f"[serve] draining {application.traffic.connections} connections"
        emit("drain", text, connections=application.traffic.connections, waiting_requests=waiting)

    lines, anyone = RequestLog(access=server.access_log), host not in _LOCAL
    application = service(deployment, tokens=tokens, limits=limits, anyone=anyone, request_log=lines)
    run_app(
        application,
        host,
        port,
        for_others=host not in _LOCAL,
        tls=tls,
        ready=ready,
        stopping=draining,
        logs_as_process=True,
    )


def notify(state: str) -> None:
    """Says to systemd how the service is, where systemd asks for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


def _refuse_unused(options: argparse.Namespace) -> None:
    """Raises: UsageError for options that would do nothing together."""
    if options.demo and (options.config is not None or options.print_config):
        got = "a configuration" if options.config is not None else "--print-config"
        raise UsageError(f"[serve] expected --demo alone, which brings its own configuration, got {got}; leave one out")
    if options.demo and options.workers is not None:
        raise UsageError(
            f"[serve] expected --demo without --workers, got {options.workers} of them; its shadow needs one process"
        )
    if options.rate is not None and not options.demo:
        raise UsageError("[serve] expected --rate with --demo, got none; a deployment's events come from its clients")


def _refuse_open(config: DeploymentConfig, host: str, insecure: bool) -> None:
    """Raises: UsageError for an address that others can reach, without tokens and TLS, unless that is wanted."""
    server = config.server
    if bool(server.certificate) != bool(server.key):
        raise UsageError("[server] expected certificate and key, got one of them; name both files, or neither")
    if host in _LOCAL or insecure:
        return
    missing = [
        what for what, there in (("a [[token]]", config.token), ("certificate and key", server.key)) if not there
    ]
    if missing:
        raise UsageError(
            f"[serve] expected {' and '.join(missing)} for {host}, which others can reach, got none; add them, or say "
            "--insecure"
        )


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn verify`."""
    parser.add_argument("data", type=Path, metavar="DIR", help="a deployment's data folder that no process has open")
    parser.add_argument("--log", default="", metavar="URL", help="of the log, where the configuration names one")


def run_verify(options: argparse.Namespace, console: Console) -> int:
    """Reads and replays everything; 0, or 1 with faults."""
    findings = audit.verify(options.data, options.log, console.line)
    for one in findings:
        (console.warn if one.fault else console.good)(f"{one.what}: {one.fault or 'sound'}")
    return int(any(one.fault for one in findings))


def add_restore(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn restore`."""
    add_verify(parser)
    parser.add_argument(
        "--at",
        required=True,
        metavar="VERSION|TIME",
        help="a version, or a time such as 2026-05-31T12:30; in UTC where it names no zone",
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the new data folder")


def run_restore(options: argparse.Namespace, console: Console) -> int:
    """Makes a data folder with the state as of then; 0."""
    version, time_ms = (int(options.at), None) if options.at.isdigit() else (None, _time_ms(options.at))
    made = audit.restored(options.data, options.to, version=version, time_ms=time_ms, url=options.log)
    console.good(f"{options.to}: version {made}. Start it with: livegnn serve CONFIG --data {options.to}")
    return 0


def _time_ms(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except ValueError as cause:
        raise UsageError(
            f"[--at] expected a version or a time such as 2026-05-31T12:30:00+00:00, got {text!r}; correct it"
        ) from cause


def add_token(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `livegnn token`."""
    parser.add_argument("name", metavar="NAME", help="for people and logs")
    parser.add_argument("--scope", choices=("read", "write", "admin"), default="read", help="default: read")


def run_token(options: argparse.Namespace, console: Console) -> int:
    """Prints a new token, and the lines of the configuration that let it in; 0."""
    from livegnn.serve.service.access import new_token

    token, sha256 = new_token()
    console.line(f"The token, which is shown once: {token}")
    console.line(printed_token(TokenConfig(name=options.name, sha256=sha256, scope=options.scope)))
    return 0
