"""Every file of an SQLite log damaged at every kind of place: the log is whole, or it says that it is not."""

import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from livegnn.errors import LiveGnnError, LogDamaged
from livegnn.log import open_log

COUNT = 24
SEED = int(os.environ.get("LIVEGNN_SEED", "20"))  # each message names it


def payload(i):
    return random.Random(i).randbytes((3, 40, 400, 5000)[i % 4])


def fill(path, count, **options):
    """An open log with `count` entries, all acknowledged."""
    log = open_log(f"sqlite:{path}", **options)
    for i in range(count):
        assert log.append(payload(i), key=f"key-{i}") == i
    return log


def copied(files, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / "history.db"


@pytest.fixture(scope="module", params=["closed", "killed", "reopened", "normal", "normal killed"])
def files(request, tmp_path_factory):
    """Name -> content of a log's files, after closing it or as a killed process leaves them."""
    folder = tmp_path_factory.mktemp("whole")
    options = {"synchronous": "NORMAL"} if request.param.startswith("normal") else {}
    log = fill(folder / "history.db", COUNT, **options)
    if request.param == "reopened":  # part in the database, part in a second journal
        log.close()
        folder = folder.rename(folder.with_name("again"))
        log = open_log(f"sqlite:{folder}/history.db")
        for i in range(COUNT, COUNT + 6):
            assert log.append(payload(i), key=f"key-{i}") == i
    if not request.param.endswith(("killed", "reopened")):
        log.close()
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    log.close()
    assert "history.db-wal" in found or not request.param.endswith(("killed", "reopened"))
    return found, COUNT + 6 if request.param == "reopened" else COUNT


def check(path, count, what):
    """The log gives all that was acknowledged, or raises before it gives less; returns whether it was whole."""
    try:
        with open_log(f"sqlite:{path}", busy_seconds_max=1.0) as log:
            assert log.tail >= count, what
            assert log.committed >= count - 1, what
            offset = log.append(b"one more")
            assert offset >= count, f"{what}: offset {offset} of an acknowledged entry was given out again"
            for i, entry in enumerate(log.read(0, count)):
                assert (entry.offset, entry.key, entry.payload) == (i, f"key-{i}", payload(i)), what
            assert i == count - 1, what
            assert log.append(b"-", key=f"key-{count - 1}") == count - 1, what
        return True
    except LiveGnnError:
        return False


def places(size, stride, rng):
    """One place in each stretch of `stride` bytes, and the first and last bytes."""
    found = {min(start + rng.randrange(stride), size - 1) for start in range(0, size, stride)}
    return sorted(found | set(range(0, min(size, 4))) | set(range(max(0, size - 4), size)))


def flips(content, stride, rng):
    for place in places(len(content), stride, rng):
        bit = rng.randrange(8)
        yield f"bit {bit} of byte {place}", content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def cuts(content, stride, rng):
    yield "nothing left", b""
    for place in places(len(content), stride, rng):
        yield f"cut to {place} bytes", content[:place]


def wipes(content, rng, count):
    for _ in range(count):
        start, size = rng.randrange(len(content)), rng.choice([8, 64, 512, 4096])
        fill = rng.choice([b"\0", b"\xff"]) * len(content[start : start + size])
        yield f"{len(fill)} bytes {fill[:1]!r} from {start}", content[:start] + fill + content[start + len(fill) :]


def damage_all(files, count, folder, rng, flip_count, cut_count, wipe_count):
    """Every damage of each file; how many logs were whole, and how many said that they were not."""
    whole, refused = 0, 0
    for name, content in files.items():
        if name.endswith("-shm"):
            continue
        damages = [
            *flips(content, max(1, len(content) // flip_count), rng),
            *cuts(content, max(1, len(content) // cut_count), rng),
            *wipes(content, rng, wipe_count),
        ]
        for what, damaged in damages:
            path = copied({**files, name: damaged}, folder)
            (path.parent / "history.db-shm").unlink(missing_ok=True)
            good = check(path, count, f"seed {SEED}, {name}: {what}")
            whole, refused = whole + good, refused + (not good)
    return whole, refused


def test_damage_is_told_before_an_entry_is_missed(files, tmp_path):
    found, count = files
    whole, refused = damage_all(found, count, tmp_path / "damaged", random.Random(SEED), 40, 10, 10)
    assert refused > 10, "the damages hit nothing"
    assert whole > 10, "the check refuses everything"


@pytest.mark.soak
def test_damage_is_told_before_an_entry_is_missed_for_long(files, tmp_path):
    found, count = files
    damage_all(found, count, tmp_path / "damaged", random.Random(SEED), 3000, 300, 1000)


@pytest.mark.parametrize("name", ["history.db", "history.db-wal", "history.db-tail-updates"])
def test_a_file_that_is_missing(files, name, tmp_path):
    found, _ = files
    if name not in found:
        pytest.skip("a closed log has no journal")
    path = copied({each: content for each, content in found.items() if each != name}, tmp_path / "damaged")
    with pytest.raises(LogDamaged) as refused:
        open_log(f"sqlite:{path}")
    assert str(path) in str(refused.value), "the message names the file"


def test_an_index_of_the_journal_that_is_missing_costs_nothing(files, tmp_path):
    found, count = files
    path = copied({name: content for name, content in found.items() if not name.endswith("-shm")}, tmp_path / "damaged")
    assert check(path, count, "no -shm")


def test_the_journal_of_a_killed_log_cut_at_every_frame(tmp_path):
    """Each cut loses acknowledged entries, and each is told with both numbers."""
    (tmp_path / "whole").mkdir()
    log = fill(tmp_path / "whole" / "history.db", 8)
    found = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    log.close()
    journal = found["history.db-wal"]
    frame_bytes = 24 + 4096
    for frames in range((len(journal) - 32) // frame_bytes):
        cut = journal[: 32 + frames * frame_bytes]
        path = copied({**found, "history.db-wal": cut}, tmp_path / "cut")
        with pytest.raises(LogDamaged) as refused:
            open_log(f"sqlite:{path}")
        if frames > 5:
            assert "expected at least 8 entries in" in str(refused.value)
            assert "accept_length=True" in str(refused.value)


APPENDER = """
import sys
from livegnn.log import open_log
with open_log(sys.argv[1], synchronous=sys.argv[2]) as log:
    while True:
        offset = log.tail
        log.append(b"payload %d" % offset * (offset % 400), key=f"key-{offset}", expect=offset)
        print(offset, flush=True)
"""


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_appenders_killed_at_random_times(synchronous, tmp_path):
    """All that they acknowledged is there, and a log that was killed opens."""
    url, rng, acknowledged = f"sqlite:{tmp_path}/history.db", random.Random(SEED), -1
    for _ in range(5):
        command = [sys.executable, "-c", APPENDER, url, synchronous]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [process.stdout.readline()]
            time.sleep(rng.random() * 0.1)
            process.kill()
            lines += process.stdout.readlines()
        acknowledged = max(acknowledged, *(int(line) for line in lines if line.endswith("\n")))
        with open_log(url) as log:
            assert log.tail in (acknowledged + 1, acknowledged + 2), f"seed {SEED}"
            for offset, entry in enumerate(log.read()):
                assert entry[:2] == (offset, f"key-{offset}")
                assert entry.payload == b"payload %d" % offset * (offset % 400)


@pytest.mark.soak
@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
@pytest.mark.parametrize("round", range(20))
def test_appenders_killed_at_random_times_for_long(synchronous, round, tmp_path):
    test_appenders_killed_at_random_times(synchronous, tmp_path)
