"""RayGroup and run_workers(): what workers say to each other, how they end, and how they are replaced."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from livegnn.distributed import TorchExchange, call_lines, ray_group, run_threads, run_workers
from livegnn.distributed.parcel_links import ParcelSocket
from livegnn.distributed.ray_group import RayGroup
from livegnn.distributed.ray_worker import WorkerPlace
from livegnn.errors import InvariantBroken, UsageError, ValueInvalid, WorkerUnavailable
from tests.unit.distributed import workers


@pytest.fixture(scope="module")
def group(ray_cluster):
    """Two workers as a cluster has them, who fail and are replaced, test by test."""
    found = RayGroup("here", 2, backend=None, timeout_s=4, loads=["tests.unit.distributed.workers"])
    found.form()
    assert found.starts == [1, 1]
    yield found
    found.close()


@pytest.fixture(scope="module")
def training_group(ray_cluster):
    """Two that train."""
    found = RayGroup("here", 2, timeout_s=4, loads=["tests.unit.distributed.workers"])
    found.form()
    assert found.starts == [1, 1]
    yield found
    found.close()


@pytest.fixture(params=["call", "call_soon"])
def ask(request, group):
    """Both ways of a call."""
    return getattr(group, request.param)


def test_workers_exchange_rows_of_uneven_lengths_and_return_results(training_group):
    training_group.form()
    starts = [*training_group.starts]
    first, second = training_group.call(workers.with_exchange, workers.talk, "hello")
    assert first == second == ("hello", [0, 1], [1.0, 3.0, 5.0], 1)
    assert training_group.starts == starts
    assert len(set(training_group.pids)) == 2


def test_workers_of_a_cluster_load_no_torch(group):
    """It would take seconds of each start, and memory."""
    assert group.call(workers.has_torch) == [False, False]


def test_links_join_all_workers_and_those_of_one_host_are_near(group):
    assert group.call(workers.swap_on_links) == [[1], [0]]


def test_threads_are_the_same_to_what_runs_in_them():
    results = run_threads(lambda exchange: workers.talk(exchange, "hello")[:3], 3)
    assert results == [("hello", [0, 1, 2], [3.0, 6.0, 9.0])] * 3


def test_each_worker_gets_arguments_of_its_own_and_keeps_what_it_is_given(group, ask):
    assert ask(workers.keep, "x", each=[(3,), (5,)]) == [(0, 3, "x"), (1, 5, "x")]
    assert group.call(workers.kept) == [3, 5]


def test_workers_collect_garbage_but_not_among_their_modules(group):
    for enabled, frozen in group.call(workers.collections):
        assert enabled
        assert frozen > 20_000


def test_an_error_of_livegnn_in_one_worker_is_raised_as_it_is(group, ask):
    group.call(workers.keep, "x", each=[(3,), (5,)])
    began, formations, starts = time.monotonic(), group.formations, [*group.starts]
    with pytest.raises(ValueInvalid, match=r"^\[here\] expected no mistake, got one; fix it\n") as caught:
        ask(workers.over_links, workers.fail_in_one)
    assert "in worker 1" in caught.value.__notes__[0]
    assert time.monotonic() - began < 3.5  # the other one did not wait for its timeout
    assert group.lost is None
    assert group.call(workers.kept) == [3, 5]  # formed anew, of the same processes
    assert (group.formations, group.starts) == (formations + 1, starts)


def ended(aside):
    until = time.monotonic() + 30
    while not aside.done():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("keep", [False, True])
def test_calls_go_on_next_to_those_made_aside(group, ray_cluster, keep):
    group.call(workers.keep, "x", each=[(3,), (5,)])
    aside = group.aside(workers.wait_for, each=[(13,), (15,)], keep=keep)
    assert group.call(workers.kept) == [3, 5]
    assert not aside.done()
    group.call(workers.keep, "x", each=[(13,), (5,)])
    assert not aside.done()  # worker 1 waits
    group.call(workers.keep, "x", each=[(13,), (15,)])
    ended(aside)
    results = ray_cluster.get(aside.results()) if keep else aside.results()
    assert results == [(0, 13), (1, 15)]


def test_an_error_aside_leaves_the_workers_joined(group):
    group.form()
    formations = group.formations
    aside = group.aside(workers.fail_aside, keep=False)
    with pytest.raises(ValueInvalid, match="no mistake") as caught:
        aside.results()
    assert "in worker 1" in caught.value.__notes__[0]
    assert group.call(workers.over_links, workers.greet, "hello")[0][0] == "hello"
    assert group.formations == formations


def test_what_goes_on_aside_ends_with_its_worker(group):
    aside = group.aside(workers.wait_for, each=[("never",), ("never",)], keep=False)
    for process in group.pids:
        os.kill(process, signal.SIGKILL)
    ended(aside)
    with pytest.raises(WorkerUnavailable, match="expected 2 workers to finish"):
        aside.results()
    with pytest.raises(WorkerUnavailable):
        group.call(workers.kept)


def test_a_worker_that_is_not_done_aside_is_ended(group):
    group.call(workers.keep, "x", each=[(3,), (5,)])
    starts = list(group.starts)
    aside = group.aside(workers.wait_for, each=[(3,), ("never",)], keep=True)
    with pytest.raises(WorkerUnavailable, match="expected workers to end within 4 s"):
        aside.results()
    assert group.call(workers.kept) == [3, None]
    assert group.starts == [starts[0], starts[1] + 1]


def test_that_no_ray_is_started_to_look_at_what_was_done_aside(ray_cluster, group, monkeypatch):
    aside = group.aside(workers.kept, keep=False)
    ended(aside)
    with monkeypatch.context() as patched:
        patched.setattr(ray_cluster, "is_initialized", lambda: False)
        patched.setattr(ray_cluster, "wait", None)
        assert aside.done()
        with pytest.raises(WorkerUnavailable, match="Ray to go on"):
            aside.results()
    assert len(aside.results()) == 2


def test_a_worker_that_joined_in_vain_meets_one_that_is_new(ray_cluster, training_group):
    group = training_group
    group.form()
    alone = group._actors[0]
    ray_cluster.get(alone.ready.remote(0, []))  # it leaves the group
    place = ray_cluster.get(alone.open_store.remote(0, "127.0.0.1", 1.0))
    failure = ray_cluster.get(alone.join.remote(0, "in-vain", place, "gloo", 1.0))
    assert "expected 2 workers to meet" in failure.text
    os.kill(group.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerUnavailable):
        group.call(workers.with_exchange, workers.talk, "hello")
    assert [word for word, *_ in group.call(workers.with_exchange, workers.talk, "hello")] == ["hello"] * 2


def test_a_worker_that_linked_in_vain_meets_one_that_is_new(ray_cluster, group):
    group.form()
    alone = group._actors[0]
    ray_cluster.get(alone.ready.remote(0, []))  # it leaves the group
    place = ray_cluster.get(alone.listen.remote(0, "127.0.0.1"))
    failure = ray_cluster.get(alone.link.remote(0, "in-vain", [place] * 2, 0.5))
    assert "expected 2 workers to connect within 0.5 s" in failure.text
    failure = ray_cluster.get(alone.link.remote(0, "in-vain", [place] * 2, 0.5))
    assert "expected worker 0 to listen" in failure.text
    os.kill(group.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerUnavailable):
        group.call(workers.over_links, workers.greet, "hello")
    assert [word for word, *_ in group.call(workers.over_links, workers.greet, "hello")] == ["hello"] * 2


@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_is_lost_while_all_link_costs_no_other_one(group, monkeypatch, lost):
    """One that accepts would wait for one after it, and be ended."""
    group.form()
    group._joined, starts = False, list(group.starts)
    over_ray, answers = group._over_ray, group._answers

    def listened(refs, patience_s=None):
        found = over_ray(refs, patience_s)
        if isinstance(found[0], WorkerPlace):
            os.kill(group.pids[lost], signal.SIGSTOP)
        return found

    def linking(asked, patience_s=None, *, gives_up=False):
        if gives_up:
            os.kill(group.pids[lost], signal.SIGKILL)
        return answers(asked, patience_s, gives_up=gives_up)

    with monkeypatch.context() as patched:
        patched.setattr(group, "_over_ray", listened)
        patched.setattr(group, "_answers", linking)
        with pytest.raises(WorkerUnavailable, match=f"worker {lost}, which has died"):
            group.form()
    group.form()
    starts[lost] += 1
    assert group.starts == starts


def test_that_training_groups_take_no_calls_over_lines(training_group):
    with pytest.raises(InvariantBroken):
        training_group.call_soon(workers.kept)


class Interrupted:
    """In place of a function: the nth call is interrupted."""

    def __init__(self, goes_on, nth):
        self.goes_on, self.left = goes_on, nth

    def __call__(self, *given):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.goes_on(*given)


@pytest.mark.parametrize(
    ("owner", "name", "nth"),
    [(ParcelSocket, "send", 1), (ParcelSocket, "send", 2), (ParcelSocket, "take", 1), (call_lines, "wait_for", 1)],
)
def test_a_call_that_was_interrupted_leaves_no_answer_for_the_next(group, monkeypatch, owner, name, nth):
    group.form()
    with monkeypatch.context() as patched:
        interrupted = Interrupted(getattr(owner, name), nth)
        patched.setattr(owner, name, lambda *given: interrupted(*given))
        with pytest.raises(KeyboardInterrupt):
            group.call_soon(workers.over_links, workers.greet_later, "first")
    for word in ("second", "third"):
        assert [found[0] for found in group.call_soon(workers.over_links, workers.greet, word)] == [word] * 2
        assert group.call_soon(workers.keep, word, each=[(1,), (2,)]) == [(0, 1, word), (1, 2, word)]


def test_a_call_of_a_group_that_was_formed_anew_is_not_carried_out(group):
    group.call(workers.keep, "x", each=[(3,), (5,)])
    formed = group._formed
    group._joined = False
    group.form()
    answers = group._answers(group._lines.ask((group._formed, 0, (workers.kept, ())), [()] * 2))
    assert answers == [3, 5]
    with pytest.raises(WorkerUnavailable, match="has left the group of this call"):
        group._answers(group._lines.ask((formed, 0, (workers.keep, ("x",))), [(13,), (15,)]))
    assert group.call(workers.kept) == [3, 5]


def test_an_answer_that_cannot_be_pickled_is_shown_and_costs_no_worker(group, ask):
    group.form()
    pids = list(group.pids)
    with pytest.raises(WorkerUnavailable, match=r"(?i)pickle"):
        ask(workers.unpicklable)
    group.form()
    assert group.pids == pids


def test_a_worker_that_cannot_be_reached_is_replaced(group, monkeypatch):
    group.form()
    starts, place = list(group.starts), call_lines.CallPlace("here", 1, b"")

    def refuse(places, timeout_s):
        raise call_lines.LineRefused(1, place, OSError("no route"))

    group._joined = False
    with monkeypatch.context() as patched:
        patched.setattr(ray_group, "CallLines", refuse)
        with pytest.raises(WorkerUnavailable, match=r"worker 1, which cannot be reached at here:1") as caught:
            group.form()
    assert caught.value is group.lost
    assert group.call_soon(workers.over_links, workers.greet, "hello")[0][0] == "hello"
    assert group.starts == [starts[0], starts[1] + 1]


def test_an_error_of_a_task_is_no_death(ray_cluster, group):
    """Ray gives an error of a task the class of its cause, too."""

    class TaskError(ray_cluster.exceptions.RayError, OSError):
        pass

    class Asked:
        def take(self, rank):
            raise TaskError("no disk")

    group.form()
    pids = list(group.pids)
    assert group._received(Asked(), 0).text == "no disk"
    assert group.call(workers.over_links, workers.greet, "hello")[0][0] == "hello"
    assert group.pids == pids


def test_clients_of_ray_are_refused():
    with pytest.raises(UsageError, match=r"got a client's address, ray://here:1; run"):
        RayGroup("here", 2, address="ray://here:1")


def test_another_error_is_shown(group, ask):
    with pytest.raises(WorkerUnavailable, match="error in worker 1") as caught:
        ask(workers.over_links, workers.break_in_one)
    assert "ZeroDivisionError" in str(caught.value)
    assert group.lost is None


def test_an_error_of_one_that_is_killed_a_moment_later_is_the_cause(group):
    with pytest.raises(ValueInvalid, match="no mistake"):
        group.call(workers.over_links, workers.fail_and_be_killed)


def test_a_killed_worker_is_replaced_and_the_other_keeps_what_it_has(group, ask):
    group.call(workers.keep, "x", each=[(3,), (5,)])
    starts = list(group.starts)
    with pytest.raises(
        WorkerUnavailable, match=r"^\[here\] expected 2 workers to finish, got worker 0, which"
    ) as caught:
        ask(workers.over_links, workers.be_killed)
    assert caught.value is group.lost
    assert group.call(workers.kept) == [None, 5]
    assert group.starts == [starts[0] + 1, starts[1]]


def test_a_worker_killed_from_outside_before_a_call_is_found_by_it(group, ask):
    group.form()
    os.kill(group.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerUnavailable, match="worker 1, which has died"):
        ask(workers.over_links, workers.greet, "hello")
    assert group.call(workers.over_links, workers.greet, "hello")[0][0] == "hello"


@pytest.mark.parametrize("fn", [workers.hang_in_one, workers.hang_at_the_end])
def test_a_worker_that_hangs_is_ended_and_replaced(group, fn):
    group.form()
    starts, began = list(group.starts), time.monotonic()
    with pytest.raises(WorkerUnavailable, match="worker 1, which did not answer in time") as caught:
        group.call(workers.over_links, fn)
    assert 3.5 < time.monotonic() - began < 30
    assert caught.value is group.lost
    group.form()
    assert group.starts == [starts[0], starts[1] + 1]


def test_a_worker_that_is_paused_is_ended_and_replaced(group, ask):
    group.form()
    pid, starts = group.pids[0], list(group.starts)
    pause = threading.Timer(0.5, os.kill, (pid, signal.SIGSTOP))
    pause.start()
    with pytest.raises(WorkerUnavailable, match="worker 0, which did not answer in time"):
        ask(workers.over_links, workers.go_on)
    pause.join()
    group.form()
    assert group.starts == [starts[0] + 1, starts[1]]


def test_run_workers_starts_and_ends_its_own(ray_cluster):
    each = [("a",), ("c",), ("d",)]
    assert run_workers(workers.swap_parcels, 3, ("b",), each=each, timeout_s=60) == ["a0b", "c1b", "d2b"]
    with pytest.raises(
        WorkerUnavailable,
        match=r"^\[run_workers\] expected 2 workers to finish, got an error in worker 1(.|\n)*no mistake",
    ):
        run_workers(workers.fail_in_one, 2, timeout_s=60)


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


def test_workers_that_wait_for_other_processes_are_named(ray_cluster, monkeypatch, caplog):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    monkeypatch.setattr(os, "getpriority", lambda which, who: own - 1)  # here alone
    group = RayGroup("here", 1, backend=None)
    group.form()
    wanted = f"[here] expected workers of this process's niceness, got {own} (by default"
    assert [line for line in caplog.messages if line.startswith(wanted)]
    caplog.clear()
    os.kill(group.pids[0], signal.SIGKILL)
    with pytest.raises(WorkerUnavailable):
        group.call(repr)
    group.form()
    assert not caplog.messages  # once
    group.close()
    monkeypatch.undo()
    caplog.clear()
    group = RayGroup("here", 1, backend=None)
    group.form()
    assert not caplog.messages
    group.close()


def test_refuses_wrong_arguments(ray_cluster):
    for number in (0, 1.5):
        with pytest.raises(UsageError, match="at least one worker"):
            run_workers(workers.talk, number, ("x",))
    with pytest.raises(UsageError, match=r"a GPU for each of 9 workers, got \d"):
        run_workers(workers.talk, 9, ("x",), backend="nccl")
    with pytest.raises(UsageError, match=r"not connected to Ray, or to 192.0.2.9:1, got one at"):
        run_workers(workers.talk, 1, ("x",), address="192.0.2.9:1")
    with pytest.raises(UsageError, match="at least one worker"):
        run_threads(lambda exchange: None, 0)
    with pytest.raises(UsageError, match="process group"):
        TorchExchange()
    with pytest.raises(UsageError, match="a part for each of 1 workers"):
        run_threads(lambda exchange: exchange.swap([]), 1)
