"""The documentation site without its builder: navigation, the pages as the builder gets them, notebooks.

`make docs` builds the site itself, and fails on links of built pages that lead nowhere or outside.
"""

import ast
import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def tool(name):
    """A program of .ci as a module."""
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages, docstrings, notebooks = tool("pages"), tool("docstrings"), tool("notebook")


def navigation(entries):
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for target in entry.values():
                yield from navigation([target] if isinstance(target, str) else target)


def test_every_page_is_in_the_navigation_once():
    named = list(navigation(CONFIG["nav"]))
    assert len(named) == len(set(named))
    written = {str(path.relative_to(ROOT)) for pattern in pages.PAGES for path in ROOT.glob(pattern)}
    generated = {"examples/README.md", "reference/README.md", *(f"reference/{name}.md" for name in pages.PACKAGES)}
    assert set(named) == written | generated


def test_the_reference_has_every_package_with_public_names():
    source = ROOT / "src" / "livegnn"
    public = {"livegnn.layers", "livegnn.errors"}  # modules of the top level
    for path in source.rglob("__init__.py"):
        names = {target.id for item in ast.parse(path.read_text()).body for target in getattr(item, "targets", [])}
        if "__all__" in names:
            public.add(".".join(["livegnn", *path.parent.relative_to(source).parts]))
    shown_elsewhere = {"livegnn.graph", "livegnn.temporal.caches", "livegnn.cli"}  # at the top, in temporal, on cli.md
    assert public - shown_elsewhere == set(pages.PACKAGES)


def test_the_site_asks_for_nothing_from_outside():
    assert CONFIG["theme"]["font"] is False
    assert "offline" in CONFIG["plugins"]
    assert CONFIG["use_directory_urls"] is False  # links work from files
    for path in (ROOT / "docs" / "assets").iterdir():
        addresses = re.findall(rb"https?://[^\s\"']+", path.read_bytes())
        assert set(addresses) <= {b"http://www.w3.org/2000/svg"}, path


@pytest.mark.parametrize(
    ("page", "staged"),
    [
        ("Words:\n- one\n- two", "Words:\n\n- one\n- two"),
        ("- one\n  goes on\n   - within", "- one\n    goes on\n    - within"),
        ("1. one\n\n   more of it\n2. two", "1. one\n\n    more of it\n\n2. two"),
        ("Words\n| a |\n|---|\n| b |", "Words\n\n| a |\n|---|\n| b |"),
        ("## A `name`, and more", "## A `name`, and more {#a-name-and-more}"),
        ("# A\n# A", "# A {#a}\n# A {#a-1}"),
        ("```python\nx\n- 1\n# no heading\n```", "```python\nx\n- 1\n# no heading\n```"),
        ("- one\n\nWords\n  - of a list", "- one\n\nWords\n\n    - of a list"),
    ],
)
def test_pages_follow_the_rules_of_the_builder(page, staged):
    assert pages.for_builder(page) == staged + "\n"


def test_links_to_sources_and_examples_lead_to_their_pages():
    page = "[a](../src/livegnn/errors.py) [b](../examples/) [c](graph.md#types)"
    staged = "[a](../reference/livegnn.errors.md) [b](../examples/README.md) [c](graph.md#types)\n"
    assert pages.for_site(Path("docs/page.md"), page) == staged


def test_files_that_the_site_does_not_have_are_paths():
    page = "the [unit](../deploy/livegnn.service), [test_kills.py](../tests/fault/test_kills.py)"
    staged = "the `deploy/livegnn.service`, `tests/fault/test_kills.py`\n"
    assert pages.for_site(Path("docs/page.md"), page) == staged


def test_every_link_of_a_page_leads_to_what_the_site_has():
    """What make docs finds in the built pages, found in their sources."""
    there = {path for pattern in (*pages.PAGES, *pages.ASSETS) for path in ROOT.glob(pattern)}
    made = {ROOT / "examples" / "README.md", ROOT / "docs" / "reference"}
    wrong = []
    for path in (path for path in there if path.suffix == ".md"):
        text = re.sub(r"```.*?```", "", pages.for_site(path.relative_to(ROOT), path.read_text()), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^):\s#]+)[)#]", text):
            target = (path.parent / link).resolve()
            if target not in there | made and target.relative_to(ROOT).parts[0] != "reference":
                wrong.append((path.name, link))
    assert not wrong


def test_built_pages_are_checked(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="x"></h1><a href="b.html#y"></a><a href="b.html#z"></a><a href="c.html"></a><a href="https://e.org"></a>'
        '<script src="https://e.org/s.js"></script><link href="//e.org/f.css"><img src="data:image/png;base64,">'
    )
    (tmp_path / "b.html").write_text(f'<h1 id="y"></h1><a href="./"></a><script src="{pages.OUTSIDE_WORKER}"></script>')
    (tmp_path / "index.html").write_text("")
    wrong = pages.finish(tmp_path)
    assert [fault.split(" ")[1] for fault in wrong] == ["b.html#z", "c.html", "<script", "<link"]
    assert (tmp_path / "assets" / "javascripts" / "worker.js").is_file()


def test_docstrings_of_the_house_become_markdown():
    text = """Mean of messages.

    a[v] = mean over u of h[u]

    Args:    h: rows, as (V, F) *float32*.  affected: ids,
             sorted.   mode: one of two.
    Returns: (A, F) float32.
    Cost:    O(A).  Source: a paper; docs/graph.md.
    >>> 1 + 1
    2
    """
    plain = "\n".join(line.removeprefix("    ") for line in text.rstrip().splitlines())
    made = docstrings.markdown(plain, ["h", "affected", "mode"])
    assert made == (
        "Mean of messages.\n\n```text\na[v] = mean over u of h[u]\n```\n\n"
        "**Args**\n\n- `h`: rows, as (V, F) \\*float32\\*.\n- `affected`: ids, sorted.\n- `mode`: one of two.\n\n"
        "**Returns**  (A, F) float32.\n\n**Cost**  O(A).\n\n**Source**  a paper; [graph](../docs/graph.md).\n\n"
        "```python\n>>> 1 + 1\n2\n```"
    )


def test_a_label_behind_a_sentence_begins_a_section():
    assert docstrings.markdown("Ends a query. Raises: UsageError.") == "Ends a query.\n\n**Raises**  UsageError."
    assert docstrings.markdown("The word Raises: is one.") == "The word Raises: is one."


@pytest.mark.parametrize(("target", "page"), notebooks.NOTEBOOKS.items())
def test_a_notebook_is_its_page(target, page):
    """So its programs run with those of the page (test_pages.py)."""
    found = (ROOT / target).read_text()
    assert found == notebooks.notebook(target, page), "run python .ci/notebook.py"
    cells = json.loads(found)["cells"]
    assert sum(cell["cell_type"] == "code" for cell in cells) >= 5
    links = re.findall(r"\]\(([^):\s#]+)", "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"))
    assert links
    assert not [link for link in links if not ((ROOT / target).parent / link).exists()]
