"""PyG's BaseSampler on the live graph: what NeighborSampler draws, without pyg-lib or a copy of the edges.

hop k draws in-edges of the vertices that hop k - 1 reached first, by edge type, up to that type's fan-out; a vertex
has one row (disjoint: one for each seed), in the order in which it is reached.

A draw is a function of the version, the arguments and the number of the call (`calls`). Negative links too: they come
from a generator of torch that is seeded by them, and torch's own is left as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from livegnn.errors import ColumnMissing, UsageError, ValueInvalid
from livegnn.graph import Graph
from livegnn.graph.checks import INT64_MAX, flag, time_array, whole_number
from livegnn.graph.schema import EdgeTriple
from livegnn.pyg.reading import Version, columns_of, version_of
from livegnn.pyg.rows import SampledRows
from livegnn.temporal import TemporalSampler
from livegnn.types import AnyArray, Int64Array

SubgraphType: TypeAlias = Literal["directional", "induced"]
TemporalStrategy: TypeAlias = Literal["uniform", "last"]
Fanouts: TypeAlias = Sequence[int] | Mapping[EdgeTriple, Sequence[int]] | NumNeighbors

_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: spreads small numbers


class LiveSampler(BaseSampler):  # type: ignore[misc]
    """See sampler(). calls: samples drawn so far, the number that the next one will have; settable."""

    def __init__(self, version: Version, num_neighbors: Fanouts, options: Mapping[str, Any], threads: int | None):
        self.version = version
        self.calls = 0
        self.replace = flag("sampler", "replace", options["replace"])
        self.disjoint = flag("sampler", "disjoint", options["disjoint"])
        self.subgraph_type = _choice("subgraph_type", options["subgraph_type"], ("directional", "induced"))
        self.temporal_strategy = _choice("temporal_strategy", options["temporal_strategy"], ("uniform", "last"))
        self.seed = whole_number("sampler", "seed", options["seed"])
        if not 0 <= self.seed < 2**64:
            raise ValueInvalid(f"[sampler] expected a seed from 0 to 2^64 - 1, got {self.seed}; give another")
        self._threads = threads
        self._fanouts = _by_type(version, num_neighbors)
        self._samplers: dict[tuple[int, int], TemporalSampler] = {}

    @property
    def hops(self) -> int:
        """How many hops a sample has."""
        return len(self._fanouts[0]) if self._fanouts else 0

    @property
    def is_hetero(self) -> bool:
        """Whether samples are by type."""
        return self.version.graph.vertex_types is not None

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """The sample of a batch of vertices. Raises: VertexUnknown; ColumnMissing for times of a graph without."""
        self._check_process()
        with self.version.graph.host.lock:
            return node_sample(NodeSamplerInput.cast(index), self._sample)

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The sample of both ends of a batch of links, and of negative ones: pairs of live vertices."""
        self._check_process()
        index = EdgeSamplerInput.cast(index)
        ends = (None, None) if index.input_type is None else (index.input_type[0], index.input_type[-1])
        disjoint = self.disjoint or index.time is not None
        with self.version.graph.host.lock, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._mixed(self.calls) >> 1)  # the CPU's, from which PyG draws
            live = tuple(torch.from_numpy(self.version.vertices(name)) for name in ends)
            counts = {name: len(each) for name, each in zip(ends, live, strict=True)}
            negatives = None if neg_sampling is None else _LiveNegatives(NegativeSampling.cast(neg_sampling), *live)
            count = counts if index.input_type is not None else len(live[0])
            return edge_sample(index, self._sample, count, disjoint, None, negatives)

    # ---- one sample

    def _sample(self, seed: Any, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        """The caller holds the graph's lock."""
        call, self.calls = self.calls, self.calls + 1
        timed, version = seed_time is not None, self.version
        if timed and not version.graph.has_time:
            raise ColumnMissing(
                "[sampler] expected a graph whose edges have times, for seeds with times, got one without; leave out "
                "the times, or give Graph(time=...)"
            )
        seeds = seed if isinstance(seed, dict) else {None: seed}
        if self.is_hetero and None in seeds:
            raise ColumnMissing('[sampler] expected seeds of a vertex type, got none; pass input_nodes=("User", ids)')
        slots = {name: version.slots(given.numpy(), name) for name, given in seeds.items()}
        times = np.zeros(0, np.int64)
        if timed:
            given = seed_time if isinstance(seed_time, dict) else {None: seed_time}
            times = np.concatenate([time_array("sampler", "input_time", given[name].numpy()) for name in slots])
        rows = SampledRows(version.types, slots, disjoint=self.disjoint or timed)
        drawn = _Drawn(len(version.triples))
        for hop in range(self.hops):
            self._draw_hop(hop, call, rows, drawn, times if timed else None)
        if self.subgraph_type == "induced":
            drawn = self._induced(rows, times if timed else None)
        return self._output(rows, drawn)

    def _draw_hop(self, hop: int, call: int, rows: SampledRows, drawn: _Drawn, times: Int64Array | None) -> None:
        """Every edge type from the rows that the hop before has added."""
        begin = rows.frontier()
        for code, triple in enumerate(self.version.triples):
            source, target = (triple and triple[0]), (triple and triple[2])
            first, last = begin[target]
            fanout = self._fanouts[code][hop]
            if first == last or fanout == 0:
                drawn.add(code, None)
                continue
            sampler = self._sampler(code, fanout)
            sampler.calls = (call * self.hops + hop) % 2**64
            slots, batch = rows.part(target, first, last)
            found = self.version.hop(sampler, slots, _times_of(times, batch, len(slots)))
            reached = rows.add(source, found.src, None if batch is None else batch[found.dst])
            drawn.add(code, (reached, first + found.dst, columns_of(self.version, found)))
        rows.end_hop()

    def _induced(self, rows: SampledRows, times: Int64Array | None) -> _Drawn:
        """All edges between the rows."""
        drawn = _Drawn(len(self.version.triples))
        for code, triple in enumerate(self.version.triples):
            source, target = (triple and triple[0]), (triple and triple[2])
            slots, batch = rows.part(target, 0, rows.count(target))
            found = self.version.hop(self._sampler(code, -1), slots, _times_of(times, batch, len(slots)))
            known = rows.find(source, found.src, None if batch is None else batch[found.dst])
            kept = known >= 0
            columns = {name: column[kept] for name, column in columns_of(self.version, found).items()}
            drawn.add(code, (known[kept], found.dst[kept], columns))
        drawn.counts = None
        return drawn

    def _output(self, rows: SampledRows, drawn: _Drawn) -> SamplerOutput | HeteroSamplerOutput:
        names, triples = self.version.types, self.version.triples
        tensor = torch.from_numpy
        vertices = {name: tensor(np.ascontiguousarray(self.version.index(rows.slots(name)))) for name in names}
        edges = {triple: drawn.edges(code) for code, triple in enumerate(triples)}
        parts: dict[str, Any] = {
            "node": vertices,
            "row": {triple: tensor(source) for triple, (source, _, _) in edges.items()},
            "col": {triple: tensor(target) for triple, (_, target, _) in edges.items()},
            "edge": {triple: tensor(columns["id"]) for triple, (_, _, columns) in edges.items()},
            "batch": {name: tensor(rows.batch(name)) for name in names} if rows.disjoint else None,
            "num_sampled_nodes": {name: rows.counts(name) for name in names},
            "num_sampled_edges": drawn.counts and {t: drawn.counts[code] for code, t in enumerate(triples)},
        }
        if self.is_hetero:
            out = HeteroSamplerOutput(**parts)
        else:
            out = SamplerOutput(**{name: part and part[None] for name, part in parts.items()})
        out.edge_columns = {triple: columns for triple, (_, _, columns) in edges.items()}
        out.version = self.version.number
        return out

    def _sampler(self, code: int, fanout: int) -> TemporalSampler:
        """Of the edges of one type, or of all in a graph without vertex types."""
        if (code, fanout) not in self._samplers:
            self._samplers[code, fanout] = TemporalSampler(
                self.version.graph,
                [fanout],
                "uniform" if self.temporal_strategy == "uniform" else "recent",
                inclusive=True,
                replace=self.replace,
                seed=self._mixed(code),
                threads=self._threads,
                edge_types=[code] if self.is_hetero else None,
            )
        return self._samplers[code, fanout]

    def _mixed(self, number: int) -> int:
        return (self.seed + number * _GOLDEN) % 2**64

    def _check_process(self) -> None:
        if torch.utils.data.get_worker_info() is not None:
            raise UsageError(
                "[sampler] expected num_workers=0, got a worker process, which would see a copy of the graph that "
                "stands still; samples are drawn by native threads: leave num_workers out"
            )


class _Drawn:
    """The edges of a sample by edge type: rows of sources and targets, and columns; counts: by type and hop."""

    def __init__(self, types: int) -> None:
        self._parts: list[list[tuple[Int64Array, Int64Array, dict[str, AnyArray]]]] = [[] for _ in range(types)]
        self.counts: list[list[int]] | None = [[] for _ in range(types)]

    def add(self, code: int, part: tuple[Int64Array, Int64Array, dict[str, AnyArray]] | None) -> None:
        if part is not None:
            self._parts[code].append(part)
        if self.counts is not None:
            self.counts[code].append(0 if part is None else len(part[0]))

    def edges(self, code: int) -> tuple[Int64Array, Int64Array, dict[str, AnyArray]]:
        parts = self._parts[code]
        if not parts:
            none = np.zeros(0, np.int64)
            return none, none.copy(), {"id": none.copy()}
        names = parts[0][2]
        columns = {name: np.concatenate([columns[name] for _, _, columns in parts]) for name in names}
        sources, targets = (np.concatenate([part[end] for part in parts]) for end in (0, 1))
        return sources, targets, columns


class _LiveNegatives:
    """A NegativeSampling whose draws are places among live vertices, as edge_sample calls it."""

    def __init__(self, given: NegativeSampling, sources: torch.Tensor, targets: torch.Tensor) -> None:
        self._given, self._live = given, {"src": sources, "dst": targets}
        self.amount, self.is_binary, self.is_triplet = given.amount, given.is_binary, given.is_triplet

    def sample(self, count: int, endpoint: str, _: int | None = None) -> torch.Tensor:
        live = self._live[endpoint]
        return live[self._given.sample(count, endpoint, len(live))]


def sampler(
    graph: Graph | Version,
    num_neighbors: Fanouts,
    *,
    replace: bool = False,
    disjoint: bool = False,
    subgraph_type: SubgraphType = "directional",
    temporal_strategy: TemporalStrategy = "uniform",
    seed: int = 0,
    threads: int | None = None,
) -> LiveSampler:
    """A torch_geometric.sampler.BaseSampler of a graph as it is, or as it is pinned, with NeighborSampler's semantics.

    Args:    num_neighbors: in-edges a vertex by hop, -1 for all; over vertex types for each edge type, or a dict by
             edge type.  replace: with replacement.  disjoint: each seed has a subgraph of its own.
             subgraph_type: "directional", the drawn edges; "induced", all edges between the vertices that were reached.
             temporal_strategy: "uniform", or "last" for the newest.  Seeds with times see edges up to their time.
             seed: 0 to 2^64 - 1.  threads: all cores unless given; samples do not depend on it.
    Raises:  ValueInvalid, UsageError; while sampling VertexUnknown, ColumnMissing, EdgeOffloaded.
    Exactness: a function of the version, the arguments and the number of the call (`calls`).
    """
    options: dict[str, Any] = {"replace": replace, "disjoint": disjoint, "subgraph_type": subgraph_type}
    options |= {"temporal_strategy": temporal_strategy, "seed": seed}
    return LiveSampler(version_of(graph), num_neighbors, options, threads)


def _by_type(version: Version, given: Fanouts) -> list[list[int]]:
    """Fan-outs by edge type and hop."""
    triples = version.triples
    if isinstance(given, Mapping) and triples == (None,):
        raise ValueInvalid("[sampler] expected num_neighbors as a list, got a dict for a graph without types; list it")
    try:
        if not isinstance(given, Sequence | Mapping | NumNeighbors) or isinstance(given, str):
            raise TypeError("not a list")
        wanted = given if isinstance(given, NumNeighbors) else NumNeighbors(given)
        found = wanted.get_values(None if triples == (None,) else list(triples))
    except (ValueError, AssertionError, TypeError) as cause:
        raise ValueInvalid(
            f"[sampler] expected num_neighbors as a list, or a dict by edge type with a list for each, got {given!r} "
            f"({cause}); list a fan-out for each hop"
        ) from cause
    listed = [found] if triples == (None,) else [found[triple] for triple in triples]
    fanouts = [[whole_number("sampler", "a fan-out", number) for number in each] for each in listed]
    for number in (number for each in fanouts for number in each):
        if not -1 <= number < 2**31:
            raise ValueInvalid(f"[sampler] expected fan-outs from 0, or -1 for all, got {number}; fix the list")
    return fanouts


def _choice(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise ValueInvalid(f"[sampler] expected {name} among {', '.join(known)}, got {value!r}; choose one")
    return value


def _times_of(times: Int64Array | None, batch: Int64Array | None, count: int) -> Int64Array:
    return np.full(count, INT64_MAX) if times is None or batch is None else times[batch]
