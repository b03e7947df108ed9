"""Packages meet at their doors: none uses another's underscored members, and no files import each other in circles."""

import ast
import functools
import re

from tests.tidy.sources import PACKAGE, files, name, tree

FOREIGN_USES_MAX = 3  # lower this only

# What receivers of these names are, so that a member that both packages define is seen too.
OWNERS = {
    "graph": "graph", "host": "graph", "updates": "graph", "store": "graph", "engine": "inference", "log": "log",
}  # fmt: skip
TUPLES = {"_asdict", "_replace", "_fields", "_make"}  # of every NamedTuple


def package(path):
    return path.relative_to(PACKAGE).parts[0]


def is_private(member):
    return member.startswith("_") and not member.startswith("__") and member not in TUPLES


def defined(path):
    """Underscored names that a file defines: functions, classes, variables, and members of self, cls and __slots__."""
    for item in ast.walk(tree(path)):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield item.name
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            yield item.attr


@functools.cache
def private_members():
    """Underscored names by the packages that define them."""
    found = {}
    for path in files("src/livegnn"):
        for member in filter(is_private, defined(path)):
            found.setdefault(member, set()).add(package(path))
    return found


def receiver(item):
    """The last word of what a member is taken of: graph in self.graph._lock."""
    value = item.value
    return value.attr.lstrip("_") if isinstance(value, ast.Attribute) else getattr(value, "id", "").lstrip("_")


def foreign_uses(path, parsed=None):
    own, members = package(path), private_members()
    for item in ast.walk(tree(path) if parsed is None else parsed):
        if isinstance(item, ast.ImportFrom) and re.match(rf"livegnn\.(?!{own}\b)", item.module or ""):
            yield from (f"{name(path)}:{item.lineno} {each.name}" for each in item.names if is_private(each.name))
        if not isinstance(item, ast.Attribute) or not is_private(item.attr):
            continue
        owners, by_name = members.get(item.attr, set()), OWNERS.get(receiver(item))
        if receiver(item) in ("self", "cls"):
            continue
        if (owners and own not in owners) or (by_name in owners and by_name != own):
            yield f"{name(path)}:{item.lineno} {receiver(item)}.{item.attr}"


def test_no_package_uses_underscored_members_of_another():
    uses = [use for path in files("src/livegnn") for use in foreign_uses(path)]
    assert len(uses) <= FOREIGN_USES_MAX, "\n".join(uses)


def test_the_search_for_foreign_uses_sees_them():
    source = """
class Reader:
    def read(self, graph, engine):
        with self.graph._lock, graph.host._guards:
            return self._lock, engine._closed, graph.host.lock
"""
    seen = [use.split()[1] for use in foreign_uses(PACKAGE / "sampling" / "reader.py", ast.parse(source))]
    assert sorted(seen) == ["engine._closed", "graph._lock", "host._guards"]


def modules():
    paths = files("src/livegnn", suffixes=(".py", ".pyi"))
    return {".".join(["livegnn", *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in paths}


def imported(path, known, parsed=None):
    """Files of ours that a file names in any import: late ones and those for type checks too."""
    for item in ast.walk(tree(path) if parsed is None else parsed):
        if isinstance(item, ast.Import):
            yield from (each.name for each in item.names if each.name in known)
        elif isinstance(item, ast.ImportFrom) and item.module:
            submodules = [f"{item.module}.{each.name}" for each in item.names]
            yield from (each for each in submodules if each in known)
            if any(each not in known for each in submodules):  # a name: of the file, or of the package's __init__
                yield item.module if item.module in known else f"{item.module}.__init__"


def circles(edges):
    """Groups of files that import each other, directly or by way of others (Tarjan's strongly connected components)."""
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in edges[module]:
            if other not in order:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(edges):
        if module not in order:
            visit(module)
    return sorted(found)


def test_no_files_import_each_other_in_circles():
    known = modules()
    found = circles({module: sorted(set(imported(path, known)) & set(known)) for module, path in known.items()})
    assert not found, found


def test_the_search_for_circles_sees_them():
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [["a", "b", "c"]]
    late = "def read():\n    from livegnn.graph.graph import Graph\n    return Graph\n"
    known = {"livegnn.graph.graph"}
    assert list(imported(PACKAGE / "late.py", known, ast.parse(late))) == ["livegnn.graph.graph"]
