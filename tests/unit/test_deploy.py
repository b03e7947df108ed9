"""deploy/: its files are well-formed, belong together, and name what a running service really has.

No container is run here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from livegnn.cli.app import make_parser
from livegnn.deployment import Registry, read_config
from livegnn.serve.service.app import service
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, edge, model, prepared

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NAMES = re.compile(r"\blivegnn_[a-z_]+")


def expressions():
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "livegnn.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    yield from (rule["expr"] for rule in rules)


def test_every_metric_that_is_shown_is_served(tmp_path):
    prepared(tmp_path)
    Registry(tmp_path / "models").add("other", model(3))
    config = {"engine": [{"name": "scores", "model": "fraud", "shadow": "other"}]}
    with deployment(tmp_path, **config) as one:
        one.apply(edge(1, 2))
        client = Client(service(one))
        client.get("/healthz")
        served = set(re.findall(r"^(livegnn_\w+)", client.get("/metrics").text, re.MULTILINE))
    named = {name for expression in expressions() for name in NAMES.findall(expression)}
    assert len(named) >= 20
    assert not named - served


def test_a_label_that_is_asked_for_is_served(tmp_path):
    prepared(tmp_path)
    with deployment(tmp_path) as one:
        one.apply(edge(1, 2))
        text = Client(service(one)).get("/metrics").text
    assert 'livegnn_freshness_seconds{quantile="0.99"}' in text
    assert 'livegnn_bytes{part="graph.' in text


def test_the_files_belong_together():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/livegnn.yaml").read_text())["providers"]
    services = compose["services"]
    (target,) = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in services
    assert source["url"] == "http://prometheus:9090"
    mounted = [volume.split(":") for one in services.values() for volume in one.get("volumes", [])]
    assert provider["options"]["path"] in [place for _, place, *_ in mounted]
    for source_path, place, *_ in mounted:
        if source_path.startswith("./"):
            assert (DEPLOY / source_path).exists() or place.endswith("models"), source_path
        else:
            assert source_path in compose["volumes"]
    assert (DEPLOY.parent / services["livegnn"]["build"]["dockerfile"]).is_file()
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "livegnn.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    config = read_config(DEPLOY / "livegnn.toml")
    assert config.models in [place for _, place, *_ in mounted]
    assert config.log.url.split("//")[1].split(":")[0] in services


def test_the_commands_are_ones_of_the_command_line():
    container = (DEPLOY / "Containerfile").read_text()
    lists = [json.loads(found) for found in re.findall(r"(?:ENTRYPOINT|CMD) (\[.*\])", container)]
    health, entry, rest = lists
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    unit = re.search(r"^ExecStart=(.*)$", (DEPLOY / "livegnn.service").read_text(), re.MULTILINE)
    assert unit is not None
    for command in (health, entry + rest, entry + services["livegnn"]["command"], unit[1].split()):
        assert Path(command[0]).name == "livegnn"
        assert make_parser().parse_args(command[1:]).command in ("serve", "status")


def test_the_container_copies_what_is_there():
    container = (DEPLOY / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", container, re.MULTILINE) for word in line.split()]
    assert {"pyproject.toml", "core", "src"} <= set(copied)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == set(copied)
    assert all((ROOT / name).exists() for name in copied)
    extras = re.search(r"whl\)\[([\w,]+)\]", container)
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(known)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["torch_geometric"] = None
from pathlib import Path
from tests.unit.deployment.world import deployment, edge
from livegnn.cli.app import make_parser
from livegnn.serve.service.app import service
with deployment(Path(sys.argv[1])) as one:
    one.apply(edge(1, 2))
    service(one)
    one.swap("scores", "fraud/1")
    print(one.version)
"""


def test_the_image_needs_no_torch(tmp_path):
    prepared(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "2\n", done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path):
    program = tmp_path / "livegnn"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = (DEPLOY / "livegnn.service").read_text().replace("/opt/livegnn/bin/livegnn", str(program))
    (tmp_path / "livegnn.service").write_text(
        unit.replace("Documentation=file:///usr/share/doc/livegnn/operations.md", "")
    )
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "livegnn.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    own = [line for line in (done.stderr + done.stdout).splitlines() if "livegnn.service" in line]
    assert not own, own
    assert done.returncode == 0, done.stderr
