"""Training, serving and caches on a GPU, a pretended one on every machine: the numbers of the CPU, to rounding."""

import copy
import functools

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.temporal import FeatureCache
from livegnn.temporal import engine as engine_file
from tests.pretended_gpu import PRETENDED, Pretended, PretendedGpu
from tests.unit.temporal.training import (
    KINDS,
    VERTICES,
    batches,
    engine_of,
    graph_of,
    mixed_batch,
    model_of,
    numbers,
    trainer_of,
)

WARM, SIZE, ROUNDS, LATE = 300, 100, 3, 10**6
OPTIONS = {"batch_size": 50, "epochs": 2, "replay": 0.4, "chunks": 4}
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


@pytest.fixture(params=[PRETENDED, pytest.param("cuda", marks=no_gpu)])
def gpu(request):
    if request.param == "cuda":
        yield "cuda"
    else:
        with PretendedGpu():
            yield PRETENDED


def test_what_a_pretended_gpu_refuses():
    with PretendedGpu():
        there, here = torch.arange(6.0).to(PRETENDED), torch.arange(6.0)
        assert isinstance(there, Pretended)
        assert (there + 1.0)[torch.tensor([4])].cpu().numpy() == [5.0]
        for call in (
            lambda: there + here,
            lambda: here.add_(there),
            lambda: torch.cat([there, here]),
            lambda: here[there > 2],
            lambda: there.index_select(0, torch.tensor([1])),
        ):
            with pytest.raises(RuntimeError, match="expected all tensors on one device"):
                call()
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()


def close_reports(got, expected):
    """AP and AUC are those of few events, where rounding may put one event on the other side of a negative."""
    (rounds, epochs), (their_rounds, their_epochs) = numbers(got), numbers(expected)
    np.testing.assert_array_equal(rounds[:, :4], their_rounds[:, :4])  # round, version, events, replayed
    np.testing.assert_allclose(rounds[:, [4, 7]], their_rounds[:, [4, 7]], atol=2e-3)  # loss, MRR
    np.testing.assert_allclose(rounds[:, 5:7], their_rounds[:, 5:7], atol=2e-2)  # AP, AUC
    np.testing.assert_allclose(np.array(epochs), np.array(their_epochs), atol=1e-3)


@functools.cache
def report_of_the_cpu(name="tgn"):
    return run_of("cpu", name)[0].report


def run_of(device, name="tgn", rounds=ROUNDS, **options):
    trainer = trainer_of(graph_of(WARM), model_of(name, dropout=0.0), device=device, **OPTIONS, **options)
    if not trainer.rounds:
        trainer.fit()
    done = len(list(trainer.run(list(batches(WARM, SIZE))[:rounds])))
    assert all(weight.device.type == device for weight in trainer.model.parameters())
    return trainer, done


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_rounds_on_a_gpu_are_those_of_the_cpu(gpu, name):
    close_reports(run_of(gpu, name)[0].report, report_of_the_cpu(name))


@pytest.mark.parametrize("first_there", [True, False])
def test_a_training_goes_on_where_another_device_left_it(gpu, tmp_path, first_there):
    first, then = (gpu, "cpu") if first_there else ("cpu", gpu)
    half, _ = run_of(first, rounds=1, folder=tmp_path)
    half.close()
    whole, done = run_of(then, folder=tmp_path)
    assert done == ROUNDS - 1
    close_reports(whole.report, report_of_the_cpu())


def same_answers(one, other):
    src, dst = np.arange(30), 30 + np.arange(30) % 20
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(one.embeddings(src, LATE), other.embeddings(src, LATE), **close)
    np.testing.assert_allclose(one.predict(src, dst, LATE), other.predict(src, dst, LATE), **close)
    best, theirs = one.next(src[:3], LATE, k=4), other.next(src[:3], LATE, k=4)
    np.testing.assert_allclose(best.probability, theirs.probability, **close)


@pytest.mark.parametrize("name", ["tgn", "tgat"])
@pytest.mark.parametrize("roots_max", [4096, 16])
def test_an_engine_on_a_gpu_answers_as_one_on_the_cpu(gpu, monkeypatch, tmp_path, name, roots_max):
    monkeypatch.setattr(engine_file, "_ROOTS_MAX", roots_max)  # of a piece of an answer
    graph, model = graph_of(WARM), model_of(name)
    here, there = engine_of(graph, model), engine_of(graph, model, device=gpu)
    for number in range(3):
        same_answers(there, here)
        graph.apply(mixed_batch(WARM, number))
    same_answers(there, here)
    there.save(tmp_path / "engine.pt")
    for device in ("cpu", gpu):
        sampler = lg.TemporalSampler(graph, [5], threads=1)
        again = lg.TemporalEngine.load(tmp_path / "engine.pt", model, graph, sampler, device=device)
        same_answers(again, here)


def test_a_view_keeps_the_memory_of_its_version_on_a_gpu(gpu):
    graph = graph_of(WARM)
    engine = engine_of(graph, device=gpu)
    expected = engine.embeddings(np.arange(VERTICES), LATE)
    with graph.host.lock, engine._loader.sampler.pin() as source:
        view = engine_file.TemporalView(engine._pass.model, source, graph.slot_count, engine._loader.device)
        engine._views.append(view)
        for number in range(3):
            graph.apply(mixed_batch(WARM, number))
        found = engine._numpy(engine._embed(view, np.arange(VERTICES), np.full(VERTICES, LATE)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(engine.embeddings(np.arange(VERTICES), LATE) - expected).max() > 1e-3


@pytest.mark.parametrize("trained_there", [True, False])
def test_a_model_is_published_to_an_engine_of_another_device(gpu, trained_there):
    trained, served = (gpu, "cpu") if trained_there else ("cpu", gpu)
    graph = graph_of(WARM)
    trainer = trainer_of(graph, model_of(), device=trained, **OPTIONS)
    trainer.fit()
    engine = engine_of(graph, trainer.model, device=served)
    trainer.publish_to(engine)
    list(trainer.run(list(batches(WARM, SIZE))[:1]))
    same_answers(engine, engine_of(graph, trainer.model, memory=trainer.model.memory.state()))
    trainer.close()


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("edges", [False, True])
def test_a_cache_on_a_gpu_follows_its_graph(gpu, policy, edges, tmp_path):
    graph, rng = graph_of(WARM, attributes=3), np.random.default_rng(0)
    make = FeatureCache.of_edges if edges else FeatureCache
    options = {"capacity": 20, "policy": policy, "max_replace": 0.5}
    here, there = make(graph, **options), make(graph, device=gpu, **options)
    stream = list(batches(WARM, SIZE, attributes=3))
    for number, updates in enumerate(stream):
        there.checkpoint()
        for _ in range(5):
            ids = rng.integers(0, WARM + SIZE * number if edges else VERTICES, 25)
            rows = there.fetch(ids)
            assert rows.device.type == gpu
            np.testing.assert_array_equal(rows.cpu().numpy(), here.fetch(ids).numpy())
            assert there.ids().tolist() == here.ids().tolist()
        there.restore()
        there.verify()
        there.save(tmp_path / "kept.npz")
        there.resize(10)
        there.resize(20)
        there.load(tmp_path / "kept.npz")
        here.load(tmp_path / "kept.npz")
        if not edges:
            updates.set_features(number, np.full(KINDS, 9, np.float32))
        graph.apply(updates)
        there.verify()
    assert there.stats.bytes_to_device == there.stats.bytes_read > 0
    assert there.nbytes["rows"] == 20 * 4 * (3 if edges else KINDS)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("width", [0, 1, 5])
def test_a_cache_on_a_gpu_reads_files_of_every_width(gpu, dtype, width, tmp_path):
    x = np.random.default_rng(0).random((40, width)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    for features in (x, *([tmp_path / "x.npy"] if width else [])):
        cache = FeatureCache(features, capacity=8, max_replace=0.5, device=gpu)
        for seed in range(10):
            ids = np.random.default_rng(seed).integers(0, 40, 12)
            np.testing.assert_array_equal(cache.fetch(ids).cpu().numpy(), x[ids])
        cache.verify()


def test_caches_on_any_device_change_no_number_of_a_training_on_a_gpu(gpu):
    losses, hits = [], []
    for where in (None, "cpu", gpu):
        graph, model = graph_of(WARM, attributes=3), model_of(dropout=0.0, edge_width=3)
        features = {}
        if where is not None:
            options = {"policy": "lru", "max_replace": 0.5, "device": where}
            features["vertex_features"] = FeatureCache(graph, capacity=20, **options)
            features["edge_features"] = FeatureCache.of_edges(graph, capacity=40, **options)
        trainer = trainer_of(graph, copy.deepcopy(model), device=gpu, **OPTIONS, **features)
        trainer.fit()
        reports = list(trainer.run(list(batches(WARM, SIZE, attributes=3))[:2]))
        losses.append([report.loss for report in reports])
        hits.append([report.hit_rates for report in reports] if where else None)
    np.testing.assert_allclose(losses[1:], losses[:2], atol=2e-3)
    assert hits[1] == hits[2]
