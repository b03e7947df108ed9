"""An operator is one file and one line of registry: no other file of the engine asks which kind an aggregation is."""

import re

from tests.tidy.sources import ROOT, files, name, text

OPERATORS = ROOT / "core" / "inference" / "operators"
KIND = re.compile(r"\b(spec|spec_|aggregation\(\w+\))\.(attention|gather|reduce)\b|Gathering::|Reduce::|AttentionSpec")


def test_kinds_are_asked_in_operators_only():
    asked = [
        f"{name(path)}:{number}"
        for path in files("core/inference", suffixes=(".h", ".cc"))
        for number, line in enumerate(text(path).splitlines(), 1)
        if path.parent != OPERATORS and KIND.search(line)
    ]
    assert not asked, asked


def test_the_registry_names_the_files_of_operators():
    listed = re.findall(r"^  OPERATOR\((\w+)\)", text(OPERATORS / "registry.cc"), re.MULTILINE)
    kinds = {
        path.stem for path in OPERATORS.glob("*.cc") if re.search(rf"^OperatorKind {path.stem}\(\)", text(path), re.M)
    }
    assert len(listed) == len(kinds)
    assert set(listed) == kinds
