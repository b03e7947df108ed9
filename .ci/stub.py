"""Prints src/livegnn/_core.pyi, the types of the compiled module, as nanobind has them: `make stub` writes the file."""

import re

from nanobind.stubgen import StubGen

from livegnn._native import _core

HEADER = '"""Types of the compiled module, written by `make stub`; bindings/ has the code."""\n\n'
ARRAY = re.compile(r"Annotated\[(NDArray(?:\[[\w.]+\])?), dict\([^()]*(?:\([^()]*\)[^()]*)*\)\]")


def stub() -> str:
    generator = StubGen(_core, include_docstrings=False)
    generator.put(_core)
    text = ARRAY.sub(r"\1", generator.get())  # shapes and orders: a type checker does not read them
    text = re.sub(r"\bNDArray\b(?!\[|\n)", "NDArray[Any]", text)
    text = re.sub(r"\n\n(?=    )", "\n", text).replace("import Annotated, ", "import ")
    return HEADER + text + "__version__: str\n"


if __name__ == "__main__":
    print(stub(), end="")
