"""README's programs run, and print what README says that it prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


PROGRAMS = re.findall(r"```python\n(.*?)```\n+```\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_readme_has_its_program_and_stays_short():
    assert len(PROGRAMS) == 1
    assert len(README.read_text().split()) <= 900


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_a_program_of_the_readme_prints_what_stands_below_it(program, printed):
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == printed
