"""torch_scatter and torch_sparse by PyG's own functions: the parts that classes of the zoo call.

Both are compiled against one version of PyTorch each, and PyG has the same functions.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch_geometric.utils import scatter, softmax


class SparseTensor:
    """A sparse matrix as its rows, columns and values; a product sums (or takes the mean) by PyG's scatter."""

    def __init__(self, row: Any, col: Any, value: Any = None, sparse_sizes: Any = None, **kwargs: Any) -> None:
        self.row, self.col, self.value, self.sizes = row, col, value, sparse_sizes

    def matmul(self, x: Any, reduce: str = "sum") -> Any:
        rows = x[self.col]
        if self.value is not None:
            rows = rows * self.value.view(-1, 1)
        return scatter(rows, self.row, 0, self.sizes[0], reduce)

    __matmul__ = matmul

    def sum(self, dim: int) -> Any:
        value = torch.ones(self.row.size(0)) if self.value is None else self.value
        ends, size = (self.row, self.sizes[0]) if dim == 1 else (self.col, self.sizes[1])
        return scatter(value, ends, 0, size, "sum")

    def to_torch_sparse_coo_tensor(self) -> Any:
        value = torch.ones(self.row.size(0)) if self.value is None else self.value
        return torch.sparse_coo_tensor(torch.stack([self.row, self.col]), value, self.sizes)

    def to(self, device: Any) -> SparseTensor:
        return self

    def coalesce(self) -> SparseTensor:
        """The zoo's graphs hold each edge once."""
        return self


def matmul(matrix: SparseTensor, x: Any, reduce: str = "sum") -> Any:
    return matrix.matmul(x, reduce)


def spmm(index: Any, value: Any, m: int, n: int, matrix: Any) -> Any:
    return SparseTensor(index[0], index[1], value, (m, n)).matmul(matrix)


def mul(matrix: SparseTensor, other: Any) -> SparseTensor:
    """Every row, or every column, times a number of its own."""
    factor = other[matrix.row, 0] if other.size(0) == matrix.sizes[0] and other.size(1) == 1 else other[0, matrix.col]
    value = factor if matrix.value is None else matrix.value * factor
    return SparseTensor(matrix.row, matrix.col, value, matrix.sizes)


def sparse_sum(matrix: SparseTensor, dim: int) -> Any:
    return matrix.sum(dim)


def _reduced(reduce: str) -> Any:
    def function(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None) -> Any:
        return scatter(src, index, dim, dim_size, reduce)

    return function


def scatter_with_out(
    src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None, reduce: str = "sum"
) -> Any:
    return scatter(src, index, dim, dim_size, reduce)


def scatter_softmax(src: Any, index: Any, dim: int = -1, dim_size: Any = None) -> Any:
    return softmax(src, index, num_nodes=dim_size, dim=dim)


def install() -> None:
    """Puts both in the place of torch_scatter and torch_sparse, whether these are installed or not."""
    scattering, sparse = ModuleType("torch_scatter"), ModuleType("torch_sparse")
    scattering.__dict__.update(scatter=scatter_with_out, scatter_softmax=scatter_softmax)
    for name in ("sum", "add", "mean", "max", "min"):
        setattr(scattering, f"scatter_{name}", _reduced(name.replace("add", "sum")))
    sparse.__dict__.update(SparseTensor=SparseTensor, matmul=matmul, spmm=spmm, mul=mul, mul_=mul, sum=sparse_sum)
    for name in ("fill_diag", "set_diag", "masked_select_nnz", "spspmm", "coalesce", "transpose"):
        setattr(sparse, name, _missing(name))
    sys.modules.update(torch_scatter=scattering, torch_sparse=sparse)


def _missing(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"torch_sparse.{name} is not stood in for")

    return function
