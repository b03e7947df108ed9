"""docs/models.md's table of PyG's convolutions, written from the registry.

python -m livegnn.models.pyg_table docs/models.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from torch_geometric.nn import conv

from livegnn.models.pyg_convs import CONVS, READ_THROUGH
from livegnn.models.pyg_hgt import OVER_TYPES
from livegnn.models.pyg_refused import REFUSED_CONVS

__all__ = ["table", "with_table"]

_TABLE = re.compile(r"^\| layer \| now \| how, or why not \|\n(?:\|.*\n)+", re.MULTILINE)


def table() -> str:
    """One line for every name that torch_geometric.nn.conv exports, in its order."""
    supported = {kind.__name__: (entry.exactness, entry.how) for kind, entry in CONVS.items()}
    supported.update({kind.__name__: (exactness, how) for kind, (exactness, how) in READ_THROUGH.items()})
    supported.update({kind.__name__: (entry.exactness, entry.how) for kind, entry in OVER_TYPES.items()})
    lines = ["| layer | now | how, or why not |", "|---|---|---|"]
    for name in conv.__all__:
        now, text = supported[name] if name in supported else ("refused", REFUSED_CONVS[name])
        lines.append(f"| {name} | {now} | {text} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """`page` with its table of convolutions as it is today."""
    return _TABLE.sub(lambda _: table(), page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
