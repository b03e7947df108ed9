"""docs/reliability.md names tests that exist, and says what they show."""

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ROWS = re.findall(r"^\| (?!promise|---)(.+?) \| (.+?) \|", PAGE.read_text(), re.MULTILINE)


def test_every_promise_names_a_test_that_exists():
    assert len(ROWS) >= 10
    wrong = []
    for promise, shown in ROWS:
        named = re.fullmatch(r"`(test_\w+)` in \[(\w+\.py)\]\((\S+)\)", shown)
        if named is None or Path(named[3]).name != named[2]:
            wrong.append(promise)
            continue
        tree = ast.parse((PAGE.parent / named[3]).read_text())
        if named[1] not in {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}:
            wrong.append(f"{promise}: {named[1]}")
    assert not wrong
