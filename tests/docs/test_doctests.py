"""Examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import livegnn

MODULES = ["livegnn", *(found.name for found in pkgutil.walk_packages(livegnn.__path__, "livegnn."))]


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith(("._core", ".__main__"))])
def test_examples_in_docstrings(module):
    failed, _ = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
