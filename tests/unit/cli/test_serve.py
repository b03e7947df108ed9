"""livegnn serve, verify, restore and token: what they refuse, print and make."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from livegnn.cli import main
from livegnn.cli.serve import _time_ms
from livegnn.deployment import read_config, snapshots
from tests.serve.client import post
from tests.unit.deployment.world import deployment, edge, prepared

CONFIG = '[graph]\nfeature_width = 4\n[[engine]]\nname = "scores"\nmodel = "fraud"\n'
TOKEN = f'[[token]]\nname = "a"\nsha256 = "{"0" * 64}"\nscope = "read"\n'


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--demo", "livegnn.toml"], "expected --demo alone, which brings its own configuration, got a configuration"),
        (["--demo", "--print-config"], "expected --demo alone, which brings its own configuration, got --print-config"),
        (["--rate", "5"], "expected --rate with --demo, got none"),
        (["missing.toml"], "expected a configuration file, got none there"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 1
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "fast"])
def test_a_rate_is_a_number_above_0(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--demo", "--rate", rate])
    assert end.value.code == 2
    assert "argument --rate: expected a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ("", "a [[token]] and certificate and key"),
        (TOKEN, "certificate and key"),
        ('[server]\ncertificate = "c"\nkey = "k"\n', "a [[token]]"),
    ],
)
def test_others_need_a_token_over_tls(
    tmp_path: Path, lines: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "livegnn.toml"
    place.write_text(lines)
    assert main(["serve", str(place), "--host", "0.0.0.0"]) == 1
    assert f"[serve] expected {missing} for 0.0.0.0, which others can reach" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()  # nothing was opened


def test_a_printed_configuration_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, again = tmp_path / "livegnn.toml", tmp_path / "again.toml"
    place.write_text(TOKEN)
    assert main(["serve", str(place), "--print-config"]) == 0
    again.write_text(capsys.readouterr().out)
    assert read_config(again) == read_config(place)


@pytest.mark.parametrize("name", ["alice", 'of "Bob"', "C:\\new"])
def test_the_lines_of_a_token_let_it_in(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", name, "--scope", "write"]) == 0
    first, _, lines = capsys.readouterr().out.partition("\n")
    (tmp_path / "livegnn.toml").write_text(lines)
    (token,) = read_config(tmp_path / "livegnn.toml").token
    assert (token.name, token.scope) == (name, "write")
    assert hashlib.sha256(first.split()[-1].encode()).hexdigest() == token.sha256


def test_a_time_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", "America/New_York")
            time.tzset()
            found = [_time_ms(text) for text in ("1970-01-02", "1970-01-02T00:00Z", "1970-01-01T19:00-05:00")]
        assert found == [86_400_000] * 3
    finally:
        time.tzset()


def test_a_folder_is_verified_and_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = prepared(tmp_path)
    with deployment(place) as first:
        versions = [first.version]
        for u in range(3):
            first.apply(edge(u, u + 1))
            versions.append(first.version)
    assert main(["verify", str(place / "data")]) == 0
    assert "sound" in capsys.readouterr().out
    assert main(["restore", str(place / "data"), "--at", str(versions[1]), "--to", str(tmp_path / "then")]) == 0
    assert f"version {versions[1]}." in capsys.readouterr().out
    assert main(["restore", str(place / "data"), "--at", "2000-01-01", "--to", str(tmp_path / "before")]) == 0
    assert snapshots.listed(tmp_path / "before")[0].name == "000000000000"
    assert main(["restore", str(place / "data"), "--at", "noon", "--to", str(tmp_path / "other")]) == 1
    assert "[--at] expected a version or a time" in capsys.readouterr().err
    newest = max((place / "data" / "snapshots").iterdir())
    damaged = max((each for each in newest.iterdir() if each.suffix == ".npz"), key=lambda each: each.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    assert main(["verify", str(place / "data")]) == 1


def test_a_service_from_its_configuration_to_the_signal_that_ends_it(tmp_path):
    config = prepared(tmp_path) / "livegnn.toml"
    config.write_text(CONFIG)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
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
