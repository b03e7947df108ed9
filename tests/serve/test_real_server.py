"""The service behind uvicorn: real sockets, a real process, signals."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import livegnn as lg
from benchmarks.sampling.load import Load, apply_load
from livegnn import serve
from livegnn.errors import DataMissing, UsageError
from livegnn.serve import frames
from tests.unit.sampling.serving import VERTICES, Gated, small_sampler

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sampler():
    return small_sampler()


def post(url, document, **headers):
    request = urllib.request.Request(url, json.dumps(document).encode(), {"content-type": "application/json"} | headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def test_a_server_in_the_background(sampler):
    with lg.SampleServer(sampler, lambda features, masks: features[0]) as server:
        with serve.background(server, token="t") as url:
            document = post(f"{url}/v1/predict", {"seeds": [2, 3]}, authorization="Bearer t")
            np.testing.assert_array_equal(np.float32(document["predictions"]), sampler.graph.features([2, 3]))
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                post(f"{url}/v1/predict", {"seeds": [2]})
            refused.value.close()
        with pytest.raises(OSError, match="refused"):
            post(f"{url}/v1/predict", {"seeds": [2]})
        assert server.sample([1]).version == 0  # the sample server stays open


def test_one_connection_carries_many_requests(sampler):
    with lg.SampleServer(sampler) as server, serve.background(server) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        for seed in range(20):
            body = frames.encode_request(np.array([seed]))
            connection.request("POST", "/v1/sample", body, {"Content-Type": frames.CONTENT_TYPE})
            frame = frames.decode_sample(connection.getresponse().read())
            np.testing.assert_array_equal(frame.hops[1], sampler.sample([seed]).hop(2))
        connection.request("POST", "/v1/sample", iter([b'{"seeds":', b"[1]}"]), encode_chunked=True)
        assert json.load(connection.getresponse())["seeds"] == [1]
        connection.close()


def test_what_is_under_way_is_answered_before_the_end(sampler):
    source = Gated(sampler)
    answers = []
    with lg.SampleServer(source) as server:
        with serve.background(server) as url:
            client = threading.Thread(target=lambda: answers.append(post(f"{url}/v1/sample", {"seeds": [1]})))
            client.start()
            assert source.entered.wait(30)
            threading.Timer(0.2, source.gate.set).start()
        client.join()
    assert answers[0]["seeds"] == [1]


PROGRAM = """
import sys
import livegnn as lg
from livegnn import serve
from tests.unit.sampling.serving import small_sampler
with lg.SampleServer(small_sampler()) as server:
    serve.run(server, port=int(sys.argv[1]))
sys.stdout.write("ended in order")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_ends_in_order(number):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment, cwd=ROOT) as run:
        try:
            await_start(port, run)
            assert post(f"http://127.0.0.1:{port}/v1/sample", {"seeds": [1]})["version"] == 0
            run.send_signal(number)
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
    assert (run.returncode, out) == (0, b"ended in order"), err


def await_start(port, run):
    until = time.monotonic() + 60
    while run.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("the server did not start")


def test_load_in_both_loops(sampler):
    """The load generator's own test: every request is answered and counted, latencies are of this order."""
    with lg.SampleServer(sampler, lambda features, masks: features[0]) as server, serve.background(server) as url:
        closed = apply_load(Load(f"{url}/v1/sample", VERTICES, clients=4, seconds=0.5, warm_s=0.1))
        opened = apply_load(Load(f"{url}/v1/predict", VERTICES, rate=200, clients=8, seconds=0.5, seeds=3, json=True))
        wrong = apply_load(Load(f"{url}/v1/sample", 10 * VERTICES, rate=100, clients=4, seconds=0.5))
    assert closed.errors == opened.errors == {}
    assert closed.requests > 0  # how many is up to the machine
    assert closed.bytes == len(frames.encode_sample(sampler.sample([1]), features=True, edge_ids=False))
    assert 50 < opened.requests < 150
    assert 0 < opened.p50_ms <= opened.p99_ms <= opened.max_ms
    assert set(wrong.errors) == {"404"}


def test_a_stalled_server_is_charged_for_everyone_who_was_due(sampler):
    """No coordinated omission: one stall of 0.4 s is in the latencies of all that came due meanwhile."""
    source = Gated(sampler)
    source.gate.set()
    with lg.SampleServer(source) as server, serve.background(server) as url:
        threading.Thread(target=stall, args=(source, 0.4)).start()
        found = apply_load(Load(f"{url}/v1/sample", VERTICES, rate=200, clients=1, seconds=1.5, warm_s=0.0))
    assert found.errors == {}
    assert found.max_ms > 300
    assert found.p90_ms > 100


def stall(source, seconds):
    """Closes the gate for a while once requests have come."""
    while len(source.calls) < 20:
        time.sleep(0.001)
    source.gate.clear()
    time.sleep(seconds)
    source.gate.set()


def test_mistakes_of_the_operator(sampler, monkeypatch):
    with lg.SampleServer(sampler) as server:
        with pytest.raises(UsageError, match=r"a token for 0\.0\.0\.0"):
            serve.run(server, "0.0.0.0")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(UsageError, match=rf"a free address, got 127\.0\.0\.1 port {port}"):
                serve.run(server, port=port)
        for wrong in (99999, -1, "80"):
            with pytest.raises(UsageError, match="a port from 0 to 65535"):
                serve.run(server, port=wrong)
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        with pytest.raises(DataMissing, match=r"livegnn\[serve\]"):
            serve.run(server, port=0)
