"""Every part with every other, by the table."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.composition.table import CELLS, COLUMNS, OPEN, ROWS, page


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("row", "column"), CELLS)
def test_cell(row, column, seed, tmp_path):
    if (row, column) not in OPEN:
        return ROWS[row](COLUMNS[column], tmp_path, seed)
    with pytest.raises(OPEN[row, column].error, match=OPEN[row, column].match):
        ROWS[row](COLUMNS[column], tmp_path, seed)
    return None


def test_the_page_shows_the_table():
    found = Path(__file__).parents[2] / "docs" / "composition.md"
    assert found.read_text() == page(), "python -m tests.composition.table > docs/composition.md"
