"""A shadow that refused a batch, as the service shows it: in the models, in the metrics, and no more among engines."""

from __future__ import annotations

import pytest

from livegnn.deployment import Registry
from livegnn.serve.service.app import service
from tests.serve.client import Client
from tests.unit.deployment.test_shadows import large, one_layer
from tests.unit.deployment.world import deployment, edge, prepared


@pytest.fixture
def live(tmp_path):
    registry = Registry(prepared(tmp_path) / "models")
    registry.add("served", one_layer(1, 0))
    registry.add("next", one_layer(2, 1))
    with deployment(tmp_path, engine=[{"name": "scores", "model": "served", "shadow": "next"}]) as one:
        yield one


def test_the_refusal_is_shown(live):
    client = Client(service(live))
    assert client.get("/v1/models").json()["shadows"]["scores"]["refusal"] == ""
    assert 'livegnn_shadow_set_aside{engine="scores"} 0' in client.get("/metrics").text
    live.apply(large())
    models = client.get("/v1/models").json()
    assert models["shadows"]["scores"]["refusal"].startswith("version 1: [")
    assert models["shadows"]["scores"]["model"] == "next/1"
    assert models["engines"] == {"scores": "served/1"}
    assert 'livegnn_shadow_set_aside{engine="scores"} 1' in client.get("/metrics").text
    assert client.post("/v1/predict", {"ids": [1], "engine": "scores"}).status_code == 200
    assert client.post("/v1/predict", {"ids": [1], "engine": "scores.shadow"}).status_code == 409


def test_the_page_goes_on(live):
    client = Client(service(live))
    assert client.get("/v1/stats").json()["engines"][0]["shadow"]["model"] == "next/1"
    live.apply(large())
    for _ in range(2):  # where it is aside, and where it is back
        found = client.get("/v1/stats").json()
        assert [each["name"] for each in found["engines"]] == ["scores"]
        assert found["engines"][0]["shadow"]["model"] == "next/1"
        live.swap("scores.shadow", "next/1")
        live.apply(edge(1, 2))


def counted(client):
    lines = client.get("/metrics").text.splitlines()
    return int(next(line for line in lines if line.startswith(SHADOW_COUNT)).split()[-1])


SHADOW_COUNT = 'livegnn_changed_outputs_total{engine="scores.shadow"}'


def test_one_that_is_back_is_counted(live):
    client = Client(app := service(live))
    windows = app.context.stats.windows
    live.apply(edge(1, 2))
    windows.tick()
    live.apply(large())
    windows.tick()
    before = counted(client)
    assert before > 0
    live.swap("scores.shadow", "next/1")
    changed = []
    live.engine("scores.shadow").on_change(lambda changes: changed.append(len(changes)))
    for k in range(3):
        live.apply(edge(k, 2 * k))
    windows.tick()
    assert counted(client) == before + sum(changed) > before
    assert client.get("/v1/stats").json()["series"]["changed"]["scores.shadow"] == [before, 0, sum(changed)]


def test_one_that_was_aside_before_the_service_is_counted_when_it_is_back(live):
    live.apply(large())
    client = Client(app := service(live))
    windows = app.context.stats.windows
    windows.tick()
    live.swap("scores.shadow", "next/1")
    live.apply(edge(1, 2))
    windows.tick()
    assert counted(client) > 0
    assert client.get("/v1/stats").json()["series"]["changed"]["scores.shadow"] == [0, counted(client)]
