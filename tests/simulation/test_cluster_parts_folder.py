"""A graph in files of parts: one engine's bits whoever reads them, and no start from files that are damaged."""

import os
import shutil
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.distributed import PartsWriter
from livegnn.distributed.cluster import parts_writer
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.cluster.parts_folder import fitted
from livegnn.distributed.partition import VertexParts, hashed
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model
from tests.oracle.hetero_oracle import TRIPLES, WIDTHS
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import TwoLayers
from tests.oracle.typed_streams import random_typed_batch, random_typed_graph
from tests.simulation.plain_streams import random_plain_batch, random_plain_graph
from tests.simulation.test_cluster_repartition import check_same, clustered, pair

SEEDS = st.integers(0, 2**32 - 1)


def loaded(folder, workers, **options):
    return lg.Cluster.load(folder, workers, crew=ThreadCrew(workers), **options)


def whole_graph(cluster):
    captured = cluster.capture()
    captured.take()
    return captured.to_arrays()


def random_partition(rng, graph, workers):
    wanted = VertexParts(workers, rng.integers(0, workers, graph.slot_count))
    return {} if rng.integers(3) == 0 else {"partition": [wanted, "hash"][rng.integers(2)]}


def check_folder(tmp_path_factory, world, batch, rounds=3):
    """Saves, loads with another number of workers, goes on; again and again."""
    engine, cluster, crew, rng = world
    for _ in range(rounds):
        updates = batch(int(rng.integers(1, 12)))
        for each in (engine, cluster):
            each.apply(updates)
        folder = tmp_path_factory.mktemp("parts") / "graph"
        timer = threading.Timer(float(rng.random() * 0.006), crew.kill, [int(rng.integers(crew.size))])
        if rng.integers(2):
            timer.start()
        cluster.save(folder, in_parts=True)
        timer.cancel()
        assert sorted(os.listdir(folder.parent)) == ["graph"]
        version = cluster.version
        cluster.close()
        workers = int(rng.integers(1, 6))
        crew = ThreadCrew(workers)
        options = random_partition(rng, engine.graph, workers)
        cluster = lg.Cluster.load(folder, workers, crew=crew, newcomers=str(rng.choice(["ldg", "fennel"])), **options)
        assert (cluster.version, cluster.scales) == (version, engine.scales)
        check_same(engine, cluster, f"{workers} workers")
        want, got = engine.graph.to_arrays(), whole_graph(cluster)
        assert set(want) == set(got)
        for name, array in want.items():
            if name != "store.counters" and not name.startswith("option."):
                np.testing.assert_array_equal(got[name], array, err_msg=name)
        assert got["store.counters"][1] == want["store.counters"][1]
    cluster.repartition("ldg")
    check_same(engine, cluster, "at last")
    cluster.verify()
    cluster.close()


@settings(max_examples=15)
@given(SEEDS, st.sampled_from([1, 2, 3]))
def test_that_a_cluster_of_a_saved_ones_parts_has_the_bits_of_one_engine(tmp_path_factory, seed, workers):
    world, batch = pair(seed, workers)
    check_folder(tmp_path_factory, world, batch)


@settings(max_examples=4)
@given(SEEDS)
def test_that_parts_over_vertex_types_keep_the_bits(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    module = liven(TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6)))
    graph, mirror = random_typed_graph(rng, WIDTHS, TRIPLES)
    world = clustered(lg.from_pyg(module), graph, 3, rng, {})
    check_folder(tmp_path_factory, world, lambda size: random_typed_batch(rng, mirror, size), 2)


@settings(max_examples=8)
@given(SEEDS)
def test_that_parts_of_simple_half_graphs_keep_the_bits(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, weighted=False)
    graph = random_plain_graph(rng, model.input_width, simple=True, undirected=True, feature_dtype=np.float16)
    world = clustered(model, graph, 2, rng, {})
    check_folder(tmp_path_factory, world, lambda size: random_plain_batch(rng, graph, size), 2)


# ---- a graph that never was in one process


def chunks(rng, count):
    """Bounds of chunks of `count` rows, empty ones among them."""
    cuts = np.sort(rng.integers(0, count + 1, int(rng.integers(0, 5))))
    return zip([0, *cuts.tolist()], [*cuts.tolist(), count], strict=True)


def random_columns(rng, model, count):
    columns = {"weight": rng.random(count, dtype=np.float32) + np.float32(0.01)}
    if rng.integers(2):
        seconds = rng.integers(0, 40, count)
        columns["time"] = seconds.astype("datetime64[s]") if rng.integers(2) else seconds
    kinds = graph_columns(model)
    if kinds["attr_width"]:
        columns["edge_attr"] = rng.standard_normal((count, kinds["attr_width"]), dtype=np.float32)
    if kinds["types"]:
        columns["edge_type"] = rng.integers(0, kinds["types"], count).astype(np.int32)
    return columns


@settings(max_examples=30)
@given(SEEDS, st.sampled_from([None, "int", "text"]), st.booleans(), st.booleans())
def test_that_chunks_make_the_graph_of_all_chunks(tmp_path_factory, seed, named, undirected, half):
    rng = np.random.default_rng(seed)
    model = random_model(rng, weighted=True, on_edges=bool(rng.integers(2)))
    count, edges = int(rng.integers(1, 30)), int(rng.integers(0, 80))
    options = {"undirected": undirected, "feature_dtype": "float16" if half else None}
    features = rng.standard_normal((count, model.input_width), dtype=np.float32)
    ids = rng.permutation(10 * count)[:count]
    names = {None: np.arange(count), "int": ids, "text": np.array([f"v{i}" for i in ids], object)}[named]
    ends = [names[rng.integers(0, count, edges)].tolist() for _ in range(2)]
    columns = random_columns(rng, model, edges)
    given_ids = {} if named is None else {"ids": names.tolist()}
    graph = lg.Graph(features, *ends, **columns, **given_ids, **options)
    folder = tmp_path_factory.mktemp("chunks") / "graph"
    with PartsWriter(folder, **options) as writer:
        for first, last in chunks(rng, count):
            own = {name: values[first:last] for name, values in given_ids.items()}
            writer.add_vertices(features[first:last], **own)
        for first, last in chunks(rng, edges):
            own = {name: column[first:last] for name, column in columns.items()}
            writer.add_edges(*(end[first:last] for end in ends), **own)
    workers = int(rng.integers(1, 5))
    parts = random_partition(rng, graph, workers)
    engine, cluster = lg.Engine(model, graph, threads=1), loaded(folder, workers, model=model, **parts)
    assert cluster.state_digest() == engine.state_digest()
    assert cluster.scales == engine.scales
    np.testing.assert_array_equal(cluster.embeddings(names.tolist()), engine.embeddings(names.tolist()))
    want, got = graph.to_arrays(), whole_graph(cluster)
    assert set(want) == set(got)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    if named is None:
        updates = random_plain_batch(rng, graph, 8, graph_columns(model)["types"])
        for each in (engine, cluster):
            each.apply(updates)
        assert cluster.state_digest() == engine.state_digest()
    cluster.verify()
    cluster.close()


@pytest.fixture
def folder(tmp_path):
    """Two chunks of vertices, two of edges."""
    rng = np.random.default_rng(0)
    with PartsWriter(tmp_path / "graph") as writer:
        for _ in range(2):
            writer.add_vertices(rng.random((6, 3), dtype=np.float32))
        for _ in range(2):
            writer.add_edges(*rng.integers(0, 12, (2, 20)))
    return tmp_path / "graph"


def model_of(width):
    rng = np.random.default_rng(1)
    model = random_model(rng, family="sage", depth=2, weighted=False)
    while model.input_width != width:
        model = random_model(rng, family="sage", depth=2, weighted=False)
    return model


class NoStart(ThreadCrew):
    """A crew that starts no engine."""

    def call(self, calls):
        assert calls[0][0] != "start_shuffled"
        return super().call(calls)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "unsealed": lambda path: path.write_bytes(path.read_bytes()[:-96]),
    "gone": os.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "another": lambda path: shutil.copy(path.with_name("share-000003.npz"), path),
}


@pytest.mark.parametrize("name", ["manifest.json", "directory.npz", "share-000000.npz", "share-000002.npz"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_that_a_damaged_file_is_named_before_anything_runs(folder, name, damage):
    DAMAGE[damage](folder / name)
    kinds = (lg.errors.FileMissing, lg.errors.StoredStateInvalid)
    with pytest.raises(kinds, match=rf"\[load\] expected a file of a graph in parts at .*{name}, got"):
        lg.Cluster.load(folder, 2, model=model_of(3), crew=NoStart(2))


def test_what_a_folder_of_parts_refuses(folder, tmp_path):
    refused, model = lg.errors.UsageError, model_of(3)
    with pytest.raises(refused, match=r"\[load\] expected model= for .*graph, which has none"):
        lg.Cluster.load(folder, 2)
    with pytest.raises(refused, match=r"\[load\] expected partition as 'hash' or VertexParts, got 'ldg'"):
        loaded(folder, 2, model=model, partition="ldg")
    with pytest.raises(refused, match=r"\[load\] expected parts for 2 workers, got 3"):
        loaded(folder, 2, model=model, partition=VertexParts(3))
    with pytest.raises(lg.errors.ModelMismatch, match="expected features of width"):
        loaded(folder, 2, model=model_of(4))
    with loaded(folder, 2, model=model) as cluster:
        with pytest.raises(refused, match=r"\[save\] expected a path that is free"):
            cluster.save(folder, in_parts=True)
        with pytest.raises(refused, match=r"\[save\] expected a folder .*none to write graph in, got none"):
            cluster.save(tmp_path / "none" / "graph", in_parts=True)
        cluster.save(tmp_path / "file")
    with pytest.raises(refused, match=r"\[load\] expected no model= with a file"):
        loaded(tmp_path / "file", 2, model=model)
    assert sorted(os.listdir(tmp_path)) == ["file", "graph"]


def test_that_a_cluster_of_parts_outlives_its_driver_and_workers(folder, tmp_path):
    options = {"detached": "parts", "snapshots": tmp_path / "snapshots", "snapshot_batches": 2}
    crew = ThreadCrew(3)
    cluster = lg.Cluster.load(folder, 3, model=model_of(3), crew=crew, **options)
    cluster.save(tmp_path / "file")
    engine = lg.Engine.load(tmp_path / "file")
    for number in range(4):
        updates = lg.Updates()
        updates.add_vertex(12 + number, np.full(3, number, np.float32))
        updates.add_edge(12 + number, number)
        if number == 2:
            cluster.repartition("ldg")
        for each in (engine, cluster):
            each.apply(updates)
        crew = crew.taken_over()
        cluster = lg.Cluster.attach("parts", crew=crew)
        crew.kill(number % 3)
        assert cluster.state_digest() == engine.state_digest()
    cluster.save(tmp_path / "again", in_parts=True)
    cluster.close()
    with loaded(tmp_path / "again", 2) as cluster:
        check_same(engine, cluster, "at last")


def test_that_a_save_that_fails_leaves_nothing(folder, tmp_path):
    with loaded(folder, 2, model=model_of(3)) as cluster:
        call = cluster._crew._crew.call

        def failing(calls):
            if calls[0][0] == "save_share":
                (calls[1][1]).mkdir()  # where its file would be
            return call(calls)

        cluster._crew._crew.call = failing
        with pytest.raises(lg.errors.LiveGnnError):
            cluster.save(tmp_path / "again", in_parts=True)
        cluster._crew._crew.call = call
        assert os.listdir(tmp_path) == ["graph"]
        cluster.save(tmp_path / "again", in_parts=True)
        digest = cluster.state_digest()
    with loaded(tmp_path / "again", 3) as cluster:
        assert cluster.state_digest() == digest
    with loaded(tmp_path / "again", 3, model=model_of(3)) as cluster:
        assert cluster.model is not None


def test_what_a_writer_refuses(tmp_path):
    rows, errors = np.ones((2, 3), np.float32), lg.errors
    writer = PartsWriter(tmp_path / "graph")
    with pytest.raises(errors.UsageError, match=r"\[add_vertices\] expected a PartsWriter inside its with block"):
        writer.add_vertices(rows)
    with writer:
        with pytest.raises(errors.WidthMismatch):
            writer.add_vertices(np.ones(3, np.float32))
        with pytest.raises(errors.ValueInvalid, match=r"expected ids that differ, got 'a' at row 1 again"):
            writer.add_vertices(rows, ids=["a", "a"])
        writer.add_vertices(rows, ids=["a", "b"])
        with pytest.raises(errors.WidthMismatch, match="expected features of width 3, as before, got 2"):
            writer.add_vertices(rows[:, :2], ids=["c", "d"])
        with pytest.raises(errors.ValueInvalid, match=r"expected ids that differ, got 'b' at row 1 again"):
            writer.add_vertices(rows, ids=["c", "b"])
        with pytest.raises(errors.ColumnMissing, match="expected ids for all chunks or for none"):
            writer.add_vertices(rows)
        with pytest.raises(errors.DtypeInvalid):
            writer.add_vertices(rows, ids=[1, 2])
        with pytest.raises(errors.VertexUnknown, match="'z' at row 1"):
            writer.add_edges(["a", "z"], ["b", "a"])
        writer.add_edges(["a", "b"], ["b", "a"], weight=[1.0, 2.0])
        with pytest.raises(errors.ColumnMissing, match="expected the columns weight of the first edges, got none"):
            writer.add_edges(["a"], ["b"])
        with pytest.raises(errors.WidthMismatch):
            writer.add_edges(["a"], ["b"], weight=[1.0, 2.0])
    with loaded(tmp_path / "graph", 2, model=model_of(3)) as cluster:
        assert (cluster.graph.vertex_count, cluster.partition_report.edges) == (2, 2)
    with pytest.raises(errors.DtypeInvalid), PartsWriter(tmp_path / "other") as writer:
        writer.add_edges(["a"], [0])
    with pytest.raises(errors.UsageError, match="expected vertices, got none"), PartsWriter(tmp_path / "other"):
        pass
    with pytest.raises(errors.UsageError, match=r"\[save\] expected a path that is free"), PartsWriter(tmp_path):
        pass
    assert os.listdir(tmp_path) == ["graph"]


@pytest.mark.parametrize("before", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("after", [1, 2, 3, 4, 5, 12])
def test_that_parts_fit_another_number_of_workers(before, after):
    slots = np.arange(4000)
    for parts in (hashed(before), VertexParts(before, slots[:3000] % before)):
        found, old = fitted(parts, after).lookup(slots), parts.lookup(slots)
        if after <= before:
            np.testing.assert_array_equal(found, old % after)
        else:
            np.testing.assert_array_equal(found % before, old)
            shares = np.array([len(range(part, after, before)) for part in range(before)])
            wanted = np.bincount(old, minlength=before)[np.arange(after) % before] / shares[np.arange(after) % before]
            np.testing.assert_allclose(np.bincount(found, minlength=after), wanted, rtol=0.35)


def test_that_a_chunk_that_found_no_room_can_come_again(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    model = random_model(rng, weighted=False, family="gcn")
    x, (src, dst) = rng.standard_normal((20, model.input_width)).astype(np.float32), rng.integers(0, 20, (2, 60))
    write, fails = parts_writer.write_arrays, [True]

    def full(path, arrays):
        if fails:
            fails.pop()
            raise lg.errors.StorageFailed("[save] expected to write, got no room; make room there")
        return write(path, arrays)

    with PartsWriter(tmp_path / "parts") as writer:
        writer.add_vertices(x[:8])
        monkeypatch.setattr(parts_writer, "write_arrays", full)
        with pytest.raises(lg.errors.StorageFailed):
            writer.add_vertices(x[8:])
        writer.add_vertices(x[8:])
        fails.append(True)
        with pytest.raises(lg.errors.StorageFailed):
            writer.add_edges(src, dst)
        writer.add_edges(src, dst)
    wanted = lg.Engine(model, lg.Graph(x, src, dst), threads=1).state_digest()
    options = {"model": model, "partition": "hash", "crew": ThreadCrew(2)}
    with lg.Cluster.load(tmp_path / "parts", 2, **options) as cluster:
        assert cluster.state_digest() == wanted
