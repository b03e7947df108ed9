"""The command line: `livegnn demo | run | sample | train | bench`. Nothing else of the package writes to the terminal."""

from livegnn.cli.app import main

__all__ = ["main"]
