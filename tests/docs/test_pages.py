"""Programs on the pages run, from top to bottom, and print what stands below each print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


PAGES = sorted(
    str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md") if "```python\n" in page.read_text()
)


def test_there_are_pages_with_programs():
    assert {"tutorial", "how-to/fraud", "explain/exactness"} < set(PAGES)
    assert len(PAGES) >= 31


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_print_what_they_say(page):
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL))
    promised = [line[2:] for line in program.splitlines() if line.startswith("# ") or line == "#"]
    assert promised
    if re.search(r"SampleCluster|ContinuousClusterTrainer|lg\.Cluster\(", program):
        pytest.importorskip("ray", reason="needs the extra distributed")
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == promised
