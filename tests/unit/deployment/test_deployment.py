"""Deployment: what is acknowledged is there after a restart, once; what it recovers is bit-equal."""

from __future__ import annotations

import shutil
import sqlite3
import threading

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry, snapshots
from livegnn.errors import (
    LogDamaged,
    LogUnavailable,
    StoredStateInvalid,
    UpdateError,
    UsageError,
    ValueInvalid,
    VersionPending,
)
from livegnn.log import open_log
from tests.unit.deployment.world import ENGINES, abandon, deployment, edge, graph, model, prepared


@pytest.fixture
def place(tmp_path):
    return prepared(tmp_path)


def test_a_restart_has_every_acknowledged_batch_and_the_same_bits(place):
    first = deployment(place).start()
    for u in range(20):
        first.apply(edge(u, u + 3))
    digest = first.engine("scores").state_digest()
    abandon(first)
    with deployment(place) as second:
        assert second.version == 20
        assert second.engine("scores").state_digest() == digest
        second.engine("scores").verify()
        second.apply(edge(1, 2))
    with deployment(place) as third:  # from the snapshot that close() wrote
        assert third.version == 21
        third.engine("scores").verify()


def test_a_batch_that_comes_again_with_its_key_gets_the_first_answer(place):
    first = deployment(place).start()
    answer = first.apply(edge(1, 2), key="a")
    first.apply(edge(1, 2))
    assert first.apply(edge(1, 2), key="a") == answer._replace(repeated=True)
    with pytest.raises(UsageError, match="key 'a' came with first"):
        first.apply(edge(2, 1), key="a")
    abandon(first)
    with deployment(place) as second:
        assert second.apply(edge(1, 2), key="a") == answer._replace(repeated=True)
        assert second.version == 2
    with deployment(place) as third:  # the key is in the snapshot, too
        assert third.apply(edge(1, 2), key="a").repeated


def test_a_refused_batch_leaves_its_key_free_and_nothing_else(place):
    with deployment(place) as open_one:
        with pytest.raises(UpdateError):
            open_one.apply(edge(1, 10**6), key="a")
        assert (open_one.version, open_one.log.tail) == (0, 0)
        assert not open_one.apply(edge(1, 2), key="a").repeated


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\nb", 7])
def test_a_bad_key_is_refused_before_anything_changes(place, key):
    with deployment(place) as open_one:
        with pytest.raises(UpdateError, match="key"):
            open_one.apply(edge(1, 2), key=key)
        assert open_one.version == 0


def grouped(open_deployment, batches):
    """Futures of batches that wait while the writer's place is held, so that they become one group."""
    with open_deployment.graph.host.lock:
        blocker = open_deployment.submit(edge(0, 1))
        while open_deployment.commits.waiting_requests:  # the committer has taken it, and waits for the lock
            pass
        futures = [open_deployment.submit(*batch) for batch in batches]
    return blocker, futures


def test_requests_that_wait_share_an_entry_and_a_bad_one_is_refused_alone(place):
    with deployment(place) as open_one:
        blocker, good = grouped(open_one, [(edge(u, u + 1),) for u in range(8)])
        assert {one.result().version for one in good} == {blocker.result().version + 1}
        assert open_one.log.tail == 2

        blocker, mixed = grouped(open_one, [(edge(1, 2),), (edge(1, 10**6),), (edge(3, 4),)])
        with pytest.raises(UpdateError, match="1000000"):
            mixed[1].result()
        assert [mixed[0].result().version, mixed[2].result().version] == [4, 5]
        open_one.engine("scores").verify()


def test_a_key_under_way_shares_its_future(place):
    with deployment(place) as open_one:
        updates = edge(5, 6)
        with open_one.graph.host.lock:
            one, two = open_one.submit(updates, key="a"), open_one.submit(updates, key="a")
        assert one.result().version == two.result().version == 1
        assert open_one.log.tail == 1


def test_a_full_queue_refuses(place):
    with deployment(place, log={"queue_updates_max": 3}) as open_one:
        with open_one.graph.host.lock:
            first = open_one.submit(edge(0, 1))
            while open_one.commits.waiting_requests:
                pass
            kept = [open_one.submit(edge(0, 1)) for _ in range(3)]
            with pytest.raises(lg.errors.Overloaded, match="at most 3 updates"):
                open_one.submit(edge(0, 1))
        assert first.result().version == 1
        assert {one.result().version for one in kept} == {2}
        assert open_one.commits.refused == 1


def test_an_append_that_failed_but_was_written_stands(place, monkeypatch):
    with deployment(place) as open_one:
        real = open_one.log.log._put

        def put_and_fail(*arguments):
            real(*arguments)
            raise LogUnavailable("[append] the answer was lost")

        monkeypatch.setattr(open_one.log.log, "_put", put_and_fail)
        assert open_one.apply(edge(1, 2), key="a").version == 1
        monkeypatch.undo()
        assert open_one.is_ready
        assert open_one.apply(edge(1, 2), key="a").repeated
        assert open_one.log.tail == 1
        open_one.engine("scores").verify()


def test_while_the_log_does_not_answer_nothing_is_taken(place, monkeypatch):
    with deployment(place) as open_one:

        def fail(*_):
            raise LogUnavailable("[append] no answer")

        monkeypatch.setattr(open_one.log.log, "_put", fail)
        monkeypatch.setattr(open_one.log.log, "_tail", fail)
        with pytest.raises(LogUnavailable, match="whether it has the batch"):
            open_one.apply(edge(1, 2), key="a")
        assert not open_one.is_ready
        with pytest.raises(LogUnavailable):
            open_one.apply(edge(3, 4))
        monkeypatch.undo()
        assert open_one.apply(edge(1, 2), key="a") == (1, 1, False)
        assert open_one.is_ready


def test_a_swap_is_an_entry_and_outlives_a_crash(place):
    Registry(place / "models").add("fraud", model(7))
    first = deployment(place, engine=[{"name": "scores", "model": "fraud/1"}]).start()
    first.apply(edge(1, 2))
    first.swap("scores", "fraud/2")
    digest, models = first.engine("scores").state_digest(), first.models
    assert (first.version, models) == (2, {"scores": "fraud/2"})
    abandon(first)
    with deployment(place) as second:  # "fraud", whichever the history says
        assert second.models == models
        assert second.engine("scores").state_digest() == digest
    with deployment(place, engine=[{"name": "scores", "model": "fraud/1"}]) as third:  # the configuration names one
        assert (third.version, third.models) == (4, {"scores": "fraud/1"})
        third.engine("scores").verify()


def test_a_configuration_counts_when_it_changes_and_a_swap_until_then(place):
    Registry(place / "models").add("other", model(7))
    named = {"engine": [{"name": "scores", "model": "other"}]}
    with deployment(place) as first:
        first.swap("scores", "other")
    with deployment(place) as second:  # it says "fraud", as ever: the swap stands
        assert second.models == {"scores": "other/1"}
    with deployment(place, **named) as third:  # what it says anew is there already, and counts from now on
        assert (third.version, third.models) == (2, {"scores": "other/1"})
    with deployment(place) as fourth:
        assert (fourth.version, fourth.models) == (3, {"scores": "fraud/1"})
    with pytest.raises(UsageError, match="a model 'none'"):
        deployment(place, engine=[{"name": "scores", "model": "none"}]).start()


def test_an_engine_that_comes_later_is_an_entry(place):
    first = deployment(place).start()
    first.apply(edge(1, 2))
    abandon(first)
    both = {"engine": [*ENGINES["engine"], {"name": "more", "model": "fraud"}]}
    second = deployment(place, **both).start()
    assert second.version == 2
    second.apply(edge(2, 3))
    digest = second.engine("more").state_digest()
    abandon(second)
    with deployment(place, **both) as third:
        assert third.version == 3
        assert third.engine("more").state_digest() == digest


def test_a_shadow_counts_where_the_models_disagree(place):
    Registry(place / "models").add("other", model(3))
    with deployment(place, engine=[{"name": "scores", "model": "fraud", "shadow": "other"}]) as open_one:
        open_one.apply(edge(1, 2))
        served, shadow = open_one.engine("scores"), open_one.engine("scores.shadow")
        found = open_one.shadows["scores"].disagreement
        ids = np.arange(30)
        wrong = np.flatnonzero(served.predict(ids) != shadow.predict(ids)).tolist()
        assert found.compared > 0
        assert found.differing == len(found.newest)
        assert set(found.newest) <= set(wrong)
        for vertex, pair in found.newest.items():
            assert pair == (served.predict([vertex])[0], shadow.predict([vertex])[0])


def test_readouts_and_samplers_follow(place):
    query = lg.query().out().sample(3).to_text()
    more = {"readout": [{"name": "all", "engine": "scores"}], "sampler": [{"name": "near", "query": query}]}
    with deployment(place, **more) as open_one:
        open_one.apply(edge(1, 2))
        rows = open_one.engine("scores").embeddings(np.arange(30))
        np.testing.assert_allclose(open_one.readouts["all"].rows()[0], rows.mean(axis=0), rtol=1e-5)
        assert open_one.samplers["near"].sample([1]).hop(1).shape == (1, 3)


def test_a_damaged_snapshot_is_left_out_and_the_one_before_it_used(place, caplog):
    with deployment(place) as first:
        first.apply(edge(1, 2))
        first.snapshot()
        first.apply(edge(2, 3))
        digest = first.engine("scores").state_digest()
    newest = snapshots.listed(place / "data")[-1]
    content = bytearray((newest / "graph.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "graph.npz").write_bytes(content)
    with deployment(place, snapshots={"keep": 1}) as second:
        assert second.engine("scores").state_digest() == digest
    assert f"{newest} is damaged" in caplog.text
    assert newest.with_name(f"{newest.name}.damaged").is_dir()  # it counts no more among those that stay
    (only,) = snapshots.listed(place / "data")
    assert snapshots.check(only).version == 2
    for each in snapshots.listed(place / "data"):
        (each / "manifest.json").write_bytes(b"{}")
    with pytest.raises(StoredStateInvalid, match="all damaged"):
        deployment(place).start()


def test_a_snapshot_of_a_version_takes_the_place_of_a_damaged_one(place):
    with deployment(place) as one:
        one.apply(edge(1, 2))
        folder = one.snapshot().folder
        (folder / "keys.json").write_bytes(b"[]]")
        with pytest.raises(StoredStateInvalid):
            snapshots.check(folder)
        assert one.snapshot().folder == folder
        assert snapshots.check(folder).version == 1


def test_a_failed_snapshot_leaves_the_next_one_to_be_tried(place, monkeypatch):
    with deployment(place, snapshots={"every_entries": 1}) as one:
        real, failed = snapshots.write, threading.Event()

        def fail(*_):
            failed.set()
            raise MemoryError

        monkeypatch.setattr(snapshots, "write", fail)
        one.apply(edge(1, 2))
        one.apply(edge(1, 2))
        assert failed.wait(10)
        monkeypatch.setattr(snapshots, "write", real)
        for _ in range(500):
            one.apply(edge(1, 2))
            if one.snapshot_version:
                break
            threading.Event().wait(0.01)
        assert one.snapshot_version


def test_every_bit_of_a_manifest_is_checked(place):
    with deployment(place):
        pass
    (only,) = snapshots.listed(place / "data")
    content = (only / "manifest.json").read_bytes()
    for at in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[at] ^= 4
        (only / "manifest.json").write_bytes(damaged)
        with pytest.raises(StoredStateInvalid):
            snapshots.check(only)


def test_a_damaged_entry_stops_the_start_at_its_offset(place):
    first = deployment(place).start()
    for u in range(3):
        first.apply(edge(u, 9))
    abandon(first)
    with sqlite3.connect(place / "data" / "history.db") as database:
        (frame,) = database.execute("SELECT frame FROM log_updates WHERE offset = 1").fetchone()
        database.execute(
            "UPDATE log_updates SET frame = ? WHERE offset = 1", (bytes([*frame[:-9], frame[-9] ^ 1, *frame[-8:]]),)
        )
    with pytest.raises(LogDamaged, match="offset 1"):
        deployment(place).start()


def test_old_snapshots_go_and_the_entries_bring_one_by_themselves(place):
    with deployment(place, snapshots={"keep": 2, "every_entries": 5}) as open_one:
        for u in range(20):
            open_one.apply(edge(u, 3))
        for _ in range(200):
            if open_one._snapshot_version >= 5:
                break
            threading.Event().wait(0.02)
        assert open_one._snapshot_version >= 5
        report = open_one.snapshot()
        assert report.pause_s > 0
        assert len(snapshots.listed(place / "data")) == 2


def test_a_history_without_its_snapshots_is_refused(place):
    with deployment(place) as first:
        first.apply(edge(1, 2))
    shutil.rmtree(place / "data" / "snapshots")
    with pytest.raises(StoredStateInvalid, match="expected a snapshot in"):
        deployment(place).start()


def test_one_process_has_a_folder_open_and_a_graph_begins_one_history(place):
    with deployment(place), pytest.raises(UsageError, match="another has open"):
        deployment(place).start()
    with pytest.raises(UsageError, match="whose history has begun"):
        deployment(place, begin=graph()).start()
    with deployment(place) as again, pytest.raises(UsageError, match="expected a new deployment"):
        again.start()
    with pytest.raises(UsageError, match="one that is closed"):
        again.apply(edge(1, 2))


def test_read_your_writes(place):
    with deployment(place) as open_one:
        with pytest.raises(VersionPending, match=r"version 1 within 0.01 s, got 0"):
            open_one.wait(1, timeout=0.01)
        future = open_one.submit(edge(1, 2))
        open_one.wait(1, timeout=5)
        assert future.result().version == 1


def test_a_wait_ends_when_the_deployment_closes(place):
    one = deployment(place).start()
    future = one.reached(5)
    one.close()
    with pytest.raises(UsageError, match="a closed one"):
        future.result(1)


def test_waits_that_end_leave_nothing_behind(place):
    with deployment(place) as one:
        for _ in range(20):
            with pytest.raises(VersionPending):
                one.wait(10**6, timeout=0)
        assert not one._committer._awaited


def test_any_error_of_one_request_is_its_own(place, monkeypatch):
    with deployment(place) as one:
        real = type(one.graph).apply

        def apply(graph, updates):
            if len(updates) != 1 or updates.to_columns()[0]["v"][0] == 9:
                raise RuntimeError("not an error of livegnn")
            return real(graph, updates)

        monkeypatch.setattr(type(one.graph), "apply", apply)
        _, futures = grouped(one, [(edge(1, 2),), (edge(1, 9),), (edge(3, 4),)])
        with pytest.raises(RuntimeError):
            futures[1].result()
        assert {futures[0].result().version, futures[2].result().version} == {2, 3}


def test_a_start_that_fails_leaves_nothing_open(place):
    with pytest.raises(UsageError, match="a model 'none'"):
        deployment(place, engine=[{"name": "scores", "model": "none"}]).start()
    with deployment(place) as again:
        assert again.version == 0


def test_another_kind_of_log(place):
    url = f"sqlite:{place / 'elsewhere.db'}"
    with deployment(place, log={"url": url}) as open_one:
        open_one.apply(edge(1, 2))
    with open_log(url, must_exist=True) as log:
        assert log.tail == 1


def test_a_bad_configuration_is_refused_by_its_key(place):
    for wrong, message in [
        ({"engin": []}, "'engin'"),
        ({"engine": [{"name": "a"}]}, "'model'"),
        ({"engine": [{"name": "a", "model": "m"}] * 2}, "'a' twice"),
        ({"readout": [{"name": "r", "engine": "b"}]}, "got 'b'"),
        ({"snapshots": {"keep": 0}}, "snapshots.keep"),
    ]:
        with pytest.raises(ValueInvalid, match=message):
            lg.Deployment({"models": "models", **wrong}, place / "data")


def test_closing_waits_for_a_snapshot_of_another_thread(place, monkeypatch):
    one = deployment(place, snapshots={"at_close": False}).start()
    one.apply(edge(1, 2))
    write, closing, alive = snapshots.write, threading.Thread(target=one.close), []

    def slow(*args):
        closing.start()
        one._watcher.join(60)  # closing is as far as that
        closing.join(0.5)
        alive.append(closing.is_alive())
        return write(*args)

    monkeypatch.setattr(snapshots, "write", slow)
    assert one.snapshot().version == 1
    closing.join(60)
    assert alive == [True]
    assert [each.name for each in snapshots.listed(place / "data")] == ["000000000000", "000000000001"]
    with pytest.raises(UsageError, match="expected an open deployment"):
        one.snapshot()
    with deployment(place) as again:
        assert again.snapshot_version == again.version == 1
