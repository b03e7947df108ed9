"""Programs on the pages run, from top to bottom, and print what stands below each print."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.programs import Programs

DOCS = Path(__file__).parents[2] / "docs"


PAGES = sorted(
    str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md") if "```python\n" in page.read_text()
)


def test_there_are_pages_with_programs():
    assert {"tutorial", "how-to/fraud", "explain/exactness"} < set(PAGES)
    assert len(PAGES) >= 31


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    one = Programs()
    yield one
    one.close()


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_print_what_they_say(page, programs):
    program = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL))
    promised = [line[2:] for line in program.splitlines() if line.startswith("# ") or line == "#"]
    assert promised
    if re.search(r"SampleCluster|ContinuousClusterTrainer|lg\.Cluster\(", program):
        pytest.importorskip("ray", reason="needs the extra distributed")
    run = programs.run(program)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == promised


def test_a_program_that_starts_with_pyg_loaded_is_like_any_other(programs):
    """It sees no names but its own; its prints, its errors and its exit code are its own."""
    right = programs.run(
        "import torch_geometric\nimport sys\nprint(__name__, sys.argv, sys.path[0] == '', sys.stdin.read())"
    )
    assert (right.returncode, right.stdout) == (0, "__main__ ['-c'] True \n"), right.stderr
    wrong = programs.run("import torch_geometric\nprint(torch)")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "NameError: name 'torch' is not defined" in wrong.stderr
    ended = programs.run("import torch_geometric\nimport atexit, sys\natexit.register(print, 'last')\nsys.exit(3)")
    assert (ended.returncode, ended.stdout) == (3, "last\n")
