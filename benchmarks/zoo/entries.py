"""What the zoo holds: one entry for each class, with everything that is needed to make and call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from torch import nn

Expected = Literal["imported", "impossible"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One class of a public repository, as a user would meet it.

    repository: OWNER/NAME; its checkout lies in the folder OWNER+NAME.   file: within the repository.
    name: the class.   make: builds it, with arguments of ours, from the loaded file.
    adapter: wraps the module where its forward takes other things than features and edges (adapters.py).
    columns: what the forward takes after features and edges, in this order: "weight", "attribute", "type".
    data: the forward takes one Data with all of them.   take: of several results, the place of the one to keep.
    expected: "impossible" says with `why` what no engine could keep.   options: for from_pyg.
    absent: modules that the class does not need, replaced by empty ones.   paths: folders of the repository from which
    the file imports.   given: values of names that the file's script part would set.
    width: of the features.   attributes: width of the edges' attributes.   types: how many types of edges.
    rows: what the forward gives rows of.   whole: features and attributes are whole numbers below it.
    """

    repository: str
    file: str
    name: str
    make: Callable[[ModuleType], nn.Module]
    adapter: Callable[[nn.Module], nn.Module] | None = None
    columns: tuple[str, ...] = ()
    data: bool = False
    take: int | None = None
    rows: Literal["vertex", "edge"] = "vertex"
    expected: Expected = "imported"
    why: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    width: int = 8
    attributes: int = 0
    types: int = 0
    whole: int = 0

    @property
    def folder(self) -> str:
        return self.repository.replace("/", "+")

    @property
    def title(self) -> str:
        return f"{self.repository} {self.file}:{self.name}"
