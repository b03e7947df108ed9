"""The native peers of benchmarks/native, built by CMake with a core of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.report import Report

ROOT = Path(__file__).resolve().parent.parent


def program(name: str, report: Report) -> Path | None:
    """The compiled benchmarks/native/<name>.cc; None, with a line that says so, where CMake is not at hand.

    LIVEGNN_NATIVE_BENCHMARKS: a folder where they have been built; else build/benchmarks, brought up to date.
    Raises:  RuntimeError with what the compiler said.
    """
    given = os.environ.get("LIVEGNN_NATIVE_BENCHMARKS")
    if given:
        return Path(given) / name
    if shutil.which("cmake") is None:
        report.line(f"left out: cmake is not at hand to build benchmarks/native/{name}.cc")
        return None
    report.progress(f"building benchmarks/native/{name}.cc")
    folder = ROOT / "build" / "benchmarks"
    options = ["-DLIVEGNN_BUILD_BENCHMARKS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), *options]
    for command in (configure, ["cmake", "--build", str(folder), "--target", name, "-j", "2"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"[{name}] expected {' '.join(command)} to succeed, got {done.stderr[-2000:]}")
    return folder / name
