"""The one door to the compiled module: nothing else imports livegnn._core.

The package and its compiled half must come from the same build; a stale one is refused here, before it can give an
answer.
"""

from __future__ import annotations

__version__ = "0.2.0"

try:
    from livegnn import _core
except ImportError as cause:
    raise ImportError(
        "[import] expected the compiled module livegnn._core, got none that loads; "
        "install livegnn with pip on a machine with a C++20 compiler (a bare source folder on the path is not enough)"
    ) from cause

if _core.__version__ != __version__:
    raise ImportError(
        f"[import] expected livegnn._core of version {__version__}, got {_core.__version__}; "
        "reinstall livegnn so that both halves come from one build"
    )

from livegnn._core import *  # noqa: F403
