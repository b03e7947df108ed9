"""JSON reads that do not go through Litestar say what it says."""

from __future__ import annotations

import pytest

from livegnn.serve.service import reads
from livegnn.serve.service.app import service
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, prepared

CONFIG = {"engine": [{"name": "scores", "model": "fraud"}]}


@pytest.fixture
def client(tmp_path):
    prepared(tmp_path)
    with deployment(tmp_path, **CONFIG) as live:
        yield Client(service(live))


@pytest.mark.parametrize("route", sorted(reads.DIRECT))
@pytest.mark.parametrize("body", [{"ids": [1, 2]}, {"ids": [1], "engine": "scores", "at_least": 0}, {"ids": [1000]}])
def test_both_ways_give_the_same_answer(client, route, body):
    direct = client.post(route, body)
    routed = client.post(route, body, headers={"accept": "text/html, application/json"})
    assert (direct.status_code, direct.json()) == (routed.status_code, routed.json())
    assert direct.headers["content-type"] == routed.headers["content-type"]


@pytest.mark.parametrize("body", [{"ids": [1], "more": 1}, {"ids": [True]}, {}])
def test_litestar_refuses_what_is_no_body_of_the_route(client, body):
    refused = client.post(reads.PREDICT, body)
    assert (refused.status_code, refused.json()["error"]["kind"]) == (400, "BodyInvalid")


def test_a_usual_read_does_not_go_through_litestar(client, monkeypatch):
    asked = []
    given = reads.read_directly

    async def noted(context, route, body):
        asked.append(route)
        return await given(context, route, body)

    monkeypatch.setattr(reads, "read_directly", noted)
    assert client.post(reads.PREDICT, {"ids": [1]}).status_code == 200
    assert client.post(reads.PREDICT, {"ids": [1]}, headers={"accept": "*/*, text/html"}).status_code == 200
    assert asked == [reads.PREDICT]
