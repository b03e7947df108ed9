"""An object in a process of its own: its maker calls its methods over a pipe, so that it shares neither a thread pool
nor an interpreter with another one.

The parent sends (factory, arguments) first and (method, arguments) afterwards, one at a time; the child answers each
with (True, result) or (False, traceback). Between calls the child is stopped (SIGSTOP): none of its threads spins while
another process is timed. It ends with its parent. `python -m benchmarks.worker FD` is the child.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PR_SET_PDEATHSIG = 1  # Linux: a signal for the child when its parent dies, which reaches a stopped one too


class Worker:
    """A process that made factory(*arguments). The child imports the factory by name; arguments and results are
    pickled."""

    def __init__(
        self, factory: Callable[..., Any], *arguments: Any, environment: Mapping[str, str | None] | None = None
    ) -> None:
        """Returns at once, `result` waits for the object.   environment: variables set, or removed (None), before the
        child starts."""
        self.name = factory.__name__
        variables = dict(os.environ)
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        for name, value in (environment or {}).items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = value
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "benchmarks.worker", str(theirs.fileno())]
        self._process = subprocess.Popen(command, env=variables, pass_fds=(theirs.fileno(),))
        theirs.close()
        self._pipe.send((factory, arguments))

    def send(self, method: str, *arguments: Any) -> None:
        """Start a call; `result` must follow before the next one."""
        self.resume()
        self._pipe.send((method, arguments))

    def result(self) -> Any:
        """What the call under way returned (the first: None, once the object is made).

        Raises:  RuntimeError with the child's traceback, or if the child has ended.
        """
        try:
            good, found = self._pipe.recv()
        except EOFError:
            code = self._process.wait()
            raise RuntimeError(
                f"[worker] expected {self.name} to answer, got the end of its process ({code})"
            ) from None
        self.pause()
        if not good:
            raise RuntimeError(f"[worker] expected {self.name} to answer, got in its process:\n{found}")
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        """Call and wait.   Raises: as `result`."""
        self.send(method, *arguments)
        return self.result()

    def pause(self) -> None:
        """Stop all threads of the process where they are."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped process go on."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(pipe: Connection) -> None:
    """The child: make the object, then answer calls until the pipe is closed.

    Collections of garbage walk through the modules that the object needs neither while they are loaded nor later.
    """
    made: Any = None
    gc.disable()
    try:
        while True:
            first, arguments = pipe.recv()
            try:
                if made is None:
                    made, found = first(*arguments), None
                    gc.freeze()
                    gc.enable()
                else:
                    found = getattr(made, first)(*arguments)
                answer = (True, found)
            except Exception:
                answer = (False, traceback.format_exc())
            pipe.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    serve(Connection(int(sys.argv[1])))
