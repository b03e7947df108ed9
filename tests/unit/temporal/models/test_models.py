"""What every temporal model keeps to: shapes, configs, seeds, training, refusals."""

import copy
import io
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from livegnn.errors import DtypeInvalid, ModelMismatch, ValueInvalid, WidthMismatch
from livegnn.temporal.models import HopInput, StaticLinks, TemporalInput, build, names
from tests.oracle.temporal_hops import as_input, random_hops

SMALL = {"embed_width": 8, "edge_width": 3, "x_width": 4}
ROOTS, TIMES = [3, 1, 3, 0, 11], [90, 95, 70, 99, 100]


def model_of(name, **options):
    torch.manual_seed(0)
    model = build({"name": name, **SMALL, **options})
    if model.memory is not None:
        model.memory.reset(12)
        model.memory.observe(torch.arange(6), torch.arange(6, 12), torch.arange(6), torch.ones(6, model.edge_width))
    return model


def inputs_of(model, seed=0):
    return [
        as_input(random_hops((seed, s), ROOTS, TIMES, hop_count=model.hop_count), model.x_width, model.edge_width)
        for s in range(model.snapshot_count)
    ]


def bare_inputs(model, roots):
    """Of roots without any edges."""
    hops = random_hops((0, 0), roots, [9] * len(roots), hop_count=model.hop_count, fanout=0)
    return [as_input(hops, model.x_width, model.edge_width)] * model.snapshot_count


every_model = pytest.mark.parametrize("name", names())


@every_model
def test_embeddings_of_roots_and_logits_of_links(name):
    model = model_of(name)
    h = model.embed(inputs_of(model))
    assert h.shape == (5, model.out_width)
    assert h.dtype == torch.float32
    assert model.score(h[:2], h[2:4]).shape == (2,)
    assert not torch.equal(model.score(h[:1], h[1:2]), model.score(h[1:2], h[:1]))  # a link has a direction


@every_model
@pytest.mark.parametrize("options", [{}, {"hop_count": 1}, {"hop_count": 3}, {"x_width": 0, "edge_width": 0}])
def test_a_config_builds_the_same_model_again(name, options):
    model = model_of(name, **options)
    again = build(model.config)
    assert again.config == model.config
    again.load_state_dict(model.state_dict())
    if model.memory is not None:
        again.memory.load_state(model.memory.state())
    model.eval()
    again.eval()
    assert torch.equal(model.embed(inputs_of(model)), again.embed(inputs_of(again)))


@every_model
def test_one_seed_gives_one_result(name):
    def train():
        model = model_of(name, dropout=0.3)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(3):
            h = model.embed(inputs_of(model, step))
            loss = torch.nn.functional.softplus(-model.score(h[:2], h[2:4])).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return model

    one, other = train(), train()
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@every_model
def test_every_weight_is_trained(name):
    model = model_of(name, dropout=0.0, **({"time_width": 4} if name in ("sage", "gat") else {}))
    h = model.embed(inputs_of(model))
    model.score(h[:3], h[2:]).square().sum().backward()
    idle = [key for key, weight in model.named_parameters() if weight.grad is None]
    assert not idle


@every_model
def test_no_roots_give_no_rows(name):
    model = model_of(name)
    assert model.embed(bare_inputs(model, [])).shape == (0, model.out_width)


@every_model
def test_roots_without_a_past_have_embeddings(name):
    model = model_of(name)
    h = model.embed(bare_inputs(model, [7, 8]))
    assert h.shape == (2, model.out_width)
    assert torch.isfinite(h).all()


@every_model
def test_models_are_copied_and_saved_whole(name):
    model = model_of(name).eval()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    stored = torch.load(file, weights_only=False)
    expected = model.embed(inputs_of(model))
    assert torch.equal(stored.embed(inputs_of(model)), expected)
    assert torch.equal(copy.deepcopy(model).embed(inputs_of(model)), expected)


@every_model
def test_inputs_that_do_not_fit_are_refused(name):
    model = model_of(name)
    good = inputs_of(model)
    with pytest.raises(ModelMismatch, match=f"expected {model.snapshot_count} inputs"):
        model.embed([*good, good[0]])
    first = good[0]
    with pytest.raises(ModelMismatch, match=f"expected {model.hop_count} hops"):
        model.embed([TemporalInput((*first.hops, first.hops[0]), first.rows, first.row_times, first.x), *good[1:]])
    wide = TemporalInput(first.hops, first.rows, first.row_times, torch.zeros(len(first.rows), 5))
    with pytest.raises(WidthMismatch, match="x_width=5"):
        model.embed([wide, *good[1:]])
    double = TemporalInput(first.hops, first.rows, first.row_times, first.x.double())
    with pytest.raises(DtypeInvalid, match="x of float32"):
        model.embed([double, *good[1:]])
    other = build(model.config | {"edge_width": 2})
    if other.memory is not None:
        other.memory.reset(12)
    with pytest.raises(WidthMismatch, match="edge_width=3"):
        other.embed(good)


def test_a_module_scores_links_by_dot_products_or_by_its_head():
    """A head may give a column of logits."""
    h = torch.arange(12.0).view(2, 2, 3)
    widths = {"hop_count": 1, "x_width": 4, "out_width": 3}
    plain = StaticLinks(torch.nn.Identity(), **widths)
    assert plain.score(*h).tolist() == [6 * 0 + 7 * 1 + 8 * 2, 9 * 3 + 10 * 4 + 11 * 5]
    headed = StaticLinks(torch.nn.Identity(), head=torch.nn.Bilinear(3, 3, 1), **widths)
    assert headed.score(*h).shape == (2,)
    assert any(name.endswith("bias") for name, _ in headed.named_parameters())  # the head is trained, too


def on(part, device):
    def moved(hop):
        columns = (getattr(hop, name) for name in HopInput.__slots__)
        return HopInput(*(None if column is None else column.to(device) for column in columns))

    hops = [moved(hop) for hop in part.hops]
    return TemporalInput(tuple(hops), part.rows.to(device), part.row_times.to(device), part.x.to(device))


@every_model
def test_a_model_keeps_to_the_device_of_its_inputs(name):
    """On meta, whose tensors have no numbers and mix with those of no other device."""
    model = build({"name": name, **SMALL}).to("meta")
    inputs = [on(part, "meta") for part in inputs_of(model)]
    if model.memory is not None:  # what it holds is given: looking it up wants numbers
        memory = torch.zeros(len(inputs[0].rows), model.memory.width, device="meta")
        inputs[0] = replace(inputs[0], memory=memory)
    h = model.embed(inputs)
    logits = model.score(h[:2], h[2:4])
    logits.sum().backward()
    assert (h.device.type, h.shape, logits.device.type) == ("meta", (5, model.out_width), "meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@every_model
def test_models_run_unchanged_on_a_gpu(name):
    model = model_of(name).eval()
    inputs = inputs_of(model)
    expected = model.embed(inputs)
    got = model.to("cuda").embed([on(part, "cuda") for part in inputs])
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    if model.memory is not None:
        model.memory.grow(20)
        model.memory.observe(*(torch.tensor([value], device="cuda") for value in (1, 19, 7)), got.new_ones(1, 3))


@pytest.mark.parametrize("package", ["torch", "torch_geometric"])
def test_a_missing_package_is_named_with_its_extra(package):
    program = f"import sys; sys.modules[{package!r}] = None; import livegnn.temporal.models"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"expected the package {package}, got none installed; run: pip install 'livegnn[train]'" in done.stderr


def test_snapshots_of_other_roots_are_refused():
    model = model_of("dysat")
    good = inputs_of(model)
    fewer = as_input(random_hops((0, 0), ROOTS[:3], TIMES[:3]), model.x_width, model.edge_width)
    with pytest.raises(ModelMismatch, match="same roots"):
        model.embed([fewer, *good[1:]])


BAD_CONFIGS = [
    (ModelMismatch, "got 'tgnn'", {"name": "tgnn"}),
    (ModelMismatch, "got None", {}),
    (ModelMismatch, "got width", {"name": "tgn", "width": 3}),
    (ValueInvalid, "multiple of heads, got 9 and 2; take embed_width=10", {"name": "tgat", "embed_width": 9}),
    (ValueInvalid, "hop_count of 1 or more", {"name": "sage", "hop_count": 0}),
    (ValueInvalid, "memory_width of 1 or more", {"name": "tgn", "memory_width": 0}),
    (ValueInvalid, "x_width of 0 or more", {"name": "gat", "x_width": -1}),
    (ValueInvalid, "time_width of 0 or more", {"name": "gat", "time_width": -1}),
    (ValueInvalid, "snapshot_count of 1 or more", {"name": "dysat", "snapshot_count": 0}),
    (ValueInvalid, r"dropout in \[0, 1\)", {"name": "gat", "dropout": 1.0}),
]


@pytest.mark.parametrize(("error", "text", "config"), BAD_CONFIGS)
def test_configs_that_make_no_model_are_refused(error, text, config):
    with pytest.raises(error, match=text):
        build(config)
