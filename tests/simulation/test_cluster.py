"""lg.Cluster with workers in threads: one engine's bits after every batch, whatever is lost and whenever."""

import gc
import logging
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.distributed import hashed, ldg, ray_session
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.distributed.cluster.driver_state import DriverState
from livegnn.testing import streams
from livegnn.testing.edge_models import graph_columns
from livegnn.testing.models import random_model


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, logger="livegnn")


def pair(seed, workers, **options):
    """An engine and a cluster on the same random graph, and what makes batches for both."""
    rng = np.random.default_rng(seed)
    weighted = bool(rng.integers(2))
    model = random_model(rng, weighted=weighted, on_edges=bool(rng.integers(2)), reversed=None)
    graph, mirror = streams.random_graph(
        rng, model.input_width, weighted, vertices=int(rng.integers(2, 25)), **graph_columns(model)
    )
    engine = lg.Engine(model, graph, threads=1)
    crew = ThreadCrew(workers, timeout_s=30)
    options.setdefault("partition", str(rng.choice(["hash", "ldg", "fennel"])))
    options.setdefault("newcomers", str(rng.choice(["hash", "ldg", "fennel"])))
    return engine, lg.Cluster(model, graph, workers, crew=crew, **options), crew, mirror, rng


def live_ids(engine):
    return np.flatnonzero(engine.graph.host.store.live())


def check_same(engine, cluster, note):
    assert cluster.state_digest() == engine.state_digest(), note
    ids = live_ids(engine)
    np.testing.assert_array_equal(cluster.embeddings(ids), engine.embeddings(ids), err_msg=note)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 5]))
def test_that_a_cluster_has_the_bits_of_one_engine(seed, workers):
    engine, cluster, _, mirror, rng = pair(seed, workers, snapshot_batches=3)
    seen = []
    cluster.on_change(lambda changes: seen.append(changes.version))
    work = 0
    for batch in range(6):
        updates = streams.random_batch(rng, mirror, int(rng.integers(1, 12)))
        want, got = engine.apply(updates), cluster.apply(updates)
        work += len(got.vertices)
        if rng.integers(2):  # to look changes nothing
            assert sum(each["work"] for each in cluster.report()) == work
        assert set(want.vertices.tolist()) <= set(got.vertices.tolist())
        assert got.version == want.version == cluster.graph.version
        check_same(engine, cluster, f"batch {batch}")
    cluster.verify()
    assert sum(each["work"] for each in cluster.report()) == work
    assert cluster.scales == engine.scales
    assert seen == list(range(1, 7))
    cluster.close()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 4]), st.integers(1, 4))
def test_that_lost_workers_come_back_to_the_same_bits(seed, workers, snapshot_batches):
    engine, cluster, crew, mirror, rng = pair(seed, workers, snapshot_batches=snapshot_batches)
    for batch in range(8):
        updates = streams.random_batch(rng, mirror, int(rng.integers(1, 10)))
        engine.apply(updates)
        timers = []
        if rng.integers(2):
            for worker in rng.choice(workers, int(rng.integers(1, workers + 1)), replace=False).tolist():
                timers.append(threading.Timer(float(rng.random() * 0.004), crew.kill, [worker]))
        for timer in timers:
            timer.start()
        cluster.apply(updates)
        for timer in timers:
            timer.join()
        check_same(engine, cluster, f"batch {batch}")
    cluster.verify()
    cluster.close()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_if_of_a_cluster_shows_the_rows_and_changes_nothing(seed):
    engine, cluster, _, mirror, rng = pair(seed, 3)
    for _ in range(4):
        updates = streams.random_batch(rng, mirror, int(rng.integers(1, 10)))
        before = cluster.state_digest()
        with engine.what_if(updates) as want, cluster.what_if(updates) as got:
            assert set(want.vertices.tolist()) <= set(got.vertices.tolist())
            ids = want.vertices.tolist()
            if ids:
                np.testing.assert_array_equal(got.embeddings(ids), want.embeddings(ids))
        assert cluster.state_digest() == before
        engine.apply(updates)
        cluster.apply(updates)
        check_same(engine, cluster, "after")
    cluster.close()


def test_that_a_worker_lost_inside_a_what_if_ends_it_and_nothing_else():
    engine, cluster, crew, mirror, rng = pair(11, 3)
    updates = streams.random_batch(rng, mirror, 6)
    with cluster.what_if(updates) as view:
        ids = view.vertices[:1]
        crew.kill(1)
        with pytest.raises(lg.errors.WorkerUnavailable, match="open another view"):
            view.embeddings(ids)
    check_same(engine, cluster, "after")
    engine.apply(updates)
    cluster.apply(updates)
    check_same(engine, cluster, "after the batch")
    cluster.close()


@pytest.mark.parametrize("lost", [None, "prepare_swap", "snapshot_of_swap", "commit_swap"])
def test_that_a_swap_has_the_bits_of_an_engines_swap(lost):
    engine, cluster, crew, mirror, rng = pair(5, 3, snapshot_batches=2)
    other = random_model(np.random.default_rng(8), weighted=False, family="gcn")
    while other.input_width != engine.model.input_width:
        other = random_model(rng, weighted=False, family="sage")
    call, killed = crew.call, []

    def losing(calls):
        if calls[0][0] == lost and not killed:
            killed.append(crew.kill(1))
        return call(calls)

    crew.call = crew.keep = losing
    for _ in range(3):
        updates = streams.random_batch(rng, mirror, 5)
        engine.apply(updates)
        cluster.apply(updates)
    try:
        engine.swap(other)
    except lg.errors.LiveGnnError:
        pytest.skip("the model does not fit the graph")
    cluster.swap(other)
    check_same(engine, cluster, "after the swap")
    assert (len(killed) == 1) == (lost is not None)
    for _ in range(3):
        updates = streams.random_batch(rng, mirror, 5)
        engine.apply(updates)
        cluster.apply(updates)
        check_same(engine, cluster, "after a batch")
    crew.kill(2)
    check_same(engine, cluster, "after a loss")
    cluster.close()


def test_that_a_rescale_has_the_bits_of_an_engines_rescale():
    engine, cluster, crew, mirror, rng = pair(9, 3)
    before = engine.scales
    for headroom in (2.0**18, 512.0, 64.0):
        for each in (engine, cluster):
            each.rescale(headroom)
        crew.kill(1)
        assert cluster.scales == engine.scales != before
        before = engine.scales
        check_same(engine, cluster, "after the rescale")
        updates = streams.random_batch(rng, mirror, 5)
        engine.apply(updates)
        cluster.apply(updates)
        check_same(engine, cluster, "after a batch")
    with pytest.raises(lg.errors.ValueInvalid, match=r"\[rescale\] expected a headroom"):
        cluster.rescale(0)
    cluster.close()


@pytest.mark.parametrize("seed", range(4))
def test_that_a_saved_cluster_is_an_engine_and_a_cluster_of_other_workers(tmp_path, seed):
    engine, cluster, _, mirror, rng = pair(seed, 3)
    for _ in range(3):
        updates = streams.random_batch(rng, mirror, 8)
        engine.apply(updates)
        cluster.apply(updates)
    cluster.save(tmp_path / "saved")
    alone = lg.Engine.load(tmp_path / "saved")
    again = lg.Cluster.load(tmp_path / "saved", 2, crew=ThreadCrew(2), partition="hash")
    for _ in range(2):
        assert alone.state_digest() == again.state_digest() == engine.state_digest()
        assert alone.graph.version == again.graph.version == engine.graph.version
        updates = streams.random_batch(rng, mirror, 8)
        for each in (engine, alone, again):
            each.apply(updates)
    again.close()
    cluster.close()


def test_that_a_bad_batch_is_refused_by_all_and_changes_nothing():
    engine, cluster, _, mirror, rng = pair(2, 3)
    before = cluster.state_digest()
    for bad in ("missing", "width", "vertex"):
        updates = streams.random_batch(rng, mirror.copy(), 3)
        if bad == "missing":
            updates.remove_edge(int(live_ids(engine)[0]), int(live_ids(engine)[0]), edge_id=10**6)
        elif bad == "width":
            updates.set_features(int(live_ids(engine)[0]), np.zeros(engine.model.input_width + 1, np.float32))
        else:
            updates.remove_vertex(10**6)
        with pytest.raises(lg.errors.UpdateError) as want:
            engine.apply(updates)
        with pytest.raises(type(want.value)) as got:
            cluster.apply(updates)
        assert got.value.update == want.value.update == 3
        assert str(got.value) == str(want.value)
        assert cluster.state_digest() == before == engine.state_digest()
    cluster.close()


def add_bad(rng, engine, updates):
    """One update that is refused wherever it stands in a batch."""
    width, live = engine.model.input_width, live_ids(engine)
    vertex, slots = int(rng.choice(live)), engine.graph.slot_count
    bad = [
        lambda: updates.remove_edge(vertex, int(rng.choice(live)), edge_id=10**6),
        lambda: updates.set_features(vertex, np.zeros(width + 1, np.float32)),
        lambda: updates.remove_vertex(10**6),
        lambda: updates.add_vertex(vertex, np.zeros(width, np.float32)),
        lambda: updates.add_vertex(slots + 77, np.zeros(width, np.float32)),
        lambda: updates.add_edge(vertex, slots + 50),
    ]
    bad[int(rng.integers(len(bad)))]()


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_that_of_several_bad_updates_the_first_is_named_as_by_an_engine(first, tmp_path):
    for seed in range(first, first + 10):
        engine, cluster, _, mirror, rng = pair(seed, 2 + seed % 3)
        with lg.log.UpdateLog(lg.log.open_log(f"sqlite:{tmp_path}/{seed}")) as log:
            if seed % 2:
                log.attach(cluster.graph)
            for _ in range(6):
                updates = streams.random_batch(rng, mirror.copy(), int(rng.integers(0, 3)))
                for _ in range(int(rng.integers(2, 5))):
                    add_bad(rng, engine, updates)
                with pytest.raises(lg.errors.UpdateError) as want:
                    engine.apply(updates)
                with pytest.raises(type(want.value)) as got:
                    cluster.apply(updates)
                assert str(got.value) == str(want.value), seed
                check_same(engine, cluster, f"seed {seed}")
            cluster.close()


def test_that_reads_of_unknown_vertices_and_closed_clusters_are_refused():
    _, cluster, _, _, _ = pair(3, 2)
    with pytest.raises(lg.errors.VertexUnknown):
        cluster.embeddings([10**6])
    cluster.close()
    cluster.close()
    with pytest.raises(lg.errors.UsageError, match="closed"):
        cluster.embeddings([0])


CLOSED = {
    "apply": [lg.Updates()],
    "what_if": [lg.Updates()],
    "on_change": [print],
    "swap": [None],
    "rescale": [],
    "save": ["saved"],
    "verify": [],
    "state_digest": [],
    "report": [],
}


def test_that_a_closed_cluster_refuses_in_the_users_words():
    _, cluster, _, _, _ = pair(3, 2)
    cluster.close()
    for verb, values in CLOSED.items():
        with pytest.raises(
            lg.errors.UsageError, match=rf"\[{verb}\] expected an open cluster, got one that was closed"
        ):
            getattr(cluster, verb)(*values)


def test_what_is_refused_before_a_worker_starts():
    engine, cluster, _, _, _ = pair(3, 2)
    module = r"as a livegnn Model, got function; pass a livegnn.Model, or livegnn.from_pyg\(module\)"
    with pytest.raises(lg.errors.UsageError, match=rf"\[Cluster\] expected model {module}"):
        lg.Cluster(check_same, engine.graph)
    with pytest.raises(lg.errors.UsageError, match=rf"\[swap\] expected model {module}"):
        cluster.swap(check_same)
    with pytest.raises(lg.errors.UsageError, match=r"\[what_if\] expected updates as a livegnn Updates, got list"):
        cluster.what_if([])
    with pytest.raises(lg.errors.UsageError, match="timeout_s above 0"):
        lg.Cluster(engine.model, engine.graph, timeout_s=0)
    with pytest.raises(lg.errors.ValueInvalid, match="expected 1 to 256 threads, got 0"):
        lg.Cluster(engine.model, engine.graph, threads=0)
    crew = ThreadCrew(3)
    with pytest.raises(lg.errors.UsageError, match="expected a crew of 2 workers, got one of 3"):
        lg.Cluster(engine.model, engine.graph, 2, crew=crew)
    crew.close()
    cluster.close()


def test_a_cluster_with_ids_types_and_a_log(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"v{i}" for i in range(12)]
    features = rng.standard_normal((12, 4)).astype(np.float32)
    src, dst = rng.integers(0, 12, 30), rng.integers(0, 12, 30)
    ends = [[names[i] for i in end] for end in (src, dst)]
    graph = lg.Graph(features, *ends, ids=names)
    model = random_model(np.random.default_rng(1), family="sage", depth=2)
    while model.input_width != 4:
        model = random_model(rng, family="sage", depth=2)
    engine = lg.Engine(model, graph)
    cluster = lg.Cluster(model, graph, 3, crew=ThreadCrew(3), partition="ldg")
    updates = lg.Updates()
    updates.add_vertex("new", np.ones(4, np.float32))
    updates.add_edge("new", "v3")
    updates.remove_vertex("v5")
    want, got = engine.apply(updates), cluster.apply(updates)
    assert sorted(want.vertices) == sorted(got.vertices)
    np.testing.assert_array_equal(cluster.embeddings(["new", "v3"]), engine.embeddings(["new", "v3"]))
    assert cluster.state_digest() == engine.state_digest()
    with pytest.raises(lg.errors.VertexUnknown, match="v5"):
        cluster.embeddings(["v5"])
    cluster.close()


def test_that_a_worker_that_is_gone_leaves_no_memory():
    engine, cluster, crew, _, _ = pair(6, 2)
    gone = weakref.ref(crew.workers[1].part)
    crew.kill(1)
    check_same(engine, cluster, "after")
    gc.collect()
    assert gone() is None
    cluster.close()


def test_that_an_interrupted_callback_lets_the_others_have_the_version():
    engine, cluster, _, mirror, rng = pair(7, 2, snapshot_batches=1)
    seen = []

    def interrupt(changes):
        raise KeyboardInterrupt

    handle = cluster.on_change(interrupt)
    cluster.on_change(lambda changes: seen.append(changes.version))
    for last in (True, False):
        updates = streams.random_batch(rng, mirror, 3)
        engine.apply(updates)
        if last:
            with pytest.raises(KeyboardInterrupt):
                cluster.apply(updates)
            handle.cancel()
        else:
            cluster.apply(updates)
        check_same(engine, cluster, "after")
    assert seen == [1, 2]
    cluster.close()


def test_what_an_engine_has_and_a_cluster_has_not_is_refused_by_its_name(tmp_path):
    _, cluster, _, _, _ = pair(3, 2)
    for name in ("snapshot", "stream", "recompute", "contributions"):
        with pytest.raises(AttributeError, match=rf"\[{name}\] expected an Engine, got a Cluster"):
            getattr(cluster, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        cluster.nonsense  # noqa: B018
    with pytest.raises(lg.errors.UsageError, match=r"repartition\(\) it"):
        ldg(cluster.graph, 2)
    with pytest.raises(lg.errors.UsageError, match=r"expected parts for 2 workers, got 3.*pass as many workers="):
        cluster.repartition(hashed(3))
    cluster.save(tmp_path / "parts", in_parts=True)
    with pytest.raises(lg.errors.UsageError, match=r"a graph in parts; load it by lg.Cluster.load\(\)"):
        lg.Engine.load(tmp_path / "parts")
    with pytest.raises(lg.errors.FileMissing, match="expected a folder of snapshots"):
        lg.Cluster.restore(tmp_path / "none", crew=ThreadCrew(2))
    assert not (tmp_path / "none").exists()


def test_that_the_driver_says_what_it_has_not_of_the_graph():
    engine, cluster, *_ = pair(3, 2)
    for each in (cluster.graph, DriverState.from_bytes(cluster._driver_state()).made_directory().graph):
        for name in ("features", "edges", "in_neighbours", "out_neighbours", "in_degree", "out_degree"):
            with pytest.raises(
                lg.errors.UsageError, match=rf"^\[{name}\] expected a graph with edges and features, got"
            ):
                getattr(each, name)(0)
        for name in ("to_pyg", "to_arrow"):
            with pytest.raises(lg.errors.UsageError, match=rf"^\[{name}\] "):
                getattr(each, name)()
        for name, asked in (("edge_count", "edge_count"), ("feature_width", "shape"), ("feature_widths", "shape")):
            with pytest.raises(lg.errors.UsageError, match=rf"^\[{name}\] .*; ask the cluster for its {asked}$"):
                getattr(each, name)
        assert repr(each) == f"VertexGraph(vertices={engine.graph.vertex_count}, version=0)"
        assert each.vertices().tolist() == engine.graph.vertices().tolist()
    cluster.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "nonsense",
            r'expected address= as "auto" or as "host:port", as `ray start` prints it, got .nonsense.; give that',
        ),
        ("http://127.0.0.1:8265", r"got 'http://127.0.0.1:8265'; give that"),
        ("127.0.0.1:x", r"got '127.0.0.1:x'"),
        ("127.0.0.1:1", r"expected a Ray cluster at 127.0.0.1:1, got nothing that answers there \(.*refused\)"),
        ("127.0.0.1:99999", r"got nothing that answers there"),
    ],
)
def test_that_an_address_where_no_ray_is_is_refused_at_once(monkeypatch, address, said):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", None)
    with pytest.raises(lg.errors.UsageError, match=said):
        lg.Cluster.attach("fraud", address=address)


def test_that_a_ray_that_wants_a_token_is_told_apart(monkeypatch):
    ray = pytest.importorskip("ray")

    def refuse(**options):
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(lg.errors.UsageError, match=r"may join, got: Failed to connect; .*RAY_AUTH_TOKEN"):
        ray_session.connect("here", "auto")


def test_that_options_of_an_engine_are_refused_by_name():
    engine, cluster, *_ = pair(3, 2)
    cluster.close()
    for options in ({"mode": "demand"}, {"memory_limit": 10}, {"state": "compact"}, {"strategy": "full"}):
        (name,) = options
        with pytest.raises(lg.errors.UsageError, match=rf"^\[Cluster\] expected no {name}=, which is an Engine's"):
            lg.Cluster(engine.model, engine.graph, **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'threds'"):
        lg.Cluster(engine.model, engine.graph, threds=1)


@pytest.mark.parametrize("partition", [np.zeros(60, int), [0, 1], 3])
def test_that_parts_which_are_an_array_are_refused(partition):
    engine, cluster, *_ = pair(3, 2)
    said = r"or VertexParts, got .*; choose one, or make VertexParts\(workers, parts\) of an array"
    with pytest.raises(lg.errors.ValueInvalid, match=said):
        lg.Cluster(engine.model, engine.graph, crew=ThreadCrew(2), partition=partition)
    with pytest.raises(lg.errors.ValueInvalid, match=said):
        cluster.repartition(partition)
    cluster.close()


def test_that_an_address_of_this_machine_is_that_of_its_ray():
    assert ray_session._same("127.0.0.1:26392", "192.0.2.2:26392")
    assert ray_session._same("192.0.2.2:26392", "192.0.2.2:26392")
    assert not ray_session._same("127.0.0.1:1", "192.0.2.2:26392")
    assert not ray_session._same("192.0.2.3:26392", "192.0.2.2:26392")


@pytest.mark.parametrize("in_parts", [False, True])
def test_that_a_loaded_cluster_has_its_name(tmp_path, in_parts):
    _, cluster, _, _, _ = pair(3, 2, name="scores")
    cluster.save(tmp_path / "saved", in_parts=in_parts)
    with lg.Cluster.load(tmp_path / "saved", 2, crew=ThreadCrew(2)) as again:
        assert again.name == "scores"
    with lg.Cluster.load(tmp_path / "saved", 2, crew=ThreadCrew(2), name="other") as again:
        assert again.name == "other"
    if not in_parts:
        assert lg.Engine.load(tmp_path / "saved").name == "scores"


class OwnRay:
    """Ray, as it looks to a process that has started it."""

    def __init__(self):
        self.address = ""

    def is_initialized(self):
        return bool(self.address)

    def init(self, **options):
        self.address = "192.0.2.2:26392"

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.address)


def test_that_detached_workers_want_a_ray_that_outlives_this_process(monkeypatch):
    ray = OwnRay()
    monkeypatch.setattr(ray_session, "need", lambda *_: ray)
    monkeypatch.setattr(ray_session, "_started", [])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(lg.errors.UsageError, match="expected a Ray that outlives this process"):
        ray_session.connect("Cluster", outlives=True)
    ray_session.connect("Cluster")  # one that ends with it
    with pytest.raises(lg.errors.UsageError, match="expected a Ray that outlives this process"):
        ray_session.connect("Cluster", "auto", outlives=True)
