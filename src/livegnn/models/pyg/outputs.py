"""Which results of a forward a model keeps, where the forward returns a tuple, a list or a dict of several.

A result is named by its path: an index, a key, the field of a namedtuple, or a tuple of these where results lie in one
another. Only results with one row per vertex, or with one per edge, can be kept. A loss, which is one number for all
vertices, is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import torch

from livegnn.errors import ModelError, ModelUnsupported
from livegnn.models import ir
from livegnn.models.edges import Source, Target, on_edges
from livegnn.models.pyg.context import Flat, Folded, Import, Refusal, Shaped, TablePart, refuse
from livegnn.models.pyg.table_parts import same

Step: TypeAlias = str | int
Path: TypeAlias = tuple[Step, ...]


class Wanted:
    """The results that the user asks for, and after a reading those that were found.

    asked: None for the only one; "all"; an index, a key or a path; a list of these.
    """

    def __init__(self, asked: Any, where: str, row: str = "vertex") -> None:
        self.asked, self.where, self.row = asked, where, row
        self.paths: list[Path] = [()]
        self._pooled: set[int] | None = None  # of a row per graph, the ids of what was pooled
        self.kinds: dict[Path, list[Path]] = {}  # of rows by kind, such as users and items: first result -> all
        several = isinstance(asked, list)
        for each in (asked or [()]) if several else [asked]:
            steps = each if isinstance(each, tuple) else (each,)
            fits = bool(steps) and all(isinstance(step, (str, int)) and not isinstance(step, bool) for step in steps)
            if asked is not None and not fits:
                raise ModelError(
                    f"[from_pyg] expected outputs as an index, a key, a path, a list of these or 'all', got {asked!r}; "
                    "name a result of the forward"
                )

    def of(self, result: Any, record: Import, shapes: dict[Path, tuple[int, ...]]) -> Any:
        """The value that is kept of what a forward returns; `record.outputs` gets the columns of several.

        shapes: of the results of a run on a small graph, to say which of those that cannot be read are numbers.
        Raises: ModelUnsupported, ModelError.
        """
        found, self._pooled = dict(leaves(result)), set(record.pools.sources) if record.pools is not None else None
        self.kinds = whole_rows(found, record.ends)
        if self.asked is None:
            self.paths = [self._only(result, found, shapes)]
        elif self.asked == "all":
            self.paths = self._of_one_kind(found, shapes)
        else:
            asked = self.asked if isinstance(self.asked, list) else [self.asked]
            self.paths = [each if isinstance(each, tuple) else (each,) for each in asked]
        if self.kinds:
            first = {path: whole for whole, paths in self.kinds.items() for path in paths}
            self.paths = [*dict.fromkeys(first.get(path, path) for path in self.paths)]
        values = [self._one(path, result, found, shapes) for path in self.paths]
        if self.asked != "all" and not isinstance(self.asked, list):
            return values[0]
        if not values:
            raise refuse(
                self.where, f"it returns no row per {self.row}", f"return one tensor with a row per {self.row}"
            )
        if len({value.on_edges for value in values}) > 1:
            reason = "it has rows of vertices and rows of edges, and a model keeps one kind"
            raise refuse(self.where, reason, "import it twice, with outputs= for each kind")
        ends = [0]
        for value in values:
            ends.append(ends[-1] + value.width)
        names = [name_of(path) for path in self.paths]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            paths = [_shown(path) for path, name in zip(self.paths, names, strict=True) if name == twice]
            advice = "name each result once" if len(set(paths)) == 1 else "give them other keys, or name one of them"
            raise refuse(self.where, f"its results {' and '.join(paths)} would both have the name {twice!r}", advice)
        record.outputs = dict(zip(names, pairwise(ends), strict=True))
        joined = values[0] if len(values) == 1 else ir.Concat(tuple(values))
        return record.name(joined, f"{self.where}: outputs side by side")

    def take(self, result: Any) -> list[Any]:
        """The same of what the module itself returns, one by one."""
        parts = [[at(result, each) for each in self.kinds.get(path, [path])] for path in self.paths]
        return [each[0] if len(each) == 1 else torch.cat(each) for each in parts]

    def _only(self, result: Any, found: dict[Path, Any], shapes: dict[Path, tuple[int, ...]]) -> Path:
        """The one result that can be kept. Raises: ModelUnsupported naming the choices where there are several."""
        if not isinstance(result, (tuple, list, dict)):
            return ()
        rows = [path for path, each in found.items() if self._is_output(each, shapes.get(path))]
        others = [path for path in found if path not in rows and not _says_nothing(found[path], shapes.get(path))]
        if len(rows) == 1 and not others:
            return rows[0]
        kind = next(each.__name__ for each in (tuple, list, dict) if isinstance(result, each))
        raise self._refused(f"it returns a {kind} of {self._listed(found, shapes)}", rows, found)

    def _of_one_kind(self, found: dict[Path, Any], shapes: dict[Path, tuple[int, ...]]) -> list[Path]:
        """All results with a row per vertex; without any, all with a row per edge."""
        paths = [path for path, each in found.items() if self._is_output(each, shapes.get(path))]
        return [path for path in paths if not _on_edges(found[path])] or paths

    def _one(self, path: Path, result: Any, found: dict[Path, Any], shapes: dict[Path, tuple[int, ...]]) -> ir.Value:
        if path and not isinstance(result, (tuple, list, dict)):
            raise refuse(self.where, "it returns one result, not several", "leave outputs out")
        try:
            each = found[path] if path in found else at(result, path)
        except (LookupError, TypeError):
            rows = [path for path, each in found.items() if self._is_output(each, shapes.get(path))]
            got = f"it has no result {_shown(path)}; it returns {self._listed(found, shapes)}"
            raise self._refused(got, rows, found) from None
        if isinstance(each, Refusal):
            raise each.error
        value = each.value if isinstance(each, Flat) else each
        where = self.where if not path else f"{self.where}, result {_shown(path)}"
        if not isinstance(value, ir.Value):
            raise refuse(where, f"it returns a {kind_of(each)}", f"return one tensor with a row per {self.row}")
        if value.on_edges and self.row != "vertex":
            raise refuse(where, "it returns one row per edge", f"return one tensor with a row per {self.row}")
        if value.on_edges and not any(isinstance(x, Source | Target) for x in on_edges([value])):
            reason = "it returns rows of edges that are computed from edge_attr alone"
            raise refuse(where, reason, "compute them where the attributes come from")
        return value

    def _refused(self, got: str, rows: list[Path], found: dict[Path, Any]) -> ModelUnsupported:
        """The refusal of what is not decided, with what to write instead."""
        if not rows:
            return refuse(self.where, got, f"return one tensor with a row per {self.row}")
        choices = " or ".join(f"outputs={_shown(path)}" for path in rows)
        kinds = {_on_edges(found[path]) for path in rows}
        several = len(rows) > 1 and len(kinds) == 1 and self._pooled is None
        every = ", or outputs='all' for all of these side by side" if several else ""
        return refuse(self.where, got, f"pass {choices}{every}")

    def _is_output(self, each: Any, shape: tuple[int, ...] | None) -> bool:
        value = each.value if isinstance(each, Flat) else each
        rows = isinstance(value, ir.Value) and not (value.on_edges and self.row != "vertex")
        return rows and shape != () and self._has_row(value)

    def _has_row(self, value: ir.Value) -> bool:
        """Whether a value has a row for what the model is of: a graph's depend on what was pooled."""
        return self._pooled is None or any(id(each) in self._pooled for each in ir.walk(value))

    def _listed(self, found: dict[Path, Any], shapes: dict[Path, tuple[int, ...]]) -> str:
        return ", ".join(f"{_shown(path)}: {self._kind(each, shapes.get(path))}" for path, each in found.items())

    def _kind(self, each: Any, shape: tuple[int, ...] | None) -> str:
        value = each.value if isinstance(each, Flat) else each
        if each is None:
            return "None"
        if shape == ():
            return "one number"
        if isinstance(value, ir.Value):
            columns = f"{value.width} column{'s' if value.width > 1 else ''}"
            if value.on_edges:
                return f"one row per edge of {columns}"
            return f"{columns} per {self.row if self._has_row(value) else 'vertex'}"
        if isinstance(value, Refusal):
            error = value.error
            return f"refused ({error.got if isinstance(error, ModelUnsupported) and error.got else error})"
        return f"a {kind_of(each)}"


def _on_edges(result: Any) -> bool:
    value = result.value if isinstance(result, Flat) else result
    return isinstance(value, ir.Value) and value.on_edges


def whole_rows(found: dict[Path, Any], ends: tuple[int, ...]) -> dict[Path, list[Path]]:
    """Results that are the rows of one table each, first -> all of the same rows; `found` keeps the first as whole."""
    kinds: dict[Path, list[Path]] = {}
    for first in [path for path, each in found.items() if isinstance(each, TablePart) and each.start == 0]:
        rows, paths = found[first].rows, [first]
        for start, stop in pairwise(ends[1:]):
            paths += [
                path
                for path, each in found.items()
                if isinstance(each, TablePart) and (each.start, each.stop) == (start, stop) and same(each.rows, rows)
            ][:1]
        if len(paths) == len(ends) - 1:
            kinds[first] = paths
            found[first] = rows
            for path in paths[1:]:
                del found[path]
    return kinds


def kind_of(result: Any) -> str:
    """What a forward returns that is no row of a vertex or a graph, for messages."""
    if isinstance(result, TablePart):
        return "tensor with the rows of one table, and the others' are not computed alike"
    if isinstance(result, Folded):
        return "tensor that holds every vertex several times"
    if isinstance(result, Shaped):
        return "tensor of whole numbers" if result.whole else "tensor of three dimensions or more"
    return next((each.__name__ for each in (tuple, list, dict) if isinstance(result, each)), "constant")


def leaves(result: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every result with its path."""
    if isinstance(result, dict):
        for key, each in result.items():
            yield from leaves(each, (*path, key))
    elif isinstance(result, (tuple, list)):
        for step, each in zip(getattr(result, "_fields", range(len(result))), result, strict=True):
            yield from leaves(each, (*path, step))
    else:
        yield path, result


def shapes_of(result: Any) -> dict[Path, tuple[int, ...]]:
    """The shape of every result that is a tensor; () of a plain number."""
    return {
        path: tuple(each.shape) if isinstance(each, torch.Tensor) else ()
        for path, each in leaves(result)
        if isinstance(each, (torch.Tensor, int, float))
    }


def name_of(path: Path) -> str:
    """A result's name in Model.outputs: its steps joined by points."""
    return ".".join(map(str, path)) or "0"


def _says_nothing(each: Any, shape: tuple[int, ...] | None) -> bool:
    """Whether a result is None, a constant or one number, and so no row of a vertex."""
    return shape == () or (
        not isinstance(each, Refusal) and not isinstance(each, (ir.Value, Flat, Folded, TablePart, Shaped))
    )


def at(result: Any, path: Any) -> Any:
    """What lies at an index, a key or a path."""
    for step in path if isinstance(path, tuple) else (path,):
        named = isinstance(result, tuple) and step in getattr(result, "_fields", ())
        result = getattr(result, step) if named else result[step]
    return result


def _shown(path: Path) -> str:
    return repr(path[0] if len(path) == 1 else path)
