"""The best vertices over workers: of one version among batches, whatever is lost; what is refused as by an engine."""

import logging
import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import topk
from tests.unit.deployment.changing import ChangingWorld

KINDS = ["dense", "integer", "text", "typed"]


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="livegnn")


def pair(kind, workers=3):
    """The same world in this process and over workers, and its type of vertices."""
    one, many = ChangingWorld(kind).with_engine(), ChangingWorld(kind).with_workers(workers)
    return one, many, {} if one.vertex_type is None else {"vertex_type": one.vertex_type}


def answer(live, **asked):
    found = topk.best(live, **asked)
    return found.vertices.tolist(), found.scores.tobytes(), found.version


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_every_kind_after_slots_were_taken_again(kind):
    one, many, of = pair(kind)
    for _ in range(30):
        one.engine.apply(one.batch())
        many.engine.apply(many.batch())
        vertex = one.live[int(one.rng.integers(len(one.live)))]
        many.rng.integers(len(many.live))  # both worlds draw alike
        for linked in (True, False):
            asked = {"vertex": vertex, "k": 7, "linked": linked, **of}
            assert answer(many.engine, **asked) == answer(one.engine, **asked)
    assert np.any(
        np.diff(one.graph.to_slots(np.array(one.live, object).tolist(), **of)) < 0
    )  # the newest has an old slot
    many.engine.close()


@pytest.mark.parametrize("lost", ["read_rows", "out_slots", "best_slots"])
@pytest.mark.parametrize("worker", range(3))
def test_that_a_worker_lost_in_mid_call_changes_no_answer(lost, worker):
    one, many, _ = pair("dense")
    crew = many.engine._crew._crew
    call, killed = crew.call, []

    def losing(calls):
        if calls[0][0] == lost and not killed:
            killed.append(lost)
            crew.kill(worker)
        return call(calls)

    crew.call = losing
    for world in (one, many):
        for _ in range(3):
            world.engine.apply(world.batch())
    asked = {"vertex": one.live[4], "k": 5, "linked": False}
    assert answer(many.engine, **asked) == answer(one.engine, **asked)
    assert killed == [lost]
    many.engine.close()


def test_that_answers_among_batches_are_of_one_version():
    one, many, _ = pair("dense")
    asked = {"row": np.ones(3, np.float32), "k": 6}
    wanted, found, ended = {0: answer(one.engine, **asked)}, [], threading.Event()

    def read():
        while not ended.is_set():
            found.append(answer(many.engine, **asked))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(1, 61):
        one.engine.apply(one.batch())
        wanted[version] = answer(one.engine, **asked)
        many.engine.apply(many.batch())
        if version == 30:
            many.engine.repartition("hash", 2)
    ended.set()
    for reader in readers:
        reader.join(60)
    assert len(found) > 20
    for each in found:
        assert each == wanted[each[2]]
    many.engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_is_refused_in_the_same_words(kind):
    one, many, of = pair(kind)
    unknown = "none" if kind == "text" else 123456
    width = one.engine.model.output_width if kind != "typed" else one.engine.model.output_widths["b"]
    known = {"vertex": one.live[0]}
    for error, asked in (
        (lg.errors.UsageError, {}),
        (lg.errors.UsageError, known | {"row": np.ones(width, np.float32)}),
        (lg.errors.UsageError, {"row": np.ones(width, np.float32), "metric": "model"}),
        (lg.errors.WidthMismatch, {"row": np.ones(width + 1, np.float32)}),
        (lg.errors.WidthMismatch, {"row": np.ones((1, width), np.float32)}),
        (lg.errors.ValueInvalid, {"row": np.full(width, np.nan, np.float32)}),
        (lg.errors.VertexUnknown, {"vertex": unknown}),
        (lg.errors.DtypeInvalid, {"vertex": 3 if kind == "text" else "ann"}),
        (lg.errors.ValueInvalid if of else lg.errors.ColumnMissing, known | {"candidate_type": "c"}),
    ):
        said = []
        for world in (one, many):
            with pytest.raises(error) as refused:
                topk.best(world.engine, **{**of, **asked})
            said.append(str(refused.value))
        assert said[0] == said[1], asked
    if kind == "typed":
        for world in (one, many):
            with pytest.raises(lg.errors.ColumnMissing):
                topk.best(world.engine, row=np.ones(width, np.float32))
            with pytest.raises(lg.errors.WidthMismatch):  # rows of a have 5 columns
                topk.best(world.engine, **known, vertex_type="b", candidate_type="a", metric="model")
    many.engine.close()


def test_that_a_closed_cluster_and_a_what_if_are_refused():
    _, many, _ = pair("dense")
    with many.engine.what_if(many.batch()), pytest.raises(lg.errors.UsageError, match="what_if"):
        topk.best(many.engine, vertex=1)
    assert len(topk.best(many.engine, vertex=1, k=4).vertices) == 4
    many.engine.close()
    with pytest.raises(lg.errors.UsageError, match=r"\[topk\] expected an open cluster"):
        topk.best(many.engine, vertex=1)
