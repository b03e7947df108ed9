"""Who is served without a token, and updates that are sent again with their key."""

import json
import threading

import pytest

import livegnn as lg
from livegnn import serve
from livegnn.errors import InvariantBroken
from livegnn.serve.envelope import Refused
from livegnn.serve.idempotency import Keys
from livegnn.serve.writing import Answer
from tests.serve.client import error_of, serving
from tests.unit.sampling.serving import Gated, small_sampler

EDGE = {"updates": [{"op": "add_edge", "u": 5, "v": 9, "time": 60}]}
BAD = {"updates": [{"op": "add_edge", "u": 5, "v": 999, "time": 60}]}


@pytest.fixture
def sampler():
    return small_sampler()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000"])
def test_local_hosts_are_served(sampler, host):
    with serving(sampler) as client:
        assert client.get("/v1/stats", headers={"host": host}).status_code == 200
        for scheme in ("http", "https"):
            assert client.get("/v1/stats", headers={"host": host, "origin": f"{scheme}://{host}"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "localhost@evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80:80",
        "127.0.0.1:",
        "[::1",
        "0.0.0.0",
        "localhost ",
        "",
    ],
)
def test_others_are_refused_on_every_route(sampler, host):
    with serving(sampler) as client:
        for method, path in (("GET", "/v1/healthz"), ("GET", "/metrics"), ("POST", "/v1/updates"), ("GET", "/nothing")):
            refused = error_of(client.request(method, path, headers={"host": host}), 403)
            assert refused["kind"] == "HostUnknown"
            assert "token=" in refused["message"]
        if host:
            origin = {"origin": f"http://{host}", "content-type": "application/json"}
            refused = client.post("/v1/updates", json.dumps(EDGE).encode(), headers=origin)
            assert error_of(refused, 403)["kind"] == "OriginUnknown"
        assert error_of(client.get("/v1/stats", headers={"origin": "null"}), 403)["kind"] == "OriginUnknown"
    assert sampler.version == 0


def test_with_a_token_any_host_is_served(sampler):
    asked = {"host": "graphs.example", "origin": "https://app.example", "authorization": "Bearer t"}
    with serving(sampler, token="t") as client:
        assert client.get("/v1/stats", headers=asked).status_code == 200
        assert client.get("/v1/healthz", headers={"host": "10.0.0.7:8000"}).status_code == 200


def test_no_other_origin_is_let_in(sampler):
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    with serving(sampler) as client:
        for answer in (client.request("OPTIONS", "/v1/updates", headers=asked), client.get("/v1/stats", headers=asked)):
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert error_of(client.request("OPTIONS", "/v1/updates", headers=asked), 405)


def test_a_batch_with_a_key_is_applied_once(sampler):
    with serving(sampler) as client:
        first, again = (client.post("/v1/updates", EDGE, headers={"idempotency-key": "k"}) for _ in range(2))
        assert first.json() == again.json() == {"version": 1, "updates": 1}
        assert sampler.version == 1
        other = client.post("/v1/updates", BAD, headers={"idempotency-key": "k"})
        assert error_of(other, 422)["kind"] == "KeyReused"
        assert client.post("/v1/updates", EDGE, headers={"idempotency-key": "l"}).json()["version"] == 2
        assert client.post("/v1/updates", EDGE).json()["version"] == 3


def test_a_batch_that_was_refused_leaves_its_key_free(sampler):
    with serving(sampler) as client:
        for wrong, status in ((BAD, 404), ({"updates": 1}, 400), (BAD, 404)):
            error_of(client.post("/v1/updates", wrong, headers={"idempotency-key": "k"}), status)
        assert client.post("/v1/updates", EDGE, headers={"idempotency-key": "k"}).json()["version"] == 1


@pytest.mark.parametrize("key", [b"", b"x" * 256, "é".encode(), b"a\x7f", b"a\tb"])
def test_keys_of_another_form_are_refused(sampler, key):
    with serving(sampler) as client:
        refused = client.post("/v1/updates", EDGE, headers={b"idempotency-key": key})
        assert error_of(refused, 400)["kind"] == "KeyInvalid"
        assert client.post("/v1/updates", EDGE, headers={"idempotency-key": "x" * 255}).status_code == 200
    assert sampler.version == 1


def test_a_key_whose_batch_is_under_way_waits(sampler):
    entered, gate = threading.Event(), threading.Event()

    class Slow(Gated):
        def apply(self, updates):
            entered.set()
            assert gate.wait(30)
            return sampler.apply(updates)

    with serving(Slow(sampler)) as client:
        answers = []
        first = threading.Thread(
            target=lambda: answers.append(client.post("/v1/updates", EDGE, headers={"idempotency-key": "k"}))
        )
        first.start()
        assert entered.wait(30)
        refused = error_of(client.post("/v1/updates", EDGE, headers={"idempotency-key": "k"}), 409)
        assert (refused["kind"], refused["retryable"]) == ("KeyUnderWay", True)
        gate.set()
        first.join()
        again = client.post("/v1/updates", EDGE, headers={"idempotency-key": "k"})
    assert answers[0].json() == again.json() == {"version": 1, "updates": 1}


def test_keys_go_with_age_and_with_number():
    now = [0.0]
    keys = Keys(3, 1000, lambda: now[0])
    for key in (b"a", b"b", b"c", b"d"):
        assert keys.begin(key, b"body") is None
        keys.end(key, Answer(b"answer " + key))
    assert keys.begin(b"b", b"body") == Answer(b"answer b")
    assert keys.begin(b"a", b"another") is None  # the oldest of four is gone
    with pytest.raises(Refused, match="under way"):
        keys.begin(b"a", b"another")
    keys.end(b"a", None)
    now[0] = 1.5
    assert keys.begin(b"d", b"another") is None
    assert len(keys) == 1


def test_the_size_of_a_sample_is_known_before(sampler):
    with lg.SampleServer(sampler) as server:
        for options in ({}, {"features": False}, {"edge_ids": False}):
            sample = sampler.sample([1, 2, 3], **options)
            arrays = [sample.seeds, *sample._vertices, *sample._edge_ids, *sample._features]
            assert server.sample_bytes(3, **options) == sum(array.nbytes for array in arrays)
    assert serve.Limits().under_way_bytes_max == 1 << 28


def test_a_batch_that_stands_although_it_failed_is_not_applied_again(sampler):
    class Failing(Gated):
        def apply(self, updates):
            sampler.apply(updates)
            raise InvariantBroken("[follower] expected to follow the batch, got an error; make it anew")

    with serving(Failing(sampler)) as client:
        answers = [client.post("/v1/updates", EDGE, headers={"idempotency-key": "k"}) for _ in range(2)]
        assert [error_of(answer, 500)["kind"] for answer in answers] == ["InvariantBroken"] * 2
        assert sampler.version == 1
        refused = client.post("/v1/updates", BAD, headers={"idempotency-key": "k"})
        assert error_of(refused, 422)["kind"] == "KeyReused"
