"""Every example runs, prints what it promises, and stays short."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
LAST_WORDS = {
    "median": "median 20.0",
    "cluster": "the bits of one engine: True",
    "amounts": "[90.0, 4.5, 12.0",
    "ecommerce": "every sample equals a scan of the graph at version",
    "fraud_alerts": "accounts flagged at version",
    "from_scratch": "same bits as a run from scratch: True",
    "next_purchase": "('customer', 'buys', 'product')",
    "temporal_wikipedia": "one more edit, and asked again",
    "what_if": "state untouched: True",
}
LINES_MAX = {"ecommerce": 150, "temporal_wikipedia": 90}  # notebooks, models and training included
ARGUMENTS = {"temporal_wikipedia": ["3000"]}  # of its events


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    command = [sys.executable, str(path), *ARGUMENTS.get(path.stem, [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert LAST_WORDS[path.stem] in done.stdout.splitlines()[-1]
    assert len(path.read_text().splitlines()) <= LINES_MAX.get(path.stem, 60)
