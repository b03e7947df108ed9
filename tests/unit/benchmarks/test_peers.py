"""Peers give what PyG gives, after every batch of a small stream, for all models and batch sizes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from benchmarks.engine.generate import GeneratedGraph, Shape, chung_lu  # noqa: E402
from benchmarks.engine.networks import KINDS, network  # noqa: E402
from benchmarks.engine.stream import Workload, mixed_stream  # noqa: E402
from benchmarks.peers.pyg_full import PygFull  # noqa: E402
from benchmarks.peers.rc import RecomputeAffected  # noqa: E402
from benchmarks.peers.ripple_numpy import RippleNumpy  # noqa: E402
from benchmarks.peers.ripple_torch import RippleTorch  # noqa: E402

SHAPE = Shape(
    vertices=300,
    edges=3000,
    feature_width=12,
    classes=5,
    in_exponent=2.8,
    in_degree_max=80,
    out_exponent=4.0,
    out_degree_max=40,
)
PEERS = {"pyg": PygFull, "rc": RecomputeAffected, "numpy": RippleNumpy, "torch": RippleTorch}


@pytest.fixture(scope="module")
def small() -> Workload:
    src, dst = chung_lu(SHAPE, seed=3)
    graph = GeneratedGraph("small", SHAPE, src, dst)
    src = np.concatenate([graph.src, graph.src[:50], graph.src[:50]])  # parallel edges
    dst = np.concatenate([graph.dst, graph.dst[:50], graph.dst[:50]])
    snapshot = (src[1000:], dst[1000:])
    stream = mixed_stream((src[:1000], dst[:1000]), snapshot, (300, 12), 900, ordered=False, seed=5)
    features = np.random.default_rng(6).standard_normal((300, 12), dtype=np.float32)
    return Workload("small", features, *snapshot, 5, stream)


def pyg_output(workload: Workload, kind: str, stop: int) -> np.ndarray:
    """PyG's edge_index path on the graph after `stop` updates: shares no code with the peers."""
    edges = list(zip(workload.src.tolist(), workload.dst.tolist(), strict=True))
    features = workload.features.copy()
    stream = workload.stream
    for i in range(stop):
        pair = (int(stream.u[i]), int(stream.v[i]))
        if stream.op[i] == 0:
            edges.append(pair)
        elif stream.op[i] == 1:
            edges.remove(pair)
        else:
            features[pair[0]] = stream.rows[stream.row_index[i]]
    module = network(kind, [12, 16, 8, 5])
    return module(torch.from_numpy(features), torch.tensor(edges).t().contiguous()).numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PEERS)
def test_peer_equals_pyg(small: Workload, kind: str, name: str) -> None:
    if kind == "gcn" and name in ("numpy", "torch"):
        pytest.skip("RIPPLE has no degree-normalised layer")
    peer = PEERS[name](small, kind, network(kind, [12, 16, 8, 5]))
    ids = np.arange(300)
    start = 0
    for size, count in ((1, 30), (10, 9), (100, 6), (180, 1)):
        for batch in small.stream.batches(start, size, count):
            peer.apply(batch)
        start += size * count
        expected = pyg_output(small, kind, start)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(peer.output(ids), expected, rtol=0, atol=1e-4 * scale)


def test_pyg_csr_edited_by_a_large_batch_on_a_sparse_graph() -> None:
    """Rows without in-neighbours share a position in the CSR; insertions there must land in their own rows."""
    rng = np.random.default_rng(1)
    src, dst = (rng.integers(0, 300, 200).astype(np.int32) for _ in range(2))
    more = tuple(rng.integers(0, 300, 100).astype(np.int32) for _ in range(2))
    stream = mixed_stream((more[0], more[1]), (src, dst), (300, 12), 240, ordered=False, seed=5)
    work = Workload("sparse", rng.standard_normal((300, 12), dtype=np.float32), src, dst, 5, stream)
    peer = PygFull(work, "graphconv", network("graphconv", [12, 16, 8, 5]))
    peer.apply(stream.batch(0, 240))
    np.testing.assert_allclose(peer.output(np.arange(300)), pyg_output(work, "graphconv", 240), rtol=0, atol=1e-4)
