"""The command line: `livegnn demo | run | sample | train | bench`. All that writes to the terminal is here."""

from livegnn.cli.app import main

__all__ = ["main"]
