"""Raw errors of Python, SQLite and the operating system never come out of the log; passwords never do."""

import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
import traceback

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import DtypeInvalid, LiveGnnError, LogUnavailable, UsageError, ValueInvalid
from livegnn.log import UpdateLog, open_log, replay
from livegnn.log.secrets import masked_url

HOUSE = r"^\[[^\]]+\] expected .*, got .*; "


@pytest.mark.parametrize(
    "url",
    [
        "sqlite::memory:",
        "sqlite:%3Amemory%3A",
        "sqlite:file::memory:",
        "sqlite:file:history.db?name=updates",
        "sqlite: ",
        "sqlite:{folder}",
        "sqlite:/dev/null",
        "sqlite:{folder}/a%00b.db",
        "sqlite:{folder}/" + "x" * 300,
        "sqlite:{folder}/" + "x/" * 3000,
        "sqlite:{folder}/\udcff\ud800.db",
        "sqlite:{folder}/" + "y" * 200 + "/history.db",
        "nats://[::1/updates",
        "nats://host:99999999/updates",
        "nats://host:port/updates",
        "nats://ho\0st:1/updates",
        "nats://ho st:1/updates",
        "kafka://h:1,h:x/updates",
        "kafka://user:pw@host:9092/updates",
    ],
)
def test_urls_that_hold_no_durable_log(url, tmp_path):
    with pytest.raises(LiveGnnError, match=HOUSE):
        open_log(url.replace("{folder}", str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [None, "1", float("nan"), -1, float("inf"), 1e300, True, [1]])
@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:{folder}/history.db", "busy_seconds_max"),
        ("nats://127.0.0.1:1/updates", "timeout_seconds_max"),
        ("kafka://127.0.0.1:1/updates", "timeout_seconds_max"),
    ],
)
def test_other_times_are_refused(url, name, value, tmp_path):
    with pytest.raises(ValueInvalid, match=HOUSE):
        open_log(url.replace("{folder}", str(tmp_path)), **{name: value})


@pytest.mark.parametrize("value", [None, "1", 0, -1, 2**40, 1.5, True])
@pytest.mark.parametrize(
    ("scheme", "name"),
    [("nats", "replicas"), ("nats", "keys_kept_max"), ("kafka", "replicas"), ("kafka", "entry_bytes_max")],
)
def test_other_counts_are_refused(scheme, name, value):
    with pytest.raises((ValueInvalid, DtypeInvalid), match=HOUSE):
        open_log(f"{scheme}://127.0.0.1:1/updates", **{name: value})


def test_other_settings_are_refused(tmp_path):
    for options in ({"must_exist": "no"}, {"accept_length": 1}):
        with pytest.raises(DtypeInvalid, match=HOUSE):
            open_log(f"sqlite:{tmp_path}/history.db", **options)
    for options in ({"connect": 5}, {"connect": {1: 2}}, {"connect": {"no_such_setting": 1}}):
        with pytest.raises(ValueInvalid, match=HOUSE):
            open_log("nats://127.0.0.1:1/updates", timeout_seconds_max=0.2, **options)
    for options in ({"config": 5}, {"config": {"no.such.setting": 1}}, {"config": {"security.protocol": object()}}):
        with pytest.raises(ValueInvalid, match=HOUSE):
            open_log("kafka://127.0.0.1:1/updates", timeout_seconds_max=0.2, **options)


def test_offsets_beyond_all_logs(tmp_path):
    with open_log(f"sqlite:{tmp_path}/history.db") as log:
        for call in (
            lambda: log.append(b"x", expect=2**70),
            lambda: log.append(b"x", expect=2**63),
            lambda: log.read(2**70),
            lambda: log.read(0, 2**70),
            lambda: log.wait(2**70, 0),
        ):
            with pytest.raises(ValueInvalid, match=HOUSE):
                call()
        assert list(log.read(2**63 - 1, 2**63 - 1)) == []
        assert log.tail == 0


def test_what_is_no_graph_and_no_log(tmp_path):
    graph = lg.Graph(np.eye(2, dtype=np.float32), [0], [1])
    with UpdateLog(open_log(f"sqlite:{tmp_path}/history.db")) as log:
        for call in (
            lambda: log.attach(None),
            lambda: log.attach("graph"),
            lambda: replay(None, graph),
            lambda: replay(log.log, graph),
            lambda: replay(log, None),
        ):
            with pytest.raises(UsageError, match=HOUSE):
                call()
        for call in (lambda: log.attach(graph, at=2**70), lambda: replay(log, graph, 2**70)):
            with pytest.raises(ValueInvalid, match=HOUSE):
                call()
        log.attach(graph).detach()


def test_a_database_that_another_process_has_locked(tmp_path):
    open_log(f"sqlite:{tmp_path}/history.db").close()
    holder = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    try:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("CREATE TABLE held (x)")
        with pytest.raises(LogUnavailable, match=HOUSE + "try again") as refused:
            open_log(f"sqlite:{tmp_path}/history.db", busy_seconds_max=0.05)
        assert refused.value.retryable
    finally:
        holder.close()


LIMITED = """
import os, resource, signal, sys
from livegnn.errors import LogUnavailable
from livegnn.log import open_log
os.chdir(sys.argv[1])
if sys.argv[2] == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open_log("sqlite:history.db") as log:
        log.append(b"before")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            for i in range(1000):
                log.append(bytes(5000))
        except LogUnavailable as refused:
            print(log.tail, refused)
            assert [entry.offset for entry in log.read()] == list(range(log.tail))
            assert log.tail in (i + 1, i + 2)
else:
    open_log("sqlite:history.db").close()
    for name in os.listdir("."):
        os.chmod(name, 0o444)
    os.chmod(".", 0o555)
    if os.geteuid() == 0:
        os.setuid(65534)
    for url in ("sqlite:history.db", "sqlite:new.db"):
        try:
            open_log(url)
        except LogUnavailable as refused:
            print(refused)
    os.path.exists("new.db") and sys.exit("made a file")
"""


@pytest.mark.parametrize(("case", "count"), [("full", 1), ("read-only", 2)])
def test_a_disk_that_takes_no_more(case, count):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        command = [sys.executable, "-W", "error", "-c", LIMITED, folder, case]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        os.chmod(folder, 0o755)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == count, lines
    assert all("] expected " in line and ", got " in line and "; " in line for line in lines)


# ---- passwords

SECRET = "hunter2xyz"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (f"nats://user:{SECRET}@127.0.0.1:1/updates", {}),
        (f"nats://{SECRET}@127.0.0.1:1/updates", {}),
        (f"nats://user:{SECRET}@127.0.0.1:1/a.b", {}),
        (f"nats://user:{SECRET}@127.0.0.1:99999999/updates", {}),
        (f"nats://user:a/{SECRET}@127.0.0.1:1/updates", {}),
        (f"nats://user:a?{SECRET}@127.0.0.1:1/updates", {}),
        (f"nats://user:a#{SECRET}@127.0.0.1:1/updates", {}),
        (f"nats://user:{SECRET}:b@127.0.0.1:1/updates", {}),
        (f"nats://user:[{SECRET}@127.0.0.1:1/updates", {}),
        (f"nats://user:{SECRET}@ho st:1/updates", {}),
        (f"nats://user:{SECRET}@no.such.host.invalid:1/updates", {}),
        (f"nats://user:{SECRET}\ud800@127.0.0.1:1/updates", {}),
        (f"nats://127.0.0.1:1/updates?token={SECRET}", {}),
        (f"nats://127.0.0.1:1/updates#{SECRET}", {}),
        (f"nats:user:{SECRET}@127.0.0.1:1/updates", {}),
        (f"redis://user:{SECRET}@host/updates", {}),
        (f"user:{SECRET}@host/updates", {}),
        (f"sqlite://user:{SECRET}@host/updates", {}),
        (f"sqlite:history.db?password={SECRET}", {}),
        (f"sqlite:history.db?{SECRET}", {}),
        (f"kafka://user:{SECRET}@127.0.0.1:1/updates", {}),
        (f"kafka://127.0.0.1:1/updates?sasl.password={SECRET}", {}),
        (f"kafka://127.0.0.1:1/updates?sasl.password=a@{SECRET}", {}),
        (b"nats://user:" + SECRET.encode() + b"@127.0.0.1:1/updates", {}),
        ("nats://127.0.0.1:1/updates", {"connect": {"user": "u", "password": SECRET}}),
        ("nats://127.0.0.1:1/updates", {"connect": {"token": SECRET}}),
        ("nats://127.0.0.1:1/updates", {"connect": {"password": SECRET, "no_such_setting": SECRET}}),
        ("nats://127.0.0.1:1/updates", {"connect": [SECRET]}),
        ("nats://127.0.0.1:1/updates", {"connect": {"token": SECRET, "servers": [f"nats://u:{SECRET}@h:1"]}}),
        ("nats://127.0.0.1:1/updates", {"connect": {"nkeys_seed_str": SECRET}}),
        ("kafka://127.0.0.1:1/updates", {"config": {"sasl.password": SECRET, "sasl.mechanism": "NONE"}}),
        ("kafka://127.0.0.1:1/updates", {"config": {"sasl.password": SECRET, "no.such.setting": SECRET}}),
        ("kafka://127.0.0.1:1/updates", {"config": {"ssl.key.password": SECRET, "security.protocol": "ssl"}}),
        ("kafka://127.0.0.1:1/updates", {"config": {"ssl.key.pem": SECRET, "security.protocol": "ssl"}}),
        ("kafka://127.0.0.1:1/updates", {"config": SECRET}),
        (
            "kafka://127.0.0.1:1/updates",
            {"config": {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u",
                        "sasl.password": SECRET}},
        ),
    ],
)  # fmt: skip
def test_no_error_shows_a_password(url, options, caplog, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "history.db" not in str(url):
        options = {**options, "timeout_seconds_max": 0.3}
    with caplog.at_level(logging.DEBUG), pytest.raises(LiveGnnError) as refused:
        open_log(url, **options)
    shown = [str(refused.value), repr(refused.value), repr(refused.value.args), caplog.text, *capfd.readouterr()]
    # without the lines of this file, which hold the password themselves
    for each in traceback.TracebackException.from_exception(refused.value).format(chain=True):
        shown += [each] if "test_refusals.py" not in each else []
    assert not [text for text in shown if SECRET in text]
    assert "expected" in str(refused.value)


def test_a_log_with_a_password_does_not_show_it(nats_with_password):
    url, server = nats_with_password
    with open_log(url, timeout_seconds_max=2.0) as log:
        assert log.append(b"x") == 0
        assert SECRET not in repr(log) + log.name + repr(UpdateLog(log))
        server.kill()
        for call in (lambda: log.append(b"y"), lambda: log.tail, lambda: list(log.read())):
            with pytest.raises(LogUnavailable) as refused:
                call()
            assert SECRET not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(LogUnavailable) as refused:
        open_log(url.replace(SECRET, SECRET + "2"), timeout_seconds_max=0.5)
    assert SECRET not in str(refused.value)


@pytest.fixture
def nats_with_password(tmp_path):
    from tests.brokers import NatsServer

    server = NatsServer(tmp_path / "jetstream", "--user", "user", "--pass", SECRET)
    yield server.url("updates").replace("//", f"//user:{SECRET}@"), server
    server.kill()


def test_masked_urls_say_where(tmp_path):
    assert masked_url("nats://user:pw@host:4222/updates") == "nats://***@host:4222/updates"
    assert masked_url("nats://host:4222/updates") == "nats://host:4222/updates"
    assert masked_url("kafka://h:1/a?b=c&d=e") == "kafka://h:1/a?***"
    assert masked_url("sqlite:/me@home/history.db?name=a&key=b") == "sqlite:/me@home/history.db?name=a&***"
