"""No file above 800 lines, no function above 70; the aim is half of that."""

import ast
import re

from tests.tidy.sources import files, name, text, tree

LINES_PER_FILE_MAX = 800
LINES_PER_FUNCTION_MAX = 70
CODE = (".py", ".pyi", ".h", ".cc")
FOLDERS = ("src", "core", "bindings", "tests", "benchmarks", "examples")


def test_files_are_short():
    long = {name(path): len(text(path).splitlines()) for path in files(*FOLDERS, suffixes=CODE)}
    long = {path: lines for path, lines in long.items() if lines > LINES_PER_FILE_MAX}
    assert not long, long


def python_functions(path):
    for item in ast.walk(tree(path)):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            first = item.body[0]
            documented = ast.get_docstring(item, clean=False) is not None
            docstring = first.end_lineno - first.lineno + 1 if documented else 0
            yield item.name, item.end_lineno - item.lineno + 1 - docstring


def cpp_functions(path):
    """Functions that open and close at the left margin, where the house format puts them."""
    start = None
    for number, line in enumerate(text(path).splitlines()):
        if re.match(r"[A-Za-z_].*[){]$|[A-Za-z_].*\)[^;]*\{$", line) and start is None and line.endswith("{"):
            if not re.match(r"(namespace|class|struct|enum|union|extern|template.*(class|struct))\b.*", line):
                start = number, line
        elif line.startswith("}") and start is not None:
            yield start[1], number - start[0] + 1
            start = None


def test_functions_are_short():
    long = [
        f"{name(path)}: {function} has {lines} lines"
        for path in files(*FOLDERS, suffixes=CODE)
        for function, lines in (python_functions if path.suffix.startswith(".py") else cpp_functions)(path)
        if lines > LINES_PER_FUNCTION_MAX
    ]
    assert not long, long
