"""ContinuousTrainer: rounds, replay, checkpoints, publication."""

import copy

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import DtypeInvalid, StoredStateInvalid, UsageError, ValueInvalid, WidthMismatch
from livegnn.temporal.link import cut_evenly
from livegnn.temporal.models import StaticLinks
from tests.unit.temporal.training import (
    EVENTS,
    KINDS,
    batches,
    graph_of,
    habits,
    model_of,
    numbers,
    same_numbers,
    same_tensors,
    trainer_of,
    weights,
)

WARM = 300


def test_training_learns_and_tests_before_it_trains():
    graph = graph_of(WARM)
    trainer = trainer_of(graph, epochs=3, batch_size=25, learning_rate=0.01)
    warm = trainer.fit(10)
    assert (warm.round, warm.version, warm.events) == (0, 0, WARM)
    assert np.isnan(warm.ap)
    rounds = list(trainer.run(batches(WARM, 100)))
    assert [r.round for r in rounds] == list(range(1, 7))
    assert [r.version for r in rounds] == list(range(1, 7))
    assert [r.events for r in rounds] == [100] * 6
    losses = [e.loss for e in trainer.report.epochs if e.round == 0]
    assert losses[-1] < losses[0]
    assert np.mean([r.ap for r in rounds[-3:]]) > 0.8  # one half is chance
    assert trainer.report.mean_ap == pytest.approx(np.mean([r.ap for r in rounds]))
    assert {"ingest", "sample", "fetch", "model", "memory"} <= set(rounds[0].seconds)


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_replay_trains_on_old_events_too(name):
    trainer = trainer_of(graph_of(WARM), model_of(name), replay=0.5, batch_size=20)
    trainer.fit()
    (first, *_) = list(trainer.run(list(batches(WARM, 100))[:2]))
    assert first.replayed >= 2 * 40  # about half of a hundred, in each of two epochs


@pytest.mark.parametrize("name", ["tgn", "tgat"])
@pytest.mark.parametrize("stop", [0, 2, 5])
def test_a_resumed_training_ends_with_the_same_numbers(tmp_path, name, stop):
    """Killed after `stop` rounds: everything that lived in the process is gone, the folder is not."""
    options = {"replay": 0.3, "chunks": 4, "folder": tmp_path / "half"}
    whole = trainer_of(graph_of(WARM), model_of(name), **{**options, "folder": tmp_path / "whole"})
    whole.fit()
    list(whole.run(batches(WARM, 100)))

    half = trainer_of(graph_of(WARM), model_of(name), **options)
    half.fit()
    for report in half.run(list(batches(WARM, 100))[:stop]):
        assert report.round <= stop
    half.close()

    again = trainer_of(graph_of(WARM), model_of(name), **options)
    assert again.rounds == stop + 1
    again.fit()
    rest = list(again.run(batches(WARM, 100)))
    assert [r.round for r in rest] == list(range(stop + 1, 7))
    same_numbers(again.report, whole.report)
    same_tensors(weights(again.model), weights(whole.model))
    if name == "tgn":
        same_tensors(again.model.memory.state(), whole.model.memory.state())


class Killed(Exception):
    pass


def _all_of(trainer):
    trainer.fit(3)
    list(trainer.run(batches(WARM, 200)))


@pytest.mark.parametrize("pass_", [1, 2, 3, 5, 8])
def test_a_training_killed_within_a_pass_ends_with_the_same_numbers(tmp_path, pass_):
    def kill(what, done, count):
        nonlocal passes
        passes += done == count
        if passes == pass_:
            raise Killed

    options = {"replay": 0.3, "folder": tmp_path / "killed"}
    whole = trainer_of(graph_of(WARM), replay=0.3)
    whole.fit(3)
    list(whole.run(batches(WARM, 200)))

    passes = 0
    killed = trainer_of(graph_of(WARM), progress=kill, **options)
    with pytest.raises(Killed):
        _all_of(killed)
    again = trainer_of(graph_of(WARM), **options)
    again.fit(3)
    list(again.run(batches(WARM, 200)))
    same_numbers(again.report, whole.report)
    same_tensors(weights(again.model), weights(whole.model))


def test_a_graph_that_has_moved_on_is_caught_up_with_in_one_round(tmp_path):
    """Without a memory; one of an earlier version cannot know which vertices went."""
    more = list(batches(WARM, 100))
    for name in ("tgat", "tgn"):
        trainer = trainer_of(graph_of(WARM), model_of(name), folder=tmp_path / name)
        trainer.fit()
        list(trainer.run(more[:1]))
        trainer.close()
        ahead = graph_of(WARM)
        for updates in more[:3]:
            ahead.apply(updates)
        if name == "tgn":
            with pytest.raises(StoredStateInvalid, match="a graph of version 1 or before"):
                trainer_of(ahead, model_of(name), folder=tmp_path / name)
        else:
            report = trainer_of(ahead, model_of(name), folder=tmp_path / name).round()
            assert (report.round, report.events) == (2, 200)


def test_a_resumed_trainer_whose_graph_others_write(tmp_path):
    """Rounds wait for the checkpoint's version; past it, a memory cannot tell what lay before and what behind."""
    more = list(batches(WARM, 100))
    for name in ("tgat", "tgn"):
        folder = tmp_path / name
        trainer = trainer_of(graph_of(WARM), model_of(name), folder=folder)
        trainer.fit()
        list(trainer.run(more[:2]))
        trainer.close()
        graph = graph_of(WARM)
        again = trainer_of(graph, model_of(name), folder=folder)
        graph.apply(more[0])
        with pytest.raises(UsageError, match="expected a graph of version 2"):
            again.round()
        if name == "tgat":
            graph.apply(more[1])
            graph.apply(more[2])
            assert again.round().events == 100
        else:
            graph.apply(more[1])
            assert again.round().events == 0
            jumped = graph_of(WARM)
            other = trainer_of(jumped, model_of(name), folder=folder)
            for updates in more[:4]:
                jumped.apply(updates)
            with pytest.raises(UsageError, match="the graph at 4 already"):
                other.round()


def test_a_folder_of_another_training_is_refused(tmp_path):

    def stop(what, done, count):
        if "epoch 2" in what:
            raise Killed

    with pytest.raises(Killed):
        trainer_of(graph_of(WARM), folder=tmp_path, progress=stop).fit(3)
    for options in ({"epochs": 7}, {"memory_states_max": 3}, {"model": model_of(heads=1)}):
        with pytest.raises(StoredStateInvalid, match="give the same options"):
            trainer_of(graph_of(WARM), folder=tmp_path, **options)
    graph = graph_of(WARM)
    sampler = lg.TemporalSampler(graph, fanouts=[6], strategy="recent")
    with pytest.raises(StoredStateInvalid, match="give the same options"):
        lg.ContinuousTrainer(model_of(), graph, sampler, batch_size=50, epochs=2, folder=tmp_path)
    with pytest.raises(StoredStateInvalid, match="other content"):
        trainer_of(graph_of(WARM - 1), folder=tmp_path)
    with pytest.raises(UsageError, match="when it was begun"):
        trainer_of(graph_of(WARM), folder=tmp_path, epochs=2).fit(5)
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(StoredStateInvalid, match=r"checkpoint\.pt, got one that cannot be read"):
        trainer_of(graph_of(WARM), folder=tmp_path)


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")
def test_a_checkpoint_is_restored_to_the_device_of_the_model(tmp_path):
    """It is read to the CPU. Torch's device of shapes without numbers stands for a GPU."""
    with trainer_of(graph_of(WARM), folder=tmp_path) as trainer:
        trainer.fit(1)
    with trainer_of(graph_of(WARM), folder=tmp_path, device="meta") as again:
        memory, steps = again.model.memory, again._optimizer.state.values()
        moments = [step[name] for step in steps for name in ("exp_avg", "exp_avg_sq")]
        assert len(moments) > 10
        restored = [*moments, *weights(again.model).values(), memory.state()["rows"]]
        for kept in (again._state.before, *again._state.memory_states.states):  # wherever they lie until they are used
            again._state.remember(kept)
            restored += [memory.state()[name] for name in ("rows", "time", "pending")]
        devices = {part.device.type for part in restored}
        assert devices == {"meta"}


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_caches_change_nothing_but_the_time(tmp_path, name):
    def made(cached, **options):
        graph = graph_of(WARM, attributes=3)
        if cached:
            options["vertex_features"] = lg.FeatureCache(graph, capacity=10)
            options["edge_features"] = lg.FeatureCache.of_edges(graph, capacity=50)
        return trainer_of(graph, model_of(name, edge_width=3), replay=0.5, **options)

    more = list(batches(WARM, 150, attributes=3))
    plain, cached = made(cached=False), made(cached=True, folder=tmp_path)
    for trainer, count in ((plain, 4), (cached, 2)):
        trainer.fit()
        list(trainer.run(more[:count]))
    assert all(cache.stats.hits > 0 for cache in cached._caches)
    cached.close()
    again = made(cached=True, folder=tmp_path)  # its caches begin as the others ended
    list(again.run(more))
    same_numbers(again.report, plain.report)
    assert all(cache.stats.fills > 0 for cache in again._caches)


def test_a_round_reads_one_version_while_others_apply(monkeypatch):
    """Applied in the middle of a round: live at once, and of the next round."""
    graph = graph_of(WARM)
    more = list(batches(WARM, 100))
    quiet, busy = graph_of(WARM), graph
    reports = []
    for one, interferes in ((quiet, False), (busy, True)):
        trainer = trainer_of(one)
        trainer.fit(1)
        one.apply(more[0])

        def interfere(what, done, count, one=one, interferes=interferes):
            if interferes and one.version == 1:
                removal = lg.Updates()
                removal.remove_edges_before(50)
                one.apply(more[1])
                one.apply(removal)

        trainer._progress = interfere
        reports.append(trainer.round())
        assert one.version == (3 if interferes else 1)
        trainer._progress = None
        assert trainer.round().events == (100 if interferes else 0)
    assert reports[0].loss == reports[1].loss
    assert reports[0].ap == reports[1].ap


def test_removed_edges_are_not_trained_on():
    graph = graph_of(WARM)
    trainer = trainer_of(graph, replay=50.0, batch_size=1000)
    trainer.fit(1)
    removal = lg.Updates()
    removal.remove_edges_before(10**9)
    graph.apply(removal)
    (updates,) = list(batches(WARM, 100))[:1]
    graph.apply(updates)
    report = trainer.round()
    assert (report.events, report.replayed) == (100, 0)


@pytest.mark.parametrize("train_every", [1, 2])
def test_a_removed_vertex_is_forgotten_for_good(train_every):
    """Also by the states of the memory that training starts from."""
    graph = graph_of(WARM)
    trainer = trainer_of(graph, train_every=train_every, replay=1.0)
    trainer.fit(1)
    more = list(batches(WARM, 100))
    list(trainer.run(more[:1]))
    again = lg.Updates()
    again.remove_vertex(31)
    again.add_vertex(31, np.zeros(KINDS, np.float32))
    graph.apply(again)
    src, dst, time = (column[400:500] for column in habits())
    untouched = lg.Updates()
    untouched.add_edges(src[dst != 31], dst[dst != 31], time=time[dst != 31])
    graph.apply(untouched)
    trainer.round()
    fresh = copy.deepcopy(trainer.model).memory
    fresh.reset(graph.slot_count)
    rows = torch.tensor([31])
    assert torch.equal(trainer.model.memory.read(rows), fresh.read(rows))


def test_a_removed_destination_is_no_negative_any_more():
    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    gone = lg.Updates()
    gone.remove_vertex(33)
    graph.apply(gone)
    trainer.fit(1)
    gone = lg.Updates()
    gone.remove_vertex(31)
    gone.remove_vertex(32)
    graph.apply(gone)
    src, dst, time = (column[WARM : WARM + 100] for column in habits())
    there = ~np.isin(dst, [31, 32, 33])
    updates = lg.Updates()
    updates.add_edges(src[there], dst[there], time=time[there])
    graph.apply(updates)
    report = trainer.round()
    assert report.events == there.sum()
    assert not np.isin([31, 32, 33], trainer._state.negatives.seen).any()


@pytest.mark.parametrize("fails", ["test", "epoch 1", "epoch 2"])
def test_a_round_that_fails_leaves_everything_for_the_next(fails):
    def fail(what, done, count):
        if fails in what and done == count:
            raise Killed

    reports, ended = [], []
    for breaks in (False, True):
        graph = graph_of(WARM)
        trainer = trainer_of(graph, replay=0.3)
        trainer.fit(1)
        graph.apply(next(batches(WARM, 100)))
        if breaks:
            trainer._progress = fail
            with pytest.raises(Killed):
                trainer.round()
            trainer._progress = None
        reports.append(trainer.round())
        ended.append({**weights(trainer.model), **trainer.model.memory.state()})
    assert reports[0].events == reports[1].events == 100
    assert reports[0].ap == reports[1].ap
    assert reports[0].loss == reports[1].loss
    same_tensors(ended[1], ended[0])


def test_a_pin_that_is_refused_loses_no_events(monkeypatch):
    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    trainer.fit(1)
    graph.apply(next(batches(WARM, 100)))
    with monkeypatch.context() as patch:
        patch.setattr(lg.TemporalSampler, "pin", lambda self: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            trainer.round()
    assert trainer.round().events == 100


def test_old_edges_in_a_file_do_not_stop_training(tmp_path):
    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    trainer.fit(1)
    graph.offload(20, tmp_path / "old.parquet")
    assert graph.offloaded.count > 0
    graph.apply(next(batches(WARM, 100)))
    assert trainer.round().events == 100  # the five newest of every past are in memory
    graph.offload(10**6, tmp_path / "all.parquet")
    graph.apply(list(batches(WARM, 100))[1])
    with pytest.raises(lg.errors.EdgeOffloaded, match="reload"):
        trainer.round()
    graph.reload()
    assert trainer.round().events == 100


def test_the_memory_of_unsorted_edges_is_that_of_their_order_in_time():
    src, dst, time = (column[:WARM] for column in habits())
    order = np.random.default_rng(4).permutation(WARM)
    x = graph_of(0).features()
    graph = lg.Graph(x, src[order], dst[order], time=time[order], undirected=True)
    trainer = trainer_of(graph)
    trainer.fit(1)
    engine = lg.TemporalEngine(trainer.model, graph, trainer.sampler, memory_step=50)
    same_tensors(engine._pass.model.memory.state(), trainer.model.memory.state())
    for place in trainer._state.memory_states.places:
        assert (np.diff(trainer._state.table.between(0, WARM).time) >= 0).all()
        assert trainer._state.table.place(trainer._state.table.mark(place)) == place


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_a_resumed_training_after_removals_ends_with_the_same_numbers(tmp_path, name):
    def stream():
        for number, updates in enumerate(batches(WARM, 100)):
            updates.remove_edges_before(40 * number)
            yield updates

    options = {"replay": 0.5, "batch_size": 20}
    whole = trainer_of(graph_of(WARM), model_of(name), **options)
    whole.fit()
    list(whole.run(stream()))
    half = trainer_of(graph_of(WARM), model_of(name), folder=tmp_path, **options)
    half.fit()
    list(half.run(list(stream())[:3]))
    half.close()
    recovered = graph_of(WARM)  # from a log, as far as the checkpoint and a trainer's history of live edges go
    for updates in list(stream())[:2]:
        recovered.apply(updates)
    again = trainer_of(recovered, model_of(name), folder=tmp_path, **options)
    list(again.run(list(stream())[2:]))
    same_numbers(again.report, whole.report)
    same_tensors(weights(again.model), weights(whole.model))


def test_a_killed_warm_start_with_caches_goes_on(tmp_path):
    def made(**options):
        graph = graph_of(WARM)
        cache = lg.FeatureCache(graph, capacity=10)
        return trainer_of(graph, vertex_features=cache, folder=tmp_path, **options)

    def stop(what, done, count):
        if "epoch 2" in what:
            raise Killed

    with pytest.raises(Killed):
        made(progress=stop).fit(3)
    whole = trainer_of(graph_of(WARM))
    whole.fit(3)
    again = made()
    again.fit(3)
    same_numbers(again.report, whole.report)


def test_a_model_that_diverges_is_neither_kept_nor_published(tmp_path):
    graph = graph_of(WARM)
    trainer = trainer_of(graph, folder=tmp_path)
    trainer.fit(1)
    heard = []
    trainer.publish_to(lambda model, report: heard.append(report.round))
    before = weights(trainer.model)
    updates = next(batches(WARM, 100))
    graph.apply(updates)
    embed = trainer.model.embed
    trainer.model.embed = lambda inputs: embed(inputs) * (float("nan") if trainer.model.training else 1.0)
    with pytest.raises(lg.errors.TrainingDiverged, match="finite loss"):
        trainer.round()
    assert heard == [0]
    same_tensors(weights(trainer.model), before)


def test_training_is_its_own_whoever_predicts_or_draws():
    def trained(disturbed):
        graph = graph_of(WARM)
        sampler = lg.TemporalSampler(graph, fanouts=[5], strategy="uniform", threads=1)
        trainer = lg.ContinuousTrainer(model_of("tgat"), graph, sampler, batch_size=50, epochs=2)
        engine = lg.TemporalEngine(trainer.model, graph, sampler)
        if disturbed:
            trainer._progress = lambda what, done, count: engine.predict([1], [31], 10**6)
        trainer.fit()
        return trainer

    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    quiet, busy = trained(disturbed=False), trained(disturbed=True)
    same_numbers(busy.report, quiet.report)
    torch.manual_seed(123)
    trained(disturbed=False)
    torch.manual_seed(123)
    trainer = trainer_of(graph_of(WARM), model_of())
    torch.manual_seed(123)
    trainer.fit(1)
    assert torch.equal(torch.rand(3), expected)


def test_an_inclusive_sampler_would_show_the_answer():
    graph = graph_of(WARM)
    with pytest.raises(UsageError, match="inclusive=True"):
        lg.ContinuousTrainer(model_of(), graph, lg.TemporalSampler(graph, [5], inclusive=True))


def test_memory_states_are_bounded():
    for most in (0, 1, 2, 5):
        trainer = trainer_of(graph_of(WARM), memory_states_max=most, epochs=1)
        trainer.fit(1)
        list(trainer.run(batches(WARM, 60)))
        assert len(trainer._state.memory_states.places) == len(trainer._state.memory_states.states) <= most


def test_a_round_without_events_changes_nothing():
    trainer = trainer_of(graph_of(WARM))
    trainer.fit(1)
    before = weights(trainer.model)
    report = trainer.round()
    assert report.events == 0
    assert np.isnan(report.ap)
    assert np.isnan(report.loss)
    same_tensors(weights(trainer.model), before)


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_training_every_third_round_trains_on_the_events_of_three(tmp_path, name):
    options = {"train_every": 3, "replay": 0.2, "epochs": 1}
    trainer = trainer_of(graph_of(WARM), model_of(name), **options)
    trainer.fit()
    first = weights(trainer.model)
    for report in trainer.run(batches(WARM, 100)):
        trained = [e.events for e in trainer.report.epochs if e.round == report.round]
        assert len(trained) == (report.round % 3 == 0)
        if report.round < 3:
            same_tensors(weights(trainer.model), first)
        else:
            assert min([300, *trained]) >= 300
    half = trainer_of(graph_of(WARM), model_of(name), folder=tmp_path, **options)
    half.fit()
    list(half.run(list(batches(WARM, 100))[:4]))
    again = trainer_of(graph_of(WARM), model_of(name), folder=tmp_path, **options)
    list(again.run(batches(WARM, 100)))
    same_numbers(again.report, trainer.report)
    same_tensors(weights(again.model), weights(trainer.model))


def test_a_model_trained_elsewhere_is_taken_as_it_is():
    trained = trainer_of(graph_of(WARM))
    trained.fit()
    taken = trainer_of(graph_of(WARM), copy.deepcopy(trained.model), train_every=0)
    assert taken.take_as_trained().events == 0
    same_tensors(taken.model.memory.state(), trained.model.memory.state())
    with pytest.raises(UsageError, match="before its first round"):
        taken.take_as_trained()
    rounds = list(taken.run(batches(WARM, 200)))
    assert np.isfinite([r.ap for r in rounds]).all()


def test_never_training_tests_all_the_same():
    trainer = trainer_of(graph_of(WARM), train_every=0)
    trainer.fit()
    before = weights(trainer.model)
    rounds = list(trainer.run(batches(WARM, 100)))
    assert np.isfinite([r.ap for r in rounds]).all()
    same_tensors(weights(trainer.model), before)


def test_validation_keeps_the_best_weights(monkeypatch):
    trainer = trainer_of(graph_of(EVENTS), learning_rate=0.05)
    trainer.fit(6, validation=0.2, patience=2)
    aps = [e.ap for e in trainer.report.epochs]
    assert np.isfinite(aps).all()
    assert len(aps) == 6 or np.argmax(aps) == len(aps) - 3


def test_rounds_in_the_background():
    graph = graph_of(WARM)
    with trainer_of(graph, epochs=1) as trainer:
        trainer.fit(1)
        trainer.start(events_min=100, poll_s=0.001)
        with pytest.raises(UsageError, match="not running"):
            trainer.start()
        for updates in batches(WARM, 50):
            graph.apply(updates)
        while trainer._feed.waiting >= 100 or trainer.rounds < 2:
            pass
        trainer.stop()
        last = trainer.round()
    assert sum(r.events for r in trainer.report.rounds) == EVENTS
    assert last.version == graph.version


def test_what_ends_the_background_is_raised_by_stop():
    def fail(what, done, count):
        raise Killed

    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    trainer.fit(1)
    trainer._progress = fail
    trainer.start(events_min=1, poll_s=0.001)
    graph.apply(next(batches(WARM, 50)))
    trainer._background._thread.join(30)
    with pytest.raises(Killed):
        trainer.stop()


def test_publishing_to_a_temporal_engine_keeps_what_it_saw_meanwhile():
    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    trainer.fit(1)
    engine = lg.TemporalEngine(trainer.model, graph, trainer.sampler, memory_step=50)
    trainer.publish_to(engine)
    more = list(batches(WARM, 100))
    list(trainer.run(more[:2]))
    same_tensors(weights(engine._pass.model), weights(trainer.model))
    same_tensors(engine._pass.model.memory.state(), trainer.model.memory.state())
    graph.apply(more[2])  # live, and in no round yet
    expected = lg.TemporalEngine(trainer.model, graph, trainer.sampler, memory_step=50)
    expected._pass.model.memory.load_state(trainer.model.memory.state())
    seen = trainer._feed.take().events
    expected._pass.observe(seen.in_time_order())
    assert engine.state_digest() == expected.state_digest()


def test_a_static_model_is_published_into_the_exact_engine():
    nn = pytest.importorskip("torch_geometric.nn")
    graph = graph_of(WARM)
    torch.manual_seed(0)
    module = nn.GraphSAGE(KINDS, 8, num_layers=2, out_channels=8)
    engine = lg.Engine(lg.from_pyg(module), graph)
    sampler = lg.TemporalSampler(graph, fanouts=[5, 5], strategy="uniform", threads=1)
    trainer = lg.ContinuousTrainer(
        StaticLinks(module, hop_count=2, x_width=KINDS, out_width=8), graph, sampler, batch_size=50, epochs=1
    )
    trainer.publish_to(engine)
    before = engine.embeddings([0, 40]).copy()
    trainer.fit(1)
    list(trainer.run(list(batches(WARM, 100))[:2]))
    assert not np.array_equal(engine.embeddings([0, 40]), before)
    engine.verify()
    edges = graph.edges()
    both = np.concatenate([np.stack([edges["src"], edges["dst"]]), np.stack([edges["dst"], edges["src"]])], axis=1)
    module.eval()
    with torch.no_grad():
        expected = module(torch.from_numpy(graph.features()), torch.from_numpy(both))
    np.testing.assert_allclose(engine.embeddings(graph.vertices()), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_static_model_trains_on_a_graph_without_times():
    """No event sees itself."""
    nn = pytest.importorskip("torch_geometric.nn")
    src, dst, _ = habits()
    x = graph_of(0).features()
    graph = lg.Graph(x, src[:600], dst[:600], undirected=True)
    torch.manual_seed(0)
    module = nn.GraphSAGE(KINDS, 16, num_layers=2, out_channels=16)
    sampler = lg.TemporalSampler(graph, fanouts=[5, 5], strategy="uniform", threads=1)
    model = StaticLinks(module, hop_count=2, x_width=KINDS, out_width=16)
    trainer = lg.ContinuousTrainer(model, graph, sampler, batch_size=50, epochs=2, learning_rate=0.01)
    engine = lg.Engine(lg.from_pyg(module), graph)
    trainer.publish_to(engine)
    seen = []
    load = trainer._loader.load
    trainer._loader.load = lambda *columns: seen.append((columns, load(*columns))) or seen[-1][1]
    trainer.fit(4)
    for (_, _, _, without), (one,) in seen[:3]:
        assert len(without) == 50
        for hop in one.hops:
            assert hop.edge_index.shape[1] == len(hop.dt)
    losses = [e.loss for e in trainer.report.epochs]
    assert losses[-1] < losses[0]
    updates = lg.Updates()
    updates.add_edges(src[600:], dst[600:])
    (report,) = trainer.run([updates])
    assert report.ap > 0.6
    engine.verify()


def test_publishing_to_a_callable_and_to_nothing():
    trainer = trainer_of(graph_of(WARM))
    heard = []
    trainer.publish_to(lambda model, report: heard.append((model, report.round)))
    trainer.fit(1)
    assert heard == [(trainer.model, 0)]
    with pytest.raises(UsageError, match="publish_to"):
        trainer.publish_to(3)


def test_a_target_that_takes_no_model_is_not_asked_again():
    trainer = trainer_of(graph_of(WARM))
    trainer.fit(1)

    def full(model, report):
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        trainer.publish_to(full)
    assert len(list(trainer.run(list(batches(WARM, 200))[:1]))) == 1


def test_a_closed_trainer_takes_nothing_more():
    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    trainer.fit(1)
    with pytest.raises(UsageError, match="expected batches, got one Updates; put it into a list"):
        next(trainer.run(next(batches(WARM, 100))))
    trainer.close()
    version = graph.version
    for call in (lambda: list(trainer.run(list(batches(WARM, 100))[:1])), trainer.round, trainer.fit, trainer.start):
        with pytest.raises(UsageError, match="expected an open trainer, got one that was closed"):
            call()
    assert graph.version == version


def test_reports_as_files(tmp_path):
    trainer = trainer_of(graph_of(WARM), folder=tmp_path, tensorboard=True)
    trainer.fit(2)
    list(trainer.run(list(batches(WARM, 200))[:2]))
    trainer.close()
    trainer.report.to_csv(tmp_path / "rounds.csv")
    lines = (tmp_path / "rounds.csv").read_text().splitlines()
    assert lines[0].startswith("round,version,events")
    assert len(lines) == 4
    trainer.report.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert list(tmp_path.glob("events.out.tfevents*"))
    same_numbers(lg.temporal.TrainingReport.of(trainer.report.state()), trainer.report)
    assert len(numbers(trainer.report)[1]) == 2 + 2 * 2


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"epochs": 1.5},
        {"chunks": True},
        {"train_every": -1},
        {"mrr_candidates": 0},
        {"memory_states_max": -1},
        {"seed": -1},
        {"device": "nowhere"},
        {"replay": -0.1},
        {"learning_rate": float("nan")},
        {"chunks": 51},
    ],
)
def test_wrong_options(options):
    with pytest.raises(ValueInvalid, match="ContinuousTrainer"):
        trainer_of(graph_of(WARM), **options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"replay": "a"}, DtypeInvalid, "expected replay as a number, got 'a' of str"),
        ({"folder": 5}, UsageError, "expected folder as a path, got int"),
        ({"vertex_features": 3}, UsageError, "expected vertex_features as a FeatureCache or None, got int"),
        ({"edge_features": np.zeros((2, 2))}, UsageError, "expected edge_features as a FeatureCache or None, got nd"),
        ({"replay": 0.5, "memory_states_max": 0}, UsageError, "memory_states_max of at least 1 with replay=0.5"),
    ],
)
def test_options_of_another_kind(options, error, words):
    with pytest.raises(error, match=words):
        trainer_of(graph_of(WARM), **options)
    trainer_of(graph_of(WARM), model_of("tgat"), replay=0.5, memory_states_max=0)  # nothing to remember


def test_calls_that_do_not_fit():
    graph = graph_of(WARM)
    trainer = trainer_of(graph)
    with pytest.raises(UsageError, match=r"after fit\(\)"):
        trainer.round()
    with pytest.raises(UsageError, match=r"after fit\(\)"):
        trainer.start()
    with pytest.raises(ValueInvalid, match="epochs of at least 1"):
        trainer.fit(0)
    with pytest.raises(ValueInvalid, match="validation"):
        trainer.fit(1, patience=2)
    with pytest.raises(UsageError, match="with edges"):
        trainer_of(graph_of(0)).fit()
    with pytest.raises(UsageError, match="sampler of this graph"):
        lg.ContinuousTrainer(model_of(), graph_of(WARM), trainer.sampler)
    with pytest.raises(WidthMismatch, match="width 4 for vertices and 0 for edges"):
        trainer_of(graph, model_of(x_width=4))
    with pytest.raises(WidthMismatch, match="1 hops"):
        lg.ContinuousTrainer(model_of(), graph, lg.TemporalSampler(graph, [3, 3]))
    with pytest.raises(UsageError, match="folder"):
        trainer_of(graph, tensorboard=True)
    with pytest.raises(UsageError, match="expected batches, got NoneType"):
        list(trainer.run(None))


def test_a_module_that_is_no_temporal_model_is_told_the_way():
    graph = graph_of(WARM)
    sampler = lg.TemporalSampler(graph, [5])
    with pytest.raises(UsageError, match="got Linear; wrap a PyG module in StaticLinks"):
        lg.ContinuousTrainer(torch.nn.Linear(2, 2), graph, sampler)


def test_mini_batches_of_a_pass_are_few_and_equal():
    for count in range(60):
        for size in range(1, 20):
            lengths = [part.stop - part.start for part in cut_evenly(count, size)]
            assert sum(lengths) == count
            assert len(lengths) == -(-count // size)
            assert not lengths or (max(lengths) <= size and max(lengths) - min(lengths) <= 1)
