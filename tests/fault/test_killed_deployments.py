"""kill -9 of a deployment: every acknowledged batch is there once, and the state is that of a clean replay."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from livegnn.deployment import audit
from livegnn.log import UpdateLog, open_log
from tests.unit.deployment.world import deployment, edge, prepared

ROOT = Path(__file__).parents[2]
VICTIM = """
import sys, threading
from pathlib import Path
from tests.unit.deployment.world import deployment, edge
place = Path(sys.argv[1])
said = threading.Lock()
with deployment(place, snapshots={"every_entries": 3, "keep": 2}) as one:
    print("ready", flush=True)
    def write(writer):
        for k in range(10**6):
            one.apply(edge(k % 30, writer), key=f"{sys.argv[2]}-{writer}-{k}")
            with said:
                print(f"{sys.argv[2]}-{writer}-{k}", flush=True)
    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def killed(place, run, count, seconds):
    """The keys that a process acknowledged before it was killed: at least `count`."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", VICTIM, str(place), str(run)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        said = [process.stdout.readline() for _ in range(count)]
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    return [line[:-1] for line in said if line.endswith("\n") and line != "\n"]  # the last line may be half a one


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_is_there_once(tmp_path, seed):
    prepared(tmp_path)
    chance, acknowledged = random.Random(seed), []
    for run in range(3):
        acknowledged += killed(tmp_path, run, chance.randint(1, 40), chance.uniform(0, 0.01))
        with deployment(tmp_path, snapshots={"at_close": False}) as one:
            one.engine("scores").verify()
            for key in acknowledged:
                _, writer, k = map(int, key.split("-"))
                assert one.apply(edge(k % 30, writer), key=key).repeated, key
            edges = one.graph.edge_count
            with UpdateLog(open_log(f"sqlite:{tmp_path / 'data' / 'history.db'}", must_exist=True)) as log:
                assert edges == 90 + sum(len(entry.updates) for entry in log.read())
    assert acknowledged
    assert not [one for one in audit.verify(tmp_path / "data") if one.fault]
