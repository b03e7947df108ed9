"""lg.Cluster with a log, where something fails between the steps of a batch or a swap: log, graph and workers agree."""

import logging
import threading

import pytest

import livegnn as lg
from livegnn.distributed.cluster.crew import ThreadCrew
from livegnn.errors import InvariantBroken, WorkerUnavailable
from livegnn.graph.consumers import Recorder
from tests.simulation.successors import cannot_lead
from tests.simulation.test_cluster_log import Logged


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="livegnn")


def gone():
    return WorkerUnavailable("[cluster] expected a worker, got none; reform the crew")


def interrupted(world, method, after=True, error=KeyboardInterrupt):
    """The crew's next call of a method is made, and then interrupted."""
    call, done = world.crew.call, []

    def wrapped(calls):
        if calls[0][0] == method and not done:
            done.append(1)
            if after:
                call(calls)
            raise error()
        return call(calls)

    world.crew.call = wrapped
    return done


@pytest.mark.parametrize("after", [True, False])
def test_that_an_interrupt_while_all_publish_loses_and_doubles_nothing(after):
    world = Logged(3, 2)
    updates = world.batch()
    interrupted(world, "decide", after)
    with pytest.raises(KeyboardInterrupt):
        world.cluster.apply(updates)
    assert world.log.tail == 1
    world.engine.apply(updates)
    if world.cluster.version == 0:
        world.attachment.catch_up()
    world.check("after")
    updates = world.batch()
    world.engine.apply(updates)
    world.cluster.apply(updates)
    world.check("next")


@pytest.mark.parametrize("error", [KeyboardInterrupt, InvariantBroken])
def test_that_an_interrupted_batch_is_held_by_no_worker(error):
    world = Logged(3, 2)
    before = world.cluster.state_digest()
    updates = world.batch()
    interrupted(world, "hold", error=error)
    with pytest.raises(error):
        world.cluster.apply(updates)
    assert world.log.tail == 0 == world.cluster.version
    assert [w._holding for w in world.crew.workers] == [None, None] or world.cluster.state_digest() == before
    assert world.cluster.state_digest() == before


def test_that_a_batch_can_follow_an_interrupted_one():
    world = Logged(3, 2)
    updates = world.batch()
    interrupted(world, "hold")
    with pytest.raises(KeyboardInterrupt):
        world.cluster.apply(updates)
    world.engine.apply(updates)
    world.cluster.apply(updates)
    world.check("again")


def test_that_a_batch_is_held_by_none_though_the_crew_could_not_form():
    """All hold; the answer is lost, and the crew cannot be formed for a while."""
    world = Logged(3, 2)
    before = world.cluster.state_digest()
    updates = world.batch()
    call, reform, fails = world.crew.call, world.crew.reform, []

    def lossy(calls):
        if calls[0][0] == "hold" and not fails:
            call(calls)
            fails.append(1)
            raise gone()
        return call(calls)

    def no_reform():
        if fails and len(fails) < 7:
            fails.append(1)
            raise gone()
        return reform()

    world.crew.call, world.crew.reform = lossy, no_reform
    with pytest.raises(WorkerUnavailable):
        world.cluster.apply(updates)
    assert world.cluster.version == 0 == world.log.tail
    assert world.cluster.state_digest() == before


def test_that_an_interrupt_while_all_take_back_leaves_nothing():
    world = Logged(3, 2)
    before = world.cluster.state_digest()
    updates = world.batch()
    world.log.log.fails = "before"
    interrupted(world, "decide", after=False)
    with pytest.raises((KeyboardInterrupt, lg.errors.LogUnavailable)):
        world.cluster.apply(updates)
    assert world.cluster.version == 0 == world.log.tail
    assert world.cluster.state_digest() == before


def test_that_a_swap_that_no_worker_can_keep_is_in_no_log():
    world = Logged(3, 2)
    n, keep = [], world.crew.keep

    def failing(calls):
        if calls[0][0] == "snapshot_of_swap" and len(n) < 5:
            n.append(1)
            raise gone()
        return keep(calls)

    world.crew.keep = failing
    with pytest.raises(WorkerUnavailable):
        world.cluster.swap(world.model)
    assert (world.log.tail, world.cluster.version) == (0, 0), "the log has what no worker has"


@pytest.mark.parametrize("after", [True, False])
def test_that_an_interrupt_while_all_go_over_comes_after_the_version(after):
    world = Logged(3, 2)
    interrupted(world, "commit_swap", after)
    with pytest.raises(KeyboardInterrupt):
        world.cluster.swap(world.model)
    world.engine.swap(world.model)
    world.engine.graph.apply(lg.Updates())
    if world.cluster.version == 0:
        world.attachment.catch_up()
    world.check("after")
    assert world.cluster._crew.version == world.cluster.version


@pytest.mark.parametrize("made", [True, False])
def test_that_an_interrupt_that_ended_all_workers_loses_nothing(made):
    """RayGroup._answers ends all workers on an interrupt."""
    world = Logged(3, 2)
    call, done = world.crew.call, []

    def wrapped(calls):
        if calls[0][0] == "decide" and not done:
            done.append(1)
            if made:
                call(calls)
            for worker in range(2):
                world.crew.kill(worker)
            raise KeyboardInterrupt
        return call(calls)

    world.crew.call = wrapped
    updates = world.batch()
    with pytest.raises(KeyboardInterrupt):
        world.cluster.apply(updates)
    world.engine.apply(updates)
    if world.cluster.version == 0:
        world.attachment.catch_up()
    world.check("after")


@pytest.mark.parametrize("seed", range(6))
def test_that_swaps_and_repartitions_among_failures_keep_the_bits(seed):
    world = Logged(seed, 3, snapshot_batches=2)

    def kill():
        world.crew.kill(int(world.rng.integers(world.crew.size)))

    for number in range(14):
        what, _, fault = world.rng.choice(
            ["batch", "cut", "cut-lost", "swap", "swap-before", "swap-after", "swap-lost"]
        ).partition("-")
        timers = []
        if fault == "lost":
            timers = [threading.Timer(float(world.rng.random() * 0.01), kill)]
        for timer in timers:
            timer.start()
        if what == "batch":
            updates = world.batch()
            world.engine.apply(updates)
            world.cluster.apply(updates)
        elif what == "cut":
            world.cluster.repartition(str(world.rng.choice(["hash", "ldg"])), int(world.rng.integers(1, 5)))
        else:
            world.engine.swap(world.model)
            world.engine.graph.apply(lg.Updates())
            if fault in ("before", "after"):
                world.log.log.fails = fault
                with pytest.raises(lg.errors.LogUnavailable):
                    world.cluster.swap(world.model)
            if fault == "after":
                world.attachment.catch_up()
            else:
                world.cluster.swap(world.model)
        for timer in timers:
            timer.join()
        world.check(f"{what} {fault} at {number}")
    world.cluster.verify()
    world.check_replay()


def test_that_threads_of_lost_workers_end():
    world, there = Logged(3, 3), set(threading.enumerate())
    for _ in range(4):
        updates = world.batch()
        world.losing("decide", 1)
        world.cluster.apply(updates)
    world.cluster.close()
    assert not [each for each in set(threading.enumerate()) - there if each.name == "held-batch"]


class Refusing(Recorder):
    def prepare(self, recorded):
        raise lg.errors.LogUnavailable("[vote] expected a yes, got a no; ask again")

    def append(self, recorded):
        pass

    def abort(self):
        pass


def test_a_swap_that_is_refused_early_leaves_no_second_engine():
    world = Logged(3, 2)
    world.cluster.graph.host.add_recorder(Refusing())
    with pytest.raises(lg.errors.LogUnavailable):
        world.cluster.swap(world.model)
    assert [worker._next for worker in world.crew.workers] == [None, None]


def test_a_swap_that_a_guard_refuses_leaves_no_second_engine():
    world = Logged(3, 2)

    def guard(batch):
        raise lg.errors.UsageError("[x] expected y, got z; w")

    world.cluster.graph.host.add_guard(guard)
    with pytest.raises(lg.errors.UsageError):
        world.cluster.swap(world.model)
    assert [worker._next for worker in world.crew.workers] == [None, None]


@pytest.mark.parametrize("step", ["read_snapshots", "start_shuffled", "has_snapshot", "apply", "keep_moves"])
@pytest.mark.parametrize("in_files", [False, True])
def test_that_a_repartition_that_is_interrupted_leaves_no_workers_and_no_files(step, in_files, tmp_path):
    world = Logged(3, 2, **({"snapshots": tmp_path} if in_files else {}))
    crew, another = world.crew, world.crew.another

    def made(size, number):
        updates = world.batch()
        world.engine.apply(updates)
        world.cluster.apply(updates)
        successor = another(size, number)
        call = successor.call

        def interrupted(calls):
            found = call(calls)
            if calls[0][0] == step:
                raise KeyboardInterrupt
            return found

        successor.call = successor.keep = interrupted
        return successor

    crew.another = made
    with pytest.raises(KeyboardInterrupt):
        world.cluster.repartition("ldg", 3)
    assert (world.crew, crew._driver.crews) == (crew, [crew])
    assert not [each.name for each in tmp_path.glob("1-1-*")]
    world.check("after")
    crew.another = another
    world.cluster.repartition("ldg", 3)
    crew = world.crew
    world.check("again")
    crew.kill(0)
    updates = world.batch()
    world.engine.apply(updates)
    world.cluster.apply(updates)
    world.check("after a batch")
    world.cluster.close()


def test_that_workers_serve_on_where_others_cannot_lead(tmp_path):
    world = Logged(3, 2, snapshots=tmp_path)
    crew = world.crew
    cannot_lead(crew, InvariantBroken("x"))
    with pytest.raises(InvariantBroken):
        world.cluster.repartition("ldg", 3)  # their snapshot is the newest in the folder by then
    assert (world.crew, crew._driver.crews) == (crew, [crew])
    for worker in range(2):
        crew.kill(worker)
        updates = world.batch()
        world.engine.apply(updates)
        world.cluster.apply(updates)
        world.check("after a loss")
    world.cluster.close()


@pytest.mark.parametrize("detached", [False, True])
def test_that_what_the_log_refuses_is_in_no_folder_of_snapshots(tmp_path, detached):
    folder = tmp_path / "snapshots"
    world = Logged(7, 2, snapshots=folder, detached="it" if detached else None)
    updates = world.batch()
    world.engine.apply(updates)
    world.cluster.apply(updates)
    before = world.cluster.state_digest()
    world.log.log.fails = "before"
    with pytest.raises(lg.errors.LogUnavailable):
        world.cluster.rescale(64.0)
    if detached:  # its driver dies here
        again = lg.Cluster.attach("it", crew=world.crew.taken_over())
    else:
        again = lg.Cluster.restore(folder, crew=ThreadCrew(2))
    world.log.attach(again.graph).catch_up()
    assert again.version == world.log.tail == 1
    assert again.state_digest() == before
    again.close()
