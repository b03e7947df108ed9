"""docs/models.md's tables of PyG's convolutions and pools, written from the registry.

python -m livegnn.models.pyg.table docs/models.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from torch_geometric.nn import aggr, conv, pool

from livegnn.models.pyg.convs.registry import CONVS, FOLLOWED, READ_THROUGH
from livegnn.models.pyg.hetero.hgt import OVER_TYPES
from livegnn.models.pyg.pools import SUPPORTED_POOLS
from livegnn.models.pyg.refused import REFUSED_CONVS, REFUSED_POOLS

_TABLE = re.compile(r"^\| layer \| now \| how, or why not \|\n(?:\|.*\n)+", re.MULTILINE)
_POOL_TABLE = re.compile(r"^\| pool \| how, or why not \|\n(?:\|.*\n)+", re.MULTILINE)


def table() -> str:
    """One line for every name that torch_geometric.nn.conv exports, in its order."""
    supported = {kind.__name__: (entry.exactness, entry.how) for kind, entry in CONVS.items()}
    supported.update({kind.__name__: (exactness, how) for kind, (exactness, how) in (READ_THROUGH | FOLLOWED).items()})
    supported.update({kind.__name__: (entry.exactness, entry.how) for kind, entry in OVER_TYPES.items()})
    lines = ["| layer | now | how, or why not |", "|---|---|---|"]
    for name in conv.__all__:
        now, text = supported[name] if name in supported else ("refused", REFUSED_CONVS[name])
        lines.append(f"| {name} | {now} | {text} |")
    return "\n".join(lines) + "\n"


def pool_names() -> list[str]:
    """Global pools, aggregations and pooling layers of torch_geometric.nn, in its order."""
    pools = [name for name in pool.__all__ if name.startswith("global_")]
    readouts = [name for name in aggr.__all__ if name != "Aggregation"]  # the abstract base
    return [*pools, *readouts, *(name for name in pool.__all__ if name.endswith("Pooling"))]


def pool_table() -> str:
    """One line for every name of pool_names()."""
    lines = ["| pool | how, or why not |", "|---|---|"]
    for name in pool_names():
        lines.append(f"| {name} | {SUPPORTED_POOLS.get(name) or f'refused: {REFUSED_POOLS[name]}'} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """`page` with its tables as they are today."""
    return _POOL_TABLE.sub(lambda _: pool_table(), _TABLE.sub(lambda _: table(), page))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
