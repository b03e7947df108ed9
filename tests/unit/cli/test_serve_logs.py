"""livegnn serve as an operator sees it: JSON lines, what they never show, exit codes, readiness, status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("uvicorn")

from livegnn.cli import main
from livegnn.cli import serve as command
from livegnn.errors import LogUnavailable
from livegnn.serve.service.access import new_token
from tests.unit.deployment.world import prepared

SECRET_ID = 987_654
CONFIG = """
[graph]
feature_width = 4
[server]
access_log = true
log_level = "LEVEL"
[[engine]]
name = "scores"
model = "fraud"
[[token]]
name = "all"
sha256 = "SHA256"
scope = "admin"
"""


def ask(url, token, document=None):
    body = None if document is None else json.dumps(document).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.mark.parametrize("level", ["info", "debug"])
def test_a_service_says_what_it_does_and_no_secret(tmp_path, level, monkeypatch, capsys):
    token, sha256 = new_token()
    config = prepared(tmp_path) / "livegnn.toml"
    config.write_text(CONFIG.replace("LEVEL", level).replace("SHA256", sha256))
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(120)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NOTIFY_SOCKET": str(address)}
        arguments = [sys.executable, "-m", "livegnn", "serve", str(config), "--port", "0", "--log-format", "json"]
        with subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            lines = []
            while not lines or lines[-1]["event"] != "listening":
                lines.append(json.loads(server.stderr.readline()))
            assert manager.recv(100) == b"READY=1"
            url = lines[-1]["url"]
            added = {"op": "add_vertex", "u": 0, "x": [1.0, 2.0, 3.0, 4.0]}
            assert ask(f"{url}/v1/updates", token, {"updates": [added]}) == 200
            assert ask(f"{url}/v1/predict", token, {"ids": [SECRET_ID]}) == 404
            assert ask(f"{url}/v1/predict", "wrong-token", {"ids": [0]}) == 401
            assert ask(f"{url}/v1/admin/snapshot", token, {}) == 200
            assert ask(f"{url}/v1/admin/swap", token, {"engine": "scores", "model": "fraud/1"}) == 200
            monkeypatch.setenv("LIVEGNN_TOKEN", token)
            assert main(["status", url]) == 0
            shown = capsys.readouterr().out
            assert "ready" in shown
            assert re.search(r"livegnn_version +2", shown)
            monkeypatch.setenv("LIVEGNN_TOKEN", "wrong-token")
            assert main(["status", url]) == 1
            assert main(["status", url, "--quiet"]) == 0
            server.send_signal(signal.SIGTERM)
            out, err = server.communicate(timeout=120)
            assert manager.recv(100) == b"STOPPING=1"
    assert server.returncode == 0
    assert out == b""
    lines += [json.loads(line) for line in err.splitlines()]
    seen = [line["event"] for line in lines if line["event"] not in ("request", "request_refused", "message")]
    assert seen == ["starting", "recovered", "listening", "snapshot", "swap", "drain", "snapshot", "stopped"]
    text = json.dumps(lines)
    for secret in (token, sha256, "wrong-token"):
        assert secret not in text
    assert (str(SECRET_ID) in text) == (level == "debug")
    refused = [line for line in lines if line["event"] == "request_refused"]
    assert [(line["route"], line["status"], line["kind"]) for line in refused[:2]] == [
        ("/v1/predict", 404, "VertexUnknown"),
        ("/v1/predict", 401, "TokenInvalid"),
    ]
    requests = [line["route"] for line in lines if line["event"] == "request"]
    assert requests[:3] == ["/v1/updates", "/v1/admin/snapshot", "/v1/admin/swap"]
    assert main(["status", url]) == 1
    assert "expected an answer from" in capsys.readouterr().err


def test_a_failure_that_may_pass_has_its_exit_code(tmp_path, monkeypatch, capsys):
    def unreachable(*given, **more):
        raise LogUnavailable("[log] expected an answer, got none; start the broker")

    (tmp_path / "livegnn.toml").write_text("")
    monkeypatch.setattr(command, "Deployment", unreachable)
    assert main(["serve", str(tmp_path / "livegnn.toml")]) == 75
    assert "start the broker" in capsys.readouterr().err


def test_what_is_printed_is_what_counts(tmp_path, capsys):
    (tmp_path / "livegnn.toml").write_text("")
    arguments = ["serve", str(tmp_path / "livegnn.toml"), "--print-config", "--port", "9", "--log-format", "json"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "port = 9" in shown
    assert 'log = "json"' in shown
