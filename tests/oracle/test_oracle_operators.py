"""Operators run by the engine: the ten formulas of NeutronRT's Table II, written straight in NumPy, after every batch.

Each formula is a function of one vertex: its own row h, the rows of its in-edges, their weights, one-hot types and the
in-degrees of their sources. Nothing of livegnn.verify computes the expected numbers.
"""

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.models.truth import EdgeList, true_rows
from livegnn.testing import check_engine, graph_columns, random_batch, random_graph
from livegnn.verify import Operator, layer, prove
from livegnn.verify.examples import TABLE, example, weights
from tests.unit.verify.samples import mean, table_report


def relu(x):
    return np.maximum(x, 0)


def leaky(x):
    return np.where(x > 0, x, 0.2 * x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def monet(p, h, x, *_):
    return relu(sum((np.exp(-0.5 * (p["W"] * (u - p["m"]) ** 2).sum()) for u in x), 0.0) * p["A"][0])


def comm_net(p, h, x, *_):
    return h @ p["A"] + x.sum(0) @ p["B"]


def gcn(p, h, x, weight, types, degrees):
    return relu(sum((u / np.sqrt(max(d, 1) * len(x)) for u, d in zip(x, degrees, strict=True)), np.zeros(3)) @ p["W"])


def graph_sage(p, h, x, *_):
    return relu(x.sum(0) / max(len(x), 1) @ p["W"])


def pin_sage(p, h, x, weight, *_):
    a = (weight[:, None] * relu(x @ p["Q"] + p["q"])).sum(0) / max(len(x), 1)
    return relu(np.concatenate([h, a]) @ p["W"])


def rgcn(p, h, x, weight, types, degrees):
    matrices = [p["A"], p["B"]]
    a = sum((u @ matrices[int(t.argmax())] for u, t in zip(x, types, strict=True)), np.zeros(2)) / max(len(x), 1)
    return relu(h @ p["O"] + a)


def gat(p, h, x, *_):
    a = np.zeros(2)
    if len(x):
        score = np.array([leaky(np.concatenate([h @ p["W"], u @ p["W"]]) @ p["t"])[0] for u in x])
        power = np.exp(score - score.max())
        a = (power / power.sum()) @ (x @ p["W"])
    return np.where(a > 0, a, np.expm1(np.minimum(a, 0)))


def g_gcn(p, h, x, *_):
    return relu(sum((sigmoid(u @ p["A"] + h @ p["B"]) * u for u in x), np.zeros(3)) @ p["W"])


def a_gnn(p, h, x, *_):
    a = np.zeros(3)
    for u in x:
        a = a + p["w"] * (h @ u) / max(np.linalg.norm(h) * np.linalg.norm(u), 1e-9) * u
    return relu(a @ p["W"])


def rgat(p, h, x, weight, types, degrees):
    a, kind = np.zeros(2), types.argmax(1)
    for r, matrix in enumerate([p["A"], p["B"]]):
        mine = x[kind == r]
        if len(mine):
            power = np.exp(leaky(h @ p["D"][:, r] + mine @ p["S"][:, r]))
            a[r] = (power / power.sum()) @ (mine @ matrix)[:, 0]
    return relu(a @ p["M"])


FORMULAS = {
    "MoNet": monet,
    "CommNet": comm_net,
    "GCN": gcn,
    "GraphSAGE": graph_sage,
    "PinSAGE": pin_sage,
    "RGCN": rgcn,
    "GAT": gat,
    "G-GCN": g_gcn,
    "A-GNN": a_gnn,
    "RGAT": rgat,
}


def from_formula(row, mirror):
    """The formula for every vertex, float64."""
    features, src, dst, weight, live = mirror.arrays()
    kinds = np.zeros(len(src), np.int64) if mirror.types == 0 else mirror.columns()[1]
    weight = np.ones(len(src)) if weight is None else weight.astype(np.float64)
    x, types, degrees = features.astype(np.float64), np.eye(2)[kinds], np.bincount(dst, minlength=len(features))
    parameters = weights(row.shapes)
    return np.array(
        [
            FORMULAS[row.name](parameters, x[v], x[src[mine]], weight[mine], types[mine], degrees[src[mine]])
            for v in live
            for mine in [np.flatnonzero(dst == v)]
        ]
    ), live


def table_layer(row, run=None):
    report = table_report(row.name)
    return layer(report.operator, row.run if run is None else run, report=report)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_table_ii_live(row):
    model = lg.Model([table_layer(row)])
    assert model.uses_edges == (row.run == "constrained")
    for seed in range(4):
        state = "compact" if seed % 2 else "fast"
        rng = np.random.default_rng(seed)
        graph, mirror = random_graph(rng, 3, model.uses_weights, **graph_columns(model))
        engine = lg.Engine(model, graph, state=state, threads=1 + seed // 2)
        for batch in range(6):
            engine.apply(random_batch(rng, mirror, 5))
            engine.verify()
            expected, live = from_formula(row, mirror)
            got = engine.embeddings(live)
            size = max(float(np.abs(expected).max(initial=0.0)), 1.0)
            gap = float(np.abs(got - expected).max(initial=0.0))
            # sums are exact on a grid of 2^-34 of the largest message; constants, rows and products are float32
            assert gap <= 1e-5 * size, f"{row.name} seed {seed} batch {batch}: off by {gap} of {size}"


@pytest.mark.parametrize("run", ["incremental", "constrained", "full"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_run_that_a_report_allows_under_a_dense_layer(row, run):
    if row.run == "constrained" and run == "incremental":
        with pytest.raises(lg.errors.OperatorUnsound, match="free of the destination is refuted"):
            table_layer(row, run)
        return
    one = table_layer(row, run)
    first = lg.Model([one])
    middle = np.random.default_rng(4).normal(size=(3, first.output_width))
    model = lg.Model([one, lg.layers.Dense(middle, activation="tanh"), one])
    rng = np.random.default_rng(7)
    graph, mirror = random_graph(rng, 3, model.uses_weights, vertices=14, **graph_columns(model))
    engine = lg.Engine(model, graph)
    for batch in range(6):
        engine.apply(random_batch(rng, mirror, 4))
        check_engine(engine, mirror, f"{row.name} {run} batch {batch}")


# ---- operators that are not in the table

W = np.random.default_rng(1).normal(size=(3, 2)) / 2
OTHERS = {
    "mean of extremes": (mean(aggregate="max"), "incremental"),
    "root of squares": (
        mean(aggregate=lambda msg: np.sqrt((msg**2).sum(axis=0)), nbr_ctx=None, msg_cbn=None, msg_cbn_inverse=None),
        "incremental",
    ),
    "signs and shares": (
        Operator(
            3,
            msg_local=lambda h_u, degree_u: np.where(h_u > 0, np.sqrt(1 + np.abs(h_u)), 0.5) / (1 + degree_u),
            nbr_ctx="sum",
            msg_cbn=lambda nct, mlc: mlc / nct,
            msg_cbn_inverse=lambda nct, msg: msg * nct,
            source_nn=lambda h_u: h_u,
        ),
        "incremental",
    ),
    "linear in the weight": (
        Operator(3, msg_local=lambda h_u, weight: np.tanh(h_u) * (2 * weight + 1) - weight / 2),
        "incremental",
    ),
    "edge attributes": (
        Operator(3, msg_local=lambda h_u, edge_attr: sigmoid(edge_attr) * h_u, edge_attr_width=3),
        "incremental",
    ),
    "reversed division": (
        mean(msg_cbn=lambda nct, mlc: nct / (1 + mlc * mlc), msg_cbn_inverse=lambda nct, msg: msg * nct),
        "full",
    ),
    "variance": (
        Operator(
            3,
            source_nn=lambda h_u: h_u @ W,
            aggregate=lambda msg: ((msg - msg.mean(axis=0)) ** 2).mean(axis=0),
        ),
        "full",
    ),
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_operators_of_ones_own(name):
    operator, run = OTHERS[name]
    report = prove(operator, tests=40)
    assert report.strategy() == run
    model = lg.Model([layer(operator, run, report=report)])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        graph, mirror = random_graph(rng, 3, model.uses_weights, **graph_columns(model))
        engine = lg.Engine(model, graph)
        for batch in range(5):
            engine.apply(random_batch(rng, mirror, 5))
            check_engine(engine, mirror, f"{name} seed {seed} batch {batch}")


# ---- the layers of torch_geometric with the same names

N, M = 9, 40


def random_input(seed=0):
    """Features, edges into every vertex, types and attributes."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N, M), np.concatenate([np.arange(N), rng.integers(0, N, M - N)])
    return rng.normal(size=(N, 3)), EdgeList(src, dst, None, rng.random((M, 2)), rng.integers(0, 2, M))


def lowered(operator, run=None, given=None):
    x, edges = random_input() if given is None else given
    return true_rows(lg.Model([layer(operator, run, tests=20)]).output, x, edges)


def of_pyg(module, *more, given=None):
    x, edges = random_input() if given is None else given
    index = torch.from_numpy(np.stack([edges.src, edges.dst]))
    with torch.no_grad():
        return module.double()(torch.from_numpy(x), index, *more)


def same(ours, theirs):
    return np.allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)


def array(tensor):
    return tensor.detach().numpy().astype(np.float64)


def test_comm_net_is_graph_conv():
    conv = pyg.GraphConv(3, 2, aggr="add", bias=False)
    values = {"A": array(conv.lin_root.weight).T, "B": array(conv.lin_rel.weight).T}
    assert same(lowered(example("CommNet").operator(values)), of_pyg(conv))


def test_graph_sage_is_sage_conv_without_root():
    conv = pyg.SAGEConv(3, 2, root_weight=False, bias=False)
    assert same(lowered(example("GraphSAGE").operator({"W": array(conv.lin_l.weight).T})), of_pyg(conv).relu())


def test_gcn_is_gcn_conv_without_loops_where_every_vertex_has_an_in_edge():
    conv = pyg.GCNConv(3, 2, add_self_loops=False, bias=False)
    operator = example("GCN").operator({"W": array(conv.lin.weight).T})
    assert same(lowered(operator), of_pyg(conv).relu())
    x, edges = random_input()
    alone = x, EdgeList(edges.src, np.maximum(edges.dst, 1))  # vertex 0 has no in-edge and sends
    assert 0 in alone[1].src
    assert not same(lowered(operator, given=alone), of_pyg(conv, given=alone).relu())


def test_gcn_is_gcn_conv_everywhere_with_0_for_the_root_of_a_degree_of_0():
    conv = pyg.GCNConv(3, 2, add_self_loops=False, bias=False)
    weight = array(conv.lin.weight).T
    operator = Operator(
        3,
        msg_local=lambda degree_u: np.where(degree_u > 0, 1 / np.sqrt(np.maximum(degree_u, 1)), 0),
        nbr_ctx="count",
        msg_cbn=lambda nct, mlc: mlc / np.sqrt(nct),
        msg_cbn_inverse=lambda nct, msg: msg * np.sqrt(nct),
        source_nn=lambda h_u: h_u @ weight,
    )
    x, edges = random_input()
    alone = x, EdgeList(edges.src, np.maximum(edges.dst, 1))
    assert same(lowered(operator, given=alone), of_pyg(conv, given=alone))


def test_rgcn_divides_by_all_in_edges_where_rgcn_conv_divides_by_those_of_a_type():
    conv = pyg.RGCNConv(3, 2, 2, aggr="mean", bias=False)
    values = {"O": array(conv.root), "A": array(conv.weight[0]), "B": array(conv.weight[1])}
    operator = example("RGCN").operator(values)
    x, edges = random_input()
    one_type = x, EdgeList(edges.src, edges.dst, None, None, edges.dst % 2)
    for given, equal in ((one_type, True), ((x, edges), False)):
        theirs = of_pyg(conv, torch.from_numpy(given[1].types), given=given).relu()
        assert same(lowered(operator, given=given), theirs) == equal


def test_gat_is_gat_conv():
    conv = pyg.GATConv(3, 2, add_self_loops=False, bias=False)
    scores = np.concatenate([array(conv.att_dst)[0, 0], array(conv.att_src)[0, 0]])[:, None]
    operator = example("GAT").operator({"W": array(conv.lin.weight).T, "t": scores})
    assert same(lowered(operator, "constrained"), torch.nn.functional.elu(of_pyg(conv)))


def test_g_gcn_is_res_gated_graph_conv():
    conv = pyg.ResGatedGraphConv(3, 3, root_weight=False, bias=False)
    with torch.no_grad():
        conv.lin_value.weight.copy_(torch.eye(3))
        for lin in (conv.lin_key, conv.lin_query, conv.lin_value):
            if lin.bias is not None:
                lin.bias.zero_()
    values = {"A": array(conv.lin_query.weight).T, "B": array(conv.lin_key.weight).T, "W": W}
    theirs = (of_pyg(conv) @ torch.from_numpy(W)).relu()
    assert same(lowered(example("G-GCN").operator(values), "constrained"), theirs)


def cosine(h_u, h_v):
    lengths = np.linalg.norm(h_v, axis=1, keepdims=True) * np.linalg.norm(h_u, axis=1, keepdims=True)
    return (h_u * h_v).sum(axis=1, keepdims=True) / np.maximum(lengths, 1e-9)


def test_a_gnn_leaves_out_the_softmax_of_agnn_conv():
    conv = pyg.AGNNConv(requires_grad=False, add_self_loops=False)
    plain = Operator(3, msg_local=cosine, source_nn=lambda h_u: h_u)
    softmax = Operator(
        3,
        msg_local=lambda h_u, h_v: np.exp(cosine(h_u, h_v)),
        nbr_ctx="sum",
        msg_cbn=lambda nct, mlc: mlc / nct,
        msg_cbn_inverse=lambda nct, msg: msg * nct,
        source_nn=lambda h_u: h_u,
    )
    assert same(lowered(softmax, "constrained"), of_pyg(conv))
    assert not same(lowered(plain, "constrained"), of_pyg(conv))


def test_monet_reads_rows_where_gmm_conv_reads_edge_attributes():
    conv = pyg.GMMConv(3, 2, dim=2, kernel_size=1, aggr="add", bias=False)
    torch.nn.init.zeros_(conv.root.weight)
    kernel, mu, sigma = array(conv.g), array(conv.mu), array(conv.sigma)
    operator = Operator(
        3,
        msg_local=lambda edge_attr: np.exp(
            -0.5 * ((edge_attr - mu) ** 2 / (1e-15 + sigma**2)).sum(axis=1, keepdims=True)
        ),
        source_nn=lambda h_u: h_u @ kernel,
        edge_attr_width=2,
    )
    _, edges = random_input()
    assert same(lowered(operator), of_pyg(conv, torch.from_numpy(edges.attributes)))


def test_rgat_is_rgat_conv_with_attention_within_types():
    conv = pyg.RGATConv(
        3, 1, 2, attention_mechanism="within-relation", attention_mode="additive-self-attention", bias=False
    )
    matrices, query, key = array(conv.weight), array(conv.q), array(conv.k)
    values = {
        "D": np.concatenate([matrix @ query for matrix in matrices], axis=1),
        "S": np.concatenate([matrix @ key for matrix in matrices], axis=1),
        "A": matrices[0],
        "B": matrices[1],
        "M": np.ones((2, 1)),
    }
    _, edges = random_input()
    theirs = of_pyg(conv, torch.from_numpy(edges.types)).relu()
    assert same(lowered(example("RGAT").operator(values), "constrained"), theirs)
