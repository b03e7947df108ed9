"""GET /v1/explain: each answer is what Engine.contributions says; its integers sum; bad requests are refused."""

from __future__ import annotations

import itertools
from urllib.parse import quote

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.deployment.config_explain import ExplainConfig
from livegnn.deployment.explanations import Explanations
from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import service
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, edge, prepared


@pytest.fixture
def live(tmp_path):
    with deployment(prepared(tmp_path), explain={"record": "always"}) as one:
        yield one


@pytest.fixture
def client(live):
    return Client(service(live))


def said(response, status=200):
    assert response.status_code == status, response.text
    return response.json()


def terms(aggregate):
    own = [] if aggregate["own"] is None or aggregate["own"]["term"] is None else [aggregate["own"]["term"]]
    return [each["term"] for each in aggregate["in_neighbours"]] + own + [aggregate["others"]["term"]]


@pytest.mark.parametrize("limit", [1, 100])
def test_an_answer_is_the_engine_s_and_sums(live, client, limit):
    engine = live.engine("scores")
    for v in range(0, 30, 5):
        want = engine.contributions(v)
        got = said(client.get(f"/v1/explain/{v}?limit={limit}&hops=2"))
        assert (got["version"], got["engine"], got["model"]) == (0, "scores", "fraud/1")
        assert got["vertex"] == v
        assert got["linear"]
        assert got["column"] == got["prediction"] == engine.predict([v])[0]
        for aggregate, shares in zip(got["aggregations"], want.aggregations, strict=True):
            assert aggregate["exact"]
            assert np.sum(terms(aggregate), axis=0).tolist() == aggregate["aggregate"] == shares.aggregate.tolist()
            listed = aggregate["in_neighbours"]
            assert len(listed) + aggregate["others"]["count"] == len(shares)
            scores = dict(zip(shares.edge_ids.tolist(), shares.scores.tolist(), strict=True))
            assert [each["share"] for each in listed] == [scores[each["edge"]] for each in listed]
            sizes = [abs(each["share"]) for each in listed]
            assert sizes == sorted(sizes, reverse=True)
            for each in listed:
                assert each["prediction"] == engine.predict([each["vertex"]])[0]
        assert {each["vertex"] for each in got["sources"]} <= {
            each["vertex"] for aggregate in got["aggregations"] for each in aggregate["in_neighbours"]
        } or limit == 1


def test_the_latest_change_names_the_edge_that_came(live, client):
    live.apply(edge(4, 2))
    got = said(client.get("/v1/explain/2?at_least=1"))
    assert got["change"]["version"] == 1
    moved = [each for one in got["change"]["aggregations"] for each in one["in_neighbours"]]
    (added,) = [each for each in moved if each["why"] == ["added"]]
    assert added["vertex"] == 4
    assert added["before"] == [0] * len(added["after"])
    assert added["difference"] == added["after"] != added["before"]
    quiet = said(client.get("/v1/explain/2?rows=false"))
    assert quiet["aggregations"][0]["in_neighbours"][0]["term"] is None
    assert quiet["aggregations"][0]["in_neighbours"][0]["share"] != 0


def test_recording_begins_when_it_is_asked_for(tmp_path):
    with deployment(prepared(tmp_path)) as live:
        client = Client(service(live))
        live.apply(edge(4, 2))
        assert live.explanations.bytes == 0
        assert said(client.get("/v1/explain/2"))["change_missing"] == "older"
        live.apply(edge(5, 2))
        got = said(client.get("/v1/explain/2"))
        assert (got["change"]["version"], got["recorded_since"]) == (2, 1)
        assert live.explanations.bytes > 0
        assert f"livegnn_kept_messages_bytes {live.explanations.bytes}" in client.get("/metrics").text


def test_nothing_is_kept_where_the_configuration_says_so(tmp_path):
    with deployment(prepared(tmp_path), explain={"record": "never"}) as live:
        client = Client(service(live))
        said(client.get("/v1/explain/2"))
        live.apply(edge(4, 2))
        assert said(client.get("/v1/explain/2"))["change_missing"] == "off"


def test_a_swap_begins_anew(live, client, tmp_path):
    live.apply(edge(4, 2))
    Registry(tmp_path / "models").add("fraud", lg.Model([lg.layers.SAGE(np.ones((3, 4)), aggregate="sum")]))
    live.swap("scores", "fraud/2")
    got = said(client.get("/v1/explain/2"))
    assert (got["model"], got["change"], got["change_missing"]) == ("fraud/2", None, "older")
    assert got["aggregations"][0]["family"] == "sum"
    live.apply(edge(7, 2))
    assert said(client.get("/v1/explain/2"))["change"]["version"] == live.version


NAMES = ["ann", "bob/7", "c d", "end/", "two//in", "/first", "/", "//", "50%", "%2F", "é?#&+"]


@pytest.fixture
def named(tmp_path):
    """Each name has the one before it as its in-neighbour."""

    def graph():
        x = np.random.default_rng(0).normal(size=(len(NAMES), 4)).astype(np.float32)
        return lg.Graph(x, NAMES[:-1], NAMES[1:], ids=NAMES)

    with deployment(prepared(tmp_path), graph) as live:
        yield live


def near(found):
    return [each["vertex"] for each in found["aggregations"][0]["in_neighbours"]]


@pytest.mark.parametrize("name", NAMES[1:])
def test_text_ids_with_any_sign_are_found(named, name):
    got = said(Client(service(named)).get(f"/v1/explain/{quote(name, safe='')}"))
    assert (got["vertex"], near(got)) == (name, [NAMES[NAMES.index(name) - 1]])


def test_they_are_found_over_a_connection_and_with_a_token(named):
    token, sha256 = new_token()
    guarded = service(named, tokens=[AccessToken("a", sha256)])
    with background_app(guarded, for_others=False) as url, lg.Client(url, token) as client:
        for before, name in itertools.pairwise(NAMES):
            found = client.explain(name)
            assert found.vertex == name
            assert [each["vertex"] for each in found.aggregations[0]["in_neighbours"]] == [before]
        for path in ("two//in", "end/", "", "/"):
            assert (
                httpx.get(f"{url}/v1/explain/{path}", headers={"authorization": f"Bearer {token}"}).status_code == 404
            )


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/explain/300", 404, "VertexUnknown"),
        ("/v1/explain/ann", 404, "VertexUnknown"),
        ("/v1/explain/2?hops=3", 422, "ValueInvalid"),
        ("/v1/explain/2?column=9", 422, "ValueInvalid"),
        ("/v1/explain/2?limit=0", 400, "QueryInvalid"),
        ("/v1/explain/2?limit=10001", 400, "QueryInvalid"),
        ("/v1/explain/2?limit=101&hops=2", 400, "QueryInvalid"),
        ("/v1/explain/2?at_least=-1", 400, "QueryInvalid"),
        ("/v1/explain/2?at_least=9&timeout_ms=1", 504, "VersionPending"),
        ("/v1/explain/2?engine=none", 409, "UsageError"),
        ("/v1/explain/2?type=user", 422, "ColumnMissing"),
    ],
)
def test_what_cannot_be_explained_is_refused(client, path, status, kind):
    assert said(client.get(path), status)["error"]["kind"] == kind


def test_an_answer_that_reads_too_much_is_refused(tmp_path):
    with deployment(prepared(tmp_path), explain={"edges_max": 5}) as live:
        error = said(Client(service(live)).get("/v1/explain/2?hops=2"), 409)["error"]
        assert error["kind"] == "UsageError"
        assert "edges_max" in error["message"]


def test_an_engine_in_place_of_another_is_recorded_anew(live):
    engine = live.engine("scores")
    engines = {"scores": engine}
    kept = Explanations(engines, ExplainConfig())
    kept.of("scores", 2)
    engines["scores"] = other = lg.Engine(engine.model, engine.graph)  # as a shadow that is back
    kept.of("scores", 2)
    live.apply(edge(4, 2))
    assert kept.of("scores", 2).change.version == 1
    assert kept.bytes > 0
    kept.close()
    other.close()


def test_the_openapi_document_has_the_route(client):
    found = said(client.get("/openapi.json"))
    assert any("explain" in path for path in found["paths"])


def test_topk_by_an_index_says_its_recall_and_version(tmp_path):
    with deployment(prepared(tmp_path), index=[{"name": "near", "engine": "scores", "metric": "l2"}]) as live:
        client = Client(service(live))
        live.apply(edge(4, 2))
        exact = said(client.post("/v1/topk", {"vertex": 3, "k": 5, "metric": "l2"}))
        assert (exact["exact"], exact["recall"]) == (True, 1.0)
        got = said(client.post("/v1/topk", {"vertex": 3, "k": 5, "index": "near", "at_least": 1, "timeout_ms": 60000}))
        assert got["exact"] is False
        assert got["recall"] >= 0.9
        assert (got["version"], got["engine"], got["model"]) == (1, "scores", "fraud/1")
        assert got["vertices"] == exact["vertices"]
        for wrong in ({"metric": "dot"}, {"index": "far"}, {"candidate_type": "user"}, {"engine": "other"}):
            refused = client.post("/v1/topk", {"vertex": 3, "index": "near", **wrong})
            assert said(refused, 409)["error"]["kind"] == "UsageError"
        metrics = client.get("/metrics").text
        assert 'livegnn_index_version{index="near"} 1' in metrics
        assert 'part="index.near"' in metrics
