"""Every example runs, prints what it promises, and stays short."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
LAST_WORDS = {
    "ecommerce": "every sample equals a scan of the graph at version",
    "fraud_alerts": "accounts flagged at version",
    "from_scratch": "same bits as a run from scratch: True",
    "what_if": "state untouched: True",
}
LINES_MAX = {"ecommerce": 150}  # a notebook, model and training included


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert LAST_WORDS[path.stem] in done.stdout.splitlines()[-1]
    assert len(path.read_text().splitlines()) <= LINES_MAX.get(path.stem, 60)
