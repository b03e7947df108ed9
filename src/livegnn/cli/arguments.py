"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from livegnn.cli.console import Console
from livegnn.errors import DataMissing

Stream = TypeVar("Stream")


def add_columns(parser: argparse.ArgumentParser, *, time: str, weight: str) -> argparse._ArgumentGroup:
    """The options that name columns of the user's files; time, weight: what these columns are for."""
    columns = parser.add_argument_group("columns of your files")
    columns.add_argument("--src-column", default="src", metavar="NAME", help="default: src")
    columns.add_argument("--dst-column", default="dst", metavar="NAME", help="default: dst")
    op = "add, remove or set_weight (default: op if there, else all are add)"
    columns.add_argument("--op-column", metavar="NAME", help=op)
    columns.add_argument("--time-column", metavar="NAME", help=time)
    columns.add_argument("--weight-column", metavar="NAME", help=weight)
    ids = "vertex ids in the features file (default: ids are row numbers from 0)"
    columns.add_argument("--id-column", metavar="NAME", help=ids)
    return columns


def loaded(load: Callable[[], Stream] | None, generate: Callable[[], Stream], console: Console) -> Stream:
    """The real data set, or a generated one where that is not at hand, or not wanted; one line says so, and why."""
    if load is None:
        console.warn("This stream is GENERATED: the shape of the real one, not its content.")
        return generate()
    try:
        return load()
    except DataMissing as why:
        try:
            made = generate()
        except DataMissing:
            raise why from None
        console.warn(f"This stream is GENERATED, as the real one is missing: {why}")
        return made


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


def from_zero(text: str) -> int:
    """A whole number of at least 0."""
    value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected at least 0, got {value}")
    return value


def picture(text: str) -> Path:
    """A file to draw into: .png, .pdf or .svg."""
    path = Path(text)
    if path.suffix.lower() not in (".png", ".pdf", ".svg") or path.is_dir():
        got = "a folder" if path.is_dir() else path.suffix or "no suffix"
        raise argparse.ArgumentTypeError(f"expected a file .png, .pdf or .svg, got {got} in {text!r}")
    return path


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
