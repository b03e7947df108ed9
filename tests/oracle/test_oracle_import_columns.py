"""Which columns of the edges a forward reads of a Data: the live output is module(data), or an error says why.

Every forward meets every kind of Data, at first and after each of several batches.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import livegnn as lg
from livegnn.errors import LiveGnnError, ModelError, ModelUnsupported
from tests.oracle.pyg_oracle import liven

VERTICES, EDGES = 12, 40
BATCHES = 4


class Over(nn.Module):
    """A layer, an encoder and a forward of the test's own."""

    def __init__(self, how, layer):
        super().__init__()
        self.how, self.layer, self.lin = how, layer, nn.Linear(4, 4)


class OnData(Over):
    def forward(self, data):
        return self.how(self, data)

    def of(self, data):
        return self(data)


class OnWeight(Over):
    def forward(self, x, edge_index, edge_weight=None):
        return self.how(self, x, edge_index, edge_weight)

    def of(self, data):
        return self(data.x, data.edge_index, data.edge_weight)


class OnAttr(Over):
    def forward(self, x, edge_index, edge_attr=None):
        return self.how(self, x, edge_index, edge_attr)

    def of(self, data):
        return self(data.x, data.edge_index, data.edge_attr)


class OnNeededAttr(OnAttr):
    def forward(self, x, edge_index, edge_attr):
        return self.how(self, x, edge_index, edge_attr)


class OnBoth(Over):
    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        return self.how(self, x, edge_index, edge_weight, edge_attr)

    def of(self, data):
        return self(data.x, data.edge_index, data.edge_weight, data.edge_attr)


def third(net, x, edge_index, column):
    return net.layer(net.lin(x), edge_index, column)


def of_weight(net, data):
    return net.layer(data.x, data.edge_index, data.edge_weight)


def of_attr(net, data):
    return net.layer(data.x, data.edge_index, data.edge_attr)


def gine():
    return pyg.GINEConv(nn.Linear(4, 3), edge_dim=1)


FORWARDS = {
    "data.edge_weight": lambda: OnData(of_weight, pyg.GCNConv(4, 3)),
    "data.edge_attr": lambda: OnData(of_attr, pyg.GCNConv(4, 3)),
    "data.edge_attr as rows": lambda: OnData(of_attr, pyg.GATConv(4, 3, edge_dim=2)),
    "data.edge_attr as a column": lambda: OnData(of_attr, pyg.GATv2Conv(4, 3, edge_dim=1)),
    "data without columns": lambda: OnData(lambda net, d: net.layer(d.x, d.edge_index), pyg.GCNConv(4, 3)),
    "edge_weight": lambda: OnWeight(third, pyg.GraphConv(4, 3)),
    "edge_attr": lambda: OnAttr(third, pyg.GCNConv(4, 3)),
    "edge_attr twice": lambda: OnAttr(lambda net, x, e, a: third(net, third(net, x, e, a), e, a), pyg.TAGConv(4, 4)),
    "needed edge_attr": lambda: OnNeededAttr(third, pyg.LEConv(4, 3)),
    "edge_attr in one column": lambda: OnAttr(third, pyg.GATConv(4, 3, edge_dim=1, add_self_loops=False)),
    "edge_attr in rows of one": lambda: OnNeededAttr(lambda net, x, e, a: third(net, x, e, a.view(-1, 1)), gine()),
    "edge_attr squeezed": lambda: OnNeededAttr(lambda net, x, e, a: third(net, x, e, a.view(-1)), pyg.GCNConv(4, 3)),
    "edge_attr encoded": lambda: OnAttr(
        lambda net, x, e, a: third(net, x, e, None if a is None else a.sum(-1).sigmoid()), pyg.GCNConv(4, 3)
    ),
    "edge_attr ignored": lambda: OnAttr(lambda net, x, e, a: net.layer(x, e), pyg.GCNConv(4, 3)),
    "edge_attr as size": lambda: OnAttr(third, pyg.SAGEConv(4, 3)),
    "edge_weight as size": lambda: OnWeight(third, pyg.SAGEConv(4, 3)),
    "data.edge_weight as size": lambda: OnData(of_weight, pyg.GINConv(nn.Linear(4, 3))),
    "edge_weight to attention": lambda: OnWeight(third, pyg.GATConv(4, 3, edge_dim=1, add_self_loops=False)),
    "edge_attr to attention without edge_dim": lambda: OnAttr(third, pyg.GATConv(4, 3)),
    "both": lambda: OnBoth(
        lambda net, x, e, w, a: net.layer(net.lin(x), e, w) if a is None else net.layer(net.lin(x), e, w) * 1.0,
        pyg.GCNConv(4, 3),
    ),
    "GCN": lambda: pyg.GCN(4, 6, 2, 3),
    "GAT": lambda: pyg.GAT(4, 6, 2, 3, v2=True),
    "GAE": lambda: pyg.GAE(OnWeight(third, pyg.GCNConv(4, 3))),
}


def columns(kind, rng, count):
    """The columns of `count` edges in a Data of this kind."""
    weight, number = (rng.uniform(0.1, 2.0, count).astype(np.float32) for _ in range(2))
    rows = rng.standard_normal((count, 2)).astype(np.float32)
    return {
        "nothing": {},
        "edge_weight": {"edge_weight": weight},
        "edge_attr": {"edge_attr": number},
        "edge_attr in a column": {"edge_attr": number[:, None]},
        "edge_attr in rows": {"edge_attr": rows},
        "edge_weight and edge_attr": {"edge_weight": weight, "edge_attr": number},
        "edge_weight and rows": {"edge_weight": weight, "edge_attr": rows},
    }[kind]


KINDS = [
    "nothing",
    "edge_weight",
    "edge_attr",
    "edge_attr in a column",
    "edge_attr in rows",
    "edge_weight and edge_attr",
    "edge_weight and rows",
]


class Mirror:
    """A Data and the graph of it, changed alike."""

    def __init__(self, kind, seed=0):
        self.rng, self.kind = np.random.default_rng([seed, 11]), kind
        self.x = self.rng.standard_normal((VERTICES, 4)).astype(np.float32)
        self.ends = self.rng.integers(0, VERTICES, (2, EDGES))
        self.ends[:, :3] = 1  # self-loops, parallel ones
        self.columns = columns(kind, self.rng, EDGES)
        self.graph = lg.Graph.from_pyg(self.data())

    def data(self):
        return Data(
            x=torch.tensor(self.x),
            edge_index=torch.tensor(self.ends),
            **{name: torch.tensor(each) for name, each in self.columns.items()},
        )

    def batch(self):
        """Edges added, one removed, a vertex's features and an edge's column changed."""
        updates, count = lg.Updates(), 3
        ends = self.rng.integers(0, VERTICES, (2, count))
        new = columns(self.kind, self.rng, count)
        updates.add_edges(*ends, **self.named(new))
        gone = int(self.rng.integers(0, self.ends.shape[1]))
        u, v = self.ends[:, gone]
        gone = max(e for e in range(self.ends.shape[1]) if tuple(self.ends[:, e]) == (u, v))
        self.ends = np.concatenate([np.delete(self.ends, gone, axis=1), ends], axis=1)
        self.columns = {
            name: np.concatenate([np.delete(each, gone, axis=0), new[name]]) for name, each in self.columns.items()
        }
        first = lg.Updates()
        first.remove_edge(int(u), int(v))
        last = self.ends.shape[1] - 1
        u, v = (int(end) for end in self.ends[:, last])
        changed = columns(self.kind, self.rng, 1)
        for name, column in self.named(changed).items():
            if name == "weight":
                updates.set_weight(u, v, float(column[0]))
            else:
                updates.set_edge_attr(u, v, column[0])
        for name, each in changed.items():
            self.columns[name][last] = each[0]
        self.x[3] = self.rng.standard_normal(4)
        updates.set_features(3, self.x[3])
        return first, updates

    def named(self, given):
        """Columns of a Data by the names that updates of its graph give them."""
        number = self.graph.weight_column == "edge_attr"
        names = {"edge_weight": "weight", "edge_attr": "weight" if number else "edge_attr"}
        rows = {names[name]: each for name, each in given.items()}
        if "edge_attr" in rows and rows["edge_attr"].ndim == 1:
            rows["edge_attr"] = rows["edge_attr"][:, None]
        return rows


def of(module, data):
    """The module on the data, in whatever way it is called."""
    with torch.no_grad():
        if isinstance(module, Over):
            return module.of(data).numpy()
        if isinstance(module, pyg.GAE):
            return module(data.x, data.edge_index, data.edge_weight).numpy()
        return module(data.x, data.edge_index, data.edge_weight, data.edge_attr).numpy()


def close(engine, module, mirror, where):
    got, want = engine.embeddings(np.arange(VERTICES)), of(module, mirror.data())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(), err_msg=where)


ASKED = "from_pyg(module, weighted=True) to take it as the weights"
AS_WEIGHT = "build it with that column as weight= to take it, or with from_pyg(module, weighted=False)"
AS_ROWS = "build it from a 1-D edge_attr (data.edge_attr.view(-1)) and no edge_weight"
MISSING = "which the model reads, got a graph without"
LEFT_OUT = "import with from_pyg(module, edge_width=0) to leave it out"
WEIGHT = {"edge_attr": ASKED, "edge_attr in a column": AS_WEIGHT}
ATTR = {"edge_weight": ASKED, "edge_attr in a column": AS_ROWS, "edge_weight and edge_attr": AS_ROWS}
ROWS = {"nothing": MISSING, "edge_weight": MISSING}
#: What PyG runs and we refuse; every other pair is right, or fails in PyG, too.
REFUSED = {
    "data.edge_attr": ATTR,
    "data.edge_attr as rows": ROWS,
    "data.edge_attr as a column": ROWS,
    "edge_weight": WEIGHT,
    "edge_attr": ATTR,
    "edge_attr twice": ATTR,
    "needed edge_attr": {**ATTR, "nothing": "which layer (LEConv) reads, got a graph without"},
    "edge_attr in one column": ROWS,
    "edge_attr squeezed": dict.fromkeys(("edge_attr in a column", "edge_weight and edge_attr"), AS_ROWS),
    "edge_attr encoded": dict.fromkeys(
        ("edge_attr in a column", "edge_attr in rows", "edge_weight and rows"), LEFT_OUT
    ),
    "edge_weight to attention": WEIGHT,
    "both": WEIGHT,
    "GCN": WEIGHT,
    "GAE": WEIGHT,
}


@pytest.mark.parametrize("name", FORWARDS)
def test_every_kind_of_data(name):
    torch.manual_seed(3)
    module = liven(FORWARDS[name]())
    model = lg.from_pyg(module)
    right = 0
    for kind in KINDS:
        mirror, where = Mirror(kind), f"{name} on {kind}"
        try:
            want = of(module, mirror.data())
        except Exception:  # PyG does not run; then neither do we
            want = None
        expected = REFUSED.get(name, {}).get(kind)
        if expected is not None or want is None:
            with pytest.raises(LiveGnnError) as caught:
                lg.Engine(model, mirror.graph)
            assert want is None or expected in str(caught.value), where
            continue
        engine = lg.Engine(model, mirror.graph)
        close(engine, module, mirror, where)
        right += 1
        for _ in range(BATCHES):
            for updates in mirror.batch():
                engine.apply(updates)
            close(engine, module, mirror, where)
        engine.verify()
    assert right > 0


# ---- how to say which


@pytest.mark.parametrize("name", ["edge_weight", "edge_attr", "data.edge_attr", "GCN", "needed edge_attr"])
@pytest.mark.parametrize("kind", ["edge_weight", "edge_attr"])
def test_weighted_says_which(name, kind):
    """weighted=True takes the graph's weights under whatever name; weighted=False leaves them out."""
    module, mirror = liven(FORWARDS[name]()), Mirror(kind)
    taken = lg.from_pyg(module, weighted=True)
    assert (taken.weights, taken.weights_from) == ("required", None)
    engine = lg.Engine(taken, mirror.graph)
    column = next(iter(mirror.columns.values()))
    plain = Data(x=torch.tensor(mirror.x), edge_index=torch.tensor(mirror.ends))
    full = plain.clone()
    full.edge_weight = full.edge_attr = torch.tensor(column)
    np.testing.assert_allclose(engine.embeddings(np.arange(VERTICES)), of(module, full), rtol=1e-4, atol=1e-5)
    if name == "needed edge_attr":
        with pytest.raises(ModelError, match="expected weighted=True, got OnNeededAttr's edge_attr, its weights"):
            lg.from_pyg(module, weighted=False)
        return
    left = lg.Engine(lg.from_pyg(module, weighted=False), mirror.graph)
    assert left.model.weights == "none"
    np.testing.assert_allclose(left.embeddings(np.arange(VERTICES)), of(module, plain), rtol=1e-4, atol=1e-5)


def test_rows_that_no_layer_tells_of():
    """GENConv adds an edge_attr as wide as its rows, though it has no edge_dim; without edge_width it is asked for."""
    module, mirror = liven(OnAttr(third, pyg.GENConv(4, 4))), Mirror("edge_attr in rows")
    module.lin, module.layer = liven(nn.Linear(4, 2)), liven(pyg.GENConv(2, 2))
    with pytest.raises(ModelUnsupported, match=r"reads it in rows of width 2 with edge_width=2\), got one with it"):
        lg.Engine(lg.from_pyg(module), mirror.graph)
    close(lg.Engine(lg.from_pyg(module, edge_width=2), mirror.graph), module, mirror, "edge_width")
    plain = Mirror("nothing")
    close(lg.Engine(lg.from_pyg(module), plain.graph), module, plain, "none")


@pytest.mark.parametrize("name", ["edge_attr as size", "edge_attr encoded", "data.edge_attr"])
def test_an_edge_width_of_0_leaves_attributes_out(name):
    module, mirror = liven(FORWARDS[name]()), Mirror("edge_attr in rows")
    engine = lg.Engine(lg.from_pyg(module, edge_width=0), mirror.graph)
    plain = Data(x=torch.tensor(mirror.x), edge_index=torch.tensor(mirror.ends))
    np.testing.assert_allclose(engine.embeddings(np.arange(VERTICES)), of(module, plain), rtol=1e-4, atol=1e-5)


def test_graphs_by_hand():
    """weight= is edge_weight and edge_attr= is edge_attr, as their names say."""
    mirror = Mirror("edge_weight")
    columns = {"weight": mirror.columns["edge_weight"]}
    graph = lg.Graph(mirror.x, *mirror.ends, **columns)
    for name in ("edge_weight", "data.edge_weight", "GCN"):
        module = liven(FORWARDS[name]())
        close(lg.Engine(lg.from_pyg(module), graph), module, mirror, name)
    for name in ("edge_attr", "data.edge_attr", "needed edge_attr"):
        with pytest.raises(ModelUnsupported, match=r"got one with weights given as weight=; import with from_pyg"):
            lg.Engine(lg.from_pyg(liven(FORWARDS[name]())), graph)
    rows = lg.Graph(mirror.x, *mirror.ends, edge_attr=columns["weight"][:, None])
    with pytest.raises(ModelUnsupported, match="keeps edge_attr as attributes of width 1"):
        lg.Engine(lg.from_pyg(liven(FORWARDS["edge_attr"]())), rows)
    with pytest.raises(ModelUnsupported, match="got one with one column of attributes"):
        lg.Engine(lg.from_pyg(liven(FORWARDS["edge_weight"]())), rows)


def test_weights_from_two_columns():
    def two(net, x, edge_index, edge_weight, edge_attr):
        return net.layer(net.layer(x, edge_index, edge_weight), edge_index, edge_attr)

    def either(net, x, edge_index, edge_weight, edge_attr):
        return net.layer(x, edge_index, edge_attr if edge_weight is None else edge_weight)

    for how in (two, either):
        module = liven(OnBoth(how, pyg.GCNConv(4, 4)))
        with pytest.raises(ModelUnsupported, match="it takes edge weights from edge_weight and from edge_attr"):
            lg.from_pyg(module)
    assert lg.from_pyg(module, weighted=True).weights == "required"
    with pytest.raises(ModelUnsupported, match="its edge_weight is the forward's edge_attr, which has 2 columns"):
        lg.from_pyg(liven(OnNeededAttr(third, pyg.GCNConv(4, 4))), edge_width=2)


def test_other_third_arguments():
    """None is what PyG takes it for, and a size is that of the graph."""
    mirror = Mirror("edge_weight")
    for conv in (pyg.SAGEConv(4, 3), pyg.GINConv(nn.Linear(4, 3)), pyg.MFConv(4, 3), pyg.GCNConv(4, 3)):
        module = liven(OnData(lambda net, d: net.layer(d.x, d.edge_index, None), conv))
        close(lg.Engine(lg.from_pyg(module), mirror.graph), module, mirror, str(conv))
    sized = OnData(lambda net, d: net.layer(d.x, d.edge_index, (d.x.size(0), d.x.size(0))), pyg.SAGEConv(4, 3))
    close(lg.Engine(lg.from_pyg(liven(sized)), mirror.graph), sized, mirror, "size")
    with pytest.raises(ModelUnsupported, match="it is given size, as for two kinds of vertices"):
        lg.from_pyg(OnData(lambda net, d: net.layer(d.x, d.edge_index, d.x.size(0)), pyg.SAGEConv(4, 3)))


def test_what_is_saved_knows_its_columns(tmp_path):
    for name in ("edge_attr", "edge_attr as size"):
        mirror = Mirror("edge_attr" if name == "edge_attr" else "nothing")
        engine = lg.Engine(lg.from_pyg(liven(FORWARDS[name]())), mirror.graph)
        engine.save(tmp_path / "engine.lg")
        again = lg.Engine.load(tmp_path / "engine.lg")
        assert again.graph.weight_column == mirror.graph.weight_column
        assert again.model.weights_from == engine.model.weights_from
        assert dict(again.model.refused) == dict(engine.model.refused)
        assert again.state_digest() == engine.state_digest()


# ---- what does nothing to float32 rows


CASTS = {
    "float": lambda x: x.float(),
    "to float32": lambda x: x.to(torch.float32),
    "to by name": lambda x: x.to(dtype=torch.float),
    "type": lambda x: x.type(torch.float32),
    "type by name": lambda x: x.type("torch.FloatTensor"),
    "type_as": lambda x: x.type_as(x),
    "to another's": lambda x: x.to(x.dtype),
    "double and back": lambda x: x.double().float(),
    "to the device": lambda x: x.to(x.device),
    "contiguous": lambda x: x.contiguous().clone(),
}


@pytest.mark.parametrize("name", CASTS)
def test_casts(name):
    cast = CASTS[name]

    def how(net, data):
        h = cast(net.lin(cast(data.x))).relu()
        return cast(net.layer(h, data.edge_index.long(), cast(data.edge_weight)))

    module, mirror = liven(OnData(how, pyg.GCNConv(4, 3))), Mirror("edge_weight")
    engine = lg.Engine(lg.from_pyg(module, weighted=True), mirror.graph)
    for _ in range(BATCHES):
        close(engine, module, mirror, name)
        for updates in mirror.batch():
            engine.apply(updates)
    close(engine, module, mirror, name)


def test_casts_that_change_rows():
    for cast in (lambda x: x.to(torch.float16), lambda x: x.type("torch.HalfTensor"), lambda x: x.long()):
        with pytest.raises(ModelUnsupported, match="would round the rows; stay in float32"):
            lg.from_pyg(OnData(lambda net, d, cast=cast: net.layer(cast(d.x), d.edge_index), pyg.SAGEConv(4, 3)))


def test_casts_to_the_type_of_whole_numbers():
    """A tensor to be like says the type as well as its name does: x.type_as(a counter) cuts rows off."""
    for like in (lambda x, edges: x.type_as(torch.ones(1, dtype=torch.int64)), lambda x, edges: x.to(edges)):
        module = OnData(lambda net, d, cast=like: net.layer(cast(d.x, d.edge_index), d.edge_index), pyg.SAGEConv(4, 3))
        with pytest.raises(ModelUnsupported, match=r"torch\.int64 would round the rows; stay in float32"):
            lg.from_pyg(module, check=False)


# ---- autoencoders


class Variational(nn.Module):
    """PyG's example of a VGAE: two heads over a shared layer."""

    def __init__(self):
        super().__init__()
        self.first, self.mu, self.logstd = pyg.GCNConv(4, 6), pyg.GCNConv(6, 3), pyg.GCNConv(6, 3)

    def forward(self, x, edge_index, edge_weight=None):
        x = self.first(x, edge_index, edge_weight).relu()
        return self.mu(x, edge_index, edge_weight), self.logstd(x, edge_index, edge_weight)


@pytest.mark.parametrize("kind", ["nothing", "edge_weight"])
def test_vgae(kind):
    """In eval mode encode() gives the means, and a forward with edge_weight is given it."""
    module, mirror = liven(pyg.VGAE(Variational())), Mirror(kind)
    engine = lg.Engine(lg.from_pyg(module), mirror.graph)
    for number in range(BATCHES):
        with torch.no_grad():
            data = mirror.data()
            want = module.encode(data.x, data.edge_index, data.edge_weight).numpy()
        np.testing.assert_allclose(engine.embeddings(np.arange(VERTICES)), want, rtol=1e-4, atol=1e-5, err_msg=number)
        for updates in mirror.batch():
            engine.apply(updates)
