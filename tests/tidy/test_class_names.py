"""One class, one name: no two classes of the package have the same name, nor two of the core, nested ones included."""

import ast
import re
from collections import defaultdict

import pytest

from tests.tidy.sources import files, name, text, tree

# The compiled module's Python half may have the name of its C++ class.
COMPILED = "src/livegnn/_core.pyi"
# A layer of livegnn.layers and the value that it puts into the model have one meaning.
LAYERS, VALUES = "src/livegnn/models/layers.py", "src/livegnn/models/ir.py"
PAIRS = {COMPILED: {"OneHop", "TemporalSampler"}, LAYERS: {"L2Normalize", "LayerNorm", "LogSoftmax", "Softmax"}}
CLASS = re.compile(r"^\s*(?:template <.*> )?(?:class|struct|enum class|union) (\w+)(?: final)?(?: : [^;{]*)? ?\{", re.M)


def places(classes):
    """Where each name stands that stands twice: "file:line" by name."""
    found = defaultdict(list)
    for each, path, line in classes:
        found[each].append(f"{path}:{line}")
    return {each: where for each, where in found.items() if len(where) > 1}


def python_classes():
    for path in files("src/livegnn", suffixes=(".py", ".pyi")):
        for item in ast.walk(tree(path)):
            if isinstance(item, ast.ClassDef) and item.name not in PAIRS.get(name(path), ()):
                yield item.name, name(path), item.lineno


def cpp_classes(source):
    for found in CLASS.finditer(source):
        yield found[1], source.count("\n", 0, found.start(1)) + 1


def core_classes():
    for path in files("core", suffixes=(".h", ".cc")):
        if "tests" not in path.parts and not path.stem.startswith("kernels_"):  # one set of kernels is compiled thrice
            yield from ((each, name(path), line) for each, line in cpp_classes(text(path)))


def test_no_two_classes_of_the_package_have_one_name():
    twice = places(python_classes())
    assert not twice, twice


def test_no_two_classes_of_the_core_have_one_name():
    twice = places(core_classes())
    assert not twice, twice


@pytest.mark.parametrize("page", sorted(PAIRS))
def test_pairs_are_pairs(page):
    """A pair that has lost its other half is taken from the list."""
    classes = defaultdict(set)
    for path in files("src/livegnn", suffixes=(".py", ".pyi")):
        classes[name(path)] = {item.name for item in ast.walk(tree(path)) if isinstance(item, ast.ClassDef)}
    others = set.union(*(found for path, found in classes.items() if path != page))
    assert PAIRS[page] <= classes[page] & others
    if page == LAYERS:
        assert PAIRS[page] <= classes[VALUES]


def test_the_search_sees_a_second_class():
    assert places([("A", "a.py", 1), ("B", "a.py", 2), ("A", "b.py", 3)]) == {"A": ["a.py:1", "b.py:3"]}
    source = "class A final : public B {\n  struct C {\n};\nclass D;\nstruct A::E {"
    assert list(cpp_classes(source)) == [("A", 1), ("C", 2)]
