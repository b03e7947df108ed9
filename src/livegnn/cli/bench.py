"""`livegnn bench`: hands over to benchmarks/ of a checkout; the installed package does not carry them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from livegnn.cli.console import Console
from livegnn.errors import DataMissing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares nothing: all options but --help belong to the benchmarks (`app.main` leaves them in `rest`)."""
    parser.epilog = "All options are handed on to the benchmarks, as in: livegnn bench --full"


def checkout() -> Path:
    """Root of the checkout around the working directory.

    Raises:   DataMissing if there is none.
    """
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "benchmarks" / "__main__.py").is_file() and (folder / "pyproject.toml").is_file():
            return folder
    raise DataMissing(
        "[bench] expected a checkout of livegnn with benchmarks/, got none around the working directory;"
        " clone the source, then run `make bench` there"
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Runs `python -m benchmarks` in the checkout; returns its exit code."""
    root = checkout()
    console.line(f"Running the benchmarks of {root}")
    process = subprocess.Popen([sys.executable, "-m", "benchmarks", *options.rest], cwd=root)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the benchmarks got it too: they stop, and say what stands
            continue
