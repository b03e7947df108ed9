"""Makes notebooks of pages: `python .ci/notebook.py`. Words become Markdown cells, programs code cells without outputs.

So the programs of a notebook are those of its page, which the tests run.
"""

import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {"notebooks/tutorial.ipynb": "docs/tutorial.md", "notebooks/your_model.ipynb": "docs/how-to/your-model.md"}


def notebook(target: str, page: str) -> str:
    """The page as a notebook at `target`, with its links led to where they led."""
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = re.split(r"```python\n(.*?)```\n?", text, flags=re.DOTALL)
    cells = []
    for number, part in enumerate(parts):
        if not part.strip():
            continue
        kind = "code" if number % 2 else "markdown"
        source = part.strip() if number % 2 else relinked(part.strip(), Path(page).parent, Path(target).parent)
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.splitlines(keepends=True)}
        cells.append(cell | ({"execution_count": None, "outputs": []} if number % 2 else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def relinked(text: str, old: Path, new: Path) -> str:
    def lead(found: re.Match[str]) -> str:
        path, mark, anchor = found[1].partition("#")
        return f"]({os.path.relpath(old / path, new)}{mark}{anchor})"

    return re.sub(r"\]\(([^):\s]+)\)", lead, text)


if __name__ == "__main__":
    for target, page in NOTEBOOKS.items():
        (ROOT / target).parent.mkdir(exist_ok=True)
        (ROOT / target).write_text(notebook(target, page), encoding="utf-8")
