"""Rounds of a ContinuousTrainer that fail: all is taken back before the checkpoint; after it the round stands.

One trainer fails at each operation of its rounds in turn, then goes on, and ends as one that never failed.
"""

import hashlib
import os
import resource

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import InvariantBroken, StorageFailed, TrainingDiverged, UsageError
from livegnn.temporal import FeatureCache, InputLoader, LinkPass
from livegnn.temporal.checkpoint import read_checkpoint
from livegnn.temporal.events import EventTable
from livegnn.temporal.models import VertexMemory
from livegnn.temporal.training_state import TrainingState
from tests.unit.temporal.training import (
    VERTICES,
    batches,
    graph_of,
    model_of,
    same_numbers,
    same_tensors,
    trainer_of,
    weights,
)

WARM = 100
OPERATIONS = [  # of a round, in any order: what is done, and where a failure comes from
    (lg.TemporalSampler, "pin"),
    (VertexMemory, "grow"),
    (VertexMemory, "forget"),
    (EventTable, "append"),
    (InputLoader, "load"),
    (InputLoader, "edge_rows"),
    (VertexMemory, "observe"),
    (torch.optim.Adam, "step"),
    (torch.Tensor, "backward"),
    (LinkPass, "observe"),
    (TrainingState, "remember"),
    (TrainingState, "saved"),
    (FeatureCache, "save"),
    (torch, "save"),
    (os, "fsync"),
    (os, "replace"),
]


class Killed(BaseException):
    """As Ctrl-C: no Exception."""


class Faults:
    """Counts operations; the one with number `fails` raises instead, once."""

    def __init__(self, monkeypatch):
        self.fails, self.done, self.failed, self.seen = -1, 0, None, set()
        for owner, name in OPERATIONS:
            monkeypatch.setattr(owner, name, self._counted(name, getattr(owner, name)))

    def _counted(self, name, call):
        def counted(*arguments, **options):
            self.done += 1
            if self.done == self.fails:
                self.failed = name
                self.seen.add(name)
                raise Killed(name)
            return call(*arguments, **options)

        return counted

    def at(self, number):
        self.fails, self.done, self.failed = number, 0, None


def add(hashed, value):
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            if key not in ("seconds", "hit_rates"):  # what a clock says, and what caches have seen so far
                hashed.update(f"{key}:".encode())
                add(hashed, value[key])
    elif isinstance(value, list | tuple):
        hashed.update(f"[{len(value)}".encode())
        for part in value:
            add(hashed, part)
    elif isinstance(value, torch.Tensor):
        hashed.update(f"{value.dtype}{tuple(value.shape)}".encode())
        hashed.update(value.detach().contiguous().numpy().tobytes())
    else:
        hashed.update(repr(value).encode())


def digest_of(trainer):
    """All that a round changes: what a checkpoint holds, the model's mode, and torch's generator."""
    hashed = hashlib.blake2b(digest_size=8)
    add(hashed, trainer._state.saved())
    add(hashed, [trainer.model.training, torch.get_rng_state(), trainer.rounds])
    return hashed.hexdigest()


def stream():
    """Events, removed edges, and vertices that go and come back."""
    for number, updates in enumerate(list(batches(WARM, 50, attributes=3))[:3]):
        if number == 1:
            updates.remove_vertex(7)
            updates.add_vertex(7, np.ones(5, np.float32))
            updates.remove_edges_before(3)
        yield updates


def made(name, folder, **options):
    torch.manual_seed(3)
    graph = graph_of(WARM, attributes=3)
    caches = {
        "vertex_features": FeatureCache(graph, capacity=VERTICES // 3),
        "edge_features": FeatureCache.of_edges(graph, capacity=40),
    }
    settings = {"batch_size": 25, "epochs": 1, "replay": 0.5, "folder": folder, **caches, **options}
    return trainer_of(graph, model_of(name, edge_width=3), **settings)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def take_in(faults, trainer):
    """What came is taken in before a round begins, at the first try that gets so far; it stays taken in."""
    for number in range(1, 1000):
        faults.at(number)
        try:
            with trainer._reading():
                faults.at(-1)
                return
        except Killed:
            continue


def survive(faults, call, trainer, folder):
    """Makes the call fail at each of its operations in turn, until it has none left to fail at."""
    take_in(faults, trainer)
    path, renamed = folder / "checkpoint.pt", None
    before, files = digest_of(trainer), files_of(folder).get(path.name)
    for number in range(1, 1000):
        faults.at(number)
        try:
            result = call()
        except Killed:
            assert digest_of(trainer) == before, f"operation {number}, {faults.failed}"
            assert renamed is None, "the folder's sync is the last operation"
            if files_of(folder).get(path.name) != files:
                assert faults.failed == "fsync", f"operation {number}, {faults.failed}"
                renamed = read_checkpoint(path, "test")
            assert not list(folder.glob("*.part"))
        else:
            assert faults.failed is None, f"{faults.failed} failed unseen"
            faults.at(-1)
            assert renamed is None or renamed["version"] == read_checkpoint(path, "test")["version"]
            return result
    raise AssertionError("a call without an end")


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_a_round_that_fails_anywhere_is_taken_back(tmp_path, monkeypatch, name):
    whole = made(name, tmp_path / "whole", chunks=5)
    whole.take_as_trained()
    list(whole.run(list(stream())[:2]))

    trainer = made(name, tmp_path / "failing", chunks=5)
    trainer.take_as_trained()
    faults = Faults(monkeypatch)
    for updates in list(stream())[:2]:
        trainer.graph.apply(updates)
        survive(faults, trainer.round, trainer, tmp_path / "failing")
    expected = {name for owner, name in OPERATIONS if name != "append"}
    if name == "tgat":
        expected -= {"grow", "forget", "observe", "edge_rows", "remember"}
    assert faults.seen >= expected
    same_numbers(trainer.report, whole.report)
    assert digest_of(trainer) == digest_of(whole)
    for cache, other in zip(trainer._caches, whole._caches, strict=True):
        np.testing.assert_array_equal(cache.ids(), other.ids())
    again = made(name, tmp_path / "failing", chunks=5)
    again.close()
    same_numbers(again.report, whole.report)


@pytest.mark.parametrize("name", ["tgn", "tgat"])
def test_a_warm_start_that_fails_anywhere_goes_on(tmp_path, monkeypatch, name):
    options = {"validation": 0.2, "patience": 1}
    whole = made(name, tmp_path / "whole", learning_rate=0.05)
    whole.fit(3, **options)
    trainer = made(name, tmp_path / "failing", learning_rate=0.05)
    faults = Faults(monkeypatch)
    for number in range(1, 1000):
        faults.at(number)
        try:
            trainer.fit(3, **options)
        except Killed:
            faults.at(-1)
        if trainer.rounds:
            break
    assert faults.seen >= {"load", "save", "replace", "saved"}
    assert number > 10
    same_numbers(trainer.report, whole.report)
    same_tensors(weights(trainer.model), weights(whole.model))
    assert digest_of(trainer) == digest_of(whole)


@pytest.mark.parametrize("taken", [False, True], ids=["fit", "take_as_trained"])
def test_what_ends_a_warm_start_is_taken_back_too(tmp_path, monkeypatch, taken):
    trainer = made("tgn", tmp_path)
    faults = Faults(monkeypatch)
    if taken:
        survive(faults, trainer.take_as_trained, trainer, tmp_path)
    whole = made("tgn", tmp_path / "whole")
    whole.take_as_trained()
    if not taken:
        trainer.fit(1)
        whole = made("tgn", tmp_path / "other")
        whole.fit(1)
    assert digest_of(trainer) == digest_of(whole)


def test_a_full_disk_takes_the_round_back(tmp_path):
    """A file that the kernel lets grow no further."""
    whole, trainer = made("tgn", tmp_path / "whole"), made("tgn", tmp_path / "full")
    for one in (whole, trainer):
        one.take_as_trained()
        one.graph.apply(next(stream()))
    whole.round()
    before, files = digest_of(trainer), files_of(tmp_path / "full")
    heard = []
    trainer.publish_to(lambda model, report: heard.append(report.round))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(StorageFailed, match=r"a checkpoint to .*checkpoint\.pt, got .*taken back"):
            trainer.round()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert digest_of(trainer) == before
    assert files_of(tmp_path / "full")["checkpoint.pt"] == files["checkpoint.pt"]
    assert heard == [0]
    trainer.round()
    assert heard == [0, 1]
    assert digest_of(trainer) == digest_of(whole)


def test_a_folder_that_is_a_file_now_takes_the_round_back(tmp_path):
    folder = tmp_path / "runs"
    trainer = made("tgat", folder)
    trainer.take_as_trained()
    trainer.graph.apply(next(stream()))
    before = digest_of(trainer)
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("in the way")
    with pytest.raises(StorageFailed, match="expected to write a checkpoint"):
        trainer.round()
    assert digest_of(trainer) == before
    folder.unlink()  # and a folder that vanished is made again
    assert trainer.round().events == 50
    assert (folder / "checkpoint.pt").exists()


@pytest.mark.parametrize("operation", [(torch, "save"), (os, "replace")])
def test_an_interrupt_in_the_write_takes_the_round_back(tmp_path, monkeypatch, operation):
    whole, trainer = made("tgn", tmp_path / "whole"), made("tgn", tmp_path / "stopped")
    for one in (whole, trainer):
        one.take_as_trained()
        one.graph.apply(next(stream()))
    whole.round()
    before = digest_of(trainer)

    def stop(state, file, *more):
        if hasattr(file, "write"):
            file.write(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*operation, stop)
        with pytest.raises(KeyboardInterrupt):
            trainer.round()
    assert digest_of(trainer) == before
    trainer.round()
    assert digest_of(trainer) == digest_of(whole)


def test_a_round_that_cannot_be_taken_back_is_the_last(tmp_path, monkeypatch):
    trainer = made("tgat", tmp_path)
    trainer.take_as_trained()
    trainer.graph.apply(next(stream()))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", lambda *given: (_ for _ in ()).throw(OSError("no room")))
        patch.setattr(trainer._optimizer, "load_state_dict", lambda state: (_ for _ in ()).throw(MemoryError("none")))
        with pytest.raises(MemoryError):
            trainer.round()
    with pytest.raises(InvariantBroken, match="make a new trainer on its folder"):
        trainer.round()
    again = made("tgat", tmp_path)
    again.graph.apply(next(stream()))
    assert again.round().events == 50


def test_a_diverging_round_goes_on_when_the_model_is_itself_again(tmp_path):
    whole, trainer = made("tgn", tmp_path / "whole"), made("tgn", tmp_path / "nan")
    for one in (whole, trainer):
        one.take_as_trained()
        one.graph.apply(next(stream()))
    whole.round()
    embed = trainer.model.embed
    trainer.model.embed = lambda inputs: embed(inputs) * float("nan")
    with pytest.raises(TrainingDiverged):
        trainer.round()
    del trainer.model.embed
    trainer.round()
    assert digest_of(trainer) == digest_of(whole)


# ---- publishing: the round stands


class Target:
    """Fails as often as it is told to."""

    def __init__(self, error=None, times=0):
        self.error, self.times, self.rounds = error, times, []

    def __call__(self, model, report):
        self.rounds.append(report.round)
        if report.round and self.times:
            self.times -= 1
            raise self.error


def test_a_target_that_fails_keeps_no_other_from_the_model(tmp_path):
    trainer = made("tgn", tmp_path)
    trainer.take_as_trained()
    first, full, other, last = Target(), Target(OSError("no room"), 1), Target(ValueError("not now"), 1), Target()
    engine = lg.TemporalEngine(trainer.model, trainer.graph, trainer.sampler, memory_step=25)
    for target in (first, full, other, engine, last):
        trainer.publish_to(target)
    more = list(stream())
    with pytest.raises(OSError, match="no room") as raised:
        list(trainer.run(more[:1]))
    notes = " ".join(raised.value.__notes__)
    assert "round 1 stands, 2 of 5 targets did not take its model" in notes
    assert "ValueError: not now" in notes
    assert trainer.rounds == 2  # the round stands, and is in the folder
    assert made("tgn", tmp_path).rounds == 2
    same_tensors(weights(engine._pass.model), weights(trainer.model))
    assert "publish" in trainer.report.rounds[-1].seconds
    list(trainer.run(more[1:]))
    assert [one.rounds for one in (first, full, other, last)] == [[0, 1, 2, 3]] * 4
    whole = made("tgn", tmp_path / "whole")
    whole.take_as_trained()
    list(whole.run(stream()))
    assert digest_of(trainer) == digest_of(whole)


def test_an_interrupt_while_publishing_leaves_the_round(tmp_path):
    trainer = made("tgat", tmp_path)
    trainer.take_as_trained()
    stopped, last = Target(KeyboardInterrupt(), 1), Target()
    trainer.publish_to(stopped)
    trainer.publish_to(last)
    more = list(stream())
    with pytest.raises(KeyboardInterrupt):
        list(trainer.run(more[:1]))
    assert trainer.rounds == 2
    list(trainer.run(more[1:]))
    assert last.rounds == [0, 2, 3]


def test_a_resumed_trainer_hands_its_model_to_all(tmp_path):
    trainer = made("tgat", tmp_path)
    trainer.take_as_trained()
    more = list(stream())
    list(trainer.run(more[:1]))
    trainer.close()
    again = made("tgat", tmp_path)
    full, last = Target(OSError("no room"), 1), Target()
    again.publish_to(full)
    again.publish_to(last)
    with pytest.raises(OSError, match="no room"):
        list(again.run(more[:1]))  # history already: only the model is handed over
    assert [full.rounds, last.rounds] == [[1], [1]]
    list(again.run(more[1:]))
    assert [full.rounds, last.rounds] == [[1, 2, 3]] * 2


def test_a_stream_before_the_warm_start_is_not_applied(tmp_path):
    trainer = made("tgat", tmp_path)
    with pytest.raises(UsageError, match=r"\[run\] expected a trainer after fit\(\)"):
        list(trainer.run(stream()))
    assert trainer.graph.version == 0
    trainer.close()
    with pytest.raises(UsageError, match="an open trainer"):
        trainer.take_as_trained()
