"""METIS (Karypis and Kumar 1998) by pymetis: the fewest cut edges, with the whole graph at hand.

METIS reads undirected simple graphs: edges of both directions and parallel ones become one edge whose weight is their
number, and self-loops go. A result is a function of (graph, arguments, version of METIS).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from livegnn.distributed.partition.metis_process import cut_aside, cut_here
from livegnn.distributed.partition.parts import VertexParts, check_part_count
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.optional import need
from livegnn.types import AnyArray, Int64Array

Balance: TypeAlias = Literal["vertices", "edges"]
_SEED_MAX = 2**31 - 1
_LARGE = 1 << 18  # edges of both directions: METIS needs about as long as a process to start


def check_balance(where: str, balance: object) -> None:
    """Raises: UsageError for what is no Balance."""
    if balance not in get_args(Balance):
        raise UsageError(f"[{where}] expected balance of 'vertices' or 'edges', got {balance!r}; choose one")


def vertex_weights(topology: Topology, balance: Balance) -> Int64Array:
    """What each slot adds to the load of its part: 1, or in-edges + 1 and its work; (slots,) int64."""
    if balance == "vertices":
        return np.ones(topology.slot_count, np.int64)
    edges = topology.in_edges() + 1
    return edges if topology.work is None else edges + topology.work


def metis(
    graph: Graph | Topology,
    parts: int,
    *,
    balance: Balance = "edges",
    slack: float = 0.01,
    recursive: bool = False,
    seed: int = 0,
) -> VertexParts:
    """Parts that METIS finds.

    Args:    balance: what parts have the same of: "vertices", or "edges", in-edges + 1 of each vertex: the work of the
             engine.  slack: by how much a part may be above the mean; METIS does not promise it.  recursive: bisection
             again and again instead of k-way.  seed: of METIS's random numbers.
    Returns: a table of all slots; free ones go by their buckets. With at least as many parts as vertices, each vertex
             has a part of its own.
    Raises:  UsageError; DataMissing without pymetis.
    Cost:    O(E), all of it in one thread, and some 170 bytes an edge. A large graph is cut in a process of its own.
    """
    check_balance("metis", balance)
    if not isinstance(slack, int | float) or not 0.001 <= slack <= 10 or type(seed) is not int or seed < 0:
        raise UsageError(
            f"[metis] expected a slack of 0.001 to 10 and a seed from 0, got {slack!r} and {seed!r}; give such numbers"
        )
    count, topology = check_part_count("metis", parts), Topology.of(graph)
    pymetis: Any = need("pymetis", "distributed")
    table = VertexParts(count).of_first(topology.slot_count).copy()
    live = np.flatnonzero(topology.live)
    starts, neighbours, edge_weights = topology.lists()
    if count >= len(live):
        table[live] = np.arange(len(live))
    elif not len(neighbours):
        table[live] = np.arange(len(live)) % count
    elif count > 1:
        places = np.cumsum(topology.live) - 1  # METIS counts live vertices alone; free slots have no edges
        dtype = pymetis.zero_copy_dtype()
        weights = vertex_weights(topology, balance)[live]
        _check_size(dtype, neighbours, weights, edge_weights)
        lists = np.append(starts[:-1][live], starts[-1]), places[neighbours], weights, edge_weights
        numbers = np.array([count, recursive, seed % _SEED_MAX, round(1000 * slack)], np.int64)
        table[live] = _cut([numbers, *(each.astype(dtype) for each in lists)])
    else:
        table[live] = 0
    return VertexParts(count, table)


def _cut(given: Sequence[AnyArray]) -> AnyArray:
    """By METIS; of a large graph in another process, so that other threads of this one go on. Raises: UsageError."""
    if len(given[2]) < _LARGE:
        return cut_here(given)
    try:
        return cut_aside(given)
    except subprocess.CalledProcessError as cause:
        raise UsageError(
            f"[metis] expected parts, got exit code {cause.returncode} of the process that finds them; look at the "
            "memory of its host, or use ldg or fennel"
        ) from cause


def _check_size(dtype: np.dtype[Any], *arrays: Any) -> None:
    """Refuses what overflows METIS's integers. Raises: UsageError."""
    largest = np.iinfo(dtype).max
    sums = [len(arrays[0]), *(int(array.sum()) for array in arrays[1:])]
    if max(sums) > largest:
        raise UsageError(
            f"[metis] expected at most {largest} edges, of both directions, and as much weight, got {max(sums)}; "
            "use ldg or fennel"
        )
