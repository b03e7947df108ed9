"""Objects in processes of their own: calls, failures, environment, and that an idle one does not run."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.worker import Worker


class Echo:
    """What the tests call in another process."""

    def __init__(self, word: str) -> None:
        if word == "refused":
            raise ValueError("expected another word")
        self.word = word

    def say(self, count: int) -> str:
        return self.word * count

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def fail(self) -> None:
        raise ValueError("on purpose")

    def end(self) -> None:
        os._exit(3)

    def pid(self) -> int:
        return os.getpid()

    def collections(self) -> tuple[bool, int]:
        return gc.isenabled(), gc.get_freeze_count()


@pytest.fixture
def echo() -> Iterator[Worker]:
    with Worker(Echo, "a", environment={"SAID": "b", "HOME": None}) as worker:
        worker.result()
        yield worker


def state(pid: int) -> str:
    """The letter of the process's state: R, S, T (stopped) ..."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_calls_reach_the_object_of_another_process(echo: Worker) -> None:
    assert echo.call("say", 3) == "aaa"
    assert echo.call("pid") != os.getpid()
    assert (echo.call("variable", "SAID"), echo.call("variable", "HOME")) == ("b", None)


def test_garbage_is_collected_but_not_among_modules(echo: Worker) -> None:
    enabled, frozen = echo.call("collections")
    assert enabled
    assert frozen > 1000


def test_a_failed_call_is_told_with_its_traceback_and_the_next_one_works(echo: Worker) -> None:
    with pytest.raises(RuntimeError, match="on purpose"):
        echo.call("fail")
    assert echo.call("say", 1) == "a"


def test_a_process_that_ends_is_an_error(echo: Worker) -> None:
    with pytest.raises(RuntimeError, match=r"expected Echo to answer, got the end of its process \(3\)"):
        echo.call("end")


def test_an_object_that_cannot_be_made_is_an_error() -> None:
    with Worker(Echo, "refused") as worker, pytest.raises(RuntimeError, match="expected another word"):
        worker.result()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_between_calls_the_process_is_stopped_and_after_close_it_is_gone(echo: Worker) -> None:
    pid = echo.call("pid")
    deadline = time.monotonic() + 5
    while state(pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state(pid) == "T"
    echo.close()
    assert not Path(f"/proc/{pid}").exists()
