"""Programs on the pages run, from top to bottom, and print what stands below each print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "page",
    [
        "demand",
        "engine",
        "feature-cache",
        "graph",
        "hetero",
        "log",
        "models",
        "offload",
        "pyg",
        "queries",
        "readouts",
        "sampling",
        "sampling-workers",
        "serving",
        "temporal",
        "temporal-models",
        "training",
        "tutorial",
        "updates",
        "verify",
    ],
)
def test_the_programs_of_a_page_print_what_they_say(page):
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL))
    promised = [line[2:] for line in program.splitlines() if line.startswith("# ") or line == "#"]
    assert promised
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == promised
