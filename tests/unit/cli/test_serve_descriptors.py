"""The soft limit of open files is raised before a service listens."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import logging, resource
from livegnn.serve.descriptors import raise_limit
logging.basicConfig(format="%(message)s")
soft, hard = {soft}, {hard}
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(raise_limit({connections}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def _run(soft: int, hard: int, connections: int) -> tuple[str, str]:
    script = _SCRIPT.format(soft=soft, hard=hard, connections=connections)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def test_the_soft_limit_becomes_the_hard_one() -> None:
    assert _run(100, 400, 144) == ("400 400", "")


def test_a_hard_limit_that_is_too_low_is_logged() -> None:
    found, said = _run(100, 400, 145)
    assert found == "400 400"
    assert "expected room for 401 open files (145 connections and 256 more), got a limit of 400" in said
