"""`livegnn serve --workers N`: a worker is killed, then the service; what was acknowledged is there, bit for bit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from livegnn.cli import main
from tests.serve.client import post
from tests.unit.deployment.world import ENGINES, graph, model, prepared

CONFIG = """
models = "models"
[graph]
factory = "tests.unit.deployment.world:graph"
[[engine]]
name = "scores"
model = "fraud"
[cluster]
timeout_s = 20
snapshot_batches = 4
"""


def descendants(process):
    """Process ids below one, and the command of each."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(folder.name)] = int(fields[1]), (folder / "cmdline").read_text()
        except (OSError, IndexError):
            continue
    found, below = {}, {process}
    while below:
        below = {pid for pid, (parent, _) in parents.items() if parent in below} - set(found)
        found |= {pid: parents[pid][1] for pid in below}
    return found


def batch(rng):
    u, v, x = int(rng.integers(30)), int(rng.integers(30)), rng.normal(size=4).astype(np.float32).tolist()
    return [{"op": "add_edge", "u": u, "v": v}, {"op": "set_features", "u": v, "x": x}]


def as_updates(document):
    updates = lg.Updates()
    for each in document:
        if each["op"] == "add_edge":
            updates.add_edge(each["u"], each["v"])
        else:
            updates.set_features(each["u"], np.array(each["x"], np.float32))
    return updates


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # a short path: Ray's sockets lie in it
        yield prepared(Path(folder))


def test_a_service_over_workers_loses_nothing_that_it_acknowledged(place, capsys):
    (place / "livegnn.toml").write_text(CONFIG)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "RAY_TMPDIR": str(place)}
    command = [sys.executable, "-m", "livegnn", "--plain", "serve", str(place / "livegnn.toml"), "--port", "0"]
    engine, rng = lg.Engine(model(), graph(), threads=1), np.random.default_rng(7)
    with subprocess.Popen([*command, "--workers", "2"], env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+): version 0, scores \(fraud/1\); workers: 2", line)
        assert found is not None, line
        workers = [pid for pid, name in descendants(server.pid).items() if "RayWorker" in name]
        assert [os.getpriority(os.PRIO_PROCESS, each) for each in workers] == [os.getpriority(os.PRIO_PROCESS, 0)] * 2
        for number in range(10):
            if number in (3, 6):
                os.kill(workers[number // 6], signal.SIGKILL)
            document = batch(rng)
            answer = post(f"{found[1]}/v1/updates", {"updates": document}, **{"idempotency-key": f"k{number}"})
            assert answer["version"] == number + 1
            engine.apply(as_updates(document))
            if number == 7:
                said = post(f"{found[1]}/v1/admin/repartition", {"partition": "ldg", "workers": 3, "balance": "work"})
                assert (said["workers"], said["version"]) == (3, number + 1)
            rows = post(f"{found[1]}/v1/embeddings", {"ids": list(range(30))})
            assert rows["version"] == number + 1
            np.testing.assert_array_equal(np.array(rows["rows"], np.float32), engine.embeddings(range(30)))
        assert main(["--plain", "status", found[1]]) == 0
        assert capsys.readouterr().out.count("livegnn_worker_vertices") == 3
        left = descendants(server.pid)
        server.kill()
    config = {"models": str(place / "models"), **ENGINES}
    with lg.Deployment(config, place / "data") as alone:
        assert alone.engine("scores").state_digest() == engine.state_digest()
    until = time.monotonic() + 60
    while [pid for pid in left if Path(f"/proc/{pid}/cmdline").exists() and "RayWorker" in left[pid]]:
        assert time.monotonic() < until, "the workers of a service that was killed are there after a minute"
        time.sleep(0.2)
