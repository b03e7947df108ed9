"""A real server and clients that mean ill: they do not read, do not finish, and come in numbers."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import livegnn as lg
from livegnn import serve
from livegnn.serve import frames
from tests.serve.test_real_server import ROOT, await_start
from tests.unit.sampling.serving import Gated, small_sampler

WIDE = 4096


def wide_sampler():
    """Answers of 1.6 MB for ten seeds."""
    features = np.ones((20, WIDE), np.float32)
    return lg.PreSampler(lg.Graph(features, np.zeros(9, int), np.arange(9)), lg.query().out().sample(9))


@contextmanager
def served(sampler, **limits):
    """The port and the application's traffic."""
    with lg.SampleServer(sampler) as server, serve.background(server, limits=serve.Limits(**limits)) as url:
        yield urlsplit(url).port


def connected(port, receive_bytes=None):
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(30)
    client.connect(("127.0.0.1", port))
    return client


def head(path="/v1/sample", method="POST", **headers):
    lines = {"host": "localhost", "content-type": frames.CONTENT_TYPE, **headers}
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode()


def sample_request(seeds):
    body = frames.encode_request(np.zeros(seeds, np.int64))
    return head(content_length=len(body)) + body


def ask(port, method="GET", path="/v1/healthz", body=None, **headers):
    """Status, headers and document of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        text = response.read()
        return response.status, response.headers, json.loads(text) if path != "/metrics" else text.decode()
    finally:
        connection.close()


def metric(port, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", ask(port, path="/metrics")[2], re.MULTILINE)[1])


def until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def read_all(client):
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


PROGRAM = """
import sys
import livegnn as lg
from livegnn import serve
from tests.serve.test_hostile_clients import wide_sampler
with lg.SampleServer(wide_sampler()) as server:
    serve.run(server, port=int(sys.argv[1]), limits=serve.Limits(answer_ms_max=3000, under_way_bytes_max=64 << 20))
"""


@contextmanager
def server_process():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(port)], env=environment, cwd=ROOT) as process:
        try:
            await_start(port, process)
            yield port, process.pid
        finally:
            process.kill()


def resident_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")
def test_60_clients_that_do_not_read_cost_the_budget_and_then_nothing():
    """Their answers are of 17 MB, 1 GB together."""
    with server_process() as (port, pid), ExitStack() as clients:
        assert ask(port, "POST", "/v1/sample", b'{"seeds": [1]}', content_type="application/json")[0] == 200
        before = resident_bytes(pid)
        request = sample_request(100)
        for _ in range(60):
            clients.enter_context(connected(port, 4096)).sendall(request)
        until(lambda: metric(port, "livegnn_over_budget_total") > 0)
        peak = 0
        while metric(port, "livegnn_under_way_bytes") > 0:
            peak = max(peak, resident_bytes(pid))
            assert ask(port)[0] == 200  # others are answered meanwhile
        assert 0 < peak - before < 300 << 20
        assert metric(port, 'livegnn_connections_dropped_total{waited_for="answer"}') >= 3
        answer = connected(port)
        with answer:
            answer.sendall(sample_request(100).replace(b"host:", b"connection: close\r\nhost:", 1))
            body = read_all(answer).partition(b"\r\n\r\n")[2]
        assert frames.decode_sample(body).hops[0].shape == (100, 9)  # the memory is there again


def test_a_request_beyond_the_budget_changes_nothing():
    sampler = small_sampler()
    source = Gated(sampler)
    one = sample_size = len(frames.encode_sample(sampler.sample([1] * 50), features=True, edge_ids=True))
    with served(source, under_way_bytes_max=one + sample_size // 2) as port:
        holder = connected(port)
        with holder:
            holder.sendall(sample_request(50))
            assert source.entered.wait(30)
            status, headers, document = ask(
                port, "POST", "/v1/sample", frames.encode_request(np.zeros(50, int)), content_type=frames.CONTENT_TYPE
            )
            assert (status, document["error"]["kind"], headers["retry-after"]) == (503, "Overloaded", "1")
            assert document["error"]["retryable"]
            assert len(source.calls) == 1
            update = json.dumps({"updates": [{"op": "remove_vertex", "u": 1}] * 1, "pad": "x" * sample_size})
            status, _, document = ask(port, "POST", "/v1/updates", update, content_type="application/json")
            assert (status, document["error"]["kind"]) == (503, "Overloaded")
            assert sampler.version == 0
            source.gate.set()
            assert holder.recv(12) == b"HTTP/1.1 200"
        until(lambda: metric(port, "livegnn_under_way_bytes") == 0)
        assert metric(port, "livegnn_over_budget_total") == 2
        status, _, document = ask(
            port, "POST", "/v1/sample", frames.encode_request(np.zeros(1000, int)), content_type=frames.CONTENT_TYPE
        )
        assert (status, document["error"]["kind"]) == (413, "RequestTooLarge")


def test_connections_beyond_the_cap_are_refused_and_places_come_free():
    with served(small_sampler(), connections_max=3) as port, ExitStack() as clients:
        held = [clients.enter_context(connected(port)) for _ in range(3)]
        until(lambda: is_full(port))
        held.pop().close()
        until(lambda: not is_full(port))
        assert metric(port, "livegnn_connections_refused_total") > 0
        assert metric(port, "livegnn_connections") == 3


def is_full(port):
    """Whether a new connection is refused, in the envelope."""
    with connected(port) as client:
        client.sendall(head("/v1/healthz", "GET", connection="close"))
        answer = read_all(client)
    if b" 200 " in answer[:20]:
        return False
    if answer:  # where the connection was not reset before it was read
        assert b"HTTP/1.1 503 Service Unavailable" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["kind"] == "ConnectionsFull"
    return True


def dripping(client, parts, pause=0.02):
    """Sends one part after the other, until the server closes; seconds that took."""
    start = time.monotonic()
    try:
        for part in parts:
            client.sendall(part)
            time.sleep(pause)
        client.settimeout(0.01)
        client.recv(1)
    except OSError:
        pass
    return time.monotonic() - start


@pytest.mark.parametrize(
    "before",
    [
        b"",
        head("/v1/healthz", "GET"),
        head("/v1/nothing", content_length=10**6),
        head("/v1/sample", content_length=9**9),
    ],
    ids=["first head", "second head", "rest of a body after 404", "rest of a body after 413"],
)
def test_a_head_that_does_not_end_is_given_up(before):
    """One byte every 20 ms, for ever."""
    with served(small_sampler(), head_ms_max=300) as port, connected(port) as client:
        client.sendall(before)
        drip = [b"G", b"E", b"T", b" ", b"/", b" HTTP/1.1\r\n", *[b"a: b\r\n"] * 500]
        assert dripping(client, drip) < 5
        until(lambda: metric(port, "livegnn_connections") == 1)  # the one that asks


def test_a_connection_that_says_nothing_is_closed():
    with served(small_sampler(), head_ms_max=200, idle_ms_max=200) as port:
        with connected(port) as silent, connected(port) as idle:
            idle.sendall(head("/v1/healthz", "GET"))
            assert idle.recv(12) == b"HTTP/1.1 200"
            assert b"ok" in read_all(idle)
            assert read_all(silent) == b""
        assert metric(port, 'livegnn_connections_dropped_total{waited_for="head"}') == 1


def test_a_head_that_is_too_long_is_refused_and_trailers_are_not_kept():
    with served(small_sampler(), head_bytes_max=2000) as port:
        with connected(port) as client:
            client.sendall(head("/v1/healthz", "GET")[:-2])
            for _ in range(50):
                try:
                    client.sendall(b"pad: " + b"x" * 200 + b"\r\n")
                except OSError:
                    break
                time.sleep(0.002)
            answer = read_all(client)
        assert b"HTTP/1.1 431" in answer[:20] or not answer
        with connected(port) as client:  # as many bytes of trailers are no head
            body = b'{"seeds": [1]}'
            client.sendall(head(content_type="application/json", transfer_encoding="chunked", connection="close"))
            client.sendall(b"%x\r\n%s\r\n0\r\n" % (len(body), body))
            for _ in range(50):
                client.sendall(b"host: evil.example\r\n")
            client.sendall(b"\r\n")
            assert b"HTTP/1.1 200" in read_all(client)[:20]


def test_requests_sent_together_are_answered_one_by_one():
    with served(small_sampler(), head_bytes_max=1000) as port, connected(port) as client:
        threading.Thread(target=client.sendall, args=(sample_request(200) * 100,)).start()  # many heads cut in two
        client.settimeout(2)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 100:
            answers += client.recv(1 << 20)
        assert answers.count(b"HTTP/1.1") == 100


def test_what_is_no_http_is_refused_in_the_envelope():
    with served(small_sampler()) as port, connected(port) as client:
        client.sendall(b"\x16\x03\x01\x02\x00 hello\r\n\r\n")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["kind"] == "HeadInvalid"


def test_bodies_that_do_not_arrive_hold_what_they_brought_and_no_more():
    with served(small_sampler(), body_ms_max=400) as port, ExitStack() as clients:
        for _ in range(20):
            client = clients.enter_context(connected(port))
            client.sendall(head(content_length=1 << 20) + b"x" * 1000)
        until(lambda: metric(port, "livegnn_under_way_bytes") == 20_000)
        until(lambda: metric(port, "livegnn_under_way_bytes") == 0)
        assert b"HTTP/1.1 408" in read_all(client)[:20]


def test_a_client_that_reads_slowly_gets_all_of_its_answer():
    with served(wide_sampler(), idle_ms_max=50) as port, connected(port, 4096) as client:
        client.sendall(sample_request(100))
        parts = []
        for _ in range(20):  # a second, much longer than the connection may be idle
            parts.append(client.recv(1 << 16))
            time.sleep(0.05)
        body = b"".join([*parts, read_all(client)]).partition(b"\r\n\r\n")[2]
    assert frames.decode_sample(body).hops[0].shape == (100, 9)


def send_for_ever(client, requests):
    while True:
        client.sendall(requests)


def test_small_answers_that_are_not_read_end_the_connection():
    """Requests on one connection until the buffers of both ends are full, none of whose answers is read."""
    with served(wide_sampler(), answer_ms_max=300) as port, connected(port, 4096) as client:
        client.settimeout(20)
        with pytest.raises(ConnectionError):
            send_for_ever(client, sample_request(1) * 1_000)
        until(lambda: metric(port, "livegnn_under_way_bytes") == 0)
        assert metric(port, 'livegnn_connections_dropped_total{waited_for="answer"}') == 1


def test_the_token_is_checked_before_a_body_is_read():
    with ExitStack() as opened:
        server = opened.enter_context(lg.SampleServer(small_sampler()))
        url = opened.enter_context(serve.background(server, token="t"))
        client = opened.enter_context(connected(urlsplit(url).port))
        client.sendall(head(content_length=1000))  # and nothing more
        assert client.recv(12) == b"HTTP/1.1 401"


def test_updates_with_one_key_from_many_threads_are_applied_once():
    sampler = small_sampler()
    body = json.dumps({"updates": [{"op": "add_edge", "u": 5, "v": 9, "time": 60}]})
    with served(sampler) as port:
        answers = []

        def send():
            answers.append(
                ask(port, "POST", "/v1/updates", body, content_type="application/json", idempotency_key="one")
            )

        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sampler.version == 1
    assert {status for status, _, _ in answers} <= {200, 409}
    assert next(document for status, _, document in answers if status == 200) == {"version": 1, "updates": 1}
