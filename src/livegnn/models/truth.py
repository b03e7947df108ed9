"""What a model gives on a whole graph, by `livegnn.reference`: the comparison for imports and for operators.

There the other side is the user's own module or functions, so the reference may stand for the model. It shares no code
with the engine. In the package only this file and testing/oracle.py import it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from livegnn.models import ir
from livegnn.models.stored import to_arrays
from livegnn.reference.evaluate import evaluate
from livegnn.types import AnyArray


@dataclass(frozen=True)
class EdgeList:
    """Edges in order of their ids: src, dst int64 (m,); weight (m,), attributes (m, a), types int (m,), or None.

    vertex_types: int (n,), of the vertices, for a model over them.
    """

    src: AnyArray
    dst: AnyArray
    weight: AnyArray | None = None
    attributes: AnyArray | None = None
    types: AnyArray | None = None
    vertex_types: AnyArray | None = None


def true_rows(output: ir.Value, features: AnyArray, edges: EdgeList) -> AnyArray:
    """output(features, edges) for every vertex, (n, output.width) float64.

    Raises:  ValueError where the model reads columns of edges that there are not.
    """
    columns = (edges.weight, np.float64, edges.attributes, edges.types, edges.vertex_types)
    with np.errstate(all="ignore"):  # a row without a value is NaN, which a comparison sees
        return evaluate(to_arrays(output, None, None, {}), features, edges.src, edges.dst, *columns)
