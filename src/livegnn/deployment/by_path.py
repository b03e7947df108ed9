"""Names of the user's own code: "module:name"."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from livegnn.errors import UsageError


def found_by_path(path: str, where: str) -> Any:
    """What "module:name" names, in the user's own code: installed, or in the working folder. Raises: UsageError."""
    name, colon, attribute = path.partition(":")
    try:
        if not colon:
            raise ImportError(f"no colon in {path!r}")
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        return getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError, ValueError) as cause:
        raise UsageError(
            f"[{where}] expected module:name of installed code, got {path!r} ({cause}); name one that can be imported"
        ) from cause
