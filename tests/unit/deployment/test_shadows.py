"""A shadow that cannot take a batch is set aside: the batch stands, for the engine and for a replay."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry, audit
from livegnn.errors import RangeOverflow, UsageError
from tests.unit.deployment.world import abandon, deployment, edge, prepared

COLUMN = 3  # which the served model does not read
LARGE = 1e9  # beyond what the shadow's fixed point holds


def one_layer(seed, reads):
    weights = np.random.default_rng(seed).normal(size=(3, 4))
    weights[:, COLUMN] *= reads
    return lg.Model([lg.layers.GCN(weights)])


@pytest.fixture
def place(tmp_path):
    prepared(tmp_path)
    registry = Registry(tmp_path / "models")
    registry.add("served", one_layer(1, 0))
    registry.add("next", one_layer(2, 1))
    registry.add("next", one_layer(2, 0))
    return tmp_path


def world(place, mode="eager", **more):
    return deployment(place, engine=[{"name": "scores", "model": "served", "shadow": "next/1", "mode": mode}], **more)


def large(vertex=5, value=LARGE):
    row = np.zeros(4, np.float32)
    row[COLUMN] = value
    updates = lg.Updates()
    updates.set_features(vertex, row)
    return updates


def test_the_batch_stands_without_the_shadow(place):
    with world(place) as one:
        one.apply(edge(1, 2))
        shadow = one.shadows["scores"]
        compared = shadow.disagreement.compared
        assert compared > 0
        assert one.apply(large(), key="k").version == 2
        assert shadow.refusal.startswith("version 2: [")
        assert "scores.shadow" not in one.engines
        assert list(one.models) == ["scores"]
        one.apply(edge(2, 3))
        assert shadow.disagreement.compared == compared
        one.engine("scores").verify()


def test_a_shadow_on_demand_is_set_aside_when_it_is_read(place):
    row = np.zeros(4, np.float32)
    row[COLUMN] = LARGE
    updates = lg.Updates()
    updates.add_vertex(30, row)  # of which "changes" speaks also on demand
    updates.add_edge(30, 30)
    with world(place, "on_demand") as one:
        one.apply(updates)
        assert one.shadows["scores"].refusal.startswith("version 1: [")
        assert list(one.engines) == ["scores"]
        one.apply(edge(2, 30))
        one.engine("scores").verify()


def test_a_bad_batch_is_refused_for_its_own_reason_and_the_shadow_stays(place):
    with world(place) as one:
        updates = large()
        for _ in range(100):  # more than there are
            updates.remove_edge(0, 0)
        with pytest.raises(lg.errors.EdgeMissing):
            one.apply(updates)
        assert one.shadows["scores"].refusal == ""
        one.engine("scores.shadow").verify()


def test_an_engine_that_is_no_shadow_still_refuses(place):
    with deployment(place, engine=[{"name": "scores", "model": "next/1", "shadow": "served"}]) as one:
        digests = {name: engine.state_digest() for name, engine in one.engines.items()}
        with pytest.raises(RangeOverflow):
            one.apply(large())
        assert {name: engine.state_digest() for name, engine in one.engines.items()} == digests


def test_a_log_that_fails_after_the_refusal_leaves_both_as_they_were(place, monkeypatch):
    with world(place) as one:
        digests = {name: engine.state_digest() for name, engine in one.engines.items()}

        def fail(*args, **options):
            raise lg.errors.LogUnavailable("[append] expected a disk, got none; try again")

        with monkeypatch.context() as patch:
            patch.setattr(one.log.log, "_put", fail)
            with pytest.raises(lg.errors.LogUnavailable):
                one.apply(large())
        assert one.shadows["scores"].refusal == ""
        assert {name: engine.state_digest() for name, engine in one.engines.items()} == digests
        one.apply(large())
        assert one.shadows["scores"].refusal


def test_a_replay_sets_it_aside_at_the_same_place_and_a_start_begins_it_anew(place):
    one = world(place).start()
    one.apply(edge(1, 2))
    one.apply(large())
    one.apply(edge(2, 3))
    digest = one.engine("scores").state_digest()
    abandon(one)
    assert not [each for each in audit.verify(place / "data") if each.fault]
    again = world(place).start()  # the replay of the tail refuses it, and then the start begins it anew, as an entry
    assert again.engine("scores").state_digest() == digest
    assert again.shadows["scores"].refusal == ""
    assert again.log.tail == 4
    again.apply(edge(3, 4))
    digests = {name: engine.state_digest() for name, engine in again.engines.items()}
    assert set(digests) == {"scores", "scores.shadow"}
    abandon(again)
    with world(place) as third:
        assert {name: engine.state_digest() for name, engine in third.engines.items()} == digests
        assert third.log.tail == 5
    assert not [each for each in audit.verify(place / "data") if each.fault]


def test_a_swap_begins_it_anew(place):
    with world(place) as one:
        one.apply(large())
        one.swap("scores.shadow", "next/2")
        assert one.shadows["scores"].refusal == ""
        assert one.models == {"scores": "served/1", "scores.shadow": "next/2"}
        one.apply(edge(3, 4))
        assert one.shadows["scores"].disagreement.compared > 0
        one.engine("scores.shadow").verify()


def test_a_swap_that_fails_leaves_it_aside(place, monkeypatch):
    with world(place) as one:
        one.apply(large())

        def fail(*args, **options):
            raise lg.errors.LogUnavailable("[append] expected a disk, got none; try again")

        with monkeypatch.context() as patch:
            patch.setattr(one.log.log, "_put", fail)
            with pytest.raises(lg.errors.LogUnavailable):
                one.swap("scores.shadow", "next/2")
        assert "scores.shadow" not in one.engines
        assert one.shadows["scores"].refusal
        one.apply(edge(1, 2))


def test_it_is_back_with_its_entry_and_not_before(place, monkeypatch):
    with world(place) as one:
        one.apply(large())
        switch, found = one._committer.switch, []

        def watched(*args, **options):
            other = threading.Thread(target=tried)
            other.start()
            other.join()
            return switch(*args, **options)

        def tried():
            lock = one.graph.host.lock
            found.append(lock.acquire(blocking=False))
            if found[-1]:
                lock.release()

        monkeypatch.setattr(one._committer, "switch", watched)
        one.swap("scores.shadow", "next/2")
        assert found == [False]  # no batch, and no snapshot, comes in between
        assert one.shadows["scores"].refusal == ""


def test_a_batch_of_the_log_that_it_refuses_again_leaves_it_aside(place, monkeypatch):
    with world(place) as one:
        one.apply(large())

        def behind(*args, **options):
            one.graph.apply(large(6, 1e20))  # what the log had more
            raise lg.errors.LogUnavailable("[append] expected a disk, got none; try again")

        with monkeypatch.context() as patch:
            patch.setattr(one._committer, "switch", behind)
            with pytest.raises(lg.errors.LogUnavailable):
                one.swap("scores.shadow", "next/1")
        assert one.shadows["scores"].refusal.startswith("version 2: [")
        one.swap("scores.shadow", "next/2")
        assert one.shadows["scores"].refusal == ""


def test_one_that_is_back_is_explained_anew(place):
    with world(place) as one:
        assert one.explanations.of("scores.shadow", 2).recorded_since == 0
        one.apply(large())
        one.swap("scores.shadow", "next/2")
        assert one.explanations.of("scores.shadow", 2).recorded_since == 2
        one.apply(edge(1, 2))
        assert one.explanations.of("scores.shadow", 2).change.version == 3


def test_a_new_engine_that_the_logs_tail_does_not_fit_says_how_it_comes_in(place):
    served, late = {"name": "scores", "model": "served"}, {"name": "late", "model": "next/1"}
    every_batch = {"explain": {"record": "always"}}  # engines take part in the replay
    one = deployment(place, engine=[served]).start()
    one.apply(large())
    abandon(one)
    with pytest.raises(UsageError, match="expected late, new in the configuration"):
        deployment(place, engine=[served, late], **every_batch).start()
    with deployment(place, engine=[served], snapshots={"at_close": False}):
        pass
    with deployment(place, engine=[served, late]) as again:  # made on the graph after it
        again.engine("late").verify()
