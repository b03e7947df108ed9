"""The routes in process: answers are the sampler's, in JSON and in frames; what may be asked is limited."""

import asyncio
import gc
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import livegnn as lg
from livegnn import serve
from livegnn.errors import UpdateError, UsageError, ValueInvalid
from livegnn.serve import frames
from livegnn.serve.envelope import STATUSES
from livegnn.serve.routes import ROUTES
from tests.serve.client import FRAME, Client, error_of, serving
from tests.unit.sampling.serving import VERTICES, Gated, one_edge, small_sampler, waiting


def first_features(features, masks):
    return features[0]


@pytest.fixture
def sampler():
    return small_sampler()


# ---- answers


def test_json_and_frames_are_the_sampler(sampler):
    seeds = np.arange(VERTICES)
    expected = sampler.sample(seeds)
    with serving(sampler) as client:
        document = client.post("/v1/sample", {"seeds": seeds.tolist()}).json()
        response = client.post("/v1/sample", frames.encode_request(seeds), headers=FRAME)
    assert response.headers["content-type"] == frames.CONTENT_TYPE
    frame = frames.decode_sample(response.content)
    assert document["version"] == frame.version == expected.version
    assert document["seeds"] == seeds.tolist()
    for k in (1, 2):
        np.testing.assert_array_equal(document["hops"][k - 1], expected.hop(k))
        np.testing.assert_array_equal(frame.hops[k - 1], expected.hop(k))
        np.testing.assert_array_equal(document["edge_ids"][k - 1], expected.edge_ids(k))
        np.testing.assert_array_equal(frame.edge_ids[k - 1], expected.edge_ids(k))
    for k in (0, 1, 2):
        np.testing.assert_array_equal(np.array(document["features"][k], np.float32), expected.features(k))
        np.testing.assert_array_equal(frame.features[k], expected.features(k))


def test_data_of_edges_in_both_forms():
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 8, (2, 30))
    columns = {"weight": rng.random(30), "time": rng.integers(0, 9, 30) + 2**40, "edge_attr": rng.random((30, 3))}
    for left_out in (*columns, None):
        some = {name: column for name, column in columns.items() if name != left_out}
        graph = lg.Graph(np.eye(8, 2, dtype=np.float32), src, dst, **some)
        sampler = lg.PreSampler(graph, lg.query().out().sample(3).in_().sample(2), edge_data=True)
        expected = sampler.sample([1, 2])
        with serving(sampler) as client:
            document = client.post("/v1/sample", {"seeds": [1, 2]}).json()
            lean = client.post("/v1/sample", {"seeds": [1, 2], "edge_data": False}).json()
            body = frames.encode_request(np.array([1, 2]))
            frame = frames.decode_sample(client.post("/v1/sample", body, headers=FRAME).content)
            body = frames.encode_request(np.array([1, 2]), edge_data=False)
            lean_frame = frames.decode_sample(client.post("/v1/sample", body, headers=FRAME).content)
        for key, levels in zip(("edge_weights", "edge_times", "edge_attrs"), expected.edge_levels, strict=True):
            assert (key in document) == bool(levels)
            assert key not in lean
            assert getattr(lean_frame, key) == ()
            assert len(getattr(frame, key)) == len(levels)
            for k, level in enumerate(levels):
                np.testing.assert_array_equal(np.array(document[key][k], level.dtype), level)
                np.testing.assert_array_equal(getattr(frame, key)[k], level)
        np.testing.assert_array_equal(frame.features[2], expected.features(2))


def test_a_model_of_data_sees_data_of_edges():
    pytest.importorskip("torch_geometric")
    graph = lg.Graph(np.eye(3, dtype=np.float32), [0, 0, 1], [1, 2, 2], edge_attr=[[5.0], [7.0], [9.0]])
    sampler = lg.PreSampler(graph, lg.query().out().sample(2), edge_data=True)

    def amounts(data):
        return data.x.new_zeros(data.num_nodes).index_add(0, data.edge_index[1], data.edge_attr[:, 0])

    with lg.SampleServer(sampler, amounts, inputs="data") as server:
        assert server.predict([0, 1, 2]).values.tolist() == [[12.0], [9.0], [0.0]]


@pytest.mark.parametrize(("features", "edge_ids"), [(True, False), (False, True), (False, False)])
def test_what_is_left_out(sampler, features, edge_ids):
    with serving(sampler) as client:
        asked = {"seeds": [1, 2], "features": features, "edge_ids": edge_ids}
        document = client.post("/v1/sample", asked).json()
        body = frames.encode_request(np.array([1, 2]), features=features, edge_ids=edge_ids)
        frame = frames.decode_sample(client.post("/v1/sample", body, headers=FRAME).content)
    assert ("features" in document, "edge_ids" in document) == (features, edge_ids)
    assert (len(frame.features), len(frame.edge_ids)) == (3 * features, 2 * edge_ids)
    np.testing.assert_array_equal(frame.hops[1], sampler.sample([1, 2]).hop(2))


def test_predictions_in_both_forms(sampler):
    seeds = [4, 0, 4]
    with serving(sampler, first_features) as client:
        document = client.post("/v1/predict", {"seeds": seeds}).json()
        response = client.post("/v1/predict", frames.encode_request(np.array(seeds)), headers=FRAME)
    frame = frames.decode_prediction(response.content)
    expected = sampler.graph.features(seeds)
    np.testing.assert_array_equal(np.array(document["predictions"], np.float32), expected)
    np.testing.assert_array_equal(frame.values, expected)
    assert document["version"] == frame.version == 0


def test_predictions_that_are_not_finite_are_null_in_json(sampler):
    with serving(sampler, lambda features, masks: np.where(features[0] > 9, 1, np.inf)) as client:
        document = client.post("/v1/predict", {"seeds": [1]}).json()
        frame = client.post("/v1/predict", frames.encode_request(np.array([1])), headers=FRAME).content
    assert document["predictions"] == [[None] * 4]
    assert np.isinf(frames.decode_prediction(frame).values).all()


def test_accept_chooses_the_form(sampler):
    asked = {"seeds": [1]}
    with serving(sampler) as client:
        frame = client.post("/v1/sample", asked, headers={"accept": frames.CONTENT_TYPE})
        assert frames.decode_sample(frame.content).version == 0
        body = frames.encode_request(np.array([1]))
        for accept in ("application/json", "text/html, application/json;q=0.5"):
            assert client.post("/v1/sample", body, headers={**FRAME, "accept": accept}).json()["seeds"] == [1]
        assert client.post("/v1/sample", asked, headers={"accept": "*/*"}).json()["version"] == 0
        assert client.post("/v1/sample", asked, headers={"content-type": "Application/JSON; charset=utf-8"}).json()
        assert (
            error_of(client.post("/v1/sample", asked, headers={"accept": "text/html"}), 406)["kind"] == "AcceptUnknown"
        )


def test_large_json_answers(sampler):
    seeds = np.arange(VERTICES).repeat(15)
    with serving(sampler) as client:
        document = client.post("/v1/sample", {"seeds": seeds.tolist()}).json()
    np.testing.assert_array_equal(np.array(document["features"][2], np.float32), sampler.sample(seeds).features(2))


def test_string_ids_take_json():
    graph = lg.Graph(np.eye(2, dtype=np.float32), ["a"], ["b"], ids=["a", "b"])
    with serving(lg.PreSampler(graph, lg.query().out().sample(2))) as client:
        document = client.post("/v1/sample", {"seeds": ["a", "b"]}).json()
        assert document["hops"] == [[["b", None], [None, None]]]
        refused = client.post("/v1/sample", {"seeds": ["a"]}, headers={"accept": frames.CONTENT_TYPE})
        assert "ask for application/json" in error_of(refused, 409)["message"]


def test_updates_are_applied_in_order(sampler):
    with serving(sampler, first_features) as client:
        batch = [
            {"op": "add_edge", "u": 5, "v": 9, "time": 60},
            {"op": "add_vertex", "u": VERTICES, "x": [1, 2, 3, 4]},
            {"op": "set_features", "u": 9, "x": [0.5, 0, 0, 0]},
            {"op": "add_edge", "u": VERTICES, "v": 5, "time": 61, "weight": None},
        ]
        assert client.post("/v1/updates", {"updates": batch}).json() == {"version": 1, "updates": 4}
        batch = [
            {"op": "remove_edge", "u": VERTICES, "v": 5},
            {"op": "remove_edges_before", "time": 10},
            {"op": "remove_edge", "u": 0, "v": 0, "time": 1000, "missing": "ignore"},
        ]
        assert client.post("/v1/updates", {"updates": batch}).json()["version"] == 2
        found = client.post("/v1/sample", {"seeds": [5, VERTICES], "at_least": 2}).json()
        assert found["version"] == 2
        assert found["hops"][0] == [[9, -1, -1, -1], [-1, -1, -1, -1]]
        assert found["features"][1][0][0] == [0.5, 0, 0, 0]
        assert client.post("/v1/predict", {"seeds": [VERTICES]}).json()["predictions"] == [[1, 2, 3, 4]]
    sampler.verify()


def test_at_least_waits_for_an_update(sampler):
    with serving(sampler) as client, ThreadPoolExecutor(1) as threads:
        later = threads.submit(client.post, "/v1/sample", {"seeds": [5], "at_least": 1})
        time.sleep(0.05)
        assert not later.done()
        sampler.apply(one_edge())
        assert later.result(30).json()["version"] == 1
        start = time.monotonic()
        pending = client.post("/v1/sample", {"seeds": [5], "at_least": 7, "timeout_ms": 40})
        error = error_of(pending, 504)
        assert (error["kind"], error["retryable"]) == ("VersionPending", True)
        body = frames.encode_request(np.array([5]), at_least=7, timeout_ms=40)
        assert error_of(client.post("/v1/sample", body, headers=FRAME), 504)["kind"] == "VersionPending"
        assert time.monotonic() - start < 10


def test_concurrent_requests_are_answered_together(sampler):
    source = Gated(sampler)
    expected = sampler.graph.features(np.arange(40))
    requests = [("POST", "/v1/predict", {"json": {"seeds": [seed]}}) for seed in range(40)]
    requests += [("POST", "/v1/sample", {"json": {"seeds": [999]}})] * 3
    with lg.SampleServer(source, first_features) as server, ThreadPoolExecutor(1) as threads:
        first = source.stopped_by(server)
        asked = threads.submit(Client(serve.app(server)).all_at_once, requests)
        waiting(server, len(requests))
        source.gate.set()
        responses = asked.result()
        first.join()
    assert source.calls[:2] == [1, 43]
    for seed in range(40):
        np.testing.assert_array_equal(np.float32(responses[seed].json()["predictions"][0]), expected[seed])
    for response in responses[40:]:
        assert "999 at row 0" in error_of(response, 404)["message"]


def test_stats_health_and_metrics(sampler):
    with lg.SampleServer(sampler) as server:
        client = Client(serve.app(server))
        client.post("/v1/sample", {"seeds": [1, 2]})
        client.post("/v1/updates", {"updates": [{"op": "add_edge", "u": 5, "v": 9, "time": 60}]})
        client.get("/nowhere")
        found = client.get("/v1/stats").json()
        assert found["server"]["seeds"] == 2
        assert found["source"]["batches"] == 1
        assert found["queries"] == {"1": sampler.plan.queries[0].query.to_text()}
        assert client.get("/v1/healthz").json() == {"status": "ok", "version": 1}
        response = client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = response.text.splitlines()
        for line in (
            'livegnn_requests_total{route="/v1/sample",status="200"} 1',
            'livegnn_requests_total{route="other",status="404"} 1',
            'livegnn_request_seconds_bucket{route="/v1/sample",le="+Inf"} 1',
            'livegnn_request_seconds_count{route="/v1/sample"} 1',
            "livegnn_version 1",
            "livegnn_updates_total 1",
            "livegnn_seeds_total 2",
            "livegnn_waiting_requests 0",
        ):
            assert line in lines
        assert any(re.fullmatch(r'livegnn_ingestion_lag_seconds{quantile="0.99"} \d+\.\d{6}', line) for line in lines)
    assert error_of(client.get("/v1/healthz"), 503)["kind"] == "Closed"


# ---- refusals


def test_the_envelope_and_the_statuses():
    """One form of errors, and one table of statuses: a change of either is a change of the interface."""
    assert [(kind.__name__, status) for kind, status in STATUSES] == [
        ("InvariantBroken", 500),
        ("VertexUnknown", 404),
        ("VertexExists", 409),
        ("EdgeDuplicate", 409),
        ("EdgeMissing", 409),
        ("EdgeOffloaded", 409),
        ("UpdateError", 422),
        ("QueryInvalid", 422),
        ("UsageError", 409),
        ("Overloaded", 503),
        ("LogUnavailable", 503),
        ("WorkerUnavailable", 503),
        ("VersionPending", 504),
        ("ModelError", 500),
    ]
    with serving(small_sampler()) as client:
        response = client.post("/v1/sample", {"seeds": [999]})
    assert response.status_code == 404
    assert response.json() == {
        "error": {
            "kind": "VertexUnknown",
            "message": "[sample] expected seeds that are live vertices (version 0), got 999 at row 0; "
            "add the vertex first",
            "retryable": False,
            "where": "sample",
            "expected": "seeds that are live vertices (version 0)",
            "got": "999 at row 0",
            "advice": "add the vertex first",
            "vertex": 999,
        }
    }


SEEDS_LIMIT = serve.Limits(seeds_max=3, body_bytes_max=300, updates_max=2)


@pytest.mark.parametrize(
    ("document", "status", "kind", "words"),
    [
        (b"", 400, "BodyInvalid", "got malformed JSON: Input data was truncated; correct"),
        (b"\xff\xfe{}", 400, "BodyInvalid", "got malformed JSON: invalid character (byte 0); correct"),
        (b"[" * 290, 400, "BodyInvalid", "got malformed JSON: Input data was truncated; correct"),
        (b'{"seeds": ["\\ud800"], "features": true}', 400, "BodyInvalid", "got malformed JSON: "),
        (b"[1]", 400, "BodyInvalid", "an object, got [1]"),
        ({}, 400, "BodyInvalid", "the key 'seeds', got []"),
        ({"seeds": []}, 400, "BodyInvalid", "from 1 to 3 seeds, got 0"),
        ({"seeds": [1, 2, 3, 4]}, 413, "TooMany", "from 1 to 3 seeds, got 4"),
        ({"seeds": 1}, 400, "BodyInvalid", "a list for seeds, got 1"),
        ({"seeds": [1, "a"]}, 400, "BodyInvalid", "seeds of one kind"),
        ({"seeds": [1.0]}, 400, "BodyInvalid", "a whole number or a string for seeds[0], got 1.0"),
        ({"seeds": [True]}, 400, "BodyInvalid", "a whole number or a string for seeds[0], got True"),
        ({"seeds": [None]}, 400, "BodyInvalid", "a whole number or a string for seeds[0], got None"),
        ({"seeds": [-1]}, 422, "ValueInvalid", "-1 at row 0"),
        ({"seeds": [2**70]}, 422, "ValueInvalid", "1180591620717411303424 at row 0"),
        ({"seeds": ["a"]}, 422, "DtypeInvalid", "int64"),
        ({"seeds": [1], "query": 7}, 409, "UsageError", "number of a running query"),
        ({"seeds": [1], "query": "1"}, 400, "BodyInvalid", "a whole number or null for query, got '1'"),
        ({"seeds": [1], "features": 1}, 400, "BodyInvalid", "true or false for features, got 1"),
        ({"seeds": [1], "at_least": 1.5}, 400, "BodyInvalid", "a whole number or null for at_least, got 1.5"),
        ({"seeds": [1], "at_least": True}, 400, "BodyInvalid", "a whole number or null for at_least, got True"),
        ({"seeds": [1], "timeout_ms": 0}, 422, "ValueInvalid", "timeout above 0"),
        ({"seeds": [1], "timeout_ms": -5}, 422, "ValueInvalid", "timeout above 0"),
        (b'{"seeds": [1], "timeout_ms": NaN}', 400, "BodyInvalid", "got malformed JSON: invalid"),
        ({"seeds": [1], "fanout": 3}, 400, "BodyInvalid", "got 'fanout'"),
        ({"seeds": [1], "features": False, "query": None, "pad": "x" * 300}, 413, "BodyTooLarge", "300 bytes"),
    ],
)
def test_bad_sample_requests(sampler, document, status, kind, words):
    with serving(sampler, limits=SEEDS_LIMIT) as client:
        error = error_of(client.post("/v1/sample", document), status)
        assert error["kind"] == kind
        assert words in error["message"]
        assert client.post("/v1/sample", {"seeds": [1]}).status_code == 200


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"at_least": -1}, "at_least as a version"),
        ({"at_least": 1.5}, "at_least as an integer"),
        ({"query": -1}, "query from 0"),
        ({"query": 2**31}, "query from 0"),
        ({"timeout_ms": 0}, "timeout_ms from 1"),
        ({"timeout_ms": -5}, "timeout_ms from 1"),
        ({"seeds": np.array([1.9])}, "seeds as int64"),
        ({"seeds": [0, True]}, "True of bool at row 1"),
    ],
)
def test_a_frame_is_not_written_of_what_would_read_as_another(wrong, named):
    with pytest.raises(UpdateError, match=named):
        frames.encode_request(**{"seeds": np.array([1]), **wrong})


GOOD = frames.encode_request(np.array([1, 2]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        GOOD[:20],
        GOOD[:-1],
        GOOD + b"\0",
        b"LGQ2" + GOOD[4:],
        GOOD[:4] + b"\xff" + GOOD[5:],
        GOOD[:8] + b"\xfe\xff\xff\xff" + GOOD[12:],
        GOOD[:16] + b"\xfe" + b"\xff" * 7 + GOOD[24:],
        GOOD[:28] + b"\1\0\0\0" + GOOD[32:],
        GOOD[:24] + b"\xff\xff\xff\xff" + GOOD[28:],
    ],
    ids=["empty", "short", "cut", "longer", "magic", "flags", "query", "at_least", "zero", "count"],
)
def test_damaged_frames(sampler, body):
    with serving(sampler) as client:
        error = error_of(client.post("/v1/sample", body, headers=FRAME), 422)
    assert error["kind"] == "ValueInvalid"
    assert error["message"].startswith("[frame] expected")


@pytest.mark.parametrize("cut", [0, 10, 30, 45, -1])
def test_damaged_answers_are_seen_by_clients(sampler, cut):
    body = frames.encode_sample(sampler.sample([1]), features=True, edge_ids=True)
    with pytest.raises(ValueInvalid, match=r"^\[frame\]"):
        frames.decode_sample(body[:cut])
    prediction = frames.encode_prediction(lg.sampling.Prediction(np.ones((2, 3), np.float32), 4))
    with pytest.raises(ValueInvalid, match=r"^\[frame\]"):
        frames.decode_prediction(prediction[:cut])


@pytest.mark.parametrize(
    ("document", "status", "kind", "words"),
    [
        ({"updates": []}, 413, "TooMany", "from 1 to 2 updates"),
        ({"updates": [{"op": "remove_edges_before", "time": 1}] * 3}, 413, "TooMany", "got 3"),
        ({"updates": {}}, 400, "BodyInvalid", "a list for updates, got {}"),
        ({"updates": [], "more": 1}, 400, "BodyInvalid", "keys among updates, got 'more'"),
        ({"updates": [4]}, 400, "BodyInvalid", "an object for updates[0], got 4"),
        ({"updates": [{"op": "clear"}]}, 400, "BodyInvalid", "got 'clear'"),
        ({"updates": [{"op": ["add_edge"]}]}, 400, "BodyInvalid", "op from add_edge"),
        ({"updates": [{"op": "add_edge", "u": 1}]}, 400, "BodyInvalid", "got no v"),
        ({"updates": [{"op": "add_edge", "u": 1, "v": 2, "w": 2}]}, 400, "BodyInvalid", "got unknown w"),
        ({"updates": [{"op": "add_edge", "u": -1, "v": 2}]}, 422, "ValueInvalid", "-1"),
        ({"updates": [{"op": "add_edge", "u": 1.5, "v": 2}]}, 422, "DtypeInvalid", "1.5"),
        ({"updates": [{"op": "add_edge", "u": {}, "v": []}]}, 422, "DtypeInvalid", "{}"),
        ({"updates": [{"op": "set_features", "u": {}, "x": [1]}]}, 422, "DtypeInvalid", "u"),
        ({"updates": [{"op": "add_vertex", "u": 60, "x": "wide"}]}, 422, "WidthMismatch", "x"),
        ({"updates": [{"op": "add_vertex", "u": 60, "x": [1]}]}, 422, "WidthMismatch", "4"),
        ({"updates": [{"op": "add_edge", "u": 1, "v": 999, "time": 1}]}, 404, "VertexUnknown", "999"),
        ({"updates": [{"op": "add_vertex", "u": 1, "x": [0, 0, 0, 0]}]}, 409, "VertexExists", "1"),
        ({"updates": [{"op": "remove_edge", "u": 5, "v": 5}]}, 409, "EdgeMissing", "5"),
        ({"updates": [{"op": "add_edge", "u": 1, "v": 2}]}, 422, "ColumnMissing", "time"),
    ],
)
def test_bad_updates_change_nothing(sampler, document, status, kind, words):
    before = sampler.graph.digest(), sampler.version
    limits = serve.Limits(updates_max=2)
    with serving(sampler, limits=limits) as client:
        error = error_of(client.post("/v1/updates", document), status)
    assert error["kind"] == kind
    assert words in error["message"]
    assert (sampler.graph.digest(), sampler.version) == before


def test_routes_methods_and_types(sampler):
    with serving(sampler) as client:
        assert error_of(client.get("/v2/sample"), 404)["kind"] == "RouteUnknown"
        for path, method in ROUTES.items():
            refused = client.request("PUT", path)
            assert error_of(refused, 405)["kind"] == "MethodNotAllowed"
            assert refused.headers["allow"] == method
        for path in ("/v1/sample", "/v1/updates"):
            refused = client.post(path, b"<seeds/>", headers={"content-type": "text/xml"})
            assert error_of(refused, 415)["kind"] == "ContentTypeUnknown"
        assert error_of(client.post("/v1/updates", b"", headers=FRAME), 415)
        assert error_of(client.post("/v1/updates", b'{"updates": []}'), 415)  # as a page of another site would send it
        assert error_of(client.post("/v1/predict", {"seeds": [1]}), 409)["kind"] == "UsageError"


def test_predict_takes_fewer_keys(sampler):
    with serving(sampler, first_features) as client:
        assert (
            "got 'features'" in error_of(client.post("/v1/predict", {"seeds": [1], "features": True}), 400)["message"]
        )
        body = frames.encode_request(np.array([1]), query=1)
        assert error_of(client.post("/v1/predict", body, headers=FRAME), 400)["kind"] == "BodyInvalid"


def test_token(sampler):
    with serving(sampler, token="secret-1") as client:
        for headers in ({}, {"authorization": "Bearer secret-2"}, {"authorization": "secret-1"}):
            for path, method in ROUTES.items():
                if path == "/v1/healthz":
                    continue
                refused = client.request(method, path, headers=headers)
                assert error_of(refused, 401)["kind"] == "TokenInvalid"
                assert refused.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/healthz").status_code == 200
        right = {"authorization": "Bearer secret-1"}
        assert client.post("/v1/sample", {"seeds": [1]}, headers=right).status_code == 200
        assert client.get("/metrics", headers=right).status_code == 200


def test_read_only(sampler):
    with serving(sampler, read_only=True) as client:
        refused = client.post("/v1/updates", {"updates": [{"op": "add_edge", "u": 5, "v": 9, "time": 60}]})
        assert error_of(refused, 403)["kind"] == "ReadOnly"
    assert sampler.version == 0


def test_overload_is_said_and_over_soon(sampler):
    source = Gated(sampler)
    with lg.SampleServer(source, queue_max=2) as server, ThreadPoolExecutor(1) as threads:
        client = Client(serve.app(server))
        first = source.stopped_by(server)
        asked = threads.submit(client.all_at_once, [("POST", "/v1/sample", {"json": {"seeds": [1]}})] * 5)
        until = time.monotonic() + 30
        while server.stats.overloaded < 3:
            assert time.monotonic() < until
            time.sleep(0.001)
        source.gate.set()
        responses = asked.result()
        first.join()
        assert sorted(response.status_code for response in responses) == [200, 200, 503, 503, 503]
        refused = next(response for response in responses if response.status_code == 503)
        error = error_of(refused, 503)
        assert (error["kind"], error["retryable"]) == ("Overloaded", True)
        assert refused.headers["retry-after"] == "1"


def test_batches_of_updates_wait_in_a_bounded_queue(sampler):
    body = {"updates": [{"op": "add_edge", "u": 5, "v": 9, "time": 60}]}
    with serving(sampler, limits=serve.Limits(batches_waiting_max=2)) as client:
        responses = client.all_at_once([("POST", "/v1/updates", {"json": body})] * 5)
    assert sorted(response.status_code for response in responses) == [200, 200, 503, 503, 503]
    assert sampler.version == 2


def test_an_unexpected_error_does_not_show_its_inside(sampler, caplog):
    class Broken(Gated):
        def sample(self, seeds, **options):
            raise MemoryError("the password is swordfish")

    with serving(Broken(sampler)) as client:
        error = error_of(client.post("/v1/sample", {"seeds": [1]}), 500)
    assert error["kind"] == "InternalError"
    assert "swordfish" not in error["message"]
    assert "swordfish" in caplog.text


def messages(*parts):
    """A body that comes in parts; None stands for a client that goes away, ... for one that sends nothing more."""

    async def receive():
        part = waiting.pop(0)
        if part is ...:
            await asyncio.sleep(30)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    waiting = list(parts)
    return receive


@pytest.mark.parametrize(
    ("parts", "headers", "status"),
    [
        ((b'{"seeds"', b": [1", b"]}"), [], 200),
        ((b'{"seeds"', None), [], 400),
        ((None,), [], 400),
        ((b"x" * 200, b"x" * 200), [], 413),
        ((b"x" * 400,), [], 413),
        ((...,), [(b"content-length", b"4000")], 413),
        ((...,), [(b"content-length", b"-4")], 413),
        ((b'{"seeds"', ...), [], 408),
        ((...,), [(b"content-length", b"100")], 408),
    ],
    ids=[
        "in parts",
        "broken off",
        "gone",
        "parts too large",
        "too large",
        "too large by its head",
        "no number",
        "slow",
        "never begun",
    ],
)
def test_bodies_as_they_come(sampler, parts, headers, status):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/v1/sample", "root_path": "", "method": "POST"}
    scope["headers"] = [(b"host", b"localhost"), *headers]
    with lg.SampleServer(sampler) as server:
        app = serve.app(server, limits=serve.Limits(body_bytes_max=300, body_ms_max=50))
        asyncio.run(app(scope, messages(*parts), send))
    assert sent[0]["status"] == status
    if status in (408, 413):
        assert (b"connection", b"close") in sent[0]["headers"]
    assert json.loads(sent[1]["body"])


def test_mistakes_of_the_operator(sampler):
    with pytest.raises(UsageError, match="SampleServer, got PreSampler"):
        serve.app(sampler)
    with pytest.raises(ValueInvalid, match="seeds_max of at least 1, got 0"):
        serve.Limits(seeds_max=0)
    with lg.SampleServer(sampler) as server:
        for token in ("", "  ", "zürich", 4):
            with pytest.raises(UsageError, match="ASCII text"):
                serve.app(server, token=token)
        with pytest.raises(UsageError, match="expected HTTP, got websocket"):
            asyncio.run(serve.app(server)({"type": "websocket"}, None, None))


def test_timeouts_beyond_numbers_are_refused(sampler):
    with serving(sampler) as client:
        for text, status in ((b"-1", 422), (b"-" + b"9" * 400, 422), (b"9" * 400, 200), (b"1e400", 400)):
            answer = client.post("/v1/sample", b'{"seeds": [0], "timeout_ms": ' + text + b"}")
            assert answer.status_code == status, answer.text


def test_event_loops_are_let_go(sampler):
    """Each request of this client has a loop of its own."""

    def loops():
        gc.collect()
        return len([one for one in gc.get_objects() if issubclass(type(one), asyncio.AbstractEventLoop)])

    before = loops()  # of other tests
    with lg.SampleServer(sampler) as server:
        client = Client(serve.app(server))
        for _ in range(5):
            assert client.post("/v1/sample", {"seeds": [0]}).status_code == 200
        assert loops() <= before + 1  # the latest, perhaps
