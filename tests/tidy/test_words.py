"""One word, one idea; nothing in the sources speaks of one machine."""

import ast
import re

from tests.tidy.sources import PACKAGE, files, name, text, tracked, tree

FOREIGN = {  # files with methods, parameters and parts of PyG and torch.fx, which keep their word
    "src/livegnn/models/pyg/trace.py",
    "src/livegnn/pyg/loaders.py",
    "src/livegnn/pyg/sampling.py",
}


def defined_names(path):
    for item in ast.walk(tree(path)):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield item.name
        elif isinstance(item, ast.arg):
            yield item.arg
    for item in tree(path).body:
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def words(identifier):
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def test_a_vertex_is_never_called_anything_else():
    wrong = [
        f"{name(path)}: {identifier}"
        for path in files("src/livegnn", suffixes=(".py", ".pyi"))
        if name(path) not in FOREIGN
        for identifier in defined_names(path)
        if not identifier.startswith("_") and {"node", "nodes"} & set(words(identifier))
    ]
    assert not wrong, wrong


def test_only_the_command_line_prints():
    wrong = [
        f"{name(path)}:{item.lineno}"
        for path in files("src/livegnn")
        if path.relative_to(PACKAGE).parts[0] != "cli"
        for item in ast.walk(tree(path))
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id == "print"
    ]
    assert not wrong, wrong


def test_no_path_of_one_machine():
    roots = "|".join(["home", "work", "tmp", "root", "Users", "mnt"])
    absolute = re.compile(rf"(?<![\w.\-/}}>)~$*])/({roots})/")
    wrong = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(text(path).splitlines(), start=1)
        if absolute.search(line)
    ]
    assert not wrong, wrong
