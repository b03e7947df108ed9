"""Temporal engines and samplers with models in a deployment: durable, bit for bit; training ends in entries."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.deployment import audit
from livegnn.errors import ModelMismatch, StoredStateInvalid, UsageError, ValueInvalid
from livegnn.graph.consumers import Switch
from livegnn.log import codec
from livegnn.temporal.models import TGN
from livegnn.temporal.switches import switch_of, switched
from tests.unit.deployment.timed import SAMPLER, TEMPORAL, WIDTHS, event, graph, placed, put, put_sage, tgn, timed
from tests.unit.deployment.world import abandon, deployment, prepared

PATIENCE_S = 120


@pytest.fixture
def place(tmp_path):
    return placed(tmp_path)


def streamed(live, count, begin=100):
    for step in range(count):
        live.apply(event(step % 30, (step * 7 + 1) % 30, begin + step))


def until(done):
    for _ in range(PATIENCE_S * 20):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_a_restart_has_the_same_weights_and_memory(place):
    first = timed(place).start()
    streamed(first, 5)
    first.snapshot()
    streamed(first, 5, 200)
    assert first.swap("links", "tgn/2").version == 11
    streamed(first, 5, 300)
    digest, models = first.temporal["links"].state_digest(), first.models
    before = first.temporal["links"].predict([1, 2], [3, 4], 400)
    abandon(first)
    assert models == {"scores": "fraud/1", "links": "tgn/2"}  # the newest one at the first start, and again
    with timed(place) as second:  # a snapshot, and the swap in the log after it
        assert (second.temporal["links"].state_digest(), second.models) == (digest, models)
        np.testing.assert_array_equal(second.temporal["links"].predict([1, 2], [3, 4], 400), before)
    with timed(place) as third:  # the snapshot of close()
        assert third.temporal["links"].state_digest() == digest
    assert {one.fault for one in audit.verify(place / "data")} == {""}
    for version in (3, 12):
        assert audit.restored(place / "data", place / f"then-{version}", version=version) == version
    with timed(place) as live, lg.Deployment(live.config, place / "then-12") as then:
        assert then.models["links"] == "tgn/2"
        streamed(then, 4, 301)
    replayed = graph()
    engine = lg.TemporalEngine(tgn(2), replayed, lg.TemporalSampler(replayed, [10]))
    for step in range(10):
        replayed.apply(event(step % 5, (step % 5 * 7 + 1) % 30, (100 if step < 5 else 200) + step % 5))
    engine.swap(tgn(2))
    for step in range(5):
        replayed.apply(event(step, (step * 7 + 1) % 30, 300 + step))
    assert engine.state_digest() == digest  # as without a deployment


def test_an_engine_that_the_configuration_has_anew_enters_by_an_entry(place):
    with timed(place, temporal=[]) as first:
        streamed(first, 3)
    second = timed(place).start()
    assert second.version == 4
    streamed(second, 3, 200)
    digest = second.temporal["links"].state_digest()
    abandon(second)
    with timed(place) as third:
        assert third.temporal["links"].state_digest() == digest
    assert {one.fault for one in audit.verify(place / "data")} == {""}


def test_a_version_that_the_configuration_names_takes_over(place):
    with timed(place, temporal=[{**TEMPORAL, "model": "tgn/1"}]) as first:
        assert first.models["links"] == "tgn/1"
    with timed(place, temporal=[{**TEMPORAL, "model": "tgn/2"}]) as second:
        assert (second.models["links"], second.version) == ("tgn/2", 1)
        other = {**WIDTHS, "memory_width": 4}
        put(place, "tgn", 3, TGN(**other), "livegnn.temporal.models:TGN", **other)
        with pytest.raises(ModelMismatch):
            second.swap("links", "tgn")
        put(place, "linear", 1, torch.nn.Linear(2, 2), "torch.nn:Linear", in_features=2, out_features=2)
        with pytest.raises(UsageError, match="as a TemporalModel"):
            second.swap("links", "linear")
        assert (second.models["links"], second.version) == ("tgn/2", 1)


def test_other_settings_than_those_of_the_history_are_refused(place):
    with timed(place):
        pass
    with pytest.raises(UsageError, match=r"fanouts = \[10\], as in the history"):
        timed(place, temporal=[{**TEMPORAL, "fanouts": [5]}]).start()
    with timed(place) as again:
        assert again.version == 0


def test_rounds_of_training_are_entries_of_the_log(place):
    trained = [{**TEMPORAL, "train": True, "events_min": 20, "batch_size": 10}]
    first = timed(place, temporal=trained).start()
    digest = first.temporal["links"].state_digest()
    training = first.consumers.training["links"]
    until(lambda: training.is_ready)
    streamed(first, 25)
    until(lambda: training.rounds == 1)
    assert first.models["links"] == "round 1 of links"
    assert first.version == 26
    assert training.fault == ""
    streamed(first, 3, 200)
    moved = first.temporal["links"].state_digest()
    assert moved != digest
    first.consumers.end_training()
    abandon(first)
    with timed(place) as second:
        assert (second.temporal["links"].state_digest(), second.models["links"]) == (moved, "round 1 of links")
    assert {one.fault for one in audit.verify(place / "data")} == {""}


def test_a_swap_is_stored_bit_for_bit():
    tensors = {
        "half": torch.tensor([1.5, float("nan"), -0.0], dtype=torch.bfloat16),
        "long": torch.tensor([[2**62, -3]]),
        "flag": torch.tensor([True, False, True]),
        "none": torch.zeros((0, 4)),
        "one": torch.tensor(0.1, dtype=torch.float64),
    }
    stored = codec.decode("log", 0, codec.encode(switch_of("x", {"a": 1}, tensors, tensors)))
    for found in switched(stored):
        assert found.keys() == tensors.keys()
        for name, value in tensors.items():
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert _bytes(found[name]) == _bytes(value)
    assert switched(switch_of("x", {}, tensors, None))[1] is None
    for damaged in ({}, {"tensors": {"a": ["object", [1]]}, "memory": False}, {"tensors": {"a": 3}, "memory": True}):
        with pytest.raises(StoredStateInvalid, match="a swap of a temporal engine"):
            switched(Switch("x", "temporal_swap", damaged, {"a": np.zeros(1, np.float32)}))


def _bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def test_a_sampler_answers_with_its_model_as_a_sample_server(tmp_path):
    prepared(tmp_path)
    sage = put_sage(tmp_path)
    with deployment(tmp_path, sampler=[SAMPLER]) as live:
        found = live.sample_servers["near"].predict([1, 2])
        with lg.SampleServer(live.samplers["near"], sage) as server:
            np.testing.assert_array_equal(found.values, server.predict([1, 2]).values)
        assert live.models["near"] == "sage/1"
    with pytest.raises(ValueInvalid, match="NAME/VERSION"):
        deployment(tmp_path, sampler=[{**SAMPLER, "model": "sage"}])
