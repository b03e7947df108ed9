"""`livegnn serve`, `verify`, `restore` and `token`: a service from a configuration to its earlier states."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from livegnn.cli import main
from livegnn.deployment import Registry, snapshots
from tests.unit.deployment.world import abandon, deployment, edge, model, prepared

ROOT = Path(__file__).parents[3]
CONFIG = """
[graph]
feature_width = 4
[[engine]]
name = "scores"
model = "fraud"
"""


@pytest.fixture
def config(tmp_path):
    prepared(tmp_path)
    path = tmp_path / "livegnn.toml"
    path.write_text(CONFIG)
    return path


def post(url, document, **headers):
    request = urllib.request.Request(
        url, json.dumps(document).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def test_a_service_from_its_configuration_to_the_signal_that_ends_it(config):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "livegnn", "--plain", "serve", str(config), "--port", "0"]
    for version in (1, 2):
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"(http://127\.0\.0\.1:\d+): version (\d+), scores \(fraud/1\)", line)
            assert found is not None, line
            assert int(found[2]) == version - 1
            added = {"op": "add_vertex", "u": version - 1, "x": [1.0, 2.0, 3.0, 4.0]}
            assert post(f"{found[1]}/v1/updates", {"updates": [added]})["version"] == version
            assert len(post(f"{found[1]}/v1/predict", {"ids": [version - 1]})["predictions"]) == 1
            server.send_signal(signal.SIGTERM)
            out, err = server.communicate(timeout=30)
        assert server.returncode == 0, err
        assert "what was acknowledged is durable" in out
    assert snapshots.listed(config.parent / "data")[-1].name == "000000000002"


def test_the_configuration_is_printed_with_its_defaults(config, capsys):
    assert main(["--plain", "serve", str(config), "--print-config"]) == 0
    assert {"feature_width = 4", 'mode = "eager"', "keep = 3"} <= set(capsys.readouterr().out.split("\n"))
    assert not (config.parent / "data").exists()


@pytest.mark.parametrize(
    ("more", "options", "missing"),
    [
        ("", ("--host", "0.0.0.0"), "a [[token]] and certificate and key"),
        (
            '[[token]]\nname = "a"\nsha256 = "' + "0" * 64 + '"',
            ("--host", "0.0.0.0"),
            "expected certificate and key for",
        ),
        ('[server]\ncertificate = "a.pem"', (), "expected certificate and key, got one"),
    ],
)
def test_an_open_address_is_refused_before_anything_starts(config, capsys, more, options, missing):
    config.write_text(CONFIG + more)
    assert main(["serve", str(config), *options]) == 1
    assert missing in capsys.readouterr().err
    assert not (config.parent / "data").exists()


def test_a_token_is_shown_once_and_its_hash_lets_it_in(config, capsys):
    assert main(["--plain", "token", "app", "--scope", "write"]) == 0
    out = capsys.readouterr().out
    token = re.search(r"shown once: (\S+)", out)
    assert token is not None
    config.write_text(CONFIG + out[out.index("[[token]]") :])
    assert main(["--plain", "serve", str(config), "--print-config"]) == 0
    assert token[1] not in config.read_text()


def test_verify_and_restore(tmp_path, capsys):
    prepared(tmp_path)
    Registry(tmp_path / "models").add("other", model(5))
    one = deployment(tmp_path).start()
    for u in range(3):
        one.apply(edge(u, u + 1))
    abandon(one)
    data, then = str(tmp_path / "data"), str(tmp_path / "then")
    assert main(["--plain", "verify", data]) == 0
    assert "log of 3 entries: sound" in capsys.readouterr().out
    assert main(["--plain", "restore", data, "--at", "2", "--to", then]) == 0
    assert "version 2" in capsys.readouterr().out
    assert main(["--plain", "restore", data, "--at", "2000-01-01", "--to", str(tmp_path / "before")]) == 0
    assert snapshots.listed(tmp_path / "before")[0].name == "000000000000"
    assert main(["restore", data, "--at", "soon", "--to", str(tmp_path / "no")]) == 1
    assert "a version or a time" in capsys.readouterr().err
    (snapshots.listed(tmp_path / "data")[0] / "graph.npz").write_bytes(b"damaged")
    assert main(["--plain", "verify", data]) == 1
    assert "expected" in capsys.readouterr().out
