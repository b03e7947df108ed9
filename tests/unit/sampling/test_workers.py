"""Workers as state machines: messages early, late and twice; states; the bytes of messages and what damages them."""

import itertools

import numpy as np
import pytest

import livegnn as lg
from livegnn import _native
from livegnn.errors import StoredStateInvalid, UsageError, VersionPending
from livegnn.sampling import (
    ClusterSpec,
    SamplingWorker,
    ServingWorker,
    even_owners,
    even_serving,
    split,
    start_state,
)
from livegnn.sampling.cluster.checkpoints import CheckpointFiles
from livegnn.sampling.cluster.messages import (
    Batches,
    Checkpoint,
    CountChanges,
    Move,
    Part,
    Push,
    Serve,
    Served,
    decode,
    encode,
)
from livegnn.sampling.cluster.runtime import _Inbox
from tests.simulation.world import MemoryLog

QUERY = lg.query().out().sample(2).out().sample(1)


def start(workers=2):
    src = np.arange(20) % 10
    graph = lg.Graph(np.ones((10, 1), np.float32), src, (src * 3 + 1) % 10)
    spec = ClusterSpec.of(graph, QUERY)
    states = split(spec, start_state(spec, graph), even_owners(workers))
    return spec, [SamplingWorker(spec, number, workers, state) for number, state in enumerate(states)]


def batch():
    updates = lg.Updates()
    updates.add_edge(0, 5)
    updates.set_features(3, [4.0])
    return updates._buffer


def run(workers, serving, order, step, batches=()):
    """One step with messages delivered in the order that `order` gives to a list of them, each of them twice."""
    waiting = list(itertools.chain.from_iterable(worker.begin(step, batches) for worker in workers))
    while waiting:
        message = waiting.pop(order(waiting))
        for _ in range(2):
            if isinstance(message, Push):
                serving.receive(message)
            else:
                waiting += workers[message.receiver].receive(message)


@pytest.mark.parametrize("order", [lambda _: 0, lambda _: -1, lambda waiting: len(waiting) // 2])
def test_the_order_of_messages_and_repetitions_change_nothing(order):
    spec, workers = start(3)
    serving = ServingWorker(spec, 0)
    run(workers, serving, order, Serve(0, 0, even_serving(1)))
    run(workers, serving, order, Batches(1, 1, 0), [batch()])
    expected_workers = start(1)
    expected = ServingWorker(spec, 0)
    run(expected_workers[1], expected, lambda _: 0, Serve(0, 0, even_serving(1)))
    run(expected_workers[1], expected, lambda _: 0, Batches(1, 1, 0), [batch()])
    for mine, other in zip(serving.contents(), expected.contents(), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert serving.version == 1


def test_a_worker_goes_on_from_its_state():
    spec, workers = start()
    serving, again = ServingWorker(spec, 0), ServingWorker(spec, 0)
    run(workers, serving, lambda _: 0, Serve(0, 0, even_serving(1)))
    states = [decode(encode(worker.state())) for worker in workers]
    restarted = [SamplingWorker(spec, number, 2, state) for number, state in enumerate(states)]
    again.restore(decode(encode(serving.state())))
    for group, target in ((workers, serving), (restarted, again)):
        run(group, target, lambda _: 0, Batches(1, 1, 0), [batch()])
    for mine, other in zip(serving.contents(), again.contents(), strict=True):
        np.testing.assert_array_equal(mine, other)
    with pytest.raises(UsageError, match=r"\[restore\] expected a serving worker before its first step"):
        again.restore(serving.state())


def test_a_serving_worker_that_comes_back_begins_with_empty_tables():
    spec, workers = start()
    serving = ServingWorker(spec, 0)
    both, other = even_serving(1, 2), even_serving(1) << np.uint64(1)

    for number, masks in enumerate((both, other, both)):
        waiting = list(itertools.chain.from_iterable(worker.begin(Serve(number, 0, masks)) for worker in workers))
        while waiting:
            message = waiting.pop(0)
            if not isinstance(message, Push):
                waiting += workers[message.receiver].receive(message)
            elif message.receiver == 0 and number != 1:  # what it is to drop is lost with it
                serving.receive(message)
    assert serving.step == 3
    assert len(serving.contents()[1]) == 20


def test_steps_come_in_order_with_their_batches():
    _, (worker, _) = start()
    with pytest.raises(UsageError, match="expected step 0 when idle, got 4"):
        worker.begin(Batches(4, 1, 0))
    with pytest.raises(UsageError, match=r"\[begin\] expected the batches of the step, got 0"):
        worker.begin(Batches(0, 1, 0))
    worker.begin(Batches(0, 1, 0), [batch()])
    with pytest.raises(UsageError, match=r"\[state\] expected a worker between two steps, got one in step 0"):
        worker.state()


def test_a_step_whose_batches_earlier_steps_had_is_empty():
    spec, (worker,) = start(1)
    serving = ServingWorker(spec, 0)
    run([worker], serving, lambda _: 0, Serve(0, 0, even_serving(1)))
    run([worker], serving, lambda _: 0, Batches(1, 2, 0), [batch(), batch()])
    before = serving.contents()
    run([worker], serving, lambda _: 0, Batches(2, 1, 0))
    assert (worker.step, worker.offset, serving.version) == (3, 2, 2)
    for mine, other in zip(serving.contents(), before, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_history_that_the_graph_did_not_accept_is_named():
    _, (worker,) = start(1)
    updates = lg.Updates()
    updates.remove_edge(0, 0)
    with pytest.raises(UsageError, match=r"\[history, from offset 0\] expected batches that the graph accepted"):
        worker.begin(Batches(0, 1, 0), [updates._buffer])


def test_a_serving_worker_before_its_first_step_says_so():
    spec, _ = start()
    with pytest.raises(VersionPending, match="got -1"):
        ServingWorker(spec, 0).sample([0], timeout=0.0)
    with pytest.raises(UsageError, match="before its first step"):
        ServingWorker(spec, 0).state()


# ---- bytes


def messages():
    spec, workers = start()
    exchange = workers[0].begin(Serve(0, 7, even_serving(1)))[0]
    serving = ServingWorker(spec, 0)
    run(start(1)[1], serving, lambda _: 0, Serve(0, 7, even_serving(1)))
    push = serving.state()
    maps = (Serve(1, 2, even_serving(3)), Move(1, 2, even_owners(3)))
    part = Part(0, 1, 2, 0, 3, np.arange(5, dtype=np.uint8))
    small = (Batches(1, 2, 3), Checkpoint(4, 5))
    return [exchange, push, Served(9, push), part, *maps, *small, start()[1][1].state()]


def flat(value):
    """The numbers and arrays of a message, one after another."""
    if isinstance(value, np.ndarray):
        return [(value.dtype.str, value.shape, value.tobytes())]
    if isinstance(value, tuple | list):
        return [part for each in value for part in flat(each)]
    if hasattr(value, "live"):
        return flat(tuple(value.edges[name] for name in value.edges)) + flat(
            tuple(each for name, each in vars(value).items() if name != "edges")
        )
    return [value]


@pytest.mark.parametrize("place", range(9))
def test_messages_survive_their_bytes(place):
    message = messages()[place]
    again = decode(encode(message))
    assert type(again) is type(message)
    assert flat(again) == flat(message)


@pytest.mark.parametrize("place", range(9))
def test_damage_is_found(place):
    payload = encode(messages()[place])
    rng = np.random.default_rng(place)
    with pytest.raises(StoredStateInvalid, match=r"\[message\] expected a message between workers"):
        decode(payload[:-1])
    for _ in range(20):
        damaged = bytearray(payload)
        damaged[rng.integers(len(payload))] ^= 1 << rng.integers(8)
        with pytest.raises(StoredStateInvalid):
            decode(bytes(damaged))


def test_other_bytes_are_no_message():
    for payload in (b"", b"LGM1", b"x" * 100):
        with pytest.raises(StoredStateInvalid):
            decode(payload)


def test_checkpoints_keep_the_latest_two_and_pass_over_a_damaged_one(tmp_path):
    _, (worker,) = start(1)
    files = CheckpointFiles(tmp_path)
    assert files.read("sampling", 0) is None
    for step in range(4):
        files.write("sampling", 0, worker.state())
        worker.begin(Checkpoint(step, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sampling-0.2.state", "sampling-0.3.state"]
    assert files.read("sampling", 0).step == 3
    (tmp_path / "sampling-0.3.state").write_bytes(b"cut short")
    assert files.read("sampling", 0).step == 2
    assert files.read("sampling", 0, 1) is None
    (tmp_path / "sampling-0.2.state").write_bytes(b"")
    with pytest.raises(StoredStateInvalid, match=r"\[checkpoint, sampling 0\] expected a state in"):
        files.read("sampling", 0)


def test_buckets_of_what_is_no_vertex():
    assert _native.buckets(np.array([-1, 2**31])).tolist() == [-1, -1]


# ---- files and inboxes


def test_half_written_states_go_when_their_worker_starts(tmp_path):
    files = CheckpointFiles(tmp_path)
    for name in ("sampling-1.4.state.x.part", "moved-1.4.state.y.part", "sampling-11.4.state.z.part"):
        (tmp_path / name).write_bytes(b"")
    files.clean("sampling", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["sampling-11.4.state.z.part"]


def test_parts_of_messages_without_a_use_are_forgotten():
    none = np.empty(0, np.int32)
    log = MemoryLog("inbox", [], lambda: None)
    log.append(encode(Part(1, 5, 1, 1, 2, np.zeros(10, np.uint8))))  # its first part lies before the checkpoint
    inbox = _Inbox(log, 0)
    inbox.read()
    assert inbox.needed(set(), 5) == 0
    log.append(encode(CountChanges(2, 3, 0, 9, 1, (none, none, none, none))))
    inbox.read()
    assert inbox.needed(set(), 9) == 2
