"""Routes of a deployment: each answer is what the engine says; each bad request is refused, and changes nothing."""

from __future__ import annotations

import hashlib
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pyarrow as pa
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.errors import LogUnavailable, Overloaded, UsageError, ValueInvalid
from livegnn.models import ir
from livegnn.serve.limits import Limits
from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import HANDLERS, service
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, edge, model, prepared

QUERY = lg.query().out().sample(3).to_text()
CONFIG = {
    "engine": [{"name": "scores", "model": "fraud", "shadow": "other"}],
    "readout": [{"name": "all", "engine": "scores"}],
    "sampler": [{"name": "near", "query": QUERY}],
}
KEY = "idempotency-key"
FORMS = ("application/json", "application/vnd.apache.arrow.stream", "application/vnd.livegnn.frame")


@pytest.fixture
def live(tmp_path):
    prepared(tmp_path)
    Registry(tmp_path / "models").add("other", model(3))
    with deployment(tmp_path, **CONFIG) as one:
        yield one


@pytest.fixture
def client(live):
    return Client(service(live))


def said(response, status=200):
    assert response.status_code == status, response.text
    return response.json()


def kind(response, status):
    return said(response, status)["error"]["kind"]


def add(u, v):
    return {"updates": [{"op": "add_edge", "u": u, "v": v}]}


def test_updates_are_applied_once_by_their_key(live, client):
    first = client.post("/v1/updates", add(1, 2), headers={KEY: "a"})
    assert said(first) == {"version": 1, "offset": 0, "updates": 1, "repeated": False}
    assert said(client.post("/v1/updates", add(1, 2), headers={KEY: "a"})) == {**first.json(), "repeated": True}
    assert kind(client.post("/v1/updates", add(2, 1), headers={KEY: "a"}), 409) == "UsageError"
    assert kind(client.post("/v1/updates", add(2, 1), headers={KEY: "a" * 256}), 400) == "BodyInvalid"
    assert (live.version, live.log.tail) == (1, 1)


def test_updates_as_an_arrow_stream(live, client):
    table = pa.table({"op": ["add", "add"], "src": [1, 2], "dst": [3, 4]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    edges = live.graph.edge_count
    assert said(client.post("/v1/updates", sink.getvalue(), headers=headers))["updates"] == 2
    assert live.graph.edge_count == edges + 2
    assert kind(client.post("/v1/updates", sink.getvalue()[:-20], headers=headers), 400) == "BodyInvalid"
    assert kind(client.post("/v1/updates", b"no stream", headers=headers), 400) == "BodyInvalid"
    assert kind(client.post("/v1/updates", b"{}", headers={"content-type": "text/plain"}), 415) == "ContentTypeUnknown"
    assert live.version == 1


def test_reads_say_what_the_engine_says(live, client):
    live.apply(edge(1, 2))
    engine, ids = live.engine("scores"), [0, 7, 29]
    about = {"version": 1, "engine": "scores", "model": "fraud/1"}
    rows = said(client.post("/v1/embeddings", {"ids": ids}))
    np.testing.assert_array_equal(np.float32(rows.pop("rows")), engine.embeddings(ids))
    assert rows == about
    assert said(client.post("/v1/predict", {"ids": ids, "at_least": 1})) == {
        **about,
        "predictions": engine.predict(ids).tolist(),
    }
    scores = said(client.post("/v1/edges", {"pairs": [[1, 2], [3, 4]]}))["scores"]
    np.testing.assert_array_equal(np.float32(scores), engine.predict_edges([[1, 2], [3, 4]]))
    shadow = said(client.post("/v1/predict", {"ids": ids, "engine": "scores.shadow"}))
    assert shadow["model"] == "other/1"
    np.testing.assert_array_equal(np.float32(said(client.get("/v1/readouts/all"))["rows"]), live.readouts["all"].rows())
    sample = said(client.post("/v1/sample", {"seeds": [1, 2]}))
    np.testing.assert_array_equal(np.array(sample["hops"][0]), live.samplers["near"].sample([1, 2]).hop(1))


def test_many_rows_come_from_a_thread_and_are_the_same(live, client):
    ids = list(range(30)) * 10
    rows = said(client.post("/v1/embeddings", {"ids": ids}))["rows"]
    np.testing.assert_array_equal(np.float32(rows), live.engine("scores").embeddings(ids))


def test_what_if_changes_nothing(live, client):
    engine, digest = live.engine("scores"), live.engine("scores").state_digest()
    found = said(client.post("/v1/what-if", {"ids": [2, 3], **add(1, 2)}))
    with engine.what_if(edge(1, 2)) as view:
        then = view.predict([2, 3]).tolist()
    assert (found["now"], found["then"]) == (engine.predict([2, 3]).tolist(), then)
    assert (live.version, engine.state_digest()) == (0, digest)
    assert kind(client.post("/v1/what-if", {"ids": [2], **add(1, 1000)}), 404) == "VertexUnknown"


def test_what_if_of_a_model_with_several_results_names_one(tmp_path):
    x = ir.Input(4)
    both = ir.Concat((ir.Propagate(x, "mean"), x))
    Registry(tmp_path / "models").add("two", lg.Model.from_output(both, outputs={"a": (0, 4), "b": (4, 8)}))
    with deployment(tmp_path, engine=[{"name": "scores", "model": "two"}]) as one:
        client, engine = Client(service(one)), one.engine("scores")
        for output in ("a", "b"):
            found = said(client.post("/v1/what-if", {"ids": [2, 3], "output": output, **add(1, 2)}))
            assert found["now"] == engine.predict([2, 3], output=output).tolist()
            with engine.what_if(edge(1, 2)) as view:
                assert found["then"] == view.predict([2, 3], output=output).tolist()
        assert kind(client.post("/v1/what-if", {"ids": [2], **add(1, 2)}), 409) == "UsageError"


@pytest.mark.parametrize("metric", ["dot", "cosine", "l2", "model"])
@pytest.mark.parametrize("linked", [True, False])
def test_top_k_is_exact(live, client, metric, linked):
    engine = live.engine("scores")
    rows = engine.embeddings(np.arange(30)).astype(np.float64)
    products = rows @ rows[4]
    length = np.linalg.norm(rows, axis=1)
    wanted = {
        "dot": -products,
        "model": -products,
        "cosine": -products / np.maximum(length * length[4], 1e-30),
        "l2": np.linalg.norm(rows - rows[4], axis=1),
    }[metric]
    out = set() if linked else set(live.graph.out_neighbours(4)["dst"].tolist())
    left = [v for v in range(30) if v != 4 and v not in out]
    found = said(client.post("/v1/topk", {"vertex": 4, "k": 5, "metric": metric, "linked": linked}))
    assert len(found["vertices"]) == 5
    best = sorted(wanted[left])[:5]
    np.testing.assert_allclose(wanted[found["vertices"]], best, rtol=1e-4, atol=1e-5)
    assert set(found["vertices"]) <= set(left)


def test_top_k_of_a_row(client):
    found = said(client.post("/v1/topk", {"row": [1, 0, 0], "k": 30}))
    assert len(found["vertices"]) == 30
    assert found["scores"] == sorted(found["scores"], reverse=True)
    assert kind(client.post("/v1/topk", {"row": [1, 0]}), 422) == "WidthMismatch"
    assert kind(client.post("/v1/topk", {}), 409) == "UsageError"
    assert kind(client.post("/v1/topk", {"vertex": 1, "row": [1, 0, 0]}), 409) == "UsageError"


def test_swap_and_snapshot(live, client):
    assert said(client.post("/v1/admin/swap", {"engine": "scores", "model": "other"}))["version"] == 1
    models = said(client.get("/v1/models"))
    assert models["engines"] == {"scores": "other/1", "scores.shadow": "other/1"}
    assert models["registry"] == {"fraud": [1], "other": [1]}
    assert said(client.post("/v1/admin/snapshot"))["version"] == 1
    assert live.snapshot_version == 1
    assert kind(client.post("/v1/admin/swap", {"engine": "scores", "model": "none"}), 409) == "UsageError"
    assert kind(client.post("/v1/admin/swap", {"engine": "none", "model": "other"}), 409) == "UsageError"


@pytest.mark.parametrize(
    ("path", "document", "status", "name"),
    [
        ("/v1/updates", b"{", 400, "BodyInvalid"),
        ("/v1/updates", {"updates": []}, 413, "TooMany"),
        ("/v1/updates", {"updates": [{"op": "drop"}]}, 400, "BodyInvalid"),
        ("/v1/updates", {"updates": [{"op": "add_edge", "u": 1}]}, 400, "BodyInvalid"),
        ("/v1/updates", {"more": 1, **add(1, 2)}, 400, "BodyInvalid"),
        ("/v1/updates", add(1, 1000), 404, "VertexUnknown"),
        ("/v1/updates", add(1, "a"), 422, "DtypeInvalid"),
        ("/v1/predict", {"ids": []}, 400, "BodyInvalid"),
        ("/v1/predict", {"ids": [1, "a"]}, 400, "BodyInvalid"),
        ("/v1/predict", {"ids": [1.5]}, 400, "BodyInvalid"),
        ("/v1/predict", {"ids": [1000]}, 404, "VertexUnknown"),
        ("/v1/predict", {"ids": [1], "engine": "none"}, 409, "UsageError"),
        ("/v1/predict", {"ids": [1], "at_least": 9, "timeout_ms": 5}, 504, "VersionPending"),
        ("/v1/predict", {"ids": [1], "at_least": -9}, 400, "BodyInvalid"),
        ("/v1/predict", b"[]", 400, "BodyInvalid"),
        ("/v1/predict", b"\xff", 400, "BodyInvalid"),
        ("/v1/edges", {"pairs": [[1]]}, 400, "BodyInvalid"),
        ("/v1/sample", {"seeds": [1], "sampler": "none"}, 409, "UsageError"),
        ("/v1/topk", {"vertex": 1, "k": 0}, 400, "BodyInvalid"),
        ("/v1/topk", {"vertex": 1, "metric": "x"}, 400, "BodyInvalid"),
        ("/v1/none", {}, 404, "RouteUnknown"),
        ("/healthz", {}, 405, "MethodNotAllowed"),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(live, client, path, document, status, name):
    digest = live.engine("scores").state_digest()
    headers = {"content-type": "application/json"}
    assert kind(client.post(path, document, headers=headers), status) == name
    assert (live.version, live.engine("scores").state_digest()) == (0, digest)


def test_a_service_that_drains_answers_what_it_has_and_takes_no_more(live):
    edges = live.graph.edge_count
    with background_app(service(live), for_others=False) as url, httpx.Client(base_url=url, timeout=60) as client:
        with ThreadPoolExecutor(8) as pool:  # some come before it, and some after
            writes = [pool.submit(client.post, "/v1/updates", json=add(k % 30, 2)) for k in range(40)]
            drained = pool.submit(client.post, "/v1/admin/drain")
        answers = [write.result() for write in writes]
        version = said(drained.result())["version"]
        assert {answer.status_code for answer in answers} <= {200, 503}
        taken = [said(answer)["version"] for answer in answers if answer.status_code == 200]
        assert version == live.version == max(taken, default=0)
        assert live.graph.edge_count == edges + len(taken)
        assert {kind(answer, 503) for answer in answers if answer.status_code != 200} <= {"Draining"}
        assert kind(client.post("/v1/updates", json=add(1, 2)), 503) == "Draining"
        assert kind(client.post("/v1/admin/swap", json={"engine": "scores", "model": "fraud"}), 503) == "Draining"
        assert kind(client.get("/readyz"), 503) == "NotReady"
        assert said(client.get("/healthz"))["version"] == version
        assert said(client.get("/v1/predict?ids=1"))["version"] == version
        assert said(client.post("/v1/admin/drain"))["version"] == version
        assert live.snapshot_version == version


@pytest.mark.parametrize(("path", "body"), [("/v1/updates", add(1, 2)), ("/v1/predict", {"ids": [1]})])
def test_a_key_in_the_query_of_a_post_is_refused(live, client, path, body):
    assert kind(client.post(f"{path}?engine=scores", body), 400) == "QueryInvalid"
    assert live.version == 0


@pytest.mark.parametrize("path", ["/page", "/schema", "/openapi.yaml", "/nothing"])
def test_an_unknown_path_is_refused_in_the_envelope(client, path):
    for method in ("GET", "POST", "OPTIONS"):
        answer = client.request(method, path)
        assert answer.headers["content-type"] == "application/json"
        assert kind(answer, 404) == "RouteUnknown"


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_the_page_has_get_and_head(client, path):
    got = client.get(path)
    asked = client.request("HEAD", path)
    assert (asked.status_code, dict(asked.headers)) == (200, dict(got.headers))
    for method in ("POST", "PUT", "OPTIONS", "DELETE"):
        refused = client.request(method, path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert set(client.request("POST", "/v1/stats").headers["allow"].split(", ")) == {"GET", "OPTIONS"}


def test_limits(live):
    client = Client(service(live, limits=Limits(body_bytes_max=100, updates_max=2)))
    assert kind(client.post("/v1/updates", b" " * 101), 413) == "BodyTooLarge"
    few = Client(service(live, limits=Limits(ids_max=2, seeds_max=1)))
    for path, document in (
        ("/v1/predict", {"ids": [1, 2, 3]}),
        ("/v1/edges", {"pairs": [[1, 2]] * 3}),
        ("/v1/sample", {"seeds": [1, 2]}),
        ("/v1/what-if", {"ids": [1, 2, 3], **add(1, 2)}),
    ):
        assert kind(few.post(path, document), 413) == "TooMany"
    many = {"updates": [{"op": "add_edge", "u": 1, "v": 2}] * 3}
    assert kind(Client(service(live, limits=Limits(updates_max=2))).post("/v1/updates", many), 413) == "TooMany"


def test_health_readiness_and_metrics(live, client, monkeypatch):
    live.apply(edge(1, 2))
    assert said(client.get("/healthz")) == said(client.get("/readyz")) == {"status": "ok", "version": 1}
    client.post("/v1/predict", {"ids": [1000]})
    text = client.get("/metrics").text
    assert "livegnn_version 1\n" in text
    assert 'livegnn_requests_total{route="/v1/predict",status="404"} 1\n' in text
    assert "livegnn_log_entries_total 1\n" in text
    assert 'livegnn_shadow_compared_total{engine="scores"}' in text
    monkeypatch.setattr(type(live), "is_ready", False)
    assert kind(client.get("/readyz"), 503) == "NotReady"


def test_the_document_names_every_route_and_its_bodies(client):
    document = said(client.get("/openapi.json"))
    paths = {path for handler in HANDLERS for path in handler.paths}
    assert {re.sub(r":\w+}", "}", path) for path in paths} == set(document["paths"])
    assert {"ReadBody", "AppliedAnswer", "TopKBody"} <= set(document["components"]["schemas"])
    assert set(document["paths"]["/v1/updates"]["post"]["requestBody"]["content"]) == set(FORMS)


# ---- who may call


def test_without_tokens_only_this_machine_is_served(live, client):
    assert kind(client.get("/v1/models", headers={"host": "evil.example"}), 403) == "HostUnknown"
    assert kind(client.get("/v1/models", headers={"origin": "http://evil.example"}), 403) == "OriginUnknown"


def test_a_trusted_network_is_served_where_the_caller_says_so(live):
    client = Client(service(live, anyone=True))
    assert said(client.get("/v1/models", headers={"host": "any.example"}))["engines"]["scores"] == "fraud/1"


def test_a_deployment_that_is_not_open_is_refused(tmp_path):
    with pytest.raises(UsageError, match="that was started"):
        service(deployment(prepared(tmp_path)))


def test_a_full_queue_and_a_log_that_fails_ask_to_come_again(live, client, monkeypatch):
    for error, status in ((Overloaded("[apply] full"), 429), (LogUnavailable("[append] no answer"), 503)):

        def refuse(*_, error=error, **__):
            raise error

        monkeypatch.setattr(type(live), "submit", refuse)
        answer = client.post("/v1/updates", add(1, 2))
        assert kind(answer, status) == type(error).__name__
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["retryable"]


def test_those_who_wait_for_a_version_hold_up_nobody_else(live, client):
    waiting = {"content": json.dumps({"ids": [1], "at_least": 1, "timeout_ms": 5000})}
    headers = {"headers": {"content-type": "application/json"}}
    read = {"content": json.dumps({"ids": [1] * 300})}
    write = {"content": json.dumps(add(1, 2))}
    answers = client.all_at_once(
        [("POST", "/v1/predict", waiting | headers)] * 12
        + [("POST", "/v1/predict", read | headers), ("POST", "/v1/updates", write | headers)]
    )
    assert [answer.status_code for answer in answers] == [200] * 14
    assert {answer.json()["version"] for answer in answers[:12]} == {1}


def test_an_engine_on_demand_computes_what_is_asked_for(tmp_path):
    prepared(tmp_path)
    engines = [{"name": "lazy", "model": "fraud", "mode": "on_demand"}]
    with deployment(tmp_path, engine=engines) as one:
        client, engine = Client(service(one)), one.engine("lazy")
        one.apply(edge(1, 2))
        assert engine.native.pending()
        found = said(client.post("/v1/predict", {"ids": [7], "at_least": 1}))
        assert engine.native.pending()
        assert found["version"] == 1
        assert found["predictions"] == engine.predict([7]).tolist()


def test_an_answer_names_the_model_that_its_rows_are_of(live, client):
    with live.engine("scores").snapshot() as view:
        live.swap("scores", "other")
        assert live.key_of(view.model) == "fraud/1"
    assert said(client.post("/v1/predict", {"ids": [1]}))["model"] == "other/1"
    live.engine("scores").swap(model(9))  # not of the registry
    assert said(client.post("/v1/predict", {"ids": [1]}))["model"] == ""


def test_a_token_is_kept_as_its_hash():
    token, sha256 = new_token()
    assert sha256 == hashlib.sha256(token.encode()).hexdigest()
    for wrong in ("", "0" * 63, "G" * 64):
        with pytest.raises(ValueInvalid, match="sha256"):
            AccessToken("a", wrong)
    with pytest.raises(ValueInvalid, match="scope"):
        AccessToken("a", sha256, "all")
    with pytest.raises(UsageError, match="expected a Deployment"):
        service(json)
