"""What an engine refuses, and that nothing is left of it."""

import numpy as np
import pytest

import livegnn as lg
from tests.unit.inference.samples import (
    INT_IDS,
    STR_IDS,
    WIDTH,
    N,
    array,
    engine,
    graph,
    model,
    row,
    updates,
    weighted_gcn,
    weighted_graph,
)

# ---- degrees: known before any row has changed


def negative_degree(new=N):
    batch = lg.Updates()
    batch.add_vertex(new, row())
    batch.add_edge(0, 2, weight=-5.0)
    return batch


@pytest.mark.parametrize("options", [{}, {"state": "compact"}, {"mode": "on_demand"}, {"strategy": "khop"}])
def test_a_refused_degree_leaves_every_engine_as_it_was(options):
    g = weighted_graph()
    engines = [lg.Engine(model(), g, threads=1), lg.Engine(weighted_gcn(), g, threads=1, **options)]
    one_more = lg.Updates()
    one_more.add_vertex(N, row(3))
    one_more.add_edge(N, 1, weight=0.5)
    for each in range(3):
        digests = [e.state_digest() for e in engines]
        with pytest.raises(lg.errors.DegreeNegative, match="vertex 2, got -3"):
            g.apply(negative_degree(g.slot_count))
        with pytest.raises(lg.errors.DegreeNegative), engines[1].what_if(negative_degree(g.slot_count)):
            pass
        assert ([e.state_digest() for e in engines], g.version) == (digests, each)
        for e in engines:
            e.verify()
        g.apply(one_more if each == 0 else updates(("set_features", each, row(each))))


# ---- messages without a value


EVERY_WAY = [
    *({"path": path} for path in ("push", "pull", "sweep")),
    *({"strategy": strategy} for strategy in ("affected", "khop", "full", "sampled")),
    {"state": "compact"},
]
TENS = np.full((3, WIDTH), 10.0, np.float32)
LAYERS = {
    "sum": [lg.layers.GraphConv(TENS, TENS), lg.layers.GraphConv(array(2, 3), array(2, 3))],
    "mean": [lg.layers.SAGE(TENS, weight_root=TENS), lg.layers.SAGE(array(2, 3), weight_root=array(2, 3))],
    "max": [
        lg.layers.SAGE(TENS, weight_root=TENS, aggregate="max"),
        lg.layers.SAGE(array(2, 3), weight_root=array(2, 3), aggregate="max"),
    ],
}


@pytest.mark.parametrize("reduce", LAYERS)
@pytest.mark.parametrize("options", EVERY_WAY, ids=str)
def test_a_message_that_is_not_finite_is_refused_with_or_without_an_edge_to_carry_it(options, reduce):
    """Vertex 4 sends to nobody; the first layer makes of its features what float32 cannot hold."""
    e = lg.Engine(lg.Model(LAYERS[reduce]), graph(), threads=1, **options)
    digest, rows = e.state_digest(), e.embeddings(range(N))
    large = np.full(WIDTH, 3e38, np.float32)
    with pytest.raises(lg.errors.RangeOverflow):
        e.apply(updates(("set_features", 4, large)))
    np.testing.assert_array_equal(e.embeddings(range(N)), rows)
    e.rescale()
    if options.get("strategy") != "sampled":
        e.verify()
    assert e.version == 0
    assert e.state_digest() == digest
    x = e.graph.features()
    x[4] = large
    with pytest.raises((lg.errors.RangeOverflow, lg.errors.ValueInvalid), match="expected finite messages"):
        lg.Engine(e.model, lg.Graph(x, e.graph.edges()["src"], e.graph.edges()["dst"]), threads=1, **options)


def test_a_large_batch_out_of_range_leaves_nothing_to_the_next_one():
    """Both reach most edges. In the first, a message is out of range along an edge, when others have been taken."""
    count = 12
    src, dst = (ends.ravel() for ends in np.meshgrid(np.arange(count), np.arange(count)))
    g = lg.Graph(np.ones((count, 1), np.float32), src, dst, weight=np.ones(src.size, np.float32))
    layer = lg.layers.LG(normalize=False, weighted=True)
    e = lg.Engine(lg.Model([layer, layer], input_width=1), g, threads=1)
    digest = e.state_digest()
    with pytest.raises(lg.errors.RangeOverflow):
        e.apply(updates(*(("set_features", v, np.full(1, 1e9, np.float32)) for v in range(count))))
    assert e.state_digest() == digest
    e.apply(updates(*(("set_features", v, np.full(1, 2.0, np.float32)) for v in range(count - 1))))
    e.verify()
    assert e.state_digest() == lg.Engine(e.model, g, threads=1, scales=e.scales).state_digest()


@pytest.mark.parametrize("mode", ["on_demand", "hybrid"])
def test_a_broken_engine_admits_no_batch_that_a_whole_one_would_not(mode):
    e = lg.Engine(weighted_gcn(), weighted_graph(), threads=1, mode=mode)
    e.apply(updates(("set_features", 1, row(scale=1e9))))
    with pytest.raises(lg.errors.RangeOverflow):
        e.complete()
    version = e.version
    for _ in range(2):
        with pytest.raises(lg.errors.DegreeNegative):
            e.apply(negative_degree())
    assert e.version == version
    e.apply(updates(("set_features", 1, row())))
    e.verify()
    e.apply(updates(("set_features", 1, row(scale=1e9))))
    e.close()
    assert np.isfinite(e.embeddings(range(N))).all()


def test_scales_are_for_degrees_below_their_capacity():
    e = lg.Engine(
        lg.Model([lg.layers.LG(normalize=False)], input_width=1), lg.Graph(np.ones((3, 1), np.float32), [0], [1])
    )
    many = lg.Graph(np.ones((3, 1), np.float32), np.zeros(70_000, np.int64), np.full(70_000, 2))
    with pytest.raises(lg.errors.RangeOverflow, match=r"in-degrees below 65536, .* got 70000 at vertex 2"):
        lg.Engine(e.model, many, scales=e.scales)


# ---- closed engines


def test_a_closed_engine_is_read_and_nothing_else():
    g = graph()
    e = lg.Engine(model(), g, threads=1)
    g.apply(updates(("set_features", 0, row())))
    rows = e.embeddings(range(N))
    e.close()
    e.close()
    g.apply(updates(("set_features", 0, row(4))))
    for call in (
        lambda: e.apply(updates(("add_edge", 0, 3))),
        lambda: e.stream([], "1s"),
        lambda: e.on_change(print),
        lambda: e.swap(model()),
        e.rescale,
        e.recompute,
        e.verify,
        e.state_digest,
        e.resolution,
        lambda: e.save("never.livegnn"),
        lambda: e.what_if(updates(("add_edge", 0, 3))).__enter__(),
    ):
        with pytest.raises(lg.errors.UsageError, match=r"an open (engine|Engine), got one that was closed"):
            call()
    assert (e.version, g.version) == (1, 2)
    np.testing.assert_array_equal(e.embeddings(range(N)), rows)
    g.apply(updates(("add_edge", 0, 3)))  # what was refused holds no lock
    other = lg.Engine(model(), g, threads=1)
    with other.what_if(updates(("add_edge", 0, 4))), pytest.raises(lg.errors.UsageError, match="no what_if block"):
        other.close()
    assert other.version == 3
    other.verify()


@pytest.mark.parametrize("mode", ["eager", "on_demand"])
def test_a_closed_engine_answers_for_no_vertex_that_came_later(mode):
    e = lg.Engine(model(), graph(STR_IDS), threads=1, mode=mode)
    rows = e.embeddings(STR_IDS)
    e.close()
    e.graph.apply(updates(("set_features", "ann", row())))
    with pytest.raises(lg.errors.UpdateError):  # refused, so no vertex has come or gone
        e.graph.apply(updates(("add_vertex", "zoe", row()), ("remove_edge", "ann", "dan")))
    np.testing.assert_array_equal(e.embeddings(STR_IDS), rows)
    e.graph.apply(updates(("remove_vertex", "eve"), ("add_vertex", "zoe", row())))
    for name in ("zoe", "ann"):
        with pytest.raises(lg.errors.UsageError, match="the vertices of version 0"):
            e.embeddings([name])


# ---- arguments


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda s: s[0].__setitem__(1, -5000), lg.errors.ValueInvalid, r"scales\[0\]\[1\] from -100 to 110, got -5000"),
        (lambda s: s[0].__setitem__(0, 1.5), lg.errors.DtypeInvalid, r"scales\[0\]\[0\] as an integer, got 1.5"),
        (lambda s: s[1].__setitem__(0, 10**30), lg.errors.ValueInvalid, r"scales\[1\]\[0\] from"),
        (lambda s: s[-1].__setitem__(0, -1), lg.errors.ValueInvalid, "from 16 to 40, got -1"),
    ],
)
def test_scales_that_no_engine_has(change, error, words):
    e = engine()
    scales = e.scales
    change(scales)
    with pytest.raises(error, match=words):
        lg.Engine(e.model, e.graph, scales=scales)
    for headroom in (1.0, 2.0**20):
        e.rescale(headroom)
        lg.Engine(e.model, e.graph, scales=e.scales).verify()


def test_paths_that_are_none(tmp_path):
    e = engine()
    for path in (None, 3):
        with pytest.raises(lg.errors.UsageError, match=f"expected a path, got {path}"):
            e.save(path)
        with pytest.raises(lg.errors.UsageError, match=f"expected a path, got {path}"):
            lg.Engine.load(path)
    for call in (e.save, lg.Engine.load):
        with pytest.raises(lg.errors.UsageError, match="expected a file, got the folder"):
            call(tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- what is told of a batch stays true


@pytest.mark.parametrize("ids", [INT_IDS, STR_IDS])
def test_changes_keep_the_ids_of_their_version(ids):
    e = lg.Engine(model(), graph(ids), threads=1)
    heard = []
    e.on_change(heard.append)
    new = 5 if ids is INT_IDS else "zoe"
    first = e.apply(updates(("set_features", ids[2], row())))
    twin = lg.Engine(model(), graph(ids), threads=1)
    want = twin.apply(updates(("set_features", ids[2], row()))).vertices.tolist()
    gone = want[-1]
    second = e.apply(updates(("remove_vertex", gone), ("add_vertex", new, row())))  # takes the slot
    assert first.vertices.tolist() == want
    assert new in second.vertices.tolist()
    e.apply(updates(("remove_vertex", new)))
    assert new in second.vertices.tolist()
    assert heard[0] is first


def test_an_interrupt_in_a_callback_is_raised_when_all_have_heard():
    g = graph()
    e, other = lg.Engine(model(), g, threads=1), lg.Engine(model(), g, threads=1)

    def interrupt(changes):
        raise KeyboardInterrupt

    heard = []
    e.on_change(interrupt)
    e.on_change(lambda changes: heard.append(("e", changes.version)))
    other.on_change(lambda changes: heard.append(("other", changes.version)))
    with pytest.raises(KeyboardInterrupt):
        e.apply(updates(("set_features", 0, row())))
    assert heard == [("e", 1), ("other", 1)]
    e.verify()


def test_a_stream_goes_on_behind_a_batch_that_stands():
    e = engine()
    source = [("add_edge", 0, 2), ("add_edge", 0, 3), ("add_edge", 0, 4)]

    def interrupt(changes):
        if changes.version == 1:
            raise KeyboardInterrupt

    e.on_change(interrupt)
    before = e.graph.edge_count
    with e.stream(source, "10s") as stream:
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert stream.position == 1
        for _ in stream:
            pass
        assert stream.position == len(source)
    assert e.graph.edge_count == before + len(source)
