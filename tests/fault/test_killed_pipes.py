"""kill -9 of a process with pipes: each record is once in the log or in the dead letters, as in a clean run.

The target of the sink gets each version at least once; what is not there was announced as missed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("pyarrow")

from livegnn.deployment import audit
from tests.brokers import MockKafka
from tests.unit.deployment.world import prepared
from tests.unit.pipes.flowing import EDGE, flowing, run_dry

ROOT = Path(__file__).parents[2]
VICTIM = """
import json, sys
from pathlib import Path
from tests.unit.pipes.flowing import flowing
place = Path(sys.argv[1])
sources, sinks = json.loads(sys.argv[2])
with flowing(place, sources, sinks, snapshots={"every_entries": 20, "keep": 3}) as one:
    print("ready", flush=True)
    one.pipes.wait()
    print("ended", flush=True)
    one.pipes.drain(60)
"""


def killed(place, sources, sinks, seconds):
    """Runs it for a while; whether its sources had ended before."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    command = [sys.executable, "-c", VICTIM, str(place), json.dumps([sources, sinks])]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        return process.stdout.read() == "ended\n"


def records(seed):
    """Edges; some to a vertex that is not there, some that are no rows."""
    chance = random.Random(seed)
    for k in range(1500):
        yield {"from": chance.randrange(30), "to": "?" if k % 97 == 5 else 31 if k % 53 == 7 else chance.randrange(30)}


def fill(place, kafka, seed):
    """Two sources of the same records, one after the other: files and a topic."""
    folder = place / "in"
    folder.mkdir(parents=True)
    rows = list(records(seed))
    for number in range(5):
        lines = "".join(f"{one['from']},{one['to']}\n" for one in rows[number * 300 : number * 300 + 300])
        (folder / f"{number}.csv").write_text("from,to\n" + lines)
    return [
        {"name": "files", "kind": "csv", "path": str(folder), "update": [EDGE], "batch": 7},
        {"name": "topic", "kind": "kafka", "url": kafka, "update": [EDGE], "batch": 11},
    ]


def letters(place):
    found = [json.loads(line) for line in (place / "data" / "dead-letters.jsonl").read_text().splitlines()]
    return sorted((one["source"], one["part"], one["place"], one["record"]) for one in found)


def edges(one):
    found = one.graph.edges()
    return sorted(zip(found["src"].tolist(), found["dst"].tolist(), strict=True))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 30))])
def test_each_record_is_there_once_as_in_a_clean_run(tmp_path, seed):
    kafka = MockKafka()
    url = kafka.url("records")
    for one in records(seed + 10):
        kafka.client.produce("records", json.dumps(one).encode(), partition=one["from"] % 2)
    kafka.client.flush(20)
    chance = random.Random(seed)
    place = tmp_path / "killed"
    place.mkdir()
    prepared(place)
    sources = fill(place, url, seed)
    sinks = [{"name": "out", "kind": "parquet", "path": str(place / "out")}]
    deaths = sum(not killed(place, sources, sinks, chance.uniform(0.02, 0.4)) for _ in range(4))
    assert deaths
    clean = tmp_path / "clean"
    clean.mkdir()
    prepared(clean)
    with flowing(clean, fill(clean, url, seed)) as one:
        run_dry(one)
        wanted = edges(one), letters(clean)
    with flowing(place, sources, sinks) as one:
        ended = run_dry(one)
        assert {state.life for state in ended.values()} == {"ended"}
        assert (edges(one), letters(place)) == wanted
        one.engine("scores").verify()
        assert one.pipes.drain(60)
        version = one.version
    assert not [found for found in audit.verify(place / "data") if found.fault]
    import pyarrow.parquet as pq

    rows = pq.read_table(place / "out").to_pylist()
    listed = {row["version"] for row in rows if row["event"] == "change"}
    missed = {k for row in rows if row["event"] == "missed" for k in range(row["missed_from"], row["version"] + 1)}
    assert listed | missed == set(range(1, version + 1))
    keys = [(row["version"], row["vertex"]) for row in rows if row["event"] == "change"]
    assert len(keys) == len(set(keys))
