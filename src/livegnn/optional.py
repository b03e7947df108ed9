"""Optional packages, imported where they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from livegnn.errors import DataMissing


def need(module: str, extra: str) -> Any:
    """The module of that name.

    Raises:   DataMissing, naming the extra of livegnn that brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as cause:
        package = cause.name or module
        raise DataMissing(
            f"[import] expected the package {package}, got none installed; run: pip install 'livegnn[{extra}]'"
        ) from cause
