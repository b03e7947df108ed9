"""livegnn run CONFIG: the pipes of a configuration without a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("msgspec")

from livegnn.cli import main
from tests.unit.deployment.world import prepared

CONFIG = """
[graph]
feature_width = 4
has_weight = true

[[source]]
name = "s"
kind = "csv"
path = "a.csv"
follow = true

[[source.update]]
op = "add_vertex"
u = "from"
x = ["a", "a", "a", "a"]
when = { kind = "vertex" }

[[source.update]]
op = "set_features"
u = "from"
x = ["a", "a", "a", "a"]
when = { kind = "row" }

[[source.update]]
op = "add_edge"
u = "from"
v = "to"
weight = "a"
when = { kind = "edge" }

[[source.update]]
op = "set_weight"
u = "from"
v = "to"
w = "a"
when = { kind = "weight" }
"""
ROWS = "kind,from,to,a\nvertex,0,,1\nvertex,1,,2\nedge,0,1,0.5\nrow,0,,3\nweight,0,1,0.25\nedge,0,9,1\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    prepared(tmp_path)
    (tmp_path / "livegnn.toml").write_text(CONFIG)
    (tmp_path / "a.csv").write_text(ROWS)
    return tmp_path / "livegnn.toml"


def test_it_takes_vertices_features_edges_and_weights(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import livegnn as lg

    assert main(["run", str(config), "--once"]) == 0
    assert "s: 6 records, 1 bad, 5 updates" in capsys.readouterr().out
    assert main(["run", str(config), "--once"]) == 0  # nothing is left
    with lg.Deployment(config, config.parent / "data", once=True) as one:
        assert one.graph.features().tolist() == [[3] * 4, [2] * 4]
        assert one.graph.edges()["weight"].tolist() == [0.25]


def test_a_signal_ends_it_cleanly(config: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "livegnn", "--plain", "run", str(config)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines).startswith("Version 0;")
        assert any("6 records, 1 bad, 5 updates" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert process.returncode == 130
    assert rest[-1].startswith("Interrupted; what was committed is durable")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "expected CONFIG, or --model, --features, --events, --out, got no --model"),
        (["livegnn.toml", "--events", "a.csv"], "expected CONFIG alone, which names its files, got --events"),
        (
            ["--model", "m", "--features", "f", "--events", "e", "--out", "o.csv", "--once"],
            "expected --once and --data",
        ),
        (["missing.toml"], "expected a configuration file, got none there"),
    ],
)
def test_mixtures_are_refused(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 1
    assert expected in capsys.readouterr().err


def test_a_configuration_without_sources_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "livegnn.toml"
    place.write_text("[graph]\nfeature_width = 4\n")
    assert main(["run", str(place)]) == 1
    assert f"expected a [[source]] in {place}, got none" in capsys.readouterr().err


def test_a_source_that_fails_is_an_exit_code(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(config), "--once"]) == 0
    (config.parent / "a.csv").write_text(ROWS[:30])  # shorter than the log says that it was
    assert main(["run", str(config), "--once"]) == 1
    assert "s failed: expected" in capsys.readouterr().out
