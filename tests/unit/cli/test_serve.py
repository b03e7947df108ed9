"""livegnn serve, verify, restore and token: what they refuse, print and make."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from livegnn.cli import main
from livegnn.deployment import read_config
from tests.unit.deployment.world import deployment, edge, prepared

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
    assert main(["restore", str(place / "data"), "--at", "noon", "--to", str(tmp_path / "other")]) == 1
    assert "[--at] expected a version or a time" in capsys.readouterr().err
    newest = max((place / "data" / "snapshots").iterdir())
    damaged = max((each for each in newest.iterdir() if each.suffix == ".npz"), key=lambda each: each.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-40])
    assert main(["verify", str(place / "data")]) == 1
