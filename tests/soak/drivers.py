"""A driver of lg.Cluster in a process of its own, which can be killed: python -m tests.soak.drivers ADDRESS [HOST].

Questions come over its standard input and answers go to its standard output, pickled.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import livegnn as lg


class DriverProcess:
    """A process that makes or attaches to a cluster, as its caller sees it.

    prefix, environment, host: what runs it elsewhere, and the address there.
    """

    def __init__(
        self,
        address: str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        host: str | None = None,
    ) -> None:
        command = [*prefix, sys.executable, "-m", "tests.soak.drivers", address, *([] if host is None else [host])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def make(self, engine: lg.Engine, workers: int, **options: Any) -> tuple[int, str]:
        """lg.Cluster of the engine's model and graph; its version and digest."""
        return self.ask("make", engine.model.to_arrays(), engine.graph.to_arrays(), workers, options)

    def ask(self, *question: Any) -> Any:
        """An answer. Raises: EOFError where the process has ended."""
        self.send(*question)
        return self.answer()

    def send(self, *question: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        found = pickle.load(self._process.stdout)
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> bool:
        """SIGKILL; whether the answer to the last question had come. A second call does nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.stdin.closed:
            return False
        self._process.kill()
        self._process.wait()
        answered = bool(self._process.stdout.read())
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        return answered


_POOL = ThreadPoolExecutor(1)
_under_way: list[Future[None]] = []


def _answer(cluster: Any, address: str, verb: str, *given: Any) -> tuple[Any, Any]:
    if verb == "make":
        model, graph, workers, options = given
        cluster = lg.Cluster(lg.Model.from_arrays(*model), lg.Graph.from_arrays(graph), workers, address, **options)
    elif verb == "attach":
        cluster = lg.Cluster.attach(*given, address)
    elif verb == "apply":
        return cluster, cluster.apply(*given).version
    elif verb == "repartition":
        cluster.repartition(*given)
    elif verb == "begin_repartition":
        _under_way.append(_POOL.submit(cluster.repartition, *given))
    elif verb == "end_repartition":
        while _under_way:
            _under_way.pop().result()
    elif verb == "close":
        cluster.close()
        return cluster, None
    elif verb == "processes":
        return cluster, [facts["process"] for facts in cluster.report()]
    return cluster, (cluster.version, cluster.state_digest())


def main() -> None:
    answers, cluster = os.fdopen(os.dup(1), "wb"), None
    os.dup2(2, 1)  # what libraries print
    if len(sys.argv) > 2:  # Ray would take the address of another host from a file that all of them share here
        ray: Any = importlib.import_module("ray")
        ray.init(sys.argv[1], _node_ip_address=sys.argv[2], log_to_driver=False, logging_level="ERROR")
    while True:
        question = pickle.load(sys.stdin.buffer)
        try:
            cluster, answer = _answer(cluster, sys.argv[1], *question)
        except lg.errors.LiveGnnError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
