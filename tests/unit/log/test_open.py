"""URLs, options, and packages that are not there."""

import subprocess
import sys

import pytest

from livegnn.errors import DtypeInvalid, LogUnavailable, UsageError, ValueInvalid
from livegnn.log import UpdateLog, open_log


def test_one_file_may_hold_several_logs(tmp_path):
    with (
        open_log(f"sqlite:{tmp_path}/a b%20c.db") as first,
        open_log(f"sqlite:{tmp_path}/a b%20c.db?name=second") as second,
    ):
        first.append(b"x")
        assert (first.name, first.tail, second.name, second.tail) == ("updates", 1, "second", 0)
    names = ["a b c.db", "a b c.db-tail-second", "a b c.db-tail-updates"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize(
    "url",
    [
        "",
        "history.db",
        "sqlite:",
        "sqlite:?name=a",
        "sqlite://host/history.db",
        "sqlite:history.db?name=",
        "sqlite:history.db?name=a.b",
        "sqlite:history.db?nam=a",
        'sqlite:history.db?name=a"b',
        "nats:updates",
        "nats://host:4222",
        "nats://host:4222/a.b",
        "nats:///updates",
        "kafka://host:9092/",
        "kafka://host:9092/a/b",
        "kafka://host:9092/a?b=c",
        "redis://host/updates",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(ValueInvalid, match=r"^\[open_log\] expected .*, got .*; (correct|rename)"):
        open_log(url)


def test_what_is_not_a_url_or_an_option_is_refused(tmp_path):
    with pytest.raises(DtypeInvalid):
        open_log(tmp_path / "history.db")
    with pytest.raises(
        UsageError, match="expected options among synchronous, busy_seconds_max, accept_length for SqliteLog"
    ):
        open_log(f"sqlite:{tmp_path}/history.db", replicas=3)
    with pytest.raises(UsageError, match="expected a folder"):
        open_log(f"sqlite:{tmp_path}/missing/history.db")
    with pytest.raises(UsageError, match="expected a ByteLog, got str"):
        UpdateLog("sqlite:history.db")


@pytest.mark.parametrize("scheme", ["nats", "kafka"])
def test_a_broker_that_is_not_there(scheme):
    with pytest.raises(LogUnavailable, match=r"^\[open_log\] expected a .*, got .*; start it") as refused:
        open_log(f"{scheme}://127.0.0.1:1/updates", timeout_seconds_max=0.5)
    assert refused.value.retryable


MISSING = """
import sys
for name in ("pyarrow", "nats", "confluent_kafka"):
    sys.modules[name] = None
import livegnn.log as log
from livegnn.errors import DataMissing
with log.open_log("sqlite:" + sys.argv[1]) as kept:
    kept.append(b"bytes need no extra")
    calls = {
        "arrow": lambda: log.UpdateLog(kept),
        "nats": lambda: log.open_log("nats://127.0.0.1:1/updates"),
        "kafka": lambda: log.open_log("kafka://127.0.0.1:1/updates"),
    }
    for extra, call in calls.items():
        try:
            call()
        except DataMissing as missing:
            assert f"pip install 'livegnn[{extra}]'" in str(missing), missing
        else:
            raise SystemExit(f"{extra} was not asked for")
"""


def test_without_the_extras(tmp_path):
    """The package imports, bytes in SQLite work, and what needs a package names its extra."""
    command = [sys.executable, "-W", "error", "-c", MISSING, str(tmp_path / "history.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
