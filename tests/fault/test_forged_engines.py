"""Saved engines whose checksum is right and whose contents are not: refused by name, in little memory, no crash."""

import os
import subprocess
import sys
from pathlib import Path

# columns that may be absent or of any number: what such a file means is another, whole engine
HARMLESS = (
    "loaded graph.option.feature_dtype none",
    "loaded graph.store.time",
    "loaded graph.store.type",
    "loaded graph.ids.text",
    "loaded scale.",
)


def test_contents_that_cannot_be_are_refused(tmp_path):
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.fault.forgeries", str(tmp_path)]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *wrong, last = done.stdout.splitlines()
    wrong = [line for line in wrong if not line.startswith(HARMLESS)]
    assert not wrong, "\n".join(wrong)
    assert int(last.removeprefix("tried ")) > 300
