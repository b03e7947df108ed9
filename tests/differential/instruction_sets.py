"""A program under the kernels of an instruction set, which are chosen once per process."""

import os
import subprocess
import sys

import pytest

import livegnn as lg


def run(program: str, kernels: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    environment = {**os.environ, "LIVEGNN_KERNELS": kernels}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def outputs(program: str, kernels: str) -> list[str]:
    """What it prints with the generic kernels and with these, which must both work."""
    if kernels not in lg._native.cpu_features():
        pytest.skip(f"this machine has no {kernels}")
    runs = [run(program, each) for each in ("generic", kernels)]
    for each in runs:
        each.check_returncode()
    return [each.stdout for each in runs]
