"""docs/models.md says of every layer and pool of PyG whether it is supported, as the importer has it."""

from pathlib import Path

from torch_geometric.nn import conv

from livegnn.models.pyg.convs.registry import CONVS, FOLLOWED, READ_THROUGH
from livegnn.models.pyg.hetero.hgt import OVER_TYPES
from livegnn.models.pyg.pools import SUPPORTED_POOLS
from livegnn.models.pyg.refused import REFUSED_CONVS, REFUSED_POOLS
from livegnn.models.pyg.table import pool_names, with_table

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_convolution_is_either_supported_or_refused():
    supported = {kind.__name__ for kind in (*CONVS, *READ_THROUGH, *FOLLOWED, *OVER_TYPES)}
    assert supported | set(REFUSED_CONVS) == set(conv.__all__)
    assert not supported & set(REFUSED_CONVS)


def test_every_pool_is_either_supported_or_refused():
    assert set(SUPPORTED_POOLS) | set(REFUSED_POOLS) == set(pool_names())
    assert not set(SUPPORTED_POOLS) & set(REFUSED_POOLS)


def test_the_tables_are_the_registry():
    page = PAGE.read_text()
    assert page.count("| layer | now |") == page.count("| pool | how, or why not |") == 1
    assert page == with_table(page), "run python -m livegnn.models.pyg.table docs/models.md"


def test_an_outdated_table_is_noticed():
    page = PAGE.read_text()
    for line, other in (("| GCNConv | bit-exact |", "| GCNConv | refused |"), ("| Set2Set | ", "| Set2Set | yes, ")):
        outdated = page.replace(line, other)
        assert outdated != page
        assert with_table(outdated) == page


def test_every_line_has_its_text():
    assert not [kind.__name__ for kind, entry in CONVS.items() if not entry.how or "|" in entry.how]
    assert not [name for name, reason in REFUSED_CONVS.items() if not reason or "|" in reason]
