"""DistributedTrainer: a step of several workers is a step of one process with all their events."""

import copy

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.distributed import (
    Cached,
    DistributedTrainer,
    Layout,
    Newcomers,
    Partition,
    RemoteEdgeRows,
    RemoteSampler,
    RemoteVertexRows,
    WorkerCache,
    ldg,
    run_threads,
)
from livegnn.distributed.trainer import run_of
from livegnn.errors import UsageError, ValueInvalid, WidthMismatch
from livegnn.temporal import FeatureCache, TemporalSampler
from livegnn.temporal.events import Events
from livegnn.temporal.link import LinkPass
from livegnn.temporal.loading import InputLoader
from livegnn.temporal.models import TGAT, TGN
from tests.composition.temporal import models, options_of, world_of
from tests.composition.world import Setting
from tests.unit.distributed.streams import stream_graph

torch.manual_seed(3)
WIDTHS = {"x_width": 4, "edge_width": 3, "dropout": 0.0, "time_width": 8}
MODELS = {
    "tgn": TGN(embed_width=8, memory_width=6, **WIDTHS),
    "tgat": TGAT(embed_width=8, hop_count=2, **WIDTHS),
}
FANOUTS = {"tgn": [4], "tgat": [3, 3]}


def graph_of(**options):
    return stream_graph(features=4, attrs=3, times=1000, **options)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05)


def one_process(name, graph, events, negatives, batch_size):
    """Weights and memory after LinkPass has gone over the events once."""
    model = copy.deepcopy(MODELS[name])
    if model.memory is not None:
        model.memory.reset(graph.slot_count)
    link = LinkPass(model, InputLoader(graph, TemporalSampler(graph, FANOUTS[name])), batch_size=batch_size)
    loss = link.train(events, negatives, sgd(model.parameters()))
    return model, loss


def trainer_of(exchange, name, graph, layout=None, **options):
    layout = layout or Layout(1, exchange.size)
    owners = Newcomers.of(graph, ldg(graph, layout.partitions))
    partition = Partition.of(graph, layout, exchange.rank, owners)
    sampler = RemoteSampler(partition, exchange, FANOUTS[name])
    return DistributedTrainer(copy.deepcopy(MODELS[name]), partition, sampler, exchange, **options)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("workers", "steps"), [(2, 1), (2, 5), (3, 4)])
def test_steps_are_those_of_one_process(name, workers, steps, undirected):
    graph = graph_of(undirected=undirected)
    events = Events.of(graph).in_time_order().at(slice(50, 50 + 25 * steps - 4))  # the last mini-batch is smaller
    negatives = np.random.default_rng(0).integers(0, graph.slot_count, len(events))
    model, loss = one_process(name, graph, events, negatives, 25)

    def work(exchange):
        trainer = trainer_of(exchange, name, graph, batch_size=25, optimizer=sgd)
        got = trainer.train_once(events, negatives)
        return got, trainer.model.state_dict(), trainer.memory.state() if trainer.memory else {}

    results = run_threads(work, workers)
    for got, weights, memory in results:
        assert got == pytest.approx(loss, rel=1e-5)
        for key, value in model.state_dict().items():
            torch.testing.assert_close(weights[key], value, atol=2e-5, rtol=1e-4)
            assert torch.equal(weights[key], results[0][1][key])  # workers do not drift apart, not by a bit
        if memory:
            expected = model.memory.state()
            assert torch.equal(memory["known"], expected["known"])
            assert torch.equal(memory["last"], expected["last"])
            torch.testing.assert_close(memory["rows"], expected["rows"], atol=2e-5, rtol=1e-4)


def test_hosts_whose_workers_share_a_partition():
    graph = graph_of()
    events = Events.of(graph).in_time_order().at(slice(50, 150))
    negatives = np.random.default_rng(0).integers(0, graph.slot_count, len(events))
    model, loss = one_process("tgn", graph, events, negatives, 25)

    def work(exchange):
        trainer = trainer_of(exchange, "tgn", graph, Layout(2, 2, shared=True), batch_size=25, optimizer=sgd)
        return trainer.train_once(events, negatives), trainer.memory.state(), len(trainer.memory.own()["known"])

    results = run_threads(work, 4)
    assert sum(count for *_, count in results) == graph.slot_count
    for got, memory, count in results:
        assert got == pytest.approx(loss, rel=1e-5)
        assert count < graph.slot_count / 2  # a host's workers divide the memory of its partition
        torch.testing.assert_close(memory["rows"], model.memory.state()["rows"], atol=2e-5, rtol=1e-4)


def test_fewer_events_than_workers():
    graph = graph_of()
    events = Events.of(graph).in_time_order().at(slice(100, 102))
    negatives = np.array([3, 4])
    model, loss = one_process("tgn", graph, events, negatives, 10)

    def work(exchange):
        trainer = trainer_of(exchange, "tgn", graph, batch_size=10, optimizer=sgd)
        return trainer.train_once(events, negatives), trainer.model.state_dict()

    for got, weights in run_threads(work, 4):
        assert got == pytest.approx(loss, rel=1e-5)
        for key, value in model.state_dict().items():
            torch.testing.assert_close(weights[key], value, atol=2e-5, rtol=1e-4)


def test_fit_tests_after_each_epoch_and_reports_the_same_everywhere():
    graph = graph_of()
    events = Events.of(graph)

    def work(exchange):
        trainer = trainer_of(exchange, "tgn", graph, batch_size=64, learning_rate=1e-2)
        report = trainer.fit(events, epochs=2, validation=0.25)
        return report, trainer.memory.state(), trainer.model.state_dict()

    results = {workers: run_threads(work, workers) for workers in (1, 2)}
    (alone, memory, _), (first, _, _), (second, *_) = results[1][0], *results[2]
    for report in (alone, first, second):
        assert [epoch.events for epoch in report.epochs] == [300, 300]
        assert [epoch.ap for epoch in report.epochs] == pytest.approx([e.ap for e in alone.epochs], abs=1e-3)
    assert [e.ap for e in first.epochs] == [e.ap for e in second.epochs]
    assert first.targets.tolist() == second.targets.tolist()
    assert abs(int(first.targets[0] - first.targets[1])) <= 3 * 4  # an event more or less in each pass
    assert first.sampling_seconds.min() > 0
    assert first.sampling_cv == second.sampling_cv
    assert 0.0 <= first.served_cv < 0.2
    assert {"sample", "fetch", "model", "memory", "gradients"} <= set(first.seconds)
    assert torch.equal(memory["last"], results[2][0][1]["last"])


def test_caches_in_front_change_nothing():
    graph = graph_of()
    events = Events.of(graph)

    def work(exchange, cached):
        partition = Partition.of(graph, Layout(1, 2), exchange.rank)
        sampler, rows = RemoteSampler(partition, exchange, [4]), {}
        if cached:
            edges, vertices = RemoteEdgeRows(partition, exchange, sampler), RemoteVertexRows(partition, exchange)
            rows["edge_features"] = Cached(FeatureCache(edges, capacity=30, threads=1), edges)
            rows["vertex_features"] = Cached(FeatureCache(vertices, capacity=10, threads=1), vertices)
        model = copy.deepcopy(MODELS["tgn"])
        trainer = DistributedTrainer(model, partition, sampler, exchange, batch_size=64, **rows)
        report = trainer.fit(events, epochs=2, validation=0.25)
        hits = [each.cache.stats.hits for each in rows.values()]
        return [epoch.ap for epoch in report.epochs], hits

    (plain, _), (cached, hits) = (run_threads(lambda e, c=c: work(e, c), 2)[0] for c in (False, True))
    assert cached == plain
    assert min(hits) > 0


@pytest.mark.parametrize("name", MODELS)
def test_workers_make_caches_of_their_own(name):
    """The same numbers, and the hits of all workers' caches in the report."""
    graph = graph_of()
    events = Events.of(graph)

    def work(exchange, caches):
        trainer = trainer_of(exchange, name, graph, batch_size=64, **caches)
        return trainer.fit(events, epochs=2, validation=0.25), trainer.hit_counts()

    caches = {"edge_features": WorkerCache(capacity=30), "vertex_features": WorkerCache(capacity=10, policy="lfu")}
    (plain, none), *_ = run_threads(lambda exchange: work(exchange, {}), 2)
    assert (plain.hit_rates, none) == ({}, {})
    results = run_threads(lambda exchange: work(exchange, caches), 2)
    for report, _ in results:
        assert [(epoch.loss, epoch.ap) for epoch in report.epochs] == [(e.loss, e.ap) for e in plain.epochs]
        for kind in ("vertices", "edges"):
            hits, misses = np.sum([counts[kind] for _, counts in results], axis=0)
            assert report.hit_rates[kind] == hits / (hits + misses) > 0


def test_events_of_vertices_that_came_later():
    """Updates go to all parts; what they bring is trained on, new vertices included."""
    graph = graph_of()
    updates = lg.Updates()
    updates.add_vertices([40, 41], np.ones((2, 4), np.float32))
    new = {"time": np.array([1001, 1002, 1003]), "edge_attr": np.ones((3, 3), np.float32)}
    updates.add_edges([40, 41, 2], [5, 40, 41], **new)
    whole = graph_of()
    whole.apply(updates)
    events, negatives = Events.of(whole).in_time_order().at(slice(-20, None)), np.arange(20)
    model, loss = one_process("tgn", whole, events, negatives, 10)

    def work(exchange):
        trainer = trainer_of(exchange, "tgn", graph, batch_size=10, optimizer=sgd)
        trainer.partition.apply(updates, exchange)
        return trainer.train_once(events, negatives), trainer.memory.state()

    for got, memory in run_threads(work, 2):
        assert got == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(memory["rows"], model.memory.state()["rows"], atol=2e-5, rtol=1e-4)


def removed_and_added_again(graph, slots):
    """A batch that removes vertices and adds the first again, with an edge of its own."""
    updates, time = lg.Updates(), int(graph.edges()["time"].max()) + 1
    updates.remove_vertices(slots)
    updates.add_vertex(slots[0], np.ones(4, np.float32))
    updates.add_edge(slots[0], 39, time=time, edge_attr=np.ones(3, np.float32))
    return updates


def test_the_memory_forgets_vertices_that_batches_remove_and_learns_of_them_anew():
    """As in one process, where forget() is called with each batch. Messages wait as in training, but the weights stay,
    since the time encoder would multiply the rounding of theirs."""

    def still(parameters):
        return torch.optim.SGD(parameters, lr=0.0)

    whole, model = graph_of(), copy.deepcopy(MODELS["tgn"])
    model.memory.reset(whole.slot_count)
    link = LinkPass(model, InputLoader(whole, TemporalSampler(whole, [4])), batch_size=15)
    optimizer, rounds = still(model.parameters()), []
    for slots in ([3, 8], [5, 6], [3, 12]):
        events = Events.of(whole).in_time_order().at(slice(-60, None))
        negatives = np.unique(events.dst)[np.arange(60) % 10]
        link.train(events, negatives, optimizer)
        updates = removed_and_added_again(whole, slots)
        whole.apply(updates)
        model.memory.forget(torch.tensor(slots))
        rounds.append((events, negatives, updates))
    last = Events.of(whole).in_time_order().at(slice(-30, None))
    link.observe(last)
    expected = model.memory.state()
    assert not expected["known"][[8, 6, 12]].any()
    assert expected["known"][3]

    def work(exchange):
        trainer = trainer_of(exchange, "tgn", graph_of(), batch_size=15, optimizer=still)
        for events, negatives, updates in rounds:
            trainer.train_once(events, negatives)
            trainer.partition.apply(updates, exchange)
        trainer.observe(last)
        return trainer.memory.state()

    for state in run_threads(work, 3):
        for name in ("known", "pending", "last"):
            assert torch.equal(state[name], expected[name]), name
        torch.testing.assert_close(state["rows"], expected["rows"], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.Adam])
def test_frozen_and_unreached_parameters_stay_as_they_are(make):
    """AdamW moves whatever has a gradient, zeros too."""
    graph = graph_of()
    events = Events.of(graph).in_time_order().at(slice(100, 130))
    negatives = np.arange(30)

    def given(model):
        """One parameter is frozen; no loss reaches another."""
        model.rows.project.weight.requires_grad_(False)
        model.unused = torch.nn.Parameter(torch.ones(3))
        return model

    def optimizer(parameters):
        return make(parameters, lr=0.05, weight_decay=0.5)

    alone = given(copy.deepcopy(MODELS["tgat"]))
    link = LinkPass(alone, InputLoader(graph, TemporalSampler(graph, [3, 3])), batch_size=10)
    link.train(events, negatives, optimizer(alone.parameters()))

    def work(exchange):
        partition = Partition.of(graph, Layout(1, 2), exchange.rank)
        model, sampler = given(copy.deepcopy(MODELS["tgat"])), RemoteSampler(partition, exchange, [3, 3])
        trainer = DistributedTrainer(model, partition, sampler, exchange, batch_size=10, optimizer=optimizer)
        trainer.train_once(events, negatives)
        return model

    for model in run_threads(work, 2):
        assert model.unused.grad is None
        assert torch.equal(model.unused, torch.ones(3))
        assert torch.equal(model.rows.project.weight, MODELS["tgat"].rows.project.weight)
        for got, parameter in zip(model.parameters(), alone.parameters(), strict=True):
            assert (got.grad is None) == (parameter.grad is None)


def test_negatives_are_live_and_each_fit_draws_its_own():
    graph, drawn = graph_of(), []

    class Noted(DistributedTrainer):
        def train_once(self, events, negatives):
            drawn.append((negatives, self.sampler.calls))
            return super().train_once(events, negatives)

    def work(exchange):
        partition = Partition.of(graph_of(), Layout(), 0)
        trainer = Noted(copy.deepcopy(MODELS["tgn"]), partition, RemoteSampler(partition, exchange, [4]), exchange)
        with pytest.raises(UsageError, match=r"\[test\] expected live destinations"):
            trainer.test(Events.of(graph))
        trainer.fit(Events.of(graph))
        trainer.fit(Events.of(graph))
        updates = lg.Updates()
        updates.remove_vertices(np.arange(35))
        partition.apply(updates, exchange)
        trainer.fit(Events.of(partition.graph))
        return trainer.test(Events.of(partition.graph)).events

    (tested,) = run_threads(work, 1)
    assert tested > 0
    (first, call), (second, other_call), (last, _) = drawn
    assert not np.array_equal(first, second)
    assert call != other_call
    assert first.min() < 35 <= last.min()


FULL = Setting(typed=True, named=True, columns=True, half=True)


def test_negatives_are_of_the_type_that_an_edge_leads_to():
    world, drawn = world_of(FULL, 5), []
    graph = world.graph()

    class Noted(DistributedTrainer):
        def train_once(self, events, negatives):
            drawn.append((events, negatives))
            return super().train_once(events, negatives)

    def work(exchange):
        partition = Partition.of(graph, Layout(1, 2), exchange.rank)
        columns = options_of(world)["edge_columns"]
        trainer = Noted(
            models(world)[0], partition, RemoteSampler(partition, exchange, [3]), exchange, edge_columns=columns
        )
        everything = Events.of(graph)
        with pytest.raises(UsageError, match="live destinations"):
            trainer.test(everything)
        trainer.fit(everything.at(everything.edge_types == 0))
        with pytest.raises(UsageError, match="live destinations"):
            trainer.test(everything)  # users were no destinations so far
        trainer.fit(everything)

    run_threads(work, 2)
    for events, negatives in drawn:
        leads_to = graph.host.schema.ends[1][events.edge_types]
        np.testing.assert_array_equal(graph.slot_types(negatives), leads_to)
    assert {0, 1} == set(drawn[-1][0].edge_types.tolist())


def test_weights_of_worker_0_are_taken():
    graph = graph_of()

    def work(exchange):
        partition = Partition.of(graph, Layout(1, 2), exchange.rank)
        model = copy.deepcopy(MODELS["tgat"])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += exchange.rank
        DistributedTrainer(model, partition, RemoteSampler(partition, exchange, [3, 3]), exchange)
        return model.state_dict()

    for weights in run_threads(work, 2):
        for key, value in MODELS["tgat"].state_dict().items():
            assert torch.equal(weights[key], value)


@pytest.mark.parametrize(("start", "stop", "size"), [(0, 10, 3), (5, 6, 4), (7, 7, 2)])
def test_runs_are_even_and_leave_nothing_out(start, stop, size):
    places = [
        list(range(start, stop))[slice(run.start - start, run.stop - start)]
        for run in (run_of(start, stop, rank, size) for rank in range(size))
    ]
    assert [place for run in places for place in run] == list(range(start, stop))
    assert max(map(len, places)) - min(map(len, places)) <= 1


def test_the_odd_event_goes_to_each_worker_by_turns():
    runs = [run_of(start, start + 50, rank, 4) for start in range(0, 400, 50) for rank in range(4)]
    lengths = np.array([run.stop - run.start for run in runs]).reshape(-1, 4)
    assert lengths.sum(0).tolist() == [100] * 4


def test_refuses_wrong_arguments():
    graph = graph_of()
    for options in ({"batch_size": 0}, {"epochs": 0}, {"learning_rate": float("nan")}):
        with pytest.raises(ValueInvalid, match=next(iter(options))):
            run_threads(lambda exchange, given=options: trainer_of(exchange, "tgn", graph, **given), 1)
    with pytest.raises(ValueInvalid, match="validation"):
        run_threads(lambda exchange: trainer_of(exchange, "tgn", graph).fit(Events.of(graph), validation=1.0), 1)
    with pytest.raises(UsageError, match="events to train on"):
        run_threads(lambda exchange: trainer_of(exchange, "tgn", graph).fit(Events.of(graph).at(slice(0))), 1)
    with pytest.raises(UsageError, match="negatives"):
        run_threads(lambda exchange: trainer_of(exchange, "tgn", graph).test(Events.of(graph)), 1)

    def two_hops(exchange):
        partition = Partition.of(graph, Layout(), 0)
        return DistributedTrainer(MODELS["tgn"], partition, RemoteSampler(partition, exchange, [3, 3]), exchange)

    with pytest.raises(WidthMismatch, match="1 hops"):
        run_threads(two_hops, 1)
