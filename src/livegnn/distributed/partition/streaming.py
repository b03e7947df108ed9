"""LDG and Fennel: a vertex goes where most of its neighbours are, unless it is full there; one after the other.

With N(v, P) the edges between v and the vertices of part P, both directions and parallel ones counted, and n vertices
and k parts:

LDG (Stanton and Kliot 2012, "linear deterministic greedy")
    argmax over P of  N(v, P) (1 - |P| / C),                       C = ceil((1 + slack) n / k)
Fennel (Tsourakakis et al. 2014, gamma = 3/2, the value that they recommend)
    argmax over P with |P| < C of  N(v, P) - alpha gamma |P|^(gamma - 1),     alpha = sqrt(k) m / n^(3/2)
                                =  N(v, P) - 3/2 d sqrt(|P| / (n / k)),       d = m / n
    A vertex of weight w pays w times that.

Of equal scores the less loaded part, then the lower number. |P| is a sum of weights (1, or in-edges + 1), n that of
all.
gamma is no argument: a square root is rounded exactly on every machine, other powers are not, and workers that place
newcomers by themselves must agree.

Passes after the first take each vertex out of its part and place it again, with all neighbours placed (Nishimura and
Ugander 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from livegnn import _native
from livegnn.distributed.partition.by_metis import Balance, check_balance, vertex_weights
from livegnn.distributed.partition.parts import VertexParts, check_part_count
from livegnn.distributed.partition.topology import Topology
from livegnn.errors import UsageError
from livegnn.graph import Graph

StreamOrder: TypeAlias = Literal["slots", "random"]


@dataclass(frozen=True, kw_only=True)
class StreamPass:
    """How a stream is read. order: of the vertices, as their slots come or at random by the seed.  passes: over it."""

    order: StreamOrder = "slots"
    passes: int = 1
    seed: int = 0


def ldg(
    graph: Graph | Topology,
    parts: int,
    *,
    slack: float = 0.05,
    balance: Balance = "edges",
    read: StreamPass | None = None,
) -> VertexParts:
    """Parts by linear deterministic greedy.

    Args:    slack: by how much a part may be above the mean; a vertex that is heavier than all room left goes to the
             least loaded part.  balance: of "vertices" or "edges" (in-edges + 1).  read: order and passes.
    Returns: a table of all slots; free ones go by their buckets.
    Raises:  UsageError.
    Cost:    O(E + V k) a pass, in one thread; 16 bytes an edge for the lists.
    """
    return _stream("ldg", _native.StreamRule.Ldg, graph, parts, slack, balance, read or StreamPass())


def fennel(
    graph: Graph | Topology,
    parts: int,
    *,
    slack: float = 0.1,
    balance: Balance = "edges",
    read: StreamPass | None = None,
) -> VertexParts:
    """Parts by Fennel; arguments, result and cost as of ldg()."""
    return _stream("fennel", _native.StreamRule.Fennel, graph, parts, slack, balance, read or StreamPass())


def check_slack(where: str, slack: object) -> float:
    """Raises: UsageError for what is no share above a mean."""
    if not isinstance(slack, int | float) or not 0 <= slack <= 1000:
        raise UsageError(f"[{where}] expected a slack from 0, got {slack!r}; 0.05 allows 5 % above the mean")
    return float(slack)


def _stream(
    where: str,
    rule: _native.StreamRule,
    graph: Graph | Topology,
    parts: int,
    slack: float,
    balance: Balance,
    read: StreamPass,
) -> VertexParts:
    count, topology, room = check_part_count(where, parts), Topology.of(graph), check_slack(where, slack)
    check_balance(where, balance)
    if read.order not in ("slots", "random") or type(read.passes) is not int or read.passes < 1:
        raise UsageError(f"[{where}] expected order 'slots' or 'random' and passes from 1, got {read}; give such")
    order = np.flatnonzero(topology.live).astype(np.int32)
    if read.order == "random":
        np.random.default_rng(read.seed).shuffle(order)
    lists = topology.lists()
    weights = vertex_weights(topology, balance)
    total = int(weights[topology.live].sum())
    options = _native.StreamOptions(
        rule=rule, slack=room, edges_per_load=float(lists[2].sum()) / 2 / max(total, 1), expected=total
    )
    placed = np.full(topology.slot_count, _native.NO_PART, np.uint16)
    loads = np.zeros(count, np.int64)
    for _ in range(read.passes):
        placed, loads = _native.place_vertices(options, lists, order, weights, placed, loads)
    free = ~topology.live
    placed[free] = VertexParts(count).lookup(np.flatnonzero(free))
    return VertexParts(count, placed)
