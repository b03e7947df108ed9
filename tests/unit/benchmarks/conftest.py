"""benchmarks/ lies beside the package, not in it: make it importable wherever pytest starts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
