"""launch(): workers in processes; what they say to each other, and how they end."""

import time

import numpy as np
import pytest

from livegnn.distributed import TorchExchange, launch, run_threads
from livegnn.errors import UsageError, WorkerUnavailable
from tests.unit.distributed import workers


def test_workers_exchange_rows_of_uneven_lengths_and_return_results():
    first, second = launch(workers.talk, 2, ("hello",), timeout_s=60)
    assert first == second == ("hello", [0, 1], [1.0, 3.0, 5.0], 1)


def test_threads_are_the_same_to_what_runs_in_them():
    results = run_threads(lambda exchange: workers.talk(exchange, "hello")[:3], 3)
    assert results == [("hello", [0, 1, 2], [3.0, 6.0, 9.0])] * 3


def test_an_error_in_one_worker_ends_all_and_is_told():
    with pytest.raises(WorkerUnavailable, match="error in worker 1") as caught:
        launch(workers.fail_in_one, 2, timeout_s=60)
    assert "expected no mistake, got one" in str(caught.value)


def test_a_killed_worker_ends_all():
    began = time.monotonic()
    with pytest.raises(WorkerUnavailable, match="worker 0, which was killed by signal 9"):
        launch(workers.be_killed, 2, timeout_s=60)
    assert time.monotonic() - began < 50


def test_a_worker_that_is_killed_before_they_meet_is_the_cause(tmp_path):
    with pytest.raises(WorkerUnavailable, match=r"worker \d, which was killed by signal 9"):
        launch(workers.be_killed, 2, (workers.KilledOnTheWay(tmp_path),), timeout_s=60)


def test_a_worker_that_does_not_come_is_waited_for_no_longer_than_asked():
    with pytest.raises(WorkerUnavailable, match="error in worker 0"):
        launch(workers.hang_in_one, 2, timeout_s=4)


def test_a_worker_that_does_not_end_is_waited_for_no_longer_than_asked():
    began = time.monotonic()
    with pytest.raises(WorkerUnavailable, match=r"within 3 s of the first, got worker 1 still at work"):
        launch(workers.hang_at_the_end, 2, timeout_s=3)
    assert time.monotonic() - began < 50


def test_a_worker_that_has_finished_ends_with_what_its_libraries_left_behind(capfd):
    assert launch(workers.leave_work_behind, 2, timeout_s=60) == [0, 1]
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["worker 0 has finished", "worker 1 has finished"]


def test_a_kill_does_not_hide_the_error_of_another_worker():
    with pytest.raises(WorkerUnavailable, match="error in worker 1") as caught:
        launch(workers.fail_and_be_killed, 2, timeout_s=60)
    assert "expected no mistake, got one" in str(caught.value)


def test_a_thread_that_fails_ends_the_others():
    def work(exchange):
        if exchange.rank == 1:
            raise KeyError("mine")
        exchange.gather(np.zeros(1))

    with pytest.raises(KeyError, match="mine"):
        run_threads(work, 3)


def test_a_thread_that_is_late_is_an_error():
    def work(exchange):
        if exchange.rank == 0:
            exchange.gather(np.zeros(1))

    with pytest.raises(WorkerUnavailable, match="late"):
        run_threads(work, 2, timeout_s=0.2)


def test_refuses_wrong_arguments():
    for number in (0, 1.5):
        with pytest.raises(UsageError, match="at least one worker"):
            launch(workers.talk, number, ("x",))
    with pytest.raises(UsageError, match="timeout"):
        launch(workers.talk, 1, ("x",), timeout_s=0)
    with pytest.raises(UsageError, match="at least one worker"):
        run_threads(lambda exchange: None, 0)
    with pytest.raises(UsageError, match="process group"):
        TorchExchange()
    with pytest.raises(UsageError, match="a part for each of 1 workers"):
        run_threads(lambda exchange: exchange.swap([]), 1)
