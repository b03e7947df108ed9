"""Weights, times and attributes in samples are those of a scan of the graph at the sample's version."""

import contextlib
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import DtypeInvalid, UpdateError, UsageError
from livegnn.sampling import ClusterSpec, LocalCluster, ServingWorker, even_owners, even_serving
from livegnn.sampling.cluster.messages import Served, decode, encode
from livegnn.sampling.cluster.messages import _pack as pack

VERTICES, WIDTH = 12, 2
QUERIES = [
    lg.query().out().sample(3).in_().sample(2, by="weighted"),
    lg.query().both().sample(4, by="top_k").out().sample(2),
]
SEEDS = np.arange(VERTICES)
COLUMNS = {"edge_weight": "weight", "edge_time": "time", "edge_attr": "attr"}

kinds = st.sampled_from(
    ["add_edge", "add_edge", "remove_edge", "set_weight", "set_edge_attr", "remove_before", "vertex"]
)
vertices = st.integers(0, VERTICES - 1)
steps = st.lists(st.lists(st.tuples(kinds, vertices, vertices, st.integers(0, 40)), max_size=8), max_size=6)


def new_graph(edges=40, seed=0, ids=None, **options):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, VERTICES, (2, edges))
    columns = {
        "weight": rng.random(edges).astype(np.float32),
        "time": rng.integers(0, 20, edges),
        "edge_attr": rng.standard_normal((edges, WIDTH)).astype(np.float32),
    }
    if ids is not None:
        src, dst = [[ids[v] for v in ends.tolist()] for ends in (src, dst)]
    return lg.Graph(np.eye(VERTICES, 3, dtype=np.float32), src, dst, ids=ids, **columns, **options)


def batch_of(graph, ops, names=None):
    """Updates that the graph may refuse."""
    updates = lg.Updates()
    for kind, u, v, value in ops:
        pair = (u, v) if names is None else (names[u], names[v])
        row = np.full(WIDTH, value / 7, np.float32)
        if kind == "add_edge":
            updates.add_edge(*pair, weight=value / 3, time=value, edge_attr=row)
        elif kind == "remove_edge":
            updates.remove_edge(*pair, missing="ignore")
        elif kind == "set_weight":
            updates.set_weight(*pair, value / 5)
        elif kind == "set_edge_attr":
            updates.set_edge_attr(*pair, row)
        elif kind == "remove_before":
            updates.remove_edges_before(value // 4)
        else:
            updates.remove_vertex(pair[0])
            updates.add_vertex(pair[0], np.ones(3, np.float32))
    return updates


def scanned(graph):
    edges = graph.edges()
    return {
        edge: {name: edges[name][row] for name in ("weight", "time", "attr")} for row, edge in enumerate(edges["id"])
    }


def assert_scan(sample, graph):
    """Every sampled edge has its columns in the graph, every place without one has zeros."""
    known = scanned(graph)
    assert sample.version == graph.version
    for k in range(1, sample.hops + 1):
        ids = sample.edge_ids(k)
        for method, name in COLUMNS.items():
            got = getattr(sample, method)(k)
            assert got.shape[: ids.ndim] == ids.shape
            expected = np.zeros_like(got)
            for place in np.argwhere(ids >= 0):
                expected[tuple(place)] = known[ids[tuple(place)]][name]
            np.testing.assert_array_equal(got, expected, err_msg=f"{method}({k}) at version {sample.version}")


def sources(graph, query, **options):
    return [
        lg.PreSampler(graph, query, seed=3, edge_data=True, **options),
        lg.AdHocSampler(graph, query, seed=3, edge_data=True),
    ]


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("named", [False, True])
@settings(max_examples=25, deadline=None)
@given(steps=steps, seed=st.integers(0, 3), threads=st.integers(1, 2), query=st.sampled_from(QUERIES))
def test_columns_of_sampled_edges(undirected, named, steps, seed, threads, query):
    names = [f"v{v}" for v in range(VERTICES)] if named else None
    graph = new_graph(seed=seed, undirected=undirected, ids=names)
    sampler, ad_hoc = sources(graph, query, threads=threads)
    seeds = names or SEEDS
    assert_scan(sampler.sample(seeds), graph)
    for ops in steps:
        with contextlib.suppress(UpdateError):  # then nothing has changed
            graph.apply(batch_of(graph, ops, names))
        assert_scan(sampler.sample(seeds), graph)
        assert_scan(ad_hoc.sample(seeds), graph)
        sampler.verify()


def test_an_edge_that_changes_twice_in_a_batch():
    graph = new_graph()
    sampler = sources(graph, QUERIES[0])[0]
    row = np.ones(WIDTH, np.float32)
    updates = lg.Updates()
    updates.add_edge(1, 2, weight=1, time=30, edge_attr=row)
    updates.set_weight(1, 2, 5)
    updates.set_edge_attr(1, 2, row * 2)
    updates.add_edge(3, 4, weight=1, time=31, edge_attr=row)
    updates.remove_edge(3, 4)
    updates.set_edge_attr(1, 2, row * 3)
    sampler.apply(updates)
    assert_scan(sampler.sample(SEEDS), graph)
    sampler.verify()


def test_a_refused_batch_changes_no_column():
    graph = new_graph()
    sampler = sources(graph, QUERIES[0])[0]
    before = sampler.sample(SEEDS)
    updates = lg.Updates()
    u, v = graph.edges()["src"][0], graph.edges()["dst"][0]
    updates.set_weight(u, v, 9)
    updates.set_weight(u, v, -1)  # a weighted hop refuses it
    with pytest.raises(UpdateError):
        graph.apply(updates)
    for k in (1, 2):
        np.testing.assert_array_equal(sampler.sample(SEEDS).edge_weight(k), before.edge_weight(k))
    sampler.verify()


def test_readers_see_columns_of_one_version():
    """Every batch gives all edges the weight and the attribute of its version."""
    graph = lg.Graph(np.eye(4, dtype=np.float32), [0, 0, 1], [1, 2, 3], weight=[0.0] * 3, edge_attr=np.zeros((3, 1)))
    sampler = lg.PreSampler(graph, lg.query().out().sample(2).out().sample(1), edge_data=True)
    mixed, ended, seen = [], threading.Event(), set()

    def read():
        while not ended.is_set():
            sample = sampler.sample([0])
            seen.add(sample.version)
            for k in (1, 2):
                there = sample.mask(k)
                if not (sample.edge_weight(k)[there] == sample.version).all():
                    mixed.append(sample.version)
                if not (sample.edge_attr(k)[there] == sample.version).all():
                    mixed.append(sample.version)

    reader = threading.Thread(target=read)
    reader.start()
    version = 0
    while version < 300 or (len(seen) < 3 and version < 100_000):
        version += 1
        updates = lg.Updates()
        for u, v in ((0, 1), (0, 2), (1, 3)):
            updates.set_weight(u, v, version)
            updates.set_edge_attr(u, v, [version])
        graph.apply(updates)
    ended.set()
    reader.join()
    assert not mixed
    assert len(seen) >= 3  # reads came between batches


@pytest.mark.parametrize("columns", [["weight"], ["time"], ["edge_attr"], ["weight", "edge_attr"], []])
def test_a_graph_with_some_columns(columns):
    given = {"weight": [0.5, 2.0], "time": [3, 4], "edge_attr": np.arange(4, dtype=np.float32).reshape(2, 2)}
    graph = lg.Graph(np.eye(3, dtype=np.float32), [0, 0], [1, 2], **{name: given[name] for name in columns})
    for source in sources(graph, lg.query().out().sample(3)):
        sample = source.sample([0, 1])
        order = np.where(sample.edge_ids(1) < 0, 2, sample.edge_ids(1))
        for method, name in {"edge_weight": "weight", "edge_time": "time", "edge_attr": "edge_attr"}.items():
            if name in columns:
                rows = np.concatenate([np.asarray(given[name]), np.zeros_like(given[name][:1])])
                np.testing.assert_array_equal(getattr(sample, method)(1), rows[order])
            else:
                with pytest.raises(UsageError, match="expected a sample with"):
                    getattr(sample, method)(1)


def test_edge_data_is_an_option_of_samplers_and_of_reads():
    graph = new_graph()
    without = lg.PreSampler(graph, QUERIES[0], seed=3)
    with pytest.raises(UsageError, match=r"\[edge_weight\].*make the sampler with edge_data=True"):
        without.sample(SEEDS).edge_weight(1)
    for source in sources(graph, QUERIES[0]):
        lean = source.sample(SEEDS, edge_data=False)
        with pytest.raises(UsageError, match=r"\[edge_time\]"):
            lean.edge_time(1)
        no_ids = source.sample(SEEDS, edge_ids=False)
        np.testing.assert_array_equal(no_ids.edge_attr(2), source.sample(SEEDS).edge_attr(2))
        with pytest.raises(UsageError, match=r"\[edge_ids\]"):
            no_ids.edge_ids(1)
    with pytest.raises(DtypeInvalid, match=r"\[PreSampler\] expected edge_data as True or False"):
        lg.PreSampler(graph, QUERIES[0], edge_data=1)


def test_a_server_gives_the_columns_of_its_source():
    graph = new_graph()
    sampler = sources(graph, QUERIES[0])[0]
    with lg.SampleServer(sampler) as server:
        assert_scan(server.sample(SEEDS), graph)
        assert server.sample_bytes(3) - server.sample_bytes(3, edge_data=False) == (4 + 8 + 4 * WIDTH) * 3 * (3 + 6)


def test_to_pyg_has_the_columns():
    pytest.importorskip("torch_geometric")
    graph = new_graph()
    known = scanned(graph)
    for source in sources(graph, QUERIES[1]):
        sample = source.sample(SEEDS)
        for merge in (False, True):
            data = sample.to_pyg(merge=merge)
            assert data.edge_weight.shape == data.edge_time.shape == data.e_id.shape
            for row, edge in enumerate(data.e_id.tolist()):
                assert data.edge_weight[row].item() == known[edge]["weight"]
                assert data.edge_time[row].item() == known[edge]["time"]
                np.testing.assert_array_equal(data.edge_attr[row].numpy(), known[edge]["attr"])
        with pytest.raises(UsageError, match="expected edge ids to merge edges that have data"):
            source.sample(SEEDS, edge_ids=False).to_pyg(merge=True)


def test_typed_graphs_have_the_columns_by_edge_type():
    pytest.importorskip("torch_geometric")
    buys, also = ("user", "buys", "item"), ("item", "also", "item")
    graph = lg.Graph(
        {"user": np.ones((2, 1), np.float32), "item": np.ones((3, 2), np.float32)},
        {buys: [0, 0, 1], also: [0, 1]},
        {buys: [0, 1, 2], also: [1, 2]},
        edge_attr={buys: [[5.0], [7.0], [9.0]], also: [[1.0], [2.0]]},
    )
    query = lg.query("user").out("buys").sample(2).out("also").sample(1)
    amounts = {edge: row["attr"] for edge, row in zip(graph.edges()["id"], typed_rows(graph), strict=True)}
    cluster = LocalCluster(graph, query, sampling=2, serving=2, seed=3, edge_data=True)
    for source in [*sources(graph, query), cluster]:
        sample = source.sample([0, 1])
        for k in (1, 2):
            for place in np.argwhere(sample.edge_ids(k) >= 0):
                edge = sample.edge_ids(k)[tuple(place)]
                np.testing.assert_array_equal(sample.edge_attr(k)[tuple(place)], amounts[edge])
        data = sample.to_pyg()
        assert sorted(data["item", "rev_buys", "user"].edge_attr.flatten().tolist()) == [5.0, 7.0, 9.0]
        assert set(data["item", "rev_also", "item"].edge_attr.flatten().tolist()) <= {1.0, 2.0}


def typed_rows(graph):
    edges = graph.edges()
    return [{"attr": row} for row in edges["attr"]]


# ---- workers


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("named", [False, True])
@settings(max_examples=20, deadline=None)
@given(steps=steps, seed=st.integers(0, 3), sampling=st.integers(1, 3), serving=st.integers(1, 3), data=st.data())
def test_columns_of_edges_from_serving_workers(undirected, named, steps, seed, sampling, serving, data):
    names = [f"v{v}" for v in range(VERTICES)] if named else None
    graph = new_graph(seed=seed, undirected=undirected, ids=names)
    query = data.draw(st.sampled_from(QUERIES))
    cluster = LocalCluster(graph, query, sampling=sampling, serving=serving, seed=3, edge_data=True)
    sampler, seeds = sources(graph, query)[0], names or SEEDS
    for ops in ([], *steps):
        with contextlib.suppress(UpdateError):
            graph.apply(batch_of(graph, ops, names))
        if data.draw(st.booleans(), "moves"):
            cluster.move_sampling(even_owners(data.draw(st.integers(1, 3))))
            cluster.move_serving(even_serving(data.draw(st.integers(1, 3))))
        sample = cluster.sample(seeds)
        assert_scan(sample, graph)
        for k in (1, 2):
            np.testing.assert_array_equal(sample.edge_ids(k), sampler.sample(seeds).edge_ids(k))
    assert cluster.sample([]).edge_attr(2).shape == (0, *sample.hop(2).shape[1:], WIDTH)


def test_states_of_workers_carry_the_columns():
    graph = new_graph()
    cluster = LocalCluster(graph, QUERIES[1], seed=3, edge_data=True)
    again = ServingWorker(ClusterSpec.from_json(cluster.spec.to_json()), 0)
    state = decode(encode(Served(0, cluster.serving_workers[0].state())))
    again.restore(state.push)
    assert_scan(again.sample(SEEDS), graph)
    assert "attr" in decode(encode(cluster.sampling_workers[0].state())).edges


def test_a_message_of_0_1_has_no_columns():
    graph = new_graph()
    worker = LocalCluster(graph, QUERIES[0]).serving_workers[0]
    message = worker.state()
    before = pack(2, (*message[:6], 1, 0), (message.seeds, *message.arrays[:5], *message.arrays[6:]))
    assert [array.tobytes() for array in decode(before).arrays] == [array.tobytes() for array in message.arrays]
