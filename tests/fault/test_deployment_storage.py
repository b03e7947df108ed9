"""Disks that are full, that lose what was not synced, and that change bits, under a deployment."""

from __future__ import annotations

import random
import resource
import shutil
import sqlite3
from contextlib import contextmanager

import pytest

from livegnn.deployment import Registry, audit, read_config, snapshots
from livegnn.errors import LiveGnnError, LogDamaged, LogUnavailable, StorageFailed, StoredStateInvalid
from tests.fault.unsynced import UnsyncedDisk
from tests.unit.deployment.world import abandon, deployment, edge, model, prepared

SEED = 5


@pytest.fixture
def place(tmp_path):
    (tmp_path / "world").mkdir()
    return prepared(tmp_path / "world")


@contextmanager
def file_bytes_max(count):
    """What a full disk is to a writer: the write that would pass the limit fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def state(one):
    return one.version, one.graph.digest(), one.engine("scores").state_digest()


# ---- a full disk


def test_a_full_disk_refuses_writes_loses_nothing_and_ends(place):
    with deployment(place) as one:
        one.apply(edge(1, 2), key="a")
        before = state(one)
        with file_bytes_max((place / "data" / "history.db-wal").stat().st_size):
            for _ in range(3):
                with pytest.raises(LogUnavailable):
                    one.apply(edge(2, 3), key="b")
                assert state(one) == before  # reads go on
            with pytest.raises(LogUnavailable):
                one.swap("scores", "fraud/1")
            with pytest.raises(StorageFailed, match="make room there"), file_bytes_max(1000):
                one.snapshot()
        assert [each.name for each in (place / "data" / "snapshots").iterdir()] == ["000000000000"]
        assert one.is_ready
        assert one.apply(edge(2, 3), key="b") == (2, 1, False)
        one.snapshot()
        after = state(one)
        abandon(one)
    with deployment(place) as again:
        assert state(again) == after
        assert again.apply(edge(2, 3), key="b").repeated
    assert not [each for each in audit.verify(place / "data") if each.fault]


def test_entries_that_cannot_be_released_stay(place, caplog):
    with deployment(place, snapshots={"keep": 1}, log={"keep_entries": 0}) as one:
        for i in range(4):
            one.apply(edge(i, i + 1))

        def full(first, before):
            raise LogUnavailable("[release] expected room, got none; make room")

        one.log.log._release = full
        one.snapshot()
        assert "the log keeps its entries" in caplog.text
        assert one.log.first == 0
        del one.log.log._release
        one.apply(edge(5, 6))
        one.snapshot()
        assert one.log.first == 4  # the newest one stays
        before = state(one)
    with deployment(place) as again:
        assert state(again) == before


def test_entries_go_only_behind_a_snapshot_that_is_sound(place, caplog):
    with deployment(place, snapshots={"keep": 2}, log={"keep_entries": 0}) as one:
        for i in range(3):
            one.apply(edge(i, i + 1))
            one.snapshot()
        assert one.log.first == 2  # the older one of the two that are kept
        oldest = snapshots.listed(place / "data")[1]
        (oldest / "keys.json").write_bytes(b"[")
        one.apply(edge(5, 6))
        one.snapshot()
        assert one.log.first == 2
        assert f"expected {oldest / 'keys.json'} as it was written" in caplog.text


def test_a_damaged_snapshot_is_set_aside_also_where_there_are_sinks(place):
    sinks = {"sink": [{"name": "out", "kind": "parquet", "path": str(place / "out")}], "log": {"keep_entries": 0}}
    with deployment(place, snapshots={"keep": 2}, **sinks) as one:
        for i in range(3):
            one.apply(edge(i, i + 1))
            one.snapshot()
    newest = snapshots.listed(place / "data")[-1]
    (newest / "keys.json").write_bytes(b"[")
    with deployment(place, snapshots={"keep": 2}, **sinks) as one:
        assert newest.with_name(f"{newest.name}.damaged").is_dir()
        one.apply(edge(5, 6))
        one.snapshot()
        assert [int(each.name) for each in snapshots.listed(place / "data")] == [2, 4]  # two that are sound
        assert one.log.first == 2


def test_a_release_keeps_what_snapshots_need_and_so_many_entries(place):
    with deployment(place, snapshots={"keep": 1}, log={"keep_entries": 3}) as one:
        for i in range(6):
            one.apply(edge(i, i + 1))
        one.snapshot()
        assert one.log.first == 3
    with deployment(place, log={"release": False}) as one:
        one.apply(edge(7, 8))
        one.snapshot()
        assert one.log.first == 3


# ---- a disk that loses what was not synced


def test_a_power_cut_before_any_sync_or_rename_loses_nothing_that_was_acknowledged(tmp_path, place, monkeypatch):
    images, states = [], {}

    def crash():
        images.append(tmp_path / f"image-{len(images)}")
        disk.image(images[-1])

    disk = UnsyncedDisk(place, crash)
    with monkeypatch.context() as patch:
        disk.patch(patch)
        one = deployment(place, snapshots={"keep": 1, "at_close": False}, log={"keep_entries": 0}).start()
        states[0] = state(one)
        for i in range(6):
            one.apply(edge(i, i + 1), key=f"key-{i}")
            states[i + 1] = state(one)
            if i % 2:
                one.snapshot()
        one.close()
        crash()
    disk.close()
    assert len(images) > 40
    for image in images:
        with deployment(image, snapshots={"at_close": False}) as again:
            assert state(again) == states[again.log.tail], image.name
            for i in range(again.log.tail):
                assert again.apply(edge(i, i + 1), key=f"key-{i}").repeated, image.name
        shutil.rmtree(image)


def test_sqlite_syncs_each_entry(place):
    """What SQLite itself promises after a power cut depends on these two: its documentation says so."""
    with deployment(place) as one:
        database = one.log.log._database
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---- bits that change


def grown(place):
    """A folder with two snapshots and two entries after the newer one; the state of its end."""
    one = deployment(place).start()
    for i in range(6):
        one.apply(edge(i, i + 1), key=f"key-{i}")
        if i == 3:
            one.snapshot()
    found = state(one)
    abandon(one)
    return found


@pytest.mark.parametrize("change", ["bit", "cut"])
def test_a_snapshot_that_changed_in_any_file_is_left_out(place, change):
    expected, chance = grown(place), random.Random(SEED)
    data = place / "data"
    shutil.copytree(data, place / "kept")
    for name in sorted(each.name for each in snapshots.listed(data)[-1].iterdir()):
        for _ in range(3):
            shutil.rmtree(data)
            shutil.copytree(place / "kept", data)
            path = snapshots.listed(data)[-1] / name
            content = bytearray(path.read_bytes())
            at = chance.randrange(len(content))
            content[at] ^= 1 << chance.randrange(8)
            path.write_bytes(content if change == "bit" else content[:at])
            assert [one.what for one in audit.verify(data) if one.fault] == [f"snapshot {path.parent.name}"]
            one = deployment(place).start()
            assert state(one) == expected, f"{name}, byte {at}"
            assert path.parent.with_name(f"{path.parent.name}.damaged").is_dir()
            abandon(one)


def test_an_entry_that_changed_stops_the_start_at_its_offset(place):
    grown(place)
    chance, path = random.Random(SEED), place / "data" / "history.db"
    whole = path.read_bytes()
    for offset in (4, 5):
        with sqlite3.connect(path) as database:
            ((framed,),) = database.execute("SELECT frame FROM log_updates WHERE offset = ?", (offset,)).fetchall()
        changed = bytearray(framed)
        at = chance.randrange(len(changed))
        changed[at] ^= 1 << chance.randrange(8)
        with sqlite3.connect(path) as database:
            database.execute("UPDATE log_updates SET frame = ? WHERE offset = ?", (bytes(changed), offset))
        database.close()
        with pytest.raises(LogDamaged, match=rf"offset {offset}\b|entry at offset {offset}"):
            deployment(place).start()
        assert [one.what for one in audit_or_refusal(place)] == ["log"]
        for left in path.parent.glob("history.db-*m"):
            left.unlink()
        path.write_bytes(whole)
    with deployment(place) as one:
        assert one.version == 6


def audit_or_refusal(place):
    """What verify() finds at fault; a log that cannot be opened is one finding."""
    try:
        return [one._replace(what="log") for one in audit.verify(place / "data") if one.fault]
    except LogDamaged as error:
        return [audit.Finding("log", str(error))]


def test_a_model_that_changed_is_refused_by_name_and_the_old_one_serves_on(place):
    registry = Registry(place / "models")
    registry.add("fraud", model(2))
    path = place / "models" / "fraud" / "2" / "model.livegnn"
    whole, chance = path.read_bytes(), random.Random(SEED)
    with deployment(place, engine=[{"name": "scores", "model": "fraud/1"}]) as one:
        before = state(one)
        for _ in range(20):
            changed = bytearray(whole)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
            with pytest.raises(StoredStateInvalid, match=r"2/model\.livegnn"):
                one.swap("scores", "fraud/2")
            assert state(one) == before
        path.write_bytes(whole)
        one.swap("scores", "fraud/2")
    path.write_bytes(bytes(changed))
    with deployment(place, engine=[{"name": "scores", "model": "fraud/1"}]) as again:  # the history has the model
        again.engine("scores").verify()


def refusal_of(path):
    """What read_config says of a file that it refuses."""
    try:
        read_config(path)
    except LiveGnnError as error:
        return str(error)
    return ""


def test_a_configuration_that_changed_is_refused_by_file_or_is_another_one(place):
    path = place / "livegnn.toml"
    lines = ['models = "models"', "[log]", "keys_max = 500", "[snapshots]", "keep = 3", "[[engine]]", 'name = "scores"']
    text = "\n".join([*lines, 'model = "fraud"'])
    path.write_text(text)
    assert refusal_of(path) == ""
    refused = 0
    for at in range(len(text)):
        for bit in range(8):
            changed = bytearray(text.encode())
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            said = refusal_of(path)
            assert not said or str(path) in said
            refused += bool(said)
    assert refused > 4 * len(text)  # more than half of all
