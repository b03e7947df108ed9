"""docs/models.md says of every layer of PyG whether it is supported, as the importer has it."""

import re
from pathlib import Path

from torch_geometric.nn import conv

from livegnn.models.pyg_convs import CONVS
from livegnn.models.pyg_refused import REFUSED_CONVS

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_convolution_is_either_supported_or_refused():
    supported = {kind.__name__ for kind in CONVS}
    assert supported | set(REFUSED_CONVS) == set(conv.__all__)
    assert not supported & set(REFUSED_CONVS)


def test_the_table_says_what_the_importer_does():
    rows = dict(re.findall(r"^\| (\w+) \| (bit-exact|refused) \|", PAGE.read_text(), re.MULTILINE))
    assert set(rows) == set(conv.__all__)
    assert {name for name, now in rows.items() if now == "bit-exact"} == {kind.__name__ for kind in CONVS}


def test_reasons_are_those_that_a_user_is_given():
    text = PAGE.read_text()
    for name, reason in REFUSED_CONVS.items():
        assert f"| {name} | refused | {reason} |" in text
