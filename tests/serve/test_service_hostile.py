"""A real service and clients that mean ill: they come in numbers, do not finish, and go away."""

from __future__ import annotations

import json
import resource
import threading
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from livegnn.serve.limits import Limits
from livegnn.serve.runner import background_app
from livegnn.serve.service.app import service
from tests.serve.test_hostile_clients import ask, connected, metric, read_all
from tests.unit.deployment.world import deployment, prepared

PATIENCE_S = 120
BODY = json.dumps({"updates": [{"op": "add_edge", "u": 1, "v": 2}]}).encode()
MANY = 500


@contextmanager
def served(tmp_path, **limits):
    with ExitStack() as stack:
        live = stack.enter_context(deployment(prepared(tmp_path)))
        url = stack.enter_context(background_app(service(live, limits=Limits(**limits)), for_others=False))
        yield live, urlsplit(url).port


def until(true):
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def update(port, **headers):
    return ask(port, "POST", "/v1/updates", BODY, content_type="application/json", **headers)


def head():
    """Of a request with BODY."""
    fields = "host: localhost\r\ncontent-type: application/json\r\nidempotency-key: a\r\n"
    return f"POST /v1/updates HTTP/1.1\r\n{fields}content-length: {len(BODY)}\r\n\r\n".encode()


def room_for(files):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))


def test_500_connections_are_held_and_more_are_refused(tmp_path):
    room_for(4 * MANY)
    with served(tmp_path, connections_max=MANY, head_ms_max=PATIENCE_S * 1000) as (live, port), ExitStack() as clients:
        held = [clients.enter_context(connected(port)) for _ in range(MANY - 10)]
        assert update(port)[0] == 200  # beside them
        until(lambda: metric(port, "livegnn_connections") == MANY - 9)
        held += [clients.enter_context(connected(port)) for _ in range(10)]
        until(lambda: is_full(port))
        for client in held[:20]:
            client.close()
        until(lambda: not is_full(port))
        assert metric(port, "livegnn_connections_refused_total") > 0
        held[-1].sendall(head() + BODY)
        assert held[-1].recv(12) == b"HTTP/1.1 200"
        assert live.version == 2


def is_full(port):
    with connected(port) as client:
        try:
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        except OSError:
            return True
        answer = read_all(client)
    if b" 200 " in answer[:20]:
        return False
    assert not answer or b'"ConnectionsFull"' in answer
    return True


@pytest.mark.parametrize(
    ("before", "answer"),
    [(b"POST /v1/upd", b""), (head() + BODY[:5], b"HTTP/1.1 408")],
    ids=["head", "body"],
)
def test_a_slow_loris_is_given_up_and_changes_nothing(tmp_path, before, answer):
    with served(tmp_path, head_ms_max=300, body_ms_max=300) as (live, port), ExitStack() as clients:
        slow = [clients.enter_context(connected(port)) for _ in range(20)]
        for client in slow:
            client.sendall(before)
        assert update(port)[0] == 200  # others are served meanwhile
        for client in slow:
            assert read_all(client)[:12] == answer
        until(lambda: metric(port, "livegnn_under_way_bytes") == 0)
        until(lambda: metric(port, "livegnn_connections") == 1)
        assert live.version == 1


def test_a_client_that_goes_mid_body_leaves_nothing(tmp_path):
    with served(tmp_path) as (live, port):
        for cut in (0, 1, len(BODY) - 1):
            client = connected(port)
            client.sendall(head() + BODY[:cut])
            client.close()
        until(lambda: metric(port, "livegnn_connections") == 1)
        assert metric(port, "livegnn_under_way_bytes") == 0
        assert (live.version, live.log.tail) == (0, 0)
        assert update(port, idempotency_key="a")[2]["repeated"] is False  # the key is free


def test_a_client_that_goes_before_the_answer_finds_it_by_its_key(tmp_path):
    with served(tmp_path) as (live, port):
        with live.graph.host.lock, connected(port) as client:
            client.sendall(head() + BODY)
            until(lambda: live.commits.waiting_requests or live._committer._under_way)
        until(lambda: live.version == 1)
        status, _, document = update(port, idempotency_key="a")
        assert (status, document["version"], document["repeated"]) == (200, 1, True)


def test_one_key_from_many_clients_at_once_is_one_batch(tmp_path):
    with served(tmp_path) as (live, port):
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(update(port, idempotency_key="one"))) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {(status, document["version"]) for status, _, document in answers} == {(200, 1)}
        assert live.version == 1
