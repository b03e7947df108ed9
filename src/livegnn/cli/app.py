"""Arguments, dispatch and exit codes.

Exit codes: 0 done; 1 the data, the model or the files were refused (one line on standard error, no traceback); 2 wrong
arguments; 130 interrupted. A traceback means a defect of livegnn.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from livegnn import __version__
from livegnn.cli import bench, models, run, sample, serve, status, train
from livegnn.cli.console import Console
from livegnn.cli.demo import command as demo
from livegnn.errors import InvariantBroken, LiveGnnError, StateMismatch

_TEXT = "Keeps the output of a trained graph neural network exactly up to date while its graph changes."


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(prog="livegnn", description=_TEXT)
    parser.add_argument("--version", action="version", version=f"livegnn {__version__}")
    parser.add_argument("--plain", action="store_true", help="no colours and no moving bar, even on a terminal")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module, text in (
        ("demo", demo, "a fraud model on a real dated graph: speed, quality, proof, picture"),
        ("run", run, "your own model and files: predictions as the graph changes"),
        ("sample", sample, "a query kept sampled as the graph changes, next to sampling at query time"),
        ("train", train, "a temporal model trained again and again as its graph grows"),
        ("bench", bench, "the benchmarks, from a checkout of the source"),
    ):
        _add(commands, name, text, module.add_arguments, module.run)
    for name, declare, action, text in (
        ("serve", serve.add_serve, serve.run_serve, "a durable service: updates in, live predictions out, over HTTP"),
        ("status", status.add_status, status.run_status, "what a running service says of itself; 0 if it is ready"),
        ("verify", serve.add_verify, serve.run_verify, "read and replay all of a service's data folder"),
        ("restore", serve.add_restore, serve.run_restore, "the state of a service as of an earlier version or time"),
        ("models", models.add_models, models.run_models, "the registry of models: add a version, list what is there"),
        ("token", serve.add_token, serve.run_token, "a token for a service, and the lines that let it in"),
    ):
        _add(commands, name, text, declare, action)
    return parser


def _add(commands: Any, name: str, text: str, declare: Callable[..., None], action: Callable[..., int]) -> None:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    declare(command)
    command.set_defaults(run=action)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    options.rest = rest
    if rest and options.command != "bench":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    console = Console(plain=True if options.plain else None)
    try:
        code: int = options.run(options, console)
    except KeyboardInterrupt:
        sys.stderr.write("livegnn: interrupted before there was anything to report\n")
        return 130
    except BrokenPipeError:  # the reader has closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- so that closing it at exit fails no more
        return 0
    except (InvariantBroken, StateMismatch):
        raise
    except (LiveGnnError, OSError) as why:
        sys.stderr.write(f"livegnn: {why}\n")
        return 1
    return code
