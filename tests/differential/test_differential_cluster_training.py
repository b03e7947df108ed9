"""ContinuousClusterTrainer: rounds over Ray workers have the numbers of one process, also where workers are killed."""

import copy
import os
import shutil
import signal
import threading

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.distributed import ContinuousClusterTrainer, WorkerCache, hashed
from livegnn.errors import ColumnMissing, TrainingDiverged, UsageError, ValueInvalid, WorkerUnavailable
from livegnn.temporal.link import LinkPass
from tests.composition.temporal import models, options_of, world_of
from tests.composition.world import Setting
from tests.soak import cluster_training
from tests.unit.distributed import workers
from tests.unit.temporal.training import (
    batches,
    graph_of,
    model_of,
    numbers,
    same_numbers,
    same_tensors,
    trainer_of,
    weights,
)

WARM, SIZE, ROUNDS = 300, 100, 6
CACHES = {"vertex_features": WorkerCache(capacity=6), "edge_features": WorkerCache(capacity=20, policy="lfu")}
TIE = 1e-4
OPTIONS = {"batch_size": 50, "epochs": 2, "replay": 0.4, "chunks": 4}


def cluster_trainer(graph, model, **options):
    sampler = lg.TemporalSampler(graph, fanouts=[5], strategy="recent", threads=1)
    return ContinuousClusterTrainer(model, graph, sampler, **{"timeout_s": 60.0, **OPTIONS, **options})


def one_process(model, count=ROUNDS):
    """A trainer after a warm start and rounds, and a model that nothing was done with yet."""
    trainer = trainer_of(graph_of(WARM), copy.deepcopy(model), **OPTIONS)
    trainer.fit()
    list(trainer.run(list(batches(WARM, SIZE))[:count]))
    return trainer


def close_numbers(got, expected, between=None):
    """between: the least and most AP and AUC of each tested round, from either_way(), where few events make a tie of
    an event and a negative count.
    """
    (rounds, epochs), (their_rounds, their_epochs) = numbers(got), numbers(expected)
    np.testing.assert_array_equal(rounds[:, :4], their_rounds[:, :4])  # round, version, events, replayed
    np.testing.assert_allclose(rounds[:, [4, 7]], their_rounds[:, [4, 7]], atol=2e-3)  # loss, MRR
    tested = (rounds[:, 0] > 0) & (rounds[:, 2] > 0) & (between is not None)
    np.testing.assert_allclose(rounds[~tested, 5:7], their_rounds[~tested, 5:7], atol=2e-3)  # AP, AUC
    if between is not None:
        least, most = np.array(between).swapaxes(0, 1)
        assert (rounds[tested, 5:7] >= least - 1e-9).all(), (rounds[tested, 5:7], least)
        assert (rounds[tested, 5:7] <= most + 1e-9).all(), (rounds[tested, 5:7], most)
        assert np.mean(least == most) > 0.5  # in most rounds nothing is tied, and one number is right
    np.testing.assert_allclose(np.array(epochs), np.array(their_epochs), atol=1e-3)


def either_way(monkeypatch):
    """Of each test of this process from now on: (AP, AUC) where all ties fall against the events, and for them.

    Logits that differ by less than TIE are tied: rounding decides which is above. Events that are tied among themselves
    are taken one by one for the least, as a threshold between them can only lower the AP.
    """
    found, scores = [], LinkPass.scores

    def noted(self, positive, negative, mrr=float("nan")):
        logits, one_by_one = positive.astype(np.float64), 1e-9 * np.arange(len(positive))
        both = [scores(self, at, negative) for at in (logits - TIE - one_by_one, logits + TIE)]
        if len(positive):
            found.append([(each.ap, each.auc) for each in both])
        return scores(self, positive, negative, mrr)

    monkeypatch.setattr(LinkPass, "scores", noted)
    return found


def close_models(got, expected):
    weights, theirs = got.state_dict(), expected.state_dict()
    for name, value in theirs.items():
        if not name.endswith("lin_key.bias"):  # which a softmax does not feel
            torch.testing.assert_close(weights[name], value, atol=1e-4, rtol=1e-3, msg=name)
    if expected.memory is not None:
        memory, other = got.memory.state(), expected.memory.state()
        for name in ("known", "last", "pending", "origin"):
            assert torch.equal(memory[name], other[name]), name
        torch.testing.assert_close(memory["rows"], other["rows"], atol=1e-3, rtol=1e-3)


def test_rounds_replay_and_publication_are_those_of_one_process(ray_cluster, tmp_path):
    """Stopped after half of the rounds and continued from its folder: by one process, and by other workers."""
    model = model_of(dropout=0.0)
    alone, batch = one_process(model), list(batches(WARM, SIZE))
    half = cluster_trainer(graph_of(WARM), copy.deepcopy(model), folder=tmp_path)
    with half:
        half.fit()
        for report in half.run(batch[:3]):
            assert {"sample", "fetch", "model", "memory", "gradients", "checkpoint"} <= set(report.seconds)
    shutil.copytree(tmp_path, tmp_path / "copy")
    other = trainer_of(graph_of(WARM), copy.deepcopy(model), **OPTIONS, folder=tmp_path / "copy")
    same_numbers(other.report, half.report)
    list(other.run(batch))
    close_numbers(other.report, alone.report)
    graph = graph_of(WARM)
    with cluster_trainer(graph, copy.deepcopy(model), folder=tmp_path, workers=3, partition="metis") as trainer:
        assert trainer.rounds == 4
        engine = lg.TemporalEngine(trainer.model, graph, lg.TemporalSampler(graph, [5], threads=1))
        trainer.publish_to(engine)
        assert [report.round for report in trainer.run(batch)] == [4, 5, 6]
        close_numbers(trainer.report, alone.report)
        close_models(trainer.model, alone.model)
        assert engine.version == trainer.report.rounds[-1].version == ROUNDS
        same = lg.TemporalEngine(trainer.model, graph, lg.TemporalSampler(graph, [5], threads=1))
        same.swap(trainer.model, memory=trainer.model.memory.state(), upto=ROUNDS)
        assert engine.state_digest() == same.state_digest()


def killed(trainer, updates, rng):
    """Rounds in each of which a random worker is killed at a random moment, in the round or right behind it."""
    for number, batch in enumerate(updates, trainer.rounds):
        pid = trainer.worker_pids[int(rng.integers(len(trainer.worker_pids)))]
        killer = threading.Timer(float(rng.uniform(0.0, 0.5)), os.kill, (pid, signal.SIGKILL))
        killer.start()
        (report,) = trainer.run([batch])
        assert report.round == number
        killer.join()


def test_killed_workers_are_replaced_and_rounds_repeated(ray_cluster):
    """Three kills in random rounds; weights and memory are those of an undisturbed process."""
    rng, model = np.random.default_rng(7), model_of(dropout=0.0)
    alone, chosen = one_process(model), rng.choice(np.arange(ROUNDS), 3, replace=False)
    owners = {"partition": "ldg", "newcomers": "ldg"}
    with cluster_trainer(graph_of(WARM), copy.deepcopy(model), **owners, **CACHES) as trainer:
        trainer.fit()
        for number, updates in enumerate(batches(WARM, SIZE)):
            if number in chosen:
                killed(trainer, [updates], rng)
            else:
                list(trainer.run([updates]))
        assert trainer.rounds == 1 + ROUNDS
        trainer.round()  # without events; finds a worker that was killed behind the last round
        assert trainer.workers_replaced == 3
        del trainer.report.rounds[-1], trainer.report.epochs[len(alone.report.epochs) :]
        close_numbers(trainer.report, alone.report)
        close_models(trainer.model, alone.model)
        assert trainer.report.rounds[-1].hit_rates["vertices"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_many_losses_change_no_bit(ray_cluster, seed):
    """Twenty-five kills and pauses, against two undisturbed workers and against one process."""
    cluster_training.soak(25, seed)


@pytest.mark.soak
def test_a_paused_worker_is_replaced(ray_cluster):
    model, batch = model_of("tgat", dropout=0.0), list(batches(WARM, SIZE))
    alone = one_process(model, 1)
    with cluster_trainer(graph_of(WARM), copy.deepcopy(model), timeout_s=10.0) as trainer:
        trainer.fit()
        os.kill(trainer.worker_pids[1], signal.SIGSTOP)
        list(trainer.run(batch[:1]))
        assert trainer.workers_replaced == 1
        close_numbers(trainer.report, alone.report)
        close_models(trainer.model, alone.model)


def test_a_worker_that_is_lost_again_and_again_is_an_error(ray_cluster):
    model, batch = model_of(dropout=0.0), list(batches(WARM, SIZE))
    alone = one_process(model, 2)
    graph = graph_of(WARM)
    with cluster_trainer(graph, copy.deepcopy(model), restarts=0, **CACHES) as trainer:
        good = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        trainer.model.load_state_dict({name: value * np.nan for name, value in good.items()})
        with pytest.raises(TrainingDiverged):  # of a worker, as it is
            trainer.fit()
        trainer.model.load_state_dict(good)
        trainer.fit()
        graph.apply(batch[0])
        os.kill(trainer.worker_pids[0], signal.SIGKILL)
        with pytest.raises(WorkerUnavailable, match="worker 0, which has died"):
            trainer.round()
        assert trainer.rounds == 1
        assert trainer.round().events == SIZE
        good = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        trainer.model.load_state_dict({name: value * np.nan for name, value in good.items()})
        graph.apply(batch[1])
        with pytest.raises(TrainingDiverged):  # of this process, once the workers have gone through the events
            trainer.round()
        trainer.model.load_state_dict(good)
        assert trainer.round().events == SIZE
        assert trainer._group.call(workers.has_sklearn) == [False, False]
        close_numbers(trainer.report, alone.report)
        close_models(trainer.model, alone.model)


FULL = Setting(typed=True, named=True, columns=True, half=True)


def test_types_ids_weights_removals_features_and_caches_reach_the_parts(ray_cluster, monkeypatch):
    world = world_of(FULL, 4)
    graphs = [world.graph() for _ in range(3)]
    given = [world.batch() for _ in range(12)]
    reports, trained, slots = [], [], graphs[0].slot_count
    found, by_workers = either_way(monkeypatch), {"partition": "metis", "newcomers": "ldg"}
    for graph, own in zip(graphs, ({}, by_workers, {**by_workers, **CACHES}), strict=True):
        make = ContinuousClusterTrainer if own else lg.ContinuousTrainer
        model, sampler = models(world)[0], lg.TemporalSampler(graph, [3], edge_types=world.triples, threads=1)
        with make(model, graph, sampler, batch_size=10, epochs=2, replay=0.5, **options_of(world), **own) as trainer:
            trainer.fit()
            list(trainer.run(given))
        reports.append(trainer.report)
        trained.append(model)
    alone, plain, cached = reports
    assert sum(report.events for report in alone.rounds[1:]) > 20
    assert graphs[1].slot_count > slots  # newcomers came
    close_numbers(plain, alone, found[: len(found) // 3])  # of the first
    close_models(trained[1], trained[0])
    same_numbers(cached, plain)
    same_tensors(weights(trained[2]), weights(trained[1]))
    assert all(report.hit_rates == {} for report in plain.rounds)
    for kind in ("vertices", "edges"):
        rates = [report.hit_rates[kind] for report in cached.rounds if report.events]
        assert 0 < np.mean(rates) < 1


def test_an_open_trainer_follows_the_graph_while_a_thread_trains(ray_cluster):
    graph, model = graph_of(WARM), model_of("tgat", dropout=0.0)
    with cluster_trainer(graph, model, workers=1) as trainer:
        trainer.take_as_trained()
        trainer.start(events_min=50, poll_s=0.01)
        for updates in batches(WARM, 60):
            graph.apply(updates)
        trainer.stop()
        trainer.round()
        assert sum(report.events for report in trainer.report.rounds[1:]) == 600
        assert trainer.report.rounds[-1].version == graph.version == 10


def test_refuses_what_no_cluster_can_do(ray_cluster):
    graph = graph_of(WARM)
    cache = lg.temporal.FeatureCache(graph, capacity=3)
    with pytest.raises(
        UsageError, match=r"^\[ContinuousClusterTrainer\] expected edge_features as a WorkerCache .* got Fe"
    ):
        cluster_trainer(graph, model_of(), edge_features=cache)
    cache.close()
    with pytest.raises(ValueInvalid, match=r"^\[ContinuousClusterTrainer\] expected partition to be .* got 'even'"):
        cluster_trainer(graph, model_of(), partition="even")
    with pytest.raises(UsageError, match=r"^\[ContinuousClusterTrainer\] expected parts for 2 workers, got 3"):
        cluster_trainer(graph, model_of(), partition=hashed(3))
    with pytest.raises(UsageError, match=r"^\[Newcomers\] expected 'ldg', 'fennel' or 'hash', got 'even'"):
        cluster_trainer(graph, model_of(), newcomers="even")
    with pytest.raises(UsageError, match=r"^\[ContinuousClusterTrainer\] .*a GPU for each of 64 workers, got \d"):
        cluster_trainer(graph, model_of(), workers=64, backend="nccl")
    undated = lg.Graph(np.zeros((2, 5), np.float32), [0], [1])
    with pytest.raises(ColumnMissing, match=r"^\[ContinuousClusterTrainer\] expected a graph with times"):
        cluster_trainer(undated, model_of())
    local = model_of("tgat")
    local.hook = lambda: None
    with pytest.raises(UsageError, match=r"^\[ContinuousClusterTrainer\] expected a model that can be pickled"):
        cluster_trainer(graph, local)
    assert not graph.host.recorders
    assert not graph.host.consumers
