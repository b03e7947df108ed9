"""What users meet by name: exports, make targets, the version, the stub of the compiled module, the error classes."""

import builtins
import inspect
import re
import subprocess
import sys
import tomllib

import livegnn
from livegnn import _native, errors
from tests.tidy.sources import PACKAGE, ROOT, text

PUBLIC_NAMES = ROOT / "tests" / "tidy" / "public_names.txt"


def test_exported_names_are_pinned():
    pinned = text(PUBLIC_NAMES).split()
    assert sorted(livegnn.__all__) == sorted(pinned), (
        "a public name came or went: say so in tests/tidy/public_names.txt"
    )
    assert len(pinned) <= 28, "the top level stays small: put a name into the package it belongs to"
    missing = [public for public in pinned if not hasattr(livegnn, public)]
    assert not missing, missing


def test_every_make_target_has_help():
    makefile = text(ROOT / "Makefile")
    targets = re.findall(r"^([a-z][a-z-]*):(?!=)(.*)$", makefile, flags=re.MULTILINE)
    assert {"help", "demo", "test", "check", "bench"} <= {target for target, _ in targets}
    assert not [target for target, rest in targets if "## " not in rest]
    phony = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert phony
    assert sorted(phony[1].split()) == sorted(target for target, _ in targets)


def test_one_version():
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    assert _native.__version__ == project["version"]
    newest = re.search(r"^## (\d+\.\d+\.\d+)", text(ROOT / "CHANGELOG.md"), flags=re.MULTILINE)
    assert newest
    assert newest[1] == project["version"]


def test_error_classes_are_listed_and_drawn():
    classes = {
        key for key, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, errors.LiveGnnError)
    }
    assert classes == set(errors.__all__)
    assert errors.__doc__
    assert classes == set(re.findall(r"\b[A-Z][A-Za-z]+\b", errors.__doc__)) & classes
    shadowed = classes & set(dir(builtins))
    assert not shadowed, shadowed


def test_each_kind_of_native_error_has_its_class():
    header = text(ROOT / "core" / "include" / "livegnn" / "error.h")
    kinds = re.findall(r"^  (\w+),", header, flags=re.MULTILINE)
    assert kinds
    assert not [kind for kind in kinds if not hasattr(errors, kind)]


def test_the_stub_is_the_compiled_module():
    made = subprocess.run([sys.executable, ROOT / ".ci" / "stub.py"], capture_output=True, text=True, check=True).stdout
    assert text(PACKAGE / "_core.pyi") == made, "the compiled module changed: run `make stub`"
