"""Loads one file of a checkout as a module: its imports, classes, functions and constants, never its script part.

Parent packages are empty, so that only what the file itself imports is run. Modules named absent are empty too;
torch_scatter and torch_sparse are stood in for (stand_ins.py).
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.zoo import stand_ins


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for every name under those that are absent."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if not any(fullname == name or fullname.startswith(name + ".") for name in self._names):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


class _EmptyModule(ModuleType):
    """Whatever is asked for is a class of which no object can be made."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError(f"{name} is absent in the zoo: the entry says that its class does not need it")

        return type(name, (), {"__init__": refuse})


def load(
    checkout: Path, file: str, *, absent: Sequence[str], paths: Sequence[str], given: Mapping[str, Any]
) -> ModuleType:
    """The module of `checkout/file`; run in a process of its own, as it changes sys.modules and sys.path."""
    sys.meta_path.insert(0, _Absent(absent))
    stand_ins.install()
    path = checkout / file
    sys.path[:0] = [str(path.parent), *(str(checkout / each) for each in paths), str(checkout)]
    sys.argv = [str(path)]
    parts = Path(file).with_suffix("").parts
    for end in range(1, len(parts)):
        parent = ".".join(parts[:end])  # also in the place of a library of this name, such as "code"
        sys.modules[parent] = _bare_package(parent, checkout.joinpath(*parts[:end]))
    name = ".".join(parts)
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = ".".join(parts[:-1])
    module.__dict__.update(given)
    sys.modules[name] = module
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    body: list[ast.stmt] = [statement for statement in tree.body if _is_definition(statement)]
    exec(compile(ast.Module(body, []), str(path), "exec"), module.__dict__)
    return module


def _bare_package(name: str, folder: Path) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    return package


def _is_definition(statement: ast.stmt) -> bool:
    """Imports, classes, functions, and assignments that call nothing."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef):
        return True
    if isinstance(statement, ast.Try):
        return all(isinstance(each, ast.Import | ast.ImportFrom) for each in statement.body)
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    return not any(isinstance(each, ast.Call | ast.Subscript | ast.Attribute) for each in ast.walk(statement))
