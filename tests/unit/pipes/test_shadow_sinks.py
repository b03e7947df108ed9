"""A sink on a shadow: it waits while the shadow is set aside, and follows the one that comes back."""

from __future__ import annotations

import json

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.deployment.filters import ChangeFilter
from livegnn.deployment.pipes.events import change_events
from livegnn.errors import ValueInvalid
from tests.unit.deployment.world import abandon, edge
from tests.unit.pipes.flowing import flowing, until

ENGINE = {"name": "scores", "model": "served", "shadow": "next/1"}


def one_layer(seed, reads):
    weights = np.random.default_rng(seed).normal(size=(3, 4))
    weights[:, 3] *= reads
    return lg.Model([lg.layers.GCN(weights)])


def too_large():
    updates = lg.Updates()
    updates.set_features(5, np.array([0, 0, 0, 1e9], np.float32))  # beyond what the shadow's fixed point holds
    return updates


def world(place):
    if not (place / "models").exists():
        registry = Registry(place / "models")
        registry.add("served", one_layer(1, 0))
        registry.add("next", one_layer(2, 1))
        registry.add("next", one_layer(2, 0))
    sink = {"name": "out", "kind": "parquet", "path": str(place / "out"), "engine": "scores.shadow"}
    return flowing(place, sinks=[sink], engine=[ENGINE])


def state(one):
    return one.pipes.sinks[0]


def delivered(one):
    until(lambda: state(one).version == one.version)


def test_it_follows_the_shadow_that_comes_back(tmp_path, monkeypatch):
    taken = []
    with world(tmp_path) as one:
        monkeypatch.setattr(
            one.pipes._sinks[0]._target, "deliver", lambda found: taken.extend(each.data for each in found)
        )
        one.apply(edge(1, 2))
        delivered(one)
        one.apply(too_large())
        until(lambda: state(one).life == "waiting")
        assert "scores.shadow is set aside" in state(one).error
        one.apply(edge(2, 3))
        one.swap("scores.shadow", "next/2")
        delivered(one)
        with one.hub.follow(ChangeFilter(engine="scores.shadow")) as follow:
            before = one.version
            for k in range(5):
                one.apply(edge(k, 7 * k % 30))
            delivered(one)
            wanted = [
                json.loads(event.body)
                for version in follow.since(before).versions
                for event in change_events(version, ChangeFilter(engine="scores.shadow"), 10**6)
            ]
        assert state(one)[2:4] == ("running", "")
    (missed,) = [each for each in taken if each["event"] == "missed"]
    assert (missed["from"], missed["to"], missed["reason"]) == (2, before, "model")
    after = [json.loads(json.dumps(each)) for each in taken if each["event"] == "change" and each["version"] > before]
    assert after == wanted
    assert after[0]["model"] == "next/2"


def test_after_a_restart_it_follows_the_one_that_the_start_brings_back(tmp_path):
    one = world(tmp_path).start()
    one.apply(edge(1, 2))
    delivered(one)
    one.apply(too_large())
    abandon(one)
    with world(tmp_path) as again:  # the replay sets it aside, and then it begins anew, as an entry
        assert again.shadows["scores"].refusal == ""
        delivered(again)
        again.apply(edge(3, 4))
        delivered(again)
        assert state(again).changes > 0


def test_a_sink_on_a_shadow_that_there_is_not_is_refused(tmp_path):
    world(tmp_path)
    sink = {"name": "out", "kind": "parquet", "path": "out", "engine": "scores.shadow"}
    with pytest.raises(ValueInvalid, match=r"the engine of sink 'out' among scores, got 'scores\.shadow'"):
        flowing(tmp_path, sinks=[sink], engine=[{"name": "scores", "model": "served"}])
