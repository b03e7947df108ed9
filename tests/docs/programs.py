"""Runs programs as `python -W ignore -c` does. Those that use PyG start as copies of a process that has loaded it: that
import takes most of such a program's time.

A copy is a process of its own: it has an empty __main__ and its own standard streams, and it ends as any process does.
"""

import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

_USES_PYG = re.compile(
    r"^(from|import) torch_geometric|livegnn\.temporal\.models|TemporalEngine|Trainer\(", re.MULTILINE
)


class Programs:
    """Starts the process with PyG at the first program that uses it; close() ends it."""

    def __init__(self) -> None:
        self._loaded: Any = None

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        """The program's exit code, and what it printed."""
        command = [sys.executable, "-W", "ignore", "-c", program]
        if _USES_PYG.search(program) is None:
            return subprocess.run(command, capture_output=True, text=True, check=False)
        if self._loaded is None:
            server = [sys.executable, "-W", "ignore", __file__]
            self._loaded = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with tempfile.TemporaryDirectory() as folder:
            source, out, err = (Path(folder) / name for name in ("program.py", "out", "err"))
            source.write_text(program)
            self._loaded.stdin.write(json.dumps([str(source), str(out), str(err)]) + "\n")
            self._loaded.stdin.flush()
            code = int(self._loaded.stdout.readline())
            return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())

    def close(self) -> None:
        if self._loaded is not None:
            with self._loaded:
                self._loaded.stdin.close()


def _serve() -> None:
    import torch_geometric  # noqa: F401

    gc.freeze()  # copies do not write to what they share
    for line in sys.stdin:
        source, out, err = json.loads(line)
        child = os.fork()
        if not child:
            return _become(Path(source).read_text(), out, err)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(program: str, out: str, err: str) -> None:
    """The rest of this process is the program's."""
    for path, number, flags in ((os.devnull, 0, os.O_RDONLY), (out, 1, os.O_WRONLY), (err, 2, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_CREAT), number)
    sys.argv, sys.path[0] = ["-c"], ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    _serve()
