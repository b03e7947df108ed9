"""Load on the routes of samples, from a process of its own: `python -m benchmarks.sampling.load --url URL --rate 2500`.

benchmarks/http_load.py says how it is measured. Prints one JSON object: LoadResult.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from benchmarks.http_load import LoadResult, Pace, driven, request
from livegnn.serve import frames


@dataclass(frozen=True)
class Load:
    """What to send. rate: an open loop of so many requests a second; None: a closed loop of `clients`.

    clients: connections in either case.  seeds_max: seeds are drawn below it.  seeds: of one request.  json: bodies in
    JSON, else binary frames.  warm_s: time before the measured one.
    """

    url: str
    seeds_max: int
    rate: float | None = None
    clients: int = 200
    seconds: float = 10.0
    warm_s: float = 1.0
    seeds: int = 1
    json: bool = False
    token: str | None = None
    core: int | None = None
    seed: int = 0


def apply_load(load: Load) -> LoadResult:
    """Runs the load in a process of its own, pinned to `core` where given."""
    arguments = [part for name, value in asdict(load).items() for part in _argument(name, value)]
    command = [sys.executable, "-m", "benchmarks.sampling.load", *arguments]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if run.returncode:
        raise RuntimeError(f"[load] expected a result, got exit code {run.returncode}: {run.stderr[-2000:]}")
    return LoadResult(**json.loads(run.stdout))


def _argument(name: str, value: object) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    return [flag] if value is True else [flag, str(value)]


def _requests(load: Load) -> Iterator[bytes]:
    """Whole requests as bytes, made beforehand and repeated."""
    random_seeds = np.random.default_rng(load.seed).integers(0, load.seeds_max, (4096, load.seeds))
    kind = "application/json" if load.json else frames.CONTENT_TYPE
    token = "" if load.token is None else f"Authorization: Bearer {load.token}\r\n"
    made = []
    for seeds in random_seeds:
        document = {"seeds": seeds.tolist()}
        if load.json and urlsplit(load.url).path.endswith("sample"):
            document |= {"edge_ids": False}
        body = json.dumps(document).encode() if load.json else frames.encode_request(seeds, edge_ids=False)
        made.append(request(load.url, body, kind, token))
    return itertools.cycle(made)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling.load", description="load on a livegnn service")
    parser.add_argument("--url", required=True, help="of the route, as in http://127.0.0.1:8000/v1/sample")
    parser.add_argument("--seeds-max", type=int, required=True, help="seeds are drawn below it")
    parser.add_argument("--rate", type=float, help="requests a second of an open loop; without it a closed loop")
    parser.add_argument("--clients", type=int, default=200, help="connections (default 200)")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-s", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1, help="of one request (default 1)")
    parser.add_argument("--json", action="store_true", help="bodies in JSON instead of binary frames")
    parser.add_argument("--token", help="bearer token")
    parser.add_argument("--core", type=int, help="the core to run on")
    parser.add_argument("--seed", type=int, default=0, help="of the seeds and the gaps")
    load = Load(**vars(parser.parse_args()))
    if load.core is not None:
        os.sched_setaffinity(0, {load.core})
    pace = Pace(load.rate, load.clients, load.seconds, load.warm_s, load.seed)
    result = driven(load.url, pace, _requests(load))
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
