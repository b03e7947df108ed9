"""InkStream gives what a full run gives: aggregates to the bit, outputs as PyG's, and conditions that are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from benchmarks.engine.networks import EXTREMES, network  # noqa: E402
from benchmarks.engine.stream import Batch, Workload  # noqa: E402
from benchmarks.peers.inkstream import InkStream, LayerCounts  # noqa: E402
from benchmarks.peers.inkstream_layer import InkStreamLayer  # noqa: E402
from benchmarks.peers.inkstream_vertex import InkStreamVertex  # noqa: E402
from benchmarks.peers.pyg_full import PygFull  # noqa: E402
from benchmarks.peers.rc import RecomputeAffected  # noqa: E402

VERTICES, WIDTHS = 60, [6, 8, 5]
INKSTREAMS = {"vertex": InkStreamVertex, "layer": InkStreamLayer}
PEERS = {**INKSTREAMS, "rc": RecomputeAffected, "pyg": PygFull}
EDGES = list[tuple[int, int]]


def workload(src: list[int], dst: list[int], features: np.ndarray) -> Workload:
    ends = np.array(src, np.int32), np.array(dst, np.int32)
    return Workload("small", features, *ends, WIDTHS[-1], None)  # type: ignore[arg-type]


def batch_of(added: EDGES, removed: EDGES, rows: dict[int, np.ndarray], width: int) -> Batch:
    def ends(pairs: EDGES) -> tuple[np.ndarray, np.ndarray]:
        array = np.array(pairs, np.int32).reshape(-1, 2)
        return array[:, 0].copy(), array[:, 1].copy()

    ids = sorted(rows)
    table = np.array([rows[v] for v in ids], np.float32).reshape(-1, width)
    size = len(added) + len(removed) + len(ids)
    return Batch(size, *ends(added), *ends(removed), np.array(ids, np.int32), table)


class RandomGraph:
    """Edges and features that batches change; small integer features, so that ties are frequent."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        pairs = self.rng.integers(0, VERTICES, (240, 2)).tolist()  # self-loops and parallel edges among them
        self.edges: EDGES = [(u, v) for u, v in pairs]
        self.features = self._rows(VERTICES)

    def _rows(self, count: int) -> np.ndarray:
        return self.rng.integers(-3, 4, (count, WIDTHS[0])).astype(np.float32)

    def batches(self) -> Iterator[Batch]:
        """Mixed batches of growing size, then every edge into half of the vertices taken away, then new ones."""
        for size in (1, 1, 1, 1, 1, 2, 5, 10, 30, 80):
            yield self._mixed(size)
        doomed = [edge for edge in self.edges if edge[1] % 2]
        for start in range(0, len(doomed), 20):
            yield self._change([], doomed[start : start + 20], {})
        for size in (1, 1, 10, 60):
            yield self._mixed(size)

    def _mixed(self, size: int) -> Batch:
        added = [(int(u), int(v)) for u, v in self.rng.integers(0, VERTICES, (size, 2))]
        picked = self.rng.choice(len(self.edges), min(size, len(self.edges)), replace=False)
        ids = self.rng.choice(VERTICES, min(size, 10), replace=False)
        features = {int(v): row for v, row in zip(ids, self._rows(len(ids)), strict=True)}
        return self._change(added, [self.edges[i] for i in picked], features)

    def _change(self, added: EDGES, removed: EDGES, features: dict[int, np.ndarray]) -> Batch:
        for edge in removed:
            self.edges.remove(edge)
        self.edges += added
        for v, row in features.items():
            self.features[v] = row
        return batch_of(added, removed, features, WIDTHS[0])

    def snapshot(self) -> Workload:
        src, dst = zip(*self.edges, strict=True)
        return workload(list(src), list(dst), self.features.copy())


def aggregate_of(edges: EDGES, rows: np.ndarray, name: str) -> np.ndarray:
    """Straight from the definition, without in-neighbours 0."""
    choose = {"max": np.max, "min": np.min}[name]
    result = np.zeros_like(rows)
    for v in range(len(rows)):
        sources = [u for u, target in edges if target == v]
        if sources:
            result[v] = choose(rows[sources], axis=0)
    return result


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("name", PEERS)
def test_outputs_equal_pyg_after_every_batch(kind: str, name: str) -> None:
    graph, module = RandomGraph(seed=11), network(kind, WIDTHS)
    peer = PEERS[name](graph.snapshot(), kind, module)
    for batch in graph.batches():
        peer.apply(batch)
        edge_index = torch.tensor(graph.edges, dtype=torch.int64).reshape(-1, 2).t().contiguous()
        expected = module(torch.from_numpy(graph.features), edge_index).numpy()
        np.testing.assert_allclose(peer.output(np.arange(VERTICES)), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("name", INKSTREAMS)
@pytest.mark.parametrize("seed", range(4))
def test_aggregates_are_those_of_the_stored_rows_to_the_bit(kind: str, name: str, seed: int) -> None:
    graph = RandomGraph(seed)
    peer: InkStream = INKSTREAMS[name](graph.snapshot(), kind, network(kind, WIDTHS))
    for batch in graph.batches():
        counts = peer.apply(batch)
        for k in range(2):
            expected = aggregate_of(graph.edges, peer.rows[k].numpy(), EXTREMES[kind])
            stored = peer.aggregates[k].numpy().copy()
            empty = peer.into.length == 0
            assert (stored[empty] == peer.extreme.identity).all()
            stored[empty] = 0.0
            np.testing.assert_array_equal(stored, expected)
            assert counts[k].resilient <= counts[k].visited
    assert empty.any()  # the stream went down to empty neighbourhoods


@pytest.mark.parametrize("kind", EXTREMES)
def test_both_forms_count_the_same(kind: str) -> None:
    """Integer weights keep every product exact, whatever the number of rows of a GEMM."""
    graph, module = RandomGraph(seed=5), network(kind, WIDTHS)
    for parameter in module.parameters():
        parameter.mul_(8).round_()
    start = graph.snapshot()
    one, all_at_once = (cls(start, kind, module) for cls in (InkStreamVertex, InkStreamLayer))
    seen = LayerCounts()
    for batch in graph.batches():
        counts = one.apply(batch)
        assert counts == all_at_once.apply(batch)
        for layer in counts:
            for condition in ("no_deletion", "no_effect", "covered", "exposed", "resilient", "reread_bytes"):
                setattr(seen, condition, getattr(seen, condition) + getattr(layer, condition))
    assert min(seen.no_deletion, seen.no_effect, seen.covered, seen.exposed, seen.resilient) > 0, seen


# ---- conditions by hand: sources 1, 2, 3 of vertex 0, two columns

STAR = np.array([[0, 0], [4, 1], [1, 4], [2, 2], [5, 5], [4, 0]], np.float32)


def first_layer(kind: str, form: type[InkStream], batch: Batch) -> LayerCounts:
    sign = 1.0 if kind == "sage-max" else -1.0
    rows = {v: sign * row for v, row in zip(batch.feature_ids.tolist(), batch.feature_rows, strict=True)}
    removed = list(zip(batch.remove_src.tolist(), batch.remove_dst.tolist(), strict=True))
    added = list(zip(batch.add_src.tolist(), batch.add_dst.tolist(), strict=True))
    peer = form(workload([1, 2, 3], [0, 0, 0], sign * STAR), kind, network(kind, [2, 3, 2]))
    counts = peer.apply(batch_of(added, removed, rows, 2))[0]
    counts.changed = 0
    return counts


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("form", INKSTREAMS.values(), ids=INKSTREAMS)
@pytest.mark.parametrize(
    ("added", "removed", "rows", "expected"),
    [
        ([(4, 0)], [], {}, LayerCounts(no_deletion=1)),
        ([(3, 0)], [], {}, LayerCounts(no_deletion=1, resilient=1)),
        ([], [(3, 0)], {}, LayerCounts(no_effect=1, resilient=1)),
        ([(4, 0)], [(1, 0)], {}, LayerCounts(covered=1)),
        ([(5, 0)], [(1, 0)], {}, LayerCounts(covered=1, resilient=1)),  # 5's first column equals 1's
        ([(3, 0)], [(1, 0)], {}, LayerCounts(exposed=1, reread_bytes=3 * 2 * 4)),
        ([], [(1, 0)], {}, LayerCounts(exposed=1, reread_bytes=2 * 2 * 4)),
        ([], [(1, 0), (2, 0), (3, 0)], {}, LayerCounts(exposed=1)),  # nothing left to read
        ([], [], {1: [6, 1]}, LayerCounts(covered=1)),
        ([], [], {1: [3, 1]}, LayerCounts(exposed=1, reread_bytes=3 * 2 * 4)),
        ([], [], {3: [1, 3]}, LayerCounts(no_effect=1, resilient=1)),
        ([], [], {1: [4, 1]}, LayerCounts()),  # the row as it was: no event
        ([], [(1, 0)], {1: [9, 9]}, LayerCounts(exposed=1, reread_bytes=2 * 2 * 4)),  # its old row counts
        ([], [], {0: [7, 7]}, LayerCounts()),  # its own row is no message to itself
    ],
)
def test_conditions(
    kind: str, form: type[InkStream], added: EDGES, removed: EDGES, rows: dict[int, list[float]], expected: LayerCounts
) -> None:
    features = {v: np.array(row, np.float32) for v, row in rows.items()}
    assert first_layer(kind, form, batch_of(added, removed, features, 2)) == expected


def test_other_aggregates_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        InkStreamVertex(workload([1], [0], STAR), "sage", network("sage", [2, 3, 2]))
