"""Models of every kind behind a SampleServer, each against the model run by hand on the sample."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE, SAGEConv, to_hetero

import livegnn as lg
from livegnn.errors import ModelError, ModelMismatch, ModelUnsupported, UsageError, ValueInvalid
from livegnn.sampling import Sample
from livegnn.sampling.presample.source import Response
from livegnn.sampling.presample.tree_sage import TreeSAGE
from tests.unit.sampling.serving import VERTICES, WIDTH, one_edge, small_sampler

SEEDS = np.arange(VERTICES)
# sums of up to 4 float32 products of up to 16 terms, in two orders
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture
def sampler():
    return small_sampler()


@pytest.fixture
def sage():
    torch.manual_seed(1)
    return GraphSAGE(WIDTH, 16, num_layers=2, out_channels=3).eval()


def by_hand(model, sample, merge=False):
    data = sample.to_pyg(merge=merge)
    with torch.no_grad():
        return model(data.x, data.edge_index)[: len(sample)].numpy()


def test_a_pyg_module_on_the_sampled_graph(sampler, sage):
    sage.train()
    with lg.SampleServer(sampler, sage, inputs="pyg") as server:
        assert not sage.training
        np.testing.assert_allclose(server.predict(SEEDS).values, by_hand(sage, sampler.sample(SEEDS)), **CLOSE)
        server.apply(one_edge())
        np.testing.assert_allclose(server.predict([5]).values, by_hand(sage, sampler.sample([5])), **CLOSE)


def test_a_merged_graph_is_one_requests_own(sampler, sage):
    """Merging makes rows depend on the other seeds: each request is run as if it had come alone."""
    with lg.SampleServer(sampler, sage, inputs="pyg", merge=True) as server:
        for seeds in (SEEDS[:9], SEEDS[30:31]):
            expected = by_hand(sage, sampler.sample(seeds), merge=True)
            np.testing.assert_allclose(server.predict(seeds).values, expected, **CLOSE)


def test_a_function_of_the_data(sampler, sage):
    def forward(data):
        assert not torch.is_grad_enabled()
        return sage(data.x, data.edge_index) + data.e_id.numel() * 0

    with lg.SampleServer(sampler, forward, inputs="data", head=lambda out: out.softmax(dim=1)) as server:
        expected = torch.from_numpy(by_hand(sage, sampler.sample(SEEDS))).softmax(dim=1).numpy()
        np.testing.assert_allclose(server.predict(SEEDS).values, expected, **CLOSE)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_tree_sage_is_pygs_stack_on_the_tree(layers):
    query = lg.query()
    for _ in range(layers):
        query = query.out().sample(3)
    sampler = small_sampler(query)
    torch.manual_seed(layers)
    pyg = GraphSAGE(WIDTH, 8, layers, 2).eval()
    with lg.SampleServer(sampler, TreeSAGE.from_pyg(pyg)) as server:
        np.testing.assert_allclose(server.predict(SEEDS).values, by_hand(pyg, sampler.sample(SEEDS)), **CLOSE)


def test_tree_sage_in_torchscript(sampler, sage, tmp_path):
    tree = TreeSAGE.from_pyg(sage)
    scripted = torch.jit.script(tree)
    scripted.save(str(tmp_path / "tree.pt"))
    expected = by_hand(sage, sampler.sample(SEEDS))
    for model in (scripted, tmp_path / "tree.pt", str(tmp_path / "tree.pt")):
        with lg.SampleServer(sampler, model) as server:
            np.testing.assert_allclose(server.predict(SEEDS).values, expected, **CLOSE)


def test_tree_sage_learns(sampler):
    torch.manual_seed(0)
    model = TreeSAGE(WIDTH, 8, 1, 2)
    sample = sampler.sample(SEEDS)
    features = [torch.from_numpy(sample.features(k)) for k in range(3)]
    masks = [torch.from_numpy(sample.mask(k)) for k in range(3)]
    wanted = features[0][:, :1]
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(features, masks) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize(
    "module",
    [
        GraphSAGE(4, 8, 2, 2, aggr="max"),
        GraphSAGE(4, 8, 2, 2, jk="cat"),
        GraphSAGE(4, 8, 2, 2, norm="batch_norm"),
        GraphSAGE(4, 8, 2, 2, act="tanh"),
        GraphSAGE(4, 8, 2, 2, project=True),
        GraphSAGE(4, 8, 2, 2, flow="target_to_source"),
        SAGEConv(4, 2),
    ],
    ids=["max", "jumping", "norm", "tanh", "project", "flow", "no stack"],
)
def test_tree_sage_refuses_other_stacks(module):
    with pytest.raises(ModelUnsupported, match=r'inputs="pyg"'):
        TreeSAGE.from_pyg(module)


@pytest.mark.parametrize("widths", [(0, 8, 2, 2), (4, 8, 2, 0), (4, 8, 2.0, 1)])
def test_tree_sage_refuses_widths(widths):
    with pytest.raises(ValueInvalid, match="of at least 1"):
        TreeSAGE(*widths)


def test_models_that_do_not_fit(sampler, sage):
    with pytest.raises(ModelError, match="shapes cannot be multiplied"):
        lg.SampleServer(sampler, TreeSAGE(WIDTH + 1, 8, 2, 2))
    with pytest.raises(ModelError, match="IndexError"):
        lg.SampleServer(sampler, TreeSAGE(WIDTH, 8, 2, 3))  # three layers, two hops
    with pytest.raises(ModelMismatch, match="row for each seed"):
        lg.SampleServer(sampler, TreeSAGE(WIDTH, 8, 2, 2), head=lambda out: out.sum())


def test_a_model_of_one_number_gives_one_column(sampler):
    with lg.SampleServer(sampler, lambda features, masks: features[0][:, 0] > 0) as server:
        found = server.predict([1, 2]).values
        assert found.shape == (2, 1)
        np.testing.assert_array_equal(found, sampler.graph.features([1, 2])[:, :1] > 0)


def test_models_of_typed_graphs_get_dictionaries():
    """Users and items: the sample is made here by hand, in the form that a typed graph's sampler gives."""
    click, bought = lg.sampling.EdgeType(0, "click", "user", "item"), lg.sampling.EdgeType(1, "buy", "user", "item")
    schema = lg.sampling.Schema(("user", "item"), {"click": click, "buy": bought}, feature_width={"user": 2, "item": 3})
    query = lg.query("user").out("click").sample(2).in_("buy").sample(1)
    plan = lg.sampling.Plan.of([query], schema)
    rng = np.random.default_rng(0)
    vertices = [np.array([[4, 6], [6, -1]]), np.array([[[0], [1]], [[1], [-1]]])]
    features = [rng.normal(size=(*shape, width)).astype(np.float32) for shape, width in (((2,), 2), ((2, 2), 3))]
    features.append(rng.normal(size=(2, 2, 1, 2)).astype(np.float32))
    edge_ids = [np.arange(4).reshape(2, 2), np.arange(4).reshape(2, 2, 1)]
    sample = Sample(plan.queries[0], plan, np.array([0, 1]), 5, vertices, edge_ids, features)

    class Source(lg.sampling.SampleSource):
        plan, version = sample.plan, 5

        def wait_for(self, version, timeout):
            raise NotImplementedError

        def answer(self, slots, options):
            assert list(slots) == [0, 1]
            return Response(5, vertices, edge_ids, features)

    source = Source()
    data = sample.to_pyg()
    torch.manual_seed(0)
    model = to_hetero(SmallNet(), data.metadata())
    with torch.no_grad():
        expected = model(data.x_dict, data.edge_index_dict)["user"][:2].numpy()
    with lg.SampleServer(source, model, inputs="pyg") as server:
        np.testing.assert_allclose(server.predict([0, 1]).values, expected, **CLOSE)


class SmallNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 2)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


# ---- ONNX


def tree_graph(names=("x0", "x1", "mask1")):
    """y = x0 w + sum over the first hop of x1 where mask1, as an ONNX model."""
    onnx = pytest.importorskip("onnx", reason="the extra test installs onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    weight = np.arange(WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
    shapes = {"x0": ["B", WIDTH], "x1": ["B", 4, WIDTH], "mask1": ["B", 4]}
    inputs = [
        helper.make_tensor_value_info(
            name, kinds.BOOL if "mask" in name else kinds.FLOAT, shapes[name if name in shapes else "x0"]
        )
        for name in names
    ]
    steps = [
        helper.make_node("MatMul", [names[0], "w"], ["own"]),
        helper.make_node("Cast", [names[2]], ["there"], to=kinds.FLOAT),
        helper.make_node("Unsqueeze", ["there", "last"], ["column"]),
        helper.make_node("Mul", [names[1], "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "one"], ["sums"], keepdims=0),
        helper.make_node("Add", ["own", "sums"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(weight, "w"),
        onnx.numpy_helper.from_array(np.array([-1], np.int64), "last"),
        onnx.numpy_helper.from_array(np.array([1], np.int64), "one"),
    ]
    output = helper.make_tensor_value_info("y", kinds.FLOAT, ["B", WIDTH])
    graph = helper.make_graph(steps, "tree", inputs, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString(), weight


def test_onnx_files_and_sessions(sampler, tmp_path):
    model, weight = tree_graph()
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx")
    path = tmp_path / "tree.onnx"
    path.write_bytes(model)
    sample = sampler.sample(SEEDS)
    kept = np.where(sample.mask(1)[..., None], sample.features(1), 0).sum(axis=1)
    expected = sample.features(0) @ weight + kept
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for one in (path, session):
        with lg.SampleServer(sampler, one) as server:
            np.testing.assert_allclose(server.predict(SEEDS).values, expected, **CLOSE)
    with pytest.raises(UsageError, match='inputs="tree" or "pyg"'):
        lg.SampleServer(sampler, session, inputs="data")


def test_onnx_inputs_go_by_name(sampler, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx")
    model, _ = tree_graph(names=("features", "x1", "mask1"))
    path = tmp_path / "tree.onnx"
    path.write_bytes(model)
    with pytest.raises(ModelMismatch, match=r"ONNX inputs from x0, x1, x2, mask0, mask1, mask2, got features"):
        lg.SampleServer(sampler, path)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model.pickle"])
def test_files_that_hold_no_model(sampler, tmp_path, name):
    if name.endswith("onnx"):
        pytest.importorskip("onnxruntime", reason="the extra onnx")
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ModelUnsupported, match=name):
        lg.SampleServer(sampler, path)
