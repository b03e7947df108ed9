"""What the tidy tests look at: the files of the project, read once."""

import ast
import functools
import gc
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "livegnn"
TEXT = {".py", ".pyi", ".cc", ".h", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".json", ".sh"}
SKIPPED = {"build", "out", "__pycache__"}


@functools.cache
def files(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> list[Path]:
    """Files of ours under the named folders of the project, those of the root and hidden ones included for "."."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            hidden = any(part.startswith(".") and part != ".ci" for part in parts[:-1])
            if path.is_file() and not hidden and not SKIPPED & set(parts) and path.suffix in suffixes:
                found.append(path)
    return found


@functools.cache
def tracked() -> list[Path]:
    """Text files under version control; outside of a checkout, all text files."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        return files(".", suffixes=tuple(sorted(TEXT)))
    paths = [ROOT / line for line in listing.stdout.splitlines()]
    return [path for path in paths if path.is_file() and (path.suffix in TEXT or path.suffix == "")]


@functools.cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    """All trees stay, over a million nodes: collections of garbage would take three times as long as parsing does."""
    gc.disable()
    try:
        return ast.parse(text(path))
    finally:
        gc.enable()


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> list[str]:
    """Full names of the modules that a file of the package imports, relative ones resolved."""
    module = ["livegnn", *path.relative_to(PACKAGE).with_suffix("").parts]
    found = []
    for item in ast.walk(tree(path)):
        if isinstance(item, ast.Import):
            found += [alias.name for alias in item.names]
        elif isinstance(item, ast.ImportFrom):
            base = ".".join(module[: -item.level]) if item.level else ""
            source = ".".join(part for part in (base, item.module) if part)
            found += [f"{source}.{alias.name}" for alias in item.names]
    return found


def includes(path: Path) -> list[str]:
    """What a C++ file includes, with its brackets or quotes."""
    return re.findall(r'^\s*#\s*include\s+([<"][^>"]+[>"])', text(path), flags=re.MULTILINE)
