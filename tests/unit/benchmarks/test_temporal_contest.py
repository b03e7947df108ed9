"""The contest of temporal models is even: one past and one set of negatives for both sides. Runs are resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import livegnn as lg
from benchmarks.peers.plain_temporal import PastTable, Plain
from benchmarks.report import Report
from benchmarks.temporal import contest, quality
from benchmarks.temporal.ours import Ours
from livegnn.temporal import TemporalSampler

EVENTS = 400


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 20, EVENTS), random.integers(20, 30, EVENTS)
    when = np.sort(random.integers(0, 150, EVENTS))
    x = random.standard_normal((30, contest.SIGNATURE_WIDTH)).astype(np.float32)
    splits = (int(EVENTS * 0.70), int(EVENTS * 0.85), EVENTS)
    return contest.Data("bitcoin_otc", src, dst, when, np.zeros((EVENTS, 1), np.float32), x, splits, src > 17)


@pytest.mark.parametrize("snapshot", [None, 0, 2])
def test_both_sides_see_the_same_past(data, snapshot):
    graph = lg.Graph(np.zeros((30, 0), np.float32), data.src, data.dst, time=data.time, undirected=True)
    vertices, times = np.tile(np.arange(30), 3), np.repeat([0, 70, 151], 30)
    if snapshot is None:
        hop, begin, end = TemporalSampler(graph, [4]).sample(vertices, times)[0], np.zeros_like(times), times
    else:
        hop = TemporalSampler(graph, [4], window=20, snapshots=3).sample_snapshots(vertices, times)[snapshot][0]
        begin, end = times - (snapshot + 1) * 20, times - snapshot * 20
    others, ids, _, there = PastTable(data).recent(vertices, end, begin, 4)
    for row in range(len(vertices)):
        part = slice(hop.ptr[row], hop.ptr[row + 1])
        assert hop.edge_ids[part].tolist() == ids[row][there[row]][::-1].tolist()
        assert hop.src[part].tolist() == others[row][there[row]][::-1].tolist()


@pytest.mark.parametrize("model", ["tgat", "dysat"])
def test_the_plain_peer_is_the_same_function(data, model):
    budget = contest.Budget(epochs=1, width=8, fanout=4)
    data = replace(data, edge_x=np.random.default_rng(1).standard_normal((EVENTS, 1)).astype(np.float32))
    ours = Ours(model, data, budget, 20)
    plain = Plain(model, data, budget, 20, ours.module)
    part, random = slice(300, 360), np.random.default_rng(2)
    batch = contest.Batch(data.src[part], data.dst[part], random.integers(20, 30, 60), data.time[part], np.arange(60))
    for got, expected in zip(ours.logits(batch), plain.logits(batch), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_runs_are_kept_and_resumed(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quality, "load", lambda name, events_max: data)
    path = tmp_path / "quality.csv"
    plan = quality.Plan(graphs=("bitcoin_otc",), seeds=(0,), epochs=2, batch=100, width=8)
    quality.compare(plan, quality.Results(path, fresh=True), Report(), judged=False)
    table = capsys.readouterr().out
    rows = path.read_text().splitlines()
    assert len(rows) == 1 + len(quality.MODELS) * len(quality.SIDES) * plan.epochs
    assert (tmp_path / "quality-bitcoin_otc.png").exists()
    results = quality.Results(path, fresh=False)
    for model in quality.MODELS:
        for side in quality.SIDES:
            curve = results.curve(quality._key(plan, data, model, side, 0))
            assert {int(point["epoch"]) for point in curve} == {0, 1}
    monkeypatch.setattr(quality, "play", None)  # nothing is run again
    quality.compare(plan, quality.Results(path, fresh=False), Report(), judged=False)
    assert capsys.readouterr().out == table
    assert path.read_text().splitlines() == rows


def test_a_seed_fixes_what_is_scored_and_splits_have_negatives_of_their_own(data):
    first, second, _ = data.splits
    drawn = [contest._negatives(data, first, second, second, (0, place)) for place in (-1, -1, -2)]
    assert drawn[0].tolist() == drawn[1].tolist()
    assert drawn[0].tolist() != drawn[2].tolist()
    assert np.isin(drawn[0], data.dst[:second]).all()
