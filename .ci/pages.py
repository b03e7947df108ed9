"""The documentation site: lays its pages out for the builder, and checks what the builder made.

    python .ci/pages.py stage FOLDER     copies the pages there, each at its place in the repository
    python .ci/pages.py finish FOLDER    lets the search of the built site run from files, and checks every page: fails
                                        on a link that leads nowhere, and on anything that loads from another host

The pages are written for readers of the repository. The builder reads Markdown by older rules, so the copies get a
blank line before each list and table, deeper indents in nested lists, and the ids of their headings. The reference has
a page for each public package, with the names that it exports; the examples are one page.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**/*.md", "benchmarks/results/**/*.md")
ASSETS = ("docs/assets/*.svg", "docs/assets/*.png", "docs/assets/*.css", "notebooks/*.ipynb")
WORKER = ROOT / "docs" / "assets" / "worker.js"  # replaces a script that the builder's offline mode loads from outside
OUTSIDE_WORKER = "https://unpkg.com/iframe-worker/shim"
PACKAGES = {  # the page of each public package, and what it is for
    "livegnn": "The four names to start with, and what most programs need.",
    "livegnn.inference": "The engine's answers, views and streams.",
    "livegnn.layers": "Layers of a model that is written down instead of imported.",
    "livegnn.sampling": "Queries, samples kept ready, and the workers that share them.",
    "livegnn.temporal": "Sampling back in time, feature caches, training on a stream.",
    "livegnn.temporal.models": "Models of vertices at a time. They need PyTorch.",
    "livegnn.log": "One durable history of batches.",
    "livegnn.verify": "Operators of your own, proved before they run.",
    "livegnn.deployment": "A graph, its durable history, and what is kept live on it.",
    "livegnn.client": "The service's verbs from another program.",
    "livegnn.serve": "HTTP in front of a sample server.",
    "livegnn.distributed": "Training, sampling and parts over several processes.",
    "livegnn.distributed.partition": "Which part of a graph each vertex is of.",
    "livegnn.pyg": "PyTorch Geometric's loaders, modules and explainers on the live graph.",
    "livegnn.datasets": "Real graphs for the demo, the benchmarks and the examples.",
    "livegnn.testing": "Random models and streams, and the oracle.",
    "livegnn.errors": "Every error that livegnn raises.",
}
LIST = re.compile(r"(\s*)([-*]|\d+\.) ")
DEEPER = {2: 4, 3: 4, 5: 8}  # indents within lists, ours and the builder's
HEADING = re.compile(r"(#+) (.+)")


SOURCE = re.compile(r"\]\((?:\.\./)*src/livegnn/([\w/]+)\.py\)")
IN_THE_REPOSITORY = re.compile(r"\[[^\]]+\]\((?:\.\./)*((?:tests|deploy)/[^)\s]+)\)")
EXAMPLES = re.compile(r"\]\(((?:\.\./)*examples)/\)")


def slug(heading: str) -> str:
    """The id that a heading has where the repository is read."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def paragraphs(page: str) -> Iterator[tuple[str, bool]]:
    """The lines of a page, and whether each is prose rather than code."""
    fence = False
    for line in page.splitlines():
        if line.startswith("```"):
            fence = not fence
            yield line, False
        else:
            yield line, not fence


def for_builder(page: str) -> str:
    """The page by the builder's rules of Markdown."""
    lines: list[str] = []
    ids: dict[str, int] = {}
    in_list = after_item = False  # after_item: in a further paragraph of a list item
    for line, prose in paragraphs(page):
        if not prose or not line.strip():
            lines.append(line)
            continue
        before = lines[-1].strip() if lines else ""
        heading, item = HEADING.fullmatch(line), LIST.match(line)
        indent = len(line) - len(line.lstrip())
        begins_list = item and not in_list
        begins_table = line.lstrip().startswith("|") and not before.startswith("|")
        in_list = bool(item) or (in_list and (indent > 0 or (bool(before) and not heading)))
        if before and (begins_list or begins_table or (item and after_item)):
            lines.append("")
        after_item = in_list and not item and (after_item or not before)
        if heading:
            name = slug(heading[2])
            ids[name] = ids.get(name, -1) + 1
            line = f"{line} {{#{name if not ids[name] else f'{name}-{ids[name]}'}}}"
        elif in_list and indent in DEEPER:
            line = " " * DEEPER[indent] + line.lstrip()
        lines.append(line)
    return "\n".join(lines) + "\n"


def examples() -> str:
    """One page with every example: its first sentence, and the program."""
    parts = ["# Examples", "", "Each program runs as it is, and in the tests.", ""]
    for path in sorted((ROOT / "examples").glob("*.py")):
        title = path.stem.replace("_", " ").capitalize()
        parts += [f"## {title}", "", f"`examples/{path.name}`", "", "```python", path.read_text().strip(), "```", ""]
    return "\n".join(parts)


def reference(names: dict[str, list[str]]) -> dict[str, str]:
    """Pages of the reference: an index, and one for each package with the names that it exports."""
    index = ["# Reference", "", "Made from the docstrings of the public names.", "", "| package | holds |", "|---|---|"]
    pages = {}
    for package, purpose in PACKAGES.items():
        index.append(f"| [`{package}`]({package}.md) | {purpose} |")
        page = [f"# {package}", "", purpose, ""]
        for name in names[package]:
            page += [f"::: {package}.{name}", ""]
        pages[f"reference/{package}.md"] = "\n".join(page)
    pages["reference/README.md"] = "\n".join(index) + "\n"
    return pages


def exports() -> dict[str, list[str]]:
    """The public names of each package, in its order; read from the sources, nothing is imported."""
    import griffe

    root = griffe.load("livegnn", search_paths=[ROOT / "src"], resolve_aliases=True, resolve_external=False)
    found = {}
    for package in PACKAGES:
        module = root if package == "livegnn" else root[package.removeprefix("livegnn.")]
        names = [str(name) for name in module.exports or []]
        if not names:  # errors lists its classes as it runs
            names = [name for name, each in module.classes.items() if not name.startswith("_")]
        found[package] = [
            name for name in names if name != "__version__" and module[name].kind is not griffe.Kind.MODULE
        ]
    return found


def for_site(relative: Path, page: str) -> str:
    """The page with links to sources and examples led to the pages that the site has of them.

    Files that it does not have are shown as paths.
    """
    up = "../" * (len(relative.parts) - 1)
    page = SOURCE.sub(lambda found: f"]({up}reference/livegnn.{found[1].replace('/', '.')}.md)", page)
    page = IN_THE_REPOSITORY.sub(r"`\1`", page)
    return for_builder(EXAMPLES.sub(r"](\1/README.md)", page))


def stage(folder: Path) -> None:
    """Lays the pages out under `folder`, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        relative = path.relative_to(ROOT)
        write(folder / relative, for_site(relative, path.read_text()))
    write(folder / "examples" / "README.md", for_builder(examples()))
    for name, page in reference(exports()).items():
        write(folder / name, page)
    for path in (path for pattern in ASSETS for path in ROOT.glob(pattern)):
        (folder / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.relative_to(ROOT))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Page(HTMLParser):
    """The links and ids of a built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []  # tag, attribute, address
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("href", "src") and value is not None:
                self.links.append((tag, key, value))
            elif key in ("id", "name") and value:
                self.ids.add(value)


def faults(site: Path) -> Iterator[str]:
    """What is wrong with the links of a built site."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for tag, key, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if tag != "a" and parts.scheme != "data":  # what a browser loads by itself; a reader may follow links
                    yield f"{path.relative_to(site)}: <{tag} {key}={link}> loads from outside"
                continue
            if path.name == "404.html":  # its links count from the root of a host
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link} leads nowhere"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in pages[target].ids:
                yield f"{path.relative_to(site)}: {link} names no heading there"


def finish(site: Path) -> list[str]:
    """Puts our script in the place of the outside one; what is wrong with the site then."""
    write(site / "assets" / "javascripts" / WORKER.name, WORKER.read_text())
    for path in site.rglob("*.html"):
        up = "../" * (len(path.relative_to(site).parts) - 1) or "./"
        write(path, path.read_text().replace(OUTSIDE_WORKER, f"{up}assets/javascripts/{WORKER.name}"))
    return list(faults(site))


if __name__ == "__main__":
    command, where = sys.argv[1], Path(sys.argv[2]).resolve()
    if command == "stage":
        stage(where)
    elif command == "finish":
        sys.exit("\n".join(finish(where)) or None)
    else:
        sys.exit(f"[pages] expected stage or finish, got {command}; see the head of {sys.argv[0]}")
