"""Sums of messages that read nothing of their target: fixed point, a function of the graph, replaced one by one."""

import itertools

import numpy as np
import pytest

import livegnn as lg
from livegnn.models import edges, ir
from livegnn.testing import check_engine, random_batch, random_graph
from tests.unit.inference.samples import array

WIDTH, ATTRIBUTES = 4, 2
SHARED = ("push", 2), ("push", 1), ("pull", 2)  # path and threads of engines on one graph


def message_of(x, kind):
    e = ir.Linear(edges.EdgeAttribute(ATTRIBUTES), array(WIDTH, ATTRIBUTES, seed=3), array(WIDTH, seed=4))
    message = ir.Activation(ir.Combine(((1.0, edges.Source(x)), (1.0, e))), "relu")
    return ir.Multiply(message, edges.EdgeWeight()) if kind == "weighted" else message


def two_layers(kind="plain", reduce="sum", loops="keep"):
    x = ir.Input(WIDTH)
    first = edges.Gather(message_of(x, kind), reduce, loops=loops)
    h = ir.Activation(ir.Linear(ir.Combine(((1.0, first), (1.2, x))), array(WIDTH, WIDTH, seed=5)), "tanh")
    second = edges.Gather(message_of(h, kind), reduce, loops=loops)
    return lg.Model.from_output(ir.Linear(second, array(3, WIDTH, seed=6)))


def random_columns(rng, mirror, count):
    """A batch that sets attributes and weights as well, of edges that other updates of the batch may touch, too."""
    updates = random_batch(rng, mirror, count)
    for _ in range(3):
        ids = [e for e, (u, v, _) in mirror.edges.items() if e == mirror.newest(u, v)]
        if not ids:
            break
        edge = int(rng.choice(ids))
        u, v, _ = mirror.edges[edge]
        mirror.attributes[edge] = array(ATTRIBUTES, seed=int(rng.integers(10**6)))
        updates.set_edge_attr(u, v, mirror.attributes[edge])
        if mirror.weighted and rng.integers(2):
            mirror.edges[edge] = (u, v, float(np.float32(rng.random() + 0.1)))
            updates.set_weight(u, v, mirror.edges[edge][2])
        if rng.integers(3) == 0:
            updates.remove_edge(u, v)
            del mirror.edges[edge]
    return updates


@pytest.mark.parametrize("kind", ["plain", "weighted"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("loops", ["keep", "drop"])
@pytest.mark.parametrize("threads", [1, 2])
def test_replacing_messages_gives_the_rows_of_summing_them(kind, reduce, loops, threads):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        graph, mirror = random_graph(rng, WIDTH, kind == "weighted", vertices=12, attr_width=ATTRIBUTES)
        model = two_layers(kind, reduce, loops)
        pushed = lg.Engine(model, graph, path="push", threads=threads)
        others = [
            lg.Engine(model, graph, path="pull"),
            lg.Engine(model, graph),
            lg.Engine(model, graph, strategy="affected"),
        ]
        late = lg.Engine(model, graph, mode="on_demand")
        for batch in range(8):
            graph.apply(random_columns(rng, mirror, int(rng.integers(1, 8))))
            check_engine(pushed, mirror, f"seed {seed} batch {batch}")
            assert {other.state_digest() for other in others} == {pushed.state_digest()}
            live = graph.vertices()
            asked = rng.choice(live, min(3, len(live)), replace=False)
            np.testing.assert_array_equal(late.embeddings(asked), pushed.embeddings(asked))
        late.complete()
        assert late.state_digest() == pushed.state_digest()


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_an_undirected_edge_brings_a_message_each_way(reduce):
    rng = np.random.default_rng(1)
    n = 9
    src, dst = rng.integers(0, n, (2, 20))
    attr = array(20, ATTRIBUTES, seed=7)
    graph = lg.Graph(array(n, WIDTH), src, dst, edge_attr=attr, undirected=True)
    pushed, pulled = (lg.Engine(two_layers(reduce=reduce), graph, path=path) for path in ("push", "pull"))
    for step in range(20):
        updates, at = lg.Updates(), int(rng.integers(20))
        updates.set_edge_attr(src[at], dst[at], array(ATTRIBUTES, seed=step))
        u, v = rng.integers(0, n, 2)
        updates.add_edge(u, v, edge_attr=array(ATTRIBUTES, seed=50 + step))
        if step % 3 == 0:
            updates.set_features(int(u), array(WIDTH, seed=step))
            updates.remove_edge(u, v)
        graph.apply(updates)
        pushed.verify()
        assert pushed.state_digest() == pulled.state_digest()


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_many_messages_are_replaced_by_all_threads(reduce):
    rng = np.random.default_rng(6)
    n, m = 400, 4000
    src, dst = rng.integers(0, n, (2, m))
    graph = lg.Graph(array(n, WIDTH), src, dst, edge_attr=array(m, ATTRIBUTES, seed=1))
    engines = [lg.Engine(two_layers(reduce=reduce), graph, path=path, threads=threads) for path, threads in SHARED]
    for step in range(10):
        updates = lg.Updates()
        for v in rng.choice(n, 60, replace=False):
            updates.set_features(int(v), array(WIDTH, seed=int(v) + step))
        for edge in rng.choice(m, 30, replace=False):
            updates.set_edge_attr(src[edge], dst[edge], array(ATTRIBUTES, seed=int(edge) + step))
        before = engines[0].state_digest()
        with engines[0].what_if(updates):
            pass
        assert engines[0].state_digest() == before
        far = lg.Updates()
        far.extend(updates)
        far.set_features(0, np.full(WIDTH, 1e6, np.float32))
        with pytest.raises(lg.errors.RangeOverflow):
            graph.apply(far)
        assert engines[0].state_digest() == before
        layer = engines[0].apply(updates).stats.layers[0]
        assert layer.edges > 512
        assert (layer.path, layer.reread) == ("push", 0)
        assert len({engine.state_digest() for engine in engines}) == 1
        engines[0].verify()


def test_on_demand_counts_what_it_replaces():
    n = 300
    graph = lg.Graph(array(n, WIDTH), np.zeros(n - 1, int), np.arange(1, n), edge_attr=array(n - 1, ATTRIBUTES))
    x = ir.Input(WIDTH)
    engine = lg.Engine(lg.Model.from_output(edges.Gather(message_of(x, "plain"))), graph, mode="on_demand")
    updates = lg.Updates()
    updates.set_features(0, array(WIDTH, seed=9))
    engine.apply(updates)
    engine.embeddings([5])
    assert engine.last_demand.edges == 1
    engine.verify()


def test_between_types():
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    rng = np.random.default_rng(7)
    bought, seen = ("user", "bought", "item"), ("item", "seen", "user")

    def layer(i, o):
        kinds = {
            bought: pyg.NNConv(i, o, torch.nn.Linear(2, i[0] * o)),
            seen: pyg.GENConv(i[::-1], o, "add", edge_dim=2),
        }
        return pyg.HeteroConv(kinds)

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layer((3, 4), 4), layer((4, 4), 2)

        def forward(self, x_dict, edge_index_dict, edge_attr_dict):
            h = {name: row.tanh() for name, row in self.first(x_dict, edge_index_dict, edge_attr_dict).items()}
            return self.second(h, edge_index_dict, edge_attr_dict)

    ends = {
        bought: (rng.integers(0, 9, 30), rng.integers(0, 7, 30)),
        seen: (rng.integers(0, 7, 20), rng.integers(0, 9, 20)),
    }
    graph = lg.Graph(
        {"user": array(9, 3), "item": array(7, 4)},
        {kind: src for kind, (src, _) in ends.items()},
        {kind: dst for kind, (_, dst) in ends.items()},
        edge_attr={kind: array(len(src), 2, seed=len(src)) for kind, (src, _) in ends.items()},
    )
    model = lg.from_pyg(Two().eval())
    engines = [lg.Engine(model, graph, path=path, threads=threads) for path, threads in SHARED]
    for step in range(12):
        updates = lg.Updates()
        updates.set_features(int(rng.integers(9)), array(3, seed=step), vertex_type="user")
        updates.add_edge(int(rng.integers(9)), int(rng.integers(7)), edge_type="bought", edge_attr=array(2, seed=step))
        kind = (bought, seen)[step % 2]
        at = int(rng.integers(len(ends[kind][0])))
        updates.set_edge_attr(ends[kind][0][at], ends[kind][1][at], array(2, seed=30 + step), edge_type=kind[1])
        graph.apply(updates)
        assert len({engine.state_digest() for engine in engines}) == 1
        engines[0].verify()


def test_the_state_is_a_function_of_the_graph():
    """Whatever the order in which edges came, and however they were batched."""
    rng = np.random.default_rng(2)
    n, count = 10, 30
    src, dst, attr = rng.integers(0, n, count), rng.integers(0, n, count), array(count, ATTRIBUTES, seed=8)
    digests = set()
    for size, seed in itertools.product((1, 7, count), range(3)):
        graph = lg.Graph(array(n, WIDTH), [0], [1], edge_attr=array(1, ATTRIBUTES))
        engine = lg.Engine(two_layers(), graph, threads=1 + seed % 2)
        order = np.random.default_rng(seed).permutation(count)
        for first in range(0, count, size):
            updates = lg.Updates()
            for edge in order[first : first + size]:
                updates.add_edge(src[edge], dst[edge], edge_attr=attr[edge])
            engine.apply(updates)
        digests.add(engine.state_digest())
    assert len(digests) == 1


def test_a_hub_is_not_read_again_for_one_source():
    n = 500
    graph = lg.Graph(array(n, WIDTH), np.arange(1, n), np.zeros(n - 1, int), edge_attr=array(n - 1, ATTRIBUTES))
    x = ir.Input(WIDTH)
    engine = lg.Engine(lg.Model.from_output(edges.Gather(message_of(x, "plain"))), graph)
    updates = lg.Updates()
    updates.set_features(7, array(WIDTH, seed=9))
    updates.add_edge(3, 0, edge_attr=array(ATTRIBUTES, seed=10))
    layer = engine.apply(updates).stats.layers[0]
    assert (layer.edges, layer.reread, layer.path) == (2, 0, "push")
    engine.verify()
    everyone = lg.Updates()
    for v in range(1, n):
        everyone.set_features(v, array(WIDTH, seed=v))
    layer = engine.apply(everyone).stats.layers[0]
    assert (layer.reread, layer.path) == (n, "pull")
    engine.verify()


def test_a_message_out_of_range_is_named_and_there_is_room_for_it():
    graph = lg.Graph(array(5, WIDTH), [0, 1, 2], [1, 2, 3], edge_attr=array(3, ATTRIBUTES))
    engine = lg.Engine(two_layers(), graph)
    digest = engine.state_digest()
    updates = lg.Updates()
    updates.set_edge_attr(1, 2, 3e3 * array(WIDTH, ATTRIBUTES, seed=3)[0])
    with pytest.raises(lg.errors.RangeOverflow, match=r"a message of vertex 1 in .* times that range"):
        engine.apply(updates)
    assert engine.state_digest() == digest
    engine.verify()
    engine.rescale(headroom=2.0**20)
    engine.apply(updates)
    engine.verify()


def test_what_if_and_saving(tmp_path):
    rng = np.random.default_rng(4)
    graph, mirror = random_graph(rng, WIDTH, False, vertices=30, attr_width=ATTRIBUTES)
    engine = lg.Engine(two_layers(), graph)
    for _ in range(5):
        digest = engine.state_digest()
        with engine.what_if(random_batch(rng, mirror.copy(), 6)) as view:
            view.embeddings(graph.vertices()[:1])
        assert engine.state_digest() == digest
        engine.apply(random_columns(rng, mirror, 5))
    engine.save(tmp_path / "engine.npz")
    assert lg.Engine.load(tmp_path / "engine.npz").state_digest() == engine.state_digest()


def test_a_limit_of_memory(tmp_path):
    rng = np.random.default_rng(4)
    n, m = 60_000, 120_000
    src, dst = rng.integers(0, n, (2, m))
    graph = lg.Graph(array(n, WIDTH), src, dst, edge_attr=array(m, ATTRIBUTES, seed=1))
    engine = lg.Engine(two_layers(), graph)
    paged = lg.Engine(two_layers(), graph, memory_limit="4MiB", spill_folder=tmp_path)
    for step in range(5):
        updates = lg.Updates()
        updates.set_features(rng.choice(n, 50, replace=False), array(50, WIDTH, seed=step))
        updates.remove_edges(src[9 * step : 9 * step + 9], dst[9 * step : 9 * step + 9])
        graph.apply(updates)
        assert paged.state_digest() == engine.state_digest()
    assert paged.memory.resident < paged.memory.files


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_sampled_rows_are_scaled_up(reduce):
    """Of equal messages any sample, scaled up, is the whole sum."""
    n = 40
    graph = lg.Graph(
        np.ones((n, WIDTH), np.float32), np.arange(1, n), np.zeros(n - 1, int), weight=np.ones(n - 1, "f4")
    )
    x = ir.Input(WIDTH)
    weighted = edges.Gather(ir.Multiply(edges.Source(x), edges.EdgeWeight()), reduce)
    for fanout in (5, 100):
        sampled = lg.Engine(lg.Model.from_output(weighted), graph, strategy="sampled", fanout=fanout)
        updates = lg.Updates()
        size = 1.0 + fanout
        updates.set_features(np.arange(n), np.full((n, WIDTH), size, np.float32))
        sampled.apply(updates)
        whole = size * (n - 1) if reduce == "sum" else size
        np.testing.assert_allclose(sampled.embeddings([0])[0], whole, rtol=1e-6)
        sampled.close()
