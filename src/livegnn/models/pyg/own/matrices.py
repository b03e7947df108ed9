"""torch's sparse matrices of a graph: a number for each edge of a list, and products with rows of all vertices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from livegnn.models.pyg.context import Unfit
from livegnn.models.pyg.own.edges import Tracing, constant_rows
from livegnn.models.pyg.own.functions import FUNCTIONS, scatter
from livegnn.models.pyg.own.rows import EdgeChoice, EndIds, Matrix, Traced


def made(tracing: Tracing, result: Any, indices: Any, values: Any, size: Any = None, **options: Any) -> Matrix:
    """torch.sparse_coo_tensor over edge_index. Raises: Unfit for other places, or without a size."""
    if not isinstance(indices, EndIds) or indices.end is not None:
        raise Unfit("its places are not the edges of the graph", "make it of edge_index")
    if tuple(result.shape) != (tracing.vertices,) * 2:
        raise Unfit("it has no row and column for every vertex", "pass size=(x.size(0), x.size(0))")
    if not isinstance(values, Traced):
        values = constant_rows(tracing, values, indices.edges, ())
    if values.shape != () or values.edges != indices.edges:
        raise Unfit("its numbers are not one for each of its edges", "pass the weights of the same edges")
    return Matrix(values, int(indices.turned))


def _turned(tracing: Tracing, result: Any, matrix: Matrix, *dims: Any) -> Matrix:
    return Matrix(matrix.numbers, 1 - matrix.rows)


def _same(tracing: Tracing, result: Any, matrix: Matrix, *args: Any, **kwargs: Any) -> Matrix:
    return matrix


def _ids(matrix: Matrix, end: int) -> EndIds:
    edges: Any = matrix.numbers.edges
    return EndIds(edges, end)


def product(tracing: Tracing, result: Any, matrix: Any, x: Any, reduce: str = "sum") -> Traced:
    """matrix @ x, rows of vertices. Raises: Unfit for other products."""
    if not isinstance(matrix, Matrix) or not isinstance(x, Traced) or x.edges is not None:
        raise Unfit("it is no product of the matrix and rows of the vertices", "write adj @ x")
    moved = FUNCTIONS["index_select"](tracing, result, x, 0, _ids(matrix, 1 - matrix.rows))
    column = Traced(matrix.numbers.value, (1,) * len(x.shape), matrix.numbers.edges, matrix.numbers.loops,
                    matrix.numbers.even)  # fmt: skip
    message = FUNCTIONS["mul"](tracing, result, moved, column)
    summed: Traced = scatter(tracing, result, message, _ids(matrix, matrix.rows), reduce)
    return summed


def _sum(tracing: Tracing, result: Any, matrix: Matrix, dim: Any = None, *args: Any, **others: Any) -> Any:
    dim = dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    if dim not in (0, 1, -1, -2):
        raise Unfit("it sums over all edges, so one update would change every row", "pass dim=1")
    end = matrix.rows if dim in (1, -1) else 1 - matrix.rows
    return scatter(tracing, result, matrix.numbers, _ids(matrix, end), "sum")


def _scaled(tracing: Tracing, result: Any, a: Any, b: Any) -> Matrix:
    matrix, other = (a, b) if isinstance(a, Matrix) else (b, a)
    if not isinstance(other, (int, float)):
        raise Unfit("it is a product of a sparse matrix, entry by entry", "multiply the weights of the edges before")
    return Matrix(FUNCTIONS["mul"](tracing, result, matrix.numbers, other), matrix.rows)


def _joined(edges: Any) -> EdgeChoice:
    """The places of a coalesced matrix, which is the only one that shows them."""
    joined: EdgeChoice = dataclasses.replace(edges, joined=True)
    return joined


def _indices(tracing: Tracing, result: Any, matrix: Matrix) -> EndIds:
    return EndIds(_joined(matrix.numbers.edges), turned=bool(matrix.rows))


def _values(tracing: Tracing, result: Any, matrix: Matrix) -> Traced:
    return dataclasses.replace(matrix.numbers, edges=_joined(matrix.numbers.edges))


#: What may be done with a Matrix, by torch's name.
MATRICES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("t", "T", "transpose"), _turned),
    **dict.fromkeys(
        ("coalesce", "to", "float", "double", "cpu", "detach", "clone", "to_sparse_csr", "to_sparse", "to_sparse_coo"),
        _same,
    ),
    **dict.fromkeys(("sparse_mm", "mm", "matmul", "spmm", "smm"), product),
    **dict.fromkeys(("sum", "sparse_sum"), _sum),
    **dict.fromkeys(("mul", "rmul"), _scaled),
    "indices": _indices,
    "values": _values,
}


def of_matrix(tracing: Tracing, name: str, result: Any, args: Any, kwargs: Any) -> Any:
    """What a function of torch makes of a sparse matrix. Raises: Unfit."""
    handler = MATRICES.get(name)
    if handler is None:
        raise Unfit("this operation on a sparse matrix is not supported", "use adj @ x, adj.t() and adj.sum(dim=1)")
    return handler(tracing, result, *args, **kwargs)
