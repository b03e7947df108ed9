"""What distributed training refuses before a worker starts, and times: their unit, and how long a worker waits."""

import functools
import time

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.distributed import Layout, Partition, RemoteSampler, run_threads, run_workers, train
from livegnn.distributed import train as train_function
from livegnn.errors import (
    DtypeInvalid,
    ModelUnsupported,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
    WorkerUnavailable,
)
from tests.unit.distributed import workers
from tests.unit.temporal.training import graph_of, model_of

train_module = __import__(train_function.__module__, fromlist=["run_group"])


@pytest.fixture
def no_worker(monkeypatch):
    def started(*given, **options):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(train_module, "run_group", started)


def no_optimizer(parameters):
    return [*parameters]


class OtherMemory(torch.nn.Module):
    pass


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"device": "nowhere"}, ValueInvalid, r"^\[train\] expected a device that is at hand, got 'nowhere'"),
        ({"device": "cuda:99"}, ValueInvalid, r"^\[train\] expected a device that is at hand"),
        ({"optimizer": "adam"}, UsageError, r"^\[train\] expected optimizer as a callable\(parameters\), got 'adam'"),
        ({"optimizer": no_optimizer}, UsageError, r"makes a torch.optim.Optimizer, got list"),
        ({"optimizer": functools.partial(torch.optim.SGD, lr=-1.0)}, UsageError, r"Invalid learning rate"),
        ({"optimizer": lambda given: torch.optim.SGD(given)}, UsageError, r"^\[train\] .* can be pickled"),
        ({"vertex_features": 3}, UsageError, r"^\[train\] expected vertex_features as a WorkerCache or None, got 3"),
        ({"workers": 0}, UsageError, r"^\[train\] expected at least one worker"),
        ({"workers": "two"}, UsageError, r"^\[train\] expected at least one worker"),
        ({"timeout_s": "a"}, UsageError, r"^\[train\] .*timeout_s above 0 and within .*, got 'a'"),
        ({"timeout_s": float("inf")}, UsageError, r"^\[train\] .*timeout_s above 0"),
        ({"timeout_s": float("nan")}, UsageError, r"^\[train\] .*timeout_s above 0"),
        ({"validation": "a"}, DtypeInvalid, r"^\[train\] expected validation as a number"),
        ({"seed": -1}, ValueInvalid, r"seed of at least 0"),
    ],
)
def test_options_are_looked_at_before_a_worker_starts(no_worker, options, error, words):
    graph = graph_of(100)
    with pytest.raises(error, match=words):
        train(model_of("tgat"), graph, lg.TemporalSampler(graph, [5]), **options)


def test_parts_that_do_not_fit_are_found_before_a_worker_starts(no_worker):
    graph, model = graph_of(100), model_of("tgn")
    one, two = lg.TemporalSampler(graph, [5]), lg.TemporalSampler(graph, [5, 5])
    with pytest.raises(WidthMismatch, match="a sampler of 1 hops and 1 snapshots for TGN, got 2 and 1"):
        train(model, graph, two)
    with pytest.raises(WidthMismatch, match="features of width 4 for vertices"):
        train(model_of(x_width=4), graph, one)
    with pytest.raises(UsageError, match="inclusive=True"):
        train(model, graph, lg.TemporalSampler(graph, [5], inclusive=True))
    for given, words in (
        ((None, graph, one), "a model of livegnn.temporal.models, got NoneType"),
        ((model, None, one), "a Graph, got NoneType"),
        ((model, graph, None), "a TemporalSampler of the graph, got NoneType"),
        ((model, graph, lg.TemporalSampler(graph_of(100), [5])), "a sampler of this graph"),
    ):
        with pytest.raises(UsageError, match=r"^\[train\] expected " + words):
            train(*given)
    model.memory = OtherMemory()
    with pytest.raises(ModelUnsupported, match="VertexMemory, got OtherMemory"):
        train(model, graph, one)
    local = model_of("tgat")
    local.hook = lambda: None
    with pytest.raises(UsageError, match=r"^\[train\] expected a model that can be pickled"):
        train(local, graph, one)


def test_run_workers_looks_at_its_arguments():
    for options in ({"timeout_s": "a"}, {"timeout_s": 0}, {"timeout_s": 1e300}, {"timeout_s": None}):
        with pytest.raises(UsageError, match=r"^\[run_workers\] .*timeout_s above 0"):
            run_workers(workers.talk, 2, ("word",), **options)
    with pytest.raises(UsageError, match="backend="):
        run_workers(workers.talk, 1, ("word",), backend="mpi")
    with pytest.raises(UsageError, match="one thread, got 'gloo' and 0"):
        run_workers(workers.talk, 1, ("word",), threads=0)
    with pytest.raises(UsageError, match="expected address= as a text, got 3"):
        run_workers(workers.talk, 1, ("word",), address=3)
    with pytest.raises(UsageError, match="expected fn that can be pickled"):
        run_workers(lambda exchange: 1, 1)
    with pytest.raises(UsageError, match=r"expected args\[1\] that can be pickled"):
        run_workers(workers.talk, 1, ("word", lambda: 1))


def test_a_sampler_waits_for_other_workers_as_long_as_it_is_told_to():
    graph, began = graph_of(100), time.monotonic()

    def work(exchange):
        sampler = RemoteSampler(Partition.of(graph, Layout(1, 2), exchange.rank), exchange, [5])
        if exchange.rank == 0:
            sampler.sample([31], [10**6])  # the other one never does

    with pytest.raises(WorkerUnavailable, match="has ended or is late"):
        run_threads(work, 2, timeout_s=0.3)
    assert 0.3 <= time.monotonic() - began < 10
    for seconds in ("a", 0, float("nan")):
        with pytest.raises(UsageError, match=rf"^\[run_threads\] expected timeout_s above 0 .* got '?{seconds}'?;"):
            run_threads(work, 2, timeout_s=seconds)
    for count in ("a", 0, True):
        with pytest.raises(UsageError, match=rf"^\[run_threads\] expected at least one worker, got '?{count}'?;"):
            run_threads(work, count, timeout_s=1.0)


# ---- units of times


def dated(unit, *days):
    return np.array(days, f"datetime64[{unit}]")


def dated_graph():
    time = dated("s", "2024-01-02", "2024-01-03")
    return lg.Graph(np.eye(4, dtype=np.float32), [0, 1], [1, 2], time=time)


def test_parts_know_the_unit_of_the_graph():
    def work(exchange):
        partition = Partition.of(dated_graph(), Layout(1, 2), exchange.rank)
        sampler = RemoteSampler(partition, exchange, [2])
        asks = ("sample", sampler.sample), ("sample_slots", sampler.sample_slots)
        for where, ask in (*asks, ("sample_snapshot_slots", sampler.sample_snapshot_slots)):
            with pytest.raises(ValueInvalid, match=rf"^\[{where}\] expected times in s, .* got datetime64\[D\]"):
                ask([1], dated("D", "2024-01-04"))
            with pytest.raises(VertexUnknown, match=rf"^\[{where}\] expected live vertices"):
                ask([9], dated("s", "2024-01-04"))
            with pytest.raises(WidthMismatch, match=rf"^\[{where}\] expected a time for each"):
                ask([1, 2], dated("s", "2024-01-04"))
            with pytest.raises(DtypeInvalid):
                ask(["a"], dated("s", "2024-01-04"))
        found = sampler.sample([1], dated("s", "2024-01-04"))[0].src.tolist()
        later, wrong = lg.Updates(), lg.Updates()
        wrong.add_edges([0], [2], time=dated("D", "2024-01-05"))
        later.add_edges([0], [2], time=dated("s", "2024-01-05"))
        with pytest.raises(ValueInvalid, match=r"\[apply\] expected times in s"):
            partition.apply(wrong, exchange)
        partition.apply(later, exchange)
        return found, partition.graph.version

    assert run_threads(work, 2) == [([0], 1)] * 2


def test_the_first_unit_that_comes_is_that_of_all_parts():
    def work(exchange):
        graph = lg.Graph(np.eye(4, dtype=np.float32), [0], [1], time=[5])
        partition = Partition.of(graph, Layout(1, 2), exchange.rank)
        first, second = lg.Updates(), lg.Updates()
        first.add_edges([0], [2], time=dated("s", "2024-01-05"))  # of one part alone
        second.add_edges([0], [3], time=dated("D", "2024-01-05"))
        partition.apply(first, exchange)
        with pytest.raises(ValueInvalid, match="expected times in s"):
            partition.apply(second, exchange)
        return partition.graph.version

    assert run_threads(work, 2) == [1, 1]
