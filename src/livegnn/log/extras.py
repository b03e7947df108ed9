"""Optional packages, imported where a log first needs them."""

from __future__ import annotations

import importlib
from typing import Any

from livegnn.errors import DataMissing


def need(module: str, extra: str) -> Any:
    """The module of that name. Raises: DataMissing, naming the extra of livegnn that brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as cause:
        raise DataMissing(
            f"[log] expected the package {cause.name or module}, got none installed; "
            f"run: pip install 'livegnn[{extra}]'"
        ) from cause
