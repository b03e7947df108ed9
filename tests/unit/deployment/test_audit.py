"""verify and restore: a wrong bit is found, and a state as of then is the one that was."""

from __future__ import annotations

import shutil
import sqlite3
import time

import pytest

import livegnn as lg
from livegnn.deployment import audit, snapshots
from livegnn.deployment.registry import Registry
from livegnn.errors import FileMissing, StoredStateInvalid, UsageError
from tests.unit.deployment.world import abandon, deployment, edge, model, prepared


@pytest.fixture
def place(tmp_path):
    return prepared(tmp_path)


def faults(place):
    return {one.what: one.fault for one in audit.verify(place / "data") if one.fault}


def history(place):
    """Ten batches, a swap, a snapshot among them; (version, digest, time_ms) after each."""
    Registry(place / "models").add("other", model(5))
    seen = []
    first = deployment(place).start()
    for u in range(10):
        first.apply(edge(u, u + 1), key=f"k{u}")
        if u == 4:
            first.snapshot()
        if u == 6:
            first.swap("scores", "other")
        time.sleep(0.003)
        seen.append((first.version, first.engine("scores").state_digest(), time.time_ns() // 1_000_000))
        time.sleep(0.003)
    abandon(first)
    return seen


def test_a_sound_folder_has_no_faults(place):
    history(place)
    found = audit.verify(place / "data")
    assert [one.what for one in found] == ["snapshot 000000000000", "snapshot 000000000005", "log of 11 entries"]
    assert not faults(place)


def test_a_snapshot_that_is_not_the_replay_is_found(place):
    history(place)
    with deployment(place):
        pass
    data = place / "data"
    captured = snapshots.read(snapshots.listed(data)[0])
    other = lg.Graph.from_arrays(captured.graph)
    other.apply(edge(3, 3))
    arrays = other.to_arrays()
    for at in snapshots.listed(data)[1:2]:
        forged = snapshots.read(at)
        shutil.rmtree(at)
        arrays = {**arrays, **{name: forged.graph[name] for name in arrays if "counters" in name}}
        snapshots.write(data, snapshots.Captured(5, 5, arrays, forged.engines, forged.keys))
    assert "another graph" in faults(place)["snapshot 000000000005"]


def test_an_engine_that_came_later_is_followed_from_its_entry_on(place):
    first = deployment(place).start()
    first.apply(edge(1, 2))
    abandon(first)
    both = [{"name": "scores", "model": "fraud"}, {"name": "late", "model": "fraud"}]
    second = deployment(place, engine=both).start()
    second.apply(edge(2, 3))
    version, digest = second.version, second.engine("late").state_digest()
    second.snapshot()
    second.apply(edge(3, 4))
    abandon(second)
    assert not faults(place)
    target = place / "then"
    assert audit.restored(place / "data", target, version=version) == version
    with lg.Deployment({"models": str(place / "models"), "engine": both}, target) as then:
        assert (then.version, then.engine("late").state_digest()) == (version, digest)
    sound = snapshots.listed(place / "data")[-1]
    captured = snapshots.read(sound)
    shutil.rmtree(sound)
    forged = {
        **captured.engines,
        "late": captured.engines["late"].__class__(
            model(8), captured.engines["late"].scales, captured.engines["late"].settings, captured.engines["late"].entry
        ),
    }
    snapshots.write(place / "data", snapshots.Captured(version, captured.offset, captured.graph, forged, captured.keys))
    assert "another state of engine 'late'" in faults(place)[f"snapshot {sound.name}"]


def test_keys_that_are_not_those_of_the_log_are_found(place):
    history(place)
    place_of = snapshots.listed(place / "data")[1]
    captured = snapshots.read(place_of)
    shutil.rmtree(place_of)
    keys = [captured.keys[0]._replace(version=4), *captured.keys[1:]]
    snapshots.write(place / "data", snapshots.Captured(5, 5, captured.graph, captured.engines, keys))
    assert "other keys" in faults(place)["snapshot 000000000005"]


def test_a_flipped_bit_in_the_log_is_found(place):
    history(place)
    with sqlite3.connect(place / "data" / "history.db") as database:
        (frame,) = database.execute("SELECT frame FROM log_updates WHERE offset = 8").fetchone()
        flipped = bytes([*frame[:-9], frame[-9] ^ 1, *frame[-8:]])
        database.execute("UPDATE log_updates SET frame = ? WHERE offset = 8", (flipped,))
    assert "offset 8" in faults(place)["log of 11 entries"]


def test_the_state_as_of_a_version_and_of_a_time(place):
    seen = history(place)
    for number, (version, digest, time_ms) in enumerate(seen):
        for how in ({"version": version}, {"time_ms": time_ms}):
            target = place / f"then-{number}-{len(how)}-{next(iter(how))}"
            assert audit.restored(place / "data", target, **how) == version
            with lg.Deployment(
                {"models": str(place / "models"), "engine": [{"name": "scores", "model": "fraud"}]}, target
            ) as then:
                assert (then.version, then.engine("scores").state_digest()) == (version, digest)
                assert then.apply(edge(number, number + 1), key=f"k{number}").repeated
                assert then.models == {"scores": "other/1" if version > 8 - 1 and number > 5 else "fraud/1"}
                assert not then.apply(edge(1, 2)).repeated


def test_what_is_not_there_is_refused(place):
    history(place)
    with pytest.raises(FileMissing, match="data folder"):
        audit.verify(place / "nowhere")
    with pytest.raises(UsageError, match="a version from 0 to 11, got 12"):
        audit.restored(place / "data", place / "then", version=12)
    with pytest.raises(UsageError, match="expected an empty folder"):
        audit.restored(place / "data", place / "models", version=1)
    with deployment(place), pytest.raises(UsageError, match="another has open"):
        audit.verify(place / "data")


def test_a_key_that_comes_again_after_it_was_forgotten_is_the_newest(place):
    with deployment(place, log={"keys_max": 2}) as one:
        for key in "abca":
            assert not one.apply(edge(1, 2), key=key).repeated
    assert not faults(place)


def test_a_damaged_snapshot_that_is_not_needed_does_not_stop_a_restore(place):
    history(place)
    oldest = snapshots.listed(place / "data")[0]
    (oldest / "keys.json").write_bytes(b"[")
    assert audit.restored(place / "data", place / "then", version=8) == 8
    with pytest.raises(UsageError, match="expected a version from 5 to 11, got 3"):
        audit.restored(place / "data", place / "before", version=3)
    for each in snapshots.listed(place / "data"):
        (each / "keys.json").write_bytes(b"[")
    with pytest.raises(StoredStateInvalid, match=r"keys\.json as it was written"):
        audit.restored(place / "data", place / "none", version=8)
