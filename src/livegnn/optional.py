"""Optional packages, imported where they are first needed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from livegnn.errors import DataMissing


def need(module: str, extra: str) -> Any:
    """The module of that name.

    Raises:   DataMissing, naming the extra of livegnn that brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as cause:
        raise _missing(cause.name or module, extra) from cause


def check_installed(package: str, extra: str) -> None:
    """For a package that is needed later, or perhaps not at all: its import may take seconds.

    Raises:   as need().
    """
    if importlib.util.find_spec(package) is None:
        raise _missing(package, extra)


def _missing(package: str, extra: str) -> DataMissing:
    return DataMissing(
        f"[import] expected the package {package}, got none installed; run: pip install 'livegnn[{extra}]'"
    )
