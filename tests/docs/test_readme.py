"""README's program runs, and prints what README says that it prints."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_program_of_the_readme_prints_what_stands_below_it():
    text = README.read_text()
    program, printed = re.search(r"```python\n(.*?)```\n+```\n(.*?)```", text, re.DOTALL).groups()
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == printed


def test_every_page_that_the_readme_names_is_there():
    for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", README.read_text()):
        assert (README.parent / link).exists(), link
