"""Arguments of another kind: refused in house form, before anything has changed."""

import os
import sys

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import (
    DataMissing,
    DtypeInvalid,
    StoredStateInvalid,
    UsageError,
    ValueInvalid,
    VertexUnknown,
    WidthMismatch,
)
from livegnn.temporal import InputLoader, LinkPass
from livegnn.temporal.link import cut_evenly
from livegnn.temporal.models import TGAT, TGN, DySAT, StaticLinks, TemporalGAT, TemporalSAGE
from tests.unit.temporal.training import batches, graph_of, model_of, trainer_of

WARM = 100


def sampler_of(graph):
    return lg.TemporalSampler(graph, [5], threads=1)


@pytest.mark.parametrize("make", [lg.ContinuousTrainer, lg.TemporalEngine])
def test_parts_that_are_none(make):
    graph, model = graph_of(WARM), model_of()
    sampler = sampler_of(graph)
    where = rf"^\[{make.__name__}\] expected "
    for given, words in (
        ((None, graph, sampler), "a model of livegnn.temporal.models, got NoneType"),
        ((TGN, graph, sampler), "a model of livegnn.temporal.models, got the class TGN"),
        ((model, None, sampler), "a Graph, got NoneType"),
        ((model, graph, None), "a TemporalSampler of the graph, got NoneType"),
        ((model, graph, sampler_of(graph_of(WARM))), "a sampler of this graph, got one of another"),
    ):
        with pytest.raises(UsageError, match=where + words):
            make(*given)
    for device in ("nowhere", None, 3.5, "cuda:99"):
        with pytest.raises(ValueInvalid, match=where + "a device that is at hand"):
            make(model, graph, sampler, device=device)
    assert len(graph.host.consumers) == 0


def test_parts_of_a_loader_and_a_pass():
    graph, model = graph_of(WARM), model_of()
    with pytest.raises(UsageError, match=r"^\[InputLoader\] expected a Graph, got NoneType"):
        InputLoader(None, sampler_of(graph))
    with pytest.raises(UsageError, match=r"^\[InputLoader\] expected a TemporalSampler"):
        InputLoader(graph, 3)
    loader = InputLoader(graph, sampler_of(graph))
    with pytest.raises(UsageError, match=r"^\[LinkPass\] expected an InputLoader, got NoneType"):
        LinkPass(model, None)
    with pytest.raises(UsageError, match=r"^\[LinkPass\] expected a model"):
        LinkPass(None, loader)
    for options in ({"batch_size": 0}, {"mrr_candidates": -1}):
        with pytest.raises(ValueInvalid, match=rf"^\[LinkPass\] expected {next(iter(options))} of at least 1"):
            LinkPass(model, loader, **options)
    with pytest.raises(DtypeInvalid, match="batch_size as an integer"):
        LinkPass(model, loader, batch_size="a")


def test_a_pass_without_what_scores_it(monkeypatch):
    graph, model = graph_of(WARM), model_of()
    monkeypatch.setitem(sys.modules, "sklearn", None)  # not installed: said at once, and not where it is first needed
    with pytest.raises(DataMissing, match=r"expected the package sklearn, got none.*livegnn\[train\]"):
        LinkPass(model, InputLoader(graph, sampler_of(graph)))


@pytest.mark.parametrize("make", [TGN, TGAT, DySAT, TemporalSAGE, TemporalGAT])
def test_arguments_of_models(make):
    where = rf"^\[{make.__name__}\] expected "
    for name in ("embed_width", "hop_count", "x_width"):
        for value in ("a", 2.5, None, True):
            with pytest.raises(DtypeInvalid, match=where + f"{name} as an integer"):
                make(**{name: value})
        with pytest.raises(ValueInvalid, match=where + f"{name} of . or more, got -1"):
            make(**{name: -1})
    for value in ("a", None, True):
        with pytest.raises(DtypeInvalid, match=where + "dropout as a number"):
            make(dropout=value)
    with pytest.raises(ValueInvalid, match="finite"):
        make(dropout=float("nan"))


def test_arguments_of_one_model():
    with pytest.raises(DtypeInvalid, match=r"\[TGAT\] expected learn_time as True or False"):
        TGAT(learn_time="no")
    with pytest.raises(DtypeInvalid, match=r"\[TGN\] expected time_origin as an integer"):
        TGN(time_origin="a")
    for module, widths in ((None, (1, 1, 1)), (torch.nn.Linear(2, 2), ("a", 1, 1))):
        with pytest.raises((UsageError, DtypeInvalid), match=r"\[StaticLinks\] expected"):
            StaticLinks(module, hop_count=widths[0], x_width=1, out_width=1)
    with pytest.raises(StoredStateInvalid, match="got int"):
        model_of().memory.load_state(5)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"tensorboard": "no"}, DtypeInvalid, "tensorboard as True or False"),
        ({"progress": 3}, UsageError, "progress as a callable"),
        ({"replay": "a"}, DtypeInvalid, "replay as a number"),
        ({"vertex_features": 3}, UsageError, "vertex_features as a FeatureCache or None"),
        ({"chunks": 10**6}, ValueInvalid, "at most as many chunks as a mini-batch has events"),
    ],
)
def test_options_of_a_trainer(options, error, words):
    graph, model = graph_of(WARM), model_of()
    model.memory.reset(7)
    with pytest.raises(error, match=words):
        trainer_of(graph, model, **options)
    assert model.memory.slot_count == 7
    assert len(graph.host.consumers) == 0


@pytest.mark.parametrize("kind", ["number", "nul", "long", "bytes", "below a file", "in proc"])
def test_folders_that_cannot_be_made(tmp_path, kind):
    (tmp_path / "file").write_text("")

    class Bytes(os.PathLike):
        def __fspath__(self):
            return b"runs"

    folder = {
        "number": 5,
        "nul": "runs\0",
        "long": tmp_path / ("x" * 5000),
        "bytes": Bytes(),
        "below a file": tmp_path / "file" / "runs",
        "in proc": "/proc/runs",
    }[kind]
    graph, model = graph_of(WARM), model_of()
    model.memory.reset(7)
    with pytest.raises(UsageError, match=r"^\[ContinuousTrainer\] expected folder as "):
        trainer_of(graph, model, folder=folder)
    assert model.memory.slot_count == 7
    assert len(graph.host.consumers) == 0


def test_calls_of_a_trainer():
    trainer = trainer_of(graph_of(WARM))
    with pytest.raises(UsageError, match=r"^\[run\] expected batches, got NoneType"):
        trainer.run(None)  # at once, not at the first batch
    for options in ({"validation": "a"}, {"validation": 0.1, "patience": "b"}, {"validation": 0.1, "patience": 1.5}):
        with pytest.raises((DtypeInvalid, ValueInvalid), match=r"^\[(fit|ContinuousTrainer)\] expected"):
            trainer.fit(1, **options)
    trainer.fit(1)
    for options in ({"events_min": "a"}, {"events_min": 0}, {"poll_s": "b"}, {"poll_s": -1}, {"poll_s": float("nan")}):
        with pytest.raises(ValueInvalid, match=next(iter(options))):
            trainer.start(**options)
    assert trainer._background is None
    with pytest.raises(lg.errors.LiveGnnError):
        list(trainer.run([None]))


def test_calls_of_an_engine():
    graph = graph_of(WARM)
    engine = lg.TemporalEngine(model_of(), graph, sampler_of(graph))
    for given, name in ((([1, 999], [31, 32]), "src"), (([1, 2], [31, 999]), "dst")):
        with pytest.raises(VertexUnknown, match=rf"^\[predict\] expected live vertices in {name}, got 999 at row 1"):
            engine.predict(*given, 10**6)
    found = engine.next([3], 10**6, candidates=[31, 40, 31, 31], k=2)
    assert sorted(found.dst[0].tolist()) == [31, 40]
    with pytest.raises(ValueInvalid, match="from 1 to the 2 candidates, got 3"):
        engine.next([3], 10**6, candidates=[31, 40, 31], k=3)
    with pytest.raises(DtypeInvalid, match="k as an integer"):
        engine.next([3], 10**6, k="a")
    with pytest.raises(DtypeInvalid, match="upto as an integer"):
        engine.swap(model_of(), upto="a")
    with pytest.raises(StoredStateInvalid, match="got int"):
        engine.swap(model_of(), memory=5, upto=0)
    with pytest.raises(WidthMismatch, match="as many dst as src"):
        engine.predict([1, 2], [31], 10**6)


def test_vertices_with_names_are_named_with_their_column():
    ids = [f"v{i}" for i in range(4)]
    x = np.zeros((4, 5), np.float32)
    graph = lg.Graph(x, ["v0"], ["v1"], time=[1], ids=ids)
    engine = lg.TemporalEngine(model_of(), graph, sampler_of(graph))
    for given, name in (((["v0", "w"], ["v1", "v1"]), "src"), ((["v0", "v0"], ["v1", "w"]), "dst")):
        with pytest.raises(VertexUnknown, match=rf"^\[predict\] .*{name}.*'w' at row 1"):
            engine.predict(*given, 10)


def test_calls_of_a_pin():
    graph = graph_of(WARM)
    with sampler_of(graph).pin() as pin:
        assert pin.edge_attrs([0, 3]).shape == (2, 0)
        with pytest.raises(VertexUnknown, match=r"^\[to_external\] expected vertices of version 0, got 999 at row 1"):
            pin.to_external([3, 999])
        gone = lg.Updates()
        gone.remove_vertex(3)
        graph.apply(gone)
        assert pin.to_external([3, 4]).tolist() == [3, 4]
    with sampler_of(graph).pin() as pin, pytest.raises(VertexUnknown, match="version 1, got 3 at row 0"):
        pin.to_external([3])
    attributed = graph_of(WARM, attributes=2)
    with sampler_of(attributed).pin() as pin, pytest.raises(lg.errors.EdgeMissing, match=r"^\[edge_attrs\]"):
        pin.edge_attrs([10**6])
    named = lg.Graph(np.zeros((2, 0), np.float32), ["a"], ["b"], time=[1], ids=["a", "b"])
    with sampler_of(named).pin() as pin, pytest.raises(VertexUnknown, match="got 2 at row 0"):
        pin.to_external([2])


def test_chunks_leave_no_short_mini_batch_at_the_end():
    for count in range(60):
        for size in range(1, 20):
            for first in range(1, size + 1):
                lengths = [part.stop - part.start for part in cut_evenly(count, size, first)]
                assert sum(lengths) == count
                assert not lengths or lengths[0] == min(first, count)
                rest = lengths[1:]
                assert len(rest) == -(-max(count - first, 0) // size)
                assert not rest or (max(rest) <= size and max(rest) - min(rest) <= 1)


def test_a_training_with_chunks_takes_even_steps(monkeypatch):
    trainer = trainer_of(graph_of(90), model_of("tgat"), batch_size=40, chunks=4, epochs=1)
    seen, load = [], trainer._loader.load
    monkeypatch.setattr(
        trainer._loader, "load", lambda slots, *rest: seen.append(len(slots) // 3) or load(slots, *rest)
    )
    trainer.fit(6)
    firsts, passes = set(), []
    while seen:
        lengths = []
        while sum(lengths) < 90:
            lengths.append(seen.pop(0))
        passes.append(lengths)
        firsts.add(lengths[0])
        assert max(lengths[1:]) - min(lengths[1:]) <= 1
    assert len(passes) == 6
    assert firsts <= {10, 20, 30, 40}
    assert len(firsts) > 1


def test_a_batch_is_applied_by_run_after_the_warm_start():
    trainer = trainer_of(graph_of(WARM), epochs=1)
    trainer.fit(1)
    (report, *_) = list(trainer.run(list(batches(WARM, 400))[:1]))
    assert report.round == 1
