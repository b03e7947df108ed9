"""TemporalEngine: answers of one version, memory as a function of weights and batches."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import (
    DtypeInvalid,
    EdgeOffloaded,
    InvariantBroken,
    ModelMismatch,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.log import UpdateLog, open_log, replay
from livegnn.temporal import InputLoader
from livegnn.temporal.models import TGN
from livegnn.temporal.models.interface import TemporalModel
from tests.unit.temporal.training import (
    SOURCES,
    VERTICES,
    batches,
    engine_of,
    graph_of,
    habits,
    model_of,
    same_tensors,
    trainer_of,
)

WARM = 200
EMBED = TGN.embed


def by_hand(engine, src, dst, time):
    """Probabilities from a fresh loader and the engine's own model: the formula of docs/training.md."""
    sampler = lg.TemporalSampler(engine.graph, fanouts=[5], threads=1)
    loader = InputLoader(engine.graph, sampler)
    model = engine._pass.model
    with torch.no_grad():
        h = model.embed(loader.load(np.concatenate([src, dst]), np.tile(np.full(len(src), time), 2)))
        return torch.sigmoid(model.score(h[: len(src)], h[len(src) :])).numpy()


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_predictions_follow_the_stream(name):
    graph = graph_of(WARM)
    engine = engine_of(graph, model_of(name))
    src, dst, _ = habits()
    before = engine.predict(src[:9], dst[:9], 10**6)
    for updates in batches(WARM, 100):
        engine.apply(updates)
    after = engine.predict(src[:9], dst[:9], 10**6)
    assert after.shape == (9,)
    assert after.dtype == np.float32
    assert not np.array_equal(before, after)
    np.testing.assert_allclose(after, by_hand(engine, src[:9], dst[:9], 10**6), rtol=1e-6)
    rows = engine.embeddings(src[:9], np.full(9, 10**6))
    assert rows.shape == (9, 16)
    assert engine.version == graph.version == 7


@pytest.mark.parametrize("name", ["tgn", "tgat"])
@pytest.mark.parametrize("what", ["predict", "embeddings"])
def test_a_batch_does_not_wait_for_the_model_of_a_reader(name, what):
    """The reader's answer is of the version that it asked at, though the graph has moved on meanwhile."""
    graph = graph_of(WARM)
    engine = engine_of(graph, model_of(name))
    src, dst, _ = habits()
    gate, entered = threading.Event(), threading.Event()

    def ask():
        return engine.predict(src[:9], dst[:9], 10**6) if what == "predict" else engine.embeddings(src[:9], 10**6)

    def stand(*_):
        entered.set()
        assert gate.wait(30)

    expected = ask()
    hook = engine._pass.model.layers[0].register_forward_pre_hook(stand)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask)
        assert entered.wait(30)
        for updates in batches(WARM, 100):
            engine.apply(updates)
        assert not asked.done()
        gate.set()
        np.testing.assert_array_equal(asked.result(), expected)
    hook.remove()
    assert not np.array_equal(ask(), expected)


def test_a_model_that_reads_its_memory_as_it_answers_keeps_batches_waiting(monkeypatch):
    monkeypatch.setattr(TGN, "recall", TemporalModel.recall)
    monkeypatch.setattr(TGN, "embed", reads_as_it_answers)
    engine = engine_of(graph_of(WARM))
    src, dst, _ = habits()
    held = []
    engine._pass.model.layers[0].register_forward_pre_hook(lambda *_: held.append(is_held(engine.graph)))
    engine.predict(src[:9], dst[:9], 10**6)
    assert held == [True]


def reads_as_it_answers(model, inputs):
    memory = model.memory.read(inputs[0].rows)
    return EMBED(model, [replace(inputs[0], memory=memory)])


def is_held(graph):
    """Whether another thread would have to wait for the graph."""
    with ThreadPoolExecutor(1) as threads:
        free = threads.submit(graph.host.lock.acquire, blocking=False).result()
        if free:
            threads.submit(graph.host.lock.release).result()
    return not free


def test_many_roots_go_through_the_model_in_parts(monkeypatch):
    engine = engine_of(graph_of(WARM))
    src, dst, _ = habits()
    whole = engine.predict(src[:50], dst[:50], 10**6)
    monkeypatch.setattr("livegnn.temporal.engine._ROOTS_MAX", 7)
    np.testing.assert_allclose(engine.predict(src[:50], dst[:50], 10**6), whole, rtol=1e-5)
    assert len(engine.predict([], [], 10**6)) == 0


def test_the_past_alone_counts():
    """An answer about a time before an event does not know of it, but for the memory, which a TGAT has not."""
    graph = graph_of(WARM)
    engine = engine_of(graph, model_of("tgat"))
    src, dst, time = habits()
    before = engine.predict(src[:50], dst[:50], time[WARM - 1])
    for updates in batches(WARM, 100):
        engine.apply(updates)
    np.testing.assert_array_equal(engine.predict(src[:50], dst[:50], time[WARM - 1]), before)


def test_the_memory_is_a_function_of_weights_and_batches():
    live, other = engine_of(graph_of(WARM)), engine_of(graph_of(WARM))
    for updates in batches(WARM, 100):
        live.apply(updates)
    assert live.state_digest() != other.state_digest()
    for updates in batches(WARM, 100):
        other.graph.apply(updates)
    assert live.state_digest() == other.state_digest()


def test_the_memory_observes_events_in_time_order_whatever_the_order_of_updates():
    src, dst, time = (column[WARM : WARM + 60] for column in habits())
    engines = [engine_of(graph_of(WARM)) for _ in range(2)]
    for engine, order in zip(engines, (np.arange(60), np.arange(60)[::-1]), strict=True):
        updates = lg.Updates()
        updates.add_edges(src[order], dst[order], time=time[order] * 2 + np.arange(60)[order])
        engine.apply(updates)
    assert engines[0].state_digest() == engines[1].state_digest()


def test_next_ranks_every_candidate():
    graph = graph_of(WARM)
    engine = engine_of(graph)
    best = engine.next([3, 4, 3], [500, 500, 900], k=4)
    assert best.dst.shape == best.probability.shape == (3, 4)
    assert (np.diff(best.probability, axis=1) <= 0).all()
    for row, (source, at) in enumerate(((3, 500), (4, 500), (3, 900))):
        everyone = np.unique([ends[:WARM] for ends in habits()[:2]])  # no direction: both ends are reached
        chances = engine.predict(np.full(len(everyone), source), everyone, at)
        assert set(best.dst[row]) == set(everyone[np.argsort(-chances)[:4]])
    few = engine.next([3], 500, candidates=[31, 40], k=2)
    assert set(few.dst[0]) == {31, 40}
    assert engine.next([3], 500, candidates=[40, 31, 40], k=2).dst.tolist() == few.dst.tolist()
    with pytest.raises(ValueInvalid, match="2 candidates"):
        engine.next([3], 500, candidates=[31, 40, 31], k=3)


def test_vertices_come_and_go():
    graph = graph_of(WARM)
    engine = engine_of(graph)
    updates = lg.Updates()
    updates.add_vertex(VERTICES, np.zeros(5, np.float32))
    updates.add_edge(VERTICES, 31, time=600)
    engine.apply(updates)
    assert np.isfinite(engine.predict([VERTICES], [31], 700)).all()
    memory = engine._pass.model.memory
    removal = lg.Updates()
    removal.remove_vertex(31)
    removal.add_vertex(31, np.zeros(5, np.float32))
    engine.apply(removal)
    fresh = model_of().memory
    fresh.reset(graph.slot_count)
    torch.testing.assert_close(memory.read(torch.tensor([31])), fresh.read(torch.tensor([31])), rtol=0, atol=0)
    removal = lg.Updates()
    removal.remove_vertex(31)
    engine.apply(removal)
    with pytest.raises(VertexUnknown):
        engine.predict([3], [31], 700)


def test_string_ids():
    graph = lg.Graph(np.eye(5, dtype=np.float32)[[0, 1, 2]], ["a", "b"], ["b", "c"], time=[1, 2], ids=["a", "b", "c"])
    engine = engine_of(graph)
    assert engine.predict(["a"], ["c"], 5).shape == (1,)
    best = engine.next(["a"], 5, k=1)
    assert best.dst[0, 0] in ("b", "c")


def test_a_snapshot_and_the_log_give_the_same_state(tmp_path):
    more = list(batches(WARM, 100))
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db")) as log:
        graph = graph_of(WARM)
        with log.attach(graph):
            engine = engine_of(graph)
            for updates in more[:3]:
                engine.apply(updates)
            engine.save(tmp_path / "engine.pt")
            for updates in more[3:]:
                engine.apply(updates)
        # the process is gone; a graph as it was in the beginning, the log, and the snapshot are left
        again = graph_of(WARM)
        replay(log, again, 0, 3)
        model = model_of()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        sampler = lg.TemporalSampler(again, fanouts=[5], threads=1)
        recovered = lg.TemporalEngine.load(tmp_path / "engine.pt", model, again, sampler)
        replay(log, again, 3)
        assert recovered.state_digest() == engine.state_digest()
        np.testing.assert_array_equal(
            recovered.predict(np.arange(5), np.arange(5) + SOURCES, 10**6),
            engine.predict(np.arange(5), np.arange(5) + SOURCES, 10**6),
        )
        with pytest.raises(StoredStateInvalid, match="graph of version 3"):
            lg.TemporalEngine.load(tmp_path / "engine.pt", model, again, sampler)
        other = graph_of(WARM - 1)
        replay(log, other, 0, 3)
        with pytest.raises(StoredStateInvalid, match="other content"):
            lg.TemporalEngine.load(tmp_path / "engine.pt", model, other, lg.TemporalSampler(other, fanouts=[5]))


def test_swapping_weights_makes_the_memory_anew_or_takes_one():
    graph = graph_of(WARM)
    engine = engine_of(graph)
    more = list(batches(WARM, 100))
    engine.apply(more[0])
    other = model_of()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    engine.swap(other)
    fresh = engine_of(graph, other)
    assert engine.state_digest() == fresh.state_digest()
    state, version = engine._pass.model.memory.state(), graph.version
    for updates in more[1:]:
        engine.apply(updates)
    expected = engine.state_digest()
    engine.swap(other, memory=state, upto=version)  # observes again what came since
    assert engine.state_digest() == expected


def test_a_swap_refuses_weights_that_float32_cannot_hold():
    engine = engine_of(graph_of(WARM))
    before, wide = engine.state_digest(), model_of().double()
    with torch.no_grad():
        next(wide.parameters()).fill_(1e300)
    with pytest.raises(ValueInvalid, match="finite"):
        engine.swap(wide)
    assert engine.state_digest() == before


def test_a_swap_while_events_stream_in_loses_none():
    graph = graph_of(WARM)
    engine = engine_of(graph, memory_step=16)
    state = engine._pass.model.memory.state()
    model = model_of()
    done = threading.Event()

    def swap():
        while not done.is_set():
            engine.swap(model, memory=state, upto=0)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for updates in batches(WARM, 20):
            engine.apply(updates)
    finally:
        done.set()
        thread.join()
    engine.swap(model, memory=state, upto=0)
    quiet = engine_of(graph_of(WARM), memory_step=16)
    for updates in batches(WARM, 20):
        quiet.apply(updates)
    assert engine.state_digest() == quiet.state_digest()


def test_a_swap_whose_batches_are_not_known_makes_the_memory_anew():
    """The older of two swaps last, a state from before the engine, batches beyond events_kept_max."""
    graph = graph_of(WARM)
    more = list(batches(WARM, 100))
    early = engine_of(graph)
    states = [early._pass.model.memory.state()]
    for updates in more[:2]:
        early.apply(updates)
        states.append(early._pass.model.memory.state())
    fresh = engine_of(graph)
    relived = fresh.state_digest()
    early.swap(model_of(), memory=states[1], upto=1)
    early.swap(model_of(), memory=states[0], upto=0)
    assert early.state_digest() == relived
    fresh.swap(model_of(), memory=states[0], upto=0)
    assert fresh.state_digest() == relived
    short = engine_of(graph, events_kept_max=150)
    state = short._pass.model.memory.state()
    for updates in more[2:]:
        short.apply(updates)
    assert sum(len(batch.events) for batch in short._since) <= 150
    short.swap(model_of(), memory=state, upto=2)
    assert short.state_digest() == engine_of(graph).state_digest()
    with pytest.raises(UsageError, match="of version 7 or before"):
        short.swap(model_of(), memory=state, upto=8)


def test_a_swap_observes_edges_that_went_meanwhile_with_the_attributes_they_had():
    graph = graph_of(WARM, attributes=3)
    engine = engine_of(graph, model_of(edge_width=3))
    state = engine._pass.model.memory.state()
    for updates in batches(WARM, 100, attributes=3):
        engine.apply(updates)
    expected = engine.state_digest()
    expire = lg.Updates()
    expire.remove_edges_before(10**9)
    engine.apply(expire)
    engine.swap(model_of(edge_width=3), memory=state, upto=0)
    assert engine.state_digest() == expected


def test_a_swap_ends_while_large_batches_stream_in():
    graph = graph_of(WARM)
    engine = engine_of(graph, memory_step=1)
    state = engine._pass.model.memory.state()
    done = threading.Event()

    def write():
        src, dst, _ = habits()
        for number in range(10_000):
            if done.is_set():
                return
            updates = lg.Updates()
            updates.add_edges(src[:50], dst[:50], time=np.full(50, 10**6 + number))
            engine.apply(updates)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        engine.swap(model_of(), memory=state, upto=0)
        assert thread.is_alive()
    finally:
        done.set()
        thread.join()


def test_undirected_links_have_no_direction():
    x = np.eye(5, dtype=np.float32)[[0, 1, 2, 3, 4, 0]]
    graph = lg.Graph(x, [5, 4], [2, 1], time=[1, 2], undirected=True)
    engine = engine_of(graph)
    np.testing.assert_array_equal(engine.predict([5, 2], [2, 5], 9), engine.predict([2, 5], [5, 2], 9))
    assert set(engine.next([5], 9, k=4).dst[0]) == {1, 2, 4, 5}


def test_old_edges_in_files(tmp_path):
    graph = graph_of(WARM)
    engine = engine_of(graph)
    graph.offload(50, tmp_path / "old.parquet")
    engine.save(tmp_path / "engine.pt")
    sampler = lg.TemporalSampler(graph, fanouts=[5], threads=1)
    again = lg.TemporalEngine.load(tmp_path / "engine.pt", model_of(), graph, sampler)
    assert again.state_digest() == engine.state_digest()
    with pytest.raises(EdgeOffloaded, match="reload them"):
        engine.swap(model_of())
    assert again.state_digest() == engine.state_digest()


def test_files_of_another_kind(tmp_path):
    graph = graph_of(WARM)
    sampler = lg.TemporalSampler(graph, fanouts=[5], threads=1)
    trainer_of(graph, folder=tmp_path).fit(1)
    with pytest.raises(StoredStateInvalid, match="another kind"):
        lg.TemporalEngine.load(tmp_path / "checkpoint.pt", model_of(), graph, sampler)
    engine_of(graph).save(tmp_path / "engine.pt")
    with pytest.raises(ModelMismatch, match="expected a model of"):
        lg.TemporalEngine.load(tmp_path / "engine.pt", model_of(heads=1), graph, sampler)


def test_another_model_is_refused_and_the_old_one_stays():
    engine = engine_of(graph_of(WARM))
    digest = engine.state_digest()
    with pytest.raises(ModelMismatch, match="expected a TGN"):
        engine.swap(model_of("tgat"))
    with pytest.raises(ModelMismatch, match="expected a model of"):
        engine.swap(model_of(embed_width=32))
    assert engine.state_digest() == digest


def test_a_memory_that_failed_says_so_until_it_is_made_anew(monkeypatch):
    engine = engine_of(graph_of(WARM))
    memory = engine._pass.model.memory
    observe, more = memory.observe, list(batches(WARM, 100))

    def fail(*columns):
        raise MemoryError("no room")

    monkeypatch.setattr(memory, "observe", fail)
    with pytest.raises(MemoryError):
        engine.apply(more[0])
    assert engine.graph.version == 1  # the batch stands
    monkeypatch.setattr(memory, "observe", observe)
    engine.apply(more[1])
    with pytest.raises(InvariantBroken, match="failed to observe"):
        engine.predict([1], [31], 900)
    with pytest.raises(InvariantBroken, match="failed to observe"):
        engine.save("nowhere.pt")
    state = engine_of(graph_of(WARM))._pass.model.memory.state()
    engine.swap(model_of(), memory=state, upto=0)  # what failed was kept
    fine = engine_of(graph_of(WARM))
    for updates in more[:2]:
        fine.apply(updates)
    assert engine.state_digest() == fine.state_digest()
    engine.swap(model_of())
    same_tensors(engine._pass.model.memory.state(), engine_of(graph_of(WARM + 200))._pass.model.memory.state())


def test_wrong_calls():
    graph = graph_of(WARM)
    engine = engine_of(graph)
    with pytest.raises(WidthMismatch, match="as many dst"):
        engine.predict([1, 2], [31], 5)
    with pytest.raises(WidthMismatch, match="one time or 2"):
        engine.predict([1, 2], [31, 32], [1, 2, 3])
    with pytest.raises(DtypeInvalid, match="time as an integer"):
        engine.embeddings([1], 0.5)
    for ask, words in (
        (lambda: engine.embeddings([1, 10**6], 5), r"\[embeddings\] .* in vertices, got 1000000 at row 1"),
        (lambda: engine.predict([10**6], [1], 5), r"\[predict\] .* in src, got 1000000 at row 0"),
        (lambda: engine.predict([1, 2], [1, 10**6], 5), r"\[predict\] .* in dst, got 1000000 at row 1"),
        (lambda: engine.next([10**6], 5), r"\[next\] .* in src, got 1000000 at row 0"),
        (lambda: engine.next([1], 5, candidates=[2, 10**6], k=1), r"\[next\] .* in candidates, got 1000000 at row 1"),
    ):
        with pytest.raises(VertexUnknown, match=words):
            ask()
    with pytest.raises(ValueInvalid, match="memory_step"):
        engine_of(graph, memory_step=0)
    with pytest.raises(WidthMismatch, match="hops"):
        lg.TemporalEngine(model_of(), graph, lg.TemporalSampler(graph, [2, 2]))
    with pytest.raises(UsageError, match="another"):
        lg.TemporalEngine(model_of(), graph_of(WARM), lg.TemporalSampler(graph, [2]))


def test_a_closed_engine_hears_no_more():
    graph = graph_of(WARM)
    engine = engine_of(graph)
    digest = engine.state_digest()
    engine.close()
    graph.apply(next(batches(WARM, 100)))
    assert engine.state_digest() == digest
    version = graph.version
    for call in (
        lambda: engine.predict([0], [1], 9),
        lambda: engine.next([0], 9, k=1),
        lambda: engine.embeddings([0], 9),
        lambda: engine.apply(next(batches(WARM + 100, 100))),
        lambda: engine.swap(model_of()),
        lambda: engine.save("nowhere"),
    ):
        with pytest.raises(UsageError, match="expected an open engine, got one that was closed"):
            call()
    engine.close()
    assert graph.version == version


@pytest.mark.parametrize(
    ("time", "error", "words"),
    [
        (
            np.array([2**63 + 5], np.uint64),
            ValueInvalid,
            r"\[predict\] expected time that fits int64, got 92233720368547758",
        ),
        (2**63, ValueInvalid, r"\[predict\] expected time that fits int64 .*got 9223372036854775808"),
        (2**64, ValueInvalid, "got 18446744073709551616"),
        (5.0, DtypeInvalid, "time as an integer"),
        ([5.0], DtypeInvalid, "time as int64, got dtype float64"),
        ([5, 6], WidthMismatch, "one time or 1"),
        (np.datetime64("NaT", "s"), ValueInvalid, "fits int64"),
    ],
)
def test_times_are_those_that_a_sampler_takes(time, error, words):
    engine = engine_of(graph_of(WARM))
    for ask in (lambda: engine.predict([0], [1], time), lambda: engine.embeddings([0], time)):
        with pytest.raises(error, match=words.replace("predict", "(predict|embeddings)")):
            ask()
    assert engine.predict([], [], []).shape == (0,)
    assert engine.predict([0], [1], np.uint64(9)) == engine.predict([0], [1], [9])


def test_weights_that_are_not_finite_are_refused():
    engine, model = engine_of(graph_of(WARM)), model_of()
    before = engine.state_digest()
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] = float("nan")
    with pytest.raises(ValueInvalid, match="expected finite weights, got NaN or infinity in "):
        engine.swap(model)
    with pytest.raises(ValueInvalid, match="expected finite weights"):
        lg.TemporalEngine(model, engine.graph, lg.TemporalSampler(engine.graph, [5]))
    assert engine.state_digest() == before
