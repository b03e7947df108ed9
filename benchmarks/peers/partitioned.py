"""Sampling at query time over adjacency that two processes share: each hop asks the owner of every vertex, as
distributed graph databases do (Helios, section 3.2). Process v mod 2 owns vertex v and its features.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

import livegnn as lg
from benchmarks.sampling.workload import FEATURES, Social
from livegnn import _native
from livegnn.sampling.presample.source import native_hop

WORKERS = 2
Int64 = npt.NDArray[np.int64]


class Levels(NamedTuple):
    """What a query found: vertices of each hop and features of each level."""

    vertices: list[Int64]
    rows: list[npt.NDArray[np.float32]]

    def hop(self, k: int) -> Int64:
        return self.vertices[k - 1]


def _serve(pipe: Connection, work: Social, hops: list[_native.OneHop], seed: int, worker: int) -> None:
    """One owner: answers (hop, vertices) with their samples, and vertices with their features."""
    n = work.loaded
    mine = np.flatnonzero(work.src[:n] % WORKERS == worker)
    rng = np.random.default_rng(7)
    features = rng.standard_normal((work.vertices, FEATURES), np.float32)
    # ids are places among all edges: a graph that holds a part of them is made by restoring it
    arrays = lg.Graph(features, [], [], weight=[], time=[], edge_type=[]).to_arrays()
    columns = {"src": work.src[mine], "dst": work.dst[mine], "id": mine, "weight": work.weight[mine]}
    columns |= {"time": mine, "type": work.edge_type[mine], "counters": np.array([0, len(work.src)], np.int64)}
    graph = lg.Graph.from_arrays({**arrays, **{f"store.{name}": column for name, column in columns.items()}})
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        kind, vertices = asked
        if kind == "features":
            pipe.send(graph.host.store.features(vertices))
            continue
        found = _native.sample_ad_hoc(
            graph.host.store,
            [hops[kind]],
            seed,
            0,
            vertices,
            [],
            sort_all=True,
            edge_ids=False,
            edge_data=False,
            threads=1,
        )
        pipe.send(found[1][0])


class Partitioned:
    """Two owners and a front end; the processes end with the block."""

    def __init__(self, work: Social, query: lg.sampling.Query, seed: int) -> None:
        plan = lg.PreSampler(lg.Graph([[0.0]], [0], [0], weight=[1.0], time=[0], edge_type=[0]), query).plan
        hops = [native_hop(table.one_hop, 0) for table in plan.tables]
        self.fanouts = [table.one_hop.fanout for table in plan.tables]
        context = multiprocessing.get_context("fork")
        self.pipes, self.processes = [], []
        for worker in range(WORKERS):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, work, hops, seed, worker), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)
        for pipe in self.pipes:
            pipe.recv()

    def sample(self, seeds: Int64, **_: Any) -> Levels:
        """The same samples as one process finds, hop by hop."""
        found = Levels([], [self._features(seeds)])
        parents = np.asarray(seeds, np.int64)
        for number, fanout in enumerate(self.fanouts):
            parents = self._ask(number, parents, fanout, np.int64)
            found.vertices.append(parents)
            found.rows.append(self._features(parents))
        return found

    def _features(self, vertices: Int64) -> npt.NDArray[np.float32]:
        rows: npt.NDArray[np.float32] = self._ask("features", vertices, FEATURES, np.float32)
        return rows

    def _ask(self, what: int | str, vertices: Int64, width: int, dtype: Any) -> Any:
        flat = vertices.reshape(-1)
        owners = np.where(flat < 0, -1, flat % WORKERS)
        result = np.full((len(flat), width), -1 if dtype is np.int64 else 0, dtype)
        places = [np.flatnonzero(owners == worker) for worker in range(WORKERS)]
        for pipe, mine in zip(self.pipes, places, strict=True):
            pipe.send((what, flat[mine]))
        for pipe, mine in zip(self.pipes, places, strict=True):
            result[mine] = pipe.recv()
        return result.reshape(*vertices.shape, width)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(timeout=10)
