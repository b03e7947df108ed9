"""docs/service-http.md: every route has a line of curl, and each line gets the status that it says."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import livegnn as lg
from livegnn.serve.runner import background_app
from livegnn.serve.service.app import HANDLERS, service
from livegnn.serve.update_frames import encode_updates
from tests.unit.deployment.test_over_workers import CLUSTER, crews  # noqa: F401
from tests.unit.deployment.timed import SAMPLER, TEMPORAL, graph, placed, put_sage
from tests.unit.deployment.world import deployment, prepared

PAGE = Path(__file__).parents[2] / "docs" / "service-http.md"
CONFIG = {"temporal": [TEMPORAL], "sampler": [SAMPLER], "readout": [{"name": "mean", "engine": "scores"}]}


OVER_WORKERS = ("/v1/admin/repartition",)  # refused by a service without


def lines():
    """The lines of curl, each with the status that it expects."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    found = []
    for line in "".join(blocks).splitlines():
        command, _, status = line.partition("  # ")
        found.append((command, int(status or 200)))
    return found


def route(command):
    """Method and path of a line."""
    path = re.search(r'"\$URL([^"?]*)', command)[1]
    has_body = "--json" in command or "--data" in command
    return "POST" if has_body or "-X POST" in command else "GET", path


def test_every_route_has_a_line():
    good = [route(command) for command, status in lines() if status == 200 or route(command)[1] in OVER_WORKERS]
    missing = [
        (method, path)
        for handler in HANDLERS
        for path in handler.paths
        for method in handler.http_methods
        if not any(method == asked and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", path), got) for asked, got in good)
    ]
    assert not missing


@pytest.fixture
def url(tmp_path):
    put_sage(placed(tmp_path))
    with deployment(tmp_path, graph, **CONFIG) as live, background_app(service(live), for_others=False) as place:
        yield place


@pytest.mark.usefixtures("crews")
def test_lines_for_workers_do_what_they_say(tmp_path):
    (line,) = (command for command, _ in lines() if route(command)[1] in OVER_WORKERS)
    with (
        deployment(prepared(tmp_path), cluster=CLUSTER) as live,
        background_app(service(live), for_others=False) as url,
    ):
        run = subprocess.run(
            f"{line} --silent", shell=True, env={**os.environ, "URL": url}, capture_output=True, check=True
        )
        assert json.loads(run.stdout)["workers"] == live.cluster.workers == 4


def test_each_line_gets_its_status(url, tmp_path):
    updates = lg.Updates()
    updates.add_edge(1, 2, time=100)
    (tmp_path / "batch.frame").write_bytes(encode_updates(updates))
    sink = io.BytesIO()
    table = pa.table({"src": [1], "dst": [2], "time": [100]})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "batch.arrow").write_bytes(sink.getvalue())
    wrong = []
    for command, status in lines():
        discard = "" if "--output" in command else " --output /dev/null"
        shown = f"{command} --silent --write-out '%{{http_code}}'{discard}"
        run = subprocess.run(
            shown, shell=True, cwd=tmp_path, env={**os.environ, "URL": url}, capture_output=True, text=True, check=False
        )
        if run.stdout != str(status):
            wrong.append((command, run.stdout, status))
    assert not wrong
    assert pa.ipc.open_stream((tmp_path / "rows.arrow").read_bytes()).read_all()["id"].to_pylist() == [4, 2]
