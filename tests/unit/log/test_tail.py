"""The tail record: what it holds, which states of a crash it knows, and logs of version 0.1, which have none."""

import gzip
import os
import sqlite3
import uuid
from pathlib import Path

import pytest

from livegnn.errors import LogDamaged, LogUnavailable, UsageError
from livegnn.log import open_log, tail
from livegnn.log.tail import ALL_SYNCED, Record, TailFile

DATA = Path(__file__).parent / "data"


@pytest.fixture
def path(tmp_path):
    """A log with five entries."""
    with open_log(f"sqlite:{tmp_path}/history.db") as log:
        for i in range(5):
            log.append(b"payload %d" % i)
    return tmp_path / "history.db"


@pytest.fixture
def record_path(path):
    return path.with_name("history.db-tail-updates")


def record_of(path):
    file = TailFile(path)
    try:
        return file.read("test")
    finally:
        file.close()


def lose_the_end(path, from_offset):
    database = sqlite3.connect(path)
    with database:
        database.execute("DELETE FROM log_updates WHERE offset >= ?", (from_offset,))
    database.close()


def test_a_record_comes_back(tmp_path):
    TailFile.make(tmp_path / "tail", Record(0, 0, 0, ALL_SYNCED))
    file = TailFile(tmp_path / "tail")
    for entries in range(1, 5):
        written = Record(entries, entries - 1, 7 * entries, tail.this_boot())
        with file.locked("test", 1.0):
            file.read("test")
            file.write("test", written, sync=True)
        assert record_of(tmp_path / "tail") == written
    file.close()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_record_leaves_the_one_before(path, record_path, slot):
    content = bytearray(record_path.read_bytes())
    content[4096 * slot + 20] ^= 1
    record_path.write_bytes(content)
    assert record_of(record_path).entries in (4, 5)
    with open_log(f"sqlite:{path}") as log:
        assert log.tail == 5
    assert record_of(record_path).entries == 5


def test_no_slot_is_whole(path, record_path):
    record_path.write_bytes(bytes(8192))
    with pytest.raises(LogDamaged, match=r"expected a tail record in .*history\.db-tail-updates, got none that can be"):
        open_log(f"sqlite:{path}")


@pytest.mark.parametrize("left", [0, 1, 4])
def test_a_log_shorter_than_its_record(path, left):
    lose_the_end(path, left)
    expected = (
        rf"^\[open_log, log updates\] expected at least 5 entries in {path}, as {path}-tail-updates .*, got {left}:"
    )
    with pytest.raises(LogDamaged, match=expected):
        open_log(f"sqlite:{path}")
    with open_log(f"sqlite:{path}", accept_length=True) as log:
        assert (log.tail, log.append(b"again")) == (left, left)
    with open_log(f"sqlite:{path}") as log:
        assert log.tail == left + 1


def test_an_appender_killed_between_its_two_writes_is_caught_up(path, record_path):
    before = record_path.read_bytes()
    with open_log(f"sqlite:{path}") as log:
        log.append(b"committed, and not recorded")
    record_path.write_bytes(before)
    with open_log(f"sqlite:{path}") as log:
        assert record_of(record_path).entries == log.tail == 6
    record_path.write_bytes(before)
    with open_log(f"sqlite:{path}") as log:
        log.append(b"two behind are no crash")
    record_path.write_bytes(before)
    with pytest.raises(LogDamaged, match="got an entry at offset 6"):
        open_log(f"sqlite:{path}")


def test_a_record_that_fails_is_written_before_the_next_entry(path, record_path, monkeypatch):
    with open_log(f"sqlite:{path}") as log:
        with monkeypatch.context() as patch:
            patch.setattr(tail, "_sync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
            with pytest.raises(LogUnavailable, match="Input/output error"):
                log.append(b"x", key="k")
            with pytest.raises(LogUnavailable, match="Input/output error"):
                log.append(b"y", key="l")
        assert log.tail == 6  # the second one was not written
        assert log.append(b"x", key="k") == 5
        assert log.append(b"y", key="l") == 6
        assert record_of(record_path).entries == 7


def test_another_entry_at_the_end(path):
    database = sqlite3.connect(path)
    with database:
        database.execute(
            "UPDATE log_updates SET frame = (SELECT frame FROM log_updates WHERE offset = 3) WHERE offset = 4"
        )
    database.close()
    with pytest.raises(LogDamaged, match="expected the entry at offset 4 of"):
        open_log(f"sqlite:{path}")


def test_a_power_cut_may_take_what_normal_did_not_sync(tmp_path, monkeypatch):
    url = f"sqlite:{tmp_path}/history.db"
    with open_log(url) as log:
        log.append(b"0")
    log = open_log(url, synchronous="NORMAL")
    for i in range(4):
        log.append(b"%d" % i)
    content = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    log.close()

    def lay(folder, left):
        folder.mkdir()
        for name, each in content.items():
            (folder / name).write_bytes(each)
        lose_the_end(folder / "history.db", left)
        return f"sqlite:{folder}/history.db"

    with pytest.raises(LogDamaged, match="expected at least 5 entries"):
        open_log(lay(tmp_path / "same run", 3))
    monkeypatch.setattr(tail, "this_boot", lambda: uuid.UUID(int=7).bytes)
    with open_log(lay(tmp_path / "next run", 3)) as log:
        assert log.tail == 3
    with pytest.raises(LogDamaged, match="expected at least 1 entries"):
        open_log(lay(tmp_path / "synced before", 0))


def test_a_log_closed_with_normal_is_synced(tmp_path):
    with open_log(f"sqlite:{tmp_path}/history.db", synchronous="NORMAL") as log:
        log.append(b"x")
        assert record_of(tmp_path / "history.db-tail-updates").boot == tail.this_boot()
    assert record_of(tmp_path / "history.db-tail-updates")[:2] == (1, 1)
    assert record_of(tmp_path / "history.db-tail-updates").boot == ALL_SYNCED


@pytest.fixture
def old(tmp_path):
    """A file that version 0.1 wrote, with two logs."""
    path = tmp_path / "history.db"
    path.write_bytes(gzip.decompress((DATA / "history-0.1.db.gz").read_bytes()))
    return path


def test_a_file_of_version_0_1_opens_and_gets_its_records(old):
    with open_log(f"sqlite:{old}", must_exist=True) as log:
        assert [entry[:] for entry in log.read()] == [(i, f"key-{i}", b"payload %d" % i) for i in range(5)]
        assert log.append(b"-", key="key-3") == 3
        assert log.append(b"new") == 5
    names = sorted(each.name for each in old.parent.iterdir())
    assert names == ["history.db", "history.db-tail-second", "history.db-tail-updates"]
    (old.parent / "history.db-tail-second").unlink()
    with pytest.raises(LogDamaged, match=r"history\.db-tail-second"):
        open_log(f"sqlite:{old}?name=second")


def test_a_crash_while_a_file_of_version_0_1_gets_its_records(old, monkeypatch):
    before = old.read_bytes()
    open_log(f"sqlite:{old}").close()
    old.write_bytes(before)  # the records are there, and the mark is not
    database = sqlite3.connect(old)
    with database:
        database.execute("DELETE FROM log_updates WHERE offset = 4")  # 0.1 goes on with it
    database.close()
    with open_log(f"sqlite:{old}") as log:
        assert log.tail == 4


def test_a_crash_while_a_log_is_made(tmp_path):
    path = tmp_path / "history.db"
    open_log(f"sqlite:{path}").close()
    for content in (None, b""):
        path.unlink() if content is None else path.write_bytes(content)
        with open_log(f"sqlite:{path}") as log:
            assert log.tail == 0


def test_a_log_cut_to_nothing(path):
    content = path.read_bytes()
    path.write_bytes(b"")
    for options in ({}, {"must_exist": True}):
        with pytest.raises(LogDamaged, match=rf"expected the entries of {path} that history.db-tail-updates records"):
            open_log(f"sqlite:{path}", **options)
    path.unlink()
    with pytest.raises(LogDamaged):
        open_log(f"sqlite:{path}")
    path.write_bytes(content)
    with open_log(f"sqlite:{path}") as log:
        assert log.tail == 5


def test_a_table_that_is_gone(path):
    database = sqlite3.connect(path)
    with database:
        database.execute("DROP TABLE log_updates")
    database.close()
    with pytest.raises(LogDamaged, match=r"expected 5 entries in .* got no table"):
        open_log(f"sqlite:{path}")


def test_must_exist_never_makes_a_log(path, tmp_path):
    with pytest.raises(UsageError, match=rf"expected a log in {tmp_path}/histroy\.db, got no file"):
        open_log(f"sqlite:{tmp_path}/histroy.db", must_exist=True)
    with pytest.raises(UsageError, match=r"expected a log named other in .*, got logs updates; correct the name"):
        open_log(f"sqlite:{path}?name=other", must_exist=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(LogDamaged, match="got an empty file"):
        open_log(f"sqlite:{tmp_path}/empty.db", must_exist=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty.db", "history.db", "history.db-tail-updates"]
    with open_log(f"sqlite:{path}", must_exist=True) as log:
        assert log.tail == 5


def test_names_have_no_case(path):
    with open_log(f"sqlite:{path}?name=Updates") as log:
        assert log.tail == 5


def test_another_process_that_holds_the_lock(path, record_path):
    with open_log(f"sqlite:{path}", busy_seconds_max=0.05) as log:
        other = TailFile(record_path)
        with other.locked("test", 1.0), pytest.raises(LogUnavailable, match=r"to be free within 0\.05 s"):
            log.append(b"x")
        other.close()
        assert log.append(b"x") == 5


def test_files_are_no_more_open_after_a_refusal(path):
    lose_the_end(path, 2)
    count = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(5):
        with pytest.raises(LogDamaged):
            open_log(f"sqlite:{path}")
    assert not count or len(os.listdir("/proc/self/fd")) == count
