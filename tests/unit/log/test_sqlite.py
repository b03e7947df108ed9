"""The embedded log: its file, what a disk may do to it, and how durable an append is."""

import sqlite3
import struct

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import LogDamaged, LogUnavailable, ValueInvalid
from livegnn.log import UpdateLog, open_log, replay


@pytest.fixture
def path(tmp_path):
    """A file with five entries."""
    with open_log(f"sqlite:{tmp_path}/history.db") as log:
        for i in range(5):
            log.append(b"payload %d" % i)
    return tmp_path / "history.db"


def alter(path, statement, *values):
    database = sqlite3.connect(path)
    try:
        with database:
            database.execute(statement, values)
    finally:
        database.close()


def test_normal_says_how_far_the_disk_has_it(tmp_path):
    with open_log(f"sqlite:{tmp_path}/history.db", synchronous="NORMAL") as log:
        assert log.committed == -1
        log.append(b"a")
        log.append(b"b")
        assert log.committed == 1
        reader = sqlite3.connect(tmp_path / "history.db")
        row = reader.execute("SELECT frame FROM log_updates")  # holds what it sees, so the journal cannot be copied
        row.fetchone()
        log.append(b"c")
        assert log.committed == 1
        row.close()
        reader.close()
        assert log.committed == 2


def test_other_settings_are_refused(tmp_path):
    with pytest.raises(ValueInvalid, match='expected synchronous="FULL" or "NORMAL", got \'OFF\''):
        open_log(f"sqlite:{tmp_path}/history.db", synchronous="OFF")


@pytest.mark.parametrize("place", [0, 5, 9, 17, 40, -1])
def test_a_flipped_byte_is_refused_with_its_offset(path, place):
    with open_log(f"sqlite:{path}") as log:
        (framed,) = log._frames(3, 4)
    flipped = bytearray(framed)
    flipped[place] ^= 0x10
    alter(path, "UPDATE log_updates SET frame = ? WHERE offset = 3", bytes(flipped))
    with open_log(f"sqlite:{path}") as log:
        reader = log.read()
        assert [next(reader).offset for _ in range(3)] == [0, 1, 2]
        with pytest.raises(LogDamaged, match=r"^\[updates, offset 3\] expected"):
            next(reader)
        assert [entry.offset for entry in log.read(4)] == [4]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log_updates SET frame = substr(frame, 1, 20) WHERE offset = 3",
        "UPDATE log_updates SET frame = x'' WHERE offset = 3",
        "UPDATE log_updates SET frame = 'text' WHERE offset = 3",
        "UPDATE log_updates SET frame = (SELECT frame FROM log_updates WHERE offset = 2) WHERE offset = 3",
        "DELETE FROM log_updates WHERE offset = 3",
    ],
)
def test_an_entry_cut_short_replaced_or_missing_is_refused(path, statement):
    alter(path, statement)
    with open_log(f"sqlite:{path}") as log, pytest.raises(LogDamaged, match=r"^\[updates, offset 3\] expected"):
        list(log.read())


def test_a_log_that_lost_its_end_while_open_is_refused(path):
    with open_log(f"sqlite:{path}") as log:
        assert log.tail == 5
        alter(path, "DELETE FROM log_updates WHERE offset > 2")
        with pytest.raises(LogDamaged, match=r"expected at least 5 entries in .*, got 3: the log has lost"):
            _ = log.tail


def test_a_replay_stops_before_the_damage(tmp_path):
    graph = lg.Graph(np.eye(2, dtype=np.float32), [0], [1])
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db")) as log:
        for _ in range(3):
            updates = lg.Updates()
            updates.add_edge(1, 0)
            log.append(updates)
        alter(tmp_path / "history.db", "UPDATE log_updates SET frame = frame || x'00' WHERE offset = 1")
        with pytest.raises(LogDamaged, match=r"^\[updates, offset 1\]"):
            replay(log, graph)
        assert graph.version == 1


def test_other_files_are_refused_and_left_alone(tmp_path, path):
    (tmp_path / "text").write_bytes(b"not a database at all\n" * 100)
    alter(tmp_path / "other.db", "CREATE TABLE mine (x)")
    with path.open("r+b") as file:
        file.seek(60)
        file.write(struct.pack(">I", 3))  # user_version
    for name in ("text", "other.db", "history.db"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(LogDamaged, match=r"^\[open_log"):
            open_log(f"sqlite:{tmp_path / name}")
        if name == "text":
            assert (tmp_path / name).read_bytes() == before


def test_a_file_cut_short_is_refused(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(LogDamaged), open_log(f"sqlite:{path}") as log:
        list(log.read())


def test_waiting_for_another_appender_has_an_end(path):
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        with open_log(f"sqlite:{path}", busy_seconds_max=0.1) as log:
            holder.execute("BEGIN IMMEDIATE")
            assert len(list(log.read())) == 5  # readers do not wait
            with pytest.raises(LogUnavailable, match=r"expected the database .* to answer, got database is locked"):
                log.append(b"x", key="k")
            holder.execute("ROLLBACK")
            assert log.append(b"x", key="k") == 5
    finally:
        holder.close()


def test_a_full_disk_loses_nothing(path):
    with open_log(f"sqlite:{path}") as log:
        pages = log._one("PRAGMA page_count")
        log._database.execute(f"PRAGMA max_page_count={pages + 2}")
        with pytest.raises(LogUnavailable, match="full"):
            log.append(bytes(1 << 20), key="large")
        assert (log.tail, len(list(log.read()))) == (5, 5)
        assert log.append(b"small") == 5
        log._database.execute("PRAGMA max_page_count=1000000")
        assert log.append(bytes(1 << 20), key="large") == 6


def test_an_entry_larger_than_sqlite_holds(path):
    with open_log(f"sqlite:{path}") as log:
        log._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        with pytest.raises(ValueInvalid, match="split the batch"):
            log.append(bytes(20_000))
        assert log.tail == 5


@pytest.mark.parametrize("newest", [True, False])
def test_an_index_that_has_lost_a_key_is_refused(tmp_path, newest):
    """SQLite looks no key up in the table: a damaged index would let an append count twice."""
    path = tmp_path / "history.db"
    with open_log(f"sqlite:{path}") as log:
        for i in range(3):
            log.append(b"payload %d" % i, key=f"key-{i}")
    content = path.read_bytes()
    place = content.rindex(b"key-2" if newest else b"key-0")  # the index lies behind the table
    path.write_bytes(content[:place] + (b"kez-2" if newest else b"ke-00") + content[place + 5 :])
    with open_log(f"sqlite:{path}") as log:
        assert len(list(log.read())) == 3
        with pytest.raises(LogDamaged, match=r"expected the keys of entries 0 to 2 in the index of .*, got 2 of 3"):
            log.append(b"again", key="key-2" if newest else "key-0")
        assert log.tail == 3
