"""Every kind of file that livegnn writes and reads again, but the log: how one is written, and what reading it gives.

A kind is a function from a folder to (path, read): read() gives the file's content as text, bit for bit, or raises.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import livegnn as lg
from livegnn.distributed.sampling_host.config import ClusterConfig
from livegnn.graph import offload
from livegnn.sampling import ClusterSpec, split, start_state
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.messages import encode
from livegnn.sampling.cluster.partition import even_owners
from livegnn.sampling.cluster.runtime import Settings
from livegnn.sampling.presample.sample import NO_COLUMNS
from livegnn.temporal import FeatureCache
from livegnn.temporal.models import TGN
from tests.unit.inference import samples
from tests.unit.temporal.training import KINDS as FEATURES
from tests.unit.temporal.training import graph_of, trainer_of

WARM = 40
Kind = tuple[Path, Callable[[], str]]


def digest_of(*parts):
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return hashed.hexdigest()


def engine(folder) -> Kind:
    path = folder / "engine.lg"
    made = samples.engine()
    made.apply(samples.updates(("remove_vertex", 1), ("add_edge", 4, 3)))
    made.save(path)
    return path, lambda: read_engine(path)


def read_engine(path):
    again = lg.Engine.load(path, threads=1)
    # "exact": the precision, which 0.1 had and its files were read with
    settings = (again.version, again.scales, again.strategy, "exact", again.state, again.mode)
    return digest_of(again.state_digest(), again.graph.digest(), *settings)


def small_model():
    torch.manual_seed(5)
    return TGN(x_width=FEATURES, embed_width=2, memory_width=2, time_width=2, heads=1, dropout=0.1)


def temporal_engine(folder) -> Kind:
    path, graph = folder / "temporal.pt", graph_of(WARM)
    sampler = lg.TemporalSampler(graph, fanouts=[5], threads=1)
    lg.TemporalEngine(small_model(), graph, sampler, memory_step=64).save(path)

    def read():
        again = lg.TemporalEngine.load(path, small_model(), graph, sampler)
        found = digest_of(again.state_digest(), again.memory_step)
        again.close()
        return found

    return path, read


def trainer(folder) -> Kind:
    graph = graph_of(WARM)
    with trainer_of(graph, small_model(), folder=folder, replay=0.3) as made:
        made.fit(1)
    return folder / "checkpoint.pt", lambda: read_trainer(graph, folder)


def read_trainer(graph, folder):
    with trainer_of(graph, small_model(), folder=folder, replay=0.3) as again:
        flat: list[object] = []
        flatten(again._state.saved(), flat)
    return digest_of(*flat)


def flatten(value, into):
    """Every number of a checkpoint, tensors as their bits."""
    if isinstance(value, torch.Tensor):
        into += [tuple(value.shape), value.dtype, value.detach().contiguous().numpy()]
    elif isinstance(value, dict):
        for name, part in value.items():
            into.append(name)
            flatten(part, into)
    elif isinstance(value, list | tuple):
        into.append(len(value))
        for part in value:
            flatten(part, into)
    else:
        into.append(repr(value))


def cache(folder) -> Kind:
    path, rows = folder / "cache.npz", np.arange(20, dtype=np.float32).reshape(20, 1)
    made = FeatureCache(rows, capacity=3, policy="lru")
    made.fetch([1, 2, 3])
    made.fetch([2])
    made.save(path)

    def read():
        again = FeatureCache(rows, capacity=3, policy="lru")
        again.load(path)
        return digest_of(*again._index.contents())

    return path, read


def small_spec():
    src = np.arange(20) % 10
    graph = lg.Graph(np.ones((10, 1), np.float32), src, (src * 3 + 1) % 10)
    return graph, ClusterSpec.of(graph, lg.query().out().sample(2).out().sample(1))


def worker(folder) -> Kind:
    graph, spec = small_spec()
    (state,) = split(spec, start_state(spec, graph), even_owners(1))
    files = CheckpointFiles(folder)
    files.write("sampling", 0, state)
    return folder / "sampling-0.0.state", lambda: digest_of(encode(files.read("sampling", 0)))


def cluster(folder) -> Kind:
    _, spec = small_spec()
    ClusterConfig(spec, "sqlite:history.db", "sqlite:{name}.db", {}, Settings()).write(folder)
    return folder / "cluster.json", lambda: digest_of(in_words_of_0_1(ClusterConfig.read(folder)))


def in_words_of_0_1(config):
    """What str() gave of it in 0.1: another class name, settings of heartbeats, no data of edges, float32 alone."""
    text = (
        str(config)
        .removeprefix("Cluster")
        .replace(f", edge_columns={NO_COLUMNS}", "")
        .replace(", feature_dtype='float32'", "")
    )
    beats = "beat_ms=500.0, silence_ms_max=5000.0, start_ms_max=60000.0, "
    return text.replace("Settings(", f"Settings({beats}")


def edges(folder) -> Kind:
    path, graph = folder / "edges.parquet", temporal_graph()
    graph.offload(30, path)
    return path, lambda: read_edges(graph)


def temporal_graph():
    time = np.array([10, 20, 30, 40])
    weight = np.array([1, 2, 3, 4], np.float32)
    return lg.Graph(np.eye(4, dtype=np.float32), [0, 1, 0, 2], [1, 2, 1, 0], time=time, weight=weight)


def read_edges(graph):
    """What is away comes back, in a copy of the graph."""
    again = lg.Graph.from_arrays(graph.to_arrays())
    again.reload()
    assert again.offloaded is offload.NOTHING
    return digest_of(again.digest(), again.edge_count)


KINDS = {kind.__name__: kind for kind in (engine, temporal_engine, trainer, cache, worker, cluster, edges)}
