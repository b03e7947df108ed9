"""Temporal models against PyG's TGNMemory, and against float64 loops written edge by edge from the formulas."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, TGNMemory

from livegnn.temporal.models import TGAT, TGN, DySAT, TemporalGAT, TemporalSAGE, VertexMemory
from livegnn.temporal.models.layers import time_encoder
from tests.oracle.temporal_hops import as_input, random_hops, shuffled

VERTICES, WIDTH, EDGE, TIME = 20, 8, 3, 6
NEAR = {"rtol": 2e-5, "atol": 2e-6}  # float32 sums of at most a hundred terms of order one


# ---- memory against PyG ----------------------------------------------------------------------------------------------


class LastMessage(nn.Module):
    """PyG's LastAggregator with torch_scatter; without it, PyG 2.8 hands vertices without messages a stranger's."""

    def forward(self, msg, index, t, dim_size):
        out = msg.new_zeros(dim_size, msg.shape[1])
        for v in range(dim_size):
            own = (index == v).nonzero().view(-1)
            if len(own):
                out[v] = msg[own[t[own].argmax()]]
        return out


def memories(aggregator):
    torch.manual_seed(3)
    theirs = TGNMemory(VERTICES, EDGE, WIDTH, TIME, IdentityMessage(EDGE, WIDTH, TIME), aggregator)
    ours = VertexMemory(WIDTH, EDGE, time_encoder(TIME), TIME, time_origin=0)
    ours.gru.load_state_dict(theirs.gru.state_dict())
    ours.time_encoder.load_state_dict(theirs.time_enc.state_dict())
    ours.reset(VERTICES)
    return ours, theirs


def stream(seed, batches, *, all_first):
    """Batches of events with distinct times, some self-loops; the first touches every vertex if asked to."""
    random = np.random.default_rng(seed)
    now = 0
    for number in range(batches):
        count = int(random.integers(1, 9))
        src, dst = random.integers(0, VERTICES, (2, count))
        if number == 0 and all_first:
            src, dst = random.permutation(VERTICES), random.permutation(VERTICES)
        time = now + 1 + np.cumsum(random.integers(1, 5, len(src)))
        now = int(time[-1])
        x = random.standard_normal((len(src), EDGE)).astype(np.float32)
        yield tuple(torch.from_numpy(column) for column in (src, dst, time, x))


@pytest.mark.parametrize(("aggregator", "all_first"), [(LastMessage, False), (LastAggregator, True)])
@pytest.mark.parametrize("seed", range(4))
def test_memory_is_pygs_in_training_then_in_evaluation(seed, aggregator, all_first):
    ours, theirs = memories(aggregator())
    everyone = torch.arange(VERTICES)
    events = list(stream(seed, 24, all_first=all_first))
    for src, dst, time, x in events[:16]:
        mine, (rows, last) = ours.read(everyone), theirs(everyone)
        torch.testing.assert_close(mine, rows, **NEAR)
        assert torch.equal(ours.last_update(everyone), last)
        ours.observe(src, dst, time, x)
        theirs.update_state(src, dst, time, x)
        theirs.detach()
    ours.eval()
    theirs.eval()
    for src, dst, time, x in events[16:]:
        torch.testing.assert_close(ours.read(everyone), theirs(everyone)[0], **NEAR)
        ours.observe(src, dst, time, x)
        theirs.update_state(src, dst, time, x)


@pytest.mark.parametrize("seed", range(3))
def test_memory_trains_as_pygs_does(seed):
    """Small steps: a step in the encoder's weights is multiplied by times of up to 200, and rounding with it."""
    ours, theirs = memories(LastMessage())
    goal = torch.randn(VERTICES, WIDTH, generator=torch.Generator().manual_seed(seed))
    optimisers = [torch.optim.SGD(module.parameters(), lr=2e-3) for module in (ours, theirs)]
    everyone = torch.arange(VERTICES)
    for src, dst, time, x in stream(seed, 12, all_first=False):
        losses = [((rows - goal) ** 2).sum() / 100 for rows in (ours.read(everyone), theirs(everyone)[0])]
        ours.observe(src, dst, time, x)
        theirs.update_state(src, dst, time, x)
        for loss, optimiser in zip(losses, optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        theirs.detach()
    mine = {name.replace("time_encoder.", "time_enc."): value for name, value in ours.named_parameters()}
    fresh = dict(memories(LastMessage())[0].named_parameters())
    for name, value in theirs.named_parameters():
        torch.testing.assert_close(mine[name], value, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(mine[name].grad, value.grad, rtol=1e-3, atol=1e-5)
        assert not torch.equal(mine[name], fresh[name.replace("time_enc.", "time_encoder.")]), f"{name} did not move"


# ---- layers against loops --------------------------------------------------------------------------------------------


def affine(module, row):
    """W row + b in float64."""
    out = module.weight.detach().double() @ row
    return out if module.bias is None else out + module.bias.detach().double()


def encode(time, dt):
    return torch.cos(affine(time.lin, torch.tensor([float(dt)], dtype=torch.float64)))


def edges_of(hop, v):
    return [int(e) for e in (hop.edge_index[1] == v).nonzero().view(-1)]


def softmax(logits):
    weights = [math.exp(value - max(logits)) for value in logits]
    return [weight / sum(weights) for weight in weights]


def edge_row(model, hop, e):
    x = hop.edge_x[e].double()
    return x if model.time is None else torch.cat([encode(model.time, hop.dt[e]), x])


def transformer(model, layer, hop, h, v):
    """TransformerConv's formula, head by head."""
    heads, width = layer.heads, layer.out_channels
    query = affine(layer.lin_query, h[v]).view(heads, width)
    skip = affine(layer.lin_skip, h[v])
    edges = edges_of(hop, v)
    out = torch.zeros(heads, width, dtype=torch.float64)
    for head in range(heads):
        keys, values = [], []
        for e in edges:
            u, of_edge = hop.edge_index[0, e], affine(layer.lin_edge, edge_row(model, hop, e)).view(heads, width)
            keys.append(affine(layer.lin_key, h[u]).view(heads, width)[head] + of_edge[head])
            values.append(affine(layer.lin_value, h[u]).view(heads, width)[head] + of_edge[head])
        weights = softmax([float(query[head] @ key) / math.sqrt(width) for key in keys]) if edges else []
        for weight, value in zip(weights, values, strict=True):
            out[head] += weight * value
    return out.flatten() + skip


def tgat(model, layer, hop, h, v):
    """Xu et al. 2020, equations 6 to 8."""
    heads, own = layer.heads, h[v]
    query = affine(layer.query, torch.cat([own, encode(model.time, 0)])).view(heads, -1)
    taken = torch.zeros_like(query)
    edges = edges_of(hop, v)
    both = torch.cat([layer.rows.weight, layer.edges.weight], dim=1).detach().double()  # one matrix over [h | enc | x]
    pairs = []
    for e in edges:
        row = torch.cat([h[hop.edge_index[0, e]], edge_row(model, hop, e)])
        pairs.append((both @ row + layer.rows.bias.detach().double()).view(2, heads, -1))
    for head in range(heads):
        logits = [float(query[head] @ pair[0, head]) / math.sqrt(query.shape[1]) for pair in pairs]
        for weight, pair in zip(softmax(logits) if pairs else [], pairs, strict=True):
            taken[head] += weight * pair[1, head]
    first, last = layer.merge[0], layer.merge[2]
    return affine(last, torch.relu(affine(first, torch.cat([taken.flatten(), own]))))


def gat(model, layer, hop, h, v, of_edge):
    """Velickovic et al. 2018, equations 3 to 6, with separate weights for the ends; a residual, no self-loop."""
    heads, width = layer.heads, layer.out_channels
    target = affine(layer.lin_dst, h[v]).view(heads, width)
    out = torch.zeros(heads, width, dtype=torch.float64)
    edges = edges_of(hop, v)
    for head in range(heads):
        logits, rows = [], []
        for e in edges:
            row = affine(layer.lin_src, h[hop.edge_index[0, e]]).view(heads, width)
            logit = row[head] @ layer.att_src[0, head].detach().double()
            logit = logit + target[head] @ layer.att_dst[0, head].detach().double()
            if layer.lin_edge is not None:
                of = affine(layer.lin_edge, of_edge(e)).view(heads, width)
                logit = logit + of[head] @ layer.att_edge[0, head].detach().double()
            logits.append(float(logit) if logit > 0 else 0.2 * float(logit))
            rows.append(row[head])
        for weight, row in zip(softmax(logits) if edges else [], rows, strict=True):
            out[head] += weight * row
    return out.flatten() + layer.bias.detach().double() + affine(layer.res, h[v])


def sage(model, depth, hop, h, v):
    """Hamilton et al. 2017, Algorithm 1 with the mean, and the mean of the edges' rows."""
    layer, edges = model.layers[depth], edges_of(hop, v)
    out = affine(layer.lin_r, h[v])
    mean = sum((h[hop.edge_index[0, e]] for e in edges), torch.zeros_like(h[v])) / max(len(edges), 1)
    out = out + affine(layer.lin_l, mean)
    if len(model.edges):
        rows = [edge_row(model, hop, e) for e in edges]
        width = model.edges[depth].in_features
        out = out + affine(model.edges[depth], sum(rows, torch.zeros(width, dtype=torch.float64)) / max(len(edges), 1))
    return out


def run(part, first, layer_of, between=lambda h: h, after=lambda h: h):
    """Rows of the last hop, layer by layer, target by target."""
    h = first
    for depth, hop in enumerate(reversed(part.hops)):
        h = between(h) if depth else h
        h = torch.stack([layer_of(depth, hop, h, v) for v in range(hop.target_count)])
        h = after(h)
    return h


def begin(model, x):
    if model.rows.project is None:
        return torch.zeros(len(x), model.rows.width, dtype=torch.float64)
    return torch.stack([affine(model.rows.project, row.double()) for row in x])


def loop(model, parts):
    """What model.embed computes, in float64."""
    part = parts[0]
    if isinstance(model, TGN):
        first = model.memory.read(part.rows).detach().double()
        if model.features is not None:
            first = first + torch.stack([affine(model.features, row.double()) for row in part.x])
        return run(part, first, lambda k, hop, h, v: transformer(model, model.layers[k], hop, h, v), torch.relu)
    if isinstance(model, TGAT):
        return run(part, begin(model, part.x), lambda k, hop, h, v: tgat(model, model.layers[k], hop, h, v))
    if isinstance(model, TemporalSAGE):
        return run(part, begin(model, part.x), lambda k, hop, h, v: sage(model, k, hop, h, v), torch.relu)
    if isinstance(model, TemporalGAT):
        return run(
            part,
            begin(model, part.x),
            lambda k, hop, h, v: gat(model, model.layers[k], hop, h, v, lambda e: edge_row(model, hop, e)),
            nn.functional.elu,
        )
    snapshots = [
        run(
            part,
            begin(model, part.x),
            lambda k, hop, h, v: gat(model, model.layers[k], hop, h, v, lambda e: hop.edge_x[e].double()),
            after=nn.functional.elu,
        )
        for part in parts
    ]
    return torch.stack([across(model.across, [rows[v] for rows in snapshots]) for v in range(len(snapshots[0]))])


def across(layer, rows):
    """Sankar et al. 2020, equation 2, at the newest snapshot, then the feed-forward part with its residual."""
    z = [row + layer.places[s].detach().double() for s, row in enumerate(rows)]
    heads = layer.heads
    query, keys, values = (
        affine(layer.query, z[0]),
        [affine(layer.key, r) for r in z],
        [affine(layer.value, r) for r in z],
    )
    taken = []
    for head in range(heads):
        part = slice(head * len(query) // heads, (head + 1) * len(query) // heads)
        weights = softmax([float(query[part] @ key[part]) * math.sqrt(heads / len(query)) for key in keys])
        taken.append(sum(weight * value[part] for weight, value in zip(weights, values, strict=True)))
    y = torch.cat(taken) + z[0]
    return y + affine(layer.feed[3], torch.relu(affine(layer.feed[0], y)))


def models(x_width, edge_width):
    """Each model at small widths, in evaluation, with biases and places that are not zero."""
    torch.manual_seed(5)
    common = {"x_width": x_width, "edge_width": edge_width, "embed_width": 8, "hop_count": 2}
    made = [
        TGN(**common, memory_width=6, time_width=5, heads=2),
        TGN(**(common | {"hop_count": 1}), memory_width=6, time_width=5, heads=4),
        TGAT(**common, time_width=5, heads=2),
        DySAT(**common, snapshot_count=3, heads=2),
        TemporalSAGE(**common),
        TemporalSAGE(**common, time_width=5),
        TemporalGAT(**common, heads=2),
        TemporalGAT(**common, time_width=5, heads=2),
    ]
    for model in made:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        if isinstance(model, TGN):
            model.memory.reset(12)
            model.memory.observe(*events_of(edge_width))
        model.eval()
    return made


def events_of(edge_width):
    random = np.random.default_rng(1)
    src, dst = (torch.from_numpy(column) for column in random.integers(0, 12, (2, 15)))
    return src, dst, torch.arange(15) * 3, torch.randn(15, edge_width, generator=torch.Generator().manual_seed(1))


def samples(model, seed, edge_width, x_width, *, deduplicate=False):
    """Inputs of seven roots, two of them alike; targets without edges among them."""
    roots, times = [3, 1, 3, 3, 0, 11, 7], [90, 95, 90, 70, 99, 100, 60]
    options = {"hop_count": model.hop_count, "deduplicate": deduplicate}
    return [
        as_input(random_hops((seed, s), roots, times, **options), x_width, edge_width)
        for s in range(model.snapshot_count)
    ]


WIDTHS = [(4, 3), (0, 3), (4, 0), (0, 0)]


@pytest.mark.parametrize(("x_width", "edge_width"), WIDTHS)
def test_every_model_is_its_formula_edge_by_edge(x_width, edge_width):
    for model in models(x_width, edge_width):
        for seed in range(2):
            parts = samples(model, seed, edge_width, x_width)
            assert any(not edges_of(hop, v) for hop in parts[0].hops for v in range(hop.target_count))
            got = model.embed(parts).detach().double()
            torch.testing.assert_close(got, loop(model, parts), **NEAR, msg=lambda text, m=model: f"{m.config}: {text}")


@pytest.mark.parametrize(("x_width", "edge_width"), WIDTHS)
def test_rows_that_stand_once_or_twice_give_the_same_roots(x_width, edge_width):
    for model in models(x_width, edge_width):
        whole = samples(model, 4, edge_width, x_width)
        short = samples(model, 4, edge_width, x_width, deduplicate=True)
        assert model.hop_count == 1 or len(short[0].rows) < len(whole[0].rows)
        once, twice = model.embed(short), model.embed(whole)
        torch.testing.assert_close(once, twice, **NEAR)
        torch.testing.assert_close(twice[0], twice[2], **NEAR)


def test_the_order_of_a_targets_edges_does_not_matter():
    for model in models(4, 3):
        parts = samples(model, 6, 3, 4)
        moved = [shuffled(part, seed) for seed, part in enumerate(parts)]
        torch.testing.assert_close(model.embed(moved), model.embed(parts), **NEAR)
