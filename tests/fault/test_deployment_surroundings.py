"""What a deployment depends on and does not rule: the clock, a broker, keys that are older than it remembers."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import audit, committer
from livegnn.deployment import deployment as deployments
from livegnn.errors import LogUnavailable
from livegnn.log import UpdateLog, open_log
from tests.brokers import NatsServer
from tests.unit.deployment.world import abandon, deployment, edge, prepared

HOUR = 3_600_000


@pytest.fixture
def place(tmp_path):
    return prepared(tmp_path)


# ---- the clock


def test_a_clock_that_goes_back_changes_no_state(place, tmp_path, monkeypatch):
    times = iter([10 * HOUR, 11 * HOUR, 9 * HOUR, 10 * HOUR + 1, 12 * HOUR])
    with monkeypatch.context() as patch:
        patch.setattr(committer, "_wall_ms", lambda: next(times))
        with deployment(place, snapshots={"at_close": False}) as one:
            digests = [one.graph.digest()]
            for i in range(5):
                one.apply(edge(i, i + 1))
                digests.append(one.graph.digest())
    assert not [each for each in audit.verify(place / "data") if each.fault]
    # the state after the last entry that says a time up to the one that is asked for
    wanted = {8: 0, 9: 3, 10: 3, 11: 4, 12: 5}
    for hour, version in wanted.items():
        target = tmp_path / f"at-{hour}"
        assert audit.restored(place / "data", target, time_ms=hour * HOUR) == version, hour
        config = {"models": str(place / "models"), "engine": [{"name": "scores", "model": "fraud"}]}
        with lg.Deployment(config, target) as then:
            assert then.graph.digest() == digests[version]


def dated():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 4)).astype(np.float32)
    return lg.Graph(features, np.arange(20), np.arange(1, 21), time=np.arange(20), ttl=15)


def later(u, time):
    updates = lg.Updates()
    updates.add_edge(u, u + 1, time=time)
    return updates


def test_edges_expire_by_the_time_of_edges_and_a_replay_makes_the_same_steps(place, monkeypatch):
    monkeypatch.setattr(committer, "_wall_ms", iter(range(10**6, 0, -1)).__next__)
    one = deployment(place, dated).start()
    counts = [one.graph.edge_count]
    for time in (22, 25, 24, 40, 41):  # 24 comes late
        one.apply(later(1, time))
        counts.append(one.graph.edge_count)
    assert counts[4] < counts[3]
    live = one.graph.digest(), one.engine("scores").state_digest(), one.graph.now
    with UpdateLog(open_log(f"sqlite:{place / 'data' / 'history.db'}", must_exist=True)) as log:
        kinds = [entry.updates.buffer.to_arrays()["kind"].tolist() for entry in log.read()]
    assert sum(2 in each for each in kinds) >= 3  # the removals are updates of the entries
    abandon(one)
    with deployment(place, dated) as again:
        assert (again.graph.digest(), again.engine("scores").state_digest(), again.graph.now) == live
    assert not [each for each in audit.verify(place / "data") if each.fault]


# ---- a broker


@pytest.fixture
def server(tmp_path):
    server = NatsServer(tmp_path / "jetstream")
    yield server
    server.kill()


def on_nats(place, server, monkeypatch, seconds):
    monkeypatch.setattr(deployments, "open_log", partial(open_log, timeout_seconds_max=seconds))
    return deployment(place, log={"url": server.url("history"), "keep_entries": 0}, snapshots={"keep": 1})


def test_a_broker_that_comes_back_in_time_is_waited_for(place, server, monkeypatch):
    with on_nats(place, server, monkeypatch, 60.0) as one:
        one.apply(edge(1, 2), key="a")
        server.kill()
        future = one.submit(edge(2, 3), key="b")
        one.engine("scores").predict([1])  # reads go on
        starting = threading.Timer(0.5, server.start)
        starting.start()
        assert future.result(120).version == 2
        starting.join()
        assert one.log.tail == 2


def test_a_broker_that_stays_away_refuses_writes_and_loses_nothing(place, server, monkeypatch):
    with on_nats(place, server, monkeypatch, 1.0) as one:
        one.apply(edge(1, 2), key="a")
        before = one.graph.digest()
        server.kill()
        with pytest.raises(LogUnavailable):
            one.apply(edge(2, 3), key="b")
        assert not one.is_ready
        assert one.graph.digest() == before
        server.start()
        assert one.apply(edge(2, 3), key="b").version == 2
        assert one.is_ready
        one.snapshot()
        assert one.log.first == 1  # this log can let go of entries, too
        digest = one.graph.digest()
    with on_nats(place, server, monkeypatch, 30.0) as again:
        assert again.graph.digest() == digest
        assert again.apply(edge(2, 3), key="b").repeated


# ---- keys


def test_a_key_is_known_until_so_many_newer_ones_have_come(place):
    with deployment(place, log={"keys_max": 2}) as one:
        for key in ("a", "b"):
            one.apply(edge(1, 2), key=key)
        assert one.apply(edge(1, 2), key="a") == (1, 1, True)
        one.apply(edge(1, 2), key="c")  # a repeated key is no newer one: "a" goes
        assert one.apply(edge(1, 2), key="b").repeated
        assert one.apply(edge(1, 2), key="a") == (4, 1, False)  # it is applied again
        edges = one.graph.edge_count
    with deployment(place, log={"keys_max": 2}) as again:
        assert again.graph.edge_count == edges
        assert again.apply(edge(1, 2), key="a").repeated
        assert again.apply(edge(1, 2), key="c").repeated
        assert not again.apply(edge(1, 2), key="b").repeated
