"""RayHosts over a stand-in for Ray: when actors are started again, and which workers readers pass over."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from livegnn.distributed.sampling_host import actors
from livegnn.distributed.sampling_host.actors import RayHosts
from livegnn.distributed.sampling_host.config import Hosting
from livegnn.distributed.sampling_host.worker_host import HostStatus, RefusedRead
from livegnn.errors import VertexUnknown, WorkerUnavailable
from livegnn.sampling import ReadOptions
from livegnn.sampling.presample.source import Response

HOSTING = Hosting(poll_ms=100, hung_timeout_ms=1000, startup_timeout_ms=5000, turn_timeout_ms=3000)


class RayActorError(Exception):
    pass


class ActorDiedError(RayActorError):
    pass


class GetTimeoutError(Exception):
    pass


class Actor:
    """answers: what a look or a question gives; None: nothing comes."""

    def __init__(self):
        self.answers = None
        self.status = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: (self, object())))
        self.answer = SimpleNamespace(remote=lambda *_: (self, object()))


class Ray:
    exceptions = SimpleNamespace(
        RayActorError=RayActorError, ActorDiedError=ActorDiedError, GetTimeoutError=GetTimeoutError
    )

    def __init__(self, clock):
        self.clock, self.actors, self.killed = clock, [], []

    def remote(self, **_):
        def made(*_):
            self.actors.append(Actor())
            return self.actors[-1]

        return lambda kind: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=made))

    def wait(self, looks, *, num_returns=1, timeout):
        self.clock.now += timeout
        return [look for look in looks if look[0].answers is not None], []

    def get(self, look, timeout=None):
        if look[0].answers is None:
            self.clock.now += timeout
            raise GetTimeoutError
        if isinstance(look[0].answers, Exception):
            raise look[0].answers
        return look[0].answers

    def kill(self, actor, no_restart=True):
        self.killed.append((self.actors.index(actor), no_restart))


def status(step=3, turn_seconds=0.0, niceness=0):
    return HostStatus(1, step, turn_seconds, 0.0, 0.0, 0.0, "", niceness)


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=50.0)
    monkeypatch.setattr(actors, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def ray(clock):
    return Ray(clock)


@pytest.fixture
def hosts(ray, clock):
    found = RayHosts(ray, "folder", SimpleNamespace(to_json=lambda: "{}"), HOSTING)
    found.start("serving", 4)
    return found


def pass_time(hosts, clock, seconds):
    """Turns of the coordinator in the meantime; the last progress."""
    for _ in range(round(seconds / 0.05)):
        clock.now += 0.05
        found = hosts.progress()
    return found


def test_progress_is_what_workers_said_last(ray, hosts, clock):
    hosts.start("serving", 4)  # it is there
    assert hosts.progress() == {("serving", 4): None}
    assert hosts.is_down(4)
    ray.actors[0].answers = status(7)
    assert pass_time(hosts, clock, 0.3) == {("serving", 4): 7}
    assert not hosts.is_down(4)
    assert hosts.is_down(5)
    assert (list(hosts), len(hosts)) == ([4], 1)
    with pytest.raises(WorkerUnavailable, match="expected serving worker 5 to be hosted"):
        hosts[5]
    hosts.close()
    assert (hosts.progress(), ray.killed) == ({}, [(0, True)])


def test_a_worker_that_says_nothing_is_killed_and_ray_starts_it_again(ray, hosts, clock):
    ray.actors[0].answers = status()
    pass_time(hosts, clock, 0.3)
    ray.actors[0].answers = None
    pass_time(hosts, clock, 0.9)
    assert ray.killed == []
    pass_time(hosts, clock, 0.5)
    assert ray.killed == [(0, False)]
    assert hosts.is_down(4)
    pass_time(hosts, clock, 4.5)  # it starts: that may take longer
    assert len(ray.killed) == 1
    pass_time(hosts, clock, 1.0)
    assert (ray.killed, hosts.restarts) == ([(0, False)] * 2, 2)


def test_workers_that_wait_for_other_processes_are_named_once(ray, hosts, clock, caplog):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    ray.actors[0].answers = status(niceness=own)
    pass_time(hosts, clock, 0.5)
    assert not caplog.messages
    ray.actors[0].answers = status(niceness=own + 15)
    pass_time(hosts, clock, 0.5)
    (said,) = caplog.messages
    assert said.startswith(f"[cluster] expected workers of this process's niceness, got {own + 15} (by default")


def test_a_turn_that_does_not_end_is_ended(ray, hosts, clock):
    ray.actors[0].answers = status(turn_seconds=2.9)
    pass_time(hosts, clock, 0.3)
    assert ray.killed == []
    ray.actors[0].answers = status(turn_seconds=3.1)
    pass_time(hosts, clock, 0.25)
    assert ray.killed[0] == (0, False)


def test_an_actor_that_died_is_ray_s_to_start_and_one_that_is_gone_is_not(ray, hosts, clock):
    ray.actors[0].answers = RayActorError("unavailable")
    pass_time(hosts, clock, 20)
    assert hosts.is_down(4)
    assert (len(ray.actors), ray.killed) == (1, [])
    ray.actors[0].answers = ActorDiedError("its constructor failed")
    pass_time(hosts, clock, 4.5)
    assert len(ray.actors) == 1
    pass_time(hosts, clock, 1.0)
    assert (len(ray.actors), ray.killed) == (2, [(0, True)])
    ray.actors[1].answers = status(9)
    assert pass_time(hosts, clock, 0.3) == {("serving", 4): 9}


# ---- questions


def ask(hosts, timeout):
    return hosts[4].answer(np.arange(2), ReadOptions(1, timeout=timeout))


def test_an_answer_is_the_reader_s_own(ray, hosts, clock):
    ray.actors[0].answers = status()
    pass_time(hosts, clock, 0.3)
    lent = np.zeros((2, 2), np.int64)
    lent.flags.writeable = False
    ray.actors[0].answers = Response(6, (lent,), (), ())
    found = ask(hosts, 1.0)
    assert (found.version, found.vertices[0].flags.writeable) == (6, True)
    ray.actors[0].answers = RefusedRead("VertexUnknown", "[sample] expected it, got none; add it", {"vertex": 5})
    with pytest.raises(VertexUnknown, match="expected it"):
        ask(hosts, 1.0)


def test_a_question_is_given_up_when_its_worker_goes_down(ray, hosts, clock):
    ray.actors[0].answers = status()
    pass_time(hosts, clock, 0.3)
    ray.actors[0].answers = None
    pass_time(hosts, clock, 0.2)  # a look begins, and nothing comes
    begin = clock.now
    with pytest.raises(WorkerUnavailable, match=r"serving worker 4, got none .it went down"):
        ask(hosts, 30.0)
    assert clock.now - begin < 0.5
    begin = clock.now
    with pytest.raises(WorkerUnavailable, match="GetTimeoutError"):  # it is down, and there is no other: it waits
        ask(hosts, 30.0)
    assert clock.now - begin == pytest.approx(31.0)


def test_an_actor_that_dies_is_unavailable(ray, hosts, clock):
    ray.actors[0].answers = RayActorError("unavailable")
    with pytest.raises(WorkerUnavailable, match="RayActorError"):
        ask(hosts, None)
