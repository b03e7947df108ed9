"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
from pathlib import Path


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
