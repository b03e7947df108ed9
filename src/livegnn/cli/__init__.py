"""The command line: `livegnn demo | run | sample | bench`. The only part of the package that writes to the terminal."""

from livegnn.cli.app import main

__all__ = ["main"]
